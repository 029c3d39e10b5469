"""Specs: the structure, dtypes and shapes of elements, as far as they are known in advance.

A spec comes from a file's header, an annotation (``declared_specs``), or one element computed as a
probe; a contradiction among them is an error (``matching_specs``). TensorFlow's input sources are
built from specs.
"""

from __future__ import annotations

from contextlib import suppress
from functools import reduce
from itertools import zip_longest
from typing import Any, TypeAlias, cast

import attrs
import numpy as np

from flowdsl.elements.structure import components, form_of, from_dlpack, is_tensor
from flowdsl.errors import SpecMismatch


def _comparable(dtype: np.dtype[Any] | None) -> tuple[bool, np.dtype[Any] | None]:
    """A key for comparing dtypes: to NumPy, float64 equals None."""
    return dtype is None, dtype


@attrs.frozen
class ArraySpec:
    """The dtype and shape of an array or NumPy scalar; ``None`` is unknown."""

    dtype: np.dtype[Any] | None = attrs.field(default=None, eq=_comparable)
    shape: tuple[int | None, ...] | None = None

    def __str__(self) -> str:
        if self.shape is None:
            dims = "..."
        else:
            dims = ", ".join("?" if size is None else str(size) for size in self.shape)
        if self.dtype is None:
            return f"?[{dims}]"
        # ``<U0``, text of any width, would be misread as text of width 0.
        return f"{self.dtype if self.dtype.itemsize else self.dtype.name}[{dims}]"


@attrs.frozen
class ValueSpec:
    """The class of any other value; ``object`` if it is unknown."""

    type: type

    def __str__(self) -> str:
        return "?" if self.type is object else self.type.__name__


_MAX_EQUAL = 4
"""If a tuple has more components, all with equal specs, its text has their number instead."""


@attrs.frozen
class StructSpec:
    """The spec of a value with named components: a tuple, NamedTuple, dict or record.

    The components of a dict are matched by name. Their order is the order in which consumers such
    as a TensorFlow step receive them; specs that differ only in it are equal.
    """

    form: type
    fields: tuple[tuple[str, Spec], ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StructSpec) or self.form is not other.form:
            return False
        if self.fields == other.fields:
            return True
        return self.form is dict and dict(self.fields) == dict(other.fields)

    def __hash__(self) -> int:
        return hash((self.form, frozenset(self.fields) if self.form is dict else self.fields))

    def __str__(self) -> str:
        if self.form is tuple:
            parts = [str(spec) for _, spec in self.fields]
            if len(parts) > _MAX_EQUAL and len(set(parts)) == 1:
                return f"(tuple of {len(parts)} x {parts[0]})"
            return f"({', '.join(parts)})"
        inner = ", ".join(f"{name}: {spec}" for name, spec in self.fields)
        return f"{{{inner}}}" if self.form is dict else f"{self.form.__name__}({inner})"

    @property
    def has_names(self) -> bool:
        """True if its components have names, and not only numbers."""
        return any(name != str(k) for k, (name, _) in enumerate(self.fields))


@attrs.frozen
class ListSpec:
    """The spec of a list of any length, or of a known length, whose items have one spec."""

    item: Spec
    length: int | None = None

    def __str__(self) -> str:
        return f"list[{self.item}]"


Spec: TypeAlias = ArraySpec | ValueSpec | StructSpec | ListSpec

UNKNOWN = ValueSpec(object)


def is_known(spec: Spec) -> bool:
    """Return True if the dtype and rank, or the class, of every component is known."""
    if isinstance(spec, StructSpec):
        return all(is_known(part) for _, part in spec.fields)
    if isinstance(spec, ArraySpec):
        return spec.dtype is not None and spec.shape is not None
    if isinstance(spec, ListSpec):
        return is_known(spec.item)
    return spec != UNKNOWN


def spec_of(element: object) -> Spec:
    """The spec of one element, with its own sizes.

    >>> str(spec_of((np.zeros((2, 3), np.uint8), 7)))
    '(uint8[2, 3], int)'
    """
    if isinstance(element, (np.ndarray, np.generic)):
        return ArraySpec(cast("np.dtype[Any]", element.dtype), element.shape)
    if type(element) is list:
        return _spec_of_list(cast("list[object]", element))
    parts = components(element)
    if parts is None:
        return _spec_of_tensor(element) if is_tensor(type(element)) else ValueSpec(type(element))
    return StructSpec(form_of(element), tuple((name, spec_of(value)) for name, value in parts))


def _spec_of_tensor(tensor: object) -> ArraySpec:
    with suppress(SpecMismatch):  # NumPy cannot read it: dtype and shape are unknown
        array = from_dlpack(tensor)
        return ArraySpec(array.dtype, array.shape)
    return ArraySpec()


def _spec_of_list(items: list[object]) -> ListSpec:
    kinds = set(map(type, items))
    if len(kinds) == 1 and kinds <= {bool, int, float, complex, str, bytes}:
        return ListSpec(ValueSpec(kinds.pop()), len(items))
    distinct = dict.fromkeys(map(spec_of, items))  # most are equal, so ``join`` is called rarely
    return ListSpec(reduce(join, distinct) if items else UNKNOWN, len(items))


Dims: TypeAlias = tuple[int | None, ...] | None
"""A shape; None if the rank is unknown."""


def same_structure(a: StructSpec, b: StructSpec) -> bool:
    """Return True if both have the same form and components; those of a dict in any order."""
    if a.form is not b.form:
        return False
    names_a, names_b = [name for name, _ in a.fields], [name for name, _ in b.fields]
    return names_a == names_b or (a.form is dict and {*names_a} == {*names_b})


def paired(a: StructSpec, b: StructSpec) -> list[tuple[str, Spec, Spec]]:
    """The components of ``a`` and ``b`` in pairs: for dicts by name, for others by position.

    If ``b`` lacks a component, its spec is unknown.
    """
    if a.form is dict and b.form is dict:
        of_b = dict(b.fields)
        return [(name, part, of_b.get(name, UNKNOWN)) for name, part in a.fields]
    pairs = zip_longest(a.fields, b.fields[: len(a.fields)], fillvalue=("", UNKNOWN))
    return [(name, part, other) for (name, part), (_, other) in pairs]


def class_of(spec: Spec) -> type:
    """The class of the values that a spec describes."""
    if isinstance(spec, ArraySpec):
        return spec.dtype.type if spec.dtype is not None and spec.shape == () else np.ndarray
    if isinstance(spec, ListSpec):
        return list
    return spec.form if isinstance(spec, StructSpec) else spec.type


def text_of_any_width(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype without the width of text, such as ``<U0``; other dtypes are unchanged."""
    return np.dtype(f"{dtype.byteorder}{dtype.kind}") if dtype.kind in "US" else dtype


def join(a: Spec, b: Spec) -> Spec:
    """A spec that describes the elements of both: where they differ, it is unknown."""
    if a == b:
        return a
    if isinstance(a, ArraySpec) and isinstance(b, ArraySpec):
        shape: Dims = None
        if a.shape is not None and b.shape is not None and len(a.shape) == len(b.shape):
            shape = tuple(x if x == y else None for x, y in zip(a.shape, b.shape, strict=True))
        return ArraySpec(_common_dtype(a.dtype, b.dtype), shape)
    if isinstance(a, StructSpec) and isinstance(b, StructSpec) and same_structure(a, b):
        return StructSpec(a.form, tuple((n, join(x, y)) for n, x, y in paired(a, b)))
    if isinstance(a, ListSpec) and isinstance(b, ListSpec):
        return ListSpec(join(a.item, b.item), a.length if a.length == b.length else None)
    return UNKNOWN


def without_shapes(spec: Spec) -> Spec:
    """A spec's structure and dtypes, without sizes; the width of text is a size too."""
    if isinstance(spec, StructSpec):
        return StructSpec(spec.form, tuple((n, without_shapes(s)) for n, s in spec.fields))
    if isinstance(spec, ListSpec):
        return ListSpec(without_shapes(spec.item))
    if isinstance(spec, ArraySpec):
        return ArraySpec(spec.dtype and text_of_any_width(spec.dtype))
    return spec


def _common_dtype(a: np.dtype[Any] | None, b: np.dtype[Any] | None) -> np.dtype[Any] | None:
    """The dtype of both; for texts of two widths, text of any width; None if they differ."""
    if a is None or b is None:
        return None
    if a == b:
        return a
    text = text_of_any_width(a)
    return text if a.kind in "US" and text == text_of_any_width(b) else None


def varying_axes(spec: Spec, seen: Spec, axis: int = 0) -> frozenset[tuple[int, int]]:
    """The axes whose size is unknown in a spec, each with its size in one element.

    A list is an axis too, and so are the lists in it: ``axis`` is the number of enclosing lists. In
    an unknown spec every size is unknown. Empty axes are left out.
    """
    if spec == UNKNOWN:
        spec = without_sizes(seen)
    if isinstance(spec, StructSpec) and isinstance(seen, StructSpec):
        pairs = paired(spec, seen)
        return frozenset().union(*(varying_axes(x, y, axis) for _, x, y in pairs))
    if isinstance(spec, ArraySpec) and isinstance(seen, ArraySpec):
        sizes = seen.shape or ()
        dims = (None,) * len(sizes) if spec.shape is None else spec.shape
        axes = enumerate(zip(dims, sizes, strict=False), axis)
        return frozenset((i, size) for i, (dim, size) in axes if dim is None and size)
    if isinstance(spec, ListSpec) and isinstance(seen, ListSpec):
        own = [(axis, seen.length)] if spec.length is None and seen.length else []
        return varying_axes(spec.item, seen.item, axis + 1).union(own)
    return frozenset()


def without_axes(spec: Spec, axes: frozenset[tuple[int, int]], axis: int = 0) -> Spec:
    """Mark an axis's size as unknown wherever (axis, size) is in ``axes``."""
    if isinstance(spec, StructSpec):
        parts = tuple((n, without_axes(part, axes, axis)) for n, part in spec.fields)
        return StructSpec(spec.form, parts)
    if isinstance(spec, ArraySpec) and spec.shape is not None:
        sizes = enumerate(spec.shape, axis)
        return ArraySpec(spec.dtype, tuple(None if (i, n) in axes else n for i, n in sizes))
    if isinstance(spec, ListSpec):
        length = None if (axis, spec.length) in axes else spec.length
        return ListSpec(without_axes(spec.item, axes, axis + 1), length)
    return spec


def with_sizes(seen: Spec, declared: Spec) -> Spec:
    """The spec of one element, with only the sizes that are declared for all elements.

    >>> str(with_sizes(spec_of(np.zeros((2, 3))), ArraySpec(None, (None, 3))))
    'float64[?, 3]'
    """
    if isinstance(seen, StructSpec):
        parts = declared if isinstance(declared, StructSpec) else StructSpec(seen.form, ())
        pairs = paired(seen, parts)
        return StructSpec(seen.form, tuple((n, with_sizes(s, d)) for n, s, d in pairs))
    if isinstance(seen, ArraySpec) and seen.shape is not None:
        dims = declared.shape if isinstance(declared, ArraySpec) else None
        return ArraySpec(seen.dtype, (None,) * len(seen.shape) if dims is None else dims)
    if isinstance(seen, ListSpec):
        known = declared if isinstance(declared, ListSpec) else ListSpec(UNKNOWN)
        return ListSpec(with_sizes(seen.item, known.item), known.length)
    return seen


def without_sizes(spec: Spec) -> Spec:
    """The spec with all sizes unknown.

    >>> str(without_sizes(spec_of((np.zeros((2, 3)), 1))))
    '(float64[?, ?], int)'
    """
    return with_sizes(spec, UNKNOWN)


def leaf_specs(spec: Spec, name: str = "") -> list[tuple[str, ArraySpec | ValueSpec | ListSpec]]:
    """The specs of all nested components, down to arrays and values, with the name of each.

    >>> [name for name, _ in leaf_specs(spec_of({"image": 1, "boxes": (2, 3)}))]
    ['image', 'boxes.0', 'boxes.1']
    """
    if not isinstance(spec, StructSpec):
        return [(name or "element", spec)]
    dot = f"{name}." if name else ""
    return [leaf for key, part in spec.fields for leaf in leaf_specs(part, f"{dot}{key}")]
