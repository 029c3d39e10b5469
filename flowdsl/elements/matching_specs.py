"""Specs in pairs: what two specs of the same elements say together, and where two flows differ."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import Any

import numpy as np

from flowdsl.elements.numbers import NUMBERS, dtype_of_number
from flowdsl.elements.specs import (
    UNKNOWN,
    ArraySpec,
    Dims,
    ListSpec,
    Spec,
    StructSpec,
    ValueSpec,
    class_of,
    paired,
    same_structure,
    text_of_any_width,
    without_shapes,
)
from flowdsl.errors import SpecMismatch


def meet(declared: Spec, seen: Spec, path: str = "element") -> Spec:
    """Combine two specs of the same elements: the result knows all that one of them knows.

    Raises:
        SpecMismatch: They contradict each other; the message names the component and both specs.
    """
    if declared == UNKNOWN or seen == UNKNOWN:
        return seen if declared == UNKNOWN else declared
    if isinstance(declared, StructSpec) and isinstance(seen, StructSpec):
        with_names = _one_with_names(declared, seen)
        if with_names is not None:
            pairs = zip(with_names.fields, paired(declared, seen), strict=True)
            fields = tuple((name, meet(a, b, f"{path}.{name}")) for (name, _), (_, a, b) in pairs)
            return StructSpec(with_names.form, fields)
    if isinstance(declared, ArraySpec) and isinstance(seen, ArraySpec):
        # One dtype, unless both are known and differ: each is then the narrower one of itself.
        dtypes = {_narrower(declared.dtype, seen.dtype), _narrower(seen.dtype, declared.dtype)}
        if len(dtypes) == 1 and _shapes_agree(declared.shape, seen.shape):
            return ArraySpec(dtypes.pop(), _known_dims(declared.shape, seen.shape))
    if isinstance(declared, ListSpec) and isinstance(seen, ListSpec):
        sizes = {declared.length, seen.length} - {None}
        if len(sizes) < 2:
            return ListSpec(meet(declared.item, seen.item, f"{path}[]"), next(iter(sizes), None))
    if isinstance(declared, ValueSpec) and issubclass(class_of(seen), declared.type):
        return seen
    if isinstance(seen, ValueSpec) and issubclass(class_of(declared), seen.type):
        return declared
    suffixes = f"{_names_of(seen)}{_advice_on_scalars(declared, seen)}"
    raise SpecMismatch(f"{path}: declared {declared}, got {seen}{suffixes}")


def _advice_on_scalars(declared: Spec, seen: Spec) -> str:
    """A message suffix if a number of Python is declared, and the element has one of NumPy."""
    if not isinstance(declared, ValueSpec) or declared.type not in (bool, int, float):
        return ""
    if not isinstance(seen, ArraySpec) or seen.shape != () or seen.dtype is None:
        return ""
    return f"; a number of NumPy is declared as np.{seen.dtype.type.__name__}"


def _names_of(seen: Spec) -> str:
    """A message suffix with the names of a stored tuple, which its text does not show."""
    if not isinstance(seen, StructSpec) or seen.form is not tuple or not seen.has_names:
        return ""
    return f" stored with the names {', '.join(name for name, _ in seen.fields)}"


def _one_with_names(a: StructSpec, b: StructSpec) -> StructSpec | None:
    """The spec whose names are kept if both describe the same value; None if they cannot.

    The components of a plain tuple have an order but no names.
    """
    if same_structure(a, b):
        return a
    tuples = issubclass(a.form, tuple) and issubclass(b.form, tuple)
    if not tuples or tuple not in (a.form, b.form) or len(a.fields) != len(b.fields):
        return None
    with_names, plain = (a, b) if b.form is tuple else (b, a)
    return with_names if names_agree(plain, with_names) else None


def names_agree(stored: StructSpec, declared: StructSpec) -> bool:
    """Return True if a tuple was stored without names, or with the declared names."""
    if declared.form is tuple or not stored.has_names:
        return True
    return [name for name, _ in stored.fields] == [name for name, _ in declared.fields]


def _narrower(a: np.dtype[Any] | None, b: np.dtype[Any] | None) -> np.dtype[Any] | None:
    """Return ``b`` if ``a`` is unknown, or is text of any width and ``b`` text; otherwise ``a``."""
    return b if a is None or (b is not None and text_of_any_width(b) == a) else a


def _shapes_agree(a: Dims, b: Dims) -> bool:
    if a is None or b is None:
        return True
    return len(a) == len(b) and all(x == y or None in (x, y) for x, y in zip(a, b, strict=True))


def _known_dims(a: Dims, b: Dims) -> Dims:
    """The sizes that are known in one of two shapes."""
    if a is None or b is None:
        return b if a is None else a
    return tuple(y if x is None else x for x, y in zip(a, b, strict=True))


def differences(a: Spec, b: Spec, path: str = "element") -> Iterator[tuple[str, Spec, Spec]]:
    """Yield the components in which the specs of two flows contradict each other, apart from sizes.

    ``meet`` is for two specs of one flow; elements of two flows may differ in sizes, and a
    component may be None in one of them.
    """
    if isinstance(a, StructSpec) and isinstance(b, StructSpec):
        of_a, of_b = dict(a.fields), dict(b.fields)
        if tuple in (a.form, b.form):  # the components of a tuple are matched by position
            of_b = dict(zip(of_a, of_b.values(), strict=False))
        same_form = issubclass(a.form, b.form) or issubclass(b.form, a.form)
        if not same_form or of_a.keys() != of_b.keys() or len(a.fields) != len(b.fields):
            yield path, a, b
            return
        for name, spec in of_a.items():
            yield from differences(spec, of_b[name], f"{path}.{name}")
    elif isinstance(a, ListSpec) and isinstance(b, ListSpec):
        if next(differences(a.item, b.item), None):
            yield path, a, b
    elif isinstance(a, ArraySpec) and isinstance(b, ArraySpec):
        are_known = a.dtype is not None and b.dtype is not None
        if are_known and without_shapes(a) != without_shapes(b):
            yield path, a, b
    elif not _compatible(a, b) and not _stack_as_one_dtype(a, b):
        yield path, a, b


def _stack_as_one_dtype(a: Spec, b: Spec) -> bool:
    """Return True for a Python number and a NumPy scalar of the dtype with which it stacks."""
    number, scalar = (a, b) if isinstance(a, ValueSpec) else (b, a)
    return (
        isinstance(number, ValueSpec)
        and issubclass(number.type, NUMBERS)
        and isinstance(scalar, ArraySpec)
        and scalar.shape == ()
        and scalar.dtype is not None
        and scalar.dtype == dtype_of_number(number.type)
    )


def _compatible(a: Spec, b: Spec) -> bool:
    """Return True if one spec includes the other; None is allowed, as a missing value."""
    one, other = (np.ndarray if isinstance(spec, ArraySpec) else class_of(spec) for spec in (a, b))
    if NoneType in (one, other) or one is other:
        return True
    if not {bool, int, float}.isdisjoint((one, other)):  # numbers stack only with their own class
        return object in (one, other)  # which is unknown
    return issubclass(one, other) or issubclass(other, one)
