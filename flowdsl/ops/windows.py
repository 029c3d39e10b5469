"""window: groups of consecutive elements that may overlap.

The windows of each of several streams, ``key=``, are in ``windows_by_key``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    Never,
    TypeVar,
    overload,
)

import attrs
import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from flowdsl.effects import Reordered, Resampled, Unsized
from flowdsl.elements.preallocated import Allocate
from flowdsl.elements.read_only import read_only
from flowdsl.elements.specs import Spec
from flowdsl.errors import raise_with_cause
from flowdsl.nodes import (
    A,
    E,
    FlowBase,
    PassFactory,
    Restartable,
    RestartPoint,
    Restarts,
    Row,
    Sliceable,
    T,
    U,
    Windowed,
    at_least,
    cached_per_node,
    describe_group,
    flow,
    frozen_node,
    plain_int,
    refuse_mismatch,
    rejects_keywords,
)
from flowdsl.nodes.validation import checked_flag
from flowdsl.ops.columns import Column, map_columns
from flowdsl.ops.grouping import Key
from flowdsl.ops.rows_of_arrays import slices_of
from flowdsl.ops.window_maker import (
    Remainder,
    WindowMaker,
    validate_size,
    validate_window_remainder,
    window_title,
)
from flowdsl.ops.windows_by_key import WindowByKey

if TYPE_CHECKING:
    from flowdsl.elements.batch_types import Batchable
    from flowdsl.flow import Flow

B = TypeVar("B")

WINDOWS_PER_RESTART = 8
"""The number of windows from one restart to the next, as noting one costs more than a small
window."""


def _drops_remainder(node: Any) -> bool:
    return bool(node.remainder == "drop")


@frozen_node(slots=True)  # as fields replace properties of ``Windowed``
class _Windows(Windowed[A, U, E], Restartable[U, E], Generic[A, U, E]):
    """Windows of ``n`` elements, each ``stride`` elements after the previous window."""

    n: int = attrs.field(converter=plain_int, validator=validate_size)
    stride: int = attrs.field(converter=plain_int, validator=at_least(1))  # pyright: ignore[reportIncompatibleMethodOverride]  # a field is a property too
    dilation: int = attrs.field(converter=plain_int, validator=at_least(1))  # pyright: ignore[reportIncompatibleMethodOverride]
    remainder: Remainder = attrs.field(validator=validate_window_remainder)
    drop_remainder: bool = attrs.field(
        init=False, default=attrs.Factory(_drops_remainder, takes_self=True)
    )

    @property
    def title(self) -> str:
        return window_title(self.n, self.stride, self.dilation, self.remainder, self.stacks, "")

    @property
    @cached_per_node
    def _maker(self) -> WindowMaker:
        return WindowMaker(self.n, self.remainder, self.stacks, self.shares)

    @property
    @cached_per_node
    def length(self) -> int | None:
        rows = self.source.length
        if rows is None:
            return None
        needed = self.span if self.drop_remainder else 1  # elements of the last window
        return max(0, (rows - needed) // self.stride + 1)

    def gather(self, group: Sequence[A], allocate: Allocate | None = None) -> U:
        window: U = self._maker.made(group, allocate)
        return window

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return self._maker.spec(self.source.spec(probe))

    def restart_point(self, yielded: int) -> RestartPoint:
        return RestartPoint(yielded, position=yielded * self.stride)

    def rows_from(
        self, epoch: int, sources: Sequence[PassFactory], restarts: Restarts
    ) -> Iterator[Row[U]]:
        span, stride, shares = self.span, self.stride, self.shares
        yielded = restarts.yielded
        restarts.note(restarts.mark(), yielded)
        # Marks are taken where every ``WINDOWS_PER_RESTART``-th window begins, and each is noted
        # when its window is the next.
        marks, elements_per_mark = deque[object](), WINDOWS_PER_RESTART * stride
        marked = yielded + WINDOWS_PER_RESTART
        latest = deque[A](maxlen=span)
        number, read, end = yielded, 0, span  # the next window, which ends after ``end`` elements
        for read, (_, x) in enumerate(sources[0](epoch), 1):
            latest.append(read_only(x) if shares else x)
            if read == end:
                yield number, self._window(epoch, number, latest)
                number, end = number + 1, end + stride
            if not read % elements_per_mark:
                marks.append(restarts.mark())
            if number == marked and marks:
                restarts.note(marks.popleft(), marked)
                marked += WINDOWS_PER_RESTART
        while not self.drop_remainder and (start := end - span) < read:
            group = islice(latest, start - (read - len(latest)), None)
            yield number, self._window(epoch, number, group)
            number, end = number + 1, end + stride

    def _window(self, epoch: int, number: int, elements: Iterable[A]) -> U:
        group = list(islice(elements, 0, None, self.dilation))
        try:
            return self.gather(group)
        except BaseException as error:
            raise_with_cause(self.error_at(epoch, number, describe_group(group)), error)


@frozen_node
class Window(_Windows[A, U, E | Resampled], Generic[A, U, E]):
    """Windows of elements, as tuples."""


@frozen_node
class StackedWindow(_Windows[A, U, E | Resampled], Sliceable[U, E | Resampled], Generic[A, U, E]):
    """Windows of elements, stacked as in a batch; over arrays in memory, views of them."""

    def __attrs_post_init__(self) -> None:
        refuse_mismatch(self)

    @property
    def stacks(self) -> bool:
        return True

    def open_views(self) -> Callable[[int, int], U] | None:
        spans = slices_of(self.source)
        if spans is None or self.remainder == "fill":
            return None
        extent, stride, length = self.span, self.stride, self.source.length or 0
        dilated = slice(None, None, self.dilation)

        def viewed(column: Column) -> Column:
            part = column[dilated]
            return part if isinstance(part, list) else read_only(part)

        def view(epoch: int, i: int) -> Any:
            del epoch
            span = spans(i * stride, min(i * stride + extent, length))
            return None if span is None else map_columns(viewed, span)

        return view

    def open_spans(self) -> Callable[[int, int], Any] | None:
        spans = slices_of(self.source)
        if spans is None or not self.drop_remainder:
            return None
        n, extent, stride, dilation = self.n, self.span, self.stride, self.dilation

        def windows(column: Column) -> Column:
            begins = range(0, len(column) - extent + 1, stride)
            if isinstance(column, list):
                return [column[begin : begin + extent : dilation] for begin in begins]
            shape = len(begins), n, *column.shape[1:]
            strides = stride * column.strides[0], dilation * column.strides[0], *column.strides[1:]
            return as_strided(column, shape, strides, writeable=False)

        def span(start: int, stop: int) -> Any:
            elements = spans(start * stride, (stop - 1) * stride + extent)
            return None if elements is None else map_columns(windows, elements)

        return span


class Windowing(FlowBase[T, E]):
    """Operators on windows of elements."""

    @overload  # for ``**options`` of unknown types; ``Never`` keeps other calls away
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
    @overload  # a flag whose value the types do not know
    def window(
        self,
        size: int,
        stride: int = 1,
        *,
        dilation: int = 1,
        remainder: Remainder = "drop",
        stack: bool,
        key: None = None,
    ) -> Flow[Any, E | Resampled]: ...
    @overload
    def window(
        self,
        size: int,
        stride: int = 1,
        *,
        dilation: int = 1,
        remainder: Remainder = "drop",
        stack: bool,
        key: Callable[[T], Key],
    ) -> Flow[Any, E | Reordered | Resampled | Unsized]: ...
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
        """Yield tuples of ``size`` consecutive elements, one after every ``stride`` elements.

        Windows overlap when ``stride < size``, and skip elements when ``stride > size``. With a
        ``dilation`` of ``k``, a window has every ``k``-th element, for example every fourth frame.

        ``remainder`` is about the windows that begin before the end of the pass and reach beyond
        it: ``"drop"`` leaves them out, ``"keep"`` yields the elements that they have, and
        ``"fill"`` repeats the last of these. With ``"fill"``, an element is ``(window, mask)``, as
        in ``batch``: the mask, ``bool[size]``, is False for the elements that fill the window.

        With ``stack``, an element is a stacked window instead, as ``batch`` stacks rows: an array
        of shape ``(size, *s)`` for each component of shape ``s``, read-only. Over arrays in memory,
        ``from_items(array)``, it is a view of them, which costs as much as a slice.

        With ``key``, each window has elements for which ``key`` returns the same value, for example
        the elements of one of several interleaved sensors. A window is yielded as soon as its last
        element is read; shorter windows come at the end of the pass, grouped by key, in the order
        of their first elements. Keys must be hashable.

        Memory: the elements from the first to the last of a window, ``(size - 1) * dilation + 1``;
        with ``key``, this number for every key.

        Length: with ``extent = (size - 1) * dilation + 1``, ``(length - extent) // stride + 1``, or
        0 for a flow shorter than ``extent``; with shorter windows, the length divided by
        ``stride``, rounded up; with ``key``, known only at the end of a pass.

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
            return flow(
                WindowByKey[Any, Any, Any](
                    self.node, size, stride, dilation, remainder, stacks, key
                )
            )
        node = StackedWindow[Any, Any, Any] if stacks else Window[Any, Any, Any]
        return flow(node(self.node, size, stride, dilation, remainder))
