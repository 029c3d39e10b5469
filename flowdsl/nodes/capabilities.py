"""Optional abilities of an operator, such as resuming or tracing.

A node derives from one class for each ability that it has, which is tested with ``isinstance``.
Where a node lacks an ability, a run computes elements again, or refuses the request.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, TypeAlias, final

import attrs

from flowdsl.effects import Exact
from flowdsl.elements.nbytes import nbytes_of
from flowdsl.errors import FlowError
from flowdsl.nodes.base import A, AnyNode, E, Failed, Node, PassFactory, Row, T
from flowdsl.resources.any_depth import any_depth

# -- to resume -------------------------------------------------------------------------------------


class Resumable(Node[T, E], Generic[T, E]):
    """Can resume a pass after a number of elements, without computing them again."""

    @abstractmethod
    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[T]]:
        """Yield the rows of a pass that come after the first ``yielded`` rows.

        By then ``ended_passes`` passes of the source had ended. The runtime starts the next pass of
        the source after the elements that were read from it; later passes are whole.
        """

    @final
    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return self.rows_after(epoch, 0, 0, sources)

    def taken(self, yielded: int) -> tuple[int, int]:
        """The place of the source after ``yielded`` elements: its ended passes and its position.

        This is arithmetic, valid only where no operator below leaves elements out.
        """
        return 0, yielded


ELEMENTS_PER_RESTART = 128
"""The number of elements from one restart to the next, for an operator that takes microseconds to
note one: a resume computes as many again."""


@attrs.define(eq=False)
class Restarts:
    """Notes at which element of its source an operator could begin to make its next elements.

    This class notes nothing; a run that can resume passes one that does.
    """

    yielded: int = 0
    """The number of elements that were yielded before the restart at which the pass begins."""
    offset: int = 0
    """The number of the operator's own that was noted with that restart."""

    def mark(self) -> object:
        """Return the place of the source: a pass that begins there reads its next element first."""
        return None

    def note(self, mark: object, yielded: int | None = None, offset: int = 0) -> None:
        """Note that a pass which begins at ``mark`` yields the elements after ``yielded`` others.

        None means as many as were yielded until now. ``offset`` is a number of the operator's own.
        """

    def before_each(self, source: PassFactory) -> PassFactory:
        """Note a restart before each element that is read: for an operator that keeps none."""
        return source

    def marked(self, source: PassFactory, epoch: int) -> Iterator[tuple[object, Row[Any]]]:
        """Begin a pass, and yield each row with the mark from before it was read."""
        return ((None, row) for row in source(epoch))


class Restartable(Node[T, E], Generic[T, E]):
    """Can resume a pass where it has begun to use an element of its source, or a few of them.

    The elements between there and the place of a state are computed again. Examples: ``flat_map``
    begins again at the element whose rows it yields, and ``window`` at the first element of a
    window.
    """

    @abstractmethod
    def rows_from(
        self, epoch: int, sources: Sequence[PassFactory], restarts: Restarts
    ) -> Iterator[Row[T]]:
        """Yield the rows of a pass that come after the first ``restarts.yielded`` rows.

        The runtime starts the next pass of each source at the mark that was noted with this number
        and with ``restarts.offset``. Later restarts are noted in ``restarts``.
        """

    @final
    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return self.rows_from(epoch, sources, Restarts())

    def place_at(self, yielded: int) -> tuple[int, int]:
        """The last restart among the first ``yielded`` elements, where it is arithmetic.

        That is the number of elements before it, and the position of the source there. The runtime
        asks only where the operator is indexable.
        """
        raise AssertionError(f"{self.title} is indexable, but of a kind without place_at")


class Reshardable(Node[T, E], Generic[T, E]):
    """Can resume over another number of shards than a state was saved with."""

    @abstractmethod
    def position_after_reshard(self, saved_flow: AnyNode, position: int) -> int | None:
        """The position where this flow, over a shard, resumes after ``saved_flow`` at ``position``.

        ``saved_flow`` is this flow over the number of shards that the state was saved with; all of
        them are at that position. None if no position here continues exactly where those shards
        stopped.
        """


@any_depth
def position_after_reshard(node: AnyNode, saved_flow: AnyNode, position: int) -> int | None:
    """The position of any node after a change of shards: None if it is not ``Reshardable``."""
    if not isinstance(node, Reshardable):
        return None
    return node.position_after_reshard(saved_flow, position)


class OneShot(Node[T, E], Generic[T, E]):
    """Yields each element only once, as it arrives, such as from a queue: no pass repeats it."""

    @property
    def length(self) -> int | None:
        return None

    @property
    def replayable(self) -> bool:
        return False


@attrs.define(eq=False, repr=False)
class Receipts:
    """The rows that a source has yielded, and those that the run has delivered to its consumer.

    The source runs in the thread that reads it; a run reports from the consumer's thread.
    """

    yielded: int = 0
    """The number of rows that the source has yielded."""
    delivered: int = 0
    """The number of rows, from the first, from which every element was delivered."""
    exhausted: bool = False
    """True if the source has yielded its last row."""
    followed: bool = False
    """True if a run reports what it delivers; else a row is delivered when the next is read."""
    when_left_out: Callable[[], object] | None = None
    """Called when a row is requested and earlier rows were not reported; it may report them."""
    _rest: Generator[None] | None = None
    _closed: bool = False
    # Two threads may run ``_rest``: the one that reads the source, and the consumer's.
    # Reentrant, since the garbage collector may close a run in either of them.
    _lock: threading.RLock = attrs.field(factory=threading.RLock, repr=False)

    def on_next(self) -> None:
        """Note that the row after the last one is read."""
        if not self.followed:
            self.delivered = self.yielded
        elif self.when_left_out is not None and self.delivered < self.yielded:
            self.when_left_out()

    def park(self, rest: Generator[None]) -> None:
        """Keep what the source has to do after its last row: it goes on a step with each report."""
        with self._lock:
            next(rest, None)
            self._rest = rest
            if self._closed or not self.followed:
                rest.close()

    def report(self, delivered: int) -> None:
        """Report rows as delivered.

        Raises:
            FlowError: The connection has ended, so the rows can no longer be acknowledged.
        """
        with self._lock:
            if self._closed and delivered > self.delivered:
                raise FlowError(
                    f"commit: {delivered - self.delivered} elements cannot be acknowledged, as "
                    f"this run was closed before; they are sent again to the next receiver"
                )
            self.delivered = max(self.delivered, delivered)
            if self._rest is not None:
                next(self._rest, None)

    def close(self) -> None:
        """Report that the run has ended, and delivers no further rows."""
        with self._lock:
            self._closed = True
            if self._rest is not None:
                self._rest.close()


@attrs.define(eq=False, repr=False)
class Retained:
    """The rows that an operator has read and may still use in this pass."""

    first: int = 0
    """The position of the first of them: the operator uses no row before it any more."""
    is_followed: bool = False
    """True if somebody asks for ``first``; else the operator need not keep it."""


class Retaining(Node[T, E], Generic[T, E]):
    """Knows which of the rows that it has read it may still use, where their number varies."""

    @abstractmethod
    def rows_retaining(
        self, epoch: int, sources: Sequence[PassFactory], retained: Retained
    ) -> Iterator[Row[T]]:
        """Yield ``rows``; set ``retained.first`` before each, if it has changed."""

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return self.rows_retaining(epoch, sources, Retained())


class Acknowledging(OneShot[T, E], Generic[T, E]):
    """Acknowledges its rows, which come from elsewhere, once they were delivered."""

    auto_commit: bool
    """True if an element is delivered when the next one is requested; False if by ``commit``."""
    receipts: Receipts


class AnyOrder(Node[T, E], Generic[T, E]):
    """Its passes may each yield other elements, or the elements in another order."""

    @property
    def in_any_order(self) -> bool:
        return True


def when_read(source: PassFactory, epoch: int) -> Iterator[Row[Any]]:
    """Return a pass that starts when its first row is read.

    For operators with several sources: until then, a resumed source keeps the place that it has in
    the state, so that the next state has it too.
    """
    return chain.from_iterable(map(source, (epoch,)))  # in C, where each row passes through


# -- to be probed ----------------------------------------------------------------------------------


class SkippedByProbe(Node[T, E], Generic[T, E]):
    """In epoch 0, yields the same elements as its source, so that a probe can skip this node."""

    @property
    def node_to_probe(self) -> AnyNode:
        """The node that a probe reads instead, to report no progress and fill no cache."""
        return self.sources[0]


# -- to be traced ----------------------------------------------------------------------------------

OriginPlaces: TypeAlias = tuple[Any, ...]
"""Where the rows of an element come from, in their order in it: for each row an operator of the
flow, with the epoch and position of its element. Only the runtime makes and reads these places."""


@attrs.frozen
class Traced(Generic[A]):
    """An element with the places of the rows in it."""

    element: A
    places: OriginPlaces
    of_row: Callable[[int], OriginPlaces] | None = None
    """The places of each row of a batch; None if every row has all the places."""

    @property
    def nbytes(self) -> int:
        """The approximate bytes of the element."""
        return nbytes_of(self.element)


def trace(
    element: A, member_places: Sequence[OriginPlaces], stacked: bool = False
) -> Traced[A] | A:
    """The element with the places of all its members; if ``stacked``, the members are its rows.

    A failure is returned unchanged, as operators recognize it by its class.
    """
    if isinstance(element, Failed):
        return element
    places = tuple(chain.from_iterable(member_places))
    return Traced(element, places, member_places.__getitem__ if stacked else None)


@attrs.define(eq=False, repr=False)
class TracedReader:
    """Starts passes over a source of traced elements, and yields the untraced elements."""

    source: PassFactory
    latest: deque[Row[Traced[Any]]] = attrs.field(factory=deque[Row[Traced[Any]]])
    """All traced elements that were read, or only the last ones, up to the deque's ``maxlen``."""

    def __call__(self, epoch: int) -> Iterator[Row[Any]]:
        for position, x in self.source(epoch):
            self.latest.append((position, x if isinstance(x, Traced) else Traced(x, ())))
            yield position, x.element if isinstance(x, Traced) else x


class Traceable(Node[T, E], Generic[T, E]):
    """Can trace each element to its rows in a replayed pass, where positions do not suffice."""

    @property
    def yields_all(self) -> bool:
        """True if every element that it reads is in exactly one of its elements.

        This may be at the end of the pass. Then a source of messages can acknowledge rows that are
        yielded in another order; else it acknowledges them at the end of the pass.
        """
        return False

    @abstractmethod
    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        """Yield ``rows`` from sources of traced elements, each with the places of all its members.

        A ``TracedReader`` yields the elements of such a source; ``trace`` adds places to a new
        element.
        """


class PassThrough(Traceable[T, E], Generic[T, E]):
    """Yields elements of its sources without looking at them, so traced elements stay traced."""

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        return self.rows(epoch, sources)


class MadeFromLatest(Traceable[T, E], Generic[T, E]):
    """Makes each element from the last element that it read from each source."""

    @property
    def looks_back(self) -> int | None:
        return 1

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        readers = [TracedReader(source, deque(maxlen=1)) for source in sources]
        for position, y in self.rows(epoch, readers):
            yield position, trace(y, [x.places for read in readers for _, x in read.latest])


# -- to keep a pass --------------------------------------------------------------------------------


class KeepsPass(Node[T, E], Generic[T, E]):
    """Keeps the elements of a pass of its source, once one was read to its end."""


# -- to be sliced ----------------------------------------------------------------------------------


class Sliceable(Node[T, E], Generic[T, E]):
    """May have its elements in arrays, where stacked elements are a slice."""

    @abstractmethod
    def open_spans(self) -> Callable[[int, int], Any] | None:
        """Return a reader of the elements from one position up to another, stacked; or None.

        What it returns equals the stacked elements in dtype and shape too. Its arrays are read-only
        views, or else belong to the caller. It returns None if the elements have to be read one by
        one, as where they do not stack, or cannot be read.
        """


# -- to be stored ----------------------------------------------------------------------------------


class StoresPass(Node[T, Exact], Generic[T]):
    """Stores the elements of another flow, and reads them from there in every pass."""

    @abstractmethod
    def store(self) -> None:
        """Store the elements, if they are not stored yet.

        A run calls it in the consumer's process before its first element.
        """


# -- to be measured and bounded --------------------------------------------------------------------


class Padded(Node[T, E], Generic[T, E]):
    """Yields elements with padding; the statistics of a run have its share."""

    @abstractmethod
    def occupied(self, element: Any) -> tuple[int, int]:
        """The number of entries of one of its elements that are not padding, and of all entries.

        A run asks for it where the operator runs in the consumer's process.
        """


class Buffering(Node[T, E], Generic[T, E]):
    """Keeps elements of its source for a while, which count against ``prefetch(memory=)``."""

    @property
    @abstractmethod
    def holds(self) -> int:
        """The number of source elements that it keeps at a time."""
