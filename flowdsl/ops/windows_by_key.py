"""The windows of several streams; a stream has the elements with the same key."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from flowdsl.effects import Reordered, Resampled, Unsized
from flowdsl.elements.specs import Spec
from flowdsl.errors import raise_with_cause
from flowdsl.nodes import (
    POSITION_LIMIT,
    A,
    E,
    Node,
    PassFactory,
    Restartable,
    Restarts,
    Retained,
    Retaining,
    Row,
    Traceable,
    Traced,
    U,
    at_least,
    cached_per_node,
    frozen_node,
    name_of,
    plain_int,
    refuse_mismatch,
    trace,
    validate_key,
)
from flowdsl.ops.grouping import Key, error_of_group, key_of, spec_of_any
from flowdsl.ops.window_maker import (
    Remainder,
    WindowMaker,
    validate_size,
    validate_window_remainder,
    window_title,
)

if TYPE_CHECKING:
    from flowdsl.ops.held_rows import HeldRows

B = TypeVar("B")


@attrs.define(eq=False, repr=False)
class _Stream(Generic[A]):
    """The elements of one key."""

    latest: deque[Row[A]]
    """The last elements, from which the next window is made, with their positions."""
    end: int
    """The next window is complete when this number of elements was read."""
    read: int = 0
    """The number of elements that were read."""
    gap: list[int] = attrs.field(factory=list[int])
    """Positions of elements, if the stride skips some and the next window has not begun: of the
    last window and of the elements skipped after it. A resumed pass counts these again."""
    first: int = POSITION_LIMIT
    """The position of the first element of the next window; the limit if that is not read yet."""

    def add(self, row: Row[A], span: int) -> bool:
        """Add an element; return True if the next window is complete."""
        if self.read == self.end - span:
            self.first = row[0]
        self.latest.append(row)
        self.read += 1
        if self.gap:
            self.gap.append(row[0])
        return self.read == self.end

    def move(self, stride: int, span: int) -> None:
        """Move on to the window after the next one."""
        self.end += stride
        start = self._start_in_latest(span)
        self.first = self.latest[start][0] if start < len(self.latest) else POSITION_LIMIT
        if self.end - span > self.read:
            self.gap = [position for position, _ in self.latest]

    def positions(self, span: int) -> Iterable[int]:
        """The positions of the elements from which a resumed pass makes the stream again."""
        start = self._start_in_latest(span)
        return self.gap or (position for position, _ in islice(self.latest, start, None))

    def _start_in_latest(self, span: int) -> int:
        """The index in ``latest`` at which the next window begins."""
        return self.end - span - (self.read - len(self.latest))


@frozen_node
class WindowByKey(
    Traceable[U, E | Reordered | Resampled | Unsized],
    Restartable[U, E | Reordered | Resampled | Unsized],
    Retaining[U, E | Reordered | Resampled | Unsized],
    Generic[A, U, E],
):
    """The windows of each of several streams; a stream has the elements with the same key."""

    source: Node[A, E]
    n: int = attrs.field(converter=plain_int, validator=validate_size)
    stride: int = attrs.field(converter=plain_int, validator=at_least(1))
    dilation: int = attrs.field(converter=plain_int, validator=at_least(1))
    remainder: Remainder = attrs.field(validator=validate_window_remainder)
    stacks: bool
    key: Callable[[A], Key] = attrs.field(validator=validate_key)

    def __attrs_post_init__(self) -> None:
        refuse_mismatch(self)

    @property
    def title(self) -> str:
        key = f"key={name_of(self.key)}"
        return window_title(self.n, self.stride, self.dilation, self.remainder, self.stacks, key)

    @property
    @cached_per_node
    def _maker(self) -> WindowMaker:
        return WindowMaker(self.n, self.remainder, self.stacks, shares=True)

    @property
    def length(self) -> None:
        return None

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return self._maker.spec(spec_of_any(self.source, probe))

    def rows_retaining(
        self, epoch: int, sources: Sequence[PassFactory], retained: Retained
    ) -> Iterator[Row[U]]:
        groups = _Streams[A, A](self, epoch, lambda x: x, retained).groups(sources[0](epoch))
        return enumerate(self._window(epoch, group) for group in groups)

    def rows_from(
        self, epoch: int, sources: Sequence[PassFactory], restarts: Restarts
    ) -> Iterator[Row[U]]:
        from flowdsl.ops.held_rows import HeldRows  # here: not needed at import

        streams = _Streams[A, A](self, epoch, lambda x: x, Retained())
        held = HeldRows[A](sources[0], restarts, streams.positions)
        groups = streams.groups(held.rows(epoch), held)
        return enumerate((self._window(epoch, group) for group in groups), restarts.yielded)

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
            raise_with_cause(error_of_group(self, epoch, group), error)
        return window


@attrs.define(eq=False)
class _Streams(Generic[A, B]):
    """A pass: the streams of the keys with elements that later windows need."""

    node: WindowByKey[A, Any, Any]
    epoch: int
    element_of: Callable[[B], A]
    """Returns the element of a traced or untraced row."""
    retained: Retained
    span: int = attrs.field(init=False)
    """The number of a stream's elements from the first to the last of a window."""
    streams: dict[Key, _Stream[B]] = attrs.field(factory=dict[Key, Any], init=False)

    def __attrs_post_init__(self) -> None:
        node = self.node
        self.span = min((node.n - 1) * node.dilation + 1, POSITION_LIMIT)  # no pass is longer

    def positions(self) -> list[int]:
        """The positions of the rows that are held."""
        each = (stream.positions(self.span) for stream in self.streams.values())
        return list(chain.from_iterable(each))

    def groups(
        self, rows: Iterator[Row[B]], held: HeldRows[B] | None = None
    ) -> Iterator[list[Row[B]]]:
        """Yield the elements of each window."""
        node, span, streams, retained = self.node, self.span, self.streams, self.retained
        for position, x in rows:
            element = self.element_of(x)
            try:
                key = key_of(element, node.key)
                stream = streams.get(key)
            except BaseException as error:
                raise_with_cause(error_of_group(node, self.epoch, [(position, element)]), error)
            if stream is None:
                streams[key] = stream = _Stream(deque(maxlen=span), end=span)
            group = None
            if stream.add((position, x), span):
                group = [*islice(stream.latest, 0, None, node.dilation)]
                if retained.is_followed:
                    for row in islice(stream.latest, node.stride):
                        retained.release(row[0])
                stream.move(node.stride, span)
            elif stream.read <= stream.end - span:  # the stride leaves it out
                retained.release(position)
            if stream.read == stream.end - span:
                del streams[key]  # its next element starts a window, as for a new key
            if group is None or (held is not None and held.is_reading_again):
                continue
            yield group
        if node.remainder != "drop":
            for stream in sorted(streams.values(), key=lambda stream: stream.first):
                before_latest = stream.read - len(stream.latest)
                for start in range(stream.end - span, stream.read, node.stride):
                    yield [*islice(stream.latest, start - before_latest, None, node.dilation)]
