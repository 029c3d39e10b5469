"""A program: the operators of a stage, run for the elements at some addresses.

An address is an epoch and a position (``Indices``). A base is an input of a program: rows supplied
from outside.

The same code runs in a worker and in the consumer's thread, so an element does not depend on where
it is computed. First, addresses are resolved from the last operator down to the sources, a block at
a time, with arrays. Then elements are computed from the sources up, one at a time and on demand.
Resolving one address at a time would cost more than most functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from operator import length_hint
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.preallocated import Allocate, BatchRows, NextRow
from flowdsl.elements.read_only import read_only
from flowdsl.errors import ElementError
from flowdsl.executor.codegen import LEAVES_OUT, NO_ATTEMPT, Form, Line, Path, elements
from flowdsl.executor.costs import add_costs
from flowdsl.nodes import (
    AnyNode,
    Dropped,
    Elementwise,
    Expecting,
    Failed,
    Identity,
    IndexedSource,
    IndexTransform,
    Indices,
    Joining,
    Merging,
    Positions,
    ReadsInPlace,
    Row,
    Windowed,
    cached_per_node,
    describe_group,
)
from flowdsl.nodes.failures import Attempt, AttemptToRead, SkipFailed
from flowdsl.plan.plan import Base
from flowdsl.plan.supplied import Supplied
from flowdsl.resources.any_depth import any_depth


class OperatorFailed(Exception):
    """An operator raised ``__cause__``. This error never leaves the runtime."""

    def __init__(self, path: Path, epoch: int, position: int, detail: str | None = None) -> None:
        """``path`` leads to the operator that failed; ``detail`` describes the failing element."""
        super().__init__(path, epoch, position, detail)
        self.path = path
        self.epoch = epoch
        self.position = position
        self.detail = detail


class InputExhausted(Exception):
    """A program needs a row that could not be supplied. This error never leaves the runtime."""

    def __init__(self, slot: int) -> None:
        """``slot`` is the number of the base that lacks the row."""
        super().__init__(slot)
        self.slot = slot


@attrs.frozen
class TruncatedInput:
    """The rows of a base up to a row that failed: reading that row raises ``InputExhausted``.

    So the program raises the first failure: of this base, of another base, or of its own.
    """

    rows: Sequence[Any]
    slot: int

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Any]:
        yield from self.rows
        raise InputExhausted(self.slot)


Supply: TypeAlias = list[Iterator[Any]]
"""For each base, the rows that are not used yet."""


@attrs.define
class Program:
    """The operators of a stage in one process, with the readers that they have open."""

    root: AnyNode
    allocate: Allocate | None = None
    time_operators: bool = False
    """True to time each operator's own work (see ``costs``)."""
    error: Callable[[Path, int, int, str | None], Exception] = OperatorFailed
    """Creates the exception for an operator that fails, from its path, the epoch, the position and
    the description of the failing element."""
    filtered: int = attrs.field(default=0, init=False)
    """The number of elements that operators have left out."""
    costs: dict[Path, tuple[int, float]] = attrs.field(
        factory=dict[Path, tuple[int, float]], init=False
    )
    """The calls of each operator, and the seconds of its own work, if operators are timed."""
    _readers: dict[Path, Callable[..., Any]] = attrs.field(factory=dict[Path, Any], init=False)
    _expecting: dict[Path, Expecting] = attrs.field(factory=dict[Path, Expecting], init=False)
    """The readers that are to learn which rows are read next; asking each loop would cost more."""
    _next_rows: dict[Path, NextRow] = attrs.field(factory=dict[Path, NextRow], init=False)
    """The next rows of the batches that the sources at these paths are read for."""
    _positions: Iterator[int] | None = attrs.field(default=None, init=False)
    """The positions that the final loop has not read yet; None before it starts."""
    _outermost: list[AnyNode] = attrs.field(init=False)
    """The operators whose output leaves the program: only their arrays use ``allocate``."""

    def __attrs_post_init__(self) -> None:
        self._outermost = _outermost(self.root)

    @property
    def drops(self) -> bool:
        """True if it may yield fewer elements than there are addresses."""
        node = self.root
        while isinstance(node, Elementwise):
            if node.drops:
                return True
            node = node.source
        return False

    def rows(
        self, addresses: Indices, supplied: Sequence[Iterable[Any]] = ()
    ) -> Iterator[Row[Any]]:
        """Compute the elements at these addresses, in their order, with their positions.

        ``supplied`` holds one iterable per base: the input elements, in the order in which they are
        used (see ``rows_needed``).

        Raises:
            OperatorFailed: At the position of the element that failed; or the result of ``error``.
            InputExhausted: A row is needed that a ``TruncatedInput`` lacks.
            SourceError: A source can no longer be opened.
        """
        if self.drops:
            return self._elements(
                self.root, addresses, list(map(iter, supplied)), path=(), with_positions=True
            )
        return zip(addresses.position.tolist(), self.elements(addresses, supplied), strict=False)

    def elements(self, addresses: Indices, supplied: Sequence[Iterable[Any]] = ()) -> Iterator[Any]:
        """Compute the elements at these addresses without their positions, which is cheaper."""
        return self._elements(self.root, addresses, list(map(iter, supplied)), path=())

    def close(self) -> None:
        """Release the readers of the sources, and with them their files."""
        self._readers.clear()
        self._expecting.clear()

    @property
    def remaining(self) -> int | None:
        """The number of requested addresses that are still to be computed; None if unknown."""
        return None if self._positions is None else length_hint(self._positions)

    def on_loop_start(self, positions: Iterator[int], path: Path) -> None:
        """Remember the position iterator of the final loop.

        So ``remaining`` can report how many positions remain.
        """
        if not path:  # the loop ends in the program's last operator
            self._positions = positions

    def left_out(self, x: Dropped | Failed, path: Path) -> None:
        """Count an element that the operator at ``path`` left out, or its failure."""
        self.filtered += 1

    @any_depth
    def _elements(
        self,
        node: AnyNode,
        addresses: Indices,
        supplied: Supply,
        path: Path,
        with_positions: bool = False,
    ) -> Iterator[Any]:
        """Run the chain of one-element operators above a source as one loop.

        The chain may also begin above a batching, joining or merging operator.
        """
        if not len(addresses.position):
            return iter(())
        output_addresses, lines = addresses, list[Line]()
        loop_input: Iterator[Any] | None
        while True:
            below = (*path, 0)
            if isinstance(node, Elementwise):
                owner, number = _line_owner(node)
                lines.append(Line(path, addresses, partial(getattr, owner), _form(node), number))
            elif isinstance(node, IndexTransform):
                addresses = node.resolve(addresses)
                if node.repeats_elements:
                    source_at, is_new = without_repeats(addresses)
                    once = self._elements(node.source, source_at, supplied, below)
                    loop_input = map(read_only, _repeat_elements(once, is_new.tolist()))
                    break
            else:
                loop_input, first = self._loop_input(node, addresses, supplied, path)
                lines += [first] if first is not None else []
                break
            node, path = node.source, below
        if not lines:
            assert loop_input is not None
            return loop_input
        lines.reverse()
        return elements(
            lines,
            loop_input,
            self,
            outputs=output_addresses if with_positions else None,
            time_operators=self.time_operators,
        )

    def _loop_input(
        self, node: AnyNode, addresses: Indices, supplied: Supply, path: Path
    ) -> tuple[Iterator[Any] | None, Line | None]:
        """Return the loop's input iterator, and the first line of its code, if any.

        Without an input iterator (None), the loop iterates over positions.
        """
        if isinstance(node, IndexedSource):
            source: IndexedSource[Any] = node
            number, attempted = NO_ATTEMPT, isinstance(node, AttemptToRead)
            if isinstance(node, AttemptToRead):
                source, number = node.attempted.node, node.number
            value_of = partial(self._value_in_line, source, path, addresses)
            form = Form(source.loop_line, attempted=attempted)
            return None, Line(path, addresses, value_of, form, number, describe=None)
        if isinstance(node, Windowed):
            views = self._views_of(node, path)
            if views is not None:
                viewed = self._viewed(node, views, addresses, supplied, path)
                # A line without effect: the loop around it counts the positions. If operators are
                # timed, it has no code, as ``_viewed`` counts its calls.
                form = Form("" if self.time_operators else "pass")
                return viewed, Line(path, addresses, lambda _: None, form)
            return self._grouped(node, addresses, supplied, path)
        if isinstance(node, Joining):
            inputs = [
                self._elements(part, addresses, supplied, (*path, k))
                for k, part in enumerate(node.parts)
            ]
            return zip(*inputs, strict=True), Line(
                path, addresses, lambda _: node.join, describe=describe_group
            )
        if isinstance(node, Merging):
            part_numbers, source_at = node.resolve(addresses)
            inputs = [
                self._elements(part, source_at.where(part_numbers == k), supplied, (*path, k))
                for k, part in enumerate(node.parts)
            ]
            return map(next, [inputs[k] for k in part_numbers.tolist()]), None
        assert isinstance(node, Supplied), f"{node.title} cannot run in a program"
        return supplied[node.slot], None

    def _views_of(
        self, node: Windowed[Any, Any, Any], path: Path
    ) -> Callable[[int, int], Any] | None:
        """The function that reads whole results of the operator, opened once; None without one.

        The reader of single rows is opened with it: later, the file could be another one.
        """
        if path not in self._readers:
            views = node.open_views()
            if views is None:
                return None
            self._readers[path] = views
            source, below = node.source, (*path, 0)
            while isinstance(source, IndexTransform):
                source, below = source.source, (*below, 0)
            if isinstance(source, IndexedSource):
                self._reader_of(source, below)
        return self._readers[path]

    def _viewed(
        self,
        node: Windowed[Any, Any, Any],
        views: Callable[[int, int], Any],
        addresses: Indices,
        supplied: Supply,
        path: Path,
    ) -> Iterator[Any]:
        """Yield results that are read as wholes; from the first that cannot be, made of rows."""
        pairs = zip(addresses.epoch.tolist(), addresses.position.tolist(), strict=True)
        for k, (epoch, i) in enumerate(pairs):
            began = perf_counter()
            x = views(epoch, i)
            if x is None:
                rest = addresses.where(np.arange(len(addresses.position)) >= k)
                groups, line = self._grouped(node, rest, supplied, path)
                yield from elements(
                    [line], groups, self, outputs=None, time_operators=self.time_operators
                )
                return
            if self.time_operators:
                add_costs(self.costs, {path: (1, perf_counter() - began)})
            yield x

    def _grouped(
        self, node: Windowed[Any, Any, Any], addresses: Indices, supplied: Supply, path: Path
    ) -> tuple[Iterator[list[Any]], Line]:
        """Return the groups of rows, and the line that makes an element of each group."""
        allocate = self.allocate if any(node is other for other in self._outermost) else None
        gather = partial(node.gather, allocate=allocate)
        line = Line(path, addresses, lambda _: gather, describe=describe_group)
        return self._groups(node, addresses, supplied, path, allocate), line

    def _groups(
        self,
        node: Windowed[Any, Any, Any],
        addresses: Indices,
        supplied: Supply,
        path: Path,
        allocate: Allocate | None,
    ) -> Iterator[list[Any]]:
        members = members_of(node, addresses)
        next_row = NextRow()
        self._announce(next_row, node.source, (*path, 0))
        rows = self._elements(node.source, members.rows, supplied, (*path, 0))
        if node.shares:  # once for each row, so that one pickle has each array once
            rows = map(read_only, rows)
        last = dict[int, list[Any]]()  # the last group of each phase
        groups = (members.phase, members.new, members.shared)
        for phase, new, shared in zip(*(each.tolist() for each in groups), strict=True):
            # If operators are timed, rows are not stacked as they arrive: the stacking time must be
            # charged to this operator, not to the ones below it.
            group = [] if self.time_operators else node.group(shared + new, allocate)
            if isinstance(group, BatchRows):
                group.next_row = next_row
            before = last[phase] if shared else []
            group.extend(chain(before[len(before) - shared :], islice(rows, new)))
            if not group or (node.drop_remainder and len(group) < node.n):
                return  # a stream ended
            yield group
            if node.shares:
                last[phase] = list(group)

    def _announce(self, next_row: NextRow, node: AnyNode, path: Path) -> None:
        """Let the sources read rows directly into a batch, if no function sees them before.

        Not below an operator that repeats elements: an element may be in two batches, and a
        function that changes the first batch would change it in the second.
        """
        while isinstance(node, Identity) or (
            isinstance(node, IndexTransform) and not node.repeats_elements
        ):
            node, path = node.source, (*path, 0)
        if isinstance(node, Merging):
            for k, part in enumerate(node.parts):
                self._announce(next_row, part, (*path, k))
        elif isinstance(node, IndexedSource):
            self._next_rows[path] = next_row

    def _value_in_line(
        self, node: IndexedSource[Any], path: Path, addresses: Indices, name: str
    ) -> Any:
        """The value of a name in the line of a source."""
        if name != "open":
            return getattr(node, name)
        read = self._reader_of(node, path)
        reader: object = read
        if path in self._next_rows and isinstance(reader, ReadsInPlace):
            reader.next_row = self._next_rows[path]
        if path in self._expecting:
            self._expecting[path].expect(addresses.position.tolist())
        return read

    def _reader_of(self, node: IndexedSource[Any], path: Path) -> Callable[[int], Any]:
        """The reader of a source's rows, opened once."""
        if path not in self._readers:
            self._readers[path] = node.open()
            opened: object = self._readers[path]
            if isinstance(opened, Expecting):
                self._expecting[path] = opened
        return self._readers[path]


@cached_per_node
def _form(node: Elementwise[Any, Any, Any]) -> Form:
    """The form of an operator in a loop."""
    if isinstance(node, SkipFailed):
        return LEAVES_OUT
    if isinstance(node, Attempt):
        return Form(node.attempted.node.loop_line, node.drops, attempted=True)
    return Form(node.loop_line, node.drops)


def _line_owner(node: Elementwise[Any, Any, Any]) -> tuple[AnyNode, int]:
    """The operator whose attributes the line names, and its number if it is attempted.

    Not cached on the node: for most nodes the result contains the node itself, a reference cycle.
    """
    return (node.attempted.node, node.number) if isinstance(node, Attempt) else (node, NO_ATTEMPT)


@any_depth
def _outermost(node: AnyNode) -> list[AnyNode]:
    """The operators that make the output of a program: others only move their elements."""
    if isinstance(node, IndexTransform | Merging | Joining):
        return [*chain.from_iterable(map(_outermost, node.sources))]
    return [node]


def without_repeats(addresses: Indices) -> tuple[Indices, NDArray[np.bool_]]:
    """The addresses without consecutive duplicates, and a mask of the kept addresses."""
    is_new = np.ones(len(addresses.position), np.bool_)
    is_new[1:] = (np.diff(addresses.position) != 0) | (np.diff(addresses.epoch) != 0)
    return addresses.where(is_new), is_new


def _repeat_elements(elements: Iterator[Any], is_new: list[bool]) -> Iterator[Any]:
    """Yield an element for each flag: the next element if it is true, else the last one again."""
    element: Any = None
    for new in is_new:
        if new:
            element = next(elements)
        yield element


class Members(NamedTuple):
    """The rows that some groups are made of."""

    rows: Indices
    """Their addresses, in the order in which the groups need them."""
    new: Positions
    """The number of rows that each group adds."""
    shared: Positions
    """The number of rows that it shares with the previous group of its phase."""
    phase: Positions
    """The position of its first row, modulo the dilation: only groups of one phase share rows."""


def members_of(node: Windowed[Any, Any, Any], addresses: Indices) -> Members:
    """The rows in these groups; the last groups of a pass may have fewer than ``n``."""
    first, sizes = addresses.position * node.stride, node.sizes(addresses)
    phase, shared = first % node.dilation, np.zeros_like(sizes)
    if node.shares:
        order = np.argsort(phase, kind="stable")  # the groups of each phase, as they are read
        # How many rows after the previous group each group begins, and how many both have.
        distance = np.diff(first[order]) // node.dilation
        in_both = sizes[order][:-1] - distance
        overlap = (np.diff(phase[order]) == 0) & (np.diff(addresses.epoch[order]) == 0)
        overlap &= (distance >= 0) & (in_both > 0)
        shared[order[1:][overlap]] = in_both[overlap]
    new, first = sizes - shared, first + shared * node.dilation
    rows = Indices(addresses.epoch, first).and_next(new, node.dilation)
    return Members(rows, new, shared, phase)


@any_depth
def rows_needed(node: AnyNode, addresses: Indices) -> dict[int, Indices]:
    """For each base, the addresses of the rows needed for the elements at these addresses."""
    if isinstance(node, Supplied):
        return {node.slot: addresses}
    if isinstance(node, Merging):
        part_numbers, source_at = node.resolve(addresses)
        inputs = [
            rows_needed(part, source_at.where(part_numbers == k))
            for k, part in enumerate(node.parts)
        ]
    elif isinstance(node, Windowed):
        inputs = [rows_needed(node.source, members_of(node, addresses).rows)]
    elif isinstance(node, IndexTransform):
        source_at = node.resolve(addresses)
        inputs = [
            rows_needed(
                node.source, without_repeats(source_at)[0] if node.repeats_elements else source_at
            )
        ]
    else:
        inputs = [rows_needed(source, addresses) for source in node.sources]
    return {slot: base_at for bases in inputs for slot, base_at in bases.items()}


def element_error(
    part: Base, path: Path, epoch: int, position: int, detail: str | None = None
) -> ElementError:
    """The error that names the operator that failed and the source row of its element."""
    return part.top.at(path).node.error_at(epoch, position, detail)
