"""Compare the costs of a flow with earlier ones: which parts have become slower."""

from __future__ import annotations

from itertools import zip_longest

import attrs

from flowdsl.errors import InvalidArgument
from flowdsl.report.bench.costs import FlowCosts, PartCosts
from flowdsl.report.bench.reference import MEMORY

LEAST_SHARE = 0.02
"""An operator with a smaller share of the flow's time raises no alarm: its time is mostly the time
of reading the clock."""

_SUSPICIOUS = 0.5
"""A change of more than this part of the limit is measured again."""

_SPREADS = 2
"""A median that differs by fewer spreads of the samples may be the same."""


@attrs.frozen
class Change:
    """The cost of a part, then and now."""

    before: PartCosts
    now: PartCosts
    share: float
    """The part's share of the time of all operators; for other parts, 1."""

    @property
    def contention(self) -> tuple[float, str]:
        """The slowdown that other programs, or another speed of the core, explain; and its cause.

        The cause is a kind of work that has become slower, compared to the reference: a part slows
        by up to the same factor. By how much it slows where copies in memory do was measured when
        the costs were saved. The factor is 1 if no kind is slower.
        """
        before, now = self.before.kinds, self.now.kinds
        powers = dict.fromkeys(before, 1.0) | {MEMORY: self.before.memory}
        factors = {kind: max(1.0, now[kind] / before[kind]) ** powers[kind] for kind in before}
        return max((factor, kind) for kind, factor in factors.items())

    @property
    def noise(self) -> float:
        """The change that contention and the spread of the samples explain."""
        spread = max(self.now.spread, self.before.spread)
        return self.contention[0] - 1 + _SPREADS * spread

    @property
    def relative(self) -> float:
        """The change in relation to the earlier cost: 0.15 is 15% slower."""
        return self.now.ratio / self.before.ratio - 1

    @property
    def counts(self) -> bool:
        """False for an operator that is too small a part of the flow to be compared."""
        return self.share >= LEAST_SHARE

    def is_slower(self, limit: float) -> bool:
        """Return True if it is slower by more than the share ``limit``, and by more than noise."""
        return self.counts and self.relative > max(limit, self.noise)

    def is_suspicious(self, limit: float) -> bool:
        """Return True if the part should be measured again before it is judged."""
        return self.counts and self.relative > _SUSPICIOUS * limit


def changes(before: FlowCosts, now: FlowCosts) -> list[Change]:
    """Return the changes of all parts.

    Raises:
        InvalidArgument: The costs are of another flow; the message names the operator that differs.
    """
    _refuse_others(before, now)
    known = {costs.part: costs for costs in before.parts}
    return [
        Change(known[costs.part], costs, _share(costs, now))
        for costs in now.parts
        if costs.part in known
    ]


def _share(costs: PartCosts, flow: FlowCosts) -> float:
    return costs.ratio / flow.total if costs.part.kind == "operator" and flow.total else 1.0


def _refuse_others(before: FlowCosts, now: FlowCosts) -> None:
    pairs = zip_longest(before.operators, now.operators, fillvalue="nothing")
    for number, (then, here) in enumerate(pairs, 1):
        if then != here:
            raise InvalidArgument(
                f"bench: the saved costs are of another flow: operator {number} is {then} there "
                f"and {here} here; save them again with --save"
            )
    missing = {costs.part for costs in before.parts} ^ {costs.part for costs in now.parts}
    if missing:
        part = min(missing, key=lambda part: (part.kind, part.step))
        raise InvalidArgument(
            f"bench: {part.kind} {part.title!r} is in only one of the saved costs and this flow, "
            f"which was planned in another way; save them again with --save"
        )
