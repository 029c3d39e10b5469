"""The dtypes with which numbers stack: they depend on the type of a number, never on its value."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

NUMBERS = (int, float, complex)
"""Python's number types; a bool is an int, and so is a member of an ``IntEnum``."""

_DTYPES = {
    bool: np.dtype(np.bool_),
    int: np.dtype(np.int64),
    float: np.dtype(np.float64),
    complex: np.dtype(np.complex128),
}


def dtype_of_number(kind: type) -> np.dtype[Any]:
    """Return the dtype of a Python number type, or of a subclass of one."""
    dtype = _DTYPES.get(kind)
    if dtype is None:
        return next(dtype for base, dtype in _DTYPES.items() if issubclass(kind, base))
    return dtype


def dtype_of_scalar(x: object) -> np.dtype[Any] | None:
    """Return the dtype of a number of Python or NumPy; None for any other value.

    >>> dtype_of_scalar(1.5) == dtype_of_scalar(np.float64(1.5))
    True
    """
    if isinstance(x, np.generic):
        return cast("np.dtype[Any]", x.dtype)
    return dtype_of_number(type(x)) if isinstance(x, NUMBERS) else None


def are_one_dtype(a: object, b: object) -> bool:
    """Return True for two numbers that stack with the same dtype."""
    dtype_a, dtype_b = dtype_of_scalar(a), dtype_of_scalar(b)
    # ``None == np.dtype(np.float64)`` is true in NumPy.
    return dtype_a is not None and dtype_b is not None and dtype_a == dtype_b
