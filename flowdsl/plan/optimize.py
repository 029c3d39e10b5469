"""Apply the rules until none changes the tree, and hold each to its promise."""

from __future__ import annotations

from flowdsl.node import AnyNode
from flowdsl.plan.rules import RULES
from flowdsl.plan.tree import rewrite

_MOST_ROUNDS = 100


def optimize(node: AnyNode) -> AnyNode:
    """The same flow in a form that runs sooner.

    Raises:
        AssertionError: A rule changed what the flow promises, or the rules never settle: a defect
            of flowdsl.
    """
    for _ in range(_MOST_ROUNDS):
        before = node
        for rule in RULES:
            changed = rewrite(node, rule)
            if (changed.effects, changed.length) != (node.effects, node.length):
                raise AssertionError(f"{rule.__name__} changed a promise:\n{node}\n{changed}")
            node = changed
        if node is before:
            return node
    raise AssertionError(f"the rules do not settle on {node}")
