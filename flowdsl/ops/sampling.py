"""sample: draw elements at random, by weights or with equal probability."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.effects import Counted, Reordered, Resampled
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import (
    E,
    FlowBase,
    Positions,
    T,
    at_least,
    cached_per_node,
    flow,
    format_call,
    frozen_node,
    integers,
    keyword_unless_default,
    permute,
    plain_int,
    rejects_keywords,
    uniform,
    validate_flag,
)
from flowdsl.ops.rows import ByNumber, array_of_numbers, digest_of, known_length

if TYPE_CHECKING:
    from flowdsl.flow import Flow

Floats: TypeAlias = NDArray[np.float64]
Weights: TypeAlias = "Sequence[float] | NDArray[np.number[Any]]"
"""One weight for each element: a list of numbers, or an array of them with one axis."""


@attrs.frozen(eq=False, repr=False)
class Odds:
    """The elements that may be drawn, and their weights."""

    rows: int
    """The number of all elements."""
    possible: Positions
    """The positions of elements with a weight above 0."""
    weights: Floats
    """The weight of each of these."""
    ends: Floats
    """The sums of the first weights, divided by the largest weight."""

    @classmethod
    def of(cls, value: Any) -> Odds:
        """The odds for weights that a user passes.

        Raises:
            InvalidFlow: They are not numbers, or some are negative or not finite.
        """
        weights = array_of_numbers("sample: weights", value, "numbers", "iufb").astype(np.float64)
        bad = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
        if len(bad):
            raise InvalidFlow(
                f"sample: weights[{bad[0]}] is {weights[bad[0]]}; a weight must be a finite number "
                f">= 0"
            )
        possible = np.flatnonzero(weights)
        largest = weights.max(initial=0)  # dividing by it keeps the sum finite
        ends = np.cumsum(weights[possible] / (largest or 1))
        return cls(len(weights), possible, weights[possible], ends)


@frozen_node
class Sample(ByNumber[T, E | Reordered | Resampled], Generic[T, E]):
    """``n`` elements drawn at random, with equal probability; each epoch draws its own."""

    order_varies_by_epoch: ClassVar[bool | None] = True
    n: int = attrs.field(converter=plain_int, validator=at_least(0))
    replacement: bool = attrs.field(validator=validate_flag)
    seed: int = attrs.field(converter=plain_int, validator=at_least(0, None))
    salt: int = attrs.field()
    """The number of operators below: it gives equal operators of one chain different random
    numbers."""

    def __attrs_post_init__(self) -> None:
        self._check_number(known_length("sample", self.source))

    def _check_number(self, candidates: int, described: str = "") -> None:
        """Refuse to draw more elements than there are candidates."""
        if self.n > candidates and not (self.replacement and candidates):
            hint = "" if self.replacement else "; replacement=True draws elements again"
            raise InvalidFlow(
                f"sample: n is {self.n}, and {self.source.title} has {candidates} element(s)"
                f"{described}{hint}"
            )

    @property
    def may_repeat(self) -> bool:
        return self.replacement

    @property
    def title(self) -> str:
        return format_call(
            "sample",
            str(self.n),
            keyword_unless_default("replacement", self.replacement, True),
            keyword_unless_default("seed", self.seed, 0),
        )

    @property
    def length(self) -> int:
        return self.n

    def _key(self, epoch: int) -> str:
        return f"{self.seed}/{self.salt}/{epoch}"

    def positions(self, epoch: int, position: Positions) -> Positions:
        draw = integers if self.replacement else permute
        return draw(position, self.source.length or 0, self._key(epoch))


@frozen_node
class WeightedSample(Sample[T, E | Reordered | Resampled], Generic[T, E]):
    """``n`` elements drawn at random, each with a probability in proportion to its weight."""

    odds: Odds

    def __attrs_post_init__(self) -> None:
        rows = known_length("sample", self.source)
        if self.odds.rows != rows:
            raise InvalidFlow(
                f"sample: weights must be one number for each of the {rows} elements of "
                f"{self.source.title}, got {self.odds.rows}"
            )
        self._check_number(len(self.odds.possible), " with a weight above 0")

    @property
    def title(self) -> str:
        return format_call(
            "sample",
            str(self.n),
            f"weights=[{self.odds.rows} numbers]",
            keyword_unless_default("replacement", self.replacement, True),
            keyword_unless_default("seed", self.seed, 0),
        )

    @property
    @cached_per_node
    def fingerprint(self) -> str:
        return f"{self.title}: {digest_of(self.odds.possible)}, {digest_of(self.odds.weights)}"

    def positions(self, epoch: int, position: Positions) -> Positions:
        odds, key = self.odds, self._key(epoch)
        if not self.replacement:
            return _drawn_once(odds, self.n, key)[position]
        if not self.n:
            return position
        drawn = np.searchsorted(odds.ends, uniform(position, key) * odds.ends[-1], side="right")
        drawn = np.minimum(drawn, len(odds.possible) - 1)  # a product may be rounded up to the end
        chosen: Positions = odds.possible[drawn]
        return chosen


@lru_cache(maxsize=2)
def _drawn_once(odds: Odds, n: int, key: str) -> Positions:
    """The positions of the ``n`` elements that are drawn without replacement, in order.

    Each element gets an exponential waiting time, its weight being the rate. The ``n`` elements
    that wait least are drawn (Efraimidis and Spirakis, "Weighted random sampling with a reservoir",
    2006).
    """
    with np.errstate(over="ignore"):  # a weight may be so small that it waits forever
        waits = -np.log1p(-uniform(odds.possible, key)) / odds.weights
    return odds.possible[np.argsort(waits, kind="stable")[:n]]


class Sampling(FlowBase[T, E]):
    """The operator that draws elements at random."""

    @rejects_keywords(
        num_samples="write sample({n})",
        frac="write sample(n) with a number of elements",
        replace="write replacement={}",
        random_state="write seed={}",
        generator="write seed=0",
    )
    def sample(
        self: FlowBase[T, Counted],
        n: int,
        weights: Weights | None = None,
        *,
        replacement: bool = True,
        seed: int = 0,
    ) -> Flow[T, E | Reordered | Resampled]:
        """Draw ``n`` elements at random, by their weights, or all with the same probability.

        Each epoch draws its own elements. With ``replacement``, an element may be drawn any number
        of times, and ``n`` may be larger than the length; its arrays are read-only. Without
        ``replacement``, each element is drawn at most once: with ``weights``, one after another, in
        proportion to the weights of the elements that are left. ``weights`` are numbers >= 0 of any
        sum; an element of weight 0 is never drawn. ``1 / counts[labels]`` makes all classes equally
        frequent.

        Over a random-access flow, each draw is computed by itself: only drawn elements are read,
        and resuming costs nothing. With ``weights`` and without ``replacement``, each epoch
        computes an order of all elements, from one random number for each. Over any other flow of
        known length the elements are collected first.

        Length: ``n``.

        Effects: ``Reordered`` and ``Resampled``.

        Errors: ``InvalidFlow`` for ``n < 0``, a negative seed, weights that are negative or not
        finite, another number of weights than elements, an ``n`` that is too large without
        ``replacement``, and a flow of unknown length or without end.

        >>> import flowdsl as fl
        >>> flow = fl.from_items("abc").sample(8, weights=[1, 0, 3])
        >>> "".join(flow), "".join(flow.epoch(1))
        ('acccccac', 'ccccccca')
        >>> sorted(fl.from_range(5).sample(3, replacement=False, seed=1))
        [1, 2, 3]

        Source: ``WeightedRandomSampler`` and ``RandomSampler`` of PyTorch.

        Elsewhere: tensorpack none; tf.data none; Grain none; torchdata ``WeightedRandomSampler``,
        ``RandomSampler``.
        """
        salt = self.node.depth
        if weights is None:
            return flow(Sample[T, Any](self.node, n, replacement, seed, salt))
        return flow(WeightedSample[T, Any](self.node, n, replacement, seed, salt, Odds.of(weights)))
