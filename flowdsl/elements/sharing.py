"""Detects arrays that share their memory with code outside of their element.

The problem: a training step may write to its batch. If the batch is ``images[i : i + 32]``, with
``images`` a mapped file, the step would write to the file, and a later epoch would read what it
wrote. Copying every batch would be safe, and would cost as much as stacking it again. The choice:
copy an array only if it is a view of an array to which something else refers. An array that owns
its memory counts as the element's own, since a function that keeps what it returns is rare.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowdsl.resources.systems import PrivateMemory


class MemoryOfElement(np.ndarray[Any, Any]):
    """Memory that one element has for itself; it is the base of the element's arrays."""


def is_shared(array: NDArray[Any]) -> bool:
    """Return True if code outside of an element may use the memory of its array.

    A view of an array to which nothing else refers is not shared, such as a transposed image.

    >>> rows = np.zeros((4, 2))
    >>> is_shared(rows), is_shared(rows[:2]), is_shared(np.zeros((4, 2)).T)
    (False, True, False)
    """
    while array.base is not None:
        if isinstance(array.base, (MemoryOfElement, PrivateMemory)):
            return False
        if not isinstance(array.base, np.ndarray) or _references_to_base(array) > _ONLY_ONE:
            return True
        array = array.base
    return False


def _references_to_base(array: NDArray[Any]) -> int:
    return sys.getrefcount(array.base)


_ONLY_ONE = _references_to_base(np.empty(1)[:])
"""The result if only the view refers to its base; it depends on the version of Python."""
