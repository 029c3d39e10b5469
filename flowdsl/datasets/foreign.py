"""Identifies objects of other libraries without importing the libraries."""

from __future__ import annotations

import sys
from functools import reduce

_MISSING = object()


def is_a(value: object, module: str, name: str) -> bool:
    """Return True if a value is an instance of a class, without importing its module.

    If the module is not imported, no instance of the class can exist.

    >>> import decimal
    >>> is_a(decimal.Decimal(1), "decimal", "Decimal"), is_a(1, "no_such_module", "Number")
    (True, False)
    """
    start: object = sys.modules.get(module, _MISSING)
    cls = reduce(lambda of, part: getattr(of, part, _MISSING), name.split("."), start)
    return isinstance(cls, type) and isinstance(value, cls)


def name_of_class(value: object) -> str:
    """Return the class name of an argument for messages; a class was probably not called."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
