"""The kinds of node that a planner knows.

A kind tells the layers above, which never name an operator, what they may do with it:

Source       begins a flow. An ``IndexedSource`` reads any row by its number.
Elementwise  one element in; one out, or none. Any process may run it on any element; one that is
             ``Counting``, if it knows the element's number.
Gathering    ``n`` consecutive elements in, one out. A ``Grouping`` shares none between two of them.
Indexing     chooses or reorders whole elements. Over a random-access flow it is arithmetic on
             positions, and no element moves (databases call this late materialization).
Copying      several passes of the same flow, in turn.
Merging      the same over several flows: each element is an element of one of them.
Joining      several flows in; the elements at a position, one of each, make one.
Placement    says where to run, and by whom. It changes no element.
Unordered    gives up the order of what is below it, which may then come as it is ready.

A node of no kind runs in the consuming process, by its reference.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, reduce
from itertools import combinations, count, islice
from string import Formatter
from typing import Any, ClassVar, Generic, TypeVar, cast, final

import attrs
import numpy as np

from flowdsl.arguments import MOST_ELEMENTS, spelled, the_element, the_group
from flowdsl.capabilities import (
    Continuing,
    Holding,
    Reshardable,
    Transparent,
    same_place,
)
from flowdsl.effects import Exact, Reordered
from flowdsl.errors import InvalidFlow, Where
from flowdsl.node import (
    DROPPED,
    A,
    Addresses,
    AnyNode,
    Dropped,
    E,
    Failed,
    Node,
    Passes,
    Positions,
    Row,
    T,
    U,
    remembered,
)
from flowdsl.specs import Spec, differences, join, without_shapes
from flowdsl.stacking import Allocate
from flowdsl.worker_kinds import Workers

_Number = TypeVar("_Number", int, Positions)


# -- sources ---------------------------------------------------------------------------------------


@attrs.frozen
class IndexedSource(Node[T, Exact], Generic[T]):
    """A source with numbered rows, any of which can be read by itself."""

    portable: ClassVar[bool] = True
    """Each process opens it for itself; False where the rows lie in this process's memory."""

    @property
    def line(self) -> str:
        """How a loop makes a row of its number, with the reader; see ``Elementwise.line``."""
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
        """A reader of rows by number, for one process; what it holds open closes with it."""

    def rows(self, epoch: int, sources: Sequence[Passes]) -> Iterator[Row[T]]:
        read = self.open()
        for i in range(self.length):
            try:
                row = read(i)
            except Exception as error:
                raise self.failure(epoch, i) from error
            yield i, row

    def origin(self, epoch: int, position: int) -> Where:
        return Where(f"row {position} of {self.title}")


# -- elementwise -----------------------------------------------------------------------------------


@attrs.frozen
class Elementwise(Reshardable[U, E], Generic[A, U, E]):
    """An operator that looks at one element at a time; it keeps positions."""

    drops: ClassVar[bool] = False
    """It may leave elements out."""

    light: ClassVar[bool] = False
    """It is no work: by itself not worth the way to a worker."""

    source: Node[A, E]

    @property
    def line(self) -> str:
        """``apply`` in a line of Python, as a loop takes it in; see ``Spelled``."""
        return "x = {apply}(x, {epoch}, {position})"

    @abstractmethod
    def apply(self, x: A, epoch: int, position: int) -> U | Dropped:
        """What becomes of one element; ``DROPPED`` leaves it out."""

    @property
    @remembered
    def indexable(self) -> bool:
        return self.source.indexable and not self.drops

    @property
    @remembered
    def dense(self) -> bool:
        return self.source.dense and not self.drops

    @property
    @remembered
    def length(self) -> int | None:
        return None if self.drops else self.source.length

    def same_place(self, there: AnyNode, position: int) -> int | None:
        return same_place(self.source, there.sources[0], position) if self.dense else None

    def rows(self, epoch: int, sources: Sequence[Passes]) -> Iterator[Row[U]]:
        for position, x in sources[0](epoch):
            y = self._applied(x, epoch, position, position)
            if not isinstance(y, Dropped):
                yield position, y

    def _applied(self, x: A, epoch: int, position: int, number: int) -> U | Dropped:
        try:
            return self.apply(x, epoch, number)
        except Exception as error:
            raise self.failure(epoch, position, the_element(x)) from error

    def origin(self, epoch: int, position: int) -> Where:
        return self.source.origin(epoch, position)


@attrs.frozen
class Spelled(Elementwise[A, U, E], Generic[A, U, E]):
    """One that is a line of Python, so that a loop goes by no method to its function.

    Next to a small function, the call of a method costs as much as the function does.
    """

    @property
    @abstractmethod
    def line(self) -> str:
        """The line, which makes ``x`` anew, or makes it ``DROPPED``.

        A name in braces is that of an attribute, such as the function; or ``epoch``, ``position``.
        """

    @final
    def apply(self, x: A, epoch: int, position: int) -> U | Dropped:
        return cast("U | Dropped", _function(self.line)(self, x, epoch, position))


@lru_cache(maxsize=1024)
def _function(line: str) -> Callable[[object, object, int, int], object]:
    """The line as a function of the node that spells it, an element, and where that stands."""
    names = {name for _, name, _, _ in Formatter().parse(line) if name is not None}
    own = {name: f"node.{name}" for name in names - {"epoch", "position"}}
    body = line.format_map({"epoch": "epoch", "position": "position"} | own)
    found: dict[str, Any] = {"DROPPED": DROPPED}
    exec(f"def apply(node, x, epoch, position):\n    {body}\n    return x\n", found)
    apply: Callable[[object, object, int, int], object] = found["apply"]
    return apply


@attrs.frozen
class Counting(Continuing[U, E], Elementwise[A, U, E], Generic[A, U, E]):
    """One whose position is the number of the element: it is run where that number is known.

    It leaves no element out: the number would not tell how many it has given.
    """

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if cls.drops:
            raise TypeError(
                f"{cls.__name__}: a Counting operator leaves no element out; number the elements "
                f"with enumerate(), and leave some out with a filter above it"
            )

    def rows_after(
        self, epoch: int, given: int, over: int, sources: Sequence[Passes]
    ) -> Iterator[Row[Any]]:
        for number, (position, x) in enumerate(sources[0](epoch), given):
            yield position, self._applied(x, epoch, position, number)


# -- grouping --------------------------------------------------------------------------------------


@attrs.frozen
class Gathering(Holding[U, E], Generic[A, U, E]):
    """An operator that makes one element of ``n`` consecutive ones."""

    source: Node[A, E]
    n: int
    drop_remainder: bool

    @property
    def holds(self) -> int:
        return self.n

    @property
    def stride(self) -> int:
        """How many elements after one group the next begins."""
        return self.n

    @abstractmethod
    def gather(self, group: Sequence[A], allocate: Allocate | None = None) -> U:
        """One element of a group; large arrays in it come from ``allocate``."""

    @property
    @remembered
    def indexable(self) -> bool:
        return self.source.indexable

    def origin(self, epoch: int, position: int) -> Where:
        if not self.source.dense:
            return super().origin(epoch, position)
        first = position * self.stride
        last = first + self.n - 1
        if self.source.length is not None:
            last = min(last, self.source.length - 1)
        return self.source.origin(epoch, first).to(self.source.origin(epoch, last))


@attrs.frozen
class Grouping(Gathering[A, U, E], Continuing[U, E], Reshardable[U, E], Generic[A, U, E]):
    """A gathering whose groups follow one another: every element is in one of them."""

    @property
    @remembered
    def length(self) -> int | None:
        rows = self.source.length
        if rows is None:
            return None
        return rows // self.n if self.drop_remainder else -(-rows // self.n)

    def same_place(self, there: AnyNode, position: int) -> int | None:
        given = position * self.n
        if there.length == position:  # the last group of a pass may be a part of one
            given = there.sources[0].length or given
        taken = same_place(self.source, there.sources[0], given)
        if taken is not None and taken == self.source.length:
            return self.length
        return None if taken is None or taken % self.n else taken // self.n

    def taken(self, given: int) -> tuple[int, int]:
        return 0, given * self.n

    def rows_after(
        self, epoch: int, given: int, over: int, sources: Sequence[Passes]
    ) -> Iterator[Row[U]]:
        elements = (x for _, x in sources[0](epoch))
        for position in count(given):
            group = list(islice(elements, self.n))
            if not group or (self.drop_remainder and len(group) < self.n):
                return
            try:
                y = self.gather(group)
            except Exception as error:
                raise self.failure(epoch, position, the_group(group)) from error
            yield position, y


# -- indexing --------------------------------------------------------------------------------------


@attrs.frozen
class Indexing(Node[T, E], Generic[T, E]):
    """An operator that chooses or reorders elements without looking at them."""

    keeps_positions: ClassVar[bool] = False
    """The element at a position is the one at that position of the source."""

    @property
    def shard(self) -> tuple[int, int] | None:
        """Into how many parts it divides the source, and which it takes; None where it does not."""
        return None

    def first_of(self, n: int) -> AnyNode:
        """This operator as the first of another number of shards."""
        raise AssertionError(f"{self.title} takes no part of its source; asked for one of {n}")

    source: Node[T, E]

    @abstractmethod
    def resolve(self, at: Addresses) -> Addresses:
        """Where the elements at these addresses stand in the source: as many, in their order.

        It is asked only if the operator is indexable.
        """

    @property
    @remembered
    def indexable(self) -> bool:
        return self.source.indexable

    @property
    @remembered
    def dense(self) -> bool:
        return self.source.dense or not self.keeps_positions

    @remembered
    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)

    def origin(self, epoch: int, position: int) -> Where:
        if self.keeps_positions:
            return self.source.origin(epoch, position)
        if not self.indexable:
            return super().origin(epoch, position)
        at = self.resolve(Addresses.span(epoch, position, position + 1))
        return self.source.origin(int(at.epoch[0]), int(at.position[0]))


@attrs.frozen
class Copying(Indexing[T, E], Generic[T, E]):
    """``n`` passes of the source at once, in turn: pass ``k`` of epoch ``e`` is ``e * n + k``.

    Its ``rows`` may be given the source ``n`` times, each read by another worker.
    """

    n: int

    def resolve(self, at: Addresses) -> Addresses:
        place, copy = np.divmod(at.position, self.n)
        return Addresses(epoch_of_copy(at.epoch, self.n, copy), place)

    @property
    @remembered
    def length(self) -> int | None:
        return None if self.source.length is None else self.source.length * self.n

    def rows(self, epoch: int, sources: Sequence[Passes]) -> Iterator[Row[T]]:
        own = (sources[k % len(sources)] for k in range(self.n))  # one for all, or one for each
        passes = [read(epoch_of_copy(epoch, self.n, k)) for k, read in enumerate(own)]
        return enumerate(in_turn(passes))


def epoch_of_copy(epoch: _Number, n: int, copy: _Number) -> _Number:
    """The pass that a copy is at, within an epoch; one that was drawn may be as large as any."""
    return (epoch * n + copy) % MOST_ELEMENTS


def in_turn(passes: list[Iterator[Row[A]]]) -> Iterator[A]:
    """An element of each, again and again; one that has ended is passed over."""
    while passes:
        for one in list(passes):
            row = next(one, None)
            if row is None:
                passes.remove(one)
            else:
                yield row[1]


# -- combining ------------------------------------------------------------------------------------


def _are_alike(node: Merging[Any, Any], field: object, value: object) -> None:
    difference = node.difference(probe=False)
    if difference is not None:
        raise InvalidFlow(f"{spelled(node)}: {difference}")


@attrs.frozen
class Merging(Node[T, E], Generic[T, E]):
    """An operator each of whose elements is an element of one of its parts."""

    parts: tuple[Node[T, E], ...] = attrs.field(validator=_are_alike)

    def difference(self, probe: bool) -> str | None:
        """In what the elements of two parts differ, but for sizes, and what to do about it."""
        found = dict[Spec, tuple[Spec, str]]()  # of many flows, few differ
        for part in self.parts:
            spec = part.spec(probe)
            found.setdefault(without_shapes(spec), (spec, _beside(part).title))
        for (one, its), (other, others) in combinations(found.values(), 2):
            for name, a, b in differences(one, other):
                return f"{name} is {a} in {its} and {b} in {others}; make them alike with .map"
        return None

    @abstractmethod
    def resolve(self, at: Addresses) -> tuple[Positions, Addresses]:
        """For each address the number of the part, and the address there.

        The numbers have the shape ``(elements,)`` and the dtype ``int64`` of the addresses. It is
        asked only if the operator is indexable.
        """

    @property
    @remembered
    def indexable(self) -> bool:
        return all(part.indexable for part in self.parts)

    @remembered
    def spec(self, probe: bool) -> Spec:
        return reduce(join, (part.spec(probe) for part in self.parts))

    def origin(self, epoch: int, position: int) -> Where:
        if not self.indexable:
            return super().origin(epoch, position)
        part, at = self.resolve(Addresses.span(epoch, position, position + 1))
        return self.parts[int(part[0])].origin(int(at.epoch[0]), int(at.position[0]))


def _beside(node: AnyNode) -> AnyNode:
    """The operator that makes the elements: no prefetch does."""
    return _beside(node.source) if isinstance(node, Aside) else node


@attrs.frozen
class Joining(Node[T, E], Generic[T, E]):
    """An operator that makes one element of those at a position, one of each part."""

    parts: tuple[AnyNode, ...]

    @abstractmethod
    def gather(self, group: Sequence[Any]) -> T:
        """One element of a group."""

    def join(self, group: Sequence[Any]) -> Any:
        """One element of a group; if some of it have failed, the first of those."""
        failed = (x for x in group if isinstance(x, Failed))
        return next(failed, None) or self.gather(group)

    @property
    @remembered
    def indexable(self) -> bool:
        return all(part.indexable for part in self.parts)

    def origin(self, epoch: int, position: int) -> Where:
        if not self.indexable:
            return super().origin(epoch, position)
        each = dict.fromkeys(part.origin(epoch, position) for part in self.parts)
        return Where(" and ".join(each))


# -- placement -------------------------------------------------------------------------------------


@attrs.frozen
class Aside(Transparent[T, E], Reshardable[T, E], Generic[T, E]):
    """An operator beside the elements, which pass through it as they are."""

    source: Node[T, E]

    @property
    def fingerprint(self) -> str:
        return ""

    @property
    @remembered
    def length(self) -> int | None:
        return self.source.length

    @remembered
    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)

    def rows(self, epoch: int, sources: Sequence[Passes]) -> Iterator[Row[T]]:
        return sources[0](epoch)

    def origin(self, epoch: int, position: int) -> Where:
        return self.source.origin(epoch, position)

    def same_place(self, there: AnyNode, position: int) -> int | None:
        return same_place(self.source, there.sources[0], position)

    @property
    def depth(self) -> int:
        return self.source.depth  # it changes no seeded operator's draws


@attrs.frozen
class Placement(Aside[T, E], Generic[T, E]):
    """Says where the operators below it run."""

    workers: Workers

    @property
    @remembered
    def indexable(self) -> bool:
        return self.source.indexable

    @property
    @remembered
    def dense(self) -> bool:
        return self.source.dense


@attrs.frozen
class Unordered(Aside[T, E | Reordered], Generic[T, E]):
    """The elements in any order: as they are ready, where workers make them right below it."""

    shuffles: ClassVar[bool | None] = True

    @property
    def title(self) -> str:
        return "ordered=False"

    @property
    def dense(self) -> bool:
        return False  # they are all there, and not in their places
