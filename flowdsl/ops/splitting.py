"""split: divide a flow into parts without common rows, the same in every epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import fsum
from typing import TYPE_CHECKING, Any, Generic, overload

import attrs
import numpy as np

from flowdsl.effects import Endless, Exact, Reordered, Resampled, Unsized
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import (
    AnyNode,
    E,
    FlowBase,
    IndexTransform,
    Indices,
    PassFactory,
    Row,
    T,
    at_least,
    flow,
    frozen_node,
    is_int,
    plain_int,
    rejects_keywords,
)

if TYPE_CHECKING:
    from flowdsl.flow import Flow
    from flowdsl.nodes.random_sequences import Counts, Mixed


def _python_numbers(shares: tuple[Any, ...]) -> tuple[Any, ...]:
    """An attrs converter: the shares as Python numbers, as titles show NumPy's differently."""
    return tuple(float(s) if isinstance(s, np.floating) else plain_int(s) for s in shares)


def _validate_shares(node: Split[Any, Any], field: object, value: tuple[object, ...]) -> None:
    if not value:
        raise InvalidFlow(
            "split: pass every part but the last: shares such as split(0.8), or numbers of rows"
        )
    for part in value:
        is_share = isinstance(part, float) and 0 < part < 1
        if not is_share and not is_int(part, 1):
            raise InvalidFlow(
                f"split: a part must be a share above 0 and below 1, or a number of rows >= 1, "
                f"got {part!r}"
            )
    shares = [part for part in value if isinstance(part, float)]
    if fsum(shares) >= 1:
        raise InvalidFlow(
            f"split: the shares {_listed(shares)} leave no rows for the last part, which gets the "
            f"remaining rows; leave the last share out"
        )


@frozen_node
class Split(IndexTransform[T, E], Generic[T, E]):
    """One of several random parts of the elements, the same in every epoch, in their order."""

    shares: tuple[float, ...] = attrs.field(converter=_python_numbers, validator=_validate_shares)
    """The size of each part but the last: a float is a share of all rows, an int their number."""
    number: int
    """The index of this part."""
    seed: int = attrs.field(converter=plain_int, validator=at_least(0, None))

    def __attrs_post_init__(self) -> None:
        from flowdsl.nodes.random_sequences import MAX_ROWS_TO_MIX  # here: not needed at import

        _check_exact(self.source)
        rows = self.source.length or 0
        if rows >= MAX_ROWS_TO_MIX:
            raise InvalidFlow(
                f"split: the flow may have at most {MAX_ROWS_TO_MIX - 1:,} rows, got {rows:,}"
            )
        if min(self._counts) < 1:
            # The arguments are the numbers of rows of all parts, the last one included.
            lists_all = len(self.shares) > 1 and self._counts == (*self.shares, 0)
            advice = "; leave the last out, which gets the remaining rows" if lists_all else ""
            raise InvalidFlow(
                f"split: {self.source.title} has {rows} rows, and {self._arguments} would make "
                f"parts of {_listed(self._counts)}; each needs at least one row{advice}"
            )

    @property
    def _arguments(self) -> str:
        return ", ".join(map(repr, self.shares))

    @property
    def title(self) -> str:
        return f"split({self._arguments}, seed={self.seed})[{self.number}]"

    @property
    def _counts(self) -> Counts:
        """The number of rows of each part; the cumulative sums of shares are rounded."""
        rows, share, end = self.source.length or 0, 0.0, 0
        counts = list[int]()
        for part in self.shares:
            if isinstance(part, int):
                counts.append(part)
            else:
                share, begin = share + part, end
                end = round(share * rows)
                counts.append(end - begin)
        return (*counts, rows - sum(counts))

    @property
    def _draws(self) -> Mixed:
        from flowdsl.nodes.random_sequences import Mixed

        # Neither epoch nor depth: the same rows in every pass and every flow of this length.
        return Mixed(self.seed, salt="split", epoch=0, rows=self._counts)

    @property
    def length(self) -> int | None:
        return self._counts[self.number]

    def resolve(self, addresses: Indices) -> Indices:
        return Indices(addresses.epoch, self._draws.positions_of(self.number, addresses.position))

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        parts = islice(self._draws.parts(), self.source.length)
        pairs = zip(parts, sources[0](epoch), strict=True)
        return enumerate(x for part, (_, x) in pairs if part == self.number)


def _check_exact(node: AnyNode) -> None:
    """Refuse a flow with effects; name the first operator that adds one."""
    if not node.effects:
        return
    while with_effects := [source for source in node.sources if source.effects]:
        node = with_effects[0]
    reason = next(text for tag, text in _REASONS.items() if tag in node.effects)
    raise InvalidFlow(
        f"split: {node.title} {reason}; split first, then shuffle, repeat or filter each part"
    )


_REASONS = {
    Endless: "never ends, and a part is a share of all rows",
    Unsized: "has no known length, and a part is a share of all rows",
    Resampled: "may repeat rows or leave some out, so two parts could have a row in common",
    Reordered: "reorders the rows, so each epoch would have different rows in a part",
}


def _listed(numbers: list[float] | Counts) -> str:
    """The numbers as "1, 2 and 3"."""
    *others, last = map(repr, numbers)
    return f"{', '.join(others)} and {last}" if others else last


class Splitting(FlowBase[T, E]):
    """Operators that return several flows."""

    @overload
    def split(
        self: FlowBase[T, Exact], part: float, /, *, seed: int = 0
    ) -> tuple[Flow[T, Exact], Flow[T, Exact]]: ...
    @overload
    def split(
        self: FlowBase[T, Exact], part: float, second: float, /, *, seed: int = 0
    ) -> tuple[Flow[T, Exact], Flow[T, Exact], Flow[T, Exact]]: ...
    @overload
    def split(
        self: FlowBase[T, Exact], part: float, second: float, third: float, /, *, seed: int = 0
    ) -> tuple[Flow[T, Exact], Flow[T, Exact], Flow[T, Exact], Flow[T, Exact]]: ...
    @overload
    def split(
        self: FlowBase[T, Exact], part: float, /, *parts: float, seed: int = 0
    ) -> tuple[Flow[T, Exact], ...]: ...
    @rejects_keywords(
        test_size="write split(0.8): the shares of all parts but the last",
        train_size="write split({})",
        lengths="write split(0.8, 0.1): the shares of all parts but the last",
        random_state="write seed={}",
        generator="write seed=0",
    )
    def split(self: FlowBase[Any, Any], *parts: float, seed: int = 0) -> tuple[Flow[Any, Any], ...]:
        """Divide the rows at random into parts that are the same in every epoch.

        ``train, held_out = names.split(0.8, seed=1)``: a float is a share of the rows, an int a
        number of rows, and the remaining rows form one more part: ``split(0.8, 0.1)`` returns three
        flows. Every row is in exactly one part. A part keeps the order of the flow; shuffle and
        repeat it after the split. Every choice of rows is equally likely, and depends only on the
        seed and the number of rows: ``images.split(0.8, seed=1)`` and ``labels.split(0.8, seed=1)``
        have corresponding rows, for any operators before the split.

        Over a random-access flow, rows of other parts are not read, and no rows are kept in memory:
        the position of a part's row is computed. Over other flows, rows of other parts are read and
        left out.

        Length: a share of the source's, rounded; or the number of rows; for the last part, the
        remaining rows.

        Effects: none.

        Errors: ``InvalidFlow`` for a flow that is not ``Exact``, such as one that was shuffled or
        repeated before; if the sum of the shares is 1 or more, if there are too few rows, or if a
        part would have no row; and for 10**9 rows and more.

        >>> import flowdsl as fl
        >>> train, held_out = fl.from_range(10).split(0.8, seed=1)
        >>> train.collect(), held_out.collect()
        ([0, 1, 3, 4, 5, 6, 8, 9], [2, 7])

        Source: ``train_test_split`` of scikit-learn.

        Elsewhere: tensorpack none; tf.data none; Grain none; torchdata ``RandomSplitter``.
        """
        shares = tuple(parts)
        return tuple(flow(Split(self.node, shares, k, seed)) for k in range(len(shares) + 1))
