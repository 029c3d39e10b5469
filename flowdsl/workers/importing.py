"""Modules that workers cannot import: what they define is sent by value.

A worker imports a module by its name, from the search path and the folder of the program. It does
not find a module that the program has made itself or runs by ``runpy``. It does not find one by a
relative entry of ``sys.path`` if the program has changed its folder, nor one whose file was
removed. It may also find another module of this name.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from types import ModuleType

import cloudpickle

from flowdsl.workers.modules import SCRIPTS, is_installed, module_of


def send_by_value_unless_found(value: object) -> None:
    """Make cloudpickle send a function, class or module by value if no worker can import it."""
    name = module_of(value)
    module = None if name is None or name in SCRIPTS else sys.modules.get(name)
    if name is None or module is None or is_installed(name):
        return
    if not _is_found(name, _origin(module), tuple(sys.path), os.getcwd()):
        known = getattr(module, "__name__", None)
        # Cloudpickle accepts a module only under the name that the module itself has.
        if isinstance(known, str) and sys.modules.get(known) is module:
            cloudpickle.register_pickle_by_value(module)


def _origin(module: ModuleType) -> str | None:
    spec = getattr(module, "__spec__", None)
    return getattr(module, "__file__", None) if spec is None else spec.origin


@lru_cache(maxsize=1024)
def _is_found(name: str, origin: str | None, path: tuple[str, ...], folder: str) -> bool:
    """Return True if an import finds this module; ``path`` and ``folder`` are the current ones."""
    package = name.partition(".")[0]
    if package != name and not _is_found(package, _origin(sys.modules[package]), path, folder):
        return False
    parent = sys.modules.get(name.rpartition(".")[0])
    # absolute: finders remember where a relative entry led before a change of folder
    search = getattr(parent, "__path__", [os.path.join(folder, entry) for entry in path])
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = None if find is None else find(name, search)
        if spec is not None:
            found: str | None = spec.origin
            if found is None or origin is None:
                return found is origin
            return found == origin or os.path.realpath(found) == os.path.realpath(origin)
    return False
