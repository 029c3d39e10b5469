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

_CONTENDED = 1.1
"""Copies in memory that are slower by this factor, which exceeds their spread, are contended."""

_SUSPICIOUS = 0.5
"""A change of more than this part of the limit is measured again."""


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
        by up to the same factor. Where copies in memory have, it slows as beside a process that
        copies memory, which was measured when the costs were saved: parts differ in this, and some
        slow more than the copies themselves. The factor is 1 if no kind is slower.
        """
        before, now = self.before.kinds, self.now.kinds
        factors = {kind: now[kind] / before[kind] for kind in before}
        if MEMORY in factors and self.before.beside_copies is not None:
            slowdown, most = factors[MEMORY], self.before.beside_copies
            factors[MEMORY] = most if slowdown > _CONTENDED else min(slowdown, most)
        return max((max(1.0, factor), kind) for kind, factor in factors.items())

    @property
    def is_apart(self) -> bool:
        """True if neither contention nor the spread of the samples explains a slowdown.

        The middle halves of the samples, then and now, are apart: not only their medians, which
        vary where a process takes one time or another, depending on the layout of its memory.
        """
        return self.now.middle[0] > self.before.middle[1] * self.contention[0]

    @property
    def relative(self) -> float:
        """The change in relation to the earlier cost: 0.15 is 15% slower."""
        return self.now.ratio / self.before.ratio - 1

    @property
    def counts(self) -> bool:
        """False for an operator that is too small a part of the flow to be compared."""
        return self.share >= LEAST_SHARE

    def is_slower(self, limit: float) -> bool:
        """Return True if it is slower by more than the share ``limit``, and not by noise."""
        return self.counts and self.relative > limit and self.is_apart

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
