"""merge, latest: streams whose elements arrive at any time, from sensors and other programs.

Other operators define which element comes next, and wait for it. Here time decides: an element is
yielded when it has arrived. Two passes differ, so a flow with one of these operators has no state.
Each stream has a thread that reads it, since reading a stream blocks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from flowdsl.effects import Effect, Reordered, Resampled, Unsized
from flowdsl.elements.nbytes import nbytes_of
from flowdsl.elements.specs import Spec
from flowdsl.errors import FlowError, raise_with_cause
from flowdsl.nodes import (
    AnyOrder,
    E,
    FlowBase,
    Indices,
    Merging,
    Node,
    PassFactory,
    PassThrough,
    Positions,
    Retained,
    Retaining,
    Row,
    T,
    at_least,
    cached_per_node,
    describe_element,
    flow,
    frozen_node,
    name_of,
    plain_int,
    validate_callable,
)
from flowdsl.ops.combining import check_flows
from flowdsl.resources.cancellation import is_cancelled
from flowdsl.resources.read_ahead import ReadAhead

if TYPE_CHECKING:
    from flowdsl.flow import Flow

F = TypeVar("F", bound=Effect)

ROWS_AHEAD = 64
"""The number of elements of each stream that ``merge`` reads ahead."""
_BYTES_AHEAD = 1 << 28
"""The limit in bytes of what is read ahead of each stream; one element may be larger."""
_SECONDS_TO_CANCEL = 0.1
"""The seconds between a waiting reader's checks whether the pass was cancelled."""


class _Arrivals:
    """Wakes up a reader when an element has arrived."""

    def __init__(self) -> None:
        self._arrived = threading.Event()

    def wake(self) -> None:
        """Wake up the reader; called in the threads of the streams."""
        self._arrived.set()

    def wait(self) -> None:
        """Wait until ``wake`` is called, or the pass is cancelled."""
        while not self._arrived.wait(_SECONDS_TO_CANCEL):
            if is_cancelled():
                break
        self._arrived.clear()


def _nothing() -> None:
    """Close nothing: the thread that reads a stream drops its last reference to it."""


@frozen_node
class Merge(Merging[T, E | Reordered], AnyOrder[T, E | Reordered], Generic[T, E]):
    """The elements of several streams, each when it arrives."""

    @property
    def title(self) -> str:
        return "merge(...)"

    @property
    def indexable(self) -> bool:
        return False

    def resolve(self, addresses: Indices) -> tuple[Positions, Indices]:
        raise AssertionError("the order of arrival is not arithmetic")

    @property
    def looks_back(self) -> None:
        return None  # rows wait in the threads of the streams

    @property
    def yields_all(self) -> bool:
        return True

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        arrivals = _Arrivals()
        readers = [
            ReadAhead[T](
                part.title,
                partial(source, epoch),
                _nothing,
                lambda: ROWS_AHEAD,
                nbytes_of,
                _BYTES_AHEAD,
                arrivals.wake,
            )
            for part, source in zip(self.parts, sources, strict=True)
        ]
        numbers, running = count(), list(readers)
        try:
            while running:
                any_arrived = False
                for reader in list(running):
                    rows = reader.take(1)
                    if rows is None:  # no row has arrived
                        continue
                    any_arrived = True
                    for _, x in rows:
                        yield next(numbers), x
                    if not rows:  # the stream has ended
                        running.remove(reader)
                        if reader.error is not None:
                            raise reader.error
                if running and not any_arrived:
                    arrivals.wait()
        finally:
            for reader in readers:
                reader.stop()


@frozen_node
class Latest(
    PassThrough[T, E | Resampled | Unsized],
    Retaining[T, E | Resampled | Unsized],
    AnyOrder[T, E | Resampled | Unsized],
    Generic[T, E],
):
    """The last ``n`` elements that have arrived when one is requested; older ones are dropped."""

    source: Node[T, E]
    n: int = attrs.field(converter=plain_int, validator=at_least(1))
    on_drop: Callable[[T], object] | None = attrs.field(
        default=None, validator=attrs.validators.optional(validate_callable), eq=False
    )

    @property
    def title(self) -> str:
        return f"latest({self.n})"

    @property
    def length(self) -> None:
        return None

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)

    def rows_retaining(
        self, epoch: int, sources: Sequence[PassFactory], retained: Retained
    ) -> Iterator[Row[T]]:
        arrivals, dropped = _Arrivals(), count()

        def drop(element: Any) -> None:
            next(dropped)
            if self.on_drop is not None:
                try:
                    self.on_drop(element)
                except BaseException as error:
                    failed = FlowError(
                        f"{self.title}: on_drop={name_of(self.on_drop)} failed on an element that "
                        f"was dropped, {describe_element(element)}: {error!r}"
                    )
                    raise_with_cause(failed, error)

        reader = ReadAhead[T](
            self.source.title,
            partial(sources[0], epoch),
            _nothing,
            lambda: self.n + 1,
            nbytes_of,
            _BYTES_AHEAD,
            arrivals.wake,
            drop,
        )
        number = 0
        try:
            while True:
                rows = reader.take(1)
                if rows is None:  # no row has arrived
                    arrivals.wait()
                    continue
                if not rows:  # the stream has ended
                    if reader.error is not None:
                        raise reader.error
                    return
                position, x = rows[0]
                retained.first = position + 1  # all rows up to this one were dropped or yielded
                yield number, x
                number += 1
        finally:
            reader.stop()
            if total := next(dropped):
                from flowdsl.resources.logs import logger  # here: not needed at import

                logger().warning(
                    "%s dropped %d elements of %s, and yielded %d",
                    self.title,
                    total,
                    self.source.title,
                    number,
                )


class LiveStreams(FlowBase[T, E]):
    """Operators in which time decides."""

    def merge(self, *others: FlowBase[T, F]) -> Flow[T, E | F | Reordered]:
        """Yield the elements of several streams, each when it arrives.

        Each stream has a thread that reads it, at most 64 elements ahead. So a slow stream does not
        delay the others. A stream keeps its own order. An error of a stream is raised as soon as
        the earlier elements of that stream were yielded. The pass ends when all streams have ended.

        Two passes may differ in order, so a run has no state, and ``zip`` refuses the flow. Use
        ``interleave`` where the order should not depend on time. ``from_zmq`` merges its senders by
        itself.

        Length: the sum of the lengths; unknown if one of them is unknown. Effects: ``Reordered``.
        Errors: ``InvalidFlow`` for elements known to differ, as for ``concat``.

        >>> import flowdsl as fl
        >>> camera, lidar = fl.from_iterable(lambda: "abc"), fl.from_iterable(lambda: "xyz")
        >>> sorted(camera.merge(lidar))
        ['a', 'b', 'c', 'x', 'y', 'z']

        Source: ``merge`` of Reactive Extensions.

        Elsewhere: tensorpack none; tf.data none; Grain none; torchdata none.
        """
        check_flows("merge", others)
        parts: tuple[Node[Any, Any], ...] = (self.node, *(other.node for other in others))
        return flow(Merge[T, Any](parts))

    def latest(
        self, n: int = 1, *, on_drop: Callable[[T], object] | None = None
    ) -> Flow[T, E | Resampled | Unsized]:
        """Drop the oldest elements when the consumer is slower than the stream.

        A thread reads the stream without pause, and keeps the last ``n`` elements that the consumer
        has not requested, up to 256 MiB of them. It calls ``on_drop`` with each element that it
        drops; a log message at the end of the pass has the number of these. What is below
        ``latest`` runs for each element, also for those that are dropped: a quick ``map`` or
        ``filter`` may be there, slow work belongs above. Operators such as ``prefetch``, ``merge``
        and ``batch`` above it read ahead too, so what they hold is older than the last ``n``.

        Time decides what is dropped, so a run has no state. A dropped message of ``from_zmq``
        counts as delivered when a later message is delivered.

        Length: unknown. Effects: ``Resampled`` and ``Unsized``. Errors: ``InvalidFlow`` for
        ``n < 1``; an error of the stream is raised after the elements that are kept.

        >>> import flowdsl as fl
        >>> positions = fl.from_iterable(lambda: range(1000)).latest(4)
        >>> kept = positions.collect()
        >>> kept[-1], kept == sorted(kept)
        (999, True)

        Source: ``onBackpressureBuffer`` of RxJava with ``DROP_OLDEST``; queues of ROS.

        Elsewhere: tensorpack none; tf.data none; Grain none; torchdata none.
        """
        return flow(Latest(self.node, n, on_drop))
