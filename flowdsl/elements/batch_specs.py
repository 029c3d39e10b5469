"""The spec of a batch, from the spec of its rows: it predicts the results of ``stacking``."""

from __future__ import annotations

import numpy as np

from flowdsl.elements.arrays import TEXT, unstackable, unstackable_list, unstackable_objects
from flowdsl.elements.numbers import NUMBERS, dtype_of_number
from flowdsl.elements.specs import (
    UNKNOWN,
    ArraySpec,
    ListSpec,
    Spec,
    StructSpec,
    ValueSpec,
    text_of_any_width,
    without_sizes,
)
from flowdsl.elements.stacking import (
    CollateByComponent,
    Length,
    Padding,
    batch_form,
    by_component,
    check_single,
    checked_padding,
    functions_of,
    no_components,
    not_a_batch,
    not_padded,
    too_long,
)
from flowdsl.elements.structure import is_named_tuple


def spec_of_batch(spec: Spec, n: int | None, at: str = "element") -> Spec:
    """The spec of the result of ``stack``, from the spec of its rows.

    Raises:
        SpecMismatch: Rows of this spec cannot stack.
    """
    if isinstance(spec, StructSpec):
        fields = tuple((name, spec_of_batch(s, n, f"{at}.{name}")) for name, s in spec.fields)
        return StructSpec(batch_form(spec.form), fields)
    if isinstance(spec, ListSpec):
        return _of_lists(spec, n, at)
    if isinstance(spec, ArraySpec):
        return _of_arrays(spec, n, at)
    if spec.type in (object, list, dict, tuple):  # declared so; the components are unknown
        return UNKNOWN
    if issubclass(spec.type, TEXT):
        return ListSpec(spec, n)
    if issubclass(spec.type, NUMBERS):
        return ArraySpec(dtype_of_number(spec.type), (n,))
    raise unstackable(spec.type.__name__, at)


def _of_arrays(spec: ArraySpec, n: int | None, at: str) -> Spec:
    dtype = None if spec.dtype is None else text_of_any_width(spec.dtype)
    if dtype is not None and dtype.hasobject:
        raise unstackable_objects(dtype, at)
    if dtype is not None and dtype.kind in "US" and spec.shape == ():
        return ListSpec(ValueSpec(dtype.type), n)
    return ArraySpec(dtype, None if spec.shape is None else (n, *spec.shape))


def _of_lists(spec: ListSpec, n: int | None, at: str) -> Spec:
    item = spec.item
    while isinstance(item, ListSpec):
        item = item.item
    if isinstance(item, StructSpec):
        raise unstackable_list(item.form.__name__, f"{at}: each row")
    if isinstance(item, ValueSpec):
        if item.type in (object, list):
            return UNKNOWN
        if issubclass(item.type, TEXT):  # lists of text stay lists, of any lengths
            return ListSpec(without_sizes(spec), n)
        if not issubclass(item.type, NUMBERS):
            raise unstackable_list(item.type.__name__, f"{at}: each row")
    items = spec_of_batch(spec.item, spec.length, at)
    return UNKNOWN if items == UNKNOWN else spec_of_batch(items, n, at)


def spec_collated_by_component(spec: Spec, collate: CollateByComponent, n: int | None) -> Spec:
    """The spec of the result of ``collated`` with functions by component, from the rows' spec.

    Raises:
        SpecMismatch: Rows of this spec have no such components, or components without a function
            do not stack.
    """
    if not isinstance(spec, StructSpec):
        if spec in (UNKNOWN, ValueSpec(tuple), ValueSpec(dict)):
            return UNKNOWN
        raise no_components(str(spec))
    names = _names_in(spec)
    functions = functions_of(collate, names, spec.form)
    fields = tuple(
        (field, UNKNOWN if name in functions else spec_of_batch(part, n, f"element.{name}"))
        for name, (field, part) in zip(names, spec.fields, strict=True)
    )
    return StructSpec(batch_form(spec.form), fields)


def _names_in(spec: StructSpec) -> list[str]:
    """The names by which users select components: the numbers of a plain tuple's components.

    A tuple that was stored as a NamedTuple has names in its spec, but these are only for messages.
    """
    if spec.form is tuple:
        return list(map(str, range(len(spec.fields))))
    return [name for name, _ in spec.fields]


def spec_of_padded_batch(
    spec: Spec, n: int | None, padding: Padding, at: str = "element", length: Length = None
) -> Spec:
    """The spec of the result of ``pad``, from the spec of its rows.

    Raises:
        SpecMismatch: Rows of this spec cannot stack, or not with this padding or length.
    """
    if isinstance(spec, StructSpec):
        paddings = by_component("padding", padding, _names_in(spec), spec.form, at).values()
        lengths = by_component("length", length, _names_in(spec), spec.form, at).values()
        fields = tuple(
            (name, spec_of_padded_batch(part, n, value, f"{at}.{name}", size))
            for (name, part), value, size in zip(spec.fields, paddings, lengths, strict=True)
        )
        return StructSpec(batch_form(spec.form), fields)
    if spec != UNKNOWN:
        check_single(padding, at)
        check_single(length, at, "length")
    batch = spec_of_batch(spec, n, at)
    if not isinstance(batch, ArraySpec):
        return batch
    may_be_padded = batch.shape is None or len(batch.shape) > 1
    dtype_of_rows = spec.dtype if isinstance(spec, ArraySpec) else batch.dtype
    if may_be_padded and dtype_of_rows is not None and padding is not None:
        checked_padding(padding, dtype_of_rows, at)
    if not isinstance(length, int) or batch.shape is None or len(batch.shape) < 2:
        return batch
    _, size, *rest = batch.shape
    if padding is None:
        if size not in (None, length):
            raise not_padded(size, length, at)
        return batch
    if size is not None and size > length:
        raise too_long(size, length, at)
    return ArraySpec(batch.dtype, (n, length, *rest))


def spec_of_row(spec: Spec, at: str = "element") -> Spec:
    """The spec of the rows that ``unstack`` yields, from the spec of the batch.

    Raises:
        SpecMismatch: An element of this spec has no rows.
    """
    if isinstance(spec, StructSpec):
        fields = tuple((name, spec_of_row(part, f"{at}.{name}")) for name, part in spec.fields)
        keeps_form = spec.form is dict or is_named_tuple(spec.form)
        return StructSpec(spec.form if keeps_form else tuple, fields)
    if isinstance(spec, ListSpec):  # the items of the next batch may have other sizes
        return without_sizes(spec.item)
    if isinstance(spec, ValueSpec):
        if spec.type is not object and not issubclass(spec.type, list):
            raise not_a_batch(str(spec), at)
        return UNKNOWN
    if spec.shape == ():
        raise not_a_batch(str(spec), at)
    dtype, shape = spec.dtype, None if spec.shape is None else spec.shape[1:]
    if dtype is not None and dtype.hasobject:
        return UNKNOWN
    if dtype is not None and not dtype.isnative:
        if shape is None:  # a row may be a scalar, which has native byte order, or an array
            dtype = None
        elif not shape:
            dtype = np.zeros((), dtype)[()].dtype
    return ArraySpec(dtype, shape)
