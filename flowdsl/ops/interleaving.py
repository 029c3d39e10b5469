"""interleave_map: the elements of several results of a function at a time, in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

import attrs

from flowdsl.effects import Reordered, Unsized
from flowdsl.elements.specs import Spec
from flowdsl.errors import ElementError, raise_ending
from flowdsl.nodes import (
    A,
    E,
    FlowBase,
    Node,
    PassFactory,
    Retained,
    Retaining,
    Row,
    T,
    Traceable,
    TracedReader,
    U,
    at_least,
    cached_per_node,
    describe_element,
    flow,
    format_call,
    keyword_unless_default,
    name_of,
    plain_int,
    rejects_keywords,
    trace,
    validate_callable,
    with_inferred,
)
from flowdsl.ops.mapping import iterator_of_result, spec_of_items

if TYPE_CHECKING:
    from flowdsl.flow import Flow

B = TypeVar("B")


@runtime_checkable
class Closable(Protocol):
    """A generator, a run of a flow, an open file."""

    def close(self) -> object:
        """End it."""


_CYCLE = 16


@attrs.frozen(eq=False, repr=False, slots=False)
class InterleaveMap(
    Traceable[U, E | Reordered | Unsized], Retaining[U, E | Reordered | Unsized], Generic[A, U, E]
):
    """``block`` elements of each of ``cycle`` results of ``func`` in turn."""

    source: Node[A, E]
    func: Callable[[A], Iterable[U]] = attrs.field(validator=validate_callable)
    cycle: int = attrs.field(converter=plain_int, validator=at_least(1))
    block: int = attrs.field(converter=plain_int, validator=at_least(1))

    @property
    def title(self) -> str:
        cycle = keyword_unless_default("cycle", self.cycle, _CYCLE)
        block = keyword_unless_default("block", self.block, 1)
        return format_call("interleave_map", name_of(self.func), cycle, block)

    @property
    def length(self) -> None:
        return None

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return with_inferred(self, spec_of_items(self.func), probe)

    def rows_retaining(
        self, epoch: int, sources: Sequence[PassFactory], retained: Retained
    ) -> Iterator[Row[U]]:
        return enumerate(y for y, _ in self._elements(epoch, sources[0], retained))

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        read = TracedReader(sources[0], deque(maxlen=1))
        for position, (y, (_, x)) in enumerate(
            self._elements(epoch, read, Retained(), read.latest)
        ):
            yield position, trace(y, [x.places])

    def _elements(
        self,
        epoch: int,
        source: PassFactory,
        retained: Retained,
        latest: deque[Row[Any]] | None = None,
    ) -> Iterator[tuple[U, Row[Any]]]:
        """The elements, each with the row of the source that it was made from."""
        waiting = source(epoch)
        unread = 0  # the position of the next row of the source, or one before it
        slots, unused = deque[_Result[U] | None](), self.cycle  # a slot is added at its first turn
        try:
            while slots or unused:
                if unused:
                    slots.appendleft(None)
                    unused -= 1
                result = slots[0]
                if result is None:
                    row = next(waiting, None)
                    if row is None:
                        slots.popleft()
                        unused = 0
                        continue
                    result = slots[0] = _Result(self, epoch, row, latest[0] if latest else row)
                    unread = row[0] + 1
                    retained.first = _first_position(slots, unread)
                size = 0
                for y in islice(result.elements, self.block):
                    size += 1
                    yield y, result.origin
                slots.rotate(-1)
                if size < self.block:
                    slots[-1] = None  # the next result begins at the next turn of this slot
                    retained.first = _first_position(slots, unread)
        finally:
            for result in filter(None, slots):
                result.close()


class _Result(Generic[U]):
    """What ``func`` returned for an element."""

    def __init__(
        self, node: InterleaveMap[Any, U, Any], epoch: int, row: Row[Any], origin: Row[Any]
    ) -> None:
        self._node, self._epoch, self._row = node, epoch, row
        self.position = row[0]
        self.origin = origin
        self.elements = self._read()

    def close(self) -> None:
        """Close the generator that the function returned."""
        self.elements.close()

    def _read(self) -> Generator[U]:
        position, x = self._row
        elements: Iterator[U] = iter(())
        yielded = 0
        try:
            elements = iterator_of_result("interleave_map", self._node.func(x))
            for y in elements:
                yield y
                yielded += 1
        except GeneratorExit:  # the pass is closed
            if isinstance(elements, Closable):
                elements.close()
            raise
        except BaseException as error:
            origin = self._node.source.origin(self._epoch, position)
            detail = f"{describe_element(x)}, after {yielded} of its elements"
            failed = ElementError(self._node.title, position, self._epoch, origin, detail)
            raise_ending(failed, error)


def _first_position(slots: Iterable[_Result[Any] | None], unread: int) -> int:
    """The position of the first row whose result is open; ``unread`` if none is."""
    return min((result.position for result in slots if result is not None), default=unread)


class Interleaving(FlowBase[T, E]):
    """Several results of a function, interleaved."""

    @rejects_keywords(cycle_length="write cycle={n}", block_length="write block={n}")
    def interleave_map(
        self, func: Callable[[T], Iterable[B]], cycle: int = _CYCLE, block: int = 1
    ) -> Flow[B, E | Reordered | Unsized]:
        """Replace every element by the elements of ``func(element)``, several of these in turn.

        ``func`` returns a flow, a list or a generator, for example the rows of a file. ``cycle`` of
        them are open at a time and take turns, in each of which one yields ``block`` elements. In
        the place of one that has ended the next one begins, at its next turn. So rows of several
        files are near each other, for a shuffle within a buffer, and the order is always the same.

        They are read one at a time, as the consumer requests them, in the consumer's process;
        generators are closed at the end of the pass, even if the pass is ended early. A run that
        resumes reads them from the start of the pass. For flows whose rows are read by number,
        ``fl.interleave(flows)`` reads in the workers, and resumes at once.

        Length: unknown until the end of a pass.

        Effects: ``Reordered``, ``Unsized``.

        Errors: an exception of ``func`` or its iterable is raised at its place in the sequence, as
        the cause of an ``ElementError`` that names the argument of ``func`` and how many elements
        it yielded before; likewise a ``SpecMismatch`` for a result that is not iterable;
        ``InvalidFlow`` for ``cycle`` or ``block`` below 1.

        >>> import flowdsl as fl
        >>> flow = fl.from_items(["aaa", "bb", "cccc"]).interleave_map(list, cycle=2)
        >>> "".join(flow)
        'ababacccc'

        Source: ``interleave`` in tf.data.

        Elsewhere: tensorpack none; tf.data ``interleave``; Grain
        ``InterleaveIterDataset``; torchdata none.
        """
        return flow(InterleaveMap[T, B, E](self.node, func, cycle, block))
