"""Specs: the structure, dtypes and shapes of elements, as far as they are known in advance.

A spec comes from a file's header, an annotation, or one element computed as a probe; a
contradiction among them is an error. TensorFlow's input sources are built from specs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import reduce
from inspect import isabstract
from itertools import zip_longest
from types import NoneType
from typing import (
    Annotated,
    Any,
    NotRequired,
    Required,
    TypeAlias,
    cast,
    get_args,
    get_origin,
    is_typeddict,
)

import attrs
import numpy as np
from typing_extensions import ReadOnly, TypeForm, is_protocol

from flowdsl.elements.hints import hints_of
from flowdsl.elements.numbers import NUMBERS, dtype_of_number
from flowdsl.elements.structure import (
    arguments_of,
    assemble,
    components,
    form_of,
    from_dlpack,
    is_tensor,
    names_with_defaults,
)
from flowdsl.errors import InvalidFlow, SpecMismatch


@attrs.frozen(init=False)
class Shape:
    """Declares a shape: ``Annotated[NDArray[np.uint8], Shape(None, None, 3)]``.

    ``None`` allows any size.
    """

    dims: tuple[int | None, ...]

    def __init__(self, *dims: int | None) -> None:
        object.__setattr__(self, "dims", dims)


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


def spec_of_type(form: TypeForm[Any], allow_subclasses: bool = False) -> Spec:
    """The spec that an annotation declares; type checkers read the same annotation.

    By default, values are instances of the declared class itself, as a reader makes them. A
    function may return instances of a subclass, which may be batched differently: into an array,
    for example. So with ``allow_subclasses`` the spec is unknown if the annotation is a class with
    subclasses, or a TypedDict whose keys may be missing.

    >>> from numpy.typing import NDArray
    >>> str(spec_of_type(tuple[Annotated[NDArray[np.uint8], Shape(None, 3)], np.int64]))
    '(uint8[?, 3], int64[])'
    """
    tp: Any = form
    origin, args = get_origin(tp), get_args(tp)
    alias = getattr(origin or tp, "__value__", None)
    if alias is not None:  # a lazy alias, such as ``NDArray`` in NumPy >= 2.5
        return spec_of_type(alias[args] if args else alias, allow_subclasses)
    if origin in (Required, NotRequired, ReadOnly):
        return spec_of_type(args[0], allow_subclasses)
    if origin is Annotated:
        spec = spec_of_type(args[0], allow_subclasses)
        dims = next((note.dims for note in args[1:] if isinstance(note, Shape)), None)
        return attrs.evolve(spec, shape=dims) if isinstance(spec, ArraySpec) else spec
    if origin is np.ndarray or tp is np.ndarray:
        scalars = [scalar for arg in args[1:] for scalar in get_args(arg)]
        return ArraySpec(_dtype_of_scalar_type(scalars[0]) if scalars else None)
    if origin is tuple and Ellipsis not in args:
        fields = tuple((str(i), spec_of_type(arg, allow_subclasses)) for i, arg in enumerate(args))
        return StructSpec(tuple, fields)
    if origin is list:
        return ListSpec(spec_of_type(args[0], allow_subclasses))
    cls = origin or tp
    if not isinstance(cls, type):
        return UNKNOWN
    names = _declared_names(cls)
    if names is not None:
        hints = hints_of(tp)
        if allow_subclasses and _is_open(cls, hints):
            return UNKNOWN
        fields = tuple(
            (name, spec_of_type(hints.get(name, object), allow_subclasses)) for name in names
        )
        return StructSpec(dict if is_typeddict(cls) else cls, fields)
    if issubclass(cls, np.generic):
        return ArraySpec(_dtype_of_scalar_type(cls), ())
    if is_tensor(cls):
        return ArraySpec()
    is_ambiguous = (
        origin is not None or cls in (Any, tuple, dict) or isabstract(cls) or is_protocol(cls)
    )
    return UNKNOWN if is_ambiguous or (allow_subclasses and _is_open(cls, {})) else ValueSpec(cls)


_STACKABLE_SCALARS = (bool, int, float, complex, str, bytes)
"""Types of scalars; their subclasses are batched like the type itself."""


def _is_open(cls: type, hints: Mapping[str, object]) -> bool:
    """Return True if a value annotated with a class may batch differently from a plain instance.

    It may be of a subclass, or be a dict without some of the keys.
    """
    if is_typeddict(cls):
        return bool(_optional_keys(cls, hints))
    if issubclass(cls, _STACKABLE_SCALARS):
        return False
    if type.__subclasses__(cls) or isabstract(cls):
        return True
    if _declared_names(cls) is not None:
        return False
    # A class with its own instance check, such as ``numbers.Number``, has other instances.
    kind: Any = type(cls)
    has_instance_check = kind.__instancecheck__ is not type.__instancecheck__
    return has_instance_check or issubclass(cls, (np.ndarray, tuple, dict, list))


def _optional_keys(cls: type, hints: Mapping[str, object]) -> frozenset[str]:
    """The keys that may be missing in a TypedDict."""
    optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
    required = {name for name, hint in hints.items() if get_origin(hint) is Required}
    keys: frozenset[str] = getattr(cls, "__optional_keys__", frozenset())
    return (keys | optional) - required


def optional_components(cls: type) -> frozenset[str]:
    """The components of a declared class that may be missing, or that have a default.

    >>> from typing import NamedTuple
    >>> class Sample(NamedTuple):
    ...     image: bytes
    ...     label: int = 0
    >>> optional_components(Sample)
    frozenset({'label'})
    """
    return _optional_keys(cls, hints_of(cls)) if is_typeddict(cls) else names_with_defaults(cls)


_DTYPE_OF_SCALAR_TYPE: dict[object, np.dtype[Any]] = {
    t: np.dtype(t) for t in np.sctypeDict.values() if np.dtype(t).kind in "biufc"
}
"""The dtypes of NumPy's numbers; other scalar types are abstract, or have many sizes or units."""


def _dtype_of_scalar_type(scalar: Any) -> np.dtype[Any] | None:
    """The dtype of a scalar type, also of another package, such as bfloat16; None without one."""
    known = _DTYPE_OF_SCALAR_TYPE.get(scalar)
    if known is None and isinstance(scalar, type) and scalar.__module__ != np.__name__:
        dtype = np.dtype(scalar)
        return dtype if dtype.type is scalar else None
    return known


def _declared_names(cls: type) -> list[str] | None:
    """The names of the declared components of an element class; None for any other class."""
    if (arguments := arguments_of(cls)) is not None:
        return list(arguments)
    if issubclass(cls, tuple):
        return list(getattr(cls, "_fields", ())) or None
    return list(cls.__annotations__) if is_typeddict(cls) else None


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
            pairs = zip(with_names.fields, _paired(declared, seen), strict=True)
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


# -- elements that were stored or sent without their classes ---------------------------------------


def spec_declared(owner: str, form: Any) -> Spec:
    """The spec that an annotation declares, for checking elements; ``object`` allows any element.

    For ``dict[str, A]`` and ``tuple[A, ...]`` only the container is checked, not its items.
    Messages begin with ``owner``, the owner of the elements.

    Raises:
        InvalidFlow: Elements cannot be checked against it.
    """
    spec = spec_of_type(form)
    if spec != UNKNOWN or form is object:
        return spec
    kind = get_origin(form) or form
    if kind not in (dict, list, tuple):
        raise InvalidFlow(
            f"{owner} cannot be checked against {form!r}; declare a NamedTuple, a record, a "
            f"TypedDict, tuple[A, B], or the type of a single value"
        )
    return ValueSpec(kind)


def as_declared(seen: Spec, declared: Spec) -> Spec:
    """The spec of stored tuples and dicts, with the classes that are declared for them.

    A declared class matches a dict by name, and a tuple by position; if the tuple was stored with
    names, they must be equal too.
    """
    if isinstance(declared, ListSpec) and isinstance(seen, ListSpec):
        return ListSpec(as_declared(seen.item, declared.item), seen.length)
    if not isinstance(declared, StructSpec) or not isinstance(seen, StructSpec):
        return seen
    parts = [part for _, part in seen.fields]
    if seen.form is dict and declared.form is not tuple:
        by_name = dict(seen.fields)
        if by_name.keys() != dict(declared.fields).keys():
            return seen
        parts = [by_name[name] for name, _ in declared.fields]
    elif (
        declared.form is dict
        or seen.form is dict
        or len(parts) != len(declared.fields)
        or (seen.form is tuple and not _names_agree(seen, declared))
    ):
        return seen
    pairs = zip(declared.fields, parts, strict=True)
    fields = tuple((name, as_declared(part, spec)) for (name, spec), part in pairs)
    return StructSpec(declared.form, fields)


def names_classes(spec: Spec) -> bool:
    """Return True if a spec names classes, which are not stored with its elements."""
    if isinstance(spec, ListSpec):
        return names_classes(spec.item)
    if not isinstance(spec, StructSpec):
        return False
    return spec.form not in (tuple, dict) or any(names_classes(part) for _, part in spec.fields)


def restore_classes(x: Any, spec: Spec) -> Any:
    """Convert a value to the classes that its spec names; a pickled value has them already.

    Raises:
        SpecMismatch: A list contains an item of another kind.
    """
    if isinstance(spec, ListSpec) and names_classes(spec):
        try:
            return [restore_classes(item, spec.item) for item in x]
        except (KeyError, TypeError, ValueError) as error:
            # A list has one spec for all items, so an item of another kind is found only here.
            raise SpecMismatch(f"an item of a list is not {spec.item}: {error}") from error
    if not isinstance(spec, StructSpec):
        return x
    if type(x) is spec.form and spec.form not in (tuple, dict):
        return x
    values = x if isinstance(x, tuple) else [x[name] for name, _ in spec.fields]
    pairs = zip(spec.fields, values, strict=True)
    return assemble(
        spec.form, {name: restore_classes(value, part) for (name, part), value in pairs}
    )


Dims: TypeAlias = tuple[int | None, ...] | None
"""A shape; None if the rank is unknown."""


def _same_structure(a: StructSpec, b: StructSpec) -> bool:
    if a.form is not b.form:
        return False
    names_a, names_b = [name for name, _ in a.fields], [name for name, _ in b.fields]
    return names_a == names_b or (a.form is dict and {*names_a} == {*names_b})


def _paired(a: StructSpec, b: StructSpec) -> list[tuple[str, Spec, Spec]]:
    """The components of ``a`` and ``b`` in pairs: for dicts by name, for others by position.

    If ``b`` lacks a component, its spec is unknown.
    """
    if a.form is dict and b.form is dict:
        of_b = dict(b.fields)
        return [(name, part, of_b.get(name, UNKNOWN)) for name, part in a.fields]
    pairs = zip_longest(a.fields, b.fields[: len(a.fields)], fillvalue=("", UNKNOWN))
    return [(name, part, other) for (name, part), (_, other) in pairs]


def _one_with_names(a: StructSpec, b: StructSpec) -> StructSpec | None:
    """The spec whose names are kept if both describe the same value; None if they cannot.

    The components of a plain tuple have an order but no names.
    """
    if _same_structure(a, b):
        return a
    tuples = issubclass(a.form, tuple) and issubclass(b.form, tuple)
    if not tuples or tuple not in (a.form, b.form) or len(a.fields) != len(b.fields):
        return None
    with_names, plain = (a, b) if b.form is tuple else (b, a)
    return with_names if _names_agree(plain, with_names) else None


def _names_agree(stored: StructSpec, declared: StructSpec) -> bool:
    """Return True if a tuple was stored without names, or with the declared names."""
    if declared.form is tuple or not stored.has_names:
        return True
    return [name for name, _ in stored.fields] == [name for name, _ in declared.fields]


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


def join(a: Spec, b: Spec) -> Spec:
    """A spec that describes the elements of both: where they differ, it is unknown."""
    if a == b:
        return a
    if isinstance(a, ArraySpec) and isinstance(b, ArraySpec):
        shape: Dims = None
        if a.shape is not None and b.shape is not None and len(a.shape) == len(b.shape):
            shape = tuple(x if x == y else None for x, y in zip(a.shape, b.shape, strict=True))
        return ArraySpec(_common_dtype(a.dtype, b.dtype), shape)
    if isinstance(a, StructSpec) and isinstance(b, StructSpec) and _same_structure(a, b):
        return StructSpec(a.form, tuple((n, join(x, y)) for n, x, y in _paired(a, b)))
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
        pairs = _paired(spec, seen)
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
        pairs = _paired(seen, parts)
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
    return [leaf for key, part in spec.fields for leaf in leaf_specs(part, dot + key)]
