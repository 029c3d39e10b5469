"""from_items, from_range: sources of numbered rows in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Protocol,
    TypeVar,
    cast,
    final,
    overload,
)

import attrs
import numpy as np

from flowdsl.effects import Exact
from flowdsl.elements.read_only import read_only
from flowdsl.elements.specs import (
    UNKNOWN,
    Spec,
    ValueSpec,
    spec_of,
    without_sizes,
)
from flowdsl.elements.structure import PLAIN
from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.nodes import (
    IndexedSource,
    Sliceable,
    T,
    at_least,
    flow,
    frozen_node,
    plain_int,
    rejects_keywords,
)
from flowdsl.ops.columns import (
    AnyArray,
    ArrayRows,
    Columns,
    arrays_of,
    map_columns,
    rows_of,
    spec_of_row,
)
from flowdsl.ops.refused_items import is_table, refuse_flow, refuse_labels, refuse_splits

if TYPE_CHECKING:
    from flowdsl.elements.batch_types import Unknown
    from flowdsl.flow import Flow

A = TypeVar("A")
F = TypeVar("F", bound=Callable[..., object])
A_co = TypeVar("A_co", covariant=True)


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
    def shared_by_threads(self) -> bool:
        return _yields_read_only(self.sequence)  # unlike rows of a class with code of its own

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
        if all(_stacks_to_itself(array) for _, array in arrays_of(columns)):
            return lambda start, stop: map_columns(lambda column: column[start:stop], columns)
        return None

    def spec(self, probe: bool) -> Spec:
        items = self.items
        if isinstance(items, np.ndarray | ArrayRows):
            return spec_of_row(items.columns if isinstance(items, ArrayRows) else items, probe)
        if not self.count:
            return UNKNOWN
        first = spec_of(items[0])
        if probe:
            return first
        # The first item shows neither the sizes of the others nor the specs of other classes.
        of_one_class = not isinstance(items, (list, tuple)) or len(set(map(type, items))) == 1
        return without_sizes(first) if of_one_class else UNKNOWN


def _stacks_to_itself(array: object) -> bool:
    """Return True if stacked rows of the array are equal to a slice of it, in dtype too."""
    return type(array) is np.ndarray and array.dtype.kind in "biufc" and array.dtype.isnative


def _yields_read_only(items: object) -> bool:
    """Return True if the items are entries of read-only arrays, and so are read-only too."""
    if isinstance(items, np.ndarray):
        return not items.flags.writeable and not (items.dtype.hasobject and items.ndim == 1)
    return isinstance(items, ArrayRows | range | str)


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
    rows = rows_of(items)
    if isinstance(rows, np.ndarray):
        rows = read_only(rows)
    has_items = hasattr(rows, "__len__") and hasattr(rows, "__getitem__")
    has_no_axes = getattr(rows, "shape", None) == ()
    if not has_items or isinstance(rows, Mapping) or has_no_axes:
        advice = "for any other iterable use from_iterable"
        if has_no_axes:
            advice = "an array without axes is one value; write from_items([x])"
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
