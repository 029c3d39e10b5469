"""The description of a flow: a tree of frozen nodes.

A node has validated fields and defines the operator's meaning: the elements that a pass yields
(``rows``, the reference), their number, their spec and the effects. Its kind determines what a
planner may do with it (see ``kinds``).
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
from flowdsl.nodes.frozen import compile_bases, compile_methods, compiled
from flowdsl.nodes.validation import POSITION_LIMIT, method_name
from flowdsl.resources.any_depth import any_depth

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")
T = TypeVar("T", covariant=True)
U = TypeVar("U", covariant=True)
E = TypeVar("E", bound=Effect, covariant=True)
F = TypeVar("F", bound=Effect)
N = TypeVar("N", bound="Node[Any, Any]")
P = ParamSpec("P")
E_default = TypeVarWithDefault("E_default", bound=Effect, covariant=True, default=Effect)

Row: TypeAlias = tuple[int, A]
"""A position and an element. Positions count from 0 in every pass; a filter leaves gaps in them,
so that the element at a position is the same in every process."""

PassFactory: TypeAlias = Callable[[int], Iterator[Row[Any]]]
"""Starts the pass of an epoch over a source, and returns an iterator over its rows."""

Positions: TypeAlias = NDArray[np.int64]
"""Positions in passes, or other counts, one for each element: of shape ``(elements,)``."""


@attrs.frozen
class Indices:
    """Addresses of elements in the output of a node: an epoch and a position for each.

    Two columns of shape ``(elements,)`` and dtype ``int64``.
    """

    epoch: Positions
    """The number of each element's pass."""
    position: Positions
    """The position of each element in its pass."""

    @classmethod
    def span(cls, epoch: int, start: int, stop: int) -> Indices:
        """The addresses from ``start`` up to ``stop`` in one pass."""
        return cls.at(epoch, np.arange(start, stop, dtype=np.int64))

    @classmethod
    def at(cls, epoch: int, positions: Sequence[int] | Positions) -> Indices:
        """The addresses of ``positions`` in one pass."""
        position = np.asarray(positions, np.int64)
        return cls(np.full(len(position), epoch, np.int64), position)

    def where(self, chosen: NDArray[np.bool_]) -> Indices:
        """The addresses where ``chosen`` is True."""
        return Indices(self.epoch[chosen], self.position[chosen])

    def and_next(self, counts: Positions, step: int = 1) -> Indices:
        """For each address, it and the next ones, ``counts`` in all, ``step`` positions apart."""
        starts = np.cumsum(counts) - counts  # the index in the result of each address
        number = np.arange(counts.sum()) - np.repeat(starts, counts)  # 0, 1, ... from each start
        position = np.repeat(self.position, counts) + number * step
        return Indices(np.repeat(self.epoch, counts), position)


@attrs.frozen
class Provenance:
    """The source elements from which some elements are made, in order, with their addresses."""

    at: Indices
    """The address of each source element in its source."""
    source: Positions
    """The index of its source in the operator's ``sources``."""
    counts: Positions
    """The number of source elements in each element, of shape ``(elements,)``; ``at`` and
    ``source`` have one entry for each source element."""

    @classmethod
    def one_each(cls, addresses: Indices, source: Positions | None = None) -> Provenance:
        """One source element for each element, from the first source unless ``source`` is set."""
        if source is None:
            source = np.zeros_like(addresses.position)
        return cls(at=addresses, source=source, counts=np.ones_like(addresses.position))

    def of(self, source: int) -> Indices:
        """The addresses of the source elements that come from this source."""
        return self.at.where(self.source == source)


class Dropped:
    """The type of ``DROPPED``, which an elementwise operator returns to leave an element out."""

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle as a name, so that each process has exactly one ``DROPPED``."""
        return "DROPPED" if self is DROPPED else super().__reduce__()


DROPPED: Final = Dropped()


@attrs.frozen(eq=False)
class Failed:
    """Takes the place of an element on which an operator under ``on_error`` failed."""

    attempt: int
    """The number of the ``Attempt`` that failed: of operators under ``on_error``, from 0."""
    epoch: int
    position: int
    cause: Exception
    detail: str | None = None
    """A description of the element or group on which the operator failed."""

    def __reduce__(self) -> tuple[type[Failed], tuple[object, ...]]:
        cause = travelling(self.cause)
        return Failed, (self.attempt, self.epoch, self.position, cause, self.detail)


def _tags_written_on(cls: type) -> frozenset[Tag]:
    """The tags in the last type argument of the parent class, as in ``Node[T, E | Reordered]``."""
    for base in getattr(cls, "__orig_bases__", ()):
        origin = get_origin(base)
        if isinstance(origin, type) and issubclass(origin, Node):
            effect = get_args(base)[-1]
            tags = get_args(effect) or (effect,)
            classes = [t for t in tags if isinstance(t, type) and issubclass(t, Effect)]
            return frozenset(t for t in classes if t not in (Exact, Effect))
    return frozenset()


@cache
def _final_names(cls: type) -> frozenset[str]:
    """The names that a class declares final."""
    attributes = vars(cls).items()
    return frozenset(name for name, value in attributes if getattr(value, "__final__", False))


class NodeCache(dict[object, Any]):
    """A node's cached values, which are not pickled with the node."""

    def __reduce__(self) -> tuple[type[NodeCache], tuple[()]]:
        return NodeCache, ()


def cached_per_node(compute: Callable[Concatenate[N, P], A]) -> Callable[Concatenate[N, P], A]:
    """Decorate a node's method, or a function below ``property``, to cache its result per node.

    The arguments, if any, must be hashable.
    """
    compute_at_any_depth = any_depth(compute)

    @wraps(compute)
    def cached(node: N, /, *args: P.args, **named: P.kwargs) -> A:
        key = compute, args, tuple(named.items())
        if key not in node._memory:
            node._memory[key] = compute_at_any_depth(node, *args, **named)
        result: A = node._memory[key]
        return result

    return cached


@attrs.frozen(eq=False, repr=False, slots=False)
class Node(ABC, Generic[T, E]):
    """One operator of a flow, with its arguments and its sources.

    A class with arguments of its own is decorated with ``attrs.frozen``, and in flowdsl with
    ``frozen_node``; other classes need no decorator. With ``eq=False`` and ``repr=False`` it keeps
    the methods of this class. A field with the same name as a property of a parent class needs
    ``slots=True``; otherwise the property would hide it. A field for data, such as an array, is
    compared by identity: ``attrs.field(eq=id)``.
    """

    adds: ClassVar[frozenset[Tag]] = frozenset()
    """The effect tags that this operator adds, taken from the type arguments of its base class."""

    bounds: ClassVar[bool] = False
    """True if the operator ends an endless flow, at a length known beforehand."""

    chooses_by_position: ClassVar[bool] = False
    """True if it chooses rows by position. Over a reordered flow, that choice is random."""

    order_varies_by_epoch: ClassVar[bool | None] = None
    """True if each epoch has its own order, as after ``shuffle``; False if all epochs have the same
    order, as after ``cache``; None if that depends on the sources."""

    resume_advice: ClassVar[str] = ""
    """Advice for a flow that has no state because it is ``in_any_order``."""

    draws: ClassVar[bool] = False
    """True if its elements depend on the epoch, as the elements of ``random_map`` do."""

    _memory: NodeCache = attrs.field(factory=lambda: NodeCache(), init=False, eq=False, repr=False)
    """Cached properties. A property may read its sources' properties several times: without a
    cache, the cost would double with every operator."""

    if not TYPE_CHECKING:  # type checkers read the arguments from ``__init__``

        def __new__(cls, *args, **kwargs):
            if cls not in compiled:
                compile_methods(cls)
            return super().__new__(cls)

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.__module__.startswith("flowdsl."):
            compile_bases(cls)  # attrs is about to read their fields
        cls.adds = _tags_written_on(cls)
        for parent in filter(_final_names, cls.__mro__[1:]):
            for name in _final_names(parent) & vars(cls).keys():
                raise TypeError(
                    f"{cls.__name__}.{name}: it cannot be overridden, as {parent.__name__} "
                    f"declares it final: an override would not always be called"
                )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node) or type(other) is not type(self):
            return NotImplemented
        return self is other or _compared(self) == _compared(other)

    def __hash__(self) -> int:
        return hash((type(self), *_compared(self)))

    def __repr__(self) -> str:
        """The operator as it is written in a chain, without its sources, which may be many."""
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
        """The effects of a pass on the source rows: the type's second parameter, at run time."""
        return self.combined_effects()

    def combined_effects(self) -> frozenset[Tag]:
        """Combine the effects of the sources with the operator's own.

        An operator that removes an effect overrides this, and not ``effects``, which is cached.
        """
        inherited = frozenset[Tag]().union(*(source.effects for source in self.sources))
        if self.bounds and Endless in inherited:
            inherited -= {Endless, Unsized}
        if self.chooses_by_position and Reordered in inherited:
            inherited |= {Resampled}
        return inherited | self.adds

    @property
    @abstractmethod
    def title(self) -> str:
        """The operator as written in a chain, e.g. ``batch(32)``: one line, ``...`` for flows."""

    @property
    def note(self) -> str | None:
        """A note for ``explain()`` on elements that the operator loses or repeats, else None.

        It continues the title, as in "leaves out 1 of 7 elements of each pass".
        """
        return None

    @property
    def fingerprint(self) -> str:
        """Identifies the operator in a saved state; a flow resumes only if fingerprints are equal.

        Fingerprints differ if the elements differ. If one is empty, the operator is not compared.
        """
        return self.title

    @property
    @abstractmethod
    def length(self) -> int | None:
        """The number of elements in a pass; None when it is unknown or endless."""

    @property
    def indexable(self) -> bool:
        """True if any element can be computed from its position alone."""
        return False

    @property
    def positions_are_contiguous(self) -> bool:
        """True if positions have no gaps, so that they number the elements; not after a filter."""
        return True

    @property
    def in_any_order(self) -> bool:
        """True if its passes may differ, even in the same epoch, so that a run has no state."""
        return False

    @property
    def looks_back(self) -> int | None:
        """The number of the latest source elements that may still be used for later elements.

        None if any element read so far may be used. A source of messages acknowledges a row when
        every element made from it has been delivered, and no later one can be made from it.
        """
        return None

    @property
    @cached_per_node
    def varies_by_epoch(self) -> bool:
        """True if the elements, or their order, may differ between epochs."""
        if self.order_varies_by_epoch is False:
            return False
        varies = self.draws or self.order_varies_by_epoch is True
        return varies or any(source.varies_by_epoch for source in self.sources)

    @property
    @cached_per_node
    def replayable(self) -> bool:
        """True if a second pass is possible."""
        return all(source.replayable for source in self.sources)

    @abstractmethod
    def spec(self, probe: bool) -> Spec:
        """The spec of the elements.

        With ``probe``, one element is computed to learn what the nodes do not declare; without,
        such parts are ``UNKNOWN``.
        """

    @abstractmethod
    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        """Yield the rows of a pass, in order, from passes over the sources.

        This defines the operator's meaning. It reads ``sources``, never ``self.source``: in a run,
        the sources may be read in another process.
        """

    def reference(self, epoch: int) -> Iterator[Row[T]]:
        """Yield the rows of a pass over the flow, in order, in one process, without optimizations.

        Every other way to run a flow must yield the same rows.
        """
        return self.rows(epoch, [source.reference for source in self.sources])

    def made_of(self, addresses: Indices) -> Provenance | None:
        """The source elements from which the elements at these addresses are made.

        None for a source, and where positions alone do not determine them.
        """
        del addresses
        return None

    @any_depth
    def origin(self, epoch: int, position: int) -> Where:
        """The source row from which the element at this position was made, for messages."""
        members = self.made_of(Indices.at(epoch, [position]))
        if members is None or not members.counts.any():
            return Where(f"element {position} of {self.title}")
        first = self._origin_of(members, 0)
        if len(members.source) == 1:  # twice the work in every operator would be 2**depth
            return first
        return first.to(self._origin_of(members, -1))

    def _origin_of(self, members: Provenance, k: int) -> Where:
        """The source row from which member ``k`` was made."""
        source = self.sources[int(members.source[k])]
        return source.origin(int(members.at.epoch[k]), int(members.at.position[k]))

    def error_at(self, epoch: int, position: int, detail: str | None = None) -> ElementError:
        """The error that names this operator and the element on which it failed.

        ``detail`` describes that element, as ``validation.describe_element`` does.
        """
        return ElementError(self.title, position, epoch, self.origin(epoch, position), detail)

    @property
    @cached_per_node
    def depth(self) -> int:
        """The number of operators up to this one, on the longest path from a source.

        It distinguishes seeded operators from each other.
        """
        return 1 + max((source.depth for source in self.sources), default=0)


AnyNode: TypeAlias = Node[Any, Effect]


def _compared(node: AnyNode) -> list[object]:
    """The values of the fields that make two nodes of one class equal."""
    fields = (field for field in attrs.fields(type(node)) if field.eq)
    values = ((getattr(node, field.name), field.eq_key) for field in fields)
    return [value if key is None else key(value) for value, key in values]


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


# -- the base class of Flow ------------------------------------------------------------------------


class Pass(Iterator[T], Protocol[T]):
    """An iterator over one pass, which can be closed early."""

    def close(self) -> None:
        """Release the resources of the pass."""
        ...


@attrs.frozen(repr=False)
class FlowBase(ABC, Element[T], WithEffects[E_default], Generic[T, E_default]):
    """A flow as operators use it: it has a node. Third-party functions accept this type."""

    node: Node[T, E_default]

    @abstractmethod
    def __iter__(self) -> Pass[T]: ...

    @abstractmethod
    def epoch(self, k: int) -> Pass[T]:
        """The ``k``-th pass."""

    @abstractmethod
    def at(self, position: int, epoch: int = 0) -> T:
        """The element at a position of a pass."""


_make_flow: Callable[[Any], Any]


def register_flow_class(make_flow: Callable[[AnyNode], FlowBase[Any, Any]]) -> None:
    """Set the function that makes a ``Flow``, so that operators do not import the layers above.

    The module that defines ``Flow`` calls it, once.
    """
    global _make_flow
    _make_flow = make_flow


def flow(node: Node[A, F]) -> Flow[A, F]:
    """Return the ``Flow`` of a node; the method of every operator ends with this call.

    Raises:
        InvalidFlow: It has more elements than can be numbered.
    """
    if (node.length or 0) >= POSITION_LIMIT:
        raise InvalidFlow(
            f"{method_name(node)}: a pass must have fewer than 2**62 elements, but this one would "
            f"have {node.length}; for an endless pass use repeat()"
        )
    return _make_flow(node)  # type: ignore[no-any-return]  # untyped: Flow is in a layer above


@any_depth
def endless_part(node: AnyNode) -> str:
    """The operator that makes a flow endless."""
    for source in node.sources:
        if Endless in source.effects:
            return endless_part(source)
    return node.title
