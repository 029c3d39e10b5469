"""scan, take_while, skip_while: operators that look at the elements of a pass in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Never, TypeVar, overload

import attrs

from flowdsl.effects import Resampled, Unmoved, Unsized
from flowdsl.elements.specs import UNKNOWN, Spec, StructSpec
from flowdsl.errors import SpecMismatch, raise_with_cause
from flowdsl.nodes import (
    A,
    E,
    FlowBase,
    Indices,
    MadeFromLatest,
    Node,
    PassFactory,
    Provenance,
    Restartable,
    Restarts,
    Resumable,
    Row,
    T,
    U,
    cached_per_node,
    called_with,
    describe_element,
    flow,
    frozen_node,
    name_of,
    rejects_keywords,
    spec_of_result,
    validate_condition,
    with_inferred,
)
from flowdsl.nodes.validation import brief

if TYPE_CHECKING:
    from collections import Counter, deque

    from flowdsl.flow import Flow
    from flowdsl.ops.conditions import Truth

B = TypeVar("B")
S = TypeVar("S")
K = TypeVar("K")
V = TypeVar("V")


@frozen_node
class Scan(MadeFromLatest[U, E], Generic[A, U, E]):
    """From each element and the state before it, makes an element and the next state."""

    source: Node[A, E]
    func: Callable[[Any, A], tuple[Any, U]] = attrs.field(validator=called_with("state", "element"))
    state: Any
    """The state before the first element of a pass."""

    @property
    def title(self) -> str:
        return f"scan({name_of(self.func)})"

    @property
    @cached_per_node
    def length(self) -> int | None:
        return self.source.length

    @property
    @cached_per_node
    def positions_are_contiguous(self) -> bool:
        return self.source.positions_are_contiguous

    @property
    def looks_back(self) -> int | None:
        return 0

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        known: Spec = UNKNOWN
        result = spec_of_result(self.func)
        if isinstance(result, StructSpec) and len(result.fields) == 2:
            _, (_, known) = result.fields  # the names and specs of the state and the element
        return with_inferred(self, known, probe)

    def made_of(self, addresses: Indices) -> Provenance:
        return Provenance.one_each(addresses)

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[U]]:
        state = deepcopy(self.state)
        for position, x in sources[0](epoch):
            try:
                state, y = _pair(self.func(state, x))
            except BaseException as error:
                raise_with_cause(self.error_at(epoch, position, describe_element(x)), error)
            yield position, y


def _pair(result: tuple[S, B]) -> tuple[S, B]:
    """Return the result of a scan's function, or raise if it is not a pair."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise SpecMismatch(
            f"the function of a scan must return a tuple of the next state and an element, got "
            f"{brief(result)}"
        )
    return result


@frozen_node
class _While(MadeFromLatest[T, E], Generic[T, E]):
    """An operator that chooses by the first element for which a condition is false."""

    chooses_by_position: ClassVar[bool] = True
    source: Node[T, E]

    @property
    def length(self) -> int | None:
        return None

    @property
    def looks_back(self) -> int | None:
        return 0

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        # Also without a probe, the source's spec may come from its first element, which may be left
        # out here.
        return self.source.spec(True) if probe else UNKNOWN

    def _holds(self, condition: Callable[[A], Truth], epoch: int, position: int, x: A) -> bool:
        try:
            return bool(condition(x))
        except BaseException as error:
            raise_with_cause(self.error_at(epoch, position, describe_element(x)), error)


@frozen_node
class TakeWhile(_While[T, E | Unsized], Restartable[T, E | Unsized], Generic[T, E]):
    """The elements before the first one for which ``keep`` is false."""

    keep: Callable[[T], Truth] = attrs.field(validator=validate_condition)

    @property
    def title(self) -> str:
        return f"take_while({name_of(self.keep)})"

    @property
    @cached_per_node
    def positions_are_contiguous(self) -> bool:
        return self.source.positions_are_contiguous

    # Restartable, as a pass that has ended has read one element more than it has yielded.
    def rows_from(
        self, epoch: int, sources: Sequence[PassFactory], restarts: Restarts
    ) -> Iterator[Row[T]]:
        for position, x in restarts.before_each(sources[0])(epoch):
            if not self._holds(self.keep, epoch, position, x):
                return
            yield position, x


@frozen_node
class SkipWhile(_While[T, E | Unsized], Resumable[T, E | Unsized], Generic[T, E]):
    """The first element for which ``skip`` is false, and all elements after it."""

    skip: Callable[[T], Truth] = attrs.field(validator=validate_condition)

    @property
    def title(self) -> str:
        return f"skip_while({name_of(self.skip)})"

    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[T]]:
        rows = sources[0](epoch)
        # A resumed pass has yielded elements, so it skips no others.
        elements = (x for _, x in rows) if yielded else self._elements(epoch, rows)
        return enumerate(elements, yielded)

    def _elements(self, epoch: int, rows: Iterator[Row[T]]) -> Iterator[T]:
        for position, x in rows:
            if not self._holds(self.skip, epoch, position, x):
                yield x
                break
        yield from (x for _, x in rows)


class Scanning(FlowBase[T, E]):
    """Operators that look at the elements in order."""

    @overload  # this and the next four: mypy knows no types of an empty container's items
    def scan(
        self, func: Callable[[dict[K, V], T], tuple[dict[K, V], B]], state: dict[Never, Never]
    ) -> Flow[B, E]: ...
    @overload
    def scan(
        self, func: Callable[[Counter[V], T], tuple[Counter[V], B]], state: Counter[Never]
    ) -> Flow[B, E]: ...
    @overload
    def scan(
        self, func: Callable[[list[V], T], tuple[list[V], B]], state: list[Never]
    ) -> Flow[B, E]: ...
    @overload
    def scan(
        self, func: Callable[[set[V], T], tuple[set[V], B]], state: set[Never]
    ) -> Flow[B, E]: ...
    @overload
    def scan(
        self, func: Callable[[deque[V], T], tuple[deque[V], B]], state: deque[Never]
    ) -> Flow[B, E]: ...
    @overload
    def scan(self, func: Callable[[S, T], tuple[S, B]], state: S) -> Flow[B, E]: ...
    @rejects_keywords(initial_state="write scan(f, {})", scan_func="write scan(f, state)")
    def scan(self, func: Callable[[Any, T], tuple[Any, B]], state: Any) -> Flow[B, E]:
        """Carry a state from element to element: ``state, y = func(state, x)`` yields each ``y``.

        Every pass begins with a copy of ``state``. ``func`` may change the state that it receives;
        what it puts into an element should not change later. It runs in the consumer's process, as
        every element needs the state after the earlier elements; operators below and above may run
        in workers. After a resume the delivered elements are computed again, for their state. An
        element has the origins of ``x``; rows that are only in the state are not traced.
        ``from_zmq`` acknowledges ``x`` when its element is delivered, so a stream that continues
        with another receiver begins there with ``state``.

        Length: the source's.

        Effects: none.

        Errors: an exception of ``func`` is the cause of an ``ElementError`` that names the element;
        likewise a ``SpecMismatch`` for a result that is not a pair.

        >>> import flowdsl as fl
        >>> fl.from_items([3, 1, 4]).scan(lambda total, x: (total + x, total + x), 0).collect()
        [3, 4, 8]

        Source: ``scan`` of tf.data; ``mapAccumL`` of Haskell.

        Elsewhere: tensorpack none; tf.data ``scan``; Grain none; torchdata none.
        """
        return flow(Scan[T, B, E](self.node, func, state))

    @overload
    def take_while(
        self: FlowBase[T, Unmoved], keep: Callable[[T], Truth]
    ) -> Flow[T, E | Unsized]: ...
    @overload
    def take_while(self, keep: Callable[[T], Truth]) -> Flow[T, E | Resampled | Unsized]: ...
    @rejects_keywords(predicate="write {name}(f)")
    def take_while(self: FlowBase[Any, Any], keep: Callable[[Any], Truth]) -> Flow[Any, Any]:
        """Yield the elements before the first one for which ``keep`` returns a false value.

        A pass ends there, and reads no further element. It runs in the consumer's process.

        Length: unknown until the end of a pass.

        Effects: ``Unsized``; after a shuffle, ``Resampled``: the rows that come first are random.
        A flow that is endless keeps this effect, as ``keep`` may always be true; ``take(n)`` above
        ends it.

        Errors: as for ``filter``.

        >>> import flowdsl as fl
        >>> fl.from_items([3, 1, 4, 1]).take_while(lambda x: x < 4).collect()
        [3, 1]

        Source: ``itertools.takewhile``.

        Elsewhere: tensorpack none; tf.data ``take_while``; Grain none; torchdata none.
        """
        return flow(TakeWhile[Any, Any](self.node, keep))

    @overload
    def skip_while(
        self: FlowBase[T, Unmoved], skip: Callable[[T], Truth]
    ) -> Flow[T, E | Unsized]: ...
    @overload
    def skip_while(self, skip: Callable[[T], Truth]) -> Flow[T, E | Resampled | Unsized]: ...
    @rejects_keywords(predicate="write {name}(f)")
    def skip_while(self: FlowBase[Any, Any], skip: Callable[[Any], Truth]) -> Flow[Any, Any]:
        """Skip elements as long as ``skip`` returns a true value, and yield the rest.

        It runs in the consumer's process.

        Length: unknown until the end of a pass.

        Effects: ``Unsized``; after a shuffle, ``Resampled``: the rows that come first are random.

        Errors: as for ``filter``.

        >>> import flowdsl as fl
        >>> fl.from_items([3, 1, 4, 1]).skip_while(lambda x: x < 4).collect()
        [4, 1]

        Source: ``itertools.dropwhile``.

        Elsewhere: tensorpack none; tf.data none; Grain none; torchdata none.
        """
        return flow(SkipWhile[Any, Any](self.node, skip))
