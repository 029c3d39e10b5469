"""Elements as tensors: dtypes and shapes are fixed before workers start, then checked.

Nothing is cast: a component that does not match is an error with its position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from flowdsl.elements.arrays import NUMBERS, dtype_of_number
from flowdsl.elements.flattening import Flatten, flattener, flattener_of_first, order_of
from flowdsl.elements.specs import (
    UNKNOWN,
    ArraySpec,
    ListSpec,
    Spec,
    StructSpec,
    ValueSpec,
    leaf_specs,
    meet,
    spec_of,
)
from flowdsl.elements.structure import components, form_of, from_dlpack, is_tensor
from flowdsl.errors import SpecMismatch

_TEXT = np.dtype(np.bytes_)
"""The dtype of text of any length, for ``tf.string``."""

_NUMBERS = (bool, *NUMBERS)
"""Python's number types; their dtypes are the same as in ``batch``."""


@attrs.frozen
class Slot:
    """The dtype and shape of one component of all elements; shapes may be partly unknown."""

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
        """Return True if a value has this dtype and a matching shape."""
        return _plain(value.dtype) == self.dtype and self.holds(value.shape)

    def holds(self, dims: tuple[int, ...]) -> bool:
        """Return True if a shape matches."""
        return self.shape is None or (
            len(dims) == len(self.shape)
            and all(want in (None, got) for got, want in zip(dims, self.shape, strict=True))
        )


@attrs.frozen
class Signature:
    """The slots for the components of an input source's elements."""

    source: str
    """The name of the input source, for messages."""
    slots: tuple[Slot, ...]
    flatten: Flatten
    """Returns the components of an element in the order of the slots."""
    by_place: bool = True
    """True if components may be identified by their places."""

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        return tuple(slot.tensor for slot in self.slots)

    def arrays(self, element: object, position: int) -> list[NDArray[Any] | tf.Tensor]:
        """Return the arrays of one element, in order and without copies; tensors are kept.

        Raises:
            SpecMismatch: The element does not match; the message names the element and component.
        """
        try:
            values = self.flatten(element)
        except SpecMismatch as error:
            raise SpecMismatch(
                f"{self.source}: element {position}: {error}; make the names of components equal "
                f"with .map, or name them with spec=[tf.TensorSpec(shape, dtype, name), "
                f"...]"
            ) from error
        if len(values) != len(self.slots):
            raise SpecMismatch(
                f"{self.source}: element {position} has {len(values)} component(s), but its spec "
                f"has {len(self.slots)}: {', '.join(slot.name for slot in self.slots)}"
            )
        arrays: list[NDArray[Any] | tf.Tensor] = []
        for slot, value in zip(self.slots, values, strict=True):
            array = _array(slot, value)
            if array is None:
                raise SpecMismatch(
                    f"{self.source}: component {slot.name!r} of element {position} is "
                    f"{spec_of(value)}, but its spec is {slot.spec}; nothing is cast: make the "
                    f"elements alike with .map, or declare what varies with "
                    f"spec=[tf.TensorSpec(shape, dtype), ...]"
                )
            arrays.append(array)
        return arrays


def _array(slot: Slot, value: object) -> NDArray[Any] | tf.Tensor | None:
    """Convert a value for TensorFlow; return None if it does not match the slot."""
    if isinstance(value, tf.Tensor):
        shape = tuple(dim for dim in value.shape if dim is not None)  # all dims are known
        fits = value.dtype == slot.tensor.dtype and slot.holds(shape)
        return value if fits else None
    text = _of_text(value) if slot.dtype == _TEXT else None
    if text is not None and slot.holds(text.shape):
        return text
    kind: type = type(value)
    if kind in _NUMBERS:
        return _of_number(slot, kind, value)
    if is_tensor(type(value)):
        value = from_dlpack(value)
    if not isinstance(value, (np.ndarray, np.generic)) or not slot.takes(value):
        return None
    # For a NumPy scalar TensorFlow would copy every component twice; not for a 0-d array.
    return np.asarray(value)


def _of_number(slot: Slot, kind: type, value: object) -> NDArray[Any] | None:
    if slot.dtype != dtype_of_number(kind) or not slot.holds(()):
        return None
    try:
        return np.asarray(value, slot.dtype)
    except OverflowError:  # more than 64 bits
        return None


def signature_of(
    source: str, spec: Spec, declared: Sequence[tf.TensorSpec] | None = None
) -> Signature:
    """Return the slots for a flow's elements; ``source`` names the input source in messages.

    ``declared`` is used if the flow's spec is unknown, or was inferred from one element: shapes may
    vary more than that element shows.

    Raises:
        SpecMismatch: A component is not an array, has no dtype, or contradicts its declaration;
            the message names the component, its spec, and what to write.
    """
    known = leaf_specs(spec)
    by_place = not isinstance(spec, StructSpec) or issubclass(spec.form, tuple)
    if declared is None:
        own = tuple(_slot(source, name, leaf) for name, leaf in known)
        return Signature(source, own, flattener(spec), by_place)
    names = _names_of(declared)
    if spec == UNKNOWN:
        known = [(name, UNKNOWN) for name in names or map(str, range(len(declared)))]
    if len(known) != len(declared):
        raise SpecMismatch(
            f"{source}: spec= lists {len(declared)} tensor(s), but an element has {len(known)} "
            f"component(s): {', '.join(name for name, _ in known)}"
        )
    try:
        order = range(len(known)) if names is None else order_of(spec, names)
    except SpecMismatch as error:
        raise SpecMismatch(f"{source}: spec=: {error}") from error
    if spec != UNKNOWN:
        known = [known[k] for k in order]
    flatten = flattener_of_first(names) if spec == UNKNOWN else flattener(spec, names)
    slots = [
        _slot(source, name, _declared(source, name, leaf, tensor))
        for (name, leaf), tensor in zip(known, declared, strict=True)
    ]
    return Signature(source, tuple(slots), flatten, by_place)


def _names_of(declared: Sequence[tf.TensorSpec]) -> list[str] | None:
    """Return the names of all declared tensors; None if some have no name."""
    names = [tensor.name for tensor in declared]
    return None if None in names else [str(name) for name in names]


def signature_of_tensors(source: str, structure: object) -> Signature:
    """Return the slots for elements with this ``element_spec`` of tf.data.

    Raises:
        SpecMismatch: A component is not a plain tensor, e.g. a ragged one.
    """
    parts = components(structure)
    by_place = parts is None or isinstance(structure, tuple)
    slots: list[Slot] = []
    for name, spec in _named("", structure):
        if not isinstance(spec, tf.TensorSpec):
            raise SpecMismatch(
                f"{source}: component {name!r} is {spec!r}, not a plain tensor: convert it with "
                f".map, e.g. by to_tensor() of a ragged one"
            )
        dtype = _TEXT if spec.dtype == tf.string else np.dtype(spec.dtype.as_numpy_dtype)
        shape = None if spec.shape.rank is None else tuple(spec.shape.as_list())
        slots.append(Slot(name, dtype, shape))
    return Signature(source, tuple(slots), flattener(_form_of(structure)), by_place)


def _form_of(structure: object) -> Spec:
    """Return the names and forms of elements, without the specs of their components."""
    parts = components(structure)
    if parts is None:
        return UNKNOWN
    return StructSpec(form_of(structure), tuple((key, _form_of(part)) for key, part in parts))


def _named(name: str, structure: object) -> list[tuple[str, object]]:
    parts = components(structure)
    if parts is None:
        return [(name or "element", structure)]
    dot = f"{name}." if name else ""
    return [leaf for key, part in parts for leaf in _named(f"{dot}{key}", part)]


def _of_text(value: object) -> NDArray[Any] | None:
    """Convert text or a list of text to an array of objects, for a string tensor; else None.

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
    """Return the leaf as a queue stores it: text as ``tf.string``, a number with its dtype."""
    if isinstance(leaf, ListSpec) and _is_text(leaf.item):
        return ArraySpec(_TEXT, (leaf.length,))
    if isinstance(leaf, ValueSpec) and leaf.type in _NUMBERS:
        return ArraySpec(dtype_of_number(leaf.type), ())
    return ArraySpec(_TEXT, ()) if _is_text(leaf) else leaf


def _is_text(spec: Spec) -> bool:
    return isinstance(spec, ValueSpec) and issubclass(spec.type, (str, bytes))


def _declared(source: str, name: str, leaf: Leaf, tensor: tf.TensorSpec) -> ArraySpec:
    dtype = _TEXT if tensor.dtype == tf.string else np.dtype(tensor.dtype.as_numpy_dtype)
    shape = None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
    array = ArraySpec(dtype, shape)
    leaf = _in_slot(leaf)
    if isinstance(leaf, ArraySpec) and leaf.dtype is not None:
        leaf = attrs.evolve(leaf, dtype=_plain(leaf.dtype))
    meet(array, leaf, f"{source}: component {name!r}, by spec=")
    return array


def _slot(source: str, name: str, leaf: Leaf) -> Slot:
    where = f"{source}: component {name!r}"
    leaf = _in_slot(leaf)
    if leaf == UNKNOWN:
        raise SpecMismatch(
            f"{where}: its dtype is not known before it is computed; annotate the result of the "
            f"function that computes it, or pass spec=[tf.TensorSpec(shape, dtype), ...]"
        )
    if not isinstance(leaf, ArraySpec):
        kind = list if isinstance(leaf, ListSpec) else leaf.type
        raise SpecMismatch(
            f"{where} is a Python {kind.__name__}, which has no dtype: make it np.asarray(...) "
            f"with .map"
        )
    if leaf.dtype is None:
        raise SpecMismatch(
            f"{where} is an array of unknown dtype; pass spec=[tf.TensorSpec(shape, dtype), ...]"
        )
    dtype = _plain(leaf.dtype)
    if dtype.hasobject:
        raise SpecMismatch(
            f"{where} is an array of objects, as NumPy creates from rows of several lengths: "
            f"make the rows of one length, e.g. with .padded_batch, or convert them with .map"
        )
    if not dtype.isnative or not _in_tensorflow(dtype):
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
