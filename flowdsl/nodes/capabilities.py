"""Optional abilities of an operator, such as resuming or tracing.

A node derives from one class for each ability that it has, which is tested with ``isinstance``.
Where a node lacks an ability, a run computes elements again, or refuses the request.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import chain, zip_longest
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, final

import attrs

from flowdsl.effects import Exact
from flowdsl.elements.nbytes import nbytes_of
from flowdsl.errors import FlowError
from flowdsl.nodes.base import A, AnyNode, E, Failed, Node, PassFactory, Row, T
from flowdsl.resources.any_depth import any_depth

# -- to resume -------------------------------------------------------------------------------------


class SourcePosition(NamedTuple):
    """The position up to which an operator has read its source."""

    ended_passes: int
    """The number of passes over the source before the current one."""
    position: int
    """The number of elements that were read in the current pass."""

    @classmethod
    def over_passes(cls, read: int, length: int | None) -> SourcePosition:
        """The position after ``read`` elements of consecutive passes, each of ``length`` elements.

        None: the first pass never ends. A pass counts as ended once the next one has begun.
        """
        if not read or not length:
            return cls(ended_passes=0, position=read)
        ended_passes, last = divmod(read - 1, length)
        return cls(ended_passes, position=last + 1)


class Resumable(Node[T, E], Generic[T, E]):
    """Can resume a pass after a number of elements, without computing them again."""

    @abstractmethod
    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[T]]:
        """Yield the rows of a pass that come after the first ``yielded`` rows.

        Before them, ``ended_passes`` passes over the source have ended. The first pass that this
        method begins continues after the elements that were already read: the runtime has advanced
        the source. Later passes are whole.
        """

    @final
    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return self.rows_after(epoch, yielded=0, ended_passes=0, sources=sources)

    def source_position(self, yielded: int) -> SourcePosition:
        """The position up to which the source is read once ``yielded`` elements were yielded.

        The runtime asks only where no operator below leaves elements out: there it is arithmetic.
        """
        return SourcePosition(ended_passes=0, position=yielded)


ELEMENTS_PER_RESTART = 128
"""The usual number of elements from one restart to the next, where an operator needs microseconds
to note one. A resume computes about this number of elements again."""


class RestartPoint(NamedTuple):
    """A position of the source from which an operator can begin to make its next elements."""

    yielded: int
    """The number of elements that the operator has yielded before it."""
    position: int
    """The position of the source there."""


@attrs.define(eq=False)
class Restarts:
    """Notes the restarts of a pass: where in its source an operator could begin a later pass.

    The methods of this class note nothing; a run that can resume passes a subclass that does.
    """

    yielded: int = 0
    """The number of elements that were yielded before the restart at which the pass begins."""
    offset: int = 0
    """The number that the operator passed to ``note`` with that restart."""

    def mark(self) -> object:
        """Return where the source is: a pass that begins there reads its next element first."""
        return None

    def note(self, mark: object, yielded: int | None = None, offset: int = 0) -> None:
        """Note that a pass from ``mark`` on yields the elements after the first ``yielded``.

        With None, that is the number of elements yielded so far. ``offset`` is a number that the
        operator needs to begin there; nothing else interprets it.
        """

    def before_each(self, source: PassFactory) -> PassFactory:
        """Return the source, with a restart noted before each of its elements is read.

        For an operator that keeps no element once it reads the next.
        """
        return source

    def marked(self, source: PassFactory, epoch: int) -> Iterator[tuple[object, Row[Any]]]:
        """Begin a pass, and yield each row with the mark from before it was read."""
        return ((None, row) for row in source(epoch))


class Restartable(Node[T, E], Generic[T, E]):
    """Can resume a pass from a restart: a place where it began to use an element of its source.

    A resume computes the elements between the restart and the state again. Examples: ``flat_map``
    restarts at the element whose rows it yields, and ``window`` at the first element of a window.
    """

    @abstractmethod
    def rows_from(
        self, epoch: int, sources: Sequence[PassFactory], restarts: Restarts
    ) -> Iterator[Row[T]]:
        """Yield the rows of a pass that come after the first ``restarts.yielded`` rows.

        The runtime has set each source to the mark of the restart at which the pass begins. The
        operator notes later restarts in ``restarts``.
        """

    @final
    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return self.rows_from(epoch, sources, Restarts())

    def restart_point(self, yielded: int) -> RestartPoint:
        """The last restart with at most ``yielded`` elements before it.

        The runtime asks only where the operator is indexable: there it is arithmetic.
        """
        raise AssertionError(f"{self.title} is indexable, but of a kind without restart_point")


class Reshardable(Node[T, E], Generic[T, E]):
    """Can resume over another number of shards than a state was saved with."""

    @abstractmethod
    def position_after_reshard(self, saved_flow: AnyNode, position: int) -> int | None:
        """The position where this flow, over a shard, resumes after ``saved_flow`` at ``position``.

        ``saved_flow`` is this flow with the number of shards that the state was saved with, and
        every one of those shards is at ``position``. None if no position of this flow continues
        exactly where those shards stopped.
        """


@any_depth
def position_after_reshard(node: AnyNode, saved_flow: AnyNode, position: int) -> int | None:
    """``node.position_after_reshard`` of any node: None if it is not ``Reshardable``."""
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


Offsets: TypeAlias = tuple[int, ...]
"""For each partition of a source, a number of rows from its beginning; partitions that are left
out have 0."""


@attrs.define(eq=False, repr=False)
class Receipts:
    """Counts the rows that a source has yielded, and that the run has delivered to its consumer.

    A source may divide its rows into partitions, such as one for each sender. Each partition
    is acknowledged on its own: a row that is not delivered holds back only later rows of its
    partition.

    The source runs in the thread that reads it; a run reports from the consumer's thread.
    """

    yielded_of: Offsets = ()
    """The rows that the source has yielded."""
    yielded_before: Offsets = ()
    """The rows that the source had yielded before the last one."""
    delivered_of: Offsets = ()
    """The rows that are finished: every element made from them was delivered."""
    exhausted: bool = False
    """True if the source has yielded its last row."""
    followed: bool = False
    """True if a run reports what it delivers; else a row is delivered when the next is read."""
    when_left_out: Callable[[], object] | None = None
    """Called when a row is requested and earlier rows were not reported; it may report them."""
    _rest: Generator[None] | None = None
    """Work of the source after its last row, such as waiting for acknowledgements."""
    _closed: bool = False
    # Two threads may run ``_rest``: the one that reads the source, and the consumer's.
    # Reentrant, since the garbage collector may close a run in either of them.
    _lock: threading.RLock = attrs.field(factory=threading.RLock, repr=False)

    @property
    def yielded(self) -> int:
        """The number of rows that the source has yielded."""
        return sum(self.yielded_of)

    @property
    def delivered(self) -> int:
        """The number of rows that are finished."""
        return sum(self.delivered_of)

    def on_yield(self, partition: int = 0) -> None:
        """Note that the source is about to yield a row of a partition."""
        before = self.yielded_of
        before += (0,) * (1 + partition - len(before))
        self.yielded_before = before
        self.yielded_of = (*before[:partition], before[partition] + 1, *before[partition + 1 :])

    def on_next(self) -> None:
        """Note that the source is asked for its next row."""
        if not self.followed:
            self.delivered_of = self.yielded_of
        elif self.when_left_out is not None and self.delivered_of != self.yielded_of:
            self.when_left_out()

    def park(self, rest: Generator[None]) -> None:
        """Keep what the source has to do after its last row; each report continues it by a step."""
        with self._lock:
            next(rest, None)
            self._rest = rest
            if self._closed or not self.followed:
                rest.close()

    def report(self, delivered: Offsets) -> None:
        """Report rows as delivered.

        Raises:
            FlowError: The connection has ended, so the rows can no longer be acknowledged.
        """
        with self._lock:
            delivered = tuple(map(max, zip_longest(delivered, self.delivered_of, fillvalue=0)))
            if self._closed and delivered != self.delivered_of:
                raise FlowError(
                    f"commit: {sum(delivered) - self.delivered} elements cannot be acknowledged, "
                    f"as this run was closed before; they are sent again to the next receiver"
                )
            self.delivered_of = delivered
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
    """The rows that an operator has read and may still use in this pass, by their positions."""

    held: set[int] = attrs.field(factory=set[int])
    """The rows that were read and not released; only a run adds rows."""
    first: int = 0
    """All rows before this position are released."""
    is_followed: bool = False
    """True if a run follows the rows; else the operator need not release them."""

    def release(self, position: int) -> None:
        """Report that the operator no longer uses the row at a position."""
        self.held.discard(position)


class Retaining(Node[T, E], Generic[T, E]):
    """Reports which of the rows that it has read it may still use, if their number varies."""

    @abstractmethod
    def rows_retaining(
        self, epoch: int, sources: Sequence[PassFactory], retained: Retained
    ) -> Iterator[Row[T]]:
        """Yield ``rows``; before each, release the rows that are in none after it."""

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return self.rows_retaining(epoch, sources, Retained())


class Acknowledging(OneShot[T, E], Generic[T, E]):
    """Acknowledges its rows to their sender, once they were delivered."""

    auto_commit: bool
    """True if a request for the next element delivers the last one; False if ``commit`` does."""
    receipts: Receipts


class AnyOrder(Node[T, E], Generic[T, E]):
    """Each pass may yield other elements, or the elements in another order."""

    @property
    def in_any_order(self) -> bool:
        return True


def when_read(source: PassFactory, epoch: int) -> Iterator[Row[Any]]:
    """Return a pass that starts when its first row is read.

    For operators with several sources: until its first row is read, a resumed source keeps the
    place that the state has for it, so that the next state has it too.
    """
    return chain.from_iterable(map(source, (epoch,)))  # not a generator: chain costs less per row


# -- to be probed ----------------------------------------------------------------------------------


class SkippedByProbe(Node[T, E], Generic[T, E]):
    """In epoch 0, yields the same elements as its source, so that a probe can skip this node."""

    @property
    def node_to_probe(self) -> AnyNode:
        """The node that a probe reads instead, to report no progress and fill no cache."""
        return self.sources[0]


# -- to be traced ----------------------------------------------------------------------------------

OriginPlaces: TypeAlias = tuple[Any, ...]
"""The origins of the rows in an element, in the order of the rows. For each row it has an operator
of the flow, with the epoch and position of its element. Only the runtime makes and reads them."""


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

    def of_row(row: int) -> OriginPlaces:
        # Rows that fill a batch repeat its last member.
        return member_places[min(row, len(member_places) - 1)]

    places = tuple(chain.from_iterable(member_places))
    return Traced(element, places, of_row if stacked else None)


@attrs.define(eq=False, repr=False)
class TracedReader:
    """Starts passes over a source of traced elements, and yields the untraced elements."""

    source: PassFactory
    latest: deque[Row[Traced[Any]]] = attrs.field(factory=deque[Row[Traced[Any]]])
    """The traced elements that were read; with a ``maxlen``, only the latest ones."""

    def __call__(self, epoch: int) -> Iterator[Row[Any]]:
        for position, x in self.source(epoch):
            self.latest.append((position, x if isinstance(x, Traced) else Traced(x, ())))
            yield position, x.element if isinstance(x, Traced) else x


class Traceable(Node[T, E], Generic[T, E]):
    """Can trace each element to its rows in a replayed pass, where positions do not suffice."""

    @property
    def yields_all(self) -> bool:
        """True if each element that it reads is in exactly one of the elements that it yields.

        Then a source of messages can acknowledge rows during the pass; else it acknowledges all of
        them at the end.
        """
        return False

    @abstractmethod
    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        """Yield ``rows`` from sources of traced elements, each with the places of all its members.

        A ``TracedReader`` yields the elements of such a source without their places; ``trace`` adds
        places to a new element.
        """


class PassThrough(Traceable[T, E], Generic[T, E]):
    """Yields elements of its sources without looking at them, so traced elements stay traced."""

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        return self.rows(epoch, sources)


class MadeFromLatest(Traceable[T, E], Generic[T, E]):
    """Makes each element from the last element that it read from each source."""

    @property
    def looks_back(self) -> int | None:
        return 1  # it may make further elements from the last one

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        readers = [TracedReader(source, deque(maxlen=1)) for source in sources]
        for position, y in self.rows(epoch, readers):
            yield position, trace(y, [x.places for read in readers for _, x in read.latest])


# -- to keep a pass --------------------------------------------------------------------------------


class KeepsPass(Node[T, E], Generic[T, E]):
    """Keeps the elements of a pass over its source, once a pass was read to its end."""


# -- to be read in spans ---------------------------------------------------------------------------


class ReadsSpans(Node[T, E], Generic[T, E]):
    """May read a span of consecutive elements, stacked, faster than the elements one by one.

    The reading of each element in a span takes time, whether or not the element is used.
    """

    @abstractmethod
    def open_spans(self) -> Callable[[int, int], Any] | None:
        """Return a reader of the elements from one position up to another, stacked; or None.

        The result of the reader equals the stacked elements, in dtype and shape too. Its arrays are
        read-only views, or else belong to the caller. The reader returns None if the elements have
        to be read one by one, for example because they do not stack or cannot be read.
        """


class Sliceable(ReadsSpans[T, E], Generic[T, E]):
    """May have its elements in arrays: a span is a slice, and unused elements cost little."""

    spans_cost_the_same: ClassVar[bool] = False
    """True if reading a span takes equally long, however many elements it has."""


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
    """Yields elements with padding; the statistics of a run show the share of padding."""

    @abstractmethod
    def occupied(self, element: Any) -> tuple[int, int]:
        """The number of entries in an element that are not padding, and the number of all entries.

        A run asks for it where the operator runs in the consumer's process.
        """


class Buffering(Node[T, E], Generic[T, E]):
    """Keeps elements of its source for a while, which count against ``prefetch(memory=)``."""

    @property
    @abstractmethod
    def holds(self) -> int:
        """The number of source elements that it keeps at a time."""
