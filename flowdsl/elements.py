"""Elements: the values that flow, their components, their specs, and how rows become a batch.

An element is a tuple or NamedTuple (recommended), a record (an attrs class that names its batch
type), a dict, or a single array. It is immutable once yielded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import isabstract
from typing import (
    Annotated,
    Any,
    Generic,
    Protocol,
    TypeAlias,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
    overload,
)

import attrs
import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeForm, TypeVar, is_protocol

from flowdsl.errors import SpecMismatch

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
B_co = TypeVar("B_co", covariant=True)
G = TypeVar("G", bound=Callable[..., object])
D_co = TypeVar("D_co", bound=np.generic, covariant=True)

Rows: TypeAlias = tuple[Any, ...]
Allocate: TypeAlias = Callable[[tuple[int, ...], "np.dtype[Any]"], "NDArray[Any]"]
"""Where a new array's memory comes from: ``np.empty``, or a slab that another process sees."""


class Stackable(Protocol[D_co]):
    """An array or a NumPy scalar: something that knows its dtype."""

    @property
    def dtype(self) -> np.dtype[D_co]: ...


# -- component selectors ---------------------------------------------------------------------------


@attrs.frozen
class Component:
    """Picks one component by position; typed as a function of the element (see ``c0``)."""

    index: int

    def __call__(self, element: Rows, /) -> Any:
        return element[self.index]


def _component(index: int) -> Callable[[G], G]:
    return lambda _: Component(index)  # type: ignore[return-value] # the signature is the stub's


@_component(0)
def c0(element: tuple[A, *tuple[Any, ...]], /) -> A:
    """Select the first component: ``flow.map(c0)``; ``c1`` to ``c3`` select the others."""
    raise AssertionError  # the decorator replaces the function: its signature is for checkers


@_component(1)
def c1(element: tuple[Any, A, *tuple[Any, ...]], /) -> A:
    """Select the second component."""
    raise AssertionError


@_component(2)
def c2(element: tuple[Any, Any, A, *tuple[Any, ...]], /) -> A:
    """Select the third component."""
    raise AssertionError


@_component(3)
def c3(element: tuple[Any, Any, Any, A, *tuple[Any, ...]], /) -> A:
    """Select the fourth component."""
    raise AssertionError


# -- records ---------------------------------------------------------------------------------------


class Record(Generic[B_co]):
    """Base of an attrs class that names the type of its batches, field by field.

    >>> import attrs, numpy as np, flowdsl as fl
    >>> @attrs.frozen
    ... class PointBatch:
    ...     x: np.ndarray
    >>> @attrs.frozen
    ... class Point(fl.Record[PointBatch]):
    ...     x: np.float32
    >>> fl.from_items([Point(np.float32(i)) for i in range(3)]).batch(2).collect()[0]
    PointBatch(x=array([0., 1.], dtype=float32))
    """


def batch_type(record: type[Record[object]]) -> type:
    """The type that a record's rows stack into."""
    for cls in record.__mro__:
        for base in getattr(cls, "__orig_bases__", ()):
            if get_origin(base) is Record and isinstance(get_args(base)[0], type):
                return cast("type", get_args(base)[0])
    raise SpecMismatch(
        f"{record.__name__} does not name its batch type: write class {record.__name__}"
        f"(Record[{record.__name__}Batch]) with a class that is already defined"
    )


# -- specs -----------------------------------------------------------------------------------------


@attrs.frozen(init=False)
class Shape:
    """Declares a shape: ``Annotated[NDArray[np.uint8], Shape(None, None, 3)]``; ``None``: any."""

    dims: tuple[int | None, ...]

    def __init__(self, *dims: int | None) -> None:
        object.__setattr__(self, "dims", dims)


def _comparable(dtype: np.dtype[Any] | None) -> tuple[bool, np.dtype[Any] | None]:
    """What dtypes are compared by: to NumPy, float64 equals None."""
    return dtype is None, dtype


@attrs.frozen
class ArraySpec:
    """What is known of an array or NumPy scalar before it exists; ``None`` is unknown."""

    dtype: np.dtype[Any] | None = attrs.field(default=None, eq=_comparable)
    shape: tuple[int | None, ...] | None = None

    def __str__(self) -> str:
        dims = (
            "..."
            if self.shape is None
            else ", ".join("?" if d is None else str(d) for d in self.shape)
        )
        return f"{self.dtype or '?'}[{dims}]"


@attrs.frozen
class ValueSpec:
    """Any other value; ``object`` when nothing is known."""

    type: type

    def __str__(self) -> str:
        return "?" if self.type is object else self.type.__name__


@attrs.frozen
class StructSpec:
    """A value with named components: a tuple, NamedTuple, dict or record."""

    form: type
    fields: tuple[tuple[str, Spec], ...]

    def __str__(self) -> str:
        if self.form is tuple:
            return f"({', '.join(str(spec) for _, spec in self.fields)})"
        inner = ", ".join(f"{name}: {spec}" for name, spec in self.fields)
        return f"{{{inner}}}" if self.form is dict else f"{self.form.__name__}({inner})"


Spec: TypeAlias = ArraySpec | ValueSpec | StructSpec
UNKNOWN = ValueSpec(object)


def is_settled(spec: Spec) -> bool:
    """Dtype and rank of every component are known."""
    if isinstance(spec, StructSpec):
        return all(is_settled(part) for _, part in spec.fields)
    if isinstance(spec, ArraySpec):
        return spec.dtype is not None and spec.shape is not None
    return spec != UNKNOWN


def components(element: object) -> list[tuple[str, Any]] | None:
    """The named components of a structured element; None for a single value."""
    if isinstance(element, tuple):
        names = getattr(element, "_fields", None) or map(str, range(len(element)))
        return list(zip(names, element, strict=True))
    if isinstance(element, dict):
        return list(element.items())
    if attrs.has(type(element)):
        fields = attrs.fields(cast("type[attrs.AttrsInstance]", type(element)))
        return [(field.name, getattr(element, field.name)) for field in fields]
    return None


def assemble(form: type, values: dict[str, Any]) -> Any:
    """The inverse of ``components``: a value of this form from its components."""
    if form is dict:
        return values
    if form is tuple:
        return tuple(values.values())
    if attrs.has(form):  # a field ``_x`` is the argument ``x``
        values = {field.alias or field.name: values[field.name] for field in attrs.fields(form)}
    return form(**values)


def form_of(element: object) -> type:
    """The form of a structured element, as its spec has it."""
    return dict if isinstance(element, dict) else type(element)


def spec_of(element: object) -> Spec:
    """The spec of one element as it stands.

    >>> str(spec_of((np.zeros((2, 3), np.uint8), 7)))
    '(uint8[2, 3], int)'
    """
    if isinstance(element, (np.ndarray, np.generic)):
        return ArraySpec(cast("np.dtype[Any]", element.dtype), element.shape)
    parts = components(element)
    if parts is None:
        return ValueSpec(type(element))
    return StructSpec(form_of(element), tuple((name, spec_of(value)) for name, value in parts))


def spec_of_type(form: TypeForm[Any]) -> Spec:
    """The spec that an annotation declares: the checker and the plan read the same words.

    >>> str(spec_of_type(tuple[Annotated[NDArray[np.uint8], Shape(None, 3)], np.int64]))
    '(uint8[?, 3], int64[])'
    """
    tp: Any = form
    origin, args = get_origin(tp), get_args(tp)
    alias = getattr(origin or tp, "__value__", None)
    if alias is not None:  # a lazy alias, as NumPy >= 2.5 makes of ``NDArray``
        return spec_of_type(alias[args] if args else alias)
    if origin is Annotated:
        spec = spec_of_type(args[0])
        dims = next((note.dims for note in args[1:] if isinstance(note, Shape)), None)
        return attrs.evolve(spec, shape=dims) if isinstance(spec, ArraySpec) else spec
    if origin is np.ndarray or tp is np.ndarray:
        scalars = [scalar for arg in args[1:] for scalar in get_args(arg)]
        return ArraySpec(_NUMERIC.get(scalars[0]) if scalars else None)
    if origin is tuple and Ellipsis not in args:
        return StructSpec(tuple, tuple((str(i), spec_of_type(a)) for i, a in enumerate(args)))
    cls = origin or tp
    if not isinstance(cls, type):
        return UNKNOWN
    names = _declared_names(cls)
    if names is not None:
        hints = _hints(cls)
        fields = tuple((name, spec_of_type(hints.get(name, object))) for name in names)
        return StructSpec(dict if is_typeddict(cls) else cls, fields)
    if issubclass(cls, np.generic):
        return ArraySpec(_NUMERIC.get(cls), ())
    vague = origin is not None or cls in (Any, tuple, dict) or isabstract(cls) or is_protocol(cls)
    return UNKNOWN if vague else ValueSpec(cls)


_NUMERIC: dict[object, np.dtype[Any]] = {
    t: np.dtype(t) for t in np.sctypeDict.values() if np.dtype(t).kind in "biufc"
}
"""The scalar types that name one dtype; the others are abstract, or have many sizes or units."""


def _declared_names(cls: type) -> list[str] | None:
    """The components of a class of elements; None for any other class."""
    if attrs.has(cls):
        return [field.name for field in attrs.fields(cls)]
    if issubclass(cls, tuple):
        return list(getattr(cls, "_fields", ())) or None
    return list(cls.__annotations__) if is_typeddict(cls) else None


def _hints(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls, include_extras=True)
    except Exception:  # an annotation that can not be evaluated here declares nothing
        return {}


def meet(declared: Spec, seen: Spec, at: str = "element") -> Spec:
    """What two descriptions of the same elements say together.

    Raises:
        SpecMismatch: They contradict each other; the message names the component and both specs.
    """
    if declared == UNKNOWN or seen == UNKNOWN:
        return seen if declared == UNKNOWN else declared
    if isinstance(declared, StructSpec) and isinstance(seen, StructSpec):
        named = _named(declared, seen)
        if named is not None:
            pairs = zip(named.fields, declared.fields, seen.fields, strict=True)
            fields = tuple((n, meet(a, b, f"{at}.{n}")) for (n, _), (_, a), (_, b) in pairs)
            return StructSpec(named.form, fields)
    if isinstance(declared, ArraySpec) and isinstance(seen, ArraySpec):
        dtype = seen.dtype if declared.dtype is None else declared.dtype
        same_dtype = seen.dtype is None or seen.dtype == dtype
        if same_dtype and _shapes_agree(declared.shape, seen.shape):
            return ArraySpec(dtype, _known_dims(declared.shape, seen.shape))
    if isinstance(declared, ValueSpec) and issubclass(_class_of(seen), declared.type):
        return seen
    if isinstance(seen, ValueSpec) and issubclass(_class_of(declared), seen.type):
        return declared
    raise SpecMismatch(f"{at}: declared {declared}, got {seen}")


Dims: TypeAlias = tuple[int | None, ...] | None


def _alike(a: StructSpec, b: StructSpec) -> bool:
    return a.form is b.form and [name for name, _ in a.fields] == [name for name, _ in b.fields]


def _named(a: StructSpec, b: StructSpec) -> StructSpec | None:
    """The one with the names, if both may describe one value: a tuple has none, but an order."""
    if _alike(a, b):
        return a
    tuples = issubclass(a.form, tuple) and issubclass(b.form, tuple)
    if not tuples or tuple not in (a.form, b.form) or len(a.fields) != len(b.fields):
        return None
    return a if b.form is tuple else b


def _class_of(spec: Spec) -> type:
    if isinstance(spec, ArraySpec):
        return spec.dtype.type if spec.dtype is not None and spec.shape == () else np.ndarray
    return spec.form if isinstance(spec, StructSpec) else spec.type


def _shapes_agree(a: Dims, b: Dims) -> bool:
    if a is None or b is None:
        return True
    return len(a) == len(b) and all(x == y or None in (x, y) for x, y in zip(a, b, strict=True))


def _known_dims(a: Dims, b: Dims) -> Dims:
    if a is None or b is None:
        return b if a is None else a
    return tuple(y if x is None else x for x, y in zip(a, b, strict=True))


def join(a: Spec, b: Spec) -> Spec:
    """The narrowest spec that describes both: what they disagree on becomes unknown."""
    if a == b:
        return a
    if isinstance(a, ArraySpec) and isinstance(b, ArraySpec):
        shape: Dims = None
        if a.shape is not None and b.shape is not None and len(a.shape) == len(b.shape):
            shape = tuple(x if x == y else None for x, y in zip(a.shape, b.shape, strict=True))
        same_dtype = b.dtype is not None and a.dtype == b.dtype
        return ArraySpec(a.dtype if same_dtype else None, shape)
    if isinstance(a, StructSpec) and isinstance(b, StructSpec) and _alike(a, b):
        pairs = zip(a.fields, b.fields, strict=True)
        return StructSpec(a.form, tuple((n, join(x, y)) for (n, x), (_, y) in pairs))
    return UNKNOWN


def varying_axes(spec: Spec, seen: Spec) -> frozenset[tuple[int, int]]:
    """The axes whose size a spec leaves open, each with the size that one element has there."""
    found: set[tuple[int, int]] = set()
    for (_, one), (_, other) in zip(leaf_specs(spec), leaf_specs(seen), strict=False):
        if isinstance(one, ArraySpec) and isinstance(other, ArraySpec):
            pairs = enumerate(zip(one.shape or (), other.shape or (), strict=False))
            found |= {(axis, size) for axis, (dim, size) in pairs if dim is None and size}
    return frozenset(found)


def without_axes(spec: Spec, axes: frozenset[tuple[int, int]]) -> Spec:
    """The spec with these axes left open, where they have these sizes."""
    if isinstance(spec, StructSpec):
        return StructSpec(spec.form, tuple((n, without_axes(s, axes)) for n, s in spec.fields))
    if isinstance(spec, ArraySpec) and spec.shape is not None:
        dims = enumerate(spec.shape)
        return ArraySpec(spec.dtype, tuple(None if (a, d) in axes else d for a, d in dims))
    return spec


def leaves(element: object) -> list[object]:
    """The components of an element, nested ones opened, in order; a single value is its own."""
    parts = components(element)
    if parts is None:
        return [element]
    return [leaf for _, value in parts for leaf in leaves(value)]


def leaf_specs(spec: Spec, name: str = "") -> list[tuple[str, ArraySpec | ValueSpec]]:
    """The same for a spec, with the name of each component.

    >>> [name for name, _ in leaf_specs(spec_of({"image": 1, "boxes": (2, 3)}))]
    ['image', 'boxes.0', 'boxes.1']
    """
    if not isinstance(spec, StructSpec):
        return [(name or "element", spec)]
    dot = f"{name}." if name else ""
    return [leaf for key, part in spec.fields for leaf in leaf_specs(part, dot + key)]


# -- batches ---------------------------------------------------------------------------------------

_FIXED = {bool: np.dtype(np.bool_), int: np.dtype(np.int64), float: np.dtype(np.float64)}
"""How Python numbers stack, whatever their values: no dtype depends on the data."""


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.empty(shape, dtype)


def stack(rows: Sequence[Any], allocate: Allocate = _empty, at: str = "element") -> Any:
    """Stack every component of equal rows along a new leading axis.

    Arrays and NumPy scalars keep their dtype; bool, int and float become bool, int64 and float64.
    A tuple gives a tuple, a dict a dict, a record the batch type that it names.

    Raises:
        SpecMismatch: Rows differ in form, dtype or shape, or hold what does not stack; the message
            names the component, the row and both sides.
    """
    first = rows[0]
    kind = cast("type", type(first))
    if isinstance(first, np.ndarray):
        return _stack_arrays(rows, allocate, at)
    if len(set(map(type, rows))) > 1:
        raise _differ(rows, at)
    if isinstance(first, np.generic) or kind in _FIXED:
        return _stack_scalars(rows, allocate, at)
    columns = _columns(rows, at)
    stacked = {name: stack(column, allocate, f"{at}.{name}") for name, column in columns}
    if isinstance(first, Record):
        return assemble(batch_type(kind), stacked)
    return assemble(dict if kind is dict else tuple, stacked)


def _columns(rows: Sequence[Any], at: str) -> list[tuple[str, Sequence[Any]]]:
    """The components of rows of one type, each over all rows."""
    parts = components(rows[0])
    if parts is None:
        raise _unstackable(type(rows[0]).__name__, at)
    names = [name for name, _ in parts]
    if isinstance(rows[0], tuple):
        try:
            return list(zip(names, zip(*rows, strict=True), strict=True))
        except ValueError as error:
            raise _differ(rows, at) from error
    if isinstance(rows[0], dict):
        if any(row.keys() != rows[0].keys() for row in rows):
            raise _differ(rows, at)
        return [(name, [row[name] for row in rows]) for name in names]
    return [(name, [getattr(row, name) for row in rows]) for name in names]


def _stack_scalars(rows: Sequence[Any], allocate: Allocate, at: str) -> NDArray[Any]:
    kind = cast("type", type(rows[0]))
    if kind in _FIXED:
        out = allocate((len(rows),), _FIXED[kind])
        try:
            out[...] = rows
        except OverflowError as error:
            i, x = next((i, x) for i, x in enumerate(rows) if not -(2**63) <= x < 2**63)
            raise SpecMismatch(f"{at}: row {i} of the batch is {x}: too large for int64") from error
        return out
    dtype = cast("np.dtype[Any]", rows[0].dtype)
    if dtype.kind not in "biufcmM":
        raise _unstackable(kind.__name__, at)
    if any(row.dtype != dtype for row in rows):  # times of one type, in other units
        raise _differ(rows, at)
    out = allocate((len(rows),), dtype)
    out[...] = rows
    return out


_ARRAYS = (np.ndarray, np.memmap)
"""Other subclasses mean more than their numbers: a mask, a matrix product."""


def _stack_arrays(rows: Sequence[Any], allocate: Allocate, at: str) -> NDArray[Any]:
    shape, dtype = cast("NDArray[Any]", rows[0]).shape, cast("NDArray[Any]", rows[0]).dtype
    if type(rows[0]) not in _ARRAYS:
        raise _unstackable(type(rows[0]).__name__, at)
    if any(type(row) not in _ARRAYS or row.dtype != dtype or row.shape != shape for row in rows):
        raise _differ(rows, at)
    if dtype.hasobject:
        raise _unstackable("an array of Python objects", at)
    out = allocate((len(rows), *shape), dtype)
    return np.stack(rows, out=out)


def _differ(rows: Sequence[Any], at: str) -> SpecMismatch:
    kind, spec = type(rows[0]), spec_of(rows[0])
    i, row = next((i, x) for i, x in enumerate(rows) if type(x) is not kind or spec_of(x) != spec)
    sides = [str(spec), str(spec_of(row))]
    if sides[0] == sides[1]:
        sides = [kind.__name__, type(row).__name__]
    return SpecMismatch(
        f"{at}: row 0 of the batch is {sides[0]}, row {i} is {sides[1]}; equal dtypes and "
        f"shapes stack (a dtype is never cast: use .map to make them alike)"
    )


def _unstackable(what: str, at: str) -> SpecMismatch:
    return SpecMismatch(
        f"{at}: {what} does not stack; arrays, NumPy scalars, bool, int and float "
        f"do. Leave it out with .map, or say how with batch(n, collate=...)"
    )


def spec_of_batch(spec: Spec, n: int | None, at: str = "element") -> Spec:
    """The spec of ``stack``, from the spec of its rows.

    A tuple that named tuples stack into keeps their names here, for messages.

    Raises:
        SpecMismatch: Rows of this spec can not stack.
    """
    if isinstance(spec, ArraySpec):
        if spec.dtype is not None and spec.dtype.hasobject:
            raise _unstackable("an array of Python objects", at)
        return ArraySpec(spec.dtype, None if spec.shape is None else (n, *spec.shape))
    if isinstance(spec, ValueSpec):
        if spec.type is object:
            return spec
        if spec.type not in _FIXED:
            raise _unstackable(spec.type.__name__, at)
        return ArraySpec(_FIXED[spec.type], (n,))
    fields = tuple((name, spec_of_batch(s, n, f"{at}.{name}")) for name, s in spec.fields)
    if issubclass(spec.form, Record):
        return StructSpec(batch_type(spec.form), fields)
    return StructSpec(dict if spec.form is dict else tuple, fields)


@overload
def lists(rows: Sequence[tuple[A]]) -> tuple[list[A]]: ...
@overload
def lists(rows: Sequence[tuple[A, B]]) -> tuple[list[A], list[B]]: ...
@overload
def lists(rows: Sequence[tuple[A, B, C]]) -> tuple[list[A], list[B], list[C]]: ...
@overload
def lists(rows: Sequence[tuple[A, B, C, D]]) -> tuple[list[A], list[B], list[C], list[D]]: ...
def lists(rows: Sequence[Rows]) -> tuple[list[Any], ...]:
    """Collect each component in a list: ``batch(n, collate=lists)`` takes any values.

    >>> lists([(1, "a"), (2, "b")])
    ([1, 2], ['a', 'b'])
    """
    return tuple(list(column) for column in zip(*rows, strict=True))
