"""The description of a flow: a tree of frozen nodes.

A node is its validated fields, one sentence, and a few facts: what it yields (``rows``, the
reference), how many, of what spec, with what effects. What a planner may do with it is for its kind
to say (see ``kinds``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
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

from flowdsl.arguments import MOST_ELEMENTS, spelled
from flowdsl.batches import Element
from flowdsl.effects import Effect, Endless, Exact, Reordered, Resampled, Tag, Unsized
from flowdsl.errors import ElementError, InvalidFlow, Where, travelling
from flowdsl.specs import Spec

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

    def __reduce__(self) -> str | tuple[Any, ...]:
        """There is one ``DROPPED`` in each process."""
        return "DROPPED" if self is DROPPED else super().__reduce__()


DROPPED: Final = Dropped()


@attrs.frozen(eq=False)
class Failed:
    """What stands in the place of an element that could not be made, where that is no error."""

    step: int
    """The number of the operator that failed, among those that were attempted."""
    epoch: int
    position: int
    cause: Exception
    given: str | None = None
    """What the operator failed on, in words."""

    def __reduce__(self) -> tuple[type[Failed], tuple[object, ...]]:
        cause = travelling(self.cause)
        return Failed, (self.step, self.epoch, self.position, cause, self.given)


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

    resumable: ClassVar[bool] = True
    """A pass that is resumed comes by what was delivered before, so that it can be left out."""

    _facts: _Facts = attrs.field(factory=lambda: _Facts(), init=False, eq=False, repr=False)
    """What was asked of it before. A fact is made of those of the sources, some of them several
    times: without a memory, the cost of asking would double with every operator."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.adds = _tags_written_on(cls)
        if "rows" in vars(cls) and "rows_after" not in vars(cls):
            cls.continues = False  # type: ignore[method-assign,assignment]  # those are not its rows
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
    def shuffled_by(self) -> AnyNode | None:
        """What puts its elements in another order in each epoch: itself, or an operator below."""
        return next(filter(None, (source.shuffled_by for source in self.sources)), None)

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
    def continues(self) -> bool:
        """It can go on with a pass after some elements, without those before them.

        Then there are ``rows_after``, which begins where ``rows`` would be, and ``taken``.
        """
        return False

    def rows_after(self, epoch: int, given: int, over: int) -> Iterator[Row[T]]:
        """The rows of a pass that come after the first ``given``.

        By then ``over`` passes of the source were over. Of the next one the runtime has the source
        give only what had not been taken of it; of each later one, all.
        """
        raise AssertionError(f"{self.title} goes on from no number: {epoch}, {given}, {over}")

    def taken(self, given: int) -> tuple[int, int]:
        """After so many elements: the passes of its source that were over, and the elements of one.

        Where nothing below leaves elements out, so that it is arithmetic.
        """
        return 0, given

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

    def failure(self, epoch: int, position: int, given: str | None = None) -> ElementError:
        """The error that names this operator and the element it was making.

        ``given`` says what it made that of: ``arguments.the_element`` words it.
        """
        return ElementError(self.title, position, epoch, self.origin(epoch, position), given)

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


# -- what every family of operators builds on ------------------------------------------------------


class Pass(Iterator[T], Protocol[T]):
    """An iterator over one pass, which can be ended before its end."""

    def close(self) -> None:
        """Let go of what the pass holds."""
        ...


@attrs.frozen
class FlowBase(ABC, Element[T], Generic[T, E_any]):
    """A flow as an operator sees it: a node to build on. Third-party functions accept this type."""

    node: Node[T, E_any]

    @abstractmethod
    def __iter__(self) -> Pass[T]: ...


_surface: list[Callable[[Any], Any]] = []


def provide_surface(surface: Callable[[AnyNode], FlowBase[Any, Any]]) -> None:
    """Called once by the layer that joins the families, so that no operator imports upwards."""
    _surface[:] = [surface]


def flow(node: Node[A, F]) -> Flow[A, F]:
    """The fluent surface over a node: what every operator's method returns.

    Raises:
        InvalidFlow: It has more elements than can be numbered.
    """
    if (node.length or 0) >= MOST_ELEMENTS:
        raise InvalidFlow(
            f"{spelled(node)}: {node.length} elements are more than can be numbered, which is "
            f"2**62; where there is to be no end, write repeat()"
        )
    return _surface[0](node)  # type: ignore[no-any-return]  # the slot is untyped: Flow is above
