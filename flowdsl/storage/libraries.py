"""Optional dependencies of formats: imported on use; errors name the command to install them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from flowdsl.errors import MissingLibrary

_NAMES = {"google": "protobuf", "google_crc32c": "google-crc32c"}
"""The names of libraries whose modules are called otherwise."""


def library(module: str, operator: str, extra: str) -> Any:
    """Import a module of an optional dependency.

    >>> library("no_such_module", "from_parquet", "parquet")
    Traceback (most recent call last):
        ...
    flowdsl.errors.MissingLibrary: from_parquet needs no_such_module, which is not installed: \
pip install "flowdsl[parquet]"

    Raises:
        MissingLibrary: The library is not installed; the message says how to install it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        top = module.partition(".")[0]
        missing = _NAMES.get(top, top)
        known = isinstance(error, ModuleNotFoundError)
        why = "is not installed" if known else f"cannot be imported ({error})"
        raise MissingLibrary(
            f'{operator} needs {missing}, which {why}: pip install "flowdsl[{extra}]"'
        ) from error


def imports_later(package: str, name: str, module: str, extra: str) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package with one name, whose module needs a library.

    The module is imported when the name is used, since most programs have no such library.
    """

    def attribute(wanted: str) -> object:
        if wanted != name:
            raise AttributeError(f"module {package!r} has no attribute {wanted!r}")
        library(extra, f"{package.removeprefix('flowdsl.')}.{name}", extra)
        return getattr(import_module(f"{package}.{module}"), name)

    return attribute
