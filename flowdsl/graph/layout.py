"""The components of an element as tensors: announced before any worker starts, then checked.

Nothing is cast: a component that is not as announced is an error that says where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from flowdsl.elements import from_dlpack, is_tensor, leaves
from flowdsl.errors import SpecMismatch
from flowdsl.specs import UNKNOWN, ArraySpec, ListSpec, Spec, ValueSpec, leaf_specs, meet, spec_of

_TEXT = np.dtype(np.bytes_)
"""The dtype for text of any length, as ``tf.string``."""

_NUMPY = {bool: "np.bool_", int: "np.int64", float: "np.float64"}


@attrs.frozen
class Slot:
    """The dtype and shape of one component of every element; dims or the shape may be unknown."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] | None

    @property
    def tensor(self) -> tf.TensorSpec:
        """The slot as a TensorFlow spec."""
        return tf.TensorSpec(self.shape, tf.as_dtype(self.dtype), self.name)

    @property
    def spec(self) -> ArraySpec:
        """The slot as a flow's spec, for messages."""
        return ArraySpec(self.dtype, self.shape)

    def takes(self, value: NDArray[Any] | np.generic) -> bool:
        """Whether this value has the announced dtype and shape."""
        return _plain(value.dtype) == self.dtype and self.holds(value.shape)

    def holds(self, dims: tuple[int, ...]) -> bool:
        """Whether this shape is as announced."""
        return self.shape is None or (
            len(dims) == len(self.shape)
            and all(want in (None, got) for got, want in zip(dims, self.shape, strict=True))
        )


Layout: TypeAlias = tuple[Slot, ...]


def layout_of(spec: Spec, declared: Sequence[tf.TensorSpec] | None = None) -> Layout:
    """The slots for a flow's elements.

    ``declared`` is trusted where the flow knows nothing, or only what it saw in one element: other
    shapes may vary more.

    Raises:
        SpecMismatch: A component is no array, has no dtype, or is declared to be something else;
            the message names the component, what it is, and what to write.
    """
    known = leaf_specs(spec)
    if declared is None:
        return tuple(_slot(name, leaf) for name, leaf in known)
    if known == [("element", UNKNOWN)]:
        known = [(tensor.name or str(i), UNKNOWN) for i, tensor in enumerate(declared)]
    if len(known) != len(declared):
        raise SpecMismatch(
            f"QueueInput: spec= lists {len(declared)} tensor(s), but an element has {len(known)} "
            f"component(s): {', '.join(name for name, _ in known)}"
        )
    pairs = zip(known, declared, strict=True)
    return tuple(_slot(name, _declared(name, leaf, tensor)) for (name, leaf), tensor in pairs)


def to_arrays(layout: Layout, element: object, position: int) -> list[NDArray[Any]]:
    """The arrays of one element, in order and not copied.

    Raises:
        SpecMismatch: It is not what was announced; the message names the element and component.
    """
    values = leaves(element)
    if len(values) != len(layout):
        raise SpecMismatch(
            f"QueueInput: element {position} has {len(values)} component(s), but its spec has "
            f"{len(layout)}: {', '.join(slot.name for slot in layout)}"
        )
    arrays: list[NDArray[Any]] = []
    for slot, value in zip(layout, values, strict=True):
        text = _of_text(value) if slot.dtype == _TEXT else None
        if text is not None and slot.holds(text.shape):
            arrays.append(text)
            continue
        if is_tensor(type(value)):
            value = from_dlpack(value)
        if not isinstance(value, (np.ndarray, np.generic)) or not slot.takes(value):
            raise SpecMismatch(
                f"QueueInput: component {slot.name!r} of element {position} is {spec_of(value)}, "
                f"but its spec is {slot.spec}; nothing is cast: make the elements alike with .map, "
                f"or declare what varies with spec=[tf.TensorSpec(shape, dtype), ...]"
            )
        # For a NumPy scalar TensorFlow would copy every component twice; not for a 0-d array.
        arrays.append(np.asarray(value))
    return arrays


def _of_text(value: object) -> NDArray[Any] | None:
    """Text or a list of text as an array of objects, for a tensor of strings; else None.

    NumPy's own text dtypes would drop trailing NULs.
    """
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, (str, bytes)) for text in texts):
        return None
    array = np.empty(np.shape(value) if isinstance(value, list) else (), object)
    array[...] = value
    return array


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return _TEXT if dtype.kind in "SU" and dtype.isnative else dtype


Leaf: TypeAlias = ArraySpec | ValueSpec | ListSpec


def _in_slot(leaf: Leaf) -> Leaf:
    """The leaf with text as strings of any length, as a queue holds it."""
    if isinstance(leaf, ListSpec) and _is_text(leaf.item):
        return ArraySpec(_TEXT, (leaf.length,))
    return ArraySpec(_TEXT, ()) if _is_text(leaf) else leaf


def _is_text(spec: Spec) -> bool:
    return isinstance(spec, ValueSpec) and issubclass(spec.type, (str, bytes))


def _declared(name: str, leaf: Leaf, tensor: tf.TensorSpec) -> ArraySpec:
    dtype = _TEXT if tensor.dtype == tf.string else np.dtype(tensor.dtype.as_numpy_dtype)
    shape = None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
    array = ArraySpec(dtype, shape)
    leaf = _in_slot(leaf)
    if isinstance(leaf, ArraySpec) and leaf.dtype is not None:
        leaf = attrs.evolve(leaf, dtype=_plain(leaf.dtype))
    meet(array, leaf, f"QueueInput: component {name!r}, by spec=")
    return array


def _slot(name: str, leaf: Leaf) -> Slot:
    where = f"QueueInput: component {name!r}"
    leaf = _in_slot(leaf)
    if leaf == UNKNOWN:
        raise SpecMismatch(
            f"{where}: its dtype is not known before it is made; annotate the result of the "
            f"function that makes it, or give spec=[tf.TensorSpec(shape, dtype), ...]"
        )
    if not isinstance(leaf, ArraySpec):
        kind = list if isinstance(leaf, ListSpec) else leaf.type
        raise SpecMismatch(
            f"{where} is a Python {kind.__name__}, which has no dtype: make it "
            f"{_NUMPY.get(kind, 'np.asarray')}(...) with .map"
        )
    if leaf.dtype is None:
        raise SpecMismatch(
            f"{where} is an array of unknown dtype; give spec=[tf.TensorSpec(shape, dtype), ...]"
        )
    dtype = _plain(leaf.dtype)
    if dtype.hasobject or not dtype.isnative or not _in_tensorflow(dtype):
        raise SpecMismatch(
            f"{where} has dtype {leaf.dtype.str}, which TensorFlow lacks; convert it with .map"
        )
    return Slot(name, dtype, leaf.shape)


def _in_tensorflow(dtype: np.dtype[Any]) -> bool:
    try:
        tf.as_dtype(dtype)
    except TypeError:
        return False
    return True
