"""The rewriting rules, each in a file of its own, read top to bottom.

A rule looks at one step and gives its replacement, or the step itself. It reads what nodes declare
(their kind, whether they are one-to-one, indexable, or keep positions), never which operator it is,
so that the rules fit new operators too. No rule changes the reference sequence, the effects or the
length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from flowdsl.plan.rules.absorb_prefetch import absorb_prefetch
from flowdsl.plan.rules.drop_idle_prefetch import drop_idle_prefetch
from flowdsl.plan.rules.hoist_prefetch import hoist_prefetch
from flowdsl.plan.rules.sink_prefetch import sink_prefetch
from flowdsl.plan.rules.split_prefetch import split_prefetch
from flowdsl.plan.rules.take_before_map import take_before_map
from flowdsl.plan.tree import Step

Rule: TypeAlias = Callable[[Step], Step]

RULES: tuple[Rule, ...] = (
    take_before_map,  # choose first, so that less is computed
    hoist_prefetch,  # choosing costs nothing in a worker, and decides what is made there
    absorb_prefetch,  # one pool of workers runs all that it can
    split_prefetch,  # work below what that pool cannot run gets another
    sink_prefetch,  # what needs the whole sequence stays with the consumer
    drop_idle_prefetch,  # a prefetch with nothing to run, or nobody to run it
)
