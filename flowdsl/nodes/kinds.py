"""The kinds of node that the planner distinguishes.

The layers above never refer to a single operator: its kind determines what they may do with it:

Source          starts a flow. An ``IndexedSource`` reads any row by its number.
Elementwise     one element in; one out, or none. Any process may run it on any element; an
                ``IndexedMap`` only if the process knows the element's number.
Windowed        ``n`` consecutive elements in, one out. The groups of a ``Batched`` do not overlap.
IndexTransform  chooses or reorders whole elements. Over a random-access flow it is arithmetic on
                positions, and no element moves (databases call this late materialization).
Copying         interleaves several passes over the same flow.
Merging         yields the elements of several flows: each element is an element of one of them.
Joining         makes one element from one element of each of several flows, at one position.
Placement       sets the workers that run the operators below it. It does not change elements.
Unordered       drops the order of the elements below it, which may then arrive as they are ready.

A node of any other class runs in the consuming process, as its ``rows`` method defines.

``rows`` and ``rows_after`` read passes over the sources that the runtime passes to them. When a run
resumes, the runtime has already advanced these passes: the first row is the next one to use.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, reduce
from itertools import combinations, count, islice
from math import gcd
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast, final, runtime_checkable

import attrs
import numpy as np

from flowdsl.effects import Exact, Reordered
from flowdsl.elements.matching_specs import differences
from flowdsl.elements.preallocated import Allocate, NextRow
from flowdsl.elements.specs import Spec, join, without_shapes
from flowdsl.errors import ElementError, InvalidFlow, Location, Where, raise_with_cause
from flowdsl.nodes.base import (
    DROPPED,
    A,
    AnyNode,
    Dropped,
    E,
    Failed,
    Indices,
    Node,
    PassFactory,
    Positions,
    Provenance,
    Row,
    T,
    U,
    cached_per_node,
)
from flowdsl.nodes.capabilities import (
    Buffering,
    MadeFromLatest,
    PassThrough,
    Reshardable,
    Resumable,
    SkippedByProbe,
    SourcePosition,
    Traceable,
    TracedReader,
    position_after_reshard,
    trace,
)
from flowdsl.nodes.frozen import frozen_node
from flowdsl.nodes.validation import POSITION_LIMIT, describe_element, describe_group, method_name
from flowdsl.resources.any_depth import any_depth
from flowdsl.resources.worker_kinds import PROCESSES, WorkerKind, Workers

_Number = TypeVar("_Number", int, Positions)


# -- sources ---------------------------------------------------------------------------------------


@runtime_checkable
class Expecting(Protocol):
    """A reader that learns which rows are read next, so that it can read many of them at once."""

    def expect(self, numbers: Sequence[int], /) -> None:
        """Announce the numbers of the next rows, in the order in which they are read."""


@runtime_checkable
class ReadsInPlace(Protocol):
    """A reader that can read the arrays of a row into the arrays of a batch."""

    next_row: NextRow
    """Where in a batch the row that is read next belongs, if it belongs in one."""


class IndexedSource(Node[T, Exact], Generic[T]):
    """A source with numbered rows, any of which can be read by itself."""

    in_memory: ClassVar[bool] = False
    """True if its rows are in this process's memory; False if every process can open it."""

    @property
    def rows_together(self) -> int | None:
        """How many rows are read together even if one is wanted; None if each is read alone."""
        return None

    @property
    def loop_line(self) -> str:
        """The line of a generated loop that replaces ``x``, the number of a row, by the row.

        ``{open}`` stands for the reader that ``open()`` returned, opened once for the loop; other
        names in braces are attributes of the source.
        """
        return "x = {open}(x)"

    @property
    @abstractmethod
    def length(self) -> int:
        """The number of rows."""

    @property
    def indexable(self) -> bool:
        return True

    @abstractmethod
    def open(self) -> Callable[[int], T]:
        """Return a reader of rows by number, for one process; deleting it closes its files."""

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        read = self.open()
        for i in range(self.length):
            try:
                row = read(i)
            except BaseException as error:
                raise_with_cause(self.error_at(epoch, i), error)
            yield i, row

    def location(self, row: int) -> Location | None:
        """Return the location of a row, for messages; None if the title says all that is known."""
        del row
        return None

    def origin(self, epoch: int, position: int) -> Where:
        location = self.location(position)
        more = "" if location is None else f", {location}"
        return Where(f"row {position} of {self.title}{more}", location=location)

    def error_at(self, epoch: int, position: int, detail: str | None = None) -> ElementError:
        # the text of its cause says the location
        where = Where(f"row {position} of {self.title}", location=self.location(position))
        return ElementError(self.title, position, epoch, where, detail)


# -- elementwise -----------------------------------------------------------------------------------


@frozen_node
class Elementwise(MadeFromLatest[U, E], Reshardable[U, E], Generic[A, U, E]):
    """An operator on one element at a time, which keeps the element's position."""

    drops: ClassVar[bool] = False
    """True if the operator may leave elements out."""

    cheap: ClassVar[bool] = False
    """True if it is so cheap that it does not justify sending elements to a worker."""

    source: Node[A, E]

    @property
    def loop_line(self) -> str:
        """The line of a generated loop that replaces ``x`` by the result of ``apply``.

        ``{epoch}`` and ``{position}`` stand for the element's epoch and position; other names in
        braces are attributes of the node.
        """
        return "x = {apply}(x, {epoch}, {position})"

    @abstractmethod
    def apply(self, x: A, epoch: int, position: int) -> U | Dropped:
        """Return the new element for ``x``, or ``DROPPED`` to leave it out."""

    @property
    @cached_per_node
    def indexable(self) -> bool:
        return self.source.indexable and not self.drops

    @property
    @cached_per_node
    def positions_are_contiguous(self) -> bool:
        return self.source.positions_are_contiguous and not self.drops

    @property
    @cached_per_node
    def length(self) -> int | None:
        return None if self.drops else self.source.length

    @property
    def looks_back(self) -> int | None:
        return 0

    def position_after_reshard(self, saved_flow: AnyNode, position: int) -> int | None:
        if not self.positions_are_contiguous:
            return None
        return position_after_reshard(self.source, saved_flow.sources[0], position)

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[U]]:
        for position, x in sources[0](epoch):
            y = self._applied(x, epoch, position, number=position)
            if not isinstance(y, Dropped):
                yield position, y

    def _applied(self, x: A, epoch: int, position: int, number: int) -> U | Dropped:
        """The result of ``apply`` with this number; ``position`` is for an error."""
        try:
            return self.apply(x, epoch, number)
        except BaseException as error:
            raise_with_cause(self.error_at(epoch, position, describe_element(x)), error)

    def made_of(self, addresses: Indices) -> Provenance:
        return Provenance.one_each(addresses)


class CodeTemplate(Elementwise[A, U, E], Generic[A, U, E]):
    """An elementwise operator defined by a line of Python, which is inlined into a generated loop.

    This saves a method call per element, which would cost as much as a small function.
    """

    @property
    @abstractmethod
    def loop_line(self) -> str:
        """The line of a generated loop, which sets ``x`` to the new element or to ``DROPPED``.

        ``{epoch}`` and ``{position}`` stand for the element's epoch and position; other names in
        braces, such as ``{func}``, are attributes of the node.
        """

    @final
    def apply(self, x: A, epoch: int, position: int) -> U | Dropped:
        return cast("U | Dropped", _compiled(self.loop_line)(self, x, epoch, position))


@lru_cache(maxsize=1024)
def _compiled(line: str) -> Callable[[object, object, int, int], object]:
    """The line as a function of its node, an element, and the element's epoch and position."""
    from string import Formatter  # here: not needed at import

    names = {name for _, name, _, _ in Formatter().parse(line) if name is not None}
    attributes = {name: f"node.{name}" for name in names - {"epoch", "position"}}
    body = line.format_map({"epoch": "epoch", "position": "position"} | attributes)
    namespace: dict[str, Any] = {"DROPPED": DROPPED}
    exec(f"def apply(node, x, epoch, position):\n    {body}\n    return x\n", namespace)
    apply: Callable[[object, object, int, int], object] = namespace["apply"]
    return apply


class IndexedMap(Resumable[U, E], Elementwise[A, U, E], Generic[A, U, E]):
    """An elementwise operator whose ``apply`` receives the element's number in the pass.

    It runs only where that number is known. It must not leave elements out: after a resume, the
    number is the count of elements that it has yielded.
    """

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if cls.drops:
            raise TypeError(
                f"{cls.__name__}: an IndexedMap operator cannot leave elements out; number the "
                f"elements with enumerate(), and leave some out with a filter above it"
            )

    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[Any]]:
        for number, (position, x) in enumerate(sources[0](epoch), yielded):
            yield position, self._applied(x, epoch, position, number=number)


# -- grouping --------------------------------------------------------------------------------------


@frozen_node
class Windowed(Traceable[U, E], Buffering[U, E], Generic[A, U, E]):
    """An operator that makes one element of ``n`` consecutive elements."""

    source: Node[A, E]
    n: int
    drop_remainder: bool

    @property
    def stride(self) -> int:
        """The number of elements between the starts of two consecutive groups."""
        return self.n

    @property
    def dilation(self) -> int:
        """The number of elements from each element of a group to the next one in it."""
        return 1

    @property
    def span(self) -> int:
        """The number of elements from the first to the last of a group of ``n``, inclusive."""
        return min((self.n - 1) * self.dilation + 1, POSITION_LIMIT)  # no pass is longer

    @property
    def holds(self) -> int:
        return self.span

    @property
    def looks_back(self) -> int | None:
        return max(0, self.span - self.stride)  # the elements that the next group has too

    @property
    def shares(self) -> bool:
        """True if an element may be in several groups, and so has to be read-only."""
        # Two groups share an element if a multiple of the stride is k * dilation, with k < n. The
        # least such k is stride // gcd.
        return self.stride // gcd(self.stride, self.dilation) < self.n

    @property
    def stacks(self) -> bool:
        """True if row ``i`` of a result is exactly the ``i``-th element of its group."""
        return False

    def group(self, size: int, allocate: Allocate | None = None) -> list[A]:
        """Return an empty list, to be extended by up to ``size`` rows and passed to ``gather``."""
        return []

    @abstractmethod
    def gather(self, group: Sequence[A], allocate: Allocate | None = None) -> U:
        """Make one element of a group; large arrays in it come from ``allocate``."""

    def open_views(self) -> Callable[[int, int], U] | None:
        """Return a reader of results that needs no groups; None if results need groups.

        It is called with an epoch and the position of a result.

        The reader returns None for a single result that has to be made of a group.
        """
        return None

    @property
    @cached_per_node
    def indexable(self) -> bool:
        return self.source.indexable

    def sizes(self, addresses: Indices) -> Positions:
        """The number of elements in each group at these addresses; the last may have fewer."""
        if self.source.length is None:
            return np.full_like(addresses.position, self.n)
        rows = self.source.length - addresses.position * self.stride
        return np.clip(-(-rows // self.dilation), 0, self.n)

    def made_of(self, addresses: Indices) -> Provenance | None:
        if not self.source.positions_are_contiguous:
            return None
        sizes = self.sizes(addresses)
        first = Indices(addresses.epoch, addresses.position * self.stride)
        rows = first.and_next(sizes, self.dilation)
        return Provenance(rows, np.zeros_like(rows.position), sizes)

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        read, first = TracedReader(sources[0]), 0  # the number of the first element in ``latest``
        for position, y in self.rows(epoch, [read]):
            while first < position * self.stride:
                read.latest.popleft()
                first += 1
            group = [x.places for _, x in islice(read.latest, 0, self.span, self.dilation)]
            yield position, trace(y, group, self.stacks)


class Batched(Windowed[A, U, E], Resumable[U, E], Reshardable[U, E], Generic[A, U, E]):
    """A windowed operator whose groups are consecutive and do not overlap."""

    @property
    @cached_per_node
    def length(self) -> int | None:
        rows = self.source.length
        if rows is None:
            return None
        return rows // self.n if self.drop_remainder else -(-rows // self.n)

    def position_after_reshard(self, saved_flow: AnyNode, position: int) -> int | None:
        saved = position * self.n  # in the source
        if saved_flow.length == position:  # the last group of a pass may be smaller
            saved = saved_flow.sources[0].length or saved
        in_source = position_after_reshard(self.source, saved_flow.sources[0], saved)
        if in_source is None:
            return None
        if in_source == self.source.length:
            return self.length
        return None if in_source % self.n else in_source // self.n

    def source_position(self, yielded: int) -> SourcePosition:
        return SourcePosition(ended_passes=0, position=yielded * self.n)

    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[U]]:
        rows, latest_positions = sources[0](epoch), deque[int](maxlen=self.n)
        elements: Iterator[A]
        if self.source.positions_are_contiguous:  # then an error computes them, at no cost here
            elements = (x for _, x in rows)
        else:
            elements = _noting_positions(rows, latest_positions)
        for position in count(yielded):
            group = self.group(self.n)
            group.extend(islice(elements, self.n))
            size = len(group)
            if not group or (self.drop_remainder and size < self.n):
                return
            try:
                y = self.gather(group)
            except BaseException as error:
                members = [*latest_positions][-size:]
                raise_with_cause(self._error_of_group(epoch, position, group, members), error)
            yield position, y

    def _error_of_group(
        self, epoch: int, position: int, group: Sequence[A], members: list[int]
    ) -> ElementError:
        """The error for a group; ``members`` are its positions in the source, if noted."""
        if not members:
            return self.error_at(epoch, position, describe_group(group))
        first = self.source.origin(epoch, min(members))
        last = self.source.origin(epoch, max(members))
        return ElementError(self.title, position, epoch, first.to(last), describe_group(group))


def _noting_positions(rows: Iterator[Row[A]], positions: deque[int]) -> Iterator[A]:
    """Yield elements, and append their positions to ``positions``."""
    for position, x in rows:
        positions.append(position)
        yield x


# -- indexing --------------------------------------------------------------------------------------


@frozen_node
class IndexTransform(PassThrough[T, E], Generic[T, E]):
    """An operator that chooses or reorders elements without looking at them."""

    keeps_positions: ClassVar[bool] = False
    """True if each element keeps the position that it has in the source."""

    repeats_elements: ClassVar[bool] = False
    """True if an element computed once is yielded at several positions, so must be read-only."""

    @property
    def shard(self) -> tuple[int, int] | None:
        """The number of shards and the selected shard; None if it does not shard the source."""
        return None

    def first_of(self, n: int) -> AnyNode:
        """This operator as the first of ``n`` shards."""
        raise AssertionError(f"{self.title} does not shard its source; asked for one of {n} shards")

    source: Node[T, E]

    @abstractmethod
    def resolve(self, addresses: Indices) -> Indices:
        """Map the addresses of elements to their addresses in the source, in the same order.

        It is called only if the operator is indexable.
        """

    @property
    @cached_per_node
    def indexable(self) -> bool:
        return self.source.indexable

    @property
    @cached_per_node
    def positions_are_contiguous(self) -> bool:
        return self.source.positions_are_contiguous or not self.keeps_positions

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)

    @property
    def looks_back(self) -> int | None:
        return 0

    def made_of(self, addresses: Indices) -> Provenance | None:
        if self.keeps_positions:
            return Provenance.one_each(addresses)
        return Provenance.one_each(self.resolve(addresses)) if self.indexable else None


@frozen_node
class Copying(IndexTransform[T, E], Generic[T, E]):
    """``n`` interleaved passes: copy ``k`` in epoch ``e`` is epoch ``e * n + k`` of the source.

    Its ``rows`` accepts one source, or ``n`` equal sources that different workers read.
    """

    n: int
    kind: WorkerKind = PROCESSES
    """The kind of workers; each worker runs one copy."""

    def resolve(self, addresses: Indices) -> Indices:
        position, copy = np.divmod(addresses.position, self.n)
        return Indices(epoch_of_copy(addresses.epoch, self.n, copy), position)

    @property
    @cached_per_node
    def length(self) -> int | None:
        return None if self.source.length is None else self.source.length * self.n

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        passes = [
            sources[k % len(sources)](epoch_of_copy(epoch, self.n, k))  # one source for all, or n
            for k in range(self.n)
        ]
        return enumerate(in_turn(passes))


def epoch_of_copy(epoch: _Number, n: int, copy: _Number) -> _Number:
    """The source's epoch for a copy, modulo 2**62: ``repeat`` passes epochs that are hashes."""
    return (epoch * n + copy) % POSITION_LIMIT


def in_turn(passes: list[Iterator[Row[A]]]) -> Iterator[A]:
    """Yield one element of each pass, round-robin; passes that have ended are skipped."""
    while passes:
        for rows in list(passes):
            row = next(rows, None)
            if row is None:
                passes.remove(rows)
            else:
                yield row[1]


# -- combining ------------------------------------------------------------------------------------


def _validate_alike(node: Merging[Any, Any], field: object, value: object) -> None:
    difference = node.difference(probe=False)
    if difference is not None:
        raise InvalidFlow(f"{method_name(node)}: {difference}")


@frozen_node
class Merging(PassThrough[T, E], Generic[T, E]):
    """An operator that yields elements of several flows, its parts."""

    parts: tuple[Node[T, E], ...] = attrs.field(validator=_validate_alike)

    def difference(self, probe: bool) -> str | None:
        """Describe how the specs of two parts differ, apart from sizes, and how to fix it."""
        # Many flows have few specs: the first part of each is compared.
        first_with = dict[Spec, tuple[Spec, str]]()
        for part in self.parts:
            spec = part.spec(probe)
            first_with.setdefault(without_shapes(spec), (spec, _below_identities(part).title))
        for (spec_a, title_a), (spec_b, title_b) in combinations(first_with.values(), 2):
            for name, a, b in differences(spec_a, spec_b):
                return f"{name} is {a} in {title_a} and {b} in {title_b}; make them alike with .map"
        return None

    @property
    @cached_per_node
    def length(self) -> int | None:
        total = 0
        for part in self.parts:
            if part.length is None:
                return None
            total += part.length
        return total

    @abstractmethod
    def resolve(self, addresses: Indices) -> tuple[Positions, Indices]:
        """For each address, the number of the part and the address in that part.

        The numbers have the shape ``(elements,)`` and the dtype ``int64`` of the addresses. It is
        called only if the operator is indexable.
        """

    @property
    @cached_per_node
    def indexable(self) -> bool:
        return all(part.indexable for part in self.parts)

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return reduce(join, (part.spec(probe) for part in self.parts))

    @property
    def looks_back(self) -> int | None:
        return 0

    def made_of(self, addresses: Indices) -> Provenance | None:
        if not self.indexable:
            return None
        part, part_addresses = self.resolve(addresses)
        return Provenance.one_each(part_addresses, part)


@any_depth
def _below_identities(node: AnyNode) -> AnyNode:
    """The operator that makes the elements, below operators such as ``prefetch``."""
    return _below_identities(node.source) if isinstance(node, Identity) else node


@frozen_node
class Joining(MadeFromLatest[T, E], Generic[T, E]):
    """An operator that joins the elements at the same position of several flows into one."""

    parts: tuple[AnyNode, ...]

    @abstractmethod
    def gather(self, group: Sequence[Any]) -> T:
        """Make one element of a group of elements, one from each flow."""

    def join(self, group: Sequence[Any]) -> Any:
        """Make one element of a group, or return the first failure in it."""
        for x in group:
            if isinstance(x, Failed):
                return x
        return self.gather(group)

    @property
    @cached_per_node
    def indexable(self) -> bool:
        return all(part.indexable for part in self.parts)

    @property
    def looks_back(self) -> int | None:
        return 0

    def made_of(self, addresses: Indices) -> Provenance | None:
        if not self.indexable:
            return None
        elements, n = len(addresses.position), len(self.parts)
        return Provenance(
            at=Indices(np.repeat(addresses.epoch, n), np.repeat(addresses.position, n)),
            source=np.tile(np.arange(n), elements),
            counts=np.full(elements, n),
        )

    def origin(self, epoch: int, position: int) -> Where:
        if not self.indexable:
            return super().origin(epoch, position)
        origins = dict.fromkeys(part.origin(epoch, position) for part in self.parts)  # each once
        return Where(" and ".join(origins))


# -- placement -------------------------------------------------------------------------------------


@frozen_node
class Identity(PassThrough[T, E], SkippedByProbe[T, E], Reshardable[T, E], Generic[T, E]):
    """A node that yields the elements of its source unchanged."""

    source: Node[T, E]

    @property
    def fingerprint(self) -> str:
        return ""

    @property
    @cached_per_node
    def length(self) -> int | None:
        return self.source.length

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)

    @property
    def looks_back(self) -> int | None:
        return 0

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return sources[0](epoch)

    def made_of(self, addresses: Indices) -> Provenance:
        return Provenance.one_each(addresses)

    def position_after_reshard(self, saved_flow: AnyNode, position: int) -> int | None:
        return position_after_reshard(self.source, saved_flow.sources[0], position)

    @property
    def depth(self) -> int:
        return self.source.depth  # it does not change the draws of seeded operators


@frozen_node
class Placement(Identity[T, E], Generic[T, E]):
    """Sets the workers on which the operators below it run."""

    workers: Workers

    @property
    @cached_per_node
    def indexable(self) -> bool:
        return self.source.indexable

    @property
    @cached_per_node
    def positions_are_contiguous(self) -> bool:
        return self.source.positions_are_contiguous


@cached_per_node
def worker_kinds(node: AnyNode) -> frozenset[WorkerKind]:
    """The kinds of worker that a flow asks for, in any part of it."""
    below = frozenset[WorkerKind]().union(*map(worker_kinds, node.sources))
    if isinstance(node, Copying):
        return below | {node.kind}
    if isinstance(node, Placement) and node.workers.count:  # 0: no workers
        return below | {node.workers.kind}
    return below


class Unordered(Identity[T, E | Reordered], Generic[T, E]):
    """Yields elements in any order: as they are ready, if workers run directly below it."""

    order_varies_by_epoch: ClassVar[bool | None] = True

    @property
    def title(self) -> str:
        return "ordered=False"

    @property
    def positions_are_contiguous(self) -> bool:
        return False  # no element is missing, but they are out of order
