"""The main script of a worker process, run before any module of flowdsl is imported.

A worker needs only a part of flowdsl. Importing all public names would take longer than everything
else that a worker does before its first element. So the package is imported lazily, when a function
of the user accesses a name in it.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class Package(ModuleType):
    """A package whose code runs when an attribute is first accessed."""

    def __getattr__(self, name: str) -> Any:
        self.__class__ = ModuleType  # type: ignore[assignment]  # an ordinary module from here on
        assert self.__spec__ is not None
        assert self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def stand_in(name: str) -> None:
    """Register a package in ``sys.modules`` without running its code yet."""
    spec = find_spec(name)
    assert spec is not None
    package = Package(name)
    package.__spec__, package.__loader__ = spec, spec.loader
    package.__path__ = spec.submodule_search_locations or []
    package.__file__ = spec.origin
    sys.modules[name] = package


def make_flow(node: Any) -> Any:
    """Create the flow over a node, for user functions that build flows; imports the package."""
    return import_module("flowdsl.flow").Flow(node)  # the import registers its own function


if __name__ == "__main__":
    gc.disable()  # until a worker begins: what is imported is never garbage
    module, fd, *sys.path[:] = sys.argv[1:]
    stand_in("flowdsl")
    import_module("flowdsl.nodes.base").register_flow_class(make_flow)
    import_module(module).main(int(fd))
