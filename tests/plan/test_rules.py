"""Every rule: the chain before and after, and the same elements from both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import flowdsl as fl
from flowdsl import Flow
from flowdsl.nodes import AnyNode
from flowdsl.plan.optimize import optimize
from flowdsl.plan.rules import RULES, Rule
from flowdsl.plan.rules.absorb_prefetch import absorb_prefetch
from flowdsl.plan.rules.drop_idle_prefetch import drop_idle_prefetch
from flowdsl.plan.rules.hoist_prefetch import hoist_prefetch
from flowdsl.plan.rules.sink_prefetch import sink_prefetch
from flowdsl.plan.rules.split_prefetch import split_prefetch
from flowdsl.plan.rules.take_before_map import take_before_map
from flowdsl.plan.tree import rewrite, steps_of
from flowdsl.testing.outcomes import reference
from flowdsl.testing.recipes import Recipe
from tests.sampling import examples
from tests.strategies import chains

AnyFlow = Flow[Any, Any]


def double(i: int) -> int:
    return 2 * i


def odd(i: int) -> bool:
    return i % 2 == 1


def draw(i: int, rng: np.random.Generator) -> float:
    return i + rng.random()


def picture(node: AnyNode) -> str:
    """A chain in one line, without details that rules ignore."""
    words = _spelled(node)
    return words.replace("procs=", "").replace("buffer=", "")


def _spelled(node: AnyNode) -> str:
    first, *others = [*map(_spelled, node.sources), ""]
    title = node.title.replace("...", "; ".join(others[:-1]), 1)
    return f"{first} > {title}" if first else title


RANGE = fl.from_range(20)
ITEMS: Flow[int, fl.Exact] = fl.from_items(range(20))
STREAM = fl.from_iterable(range(20))

CASES: list[tuple[Rule, AnyFlow, str, str]] = [
    # -- what is not taken is not computed
    (
        take_before_map,
        RANGE.map(double).take(3),
        "from_range(20) > map(double) > take(3)",
        "from_range(20) > take(3) > map(double)",
    ),
    (
        take_before_map,
        RANGE.shuffle().random_map(draw).map(double).take(3),  # type: ignore[arg-type]  # floats
        "from_range(20) > shuffle() > random_map(draw) > map(double) > take(3)",
        "from_range(20) > shuffle() > random_map(draw) > take(3) > map(double)",
    ),
    (
        take_before_map,
        RANGE.filter(odd).take(3),  # which are the first three is the filter's to say
        "from_range(20) > filter(odd) > take(3)",
        "from_range(20) > filter(odd) > take(3)",
    ),
    (
        take_before_map,
        RANGE.map(double).shuffle(),  # draws belong to positions
        "from_range(20) > map(double) > shuffle()",
        "from_range(20) > map(double) > shuffle()",
    ),
    (
        take_before_map,
        RANGE.batch(2).take(3),
        "from_range(20) > batch(2) > take(3)",
        "from_range(20) > batch(2) > take(3)",
    ),
    # -- choosing costs nothing in a worker
    (
        hoist_prefetch,
        RANGE.map(double).prefetch(2).shuffle().take(4),
        "from_range(20) > map(double) > prefetch(2) > shuffle() > take(4)",
        "from_range(20) > map(double) > shuffle() > take(4) > prefetch(2)",
    ),
    (
        hoist_prefetch,
        RANGE.map(double).prefetch(2).map(double),
        "from_range(20) > map(double) > prefetch(2) > map(double)",
        "from_range(20) > map(double) > prefetch(2) > map(double)",
    ),
    (
        hoist_prefetch,
        STREAM.map(double).prefetch(2).take(4),  # only who counts the elements can stop
        "from_iterable(range) > map(double) > prefetch(2) > take(4)",
        "from_iterable(range) > map(double) > prefetch(2) > take(4)",
    ),
    (
        hoist_prefetch,
        RANGE.map(double).prefetch(2).shuffle(4),
        "from_range(20) > map(double) > prefetch(2) > shuffle(4)",
        "from_range(20) > map(double) > prefetch(2) > shuffle(4)",
    ),
    (
        hoist_prefetch,
        RANGE.map(double).prefetch(2).concat(ITEMS, RANGE.map(abs).prefetch(3)),
        (
            "from_range(20) > map(double) > prefetch(2) > "
            "concat(from_items(20 items); from_range(20) > map(abs) > prefetch(3))"
        ),
        (
            "from_range(20) > map(double) > "
            "concat(from_items(20 items); from_range(20) > map(abs)) > prefetch(3)"
        ),
    ),
    (
        hoist_prefetch,
        RANGE.map(double).zip(ITEMS.map(double).prefetch(2)),
        "from_range(20) > map(double) > zip(from_items(20 items) > map(double) > prefetch(2))",
        "from_range(20) > map(double) > zip(from_items(20 items) > map(double)) > prefetch(2)",
    ),
    (
        hoist_prefetch,
        RANGE.map(double).prefetch(2).interleave(STREAM),  # a stream has no positions
        "from_range(20) > map(double) > prefetch(2) > interleave(from_iterable(range))",
        "from_range(20) > map(double) > prefetch(2) > interleave(from_iterable(range))",
    ),
    # -- one pool runs all that it can
    (
        absorb_prefetch,
        RANGE.map(double).mix(RANGE.map(abs).prefetch(2)).map(double).prefetch(4),
        (
            "from_range(20) > map(double) > mix(from_range(20) > map(abs) > prefetch(2)) > "
            "map(double) > prefetch(4)"
        ),
        (
            "from_range(20) > map(double) > mix(from_range(20) > map(abs)) > "
            "map(double) > prefetch(4)"
        ),
    ),
    (
        absorb_prefetch,
        RANGE.map(double).prefetch(2).map(double).prefetch(3).prefetch(4),
        "from_range(20) > map(double) > prefetch(2) > map(double) > prefetch(3) > prefetch(4)",
        "from_range(20) > map(double) > map(double) > prefetch(4)",
    ),
    (
        absorb_prefetch,
        RANGE.map(double).prefetch(2).prefetch(0),  # says nothing, so takes nothing away
        "from_range(20) > map(double) > prefetch(2) > prefetch(0)",
        "from_range(20) > map(double) > prefetch(2) > prefetch(0)",
    ),
    (
        absorb_prefetch,
        RANGE.map(double).prefetch(2).shuffle(4).map(double).prefetch(3),
        "from_range(20) > map(double) > prefetch(2) > shuffle(4) > map(double) > prefetch(3)",
        "from_range(20) > map(double) > prefetch(2) > shuffle(4) > map(double) > prefetch(3)",
    ),
    # -- a pool on both sides
    (
        split_prefetch,
        RANGE.map(double).shuffle(4).map(double).prefetch(3),
        "from_range(20) > map(double) > shuffle(4) > map(double) > prefetch(3)",
        "from_range(20) > map(double) > shuffle(4) > prefetch(2) > map(double) > prefetch(1)",
    ),
    (
        split_prefetch,
        RANGE.map(double).shuffle(4).map(double).prefetch(1),  # which cannot be divided
        "from_range(20) > map(double) > shuffle(4) > map(double) > prefetch(1)",
        "from_range(20) > map(double) > shuffle(4) > map(double) > prefetch(1)",
    ),
    (
        split_prefetch,
        RANGE.map(double).shuffle(4).batch(2).prefetch(3),  # stacking costs less than sending
        "from_range(20) > map(double) > shuffle(4) > batch(2) > prefetch(3)",
        "from_range(20) > map(double) > shuffle(4) > prefetch(3) > batch(2) > prefetch(0)",
    ),
    (
        split_prefetch,
        RANGE.map(double).shuffle(4).batch(2, collate=sum).prefetch(3),  # one is enough for it
        "from_range(20) > map(double) > shuffle(4) > batch(2, collate=sum) > prefetch(3)",
        (
            "from_range(20) > map(double) > shuffle(4) > prefetch(2) > batch(2, collate=sum)"
            " > prefetch(1)"
        ),
    ),
    (
        split_prefetch,
        RANGE.map(double).shuffle(4).batch(2).prefetch(1),
        "from_range(20) > map(double) > shuffle(4) > batch(2) > prefetch(1)",
        "from_range(20) > map(double) > shuffle(4) > prefetch(1) > batch(2) > prefetch(0)",
    ),
    (
        split_prefetch,
        STREAM.filter(odd).batch(2).prefetch(3),  # all of it is below the prefetch
        "from_iterable(range) > filter(odd) > batch(2) > prefetch(3)",
        "from_iterable(range) > filter(odd) > batch(2) > prefetch(3)",
    ),
    (
        split_prefetch,
        RANGE.map(double).prefetch(2).shuffle(4).map(double).prefetch(3),
        "from_range(20) > map(double) > prefetch(2) > shuffle(4) > map(double) > prefetch(3)",
        "from_range(20) > map(double) > prefetch(2) > shuffle(4) > map(double) > prefetch(3)",
    ),
    (
        split_prefetch,
        RANGE.shuffle(4).map(double).prefetch(3),  # there is no work below
        "from_range(20) > shuffle(4) > map(double) > prefetch(3)",
        "from_range(20) > shuffle(4) > map(double) > prefetch(3)",
    ),
    (
        split_prefetch,
        RANGE.map(double).shuffle(4).map(double).prefetch(0),
        "from_range(20) > map(double) > shuffle(4) > map(double) > prefetch(0)",
        "from_range(20) > map(double) > shuffle(4) > map(double) > prefetch(0)",
    ),
    (
        split_prefetch,
        STREAM.map(double).zip(STREAM).starmap(max).prefetch(3),
        (
            "from_iterable(range) > map(double) > zip(from_iterable(range)) > starmap(max) > "
            "prefetch(3)"
        ),
        (
            "from_iterable(range) > map(double) > zip(from_iterable(range)) > prefetch(2) > "
            "starmap(max) > prefetch(1)"
        ),
    ),
    # -- what needs the whole sequence stays with the consumer
    (
        sink_prefetch,
        STREAM.map(double)
        .interleave(STREAM, RANGE.map(abs))
        .prefetch(5),  # two share five, and one is read
        (
            "from_iterable(range) > map(double) > "
            "interleave(from_iterable(range); from_range(20) > map(abs)) > prefetch(5)"
        ),
        (
            "from_iterable(range) > map(double) > prefetch(2) > "
            "interleave(from_iterable(range) > prefetch(2); "
            "from_range(20) > map(abs) > prefetch(2))"
        ),
    ),
    (
        sink_prefetch,
        STREAM.map(double).zip(STREAM.map(abs)).prefetch(1),  # neither is left without
        "from_iterable(range) > map(double) > zip(from_iterable(range) > map(abs)) > prefetch(1)",
        (
            "from_iterable(range) > map(double) > prefetch(1) > "
            "zip(from_iterable(range) > map(abs) > prefetch(1))"
        ),
    ),
    (
        sink_prefetch,
        RANGE.filter(odd).batch(2).prefetch(2),
        "from_range(20) > filter(odd) > batch(2) > prefetch(2)",
        "from_range(20) > filter(odd) > prefetch(2) > batch(2)",
    ),
    (
        sink_prefetch,
        STREAM.map(double).shuffle(4).prefetch(2),
        "from_iterable(range) > map(double) > shuffle(4) > prefetch(2)",
        "from_iterable(range) > map(double) > prefetch(2) > shuffle(4)",
    ),
    (
        sink_prefetch,
        STREAM.map(double).batch(2).prefetch(2),
        "from_iterable(range) > map(double) > batch(2) > prefetch(2)",
        "from_iterable(range) > map(double) > batch(2) > prefetch(2)",
    ),
    (
        sink_prefetch,
        STREAM.prefetch(2),
        "from_iterable(range) > prefetch(2)",
        "from_iterable(range) > prefetch(2)",
    ),
    # -- nothing to run, or nobody to run it
    (
        drop_idle_prefetch,
        ITEMS.concat(ITEMS.shuffle()).prefetch(2),
        "from_items(20 items) > concat(from_items(20 items) > shuffle()) > prefetch(2)",
        "from_items(20 items) > concat(from_items(20 items) > shuffle())",
    ),
    (
        drop_idle_prefetch,
        ITEMS.concat(RANGE).prefetch(2),  # each worker reads the numbers for itself
        "from_items(20 items) > concat(from_range(20)) > prefetch(2)",
        "from_items(20 items) > concat(from_range(20)) > prefetch(2)",
    ),
    (
        drop_idle_prefetch,
        RANGE.map(double).prefetch(0),
        "from_range(20) > map(double) > prefetch(0)",
        "from_range(20) > map(double)",
    ),
    (
        drop_idle_prefetch,
        STREAM.prefetch(2),  # a thread reads it ahead
        "from_iterable(range) > prefetch(2)",
        "from_iterable(range) > prefetch(2)",
    ),
    (
        drop_idle_prefetch,
        ITEMS.shuffle().take(4).prefetch(2),
        "from_items(20 items) > shuffle() > take(4) > prefetch(2)",
        "from_items(20 items) > shuffle() > take(4)",
    ),
    (
        drop_idle_prefetch,
        ITEMS.map(double).shuffle().prefetch(2),
        "from_items(20 items) > map(double) > shuffle() > prefetch(2)",
        "from_items(20 items) > map(double) > shuffle() > prefetch(2)",
    ),
    (
        drop_idle_prefetch,
        RANGE.prefetch(2),  # each worker reads for itself
        "from_range(20) > prefetch(2)",
        "from_range(20) > prefetch(2)",
    ),
    (
        drop_idle_prefetch,
        STREAM.shuffle(4).prefetch(2),
        "from_iterable(range) > shuffle(4) > prefetch(2)",
        "from_iterable(range) > shuffle(4) > prefetch(2)",
    ),
    (
        drop_idle_prefetch,
        STREAM.map(double).shuffle(4).prefetch(2),  # has yet to sink
        "from_iterable(range) > map(double) > shuffle(4) > prefetch(2)",
        "from_iterable(range) > map(double) > shuffle(4) > prefetch(2)",
    ),
    (
        drop_idle_prefetch,
        STREAM.map(double).prefetch(2).prefetch(3),  # has yet to be absorbed
        "from_iterable(range) > map(double) > prefetch(2) > prefetch(3)",
        "from_iterable(range) > map(double) > prefetch(2) > prefetch(3)",
    ),
    (
        drop_idle_prefetch,
        STREAM.prefetch(
            2, on_error="skip"
        ),  # leaving out is not work for a worker, but the stream is read ahead
        'from_iterable(range) > on_error="skip" > prefetch(2)',
        'from_iterable(range) > on_error="skip" > prefetch(2)',
    ),
    (
        drop_idle_prefetch,
        STREAM.map(double).prefetch(2).repeat(2).prefetch(3, on_error="skip"),  # all is another's
        (
            "from_iterable(range) > map(double) > prefetch(2) > repeat(2) > "
            'on_error="skip" > prefetch(3)'
        ),
        'from_iterable(range) > map(double) > prefetch(2) > repeat(2) > on_error="skip"',
    ),
    (
        drop_idle_prefetch,
        ITEMS.prefetch(2, on_error="skip"),
        'from_items(20 items) > on_error="skip" > prefetch(2)',
        'from_items(20 items) > on_error="skip"',
    ),
    (
        drop_idle_prefetch,
        RANGE.map(double).prefetch(threads=2),
        "from_range(20) > map(double) > prefetch(threads=2)",
        "from_range(20) > map(double) > prefetch(threads=2)",
    ),
    (
        split_prefetch,
        STREAM.shuffle(4).prefetch(0, on_error="skip").batch(2).prefetch(2),  # no work below
        (
            'from_iterable(range) > shuffle(4) > on_error="skip" > prefetch(0) > '
            "batch(2) > prefetch(2)"
        ),
        (
            'from_iterable(range) > shuffle(4) > on_error="skip" > prefetch(0) > '
            "batch(2) > prefetch(2)"
        ),
    ),
    # -- replicate is a choice among positions
    (
        hoist_prefetch,
        RANGE.map(double).prefetch(3).replicate(2),
        "from_range(20) > map(double) > prefetch(3) > replicate(2) > prefetch(2)",
        "from_range(20) > map(double) > replicate(2) > prefetch(3) > prefetch(2)",
    ),
    (
        take_before_map,
        RANGE.map(double).replicate(2).take(3),
        "from_range(20) > map(double) > replicate(2) > prefetch(2) > take(3)",
        "from_range(20) > map(double) > replicate(2) > prefetch(2) > take(3)",
    ),
]

ALL_TOGETHER: list[tuple[AnyFlow, str]] = [
    (
        RANGE.map(double).shuffle(4).shuffle(3).prefetch(2),
        "from_range(20) > map(double) > prefetch(2) > shuffle(4) > shuffle(3)",
    ),
    (
        STREAM.shuffle(4).repeat(2).prefetch(2),
        "from_iterable(range) > shuffle(4) > repeat(2) > prefetch(2)",
    ),
    (
        STREAM.filter(odd).batch(2).map(len).prefetch(2),
        "from_iterable(range) > filter(odd) > prefetch(1) > batch(2) > map(len) > prefetch(1)",
    ),
    (
        RANGE.map(double).prefetch(2).shuffle(3).map(double).prefetch(4),
        "from_range(20) > map(double) > prefetch(2) > shuffle(3) > map(double) > prefetch(4)",
    ),
    (
        RANGE.map(double).prefetch(2).shuffle().take(3),
        "from_range(20) > map(double) > shuffle() > take(3) > prefetch(2)",
    ),
    (RANGE.map(double).prefetch(2).prefetch(0), "from_range(20) > map(double) > prefetch(2)"),
    (ITEMS.prefetch(2).shuffle().prefetch(3), "from_items(20 items) > shuffle()"),
    (
        RANGE.map(double).prefetch(2).zip(ITEMS.map(abs)).shuffle().batch(3, collate=list),
        (
            "from_range(20) > map(double) > zip(from_items(20 items) > map(abs)) > shuffle() > "
            "prefetch(2) > batch(3, collate=list)"
        ),
    ),
    (
        STREAM.map(double).concat(STREAM.shuffle(4)).map(abs).prefetch(4),
        (
            "from_iterable(range) > map(double) > prefetch(2) > "
            "concat(from_iterable(range) > shuffle(4) > prefetch(2)) > map(abs) > prefetch(2)"
        ),
    ),
]


def _same_promise(before: AnyNode, after: AnyNode) -> None:
    assert after.effects == before.effects
    assert after.length == before.length
    assert after.spec(probe=True) == before.spec(probe=True)
    for epoch in range(2):
        assert reference(after, epoch) == reference(before, epoch)


@pytest.mark.parametrize(
    ("rule", "flow", "before", "after"),
    CASES,
    ids=[f"{rule.__name__}: {before}" for rule, _, before, _ in CASES],
)
def test_each_rule_rewrites_as_expected(rule: Rule, flow: AnyFlow, before: str, after: str) -> None:
    assert picture(flow.node) == before
    changed = rewrite(steps_of(flow.node), rule).node
    assert picture(changed) == after
    assert (changed is flow.node) == (before == after)
    _same_promise(flow.node, changed)


@pytest.mark.parametrize(
    ("flow", "after"), ALL_TOGETHER, ids=[picture(flow.node) for flow, _ in ALL_TOGETHER]
)
def test_all_rules_together_rewrite_as_expected(flow: AnyFlow, after: str) -> None:
    changed = optimize(steps_of(flow.node)).node
    assert picture(changed) == after
    _same_promise(flow.node, changed)


def test_every_rule_has_cases_that_change_and_that_do_not() -> None:
    changes = {rule for rule, _, before, after in CASES if before != after}
    leaves = {rule for rule, _, before, after in CASES if before == after}
    assert changes == leaves == set(RULES)


@pytest.mark.hypothesis
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_keeps_effects_and_length_of_any_chain(rule: Rule) -> None:
    @settings(max_examples=examples(100))
    @given(chains(most=6, prefetched=True))
    def check(recipe: Recipe) -> None:
        node = recipe.build(procs=2).node
        changed = rewrite(steps_of(node), rule).node
        assert changed.effects == node.effects
        assert changed.length == node.length
        again = recipe.build(procs=2).node  # a queue gives one pass
        assert reference(changed) == reference(again)

    check()
