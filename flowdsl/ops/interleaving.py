"""interleave_map: the results of a function for several elements at a time, read in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

import attrs

from flowdsl.effects import Reordered, Unsized
from flowdsl.elements.specs import Spec
from flowdsl.errors import ElementError, raise_with_cause
from flowdsl.nodes import (
    ELEMENTS_PER_RESTART,
    A,
    E,
    FlowBase,
    Node,
    PassFactory,
    Restartable,
    Restarts,
    Retained,
    Retaining,
    Row,
    T,
    Traceable,
    TracedReader,
    U,
    at_least,
    cached_per_node,
    called_with,
    describe_element,
    flow,
    format_call,
    frozen_node,
    keyword_unless_default,
    name_of,
    plain_int,
    rejects_keywords,
    trace,
    with_inferred,
)
from flowdsl.ops.mapping import iterator_of_result, spec_of_items
from flowdsl.ops.packed_numbers import packed, unpacked
from flowdsl.ops.sizing import Skip

if TYPE_CHECKING:
    from flowdsl.flow import Flow

B = TypeVar("B")


@runtime_checkable
class Closable(Protocol):
    """A generator, a run of a flow, an open file, or anything else with ``close``."""

    def close(self) -> object:
        """Release what it uses."""


_CYCLE = 16
"""The number of results that are open at a time, unless ``cycle`` is given."""


@frozen_node
class InterleaveMap(
    Traceable[U, E | Reordered | Unsized],
    Restartable[U, E | Reordered | Unsized],
    Retaining[U, E | Reordered | Unsized],
    Generic[A, U, E],
):
    """``block`` elements of each of ``cycle`` results of ``func`` in turn."""

    source: Node[A, E]
    func: Callable[[A], Iterable[U]] = attrs.field(validator=called_with("element"))
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
        rows = Restarts().marked(sources[0], epoch)
        return enumerate(y for y, _ in _Turns(self, epoch, rows, retained).elements())

    def rows_from(
        self, epoch: int, sources: Sequence[PassFactory], restarts: Restarts
    ) -> Iterator[Row[U]]:
        restarts.note(restarts.mark(), restarts.yielded, restarts.offset)
        turns = _Turns(self, epoch, restarts.marked(sources[0], epoch), Retained())
        return enumerate((y for y, _ in turns.elements(restarts)), restarts.yielded)

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        read = TracedReader(sources[0], deque(maxlen=1))
        rows = Restarts().marked(read, epoch)
        turns = _Turns(self, epoch, rows, Retained(), read.latest)
        for position, (y, (_, x)) in enumerate(turns.elements()):
            yield position, trace(y, [x.places])


_MOST_BYTES = 150
"""A limit of the bytes for the open results in a state: enough for a cycle of about 50."""


@attrs.define(eq=False)
class _Turns(Generic[A, U]):
    """A pass: the results that are open, each in a slot, and the slots in the order of their turns.

    The problem: which results are open, and how far each has come, depends on all earlier elements.
    To resume without computing these again, a state has for each slot the number of the row from
    which its result was made, and how many elements it has yielded. The pass begins again at the
    first of these rows. Each result is made again, and skips what it has yielded; this costs
    nothing if the result is a flow whose rows are read by number.
    """

    node: InterleaveMap[A, U, Any]
    epoch: int
    rows: Iterator[tuple[object, Row[A]]]
    """The rows of the source, each with the mark from before it was read."""
    retained: Retained
    latest: deque[Row[Any]] | None = None
    """Has the last row with its places, if rows are traced."""
    read: int = attrs.field(default=0, init=False)
    """The number of rows that were read since the pass began, or began again."""
    unused: int = attrs.field(init=False)
    """The number of slots that have had no turn yet; a slot is added at its first turn."""
    slots: deque[_Result[U] | None] = attrs.field(factory=deque[Any], init=False)
    """The slots, the one with the next turn first; None if its next result is not made yet."""
    open: dict[int, _Result[U]] = attrs.field(factory=dict[int, Any], init=False)
    """The open results by the number of their row, in this order."""

    def __attrs_post_init__(self) -> None:
        self.unused = self.node.cycle

    def elements(self, restarts: Restarts | None = None) -> Iterator[tuple[U, Row[Any]]]:
        """Yield the elements, each with the row of the source that it was made from."""
        slots, block, since_note = self.slots, self.node.block, 0
        try:
            if restarts is not None and restarts.offset:
                self._begin_again(restarts.offset)
            while slots or self.unused:
                if restarts is not None and since_note >= ELEMENTS_PER_RESTART:
                    self._note(restarts)
                    since_note = 0
                if self.unused:
                    slots.appendleft(None)
                    self.unused -= 1
                result = slots[0]
                if result is None:
                    result = slots[0] = self._next_result()
                    if result is None:  # the source has ended: no slot is needed for more
                        slots.popleft()
                        self.unused = 0
                        continue
                size = 0
                for y in islice(result.elements, block):
                    size += 1
                    yield y, result.origin
                since_note += size
                slots.rotate(-1)
                if size < block:
                    slots[-1] = None  # the next result begins at the next turn of this slot
                    del self.open[result.number]
                    self.retained.release(result.position)
        finally:
            for result in self.open.values():
                result.close()

    def _next_result(self, skipped: int = 0) -> _Result[U] | None:
        """Return what the function returns for the next row; None if the source has ended."""
        marked_row = next(self.rows, None)
        if marked_row is None:
            return None
        mark, row = marked_row
        origin = self.latest[0] if self.latest else row
        result = _Result(self.node, self.epoch, row, origin, self.read, mark, skipped)
        self.open[self.read] = result
        self.read += 1
        return result

    def _note(self, restarts: Restarts) -> None:
        """Note the open results, unless they are too many for a state."""
        # At least a byte for each slot, and another for each result.
        if len(self.slots) + len(self.open) > _MOST_BYTES:
            return
        oldest = next(iter(self.open.values()), None)
        first = self.read if oldest is None else oldest.number
        numbers = [self.unused, self.read - first]
        for result in self.slots:
            # 0 stands for a slot without a result, so the number of a row counts from 1.
            numbers += [0] if result is None else [1 + result.number - first, result.yielded]
        if (offset := packed(numbers)).bit_length() <= 8 * _MOST_BYTES:
            mark = restarts.mark() if oldest is None else oldest.mark
            restarts.note(mark, offset=offset)

    def _begin_again(self, offset: int) -> None:
        """Open the results that ``_note`` noted, and read the other rows between them."""
        numbers = iter(unpacked(offset))
        self.unused, count = next(numbers), next(numbers)
        slot_of, yielded_of = dict[int, int](), dict[int, int]()
        for number in numbers:
            if number:
                slot_of[number - 1], yielded_of[number - 1] = len(self.slots), next(numbers)
            self.slots.append(None)
        for number in range(count):
            if number in slot_of:
                self.slots[slot_of[number]] = self._next_result(yielded_of[number])
            elif next(self.rows, None) is not None:
                self.read += 1


class _Result(Generic[U]):
    """The result of ``func`` for an element."""

    def __init__(
        self,
        node: InterleaveMap[Any, U, Any],
        epoch: int,
        row: Row[Any],
        origin: Row[Any],
        number: int,
        mark: object,
        skipped: int,
    ) -> None:
        self._node, self._epoch, self._row = node, epoch, row
        self.position = row[0]
        self.origin, self.number, self.mark = origin, number, mark
        self.yielded = skipped
        self.elements = self._read()

    def close(self) -> None:
        """Close the generator that the function returned."""
        self.elements.close()

    def _read(self) -> Generator[U]:
        position, x = self._row
        elements: Iterator[U] = iter(())
        try:
            result = self._node.func(x)
            if self.yielded and isinstance(result, FlowBase):
                elements = iter(flow(Skip[U, Any](result.node, self.yielded)))
            else:
                elements = iterator_of_result("interleave_map", result)
                for _ in islice(elements, self.yielded):
                    pass
            for y in elements:
                self.yielded += 1
                yield y
        except GeneratorExit:  # the pass is closed
            if isinstance(elements, Closable):
                elements.close()
            raise
        except BaseException as error:
            origin = self._node.source.origin(self._epoch, position)
            detail = f"{describe_element(x)}, after {self.yielded} of its elements"
            failed = ElementError(self._node.title, position, self._epoch, origin, detail)
            raise_with_cause(failed, error)


class Interleaving(FlowBase[T, E]):
    """Several results of a function, interleaved."""

    @rejects_keywords(cycle_length="write cycle={n}", block_length="write block={n}")
    def interleave_map(
        self, func: Callable[[T], Iterable[B]], cycle: int = _CYCLE, block: int = 1
    ) -> Flow[B, E | Reordered | Unsized]:
        """Replace every element by the elements of ``func(element)``, several of these in turn.

        ``func`` returns a flow, a list or a generator, for example the rows of a file. ``cycle`` of
        these results are open at a time and take turns; in each turn, one yields ``block``
        elements. When a result has ended, the next one begins at its turn. So rows of several files
        are near each other, for a shuffle within a buffer, and the order is always the same.

        Elements are read one at a time, as the consumer requests them, in the consumer's process;
        generators are closed at the end of the pass, even if the pass is ended early. A run that
        resumes opens again the results that were open, and skips what they have yielded: at once if
        they are flows whose rows are read by number. A state does not know what ``func`` reads, so
        it must not have changed. For such flows, ``fl.interleave(flows)`` also reads in the
        workers.

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

        Elsewhere: tensorpack none; tf.data ``interleave``; Grain ``InterleaveIterDataset``;
        torchdata none.
        """
        return flow(InterleaveMap[T, B, E](self.node, func, cycle, block))
