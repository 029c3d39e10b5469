"""Slots: the dtypes and shapes that a framework's queue has for the components of an element.

Nothing is cast: a value whose dtype or shape does not match its slot is refused.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.numbers import NUMBERS, dtype_of_number
from flowdsl.elements.specs import ArraySpec, ListSpec, Spec, ValueSpec
from flowdsl.elements.structure import from_dlpack, in_native_order, is_masked, is_tensor

TEXT = np.dtype(np.bytes_)
"""The dtype of a slot for text of any length."""

_NUMBERS = (bool, *NUMBERS)
"""Python's number types; their dtypes are the same as in ``batch``."""

Leaf: TypeAlias = ArraySpec | ValueSpec | ListSpec
"""The spec of one component."""


@attrs.frozen
class Slot:
    """The dtype and shape of one component of all elements; shapes may be partly unknown."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] | None

    @property
    def spec(self) -> ArraySpec:
        """The slot as a flow's spec, for messages."""
        return ArraySpec(self.dtype, self.shape)

    def has_shape(self, dims: tuple[int, ...]) -> bool:
        """Return True if a shape matches."""
        return self.shape is None or (
            len(dims) == len(self.shape)
            and all(wanted in (None, side) for side, wanted in zip(dims, self.shape, strict=True))
        )

    def array(self, value: object) -> NDArray[Any] | None:
        """Convert a value to an array; return None if it does not match.

        Only an array of the other byte order is copied.
        """
        text = _array_of_text(value) if self.dtype == TEXT else None
        if text is not None and self.has_shape(text.shape):
            return text
        kind: type = type(value)
        if kind in _NUMBERS:
            return self._array_of_number(kind, value)
        if is_tensor(kind):
            value = from_dlpack(value)
        if not isinstance(value, (np.ndarray, np.generic)) or is_masked(value):
            return None
        if slot_dtype(value.dtype) != self.dtype or not self.has_shape(value.shape):
            return None
        # an array: for a NumPy scalar, TensorFlow would copy every component twice
        return in_native_order(np.asarray(value))

    def is_too_small_for(self, value: object) -> bool:
        """Return True if a value does not match because it is an int of more than 64 bits."""
        kind = type(value)
        matches = kind is int and self.dtype == dtype_of_number(kind) and self.has_shape(())
        return matches and self._array_of_number(kind, value) is None

    def _array_of_number(self, kind: type, value: object) -> NDArray[Any] | None:
        if self.dtype != dtype_of_number(kind) or not self.has_shape(()):
            return None
        try:
            return np.asarray(value, self.dtype)
        except OverflowError:  # more than 64 bits
            return None


def _array_of_text(value: object) -> NDArray[Any] | None:
    """Convert text or a list of text to an array of objects; None for anything else.

    NumPy's own text dtypes would drop trailing NULs.
    """
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, (str, bytes)) for text in texts):
        return None
    array = np.empty(np.shape(value) if isinstance(value, list) else (), object)
    array[...] = value
    return array


def slot_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of a slot for arrays of this dtype: text has one dtype for all lengths.

    Frameworks have no dtypes of another byte order, so a slot's arrays are of this machine's.
    """
    return TEXT if dtype.kind in "SU" else dtype if dtype.isnative else dtype.newbyteorder("=")


def slot_spec(leaf: Leaf) -> Leaf:
    """Return the spec of a component in a slot: text and Python numbers become arrays."""
    if isinstance(leaf, ListSpec) and _is_text(leaf.item):
        return ArraySpec(TEXT, (leaf.length,))
    if isinstance(leaf, ValueSpec) and leaf.type in _NUMBERS:
        return ArraySpec(dtype_of_number(leaf.type), ())
    if _is_text(leaf):
        return ArraySpec(TEXT, ())
    if isinstance(leaf, ArraySpec) and leaf.dtype is not None:
        return attrs.evolve(leaf, dtype=slot_dtype(leaf.dtype))
    return leaf


def _is_text(spec: Spec) -> bool:
    return isinstance(spec, ValueSpec) and issubclass(spec.type, (str, bytes))
