"""window: groups of elements that may overlap, of a flow or of each of its streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    Never,
    TypeAlias,
    TypeVar,
    overload,
)

import attrs
import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from flowdsl.effects import Reordered, Resampled, Unsized
from flowdsl.elements.batch_specs import spec_of_batch
from flowdsl.elements.preallocated import Allocate
from flowdsl.elements.specs import UNKNOWN, ArraySpec, Spec, StructSpec, with_sizes
from flowdsl.elements.stacking import collated
from flowdsl.elements.structure import read_only
from flowdsl.errors import InvalidFlow, raise_ending
from flowdsl.nodes import (
    POSITION_LIMIT,
    A,
    AnyNode,
    E,
    FlowBase,
    Node,
    PassFactory,
    Restartable,
    Restarts,
    Retained,
    Retaining,
    Row,
    Sliceable,
    T,
    Traceable,
    Traced,
    U,
    Windowed,
    at_least,
    cached_per_node,
    describe_group,
    flow,
    format_call,
    keyword_unless_default,
    name_of,
    plain_int,
    refuse_mismatch,
    rejects_keywords,
    trace,
    validate_key,
)
from flowdsl.nodes.validation import checked_flag
from flowdsl.ops.batching import spans_of
from flowdsl.ops.grouping import Key, failure_of_group, key_of
from flowdsl.ops.held_rows import HeldRows
from flowdsl.ops.sources import Column, map_columns

if TYPE_CHECKING:
    from flowdsl.elements.batch_types import Batchable
    from flowdsl.flow import Flow

B = TypeVar("B")

Remainder: TypeAlias = Literal["drop", "keep", "fill"]
"""What becomes of the windows at the end of a pass that have fewer than ``size`` elements."""

MOST_IN_SPEC = 1000
"""The most elements of a window whose spec names each of them."""

WINDOWS_PER_RESTART = 8
"""The number of windows from one place where a pass can begin again to the next: to note one costs
more than a small window."""


def _is_size(node: AnyNode, field: attrs.Attribute[int], value: object) -> None:
    at_least(1)(node, field.evolve(name="size"), value)  # the method calls it size


def _is_remainder(node: AnyNode, field: attrs.Attribute[Remainder], value: object) -> None:
    if value not in ("drop", "keep", "fill"):
        raise InvalidFlow(
            f"window: remainder must be 'drop', 'keep' or 'fill', got {value!r}: shorter windows "
            f"at the end are left out, kept, or filled with their last elements"
        )


def _title(n: int, stride: int, dilation: int, remainder: Remainder, stack: bool, key: str) -> str:
    return format_call(
        "window",
        str(n),
        keyword_unless_default("stride", stride, 1),
        keyword_unless_default("dilation", dilation, 1),
        keyword_unless_default("remainder", remainder, "drop"),
        keyword_unless_default("stack", stack, False),
        key,
    )


@attrs.frozen(eq=False, repr=False)
class _Maker:
    """Makes windows of ``n`` elements, which are fewer only at the end of a pass."""

    n: int
    remainder: Remainder
    stacks: bool
    shares: bool
    """True if an element may be in several windows."""

    def made(self, group: Iterable[Any], allocate: Allocate | None = None) -> Any:
        rows = list(group)
        size = len(rows)
        fills = self.remainder == "fill"
        if fills:
            rows += rows[-1:] * (self.n - size)
        if self.stacks:
            window = read_only(collated(rows, None, allocate))
        else:
            window = tuple(map(read_only, rows) if self.shares or fills else rows)
        return (window, np.arange(self.n) < size) if fills else window

    def spec(self, each: Spec) -> Spec:
        """The spec of windows of elements with the spec ``each``."""
        window: Spec
        if self.stacks:
            window = spec_of_batch(each, None if self.remainder == "keep" else self.n)
        elif self.remainder == "keep" or self.n > MOST_IN_SPEC:
            window = UNKNOWN  # a tuple that may be shorter, or is too long to describe
        else:
            window = StructSpec(tuple, tuple((str(i), each) for i in range(self.n)))
        if self.remainder != "fill":
            return window
        mask = ArraySpec(np.dtype(np.bool_), (self.n,))
        return StructSpec(tuple, (("0", window), ("1", mask)))


def _drops_remainder(node: Any) -> bool:
    return bool(node.remainder == "drop")


@attrs.frozen(eq=False, repr=False)  # with slots, which take the place of base properties
class _Windows(Windowed[A, U, E], Restartable[U, E], Generic[A, U, E]):
    """Windows of ``n`` elements, each ``stride`` elements after the one before it."""

    n: int = attrs.field(converter=plain_int, validator=_is_size)
    stride: int = attrs.field(converter=plain_int, validator=at_least(1))  # pyright: ignore[reportIncompatibleMethodOverride]  # a field is a property too
    dilation: int = attrs.field(converter=plain_int, validator=at_least(1))  # pyright: ignore[reportIncompatibleMethodOverride]
    remainder: Remainder = attrs.field(validator=_is_remainder)
    drop_remainder: bool = attrs.field(
        init=False, default=attrs.Factory(_drops_remainder, takes_self=True)
    )

    @property
    def title(self) -> str:
        return _title(self.n, self.stride, self.dilation, self.remainder, self.stacks, "")

    @property
    @cached_per_node
    def _maker(self) -> _Maker:
        return _Maker(self.n, self.remainder, self.stacks, self.shares)

    @property
    @cached_per_node
    def length(self) -> int | None:
        rows = self.source.length
        if rows is None:
            return None
        needed = self.span if self.drop_remainder else 1
        return max(0, (rows - needed) // self.stride + 1)

    def gather(self, group: Sequence[A], allocate: Allocate | None = None) -> U:
        window: U = self._maker.made(group, allocate)
        return window

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return self._maker.spec(self.source.spec(probe))

    def place_at(self, yielded: int) -> tuple[int, int]:
        return yielded, yielded * self.stride

    def rows_from(
        self,
        epoch: int,
        yielded: int,
        offset: int,
        sources: Sequence[PassFactory],
        restarts: Restarts,
    ) -> Iterator[Row[U]]:
        span, stride, shares = self.span, self.stride, self.shares
        restarts.note(restarts.mark(), yielded)
        marks, every = deque[object](), WINDOWS_PER_RESTART * stride
        marked = yielded + WINDOWS_PER_RESTART  # the window whose first element the next mark is at
        latest = deque[A](maxlen=span)
        number, read, complete = yielded, 0, span  # the next window is complete with as many read
        for read, (_, x) in enumerate(sources[0](epoch), 1):
            latest.append(read_only(x) if shares else x)
            if read == complete:
                yield number, self._window(epoch, number, latest)
                number, complete = number + 1, complete + stride
            if not read % every:
                marks.append(restarts.mark())
            if number == marked and marks:
                restarts.note(marks.popleft(), marked)
                marked += WINDOWS_PER_RESTART
        while not self.drop_remainder and (start := complete - span) < read:
            group = islice(latest, start - (read - len(latest)), None)
            yield number, self._window(epoch, number, group)
            number, complete = number + 1, complete + stride

    def _window(self, epoch: int, number: int, elements: Iterable[A]) -> U:
        group = list(islice(elements, 0, None, self.dilation))
        try:
            return self.gather(group)
        except BaseException as error:
            raise_ending(self.failure(epoch, number, describe_group(group)), error)


@attrs.frozen(eq=False, repr=False, slots=False)
class Window(_Windows[A, U, E | Resampled], Generic[A, U, E]):
    """Windows of elements, as tuples."""


@attrs.frozen(eq=False, repr=False, slots=False)
class StackedWindow(_Windows[A, U, E | Resampled], Sliceable[U, E | Resampled], Generic[A, U, E]):
    """Windows of elements, stacked as in a batch; over arrays in memory, views of them."""

    def __attrs_post_init__(self) -> None:
        refuse_mismatch(self)

    @property
    def stacks(self) -> bool:
        return True

    def open_views(self) -> Callable[[int], U] | None:
        spans = spans_of(self.source)
        if spans is None or self.remainder == "fill":
            return None
        size, stride, length = self.span, self.stride, self.source.length or 0
        dilated = slice(None, None, self.dilation)

        def viewed(column: Column) -> Column:
            part = column[dilated]
            return part if isinstance(part, list) else read_only(part)

        def view(i: int) -> Any:
            span = spans(i * stride, min(i * stride + size, length))
            return None if span is None else map_columns(viewed, span)

        return view

    def open_spans(self) -> Callable[[int, int], Any] | None:
        spans = spans_of(self.source)
        if spans is None or not self.drop_remainder:
            return None
        n, size, stride, dilation = self.n, self.span, self.stride, self.dilation

        def windows(column: Column) -> Column:
            begins = range(0, len(column) - size + 1, stride)
            if isinstance(column, list):
                return [column[begin : begin + size : dilation] for begin in begins]
            shape = len(begins), n, *column.shape[1:]
            strides = stride * column.strides[0], dilation * column.strides[0], *column.strides[1:]
            return as_strided(column, shape, strides, writeable=False)

        def span(start: int, stop: int) -> Any:
            found = spans(start * stride, (stop - 1) * stride + size)
            return None if found is None else map_columns(windows, found)

        return span


@attrs.define(eq=False, repr=False)
class _Stream(Generic[A]):
    """The elements of one key."""

    latest: deque[Row[A]]
    complete: int
    """The number of its elements with which its next window is complete."""
    read: int = 0
    between: list[int] = attrs.field(factory=list[int])
    """The positions of its elements from the last window on, until the next window begins."""

    first: int = POSITION_LIMIT
    """The position of the first of its elements that its next window has, if there is one."""

    def add(self, row: Row[A], span: int) -> bool:
        """Add an element; return True if the next window is complete."""
        if self.read == self.complete - span:
            self.first = row[0]
        self.latest.append(row)
        self.read += 1
        if self.between:
            self.between.append(row[0])
        return self.read == self.complete

    def move(self, stride: int, span: int) -> None:
        """Go on to the window after the next one."""
        self.complete += stride
        start = self.complete - span - (self.read - len(self.latest))
        self.first = self.latest[start][0] if start < len(self.latest) else POSITION_LIMIT
        if self.complete - span > self.read:
            self.between = [position for position, _ in self.latest]

    def positions(self, span: int) -> Iterable[int]:
        """The positions of the elements with which a resumed pass makes the stream again."""
        start = self.complete - span - (self.read - len(self.latest))
        return self.between or (position for position, _ in islice(self.latest, start, None))


@attrs.frozen(eq=False, repr=False, slots=False)
class WindowByKey(
    Traceable[U, E | Reordered | Resampled | Unsized],
    Restartable[U, E | Reordered | Resampled | Unsized],
    Retaining[U, E | Reordered | Resampled | Unsized],
    Generic[A, U, E],
):
    """The windows of each of several streams: of the elements that have the same key."""

    source: Node[A, E]
    n: int = attrs.field(converter=plain_int, validator=_is_size)
    stride: int = attrs.field(converter=plain_int, validator=at_least(1))
    dilation: int = attrs.field(converter=plain_int, validator=at_least(1))
    remainder: Remainder = attrs.field(validator=_is_remainder)
    stacks: bool
    key: Callable[[A], Key] = attrs.field(validator=validate_key)

    def __attrs_post_init__(self) -> None:
        refuse_mismatch(self)

    @property
    def title(self) -> str:
        key = f"key={name_of(self.key)}"
        return _title(self.n, self.stride, self.dilation, self.remainder, self.stacks, key)

    @property
    @cached_per_node
    def _maker(self) -> _Maker:
        return _Maker(self.n, self.remainder, self.stacks, shares=True)

    @property
    def length(self) -> None:
        return None

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        rows = self.source.spec(False)
        if probe:  # the probed element does not determine the sizes of the others
            rows = with_sizes(self.source.spec(True), rows)
        return self._maker.spec(rows)

    def rows_retaining(
        self, epoch: int, sources: Sequence[PassFactory], retained: Retained
    ) -> Iterator[Row[U]]:
        groups = _Streams[A, A](self, epoch, lambda x: x, retained).groups(sources[0](epoch))
        return enumerate(self._window(epoch, group) for group in groups)

    def rows_from(
        self,
        epoch: int,
        yielded: int,
        offset: int,
        sources: Sequence[PassFactory],
        restarts: Restarts,
    ) -> Iterator[Row[U]]:
        streams = _Streams[A, A](self, epoch, lambda x: x, Retained())
        held = HeldRows[A](sources[0], restarts, streams.positions)
        groups = streams.groups(held.rows(epoch, yielded, offset), held)
        return enumerate((self._window(epoch, group) for group in groups), yielded)

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        traced = ((i, x if isinstance(x, Traced) else Traced(x, ())) for i, x in sources[0](epoch))
        streams = _Streams[A, Traced[A]](self, epoch, lambda x: x.element, Retained())
        for position, group in enumerate(streams.groups(traced)):
            window = self._window(epoch, [(i, x.element) for i, x in group])
            yield position, trace(window, [x.places for _, x in group], self.stacks)

    def _window(self, epoch: int, group: list[Row[A]]) -> U:
        try:
            window: U = self._maker.made(x for _, x in group)
        except BaseException as error:
            raise_ending(failure_of_group(self, epoch, group), error)
        return window


@attrs.define(eq=False)
class _Streams(Generic[A, B]):
    """A pass: the streams of which elements are held, by their keys."""

    node: WindowByKey[A, Any, Any]
    epoch: int
    element_of: Callable[[B], A]
    retained: Retained
    span: int = attrs.field(init=False)
    streams: dict[Key, _Stream[B]] = attrs.field(factory=dict[Key, Any], init=False)

    def __attrs_post_init__(self) -> None:
        node = self.node
        self.span = min((node.n - 1) * node.dilation + 1, POSITION_LIMIT)  # no pass is longer

    def positions(self) -> list[int]:
        """The positions of the rows that are held."""
        found = (stream.positions(self.span) for stream in self.streams.values())
        return list(chain.from_iterable(found))

    def groups(
        self, rows: Iterator[Row[B]], held: HeldRows[B] | None = None
    ) -> Iterator[list[Row[B]]]:
        """Yield the elements of each window."""
        node, span, streams, retained = self.node, self.span, self.streams, self.retained
        is_known = False  # True if a stream has the row at ``retained.first``
        for position, x in rows:
            element = self.element_of(x)
            try:
                key = key_of(element, node.key)
                stream = streams.get(key)
            except BaseException as error:
                raise_ending(failure_of_group(node, self.epoch, [(position, element)]), error)
            if stream is None:
                streams[key] = stream = _Stream(deque(maxlen=span), span)
            group, was_oldest = None, False
            if stream.add((position, x), span):
                group = [*islice(stream.latest, 0, None, node.dilation)]
                was_oldest = stream.first == retained.first
                stream.move(node.stride, span)
            if stream.read == stream.complete - span:
                del streams[key]  # its next element begins a window, as that of a new key does
            if group is None or (held is not None and held.are_again):
                continue
            # If it was not the oldest, another stream still has the first row.
            if retained.is_followed and (was_oldest or not is_known):
                oldest = min((stream.first for stream in streams.values()), default=POSITION_LIMIT)
                is_known = oldest <= position
                retained.first = oldest if is_known else position + 1
            yield group
        if node.remainder != "drop":
            for stream in sorted(streams.values(), key=lambda stream: stream.first):
                before = stream.read - len(stream.latest)
                for start in range(stream.complete - span, stream.read, node.stride):
                    yield [*islice(stream.latest, start - before, None, node.dilation)]


class Windowing(FlowBase[T, E]):
    """Operators on windows of elements."""

    @overload  # of options of unknown types, ``**options``
    def window(self, size: Never, stride: int = 1) -> Flow[Any, Any]: ...
    @overload
    def window(
        self: Batchable[B],
        size: int,
        stride: int = 1,
        *,
        dilation: int = 1,
        remainder: Literal["drop", "keep"] = "drop",
        stack: Literal[True],
        key: None = None,
    ) -> Flow[B, E | Resampled]: ...
    @overload
    def window(
        self: Batchable[B],
        size: int,
        stride: int = 1,
        *,
        dilation: int = 1,
        remainder: Literal["fill"],
        stack: Literal[True],
        key: None = None,
    ) -> Flow[tuple[B, NDArray[np.bool_]], E | Resampled]: ...
    @overload
    def window(
        self: Batchable[B],
        size: int,
        stride: int = 1,
        *,
        dilation: int = 1,
        remainder: Literal["drop", "keep"] = "drop",
        stack: Literal[True],
        key: Callable[[T], Key],
    ) -> Flow[B, E | Reordered | Resampled | Unsized]: ...
    @overload
    def window(
        self: Batchable[B],
        size: int,
        stride: int = 1,
        *,
        dilation: int = 1,
        remainder: Literal["fill"],
        stack: Literal[True],
        key: Callable[[T], Key],
    ) -> Flow[tuple[B, NDArray[np.bool_]], E | Reordered | Resampled | Unsized]: ...
    @overload
    def window(
        self,
        size: Literal[2],
        stride: int = 1,
        *,
        dilation: int = 1,
        remainder: Literal["drop"] = "drop",
        stack: Literal[False] = False,
        key: None = None,
    ) -> Flow[tuple[T, T], E | Resampled]: ...
    @overload
    def window(
        self,
        size: Literal[3],
        stride: int = 1,
        *,
        dilation: int = 1,
        remainder: Literal["drop"] = "drop",
        stack: Literal[False] = False,
        key: None = None,
    ) -> Flow[tuple[T, T, T], E | Resampled]: ...
    @overload
    def window(
        self,
        size: Literal[4],
        stride: int = 1,
        *,
        dilation: int = 1,
        remainder: Literal["drop"] = "drop",
        stack: Literal[False] = False,
        key: None = None,
    ) -> Flow[tuple[T, T, T, T], E | Resampled]: ...
    @overload
    def window(
        self,
        size: int,
        stride: int = 1,
        *,
        dilation: int = 1,
        remainder: Literal["drop", "keep"] = "drop",
        stack: Literal[False] = False,
        key: None = None,
    ) -> Flow[tuple[T, ...], E | Resampled]: ...
    @overload
    def window(
        self,
        size: int,
        stride: int = 1,
        *,
        dilation: int = 1,
        remainder: Literal["fill"],
        stack: Literal[False] = False,
        key: None = None,
    ) -> Flow[tuple[tuple[T, ...], NDArray[np.bool_]], E | Resampled]: ...
    @overload
    def window(
        self,
        size: int,
        stride: int = 1,
        *,
        dilation: int = 1,
        remainder: Literal["drop", "keep"] = "drop",
        stack: Literal[False] = False,
        key: Callable[[T], Key],
    ) -> Flow[tuple[T, ...], E | Reordered | Resampled | Unsized]: ...
    @overload
    def window(
        self,
        size: int,
        stride: int = 1,
        *,
        dilation: int = 1,
        remainder: Literal["fill"],
        stack: Literal[False] = False,
        key: Callable[[T], Key],
    ) -> Flow[tuple[tuple[T, ...], NDArray[np.bool_]], E | Reordered | Resampled | Unsized]: ...
    @rejects_keywords(
        shift="write window(size, stride={n})",
        step="write window(size, stride={n})",
        drop_remainder="remainder='keep' keeps shorter windows, which are left out without it",
        fillvalue="write remainder='fill', which repeats the last element and yields a mask",
        key_func="write key={}",
    )
    def window(
        self: Any,
        size: int,
        stride: int = 1,
        *,
        dilation: int = 1,
        remainder: Remainder = "drop",
        stack: bool = False,
        key: Callable[[Any], Key] | None = None,
    ) -> Flow[Any, Any]:
        """Yield tuples of ``size`` consecutive elements, each ``stride`` elements after the last.

        Windows overlap when ``stride < size``, and skip elements when ``stride > size``. With a
        ``dilation`` of ``k``, a window has every ``k``-th element, for example every fourth frame.

        ``remainder`` is about the windows that begin before the end of the pass and reach beyond
        it: ``"drop"`` leaves them out, ``"keep"`` yields the elements that they have, and
        ``"fill"`` repeats the last of these. With ``"fill"``, an element is ``(window, mask)``, as
        in ``batch``: the mask, ``bool[size]``, is False for the elements that fill the window.

        With ``stack``, an element is a stacked window instead, as ``batch`` stacks rows: an array
        of shape ``(size, *s)`` for each component of shape ``s``, read-only. Over arrays in memory,
        ``from_items(array)``, it is a view of them, which costs as much as a slice.

        With ``key``, each window has elements for which ``key`` returns the same value: elements of
        one sensor, say, of several that are interleaved. A window is yielded with its last element;
        shorter windows come at the end of the pass, those of one key together, in the order of
        their first elements. Keys must be hashable.

        Memory: the elements from the first to the last of a window, ``(size - 1) * dilation + 1``;
        with ``key``, as many of every key.

        Length: ``(length - size) // stride + 1``, or 0 for a flow shorter than ``size``, where a
        window with a ``dilation`` is ``(size - 1) * dilation + 1`` long; the length divided by
        ``stride``, rounded up, where shorter windows are yielded; with ``key``, known only at the
        end of a pass.

        Effects: ``Resampled``: a row may be in several windows, or in no window; with ``key``,
        ``Reordered`` and ``Unsized`` too.

        Errors: ``InvalidFlow`` for ``size``, ``stride`` or ``dilation`` below 1, or another
        ``remainder``; with ``stack``, as for ``batch`` for elements that do not stack; an
        ``ElementError`` if ``key`` fails or returns a value that is not hashable.

        >>> import flowdsl as fl
        >>> fl.from_range(5).window(3).collect()
        [(0, 1, 2), (1, 2, 3), (2, 3, 4)]
        >>> fl.from_range(7).window(2, stride=4, stack=True).collect()
        [array([0, 1]), array([4, 5])]
        >>> fl.from_range(6).window(3, stride=3, dilation=2, remainder="keep").collect()
        [(0, 2, 4), (3, 5)]
        >>> readings = fl.from_items([("a", 1), ("b", 7), ("a", 2), ("b", 8)])
        >>> readings.window(2, key=lambda reading: reading[0]).collect()
        [(('a', 1), ('a', 2)), (('b', 7), ('b', 8))]

        Source: ``window`` of tf.data, whose ``shift`` is the stride here, and whose ``stride`` the
        dilation.

        Elsewhere: tensorpack none; tf.data ``window``; Grain none; torchdata none.
        """
        stacks = checked_flag("window: stack", stack)
        if key is not None:
            arguments = size, stride, dilation, remainder, stacks, key
            return flow(WindowByKey[Any, Any, Any](self.node, *arguments))
        node = StackedWindow[Any, Any, Any] if stacks else Window[Any, Any, Any]
        return flow(node(self.node, size, stride, dilation, remainder))
