"""from_items, from_range: sources of numbered rows in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    final,
    overload,
)

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.effects import Exact
from flowdsl.elements.specs import (
    UNKNOWN,
    ArraySpec,
    Spec,
    StructSpec,
    ValueSpec,
    spec_of,
    without_sizes,
)
from flowdsl.elements.structure import (
    PLAIN,
    from_dlpack,
    is_masked,
    is_tensor,
    read_only,
    remade,
)
from flowdsl.errors import InvalidFlow, SourceError, SpecMismatch
from flowdsl.nodes import (
    FlowBase,
    IndexedSource,
    Sliceable,
    T,
    at_least,
    flow,
    frozen_node,
    plain_int,
    rejects_keywords,
)

if TYPE_CHECKING:
    from flowdsl.elements.batch_types import Unknown
    from flowdsl.flow import Flow

A = TypeVar("A")
F = TypeVar("F", bound=Callable[..., object])
A_co = TypeVar("A_co", covariant=True)

AnyArray: TypeAlias = np.ndarray[Any, Any]
Column: TypeAlias = AnyArray | list[Any]
"""A component of all rows."""
Columns: TypeAlias = "NDArray[Any] | dict[str, Columns] | tuple[Columns, ...]"
"""Arrays of equal length; the arrays of a dict or tuple are the components of its rows."""


class Items(Protocol[A_co]):
    """Has a length and numbered items: a sequence, or a map-style dataset of PyTorch."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> A_co: ...


class Table(Protocol):
    """A data frame of pandas or Polars, or a table of Arrow."""

    @property
    def columns(self) -> Any: ...
    def __arrow_c_stream__(self, requested_schema: Any = None, /) -> Any: ...


@frozen_node
class FromItems(IndexedSource[T], Sliceable[T, Exact], Generic[T]):
    """The items of a sequence in memory."""

    in_memory: ClassVar[bool] = True
    spans_cost_the_same: ClassVar[bool] = True
    sequence: Items[T] = attrs.field(eq=id)
    count: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "count", len(self.sequence))

    @property
    def items(self) -> Items[T]:
        """The items; each pass reads this when it begins.

        Raises:
            SourceError: Their number has changed since the flow was built.
        """
        if len(self.sequence) != self.count:
            raise SourceError(
                f"from_items: there were {self.count} items when this flow was built, and there "
                f"are {len(self.sequence)} now; build a new flow of them"
            )
        return self.sequence

    @property
    def title(self) -> str:
        return f"from_items({self.count} items)"

    @property
    def length(self) -> int:
        return self.count

    @property
    def loop_line(self) -> str:
        if _yields_read_only(self.sequence):
            return "x = {items}[x]"
        return "x = x if type(x := {items}[x]) in {plain} else {read_only}(x)"

    # The names in braces in ``loop_line``.
    plain: ClassVar[frozenset[type]] = PLAIN
    read_only: ClassVar[Callable[[Any], Any]] = staticmethod(read_only)

    @final
    def open(self) -> Callable[[int], T]:
        items = self.items
        if _yields_read_only(items):
            return items.__getitem__
        return lambda i: read_only(items[i])

    def open_spans(self) -> Callable[[int, int], Any] | None:
        items = self.items
        columns = items.columns if isinstance(items, ArrayRows) else items
        if all(_stacks_to_itself(array) for _, array in _arrays(columns)):
            return lambda start, stop: map_columns(lambda column: column[start:stop], columns)
        return None

    def spec(self, probe: bool) -> Spec:
        items = self.items
        if isinstance(items, np.ndarray | ArrayRows):
            return _spec_of_entry(items.columns if isinstance(items, ArrayRows) else items, probe)
        if not self.count:
            return UNKNOWN
        first = spec_of(items[0])
        if probe:
            return first
        # The first item shows neither the sizes of the others nor the specs of other classes.
        of_one_class = not isinstance(items, (list, tuple)) or len(set(map(type, items))) == 1
        return without_sizes(first) if of_one_class else UNKNOWN


@attrs.frozen(eq=False, repr=False)
class ArrayRows:
    """The rows of arrays of equal length, as tuples and dicts of entries."""

    columns: Columns
    row: Callable[[int], Any] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "row", _reader(self.columns))

    def __len__(self) -> int:
        return len(next(_arrays(self.columns))[1])

    def __getitem__(self, i: int) -> Any:
        return self.row(i)


def _reader(columns: Columns) -> Callable[[int], Any]:
    """Return a function that reads a row by its number."""
    if isinstance(columns, tuple):
        readers = [_reader(part) for part in columns]
        return lambda i: tuple([read(i) for read in readers])
    if isinstance(columns, dict):
        named = [(name, _reader(part)) for name, part in columns.items()]
        return lambda i: {name: read(i) for name, read in named}
    if columns.dtype.hasobject and columns.ndim == 1:
        return lambda i: read_only(columns[i])
    return columns.__getitem__


def _stacks_to_itself(array: object) -> bool:
    """Return True if stacked rows of the array are equal to a slice of it, in dtype too."""
    return type(array) is np.ndarray and array.dtype.kind in "biufc" and array.dtype.isnative


def map_columns(func: Callable[[Column], Column], columns: Any) -> Any:
    """Apply a function to the arrays and lists in nested tuples and dicts, which keep their class.

    >>> map_columns(lambda column: column[:1], {"x": [1, 2], "y": ([3, 4],)})
    {'x': [1], 'y': ([3],)}
    """
    if isinstance(columns, dict):
        # A call for each of many columns would take longer than the function.
        return {
            name: func(part) if type(part) is np.ndarray else map_columns(func, part)
            for name, part in columns.items()
        }
    if isinstance(columns, tuple):
        return remade(type(columns), {str(k): map_columns(func, x) for k, x in enumerate(columns)})
    return func(columns)


def _yields_read_only(items: object) -> bool:
    """Return True if the items are entries of read-only arrays, and so are read-only too."""
    if isinstance(items, np.ndarray):
        return not items.flags.writeable and not (items.dtype.hasobject and items.ndim == 1)
    return isinstance(items, ArrayRows | range | str)


def _columns(items: Any, path: str = "items") -> Any:
    """The arrays as plain dicts and tuples, with tensors of other libraries replaced by arrays.

    Raises:
        SpecMismatch: NumPy cannot read a tensor; the message begins with its path.
    """
    if isinstance(items, dict):
        return {name: _columns(part, f"{path}[{name!r}]") for name, part in items.items()}
    if isinstance(items, tuple):
        return tuple(_columns(part, f"{path}[{k}]") for k, part in enumerate(items))
    if is_tensor(type(items)):
        try:
            return read_only(from_dlpack(items))
        except SpecMismatch as error:  # for an array of Arrow, ``refuse_tables`` has better advice
            if not _is_of_arrow(items):
                raise SpecMismatch(f"from_items: {path}: {error}") from error.__cause__
    if _is_of_text(items):
        items = _as_str(items)
    return read_only(items) if isinstance(items, np.ndarray) else items


def _refuse_masks_and_keys(columns: object, path: str = "items") -> None:
    """Refuse columns whose rows would lose a mask, or would have keys that are not text."""
    if isinstance(columns, dict):
        not_text = [key for key in columns if not isinstance(key, str)]
        if not_text:
            raise InvalidFlow(f"from_items: the keys of a dict must be text, got {not_text[0]!r}")
        for name, part in columns.items():
            _refuse_masks_and_keys(part, f"{path}[{name!r}]")
    elif isinstance(columns, tuple):
        for k, part in enumerate(columns):
            _refuse_masks_and_keys(part, f"{path}[{k}]")
    elif is_masked(columns):
        raise InvalidFlow(
            f"from_items: {path} is a masked array, and a row has no mask; fill it with a value, "
            f"such as x.filled(np.nan)"
        )


def _arrays(columns: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the arrays with their paths, such as "y.0"; also values that are not arrays."""
    if not isinstance(columns, tuple | dict):
        yield path, columns
        return
    parts = columns.items() if isinstance(columns, dict) else enumerate(columns)
    for name, part in parts:
        yield from _arrays(part, f"{path}.{name}" if path else str(name))


def _spec_of_entry(columns: Columns, probe: bool) -> Spec:
    """The spec of a row. Texts differ in length, although an array has one dtype for all."""
    if isinstance(columns, tuple | dict):
        parts = columns.items() if isinstance(columns, dict) else enumerate(columns)
        fields = tuple((str(name), _spec_of_entry(part, probe)) for name, part in parts)
        return StructSpec(dict if isinstance(columns, dict) else tuple, fields)
    if columns.ndim > 1:
        return ArraySpec(columns.dtype, columns.shape[1:])
    if columns.dtype.kind == "O":
        return spec_of(columns[0]) if probe and len(columns) else UNKNOWN
    if columns.dtype.kind in "SU":  # each scalar has a dtype of its own length
        return ValueSpec(columns.dtype.type)
    return ArraySpec(columns.dtype.newbyteorder("="), ())  # a scalar has native byte order


def refuse_flow(argument: str, value: object) -> None:
    """Refuse a flow: as a sequence of items, each of its elements would be computed by itself.

    Raises:
        InvalidFlow: It is a flow.
    """
    if isinstance(value, FlowBase):
        raise InvalidFlow(f"{argument} is a flow already: chain operators to it")


def refuse_splits(argument: str, value: object) -> None:
    """Refuse a dict of datasets, such as the splits from ``load_dataset`` of Hugging Face.

    Raises:
        InvalidFlow: It is a dict of datasets; the message names them.
    """
    if not isinstance(value, Mapping) or type(value) is dict or not value:
        return
    if all(hasattr(part, "column_names") and hasattr(part, "features") for part in value.values()):
        names = ", ".join(map(repr, value))
        raise InvalidFlow(
            f"{argument} must be one dataset, and this {type(value).__name__} has several: "
            f"{names}; pass one of them, such as [{next(iter(value))!r}]"
        )


def is_table(value: object) -> bool:
    """Return True for a data frame or a table: its items are columns, or are chosen by label."""
    kind = type(value)
    has_columns = hasattr(kind, "columns") and (
        hasattr(kind, "iloc") or hasattr(kind, "__arrow_c_stream__")
    )
    return not isinstance(value, Mapping) and (has_columns or hasattr(kind, "__dataframe__"))


def _is_of_arrow(value: object) -> bool:
    return hasattr(type(value), "to_pylist") and hasattr(type(value), "to_numpy")


def refuse_tables(argument: str, value: object) -> None:
    """Refuse a data frame or a table: its items are columns, or rows selected by label.

    An array of Arrow is refused too: its items are Arrow's scalars, which do not stack.

    Raises:
        InvalidFlow: It is one of these; the message contains the code to write.
    """
    if is_table(value):
        raise InvalidFlow(
            f"{argument} must not be a table, whose items are columns or are chosen by label, got "
            f"{type(value).__name__}; from_items(x) yields its rows"
        )
    if _is_of_arrow(value):
        raise InvalidFlow(
            f"{argument} must not be an array of Arrow, whose items are Arrow's scalars, got "
            f"{type(value).__name__}; pass x.to_numpy(zero_copy_only=False), or x.to_pylist() for "
            f"Python's values"
        )


def refuse_labels(argument: str, value: object) -> None:
    """Refuse a table, an array of Arrow, or an object indexed by label, as a Series of pandas.

    Raises:
        InvalidFlow: It is one of these; the message contains the code to write.
    """
    refuse_tables(argument, value)
    if hasattr(type(value), "iloc"):
        raise InvalidFlow(
            f"{argument} must be numbered by position, and the items of a {type(value).__name__} "
            f"are chosen by label; pass its values in their order, x.to_numpy()"
        )


def _is_of_text(value: object) -> bool:
    """Return True for an array of NumPy's ``StringDType``: text of any length."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "T"


def _as_str(texts: AnyArray) -> AnyArray:
    """Return text of any length as ``str``; if its rows are arrays, as text of one width."""
    if texts.ndim < 2 or hasattr(texts.dtype, "na_object"):  # some may be missing
        return texts.astype(object)
    width = int(np.strings.str_len(texts).max(initial=1))
    return texts.astype(f"U{width}")


def _is_array_with_rows(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0


def _rows_of(items: Any) -> Any:
    """The rows of a dict or tuple of arrays; anything else unchanged."""
    columns = _columns(dict(items) if isinstance(items, Mapping) else items)
    arrays = list(_arrays(columns)) if isinstance(columns, tuple | dict) else []
    for path, part in arrays:
        refuse_labels(f"from_items: column {path}", part)
    if not arrays:
        _refuse_masks_and_keys(columns)
        return columns if _is_of_text(items) else items
    if isinstance(columns, tuple) and not all(_is_array_with_rows(part) for _, part in arrays):
        lists = [path for path, part in arrays if isinstance(part, list)]
        if lists and any(_is_array_with_rows(part) for _, part in arrays):
            raise InvalidFlow(
                f"from_items: if one column is an array, all must be, but {lists[0]} is a list; "
                f"np.asarray(...) makes an array of it. If these {len(columns)} values are "
                f"themselves the elements, pass a list: from_items([a, b])"
            )
        return items
    _refuse_masks_and_keys(columns)
    _check_columns(arrays)
    return ArrayRows(columns)


def _check_columns(arrays: list[tuple[str, Any]]) -> None:
    """Refuse a dict or tuple whose arrays do not form rows."""
    for name, value in arrays:
        if not _is_array_with_rows(value):
            axes = " without an axis" if isinstance(value, np.ndarray) else ""
            raise InvalidFlow(
                f"from_items: the values of a dict must be arrays with rows, but {name} is "
                f"{type(value).__name__}{axes}; np.asarray(...) makes an array of a sequence"
            )
    if len({len(array) for _, array in arrays}) > 1:
        lengths = ", ".join(f"{name} has {len(array)}" for name, array in arrays)
        raise InvalidFlow(
            f"from_items: the arrays of a dict or tuple must be equally long, but {lengths}; if "
            f"the arrays are themselves the elements, pass a list: from_items([a, b])"
        )


# Types do not distinguish arrays whose rows are views or scalars: a row is Any, as in NumPy.
@overload
def from_items(items: Unknown) -> Flow[Any, Exact]: ...
@overload
def from_items(items: AnyArray) -> Flow[Any, Exact]: ...
@overload
def from_items(items: tuple[AnyArray]) -> Flow[tuple[Any], Exact]: ...
@overload
def from_items(items: tuple[AnyArray, AnyArray]) -> Flow[tuple[Any, Any], Exact]: ...
@overload
def from_items(items: tuple[AnyArray, AnyArray, AnyArray]) -> Flow[tuple[Any, Any, Any], Exact]: ...
@overload
def from_items(
    items: tuple[AnyArray, AnyArray, AnyArray, AnyArray],
) -> Flow[tuple[Any, Any, Any, Any], Exact]: ...
@overload
def from_items(
    items: tuple[AnyArray, AnyArray, AnyArray, AnyArray, AnyArray],
) -> Flow[tuple[Any, Any, Any, Any, Any], Exact]: ...
@overload
def from_items(
    items: tuple[AnyArray, AnyArray, AnyArray, AnyArray, AnyArray, AnyArray],
) -> Flow[tuple[Any, Any, Any, Any, Any, Any], Exact]: ...
@overload
def from_items(
    items: tuple[AnyArray, AnyArray, AnyArray, AnyArray, AnyArray, AnyArray, AnyArray],
) -> Flow[tuple[Any, Any, Any, Any, Any, Any, Any], Exact]: ...
@overload
def from_items(
    items: tuple[AnyArray, AnyArray, AnyArray, AnyArray, AnyArray, AnyArray, AnyArray, AnyArray],
) -> Flow[tuple[Any, Any, Any, Any, Any, Any, Any, Any], Exact]: ...
@overload
def from_items(items: tuple[AnyArray, ...]) -> Flow[tuple[Any, ...], Exact]: ...
@overload
def from_items(items: Table) -> Flow[dict[str, Any], Exact]: ...
@overload
def from_items(items: Mapping[str, AnyArray]) -> Flow[dict[str, Any], Exact]: ...
@overload
def from_items(items: dict[str, object]) -> Flow[dict[str, Any], Exact]: ...
@overload
def from_items(items: tuple[Columns, ...]) -> Flow[Any, Exact]: ...
@overload
def from_items(items: Sequence[A]) -> Flow[A, Exact]: ...
@overload
def from_items(items: Items[A]) -> Flow[A, Exact]: ...
@rejects_keywords(tensors="write from_items(items)")
def from_items(items: Any) -> Flow[Any, Exact]:
    """Yield the items of a sequence, in order; or the rows of an array, or of several arrays.

    For a tuple or dict of NumPy arrays, each element is a tuple or dict of their rows:
    ``from_items((X, y))`` pairs the rows of ``X`` and ``y``. It may contain further tuples and
    dicts of arrays; rows of a NamedTuple are plain tuples. A row is a view of the array, or a NumPy
    scalar if the array has one axis. To type checkers a row is ``Any``, while the type of a batch
    is known. A list is a sequence of items of any type, and so is a tuple without arrays.

    For a table, such as a data frame of pandas or Polars or a ``Table`` of Arrow, each element is a
    row as a dict. The values are as ``from_parquet`` reads them; but NumPy's numbers in pandas stay
    as they are, NaN included, and the index is not read. Nulls become None, which does not stack:
    fill them in the table. A ``batch`` above the table copies slices of its columns.

    Any other object with a length and numbered items is allowed, such as a map-style dataset of
    PyTorch. If it computes its items, ``from_range(len(dataset)).map(dataset.__getitem__)`` lets
    workers compute them.

    Arrays are read-only, in lists, tuples, dicts and records too: copy an array before writing to
    it, ``x = x.copy()``; ``augment`` copies arrays itself. Lists, dicts, sets, byte arrays, records
    and PyTorch's tensors are copied, so they may be changed. Objects of other classes are not
    copied: if one is changed, the next pass yields it changed.

    The items stay in this process; the items that workers need are sent to them. They must not
    change while a pass runs, and their number must be the same as when the flow was built.

    Length: the length of the sequence, or of each array.

    Effects: none.

    Errors: ``InvalidFlow`` for an object without a length or numbered items, for an object indexed
    by label, such as a Series of pandas, for an array of Arrow, whose items are Arrow's scalars,
    for arrays of unequal length, for a masked array, and for a table with two columns of one name,
    or with pandas' periods or intervals; ``SourceError`` when a pass begins, if the number of items
    has changed; ``MissingLibrary`` for a table with columns of Arrow without pyarrow.

    >>> import flowdsl as fl
    >>> fl.from_items(["a", "b"]).collect()
    ['a', 'b']
    >>> import numpy as np
    >>> flow = fl.from_items({"x": np.eye(2, dtype=int), "y": np.array([5, 7])})
    >>> str(flow.spec)
    '{x: int64[2], y: int64[]}'
    >>> [row["y"].item() for row in flow]
    [5, 7]

    Source: ``DataFromList`` of tensorpack; ``from_tensor_slices`` of tf.data.

    Elsewhere: tensorpack ``DataFromList``; tf.data ``from_tensor_slices``; Grain
    ``MapDataset.source``; torchdata ``SequenceWrapper``.
    """
    refuse_flow("from_items: items", items)
    refuse_splits("from_items: items", items)
    if is_table(items):
        from flowdsl.ops.tables import table_source  # few programs have tables

        return flow(table_source(items))
    refuse_labels("from_items: items", items)
    rows = _rows_of(items)
    if isinstance(rows, np.ndarray):
        rows = read_only(rows)
    has_items = hasattr(rows, "__len__") and hasattr(rows, "__getitem__")
    if not has_items or isinstance(rows, Mapping) or getattr(rows, "shape", None) == ():
        advice = "for any other iterable use from_iterable"
        if type(items).__name__ == "LazyFrame":  # of Polars
            advice = "write from_items(frame.collect())"
        raise InvalidFlow(
            f"from_items: items must be a sequence (list, tuple, array), got "
            f"{type(items).__name__}; {advice}"
        )
    return flow(FromItems[Any](rows))


@frozen_node
class FromRange(IndexedSource[int]):
    """The integers below ``n``."""

    n: int = attrs.field(converter=plain_int, validator=at_least(0))

    @property
    def title(self) -> str:
        return f"from_range({self.n})"

    @property
    def length(self) -> int:
        return self.n

    @property
    def loop_line(self) -> str:
        return "pass"

    @final
    def open(self) -> Callable[[int], int]:
        return int

    def spec(self, probe: bool) -> Spec:
        return ValueSpec(int)


def _refusing_other_numbers(source: F) -> F:
    """Decorate ``from_range``, so that further arguments, as ``range`` has, raise advice."""

    @wraps(source)
    def called(*numbers: object, **named: object) -> object:
        if len(numbers) > 1:
            listed = ", ".join(map(repr, numbers))
            raise InvalidFlow(
                f"from_range: it takes one number, of integers from 0, got {listed}; write "
                f"from_items(range({listed}))"
            )
        return source(*numbers, **named)

    return cast("F", called)


@_refusing_other_numbers
def from_range(n: int) -> Flow[int, Exact]:
    """Yield the integers 0 to ``n - 1``.

    Length: ``n``.

    Effects: none.

    Errors: ``InvalidFlow`` for ``n < 0``, and for more numbers: ``from_items(range(2, 5))`` yields
    2, 3 and 4.

    >>> import flowdsl as fl
    >>> fl.from_range(3).collect()
    [0, 1, 2]

    Source: ``range_input_producer`` of tf.train.

    Elsewhere: tensorpack none; tf.data ``range``; Grain ``MapDataset.range``; torchdata none.
    """
    return flow(FromRange(n))
