"""Which modules a program needs that can be imported once for all of its workers.

They are those of flowdsl and of installed packages: importing one again is only a waste. A module
of the user's project is imported by each worker for itself, since it may open files or draw numbers
when it is imported, and workers must not share those. What such a module has imported from
installed packages counts.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from types import BuiltinFunctionType, FunctionType, ModuleType

from flowdsl.workers.pickling import SCRIPTS

_NAMED = (type, FunctionType, BuiltinFunctionType)
"""The types whose instances tell their module."""

_INDIFFERENT = sys.stdlib_module_names | {"numpy", "zmq", __name__.partition(".")[0]}
"""Packages that read no variable of the environment when they are imported, or none that matters
to workers but those in ``surroundings``."""


def module_of(value: object) -> str | None:
    """The name of the module that has to be imported for a value to be had by name, if any."""
    kind = type(value)  # isinstance would ask proxies, some of which answer by an error
    if issubclass(kind, ModuleType):
        name = getattr(value, "__name__", None)
    elif issubclass(kind, _NAMED):
        name = getattr(value, "__module__", None)
    else:
        return None
    return name if isinstance(name, str) else None


def installed(names: Iterable[str]) -> frozenset[str]:
    """The installed modules among some that this process has imported, and those they lead to."""
    return frozenset(_installed(names))


def _installed(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        module = sys.modules.get(name)
        if module is None or name in SCRIPTS:
            continue
        if _is_installed(name):
            yield name
            continue
        for value in list(vars(module).values()):
            other = module_of(value)
            if other in sys.modules and _is_installed(other):
                yield other


def read_the_environment(names: Iterable[str]) -> bool:
    """Whether some of these modules may have read the environment when they were imported."""
    return any(name.partition(".")[0] not in _INDIFFERENT for name in names)


@cache
def _is_installed(name: str) -> bool:
    package = name.partition(".")[0]
    if package in _INDIFFERENT:
        return True
    spec = getattr(sys.modules[name], "__spec__", None)
    folders = (*site.getsitepackages(), site.getusersitepackages())
    where = tuple(os.path.join(folder, "") for folder in folders)
    return spec is not None and (spec.origin or "").startswith(where)
