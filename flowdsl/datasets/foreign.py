"""Identifies objects of other libraries without importing the libraries."""

from __future__ import annotations

import sys


def is_a(value: object, module: str, name: str) -> bool:
    """Return True if a value is an instance of a class, without importing its module.

    If the module is not imported, no instance of the class can exist.

    >>> import decimal
    >>> is_a(decimal.Decimal(1), "decimal", "Decimal"), is_a(1, "no_such_module", "Number")
    (True, False)
    """
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return isinstance(found, type) and isinstance(value, found)


def name_of_class(value: object) -> str:
    """Return the class of an argument for messages; if it is a class itself, say so."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
