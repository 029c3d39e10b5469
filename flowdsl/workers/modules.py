"""Modules of a program that the fork server can import once for all workers.

These are the modules of flowdsl and of installed packages. A module of the user's project is
imported by each worker itself, since it may open files or draw random numbers when it is imported,
and workers must not share those. Installed packages that such a module has imported are included.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from types import BuiltinFunctionType, FunctionType, ModuleType

SCRIPTS = ("__main__", "__mp_main__")
"""The names that the module of the user's script can have."""

_NAMED = (type, FunctionType, BuiltinFunctionType)
"""The types whose instances have a ``__module__``."""

_INDIFFERENT = sys.stdlib_module_names | {
    *("numpy", "zmq", "threadpoolctl", __name__.partition(".")[0])
}
"""Packages that read no environment variables when they are imported, or only variables that
``process_environment`` treats as inherited."""


def module_of(value: object) -> str | None:
    """Return the name of the module from which pickle imports a value; None if there is none."""
    kind = type(value)  # isinstance would call proxies, some of which raise
    if issubclass(kind, ModuleType):
        name = getattr(value, "__name__", None)
    elif issubclass(kind, _NAMED):
        name = getattr(value, "__module__", None)
    else:
        return None
    return name if isinstance(name, str) else None


def installed(names: Iterable[str]) -> frozenset[str]:
    """Return the installed ones of some imported modules, and the installed modules they use."""
    return frozenset(_installed(names))


def _installed(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        module = sys.modules.get(name)
        if module is None or name in SCRIPTS:
            continue
        if is_installed(name):
            yield name
            continue
        for value in list(vars(module).values()):
            other = module_of(value)
            if other in sys.modules and is_installed(other):
                yield other


def may_have_read_environment(names: Iterable[str]) -> bool:
    """Return True if one of these modules may have read the environment when imported."""
    return any(name.partition(".")[0] not in _INDIFFERENT for name in names)


@cache
def is_installed(name: str) -> bool:
    """Return True for an imported module of the standard library or of an installed package."""
    package = name.partition(".")[0]
    if package in _INDIFFERENT:
        return True
    spec = getattr(sys.modules[name], "__spec__", None)
    folders = (*site.getsitepackages(), site.getusersitepackages())
    where = tuple(os.path.join(folder, "") for folder in folders)
    return spec is not None and (spec.origin or "").startswith(where)
