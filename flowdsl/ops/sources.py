"""from_items, from_range, from_iterable: sources of elements in this process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from sys import getrefcount
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Protocol,
    TypeAlias,
    TypeVar,
    final,
    overload,
)

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.effects import Effect, Exact, Unsized
from flowdsl.elements.specs import (
    UNKNOWN,
    ArraySpec,
    Spec,
    StructSpec,
    ValueSpec,
    spec_of,
    with_sizes,
)
from flowdsl.elements.structure import PLAIN, from_dlpack, is_tensor, read_only
from flowdsl.errors import FlowError, InvalidFlow, SourceError
from flowdsl.nodes import (
    IndexedSource,
    Node,
    PassFactory,
    Row,
    T,
    at_least,
    cached_per_node,
    flow,
    name_of,
    plain_int,
    rejects_keywords,
    with_inferred,
)

if TYPE_CHECKING:
    from flowdsl.elements.batch_types import Unknown
    from flowdsl.flow import Flow

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)

AnyArray: TypeAlias = np.ndarray[Any, Any]
Columns: TypeAlias = "NDArray[Any] | dict[str, Columns] | tuple[Columns, ...]"
"""Arrays of equal length; the arrays of a dict or tuple are the components of its rows."""


class Items(Protocol[A_co]):
    """A length and numbered items: a sequence, or what PyTorch calls a map-style dataset."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> A_co: ...


@attrs.frozen(eq=False, repr=False)
class FromItems(IndexedSource[T], Generic[T]):
    """The items of a sequence in memory."""

    portable: ClassVar[bool] = False
    given: Items[T]
    count: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "count", len(self.given))

    @property
    def items(self) -> Items[T]:
        """The items; each pass asks for them when it begins.

        Raises:
            SourceError: There are more or fewer than when the flow was built.
        """
        if len(self.given) != self.count:
            raise SourceError(
                f"from_items: there were {self.count} items when this flow was built, and there "
                f"are {len(self.given)} now; build a new flow of them"
            )
        return self.given

    @property
    def title(self) -> str:
        return f"from_items({self.count} items)"

    @property
    def length(self) -> int:
        return self.count

    @property
    def line(self) -> str:
        if _gives_read_only(self.given):
            return "x = {items}[x]"
        return "x = x if type(x := {items}[x]) in {plain} else {read_only}(x)"

    plain: ClassVar[frozenset[type]] = PLAIN
    read_only: ClassVar[Callable[[Any], Any]] = staticmethod(read_only)

    @final
    def open(self) -> Callable[[int], T]:
        items = self.items
        if _gives_read_only(items):
            return items.__getitem__
        return lambda i: read_only(items[i])

    def spec(self, probe: bool) -> Spec:
        items = self.items
        if isinstance(items, np.ndarray | ArrayRows):
            return _spec_of_entry(items.columns if isinstance(items, ArrayRows) else items, probe)
        if not self.count:
            return UNKNOWN
        first = spec_of(items[0])
        if probe:
            return first
        # One item does not tell the sizes of the others, or anything of other classes.
        alike = not isinstance(items, (list, tuple)) or len(set(map(type, items))) == 1
        return with_sizes(first, UNKNOWN) if alike else UNKNOWN


@attrs.frozen(eq=False)
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
    """A function that makes a row from its number."""
    if isinstance(columns, tuple):
        readers = [_reader(part) for part in columns]
        return lambda i: tuple([read(i) for read in readers])
    if isinstance(columns, dict):
        named = [(name, _reader(part)) for name, part in columns.items()]
        return lambda i: {name: read(i) for name, read in named}
    if columns.dtype.hasobject and columns.ndim == 1:
        return lambda i: read_only(columns[i])
    return columns.__getitem__


def _gives_read_only(items: object) -> bool:
    """Whether the items are made of read-only arrays, and so are read-only themselves."""
    if isinstance(items, np.ndarray):
        return not items.flags.writeable and not (items.dtype.hasobject and items.ndim == 1)
    return isinstance(items, ArrayRows | range | str)


def _columns(items: Any) -> Any:
    """The dict or tuple with other libraries' tensors replaced by arrays."""
    if type(items) is dict:
        other = [key for key in items if not isinstance(key, str)]
        if other:
            raise InvalidFlow(f"from_items: the keys of a dict must be text, got {other[0]!r}")
        return {name: _columns(part) for name, part in items.items()}
    if type(items) is tuple:
        return tuple(map(_columns, items))
    if is_tensor(type(items)):
        return read_only(from_dlpack(items))
    return read_only(items) if isinstance(items, np.ndarray) else items


def _arrays(columns: object, at: str = "") -> Iterator[tuple[str, Any]]:
    """The arrays with their names; a value that is not an array is given too."""
    if not isinstance(columns, tuple | dict):
        yield at, columns
        return
    parts = columns.items() if isinstance(columns, dict) else enumerate(columns)
    for name, part in parts:
        yield from _arrays(part, f"{at}.{name}" if at else str(name))


def _spec_of_entry(columns: Columns, probe: bool) -> Spec:
    """The spec of a row; unlike those of a batch, entries of text differ in length."""
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


def refuse_splits(argument: str, given: object) -> None:
    """Refuse a dict of datasets, such as the splits that ``load_dataset`` of Hugging Face gives.

    Raises:
        InvalidFlow: It is one; the message names them.
    """
    if not isinstance(given, Mapping) or type(given) is dict or not given:
        return
    if all(hasattr(part, "column_names") and hasattr(part, "features") for part in given.values()):
        names = ", ".join(map(repr, given))
        raise InvalidFlow(
            f"{argument} must be one dataset, and this {type(given).__name__} has several: "
            f"{names}; give one of them, such as [{next(iter(given))!r}]"
        )


def refuse_tables(argument: str, given: object) -> None:
    """Refuse a data frame or a table: its items are columns, or rows that a label chooses.

    Raises:
        InvalidFlow: It is one; the message says what to write.
    """
    kind = type(given)
    is_table = hasattr(kind, "__dataframe__") or (
        hasattr(kind, "iloc") and hasattr(kind, "columns")
    )
    if not is_table or isinstance(given, Mapping):
        return
    rows = next((call for method, call in _TO_ROWS.items() if hasattr(given, method)), None)
    names = next((each for each in ("column_names", "columns") if hasattr(given, each)), "columns")
    many = f"give its rows, x.{rows}, or its columns" if rows else "give its columns"
    raise InvalidFlow(
        f"{argument} must not be a table, whose items are columns or are chosen by label, got "
        f"{kind.__name__}; {many} as arrays, "
        f"from_items({{name: x[name].to_numpy() for name in x.{names}}})"
    )


_TO_ROWS = {"to_pylist": "to_pylist()", "to_dicts": "to_dicts()", "to_dict": "to_dict('records')"}
"""Methods of tables that give a list of dicts, and how they are called."""


def refuse_labels(argument: str, given: object) -> None:
    """Refuse what is numbered by label, such as a Series of pandas, and a table.

    Raises:
        InvalidFlow: It is one; the message says what to write.
    """
    refuse_tables(argument, given)
    if hasattr(type(given), "iloc"):
        raise InvalidFlow(
            f"{argument} must be numbered by position, and the items of a {type(given).__name__} "
            f"are chosen by label; give its values in their order, x.to_numpy()"
        )


def _has_rows(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0


def _rows_of(items: Any) -> Any:
    """The rows of a dict or tuple of arrays; anything else unchanged."""
    columns = _columns(dict(items) if isinstance(items, Mapping) else items)
    arrays = list(_arrays(columns)) if isinstance(columns, tuple | dict) else []
    for at, part in arrays:
        refuse_labels(f"from_items: column {at}", part)
    if not arrays:
        return items
    if isinstance(columns, tuple) and not all(_has_rows(array) for _, array in arrays):
        lists = [at for at, part in arrays if isinstance(part, list)]
        if lists and any(_has_rows(array) for _, array in arrays):
            raise InvalidFlow(
                f"from_items: with an array among them all columns must be arrays, but {lists[0]} "
                f"is a list; np.asarray(...) makes an array of it. For a flow of these "
                f"{len(columns)} values give a list of them"
            )
        return items
    _check_columns(arrays)
    return ArrayRows(columns)


def _check_columns(arrays: list[tuple[str, Any]]) -> None:
    """Refuse a dict or tuple whose arrays do not form rows."""
    for name, value in arrays:
        if not _has_rows(value):
            axes = " without an axis" * isinstance(value, np.ndarray)
            raise InvalidFlow(
                f"from_items: the values of a dict must be arrays with rows, but {name} is "
                f"{type(value).__name__}{axes}; np.asarray(...) makes an array of a sequence"
            )
    if len({len(array) for _, array in arrays}) > 1:
        lengths = ", ".join(f"{name} has {len(array)}" for name, array in arrays)
        raise InvalidFlow(
            f"from_items: the arrays of a dict or tuple must be equally long, but {lengths}; for a "
            f"flow whose elements are the arrays give a list of them"
        )


# No type says whether a row of an array is a view or a scalar: it is Any, as in NumPy.
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
    """The items of a sequence, in order; the rows of an array, or of several arrays side by side.

    A tuple or dict of NumPy arrays gives tuples or dicts of their rows: ``from_items((X, y))``
    pairs the rows of ``X`` with those of ``y``. It may hold further tuples and dicts of arrays; of
    a NamedTuple the rows are plain tuples. A row is a view of the array, and of an array of one
    axis a NumPy scalar; no type tells which, but that of a batch does. A list is a sequence of
    items, whatever they are, and so is a tuple of anything but arrays.

    Anything else with a length and numbered items will do, such as a map-style dataset of PyTorch.
    If it computes its items, ``from_range(len(dataset)).map(dataset.__getitem__)`` lets workers
    do so.

    Arrays are read-only, in lists, tuples, dicts and records too: a function that writes to one
    copies it first, ``x = x.copy()``, and ``augment`` does so by itself. A dict, list or record
    that is given is a copy, so it may be changed. Tensors of other libraries and objects of other
    classes are given as they are, and a change to one is seen by the next pass.

    The items stay in this process; what workers need of them travels to them. They must not change
    while a pass runs, and there must be as many in each pass as when the flow was built.

    Length: that of the sequence, or of each array.

    Effects: none.

    Errors: ``InvalidFlow`` for what has no length or no numbered items, for what is numbered by
    label, such as a Series of pandas, for a table (a data frame, a table of Arrow), and for arrays
    of unequal length; ``SourceError`` when a pass begins, if there are more or fewer items than
    there were.

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
    refuse_splits("from_items: items", items)
    refuse_labels("from_items: items", items)
    rows = _rows_of(items)
    if isinstance(rows, np.ndarray):
        rows = read_only(rows)
    numbered = hasattr(rows, "__len__") and hasattr(rows, "__getitem__")
    if not numbered or isinstance(rows, Mapping) or getattr(rows, "shape", None) == ():
        raise InvalidFlow(
            f"from_items: items must be a sequence (list, tuple, array), got "
            f"{type(items).__name__}; for any other iterable use from_iterable"
        )
    return flow(FromItems[Any](rows))


@attrs.frozen(repr=False)
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
    def line(self) -> str:
        return "pass"

    @final
    def open(self) -> Callable[[int], int]:
        return int

    def spec(self, probe: bool) -> Spec:
        return ValueSpec(int)


def from_range(n: int) -> Flow[int, Exact]:
    """The integers 0 to ``n - 1``.

    Length: ``n``.

    Effects: none.

    Errors: ``InvalidFlow`` for ``n < 0``.

    >>> import flowdsl as fl
    >>> fl.from_range(3).collect()
    [0, 1, 2]

    Source: ``range_input_producer`` of tf.train.

    Elsewhere: tensorpack none; tf.data ``range``; Grain ``MapDataset.range``; torchdata none.
    """
    return flow(FromRange(n))


@attrs.define(eq=False)
class Opened(Generic[T]):
    """The iterator that a pass reads from, and releases when it ends."""

    elements: Iterator[T]
    ours: bool
    """Whether the iterator was made for this pass, and is closed with it."""

    def __enter__(self) -> Opened[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        close = getattr(self.elements, "close", None) if self.ours else None
        try:
            if close is not None:
                close()
        except Exception as failed:
            if error is None or isinstance(error, GeneratorExit):
                raise
            error.add_note(f"and it failed as it was closed: {failed!r}")
        finally:
            del close  # a bound method keeps its object alive
            if getrefcount(self.elements) <= getrefcount(_held_by_one.elements):
                self.elements = iter(())  # no other reference: release the iterator


_held_by_one = Opened(iter([None]), False)


@attrs.define
class Once:
    """Opens an iterator for one pass, and refuses a second pass."""

    iterator: Iterator[Any] | None
    refusal: str
    ours: bool = False
    """Whether nothing else uses the iterator, so that it is closed with the pass."""

    def __call__(self) -> Opened[Any]:
        if self.iterator is None:
            raise SourceError(self.refusal)
        opened, self.iterator = Opened(self.iterator, self.ours), None
        return opened


@attrs.define
class Anew(Generic[T]):
    """Opens a new iterator for every pass, and refuses one that it was given before."""

    make: Callable[[], Iterable[T]]
    _last: Opened[T] | None = attrs.field(default=None, init=False)

    def __call__(self) -> Opened[T]:
        opened = Opened(iter(self.make()), True)
        if self._last is not None and self._last.elements is opened.elements:
            raise SourceError(
                f"from_iterable: {name_of(self.make)} gave the same iterator as for the last pass, "
                f"which took its elements; make a new one in the function"
            )
        self._last = opened
        return opened

    def __reduce__(self) -> tuple[type[Anew[T]], tuple[object, ...]]:
        return Anew, (self.make,)  # the last iterator belongs to this process


@attrs.frozen(eq=False)
class FromIterable(Node[T, Unsized], Generic[T]):
    """The elements of an iterable, or of a new iterable for every pass."""

    make: Callable[[], Opened[T]]
    replays: bool
    label: str

    @property
    def title(self) -> str:
        return f"from_iterable({self.label})"

    @property
    def length(self) -> int | None:
        return None

    @property
    def replayable(self) -> bool:
        return self.replays

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return with_inferred(self, UNKNOWN, probe)

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return numbered(self, partial(self._open, epoch), epoch)

    def _open(self, epoch: int) -> Opened[T]:
        try:
            return self.make()
        except FlowError:
            raise
        except Exception as error:
            raise SourceError(
                f"{self.title}: the function failed to make an iterator for epoch {epoch}: {error}"
            ) from error


def numbered(node: Node[T, Effect], make: Callable[[], Opened[T]], epoch: int) -> Iterator[Row[T]]:
    """The elements of a stream with their positions; errors are raised at their position.

    The stream is opened for the first element, and released when the rows end or are closed.
    """
    with make() as opened:
        for position in count():
            try:
                x = next(opened.elements)  # a local name would live on in tracebacks
            except StopIteration:
                return
            except FlowError:
                raise
            except Exception as error:
                raise node.failure(epoch, position) from error
            yield position, x


_SPECS = "the spec is read from the first element, or from the annotations of functions"


@rejects_keywords(
    generator="write from_iterable(f)",
    output_signature=_SPECS,
    output_types=_SPECS,
)
def from_iterable(iterable: Iterable[A] | Callable[[], Iterable[A]]) -> Flow[A, Unsized]:
    """The elements of an iterable, or of what a function without arguments makes for each pass.

    A function gives every pass its own iterator, so the flow can be repeated and resumed. A live
    iterator (a generator, say) gives one pass; the second is a ``SourceError``. The iterable is
    read in the consumer's process. The arrays of a collection, such as a list, are read-only, as
    with ``from_items``; what a function or an iterator gives is given as it is.

    What the function made is closed at the end of its pass, however that ends, if it has a
    ``close``, as generators and files have. A live iterator is let go of, and stays open where
    somebody else holds it.

    Length: unknown, whatever the iterable is.

    Effects: ``Unsized``.

    Errors: ``InvalidFlow`` for what is neither, and for a table, which gives names or columns; an
    exception that the iterable raises arrives at its place in the sequence, as the cause of an
    ``ElementError``; ``SourceError`` if the function fails; ``FlowError`` at the end of the pass
    for one that fails as it is closed.

    >>> import flowdsl as fl
    >>> squares = fl.from_iterable(lambda: (i * i for i in range(3)))
    >>> squares.repeat(2).collect()
    [0, 1, 4, 0, 1, 4]

    Source: ``DataFromGenerator`` and ``DataFromIterable`` of tensorpack.

    Elsewhere: tensorpack ``DataFromIterable``, ``DataFromGenerator``; tf.data ``from_generator``;
    Grain none; torchdata ``IterableWrapper``.
    """
    refuse_splits("from_iterable: iterable", iterable)
    refuse_tables("from_iterable: iterable", iterable)
    if isinstance(iterable, Iterator):
        return flow(FromIterable(Once(iterable, _LIVE), False, name_of(iterable)))
    if isinstance(iterable, Collection):
        return flow(FromIterable(Anew(partial(map, read_only, iterable)), True, name_of(iterable)))
    if isinstance(iterable, Iterable):
        return flow(FromIterable(Anew(iterable.__iter__), True, name_of(iterable)))
    if callable(iterable):
        return flow(FromIterable(Anew(iterable), True, name_of(iterable)))
    raise InvalidFlow(
        f"from_iterable: expected an iterable or a function that makes one, got {iterable!r}"
    )


_LIVE = (
    "from_iterable: an iterator gives only one pass, and this is a second one; pass a function "
    "that makes a new iterator, e.g. from_iterable(lambda: open_stream())"
)
