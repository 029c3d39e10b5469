"""Elements as tensors: dtypes and shapes are fixed before workers start, then checked.

Nothing is cast: a component that does not match is an error with its position. Only the byte order
of an array may change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from flowdsl.elements.flattening import Flatten, flattener, flattener_of_first, order_of
from flowdsl.elements.matching_specs import meet
from flowdsl.elements.specs import (
    UNKNOWN,
    ArraySpec,
    ListSpec,
    Spec,
    StructSpec,
    leaf_specs,
    spec_of,
)
from flowdsl.elements.structure import IS_MASKED, components, form_of, is_masked
from flowdsl.errors import SpecMismatch
from flowdsl.feeding.slots import TEXT, Leaf, Slot, slot_spec
from flowdsl.nodes import checked_list
from flowdsl.nodes.arguments import shown


@attrs.frozen
class Signature:
    """The slots for the components of an input source's elements."""

    source: str
    """The name of the input source, for messages."""
    slots: tuple[Slot, ...]
    flatten: Flatten
    """Returns the components of an element in the order of the slots."""
    by_position: bool = True
    """True if components may be identified by their order."""

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        return tuple(
            tf.TensorSpec(slot.shape, tf.as_dtype(slot.dtype), slot.name) for slot in self.slots
        )

    def arrays(self, element: object, position: int) -> list[NDArray[Any] | tf.Tensor]:
        """Return the arrays of one element in order; tensors are kept.

        Only arrays of the other byte order are copied.

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
                at = f"{self.source}: component {slot.name!r} of element {position}"
                if is_masked(value):
                    raise SpecMismatch(f"{at} {IS_MASKED}")
                if slot.is_too_small_for(value):
                    raise SpecMismatch(
                        f"{at} is {shown(value)}, which int64 cannot hold; map all ints of this "
                        f"component to float, to text, or to np.uint64 if none is negative"
                    )
                raise SpecMismatch(
                    f"{at} is {spec_of(value)}, but its spec is {slot.spec}; nothing is cast: make "
                    f"the elements alike with .map, or declare what varies with "
                    f"spec=[tf.TensorSpec(shape, dtype), ...]"
                )
            arrays.append(array)
        return arrays


def _array(slot: Slot, value: object) -> NDArray[Any] | tf.Tensor | None:
    """Convert a value for TensorFlow; return None if it does not match the slot."""
    if not isinstance(value, tf.Tensor):
        return slot.array(value)
    shape = tuple(dim for dim in value.shape if dim is not None)  # all dims are known
    return value if value.dtype == tf.as_dtype(slot.dtype) and slot.has_shape(shape) else None


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
    if not known:
        raise SpecMismatch(f"{source}: an element has no components, so there is nothing to feed")
    by_position = not isinstance(spec, StructSpec) or issubclass(spec.form, tuple)
    if declared is None:
        own = tuple(_slot(source, name, leaf) for name, leaf in known)
        _refuse_equal_names(source, own)
        return Signature(source, own, flattener(spec), by_position)
    declared = checked_list(
        f"{source}: spec", declared, tf.TensorSpec, "tf.TensorSpec, one for each component"
    )
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
    _refuse_equal_names(source, slots)
    return Signature(source, tuple(slots), flatten, by_position)


def _refuse_equal_names(source: str, slots: Sequence[Slot]) -> None:
    names = [slot.name for slot in slots]
    for name in names:
        if names.count(name) > 1:
            raise SpecMismatch(
                f"{source}: an element has two components named {name!r}; rename one with .map "
                f"(the keys 0 and '0' of a dict are one name, as are 'a.b', and 'b' in 'a')"
            )


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
    by_position = parts is None or isinstance(structure, tuple)
    slots: list[Slot] = []
    for name, spec in _named("", structure):
        if not isinstance(spec, tf.TensorSpec):
            raise SpecMismatch(
                f"{source}: component {name!r} is {spec!r}, not a plain tensor: convert it with "
                f".map, e.g. by to_tensor() of a ragged one"
            )
        slots.append(_slot_of(name, spec))
    _refuse_equal_names(source, slots)
    return Signature(source, tuple(slots), flattener(_form_of(structure)), by_position)


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


def _declared(source: str, name: str, leaf: Leaf, tensor: tf.TensorSpec) -> ArraySpec:
    array = _slot_of(name, tensor).spec
    meet(array, slot_spec(leaf), f"{source}: component {name!r}, by spec=")
    return array


def _slot_of(name: str, tensor: tf.TensorSpec) -> Slot:
    """Return the slot of a tensor."""
    dtype = TEXT if tensor.dtype == tf.string else np.dtype(tensor.dtype.as_numpy_dtype)
    shape = None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
    return Slot(name, dtype, shape)


def _slot(source: str, name: str, leaf: Leaf) -> Slot:
    where = f"{source}: component {name!r}"
    leaf = slot_spec(leaf)
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
    dtype = leaf.dtype
    if dtype.hasobject:
        raise SpecMismatch(
            f"{where} is an array of objects, as NumPy creates from rows of several lengths: "
            f"make the rows of one length, e.g. with .padded_batch, or convert them with .map"
        )
    if not _in_tensorflow(dtype):
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
