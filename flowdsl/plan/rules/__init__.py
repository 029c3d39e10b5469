"""The rewriting rules, each in its own module.

A rule takes one step and returns its replacement, or the step itself. It depends only on the
properties that nodes declare (their kind, one-to-one, indexable, keeping positions), never on a
particular operator, so that the rules apply to new operators too. Rules do not change the reference
sequence, the effects or the length.
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
    take_before_map,  # choose first, so that fewer elements are computed
    hoist_prefetch,  # choosing is cheap in a worker, which then computes only chosen elements
    absorb_prefetch,  # one pool of workers runs all operators that it can
    split_prefetch,  # work below an operator that the pool cannot run gets another pool
    sink_prefetch,  # an operator that needs the whole sequence stays with the consumer
    drop_idle_prefetch,  # remove a prefetch without operators to run, or without workers
)
