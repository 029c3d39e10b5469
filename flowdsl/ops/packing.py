"""pack: put several sequences into each row of fixed length."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, overload

import attrs
import numpy as np

from flowdsl.effects import Reordered, Resampled, Tag, Unsized
from flowdsl.elements.packing import Packed, Span, packed, sequence_length, spec_of_packed
from flowdsl.elements.specs import Spec
from flowdsl.elements.stacking import Padding
from flowdsl.errors import ElementError, InvalidFlow, SpecMismatch, raise_with_cause
from flowdsl.nodes import (
    PARALLEL_KEYWORD_ADVICE,
    AnyNode,
    E,
    FlowBase,
    Node,
    Padded,
    PassFactory,
    Positions,
    Restartable,
    Restarts,
    Row,
    T,
    Traceable,
    Traced,
    TracedReader,
    U,
    at_least,
    cached_per_node,
    deep_copied,
    describe_element,
    describe_group,
    flow,
    format_call,
    frozen_node,
    keyword_unless_default,
    method_name,
    plain_int,
    refuse_mismatch,
    rejects_keywords,
    trace,
    validate_flag,
)
from flowdsl.ops.padding import validate_padding

if TYPE_CHECKING:
    from flowdsl.elements.batch_types import Batchable
    from flowdsl.flow import Flow

B = TypeVar("B")

Fit: TypeAlias = Literal["first_fit", "best_fit"]
"""Which open row takes a sequence, of those with room for it: the oldest or the fullest."""

BINS = 64
"""The number of rows that are open at a time, unless ``bins`` is given."""

ROWS_PER_FLUSH = 64
"""After this number of rows for each of the ``bins``, all open rows are yielded, so that a run can
resume there. If open rows are half full on average, this adds less than 1 % of padding."""

SEQUENCES_PER_MARK = 8
"""``concat`` resumes from marks of the source; this is the number of sequences from one mark to the
next, since a mark may cost more than a short sequence."""


class _Piece(NamedTuple):
    """A part of an element of the source, with the element's position."""

    position: int
    span: Span

    @property
    def size(self) -> int:
        return self.span.stop - self.span.start

    @property
    def is_last(self) -> bool:
        """True if the element ends with this piece."""
        return self.span.stop == sequence_length(self.span.sequence)


_Group: TypeAlias = list[_Piece]
"""The pieces of which a row is made."""


def _validate_padding_value(node: AnyNode, field: attrs.Attribute[Padding], value: object) -> None:
    validate_padding(node, field, value)
    if value is None:
        raise InvalidFlow(f"{method_name(node)}: padding must be a value, as rows may need some")


@frozen_node
class _Pack(
    Traceable[Packed[U], E], Restartable[Packed[U], E], Padded[Packed[U], E], Generic[U, E]
):
    """Rows of ``n`` entries, filled with sequences."""

    source: Node[Any, E]
    n: int = attrs.field(converter=plain_int, validator=at_least(1))
    padding: Padding = attrs.field(converter=deep_copied, validator=_validate_padding_value)
    drop_remainder: bool = attrs.field(validator=validate_flag)

    def __attrs_post_init__(self) -> None:
        refuse_mismatch(self)

    def _title(self, *options: str) -> str:
        return format_call(
            "pack",
            str(self.n),
            *options,
            "" if repr(self.padding) == "0" else f"padding={self.padding!r}",
            keyword_unless_default("drop_remainder", self.drop_remainder, False),
        )

    @property
    def length(self) -> None:
        return None

    def combined_effects(self) -> frozenset[Tag]:
        effects = super().combined_effects()
        return effects | {Resampled} if self.drop_remainder else effects

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return spec_of_packed(self.source.spec(probe), self.n, self.padding)

    def occupied(self, element: Packed[Any]) -> tuple[int, int]:
        return int(np.count_nonzero(element.segment_ids)), self.n

    def rows_from(
        self, epoch: int, sources: Sequence[PassFactory], restarts: Restarts
    ) -> Iterator[Row[Packed[U]]]:
        groups = self._filled(epoch, sources[0], restarts)
        return enumerate((self._packed(epoch, group) for group in groups), restarts.yielded)

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        read, begun = TracedReader(sources[0]), dict[int, Traced[Any]]()
        for position, group in enumerate(self._filled(epoch, read, Restarts())):
            begun.update(read.latest)
            read.latest.clear()
            members = [begun[piece.position].places for piece in group]
            for piece in group:
                if piece.is_last:
                    del begun[piece.position]
            yield position, trace(self._packed(epoch, group), members)

    def _filled(self, epoch: int, source: PassFactory, restarts: Restarts) -> Iterator[_Group]:
        """The groups with entries; only the last group may have none."""
        groups = self._groups(epoch, source, restarts)
        return (group for group in groups if any(piece.size for piece in group))

    @abstractmethod
    def _groups(self, epoch: int, source: PassFactory, restarts: Restarts) -> Iterator[_Group]:
        """Yield the pieces of each row; a sequence without entries is a piece, too.

        The first ``restarts.offset`` entries of the source are in earlier rows.
        """

    def _sequences(self, epoch: int, source: PassFactory) -> Iterator[tuple[int, Any, int]]:
        """The positions, elements and lengths of the source."""
        for position, x in source(epoch):
            try:
                size = self._checked(sequence_length(x))
            except SpecMismatch as error:
                piece = _Piece(position, Span(x, 0, 0))
                raise_with_cause(self._error_of_group(epoch, [piece]), error)
            yield position, x, size

    def _checked(self, size: int) -> int:
        """Return the length of a sequence, or raise if it is too long."""
        return size

    def _packed(self, epoch: int, group: _Group) -> Packed[Any]:
        try:
            return packed([piece.span for piece in group if piece.size], self.n, self.padding)
        except SpecMismatch as error:
            raise_with_cause(self._error_of_group(epoch, group), error)

    def _error_of_group(self, epoch: int, group: _Group) -> ElementError:
        """An error that names the first element: the elements of a row may be far apart."""
        first = group[0].position
        elements = [piece.span.sequence for piece in group]
        more = f" and {len(group) - 1} more of its row" if len(group) > 1 else ""
        described = describe_group(elements) if more else describe_element(*elements)
        origin = self.source.origin(epoch, first) + more
        return ElementError(self.title, first, epoch, origin, described)


@frozen_node
class PackConcatenated(_Pack[U, E | Unsized], Generic[U, E]):
    """Rows of ``n`` entries that are cut, one after the other, from the joined sequences."""

    @property
    def title(self) -> str:
        return self._title()

    @property
    def looks_back(self) -> int | None:
        return 1  # a sequence may continue in the next row

    def _groups(self, epoch: int, source: PassFactory, restarts: Restarts) -> Iterator[_Group]:
        group, room = _Group(), self.n
        mark, offset = restarts.mark(), restarts.offset
        restarts.note(mark, offset=offset)
        before = 0  # entries since the mark, before the next sequence
        for number, (position, x, size) in enumerate(self._sequences(epoch, source), 1):
            start = min(max(offset - before, 0), size)  # after the entries in earlier rows
            while size - start >= room:
                group.append(_Piece(position, Span(x, start, start + room)))
                yield group
                start, group, room = start + room, [], self.n
                restarts.note(mark, offset=before + start)
            if start < size or not size:
                group.append(_Piece(position, Span(x, start, size)))
                room -= size - start
            before += size
            if number % SEQUENCES_PER_MARK == 0 and before >= offset:
                mark, before, offset = restarts.mark(), 0, 0
        if not self.drop_remainder:
            yield group


@frozen_node
class PackWhole(_Pack[U, E | Reordered | Unsized], Generic[U, E]):
    """Rows of ``n`` entries that are filled with whole sequences, ``bins`` rows at a time."""

    fit: Fit
    bins: int = attrs.field(converter=plain_int, validator=at_least(1))
    split: bool

    @property
    def title(self) -> str:
        return self._title(
            repr(self.fit),
            keyword_unless_default("bins", self.bins, BINS),
            "too_long='split'" if self.split else "",
        )

    @property
    def yields_all(self) -> bool:
        # Rows that ``drop_remainder`` leaves out are known only at the end of the pass, where all
        # rows of the source are acknowledged anyway. A sequence that is split is in several rows.
        return not self.split

    def _groups(self, epoch: int, source: PassFactory, restarts: Restarts) -> Iterator[_Group]:
        """Yield a row when it is full, or when a new one is needed and it is the fullest."""
        groups = list[_Group]()
        rooms: Positions = np.zeros(self.bins, np.int64)  # of the groups, oldest first
        restarts.note(restarts.mark())
        until_flush = self._rows_per_flush

        def closed(k: int) -> _Group:
            nonlocal until_flush
            until_flush -= 1
            rooms[k:-1] = rooms[k + 1 :].copy()
            return groups.pop(k)

        for position, x, size in self._sequences(epoch, source):
            for start in range(0, size or 1, self.n):  # one piece for an empty sequence, too
                piece = _Piece(position, Span(x, start, min(start + self.n, size)))
                k = self._group_for(rooms[: len(groups)], piece.size)
                if k is None:
                    if len(groups) == self.bins:
                        yield closed(int(rooms.argmin()))
                    k = len(groups)
                    groups.append([])
                    rooms[k] = self.n
                groups[k].append(piece)
                rooms[k] = room = int(rooms[k]) - piece.size
                if not room:
                    yield closed(k)
            if until_flush <= 0:
                yield from groups
                groups.clear()
                until_flush = self._rows_per_flush
                restarts.note(restarts.mark())
        if not self.drop_remainder:
            yield from groups

    @property
    def _rows_per_flush(self) -> int:
        return ROWS_PER_FLUSH * self.bins

    def _group_for(self, rooms: Positions, size: int) -> int | None:
        """The index of the group that takes a piece of this size; None if it fits nowhere."""
        if not len(rooms):
            return None
        fits = rooms >= size
        if self.fit == "best_fit":
            k = int(np.where(fits, rooms, self.n + 1).argmin())  # no room is ``n + 1``
        else:
            k = int(fits.argmax())
        return k if fits[k] else None

    def _checked(self, size: int) -> int:
        if size > self.n and not self.split:
            raise SpecMismatch(
                f"a sequence of {size} entries is longer than a row of {self.n}; cut it with .map, "
                f'or write too_long="split"'
            )
        return size


class Packing(FlowBase[T, E]):
    """Operators that put several elements into a row of fixed length."""

    @overload
    def pack(
        self: Batchable[B],
        n: int,
        strategy: Literal["concat"] = "concat",
        *,
        padding: Padding = 0,
        drop_remainder: Literal[False] = False,
    ) -> Flow[Packed[B], E | Unsized]: ...
    @overload
    def pack(
        self: Batchable[B],
        n: int,
        strategy: Literal["concat"] = "concat",
        *,
        padding: Padding = 0,
        drop_remainder: bool,
    ) -> Flow[Packed[B], E | Resampled | Unsized]: ...
    @overload
    def pack(
        self: Batchable[B],
        n: int,
        strategy: Fit,
        *,
        bins: int = BINS,
        too_long: Literal["error", "split"] = "error",
        padding: Padding = 0,
        drop_remainder: Literal[False] = False,
    ) -> Flow[Packed[B], E | Reordered | Unsized]: ...
    @overload
    def pack(
        self: Batchable[B],
        n: int,
        strategy: Fit,
        *,
        bins: int = BINS,
        too_long: Literal["error", "split"] = "error",
        padding: Padding = 0,
        drop_remainder: bool,
    ) -> Flow[Packed[B], E | Reordered | Resampled | Unsized]: ...
    @rejects_keywords(
        **PARALLEL_KEYWORD_ADVICE,
        length_struct="write pack(n)",
        num_packing_bins="write bins={n}",
        packing_strategy="write pack(n, {!r})",
        drop_last="write drop_remainder={}",
        padding_value="write padding={}",
        padding_struct="write padding={}",
    )
    def pack(
        self: Any,
        n: int,
        strategy: Literal["concat", "first_fit", "best_fit"] = "concat",
        *,
        bins: int = BINS,
        too_long: Literal["error", "split"] = "error",
        padding: Padding = 0,
        drop_remainder: bool = False,
    ) -> Flow[Any, Any]:
        """Put sequences, such as the tokens of texts, one after another into rows of ``n`` entries.

        An element is an array or a list of numbers, or a tuple, dict or record of several that are
        equally long, such as tokens and the weights of their losses. A row is a ``Packed``: its
        ``tokens`` have the structure of the elements, its ``segment_ids`` number the sequences of
        the row from 1, and are 0 for padding, and its ``positions`` count from 0 in each sequence.
        ``batch`` stacks the rows.

        - ``"concat"`` joins all sequences and cuts the result every ``n`` entries. All rows but
          the last are full. A sequence that continues in the next row counts as a new sequence
          there: its positions begin at 0 again, and so are always below ``n``.
        - ``"first_fit"`` and ``"best_fit"`` keep sequences whole. Up to ``bins`` rows are open at a
          time; of the rows with room for a sequence, the oldest or the fullest takes it. If no row
          has room, the fullest row is yielded, with padding. A sequence of more than ``n`` entries
          is an error; with ``too_long="split"`` it is cut every ``n`` entries, and each part counts
          as a sequence. After every ``64 * bins`` rows all open rows are yielded, so that a
          run can resume there; this costs less than 1 % more padding.

        At the end of a pass the rows that are not full are padded, or left out with
        ``drop_remainder``; no row reaches into the next pass. A sequence without entries is left
        out. ``padding`` is as for ``padded_batch``.

        The share of padding is in the statistics of a run: ``run.statistics().occupancy``.

        Shapes: a component of shape ``(length, *s)`` becomes one of shape ``(n, *s)``, of the same
        dtype; ``segment_ids`` and ``positions`` are ``int32[n]``.

        Memory: at most ``n`` entries for each open row, and one sequence.

        Length: known only at the end of a pass.

        Effects: ``Unsized``; with ``drop_remainder``, ``Resampled`` too; with ``"first_fit"`` and
        ``"best_fit"``, ``Reordered`` too.

        Errors: ``InvalidFlow`` for ``n < 1``, another ``strategy``, or elements known not to be
        sequences; an ``ElementError`` for an element that is not a sequence, or is too long, or
        differs in structure or dtype from others of its row.

        >>> import flowdsl as fl
        >>> texts = fl.from_items([[5, 6, 7], [8], [9, 10]])
        >>> for row in texts.pack(4):
        ...     print(row.tokens, row.segment_ids, row.positions)
        [5 6 7 8] [1 1 1 2] [0 1 2 0]
        [ 9 10  0  0] [1 1 0 0] [0 1 0 0]

        Source: ``ConcatThenSplitIterDataset``, ``FirstFitPackIterDataset`` and
        ``BestFitPackIterDataset`` of Grain, which yields all open rows when a sequence has no room.

        Elsewhere: tensorpack none; tf.data none; Grain ``ConcatThenSplitIterDataset`` and
        ``FirstFitPackIterDataset``; torchdata none.
        """
        if strategy not in ("concat", "first_fit", "best_fit"):
            raise InvalidFlow(
                f"pack: strategy must be 'concat', 'first_fit' or 'best_fit', got {strategy!r}"
            )
        if too_long not in ("error", "split"):
            raise InvalidFlow(f"pack: too_long must be 'error' or 'split', got {too_long!r}")
        if strategy != "concat":
            split = too_long == "split"
            return flow(PackWhole(self.node, n, padding, drop_remainder, strategy, bins, split))
        if bins != BINS or too_long != "error":
            raise InvalidFlow(
                "pack: bins and too_long are for 'first_fit' and 'best_fit'; 'concat' fills one "
                "row after the other, and cuts every sequence that reaches into the next"
            )
        return flow(PackConcatenated(self.node, n, padding, drop_remainder))
