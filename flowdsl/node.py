"""The description of a flow: a tree of frozen nodes, and the kinds of node that a planner knows.

A node is its validated fields, one sentence, and a few facts: what it yields (``rows``, the
reference), how many, of what spec, with what effects. Its kind tells the layers below it in the
import order, which never name an operator, what they may do with it:

Source       begins a flow. An ``IndexedSource`` reads any row by its number.
Elementwise  one element in; one out, or none. Any process may run it on any element.
Grouping     ``n`` consecutive elements in, one out.
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

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from itertools import count, islice
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Protocol,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
)

import attrs
import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeIs
from typing_extensions import TypeVar as TypeVarWithDefault

from flowdsl.effects import Effect, Endless, Exact, Reordered, Resampled, Tag, Unsized
from flowdsl.elements import Component
from flowdsl.errors import ElementError, InvalidFlow, Where, travelling
from flowdsl.specs import Spec, join
from flowdsl.stacking import Allocate

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")
T = TypeVar("T", covariant=True)
U = TypeVar("U", covariant=True)
E = TypeVar("E", bound=Effect, covariant=True)
F = TypeVar("F", bound=Effect)
E_any = TypeVarWithDefault("E_any", bound=Effect, covariant=True, default=Effect)

Row: TypeAlias = tuple[int, A]
"""A position and an element. Positions count from 0 in every pass; a filter leaves gaps in them,
so that the element at a position is the same whichever process looks at it."""

Positions: TypeAlias = NDArray[np.int64]
_Number = TypeVar("_Number", int, Positions)


@attrs.frozen
class Addresses:
    """Where elements stand in the output of a node: the epoch and the position of each."""

    epoch: Positions
    position: Positions

    @classmethod
    def span(cls, epoch: int, start: int, stop: int) -> Addresses:
        """The consecutive positions of one pass."""
        return cls.at(epoch, np.arange(start, stop, dtype=np.int64))

    @classmethod
    def at(cls, epoch: int, positions: Sequence[int] | Positions) -> Addresses:
        """These positions of one pass."""
        position = np.asarray(positions, np.int64)
        return cls(np.full(len(position), epoch, np.int64), position)

    def where(self, chosen: NDArray[np.bool_]) -> Addresses:
        """Those of them that are chosen."""
        return Addresses(self.epoch[chosen], self.position[chosen])


class Dropped:
    """What an elementwise operator gives for an element that it leaves out."""


DROPPED: Final = Dropped()


@attrs.frozen(eq=False)
class Failed:
    """What stands in the place of an element that could not be made, where that is no error."""

    step: int
    """The number of the operator that failed, among those that were attempted."""
    epoch: int
    position: int
    cause: Exception

    def __reduce__(self) -> tuple[type[Failed], tuple[object, ...]]:
        return Failed, (self.step, self.epoch, self.position, travelling(self.cause))


def _tags_written_on(cls: type) -> frozenset[Tag]:
    """The tags in the last argument of the base class: ``Node[T, E | Reordered]`` adds one."""
    for base in getattr(cls, "__orig_bases__", ()):
        origin = get_origin(base)
        if isinstance(origin, type) and issubclass(origin, Node):
            row = get_args(base)[-1]
            tags = get_args(row) or (row,)
            classes = [t for t in tags if isinstance(t, type) and issubclass(t, Effect)]
            return frozenset(t for t in classes if t not in (Exact, Effect))
    return frozenset()


@attrs.frozen
class Node(ABC, Generic[T, E]):
    """One operator of a flow, with its arguments and its sources."""

    adds: ClassVar[frozenset[Tag]] = frozenset()
    """The tags that this operator adds to the row; read off the class's own base."""

    bounds: ClassVar[bool] = False
    """It ends an endless flow, at a length known beforehand."""

    positional: ClassVar[bool] = False
    """It looks at positions: over a reordered flow, which rows it takes is chance."""

    identity: ClassVar[bool] = False
    """In epoch 0 its elements are those of its source: a probe need not come through it."""

    _facts: _Facts = attrs.field(factory=lambda: _Facts(), init=False, eq=False, repr=False)
    """What was asked of it before. A fact is made of those of the sources, some of them several
    times: without a memory, the cost of asking would double with every operator."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.adds = _tags_written_on(cls)
        for name in _FACTS & vars(cls).keys():
            setattr(cls, name, _remembered(vars(cls)[name]))

    @property
    def sources(self) -> tuple[AnyNode, ...]:
        """The nodes that this one reads, in order."""
        found: list[AnyNode] = []
        for field in attrs.fields(type(self)):
            value = getattr(self, field.name)
            found += [x for x in (value if isinstance(value, tuple) else (value,)) if _is_node(x)]
        return tuple(found)

    @property
    def effects(self) -> frozenset[Tag]:
        """What a pass does to the rows of the sources; the type's second parameter, at run time."""
        inherited = frozenset[Tag]().union(*(source.effects for source in self.sources))
        if self.bounds and Endless in inherited:
            inherited -= {Endless, Unsized}
        if self.positional and Reordered in inherited:
            inherited |= {Resampled}
        return inherited | self.adds

    @property
    @abstractmethod
    def title(self) -> str:
        """How a chain spells this operator, e.g. ``batch(32)``; one line, ``...`` for flows."""

    @property
    def fingerprint(self) -> str:
        """What a saved position holds it to: another one, other elements; none, no matter."""
        return self.title

    @property
    @abstractmethod
    def length(self) -> int | None:
        """How many elements a pass yields; None when it is unknown or endless."""

    @property
    def indexable(self) -> bool:
        """Any element can be made from its position alone."""
        return False

    @property
    def dense(self) -> bool:
        """Positions have no gaps, so that consecutive elements can be told by number."""
        return True

    @property
    def holds(self) -> int:
        """How many elements of its source it keeps at a time."""
        return 0

    def same_place(self, there: AnyNode, position: int) -> int | None:
        """Where this flow goes on, over a shard, after what ``there`` has given by a position.

        ``there`` is the same flow over shards of another number, all of which stand at that
        position. None where no position here follows just what they gave.
        """
        del there, position
        return None

    @property
    def unseen(self) -> AnyNode:
        """The same, or what is below it, for a probe: which nobody is to see go by."""
        return self

    @property
    def replayable(self) -> bool:
        """A second pass is possible."""
        return all(source.replayable for source in self.sources)

    @abstractmethod
    def spec(self, probe: bool) -> Spec:
        """What its elements look like; with ``probe``, unknowns are settled by making one."""

    @abstractmethod
    def rows(self, epoch: int) -> Iterator[Row[T]]:
        """The reference: what a pass yields, in order, in one process, with no tricks."""

    def origin(self, epoch: int, position: int) -> Where:
        """The row of the source that the element at this position came from, for messages."""
        del epoch
        return f"element {position} of {self.title}"

    def failure(self, epoch: int, position: int) -> ElementError:
        """The error that names this operator and the element it was making."""
        return ElementError(self.title, position, epoch, self.origin(epoch, position))

    @property
    def depth(self) -> int:
        """The number of operators up to this one, along the longest way from a source.

        It tells seeded operators from each other.
        """
        return 1 + max((source.depth for source in self.sources), default=0)


AnyNode: TypeAlias = Node[Any, Effect]


class _Facts(dict[str, Any]):
    """What is remembered; it stays behind when a node travels."""

    def __reduce__(self) -> tuple[type[_Facts], tuple[()]]:
        return _Facts, ()


_FACTS = frozenset({"sources", "effects", "length", "indexable", "dense", "depth", "spec"})


class _Fact(property):
    """A property that is remembered."""

    def __get__(self, node: Any, owner: type | None = None) -> Any:
        return self if node is None else _recall(node, self.fget, self.fget)

    def __reduce__(self) -> tuple[type[_Fact], tuple[Any]]:
        return _Fact, (self.fget,)  # with the class of a script, which travels by value


class _Question:
    """A method of one flag that is remembered."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask
        self.__isabstractmethod__ = getattr(ask, "__isabstractmethod__", False)

    @property
    def __closure__(self) -> Any:
        return self._ask.__closure__  # attrs mends ``super()`` in what has one

    def __get__(self, node: Any, owner: type | None = None) -> Any:
        if node is None:
            return self._ask

        def answer(probe: bool) -> Any:
            return _recall(node, self._ask, partial(self._ask, probe=probe), probe)

        return answer


def _recall(node: AnyNode, fact: Any, ask: Any, *flag: bool) -> Any:
    key = f"{fact.__qualname__}{flag}"  # a class and its base answer apart
    if key not in node._facts:
        node._facts[key] = ask(node)
    return node._facts[key]


def _remembered(fact: Any) -> Any:
    if isinstance(fact, _Fact | _Question):
        return fact  # attrs makes a class with slots anew
    return _Fact(fact.fget) if isinstance(fact, property) else _Question(fact)


for _name in _FACTS & vars(Node).keys():
    setattr(Node, _name, _remembered(vars(Node)[_name]))


def _is_node(value: object) -> TypeIs[AnyNode]:
    return isinstance(value, Node)


def with_sources(node: AnyNode, sources: tuple[AnyNode, ...]) -> AnyNode:
    """The same operator with the same arguments over other sources."""
    if all(old is new for old, new in zip(node.sources, sources, strict=True)):
        return node
    remaining = iter(sources)
    changes: dict[str, object] = {}
    for field in attrs.fields(type(node)):
        value = getattr(node, field.name)
        if isinstance(value, Node):
            changes[field.name] = next(remaining)
        elif isinstance(value, tuple) and any(isinstance(x, Node) for x in value):
            changes[field.name] = tuple(
                next(remaining) if isinstance(x, Node) else x for x in value
            )
    return attrs.evolve(node, **changes)


# -- sources ---------------------------------------------------------------------------------------


@attrs.frozen
class IndexedSource(Node[T, Exact], Generic[T]):
    """A source with numbered rows, any of which can be read by itself."""

    portable: ClassVar[bool] = True
    """Each process opens it for itself; False where the rows lie in this process's memory."""

    line: ClassVar[str] = "x = {open}(x)"
    """How a loop makes a row of its number, with the reader; see ``Elementwise.line``."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "open" in vars(cls) and "line" not in vars(cls):  # not that of another ``open``
            cls.line = IndexedSource.line

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

    def rows(self, epoch: int) -> Iterator[Row[T]]:
        read = self.open()
        for i in range(self.length):
            try:
                row = read(i)
            except Exception as error:
                raise self.failure(epoch, i) from error
            yield i, row

    def origin(self, epoch: int, position: int) -> Where:
        return f"row {position} of {self.title}"


# -- elementwise -----------------------------------------------------------------------------------


@attrs.frozen
class Elementwise(Node[U, E], Generic[A, U, E]):
    """An operator that looks at one element at a time; it keeps positions."""

    drops: ClassVar[bool] = False
    """It may leave elements out."""

    counts: ClassVar[bool] = False
    """Its position is the number of the element: only a process that knows it can run this."""

    light: ClassVar[bool] = False
    """It is no work: by itself not worth the way to a worker."""

    line: ClassVar[str] = "x = {apply}(x, {epoch}, {position})"
    """``apply`` as a line of Python, so that a loop need not go by a method to the user's function.

    The first name in braces is the attribute that is called."""

    source: Node[A, E]

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "apply" in vars(cls) and "line" not in vars(cls):  # not that of another ``apply``
            cls.line = Elementwise.line

    @abstractmethod
    def apply(self, x: A, epoch: int, position: int) -> U | Dropped:
        """What becomes of one element; ``DROPPED`` leaves it out."""

    @property
    def indexable(self) -> bool:
        return self.source.indexable and not self.drops

    @property
    def dense(self) -> bool:
        return self.source.dense and not self.drops

    @property
    def length(self) -> int | None:
        return None if self.drops else self.source.length

    def same_place(self, there: AnyNode, position: int) -> int | None:
        return self.source.same_place(there.sources[0], position) if self.dense else None

    def rows(self, epoch: int) -> Iterator[Row[U]]:
        for number, (position, x) in enumerate(self.source.rows(epoch)):
            try:
                y = self.apply(x, epoch, number if self.counts else position)
            except Exception as error:
                raise self.failure(epoch, position) from error
            if not isinstance(y, Dropped):
                yield position, y

    def origin(self, epoch: int, position: int) -> Where:
        return self.source.origin(epoch, position)


# -- grouping --------------------------------------------------------------------------------------


@attrs.frozen
class Grouping(Node[U, E], Generic[A, U, E]):
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
    def indexable(self) -> bool:
        return self.source.indexable

    @property
    def length(self) -> int | None:
        rows = self.source.length
        if rows is None:
            return None
        return rows // self.n if self.drop_remainder else -(-rows // self.n)

    def same_place(self, there: AnyNode, position: int) -> int | None:
        if self.stride != self.n:
            return None
        given = position * self.n
        if there.length == position:  # the last group of a pass may be a part of one
            given = there.sources[0].length or given
        taken = self.source.same_place(there.sources[0], given)
        if taken is not None and taken == self.source.length:
            return self.length
        return None if taken is None or taken % self.n else taken // self.n

    def rows(self, epoch: int) -> Iterator[Row[U]]:
        elements = (x for _, x in self.source.rows(epoch))
        for position in count():
            group = list(islice(elements, self.n))
            if not group or (self.drop_remainder and len(group) < self.n):
                return
            try:
                y = self.gather(group)
            except Exception as error:
                raise self.failure(epoch, position) from error
            yield position, y

    def origin(self, epoch: int, position: int) -> Where:
        if not self.source.dense:
            return super().origin(epoch, position)
        first = position * self.stride
        last = first + self.n - 1
        if self.source.length is not None:
            last = min(last, self.source.length - 1)
        begin = self.source.origin(epoch, first).partition(" to ")[0]
        end = self.source.origin(epoch, last).rpartition(" to ")[2]
        return begin if first == last and begin == end else f"{begin} to {end}"


# -- indexing --------------------------------------------------------------------------------------


@attrs.frozen
class Indexing(Node[T, E], Generic[T, E]):
    """An operator that chooses or reorders elements without looking at them."""

    keeps_positions: ClassVar[bool] = False
    """The element at a position is the one at that position of the source."""

    @property
    def shards(self) -> int:
        """Among how many it divides the source, to take one part; 0 where it does no such thing."""
        return 0

    def first_of(self, n: int) -> AnyNode:
        """The same for another number of shards, the first of them."""
        raise AssertionError(f"{self.title} takes no part of its source; asked for one of {n}")

    source: Node[T, E]

    @abstractmethod
    def resolve(self, at: Addresses) -> Addresses:
        """Where the elements at these addresses stand in the source; asked only if indexable."""

    @property
    def indexable(self) -> bool:
        return self.source.indexable

    @property
    def dense(self) -> bool:
        return self.source.dense or not self.keeps_positions

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
    """``n`` passes of the source at once, in turn: pass ``k`` of epoch ``e`` is ``e * n + k``."""

    n: int

    def resolve(self, at: Addresses) -> Addresses:
        place, copy = np.divmod(at.position, self.n)
        return Addresses(epoch_of_copy(at.epoch, self.n, copy), place)

    @property
    def length(self) -> int | None:
        return None if self.source.length is None else self.source.length * self.n

    def rows(self, epoch: int) -> Iterator[Row[T]]:
        passes = (epoch_of_copy(epoch, self.n, k) for k in range(self.n))
        return enumerate(in_turn([self.source.rows(one) for one in passes]))


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


@attrs.frozen
class Merging(Node[T, E], Generic[T, E]):
    """An operator each of whose elements is an element of one of its parts."""

    parts: tuple[Node[T, E], ...]

    @abstractmethod
    def resolve(self, at: Addresses) -> tuple[Positions, Addresses]:
        """For each address the number of the part, and the address there; only if indexable."""

    @property
    def indexable(self) -> bool:
        return all(part.indexable for part in self.parts)

    def spec(self, probe: bool) -> Spec:
        return reduce(join, (part.spec(probe) for part in self.parts))

    def origin(self, epoch: int, position: int) -> Where:
        if not self.indexable:
            return super().origin(epoch, position)
        part, at = self.resolve(Addresses.span(epoch, position, position + 1))
        return self.parts[int(part[0])].origin(int(at.epoch[0]), int(at.position[0]))


@attrs.frozen
class Joining(Node[T, E], Generic[T, E]):
    """An operator that makes one element of those at a position, one of each part."""

    parts: tuple[AnyNode, ...]

    @abstractmethod
    def gather(self, group: Sequence[Any]) -> T:
        """One element of a group."""

    def join(self, group: Sequence[Any]) -> Any:
        """The same, of elements some of which may have failed: then it is the first of those."""
        failed = (x for x in group if isinstance(x, Failed))
        return next(failed, None) or self.gather(group)

    @property
    def indexable(self) -> bool:
        return all(part.indexable for part in self.parts)

    def origin(self, epoch: int, position: int) -> Where:
        if not self.indexable:
            return super().origin(epoch, position)
        return " and ".join(dict.fromkeys(part.origin(epoch, position) for part in self.parts))


# -- placement -------------------------------------------------------------------------------------


@attrs.frozen
class Workers:
    """Who runs a stage: nobody but the consumer, or so many processes or threads."""

    procs: int = 0
    threads: int = 0
    memory: int | None = None
    """The bytes that may be in flight; None for the runtime's own bound."""
    deaths: int = 3
    """So many workers may end on one element before it is given up."""
    timeout: float | None = None
    """The seconds that a process may take for one element; then it counts as dead."""

    @property
    def count(self) -> int:
        """How many work at a time; 0 where the consumer does it itself."""
        return self.procs or self.threads

    def share(self, k: int) -> Workers:
        """Those for one of ``k`` flows that share them: at least one, if there are any."""
        procs, threads = (max(min(1, n), n // max(1, k)) for n in (self.procs, self.threads))
        memory = None if self.memory is None else self.memory // max(1, k)
        return attrs.evolve(self, procs=procs, threads=threads, memory=memory)

    def __str__(self) -> str:
        n, one = (self.procs, "worker process") if self.procs else (self.threads, "thread")
        return f"{n} {one}" if n == 1 else f"{n} {one}{'es' if self.procs else 's'}"


@attrs.frozen
class Aside(Node[T, E], Generic[T, E]):
    """An operator beside the elements, which pass through it as they are."""

    identity: ClassVar[bool] = True
    source: Node[T, E]

    @property
    def fingerprint(self) -> str:
        return ""

    @property
    def length(self) -> int | None:
        return self.source.length

    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)

    def rows(self, epoch: int) -> Iterator[Row[T]]:
        return self.source.rows(epoch)

    def origin(self, epoch: int, position: int) -> Where:
        return self.source.origin(epoch, position)

    def same_place(self, there: AnyNode, position: int) -> int | None:
        return self.source.same_place(there.sources[0], position)

    @property
    def depth(self) -> int:
        return self.source.depth  # it changes no seeded operator's draws


@attrs.frozen
class Placement(Aside[T, E], Generic[T, E]):
    """Says where the operators below it run."""

    workers: Workers

    @property
    def indexable(self) -> bool:
        return self.source.indexable

    @property
    def dense(self) -> bool:
        return self.source.dense


@attrs.frozen
class Unordered(Aside[T, E | Reordered], Generic[T, E]):
    """The elements in any order: as they are ready, where workers make them right below it."""

    @property
    def title(self) -> str:
        return "ordered=False"

    @property
    def dense(self) -> bool:
        return False  # they are all there, and not in their places


# -- what every family of operators builds on ------------------------------------------------------


class Pass(Iterator[T], Protocol[T]):
    """An iterator over one pass, which can be ended before its end."""

    def close(self) -> None:
        """Let go of what the pass holds."""
        ...


@attrs.frozen
class FlowBase(ABC, Generic[T, E_any]):
    """A flow as an operator sees it: a node to build on. Third-party functions accept this type."""

    node: Node[T, E_any]

    @abstractmethod
    def __iter__(self) -> Pass[T]: ...


_surface: list[Callable[[Any], Any]] = []


def provide_surface(surface: Callable[[AnyNode], FlowBase[Any, Any]]) -> None:
    """Called once by the layer that joins the families, so that no operator imports upwards."""
    _surface[:] = [surface]


MOST_ELEMENTS = 2**62
"""Positions and epochs are int64, and some arithmetic is done on them."""


def flow(node: Node[A, F]) -> Flow[A, F]:
    """The fluent surface over a node: what every operator's method returns.

    Raises:
        InvalidFlow: It has more elements than can be numbered.
    """
    if (node.length or 0) >= MOST_ELEMENTS:
        raise InvalidFlow(
            f"{_spelled(node)}: {node.length} elements are more than can be numbered, which is "
            f"2**62; where there is to be no end, write repeat()"
        )
    return _surface[0](node)  # type: ignore[no-any-return]  # the slot is untyped: Flow is above


def at_least(
    minimum: int, most: int | None = MOST_ELEMENTS
) -> Callable[[AnyNode, attrs.Attribute[int], object], None]:
    """An attrs validator: an int from ``minimum`` to below ``most``, in the words of the chain."""

    def check(node: AnyNode, field: attrs.Attribute[int], value: object) -> None:
        if not is_int(value, minimum, most):
            below = " and below 2**62" if is_int(value, minimum, None) else ""
            raise InvalidFlow(
                f"{_spelled(node)}: {field.name} must be an int >= {minimum}{below}, got {value!r}"
            )

    return check


def is_callable(node: AnyNode, field: attrs.Attribute[Any], value: object) -> None:
    """An attrs validator: something to call."""
    if not callable(value):
        raise InvalidFlow(f"{_spelled(node)}: {field.name} must be callable, got {value!r}")


def is_flag(node: AnyNode, field: attrs.Attribute[bool], value: object) -> None:
    """An attrs validator: True or False."""
    if not isinstance(value, bool):
        raise InvalidFlow(f"{_spelled(node)}: {field.name} must be True or False, got {value!r}")


def plain_int(value: Any) -> Any:
    """An attrs converter: a NumPy int as an int, which neither wraps around nor fails in JSON."""
    return int(value) if isinstance(value, np.integer) else value


def is_int(value: object, minimum: int, most: int | None = MOST_ELEMENTS) -> bool:
    """Whether it is an int, and no bool, of at least this much, and below ``most``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        return False
    return bool(value >= minimum and (most is None or value < most))


def _spelled(node: AnyNode) -> str:
    """The operator's method; validators run when all fields are set, so it has its title."""
    return node.title.partition("(")[0]


def name_of(function: object) -> str:
    """How a message spells a function.

    >>> name_of(len), name_of(lambda x: x)
    ('len', '<lambda>')
    """
    if isinstance(function, Component):
        return f"c{function.index}"
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name).rpartition("<locals>.")[2]
