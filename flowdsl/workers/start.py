"""The script that a worker process is started with: no module of the package is imported before it.

What a worker runs needs a part of flowdsl only; all of its public names take longer to import than
everything else that a worker does until its first element. So the package stands there empty, until
a function of the user's asks it for a name.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class Package(ModuleType):
    """A package that is run when it is first asked for a name."""

    def __getattr__(self, name: str) -> Any:
        self.__class__ = ModuleType  # type: ignore[assignment]  # from here on it is what it seems
        assert self.__spec__ is not None
        assert self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def stand_in(name: str) -> None:
    """Put a package in its place that is not run yet."""
    spec = find_spec(name)
    assert spec is not None
    package = Package(name)
    package.__spec__, package.__loader__ = spec, spec.loader
    package.__path__ = spec.submodule_search_locations or []
    package.__file__ = spec.origin
    sys.modules[name] = package


def whole_surface(node: Any) -> Any:
    """The flow over a node, for a function of the user's that builds one: all of the package."""
    return import_module("flowdsl.flow").Flow(node)  # whose import puts itself in the place of this


if __name__ == "__main__":
    module, fd, *sys.path[:] = sys.argv[1:]
    stand_in("flowdsl")
    import_module("flowdsl.node").provide_surface(whole_surface)
    import_module(module).main(int(fd))
