"""Apply the rules until no rule changes a step, and check that they keep effects and length."""

from __future__ import annotations

from flowdsl.plan.rules import RULES
from flowdsl.plan.tree import Step, rewrite

_MAX_ROUNDS = 100


def optimize(step: Step) -> Step:
    """Rewrite the steps of a flow so that it runs faster.

    Raises:
        AssertionError: A rule changed the flow's effects or length, or the rules do not settle:
            a defect of flowdsl.
    """
    for _ in range(_MAX_ROUNDS):
        before = step
        for rule in RULES:
            changed = rewrite(step, rule)
            old, new = step.node, changed.node
            if (new.effects, new.length) != (old.effects, old.length):
                raise AssertionError(f"{rule.__name__} changed a promise:\n{old}\n{new}")
            step = changed
        if step is before:
            return step
    raise AssertionError(f"the rules do not settle on {step.node}")
