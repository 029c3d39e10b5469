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
"""The dtype for text of any length, as ``tf.string``."""

_NUMBERS = (bool, *NUMBERS)
"""Python's own numbers; their dtypes are those that ``batch`` gives them."""


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


@attrs.frozen
class Signature:
    """The slots of the elements that an input source takes."""

    source: str
    """The name of the input source, for messages."""
    slots: tuple[Slot, ...]
    flatten: Flatten
    """Gives the components of an element in the order of the slots."""
    by_place: bool = True
    """Whether the components may be told apart by their places."""

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        return tuple(slot.tensor for slot in self.slots)

    def arrays(self, element: object, position: int) -> list[NDArray[Any] | tf.Tensor]:
        """The arrays of one element, in order and not copied; tensors come as they are.

        Raises:
            SpecMismatch: It is not what was announced; the message names the element and component.
        """
        try:
            values = self.flatten(element)
        except SpecMismatch as error:
            raise SpecMismatch(
                f"{self.source}: element {position}: {error}; give all elements components of the "
                f"same names with .map, or name them with spec=[tf.TensorSpec(shape, dtype, name), "
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
    """The value for TensorFlow; None if it is not what was announced."""
    if isinstance(value, tf.Tensor):
        shape = tuple(dim for dim in value.shape if dim is not None)  # as all are, in a value
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
    """The slots for a flow's elements; ``source`` names the input source in messages.

    ``declared`` is trusted where the flow knows nothing, or only what it saw in one element: other
    shapes may vary more.

    Raises:
        SpecMismatch: A component is no array, has no dtype, or is declared to be something else;
            the message names the component, what it is, and what to write.
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
    """The names that all tensors were declared with; None if some have none."""
    names = [tensor.name for tensor in declared]
    return None if None in names else [str(name) for name in names]


def signature_of_tensors(source: str, structure: object) -> Signature:
    """The slots for elements that tf.data describes so, in dicts and tuples.

    Raises:
        SpecMismatch: A component is no plain tensor, e.g. a ragged one.
    """
    parts = components(structure)
    by_place = parts is None or isinstance(structure, tuple)
    slots: list[Slot] = []
    for name, spec in _named("", structure):
        if not isinstance(spec, tf.TensorSpec):
            raise SpecMismatch(
                f"{source}: component {name!r} is {spec!r}, and no plain tensor: make it one with "
                f".map, e.g. by to_tensor() of a ragged one"
            )
        dtype = _TEXT if spec.dtype == tf.string else np.dtype(spec.dtype.as_numpy_dtype)
        shape = None if spec.shape.rank is None else tuple(spec.shape.as_list())
        slots.append(Slot(name, dtype, shape))
    return Signature(source, tuple(slots), flattener(_form_of(structure)), by_place)


def _form_of(structure: object) -> Spec:
    """The names and forms of such elements, without what the components are."""
    parts = components(structure)
    if parts is None:
        return UNKNOWN
    return StructSpec(form_of(structure), tuple((key, _form_of(part)) for key, part in parts))


def _named(name: str, structure: object) -> list[tuple[str, object]]:
    parts = components(structure)
    if parts is None:
        return [(name or "element", structure)]
    dot = f"{name}." if name else ""
    return [one for key, part in parts for one in _named(f"{dot}{key}", part)]


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
    """The leaf as a queue holds it: text as strings of any length, a number with its dtype."""
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
            f"{where}: its dtype is not known before it is made; annotate the result of the "
            f"function that makes it, or give spec=[tf.TensorSpec(shape, dtype), ...]"
        )
    if not isinstance(leaf, ArraySpec):
        kind = list if isinstance(leaf, ListSpec) else leaf.type
        raise SpecMismatch(
            f"{where} is a Python {kind.__name__}, which has no dtype: make it np.asarray(...) "
            f"with .map"
        )
    if leaf.dtype is None:
        raise SpecMismatch(
            f"{where} is an array of unknown dtype; give spec=[tf.TensorSpec(shape, dtype), ...]"
        )
    dtype = _plain(leaf.dtype)
    if dtype.hasobject:
        raise SpecMismatch(
            f"{where} is an array of objects, as NumPy makes of rows of several lengths: make them "
            f"of one length, e.g. with .padded_batch, or its items of one dtype, with .map"
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
