"""The description of a flow: a tree of frozen nodes.

A node is its validated fields, one sentence, and a few facts: what it yields (``rows``, the
reference), how many, of what spec, with what effects. Its kind says what a planner may do with it
(see ``kinds``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache, wraps
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
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
from flowdsl.elements.batch_types import Element, WithEffects
from flowdsl.elements.specs import Spec
from flowdsl.errors import ElementError, InvalidFlow, Where, travelling
from flowdsl.nodes.validation import MOST_ELEMENTS, spelled

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")
T = TypeVar("T", covariant=True)
U = TypeVar("U", covariant=True)
E = TypeVar("E", bound=Effect, covariant=True)
F = TypeVar("F", bound=Effect)
N = TypeVar("N", bound="Node[Any, Any]")
P = ParamSpec("P")
E_any = TypeVarWithDefault("E_any", bound=Effect, covariant=True, default=Effect)

Row: TypeAlias = tuple[int, A]
"""A position and an element. Positions count from 0 in every pass; a filter leaves gaps in them,
so that the element at a position is the same whichever process looks at it."""

PassFactory: TypeAlias = Callable[[int], Iterator[Row[Any]]]
"""Begins the pass of an epoch over a source, and gives its rows."""

Positions: TypeAlias = NDArray[np.int64]
"""Positions in passes, or other counts, one for each element: of shape ``(elements,)``."""


@attrs.frozen
class Indices:
    """Where some elements stand in the output of a node.

    Two columns of shape ``(elements,)`` and dtype ``int64``.
    """

    epoch: Positions
    """The number of each element's pass."""
    position: Positions
    """The position of each element in its pass."""

    @classmethod
    def span(cls, epoch: int, start: int, stop: int) -> Indices:
        """The consecutive positions of one pass."""
        return cls.at(epoch, np.arange(start, stop, dtype=np.int64))

    @classmethod
    def at(cls, epoch: int, positions: Sequence[int] | Positions) -> Indices:
        """These positions of one pass."""
        position = np.asarray(positions, np.int64)
        return cls(np.full(len(position), epoch, np.int64), position)

    def where(self, chosen: NDArray[np.bool_]) -> Indices:
        """The addresses where ``chosen`` is True."""
        return Indices(self.epoch[chosen], self.position[chosen])

    def and_next(self, counts: Positions) -> Indices:
        """For each address, it and those that follow, as many as ``counts`` says in all."""
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return Indices(np.repeat(self.epoch, counts), np.repeat(self.position, counts) + within)


@attrs.frozen
class Provenance:
    """The elements that some elements are made of, one after another, and where they stand."""

    at: Indices
    """The address of each in its source."""
    source: Positions
    """The number of that source among those of the operator."""
    counts: Positions
    """How many each element is made of; of shape ``(elements,)``, where the others have as many
    entries as there are members."""

    @classmethod
    def one_each(cls, at: Indices, source: Positions | None = None) -> Provenance:
        """One for each element, from the first source if ``source`` does not say otherwise."""
        first = np.zeros_like(at.position)
        return cls(at, first if source is None else source, np.ones_like(at.position))

    def of(self, source: int) -> Indices:
        """The addresses of those that are from this source."""
        return self.at.where(self.source == source)


class Dropped:
    """What an elementwise operator gives for an element that it leaves out."""

    def __reduce__(self) -> str | tuple[Any, ...]:
        """There is one ``DROPPED`` in each process."""
        return "DROPPED" if self is DROPPED else super().__reduce__()


DROPPED: Final = Dropped()


@attrs.frozen(eq=False)
class Failed:
    """Takes the place of an element that could not be made, where ``on_error`` allows that."""

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


@cache
def _final_of(base: type) -> frozenset[str]:
    """The names that a class declares final."""
    written = vars(base).items()
    return frozenset(name for name, of in written if getattr(of, "__final__", False))


class NodeCache(dict[object, Any]):
    """A node's cached answers, which are not pickled with the node."""

    def __reduce__(self) -> tuple[type[NodeCache], tuple[()]]:
        return NodeCache, ()


def cached_per_node(ask: Callable[Concatenate[N, P], A]) -> Callable[Concatenate[N, P], A]:
    """Decorates a node's method, or a function below ``property``, to cache its answers per node.

    The arguments, if any, must be hashable.
    """

    @wraps(ask)
    def answer(node: N, /, *args: P.args, **named: P.kwargs) -> A:
        asked = ask, args, *named.values()
        if asked not in node._memory:
            node._memory[asked] = ask(node, *args, **named)
        found: A = node._memory[asked]
        return found

    return answer


@attrs.frozen(repr=False)
class Node(ABC, Generic[T, E]):
    """One operator of a flow, with its arguments and its sources.

    A class with arguments of its own is decorated with ``attrs.frozen``; one without needs no
    decorator. ``repr=False`` keeps the ``repr`` below, and spares attrs to make one.
    """

    adds: ClassVar[frozenset[Tag]] = frozenset()
    """The tags that this operator adds to the row, as its base class names them."""

    bounds: ClassVar[bool] = False
    """Whether the operator ends an endless flow, at a length known beforehand."""

    positional: ClassVar[bool] = False
    """Whether it chooses rows by position, which is by chance over a reordered flow."""

    shuffles: ClassVar[bool | None] = None
    """Whether it orders elements anew in each epoch; False if in one order for all epochs, None if
    its sources decide."""

    _memory: NodeCache = attrs.field(factory=lambda: NodeCache(), init=False, eq=False, repr=False)
    """Cached answers. An answer may ask the sources several times: without a cache, the cost would
    double with every operator."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.adds = _tags_written_on(cls)
        for base in cls.__mro__[1:]:
            for name in _final_of(base) & vars(cls).keys():
                raise TypeError(
                    f"{cls.__name__}.{name}: it cannot be overridden, as {base.__name__} "
                    f"declares it final: yours would not always be asked"
                )

    def __repr__(self) -> str:
        """The operator as the chain spells it, without its sources: they may be many."""
        return f"<{type(self).__name__} {self.title}>"

    @property
    @cached_per_node
    def sources(self) -> tuple[AnyNode, ...]:
        """The nodes that this one reads, in order."""
        found: list[AnyNode] = []
        for field in attrs.fields(type(self)):
            value = getattr(self, field.name)
            found += [x for x in (value if isinstance(value, tuple) else (value,)) if _is_node(x)]
        return tuple(found)

    @property
    @cached_per_node
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
        """What a saved state compares: if it differs, so do the elements; if empty, no check."""
        return self.title

    @property
    @abstractmethod
    def length(self) -> int | None:
        """How many elements a pass yields; None when it is unknown or endless."""

    @property
    def indexable(self) -> bool:
        """Whether any element can be made from its position alone."""
        return False

    @property
    def dense(self) -> bool:
        """Whether positions have no gaps, so that they number the elements."""
        return True

    @property
    def replayable(self) -> bool:
        """Whether a second pass is possible."""
        return all(source.replayable for source in self.sources)

    @abstractmethod
    def spec(self, probe: bool) -> Spec:
        """What the elements look like; with ``probe``, one is made to settle unknowns."""

    @abstractmethod
    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        """What a pass yields, in order, from passes over the sources: the operator's meaning.

        It reads ``sources``, never ``self.source``: in a run, these may be read elsewhere.
        """

    def reference(self, epoch: int) -> Iterator[Row[T]]:
        """What a pass over the flow yields, in order, in one process, with no tricks.

        Every other way to run a flow must yield this.
        """
        return self.rows(epoch, [source.reference for source in self.sources])

    def made_of(self, at: Indices) -> Provenance | None:
        """The elements of the sources that the elements at these addresses are made of.

        None for a source, and where positions alone do not tell.
        """
        del at
        return None

    def origin(self, epoch: int, position: int) -> Where:
        """The row of the source that the element at this position came from, for messages."""
        members = self.made_of(Indices.at(epoch, [position]))
        if members is None or not members.counts.any():
            return Where(f"element {position} of {self.title}")
        ends = dict.fromkeys((0, len(members.source) - 1))
        first, *last = (self._origin_of(members, k) for k in ends)
        return first.to(last[0]) if last else first

    def _origin_of(self, members: Provenance, k: int) -> Where:
        source = self.sources[int(members.source[k])]
        return source.origin(int(members.at.epoch[k]), int(members.at.position[k]))

    def failure(self, epoch: int, position: int, given: str | None = None) -> ElementError:
        """The error that names this operator and the element it was making.

        ``given`` says what it failed on, in words such as those of ``arguments.the_element``.
        """
        return ElementError(self.title, position, epoch, str(self.origin(epoch, position)), given)

    @property
    @cached_per_node
    def depth(self) -> int:
        """The number of operators up to this one, along the longest way from a source.

        It distinguishes seeded operators from each other.
        """
        return 1 + max((source.depth for source in self.sources), default=0)


AnyNode: TypeAlias = Node[Any, Effect]


def _is_node(value: object) -> TypeIs[AnyNode]:
    return isinstance(value, Node)


def with_sources(node: AnyNode, sources: tuple[AnyNode, ...]) -> AnyNode:
    """The operator, with its arguments, over other sources."""
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
        """Release what the pass holds."""
        ...


@attrs.frozen
class FlowBase(ABC, Element[T], WithEffects[E_any], Generic[T, E_any]):
    """A flow as an operator sees it: a node to build on. Third-party functions accept this type."""

    node: Node[T, E_any]

    @abstractmethod
    def __iter__(self) -> Pass[T]: ...


_surface: list[Callable[[Any], Any]] = []


def register_flow_class(surface: Callable[[AnyNode], FlowBase[Any, Any]]) -> None:
    """Called once by the layer that joins the families, so that no operator imports upwards."""
    _surface[:] = [surface]


def flow(node: Node[A, F]) -> Flow[A, F]:
    """The fluent surface over a node: what every operator's method returns.

    Raises:
        InvalidFlow: It has more elements than can be numbered.
    """
    if (node.length or 0) >= MOST_ELEMENTS:
        raise InvalidFlow(
            f"{spelled(node)}: a pass must have fewer than 2**62 elements, this one would have "
            f"{node.length}; for a pass without end write repeat()"
        )
    return _surface[0](node)  # type: ignore[no-any-return]  # the slot is untyped: Flow is above


def endless_part(node: AnyNode) -> str:
    """The operator that makes a flow endless."""
    for source in node.sources:
        if Endless in source.effects:
            return endless_part(source)
    return node.title
