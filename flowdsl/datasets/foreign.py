"""What a given object is, told without importing the library that it is of."""

from __future__ import annotations

import sys
from functools import reduce

_MISSING = object()


def is_a(value: object, module: str, name: str) -> bool:
    """Whether a value is an instance of a class that may not even be imported.

    If it is one, somebody has imported its module.

    >>> import decimal
    >>> is_a(decimal.Decimal(1), "decimal", "Decimal"), is_a(1, "no_such_module", "Number")
    (True, False)
    """
    start: object = sys.modules.get(module, _MISSING)
    cls = reduce(lambda of, part: getattr(of, part, _MISSING), name.split("."), start)
    return isinstance(cls, type) and isinstance(value, cls)


def name_of_class(value: object) -> str:
    """How a message names what was given: a class by its own name, as one may forget to call it."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
