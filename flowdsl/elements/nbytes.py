"""The sizes of elements in bytes, which limit what is in flight."""

from __future__ import annotations

import sys
from collections.abc import Collection

import numpy as np

from flowdsl.elements.structure import PLAIN, components

PLAIN_NUMBERS = PLAIN - {str, bytes, np.str_, np.bytes_}
"""Common classes of numbers, which take a few bytes each."""


_FEW = 16
"""For this number of values or fewer, a loop costs less than a test of the classes of all."""

MAX_DEPTH = 8
"""Values that are nested deeper are not measured: a list may contain itself."""


def nbytes_of(element: object, depth: int = 0) -> int:
    """The approximate bytes of an element: of its arrays, text and bytes, and 8 for each number.

    An object of another class counts by its ``nbytes``; without that, what it refers to does not
    count. A value that occurs twice counts twice.

    >>> import numpy as np
    >>> nbytes_of((np.zeros(3), "abc", 7))
    35
    """
    kind = type(element)
    values: Collection[object]
    if kind is tuple or kind is list:
        values = element  # type: ignore[assignment]  # it is a sequence
    elif kind is dict:
        values = element.values()  # type: ignore[attr-defined]  # it is a dict
    else:
        return _size(element, depth)
    if len(values) > _FEW and PLAIN_NUMBERS.issuperset(map(type, values)):
        return 8 * len(values)
    nbytes = 0
    for value in values:  # without a call for each value, which would cost more than most rows
        kind = type(value)
        if kind in PLAIN_NUMBERS:
            nbytes += 8
        elif kind is str or kind is bytes:
            nbytes += len(value)  # type: ignore[arg-type]  # it has a length
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            nbytes += value.nbytes
        else:
            nbytes += nbytes_of(value, depth + 1) if depth < MAX_DEPTH else sys.getsizeof(value, 0)
    return nbytes


def _size(value: object, depth: int) -> int:
    """The bytes of a value that is neither a plain container nor in one."""
    if type(value) in PLAIN_NUMBERS:
        return 8
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, np.ndarray):
        return sum(map(nbytes_of, value.flat)) if value.dtype.hasobject else value.nbytes
    try:
        if isinstance(value, list):
            return nbytes_of(list(value), depth)
        parts = components(value)
        if parts is not None:
            return nbytes_of([part for _, part in parts], depth)
        nbytes = getattr(value, "nbytes", None)
    except Exception:  # an attribute that the object computes may raise anything
        nbytes = None
    return nbytes if isinstance(nbytes, int) else sys.getsizeof(value, 0)
