"""Pickling of arrays so that a read-only array arrives read-only.

NumPy's own pickles do so for the contents of a contiguous array. An array of another layout, of
objects or of times, and a masked array, would arrive writable; and the entry of a structured array
would arrive such that writing to it changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np


def _array_reduction(array: Any) -> tuple[Any, ...]:
    reduced: tuple[Any, ...] = array.__reduce_ex__(5)
    # Without a state, the contents are a buffer, which pickle restores as read-only as it was.
    if array.flags.writeable or len(reduced) < 3:
        return reduced
    make, arguments, state = reduced[:3]
    return make, arguments, state, None, None, _set_state_of_read_only


def _set_state_of_read_only(array: Any, state: Any) -> None:
    array.__setstate__(state)
    array.setflags(write=False)


def _entry_reduction(entry: Any) -> tuple[Any, ...]:
    if entry.dtype.names is None or not entry.dtype.itemsize:  # it has no fields to write to
        return tuple(entry.__reduce__())
    array = np.array([entry])
    array.setflags(write=entry.flags.writeable)
    return _entry_of, (array,)


def _entry_of(array: Any) -> Any:
    return array[0]


ARRAYS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    np.ndarray: _array_reduction,
    np.recarray: _array_reduction,
    np.void: _entry_reduction,
}
"""The functions that return the ``__reduce__`` tuples of arrays, by class."""


def add_masked_arrays() -> None:
    """Add masked arrays to ``ARRAYS`` if this process has imported their module.

    Without it there are none, and importing it would take as long as importing all that a worker
    needs of flowdsl.
    """
    if kind := getattr(sys.modules.get("numpy.ma"), "MaskedArray", None):
        ARRAYS[kind] = _array_reduction
