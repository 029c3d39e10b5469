"""The optimizer: applies rules to a fixed point, and checks them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

import flowdsl as fl
from flowdsl.nodes import Placement
from flowdsl.plan import optimize as module
from flowdsl.plan.optimize import optimize
from flowdsl.plan.rules import Rule
from flowdsl.plan.tree import Step, steps_of
from flowdsl.resources.worker_kinds import Workers
from flowdsl.testing.recipes import Recipe
from tests.strategies import chains

FLOW = fl.from_range(9).map(str).prefetch(procs=2)


def use(monkeypatch: pytest.MonkeyPatch, *rules: Rule) -> None:
    monkeypatch.setattr(module, "RULES", rules)


@given(chains(most=6, prefetched=True))
def test_optimizing_twice_changes_nothing(recipe: Recipe) -> None:
    better = optimize(steps_of(recipe.build(procs=2).node))
    assert optimize(better) is better


def test_rules_apply_until_no_rule_changes_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def count_down(step: Step) -> Step:
        if isinstance(step.node, Placement) and step.node.workers.count > 1:
            return step.with_sources(
                *step.sources, workers=Workers(count=step.node.workers.count - 1)
            )
        return step

    use(monkeypatch, count_down)
    node: Any = optimize(steps_of(fl.from_range(9).prefetch(procs=50).node)).node
    assert node.workers.count == 1


def test_a_rule_that_loses_rows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(step: Step) -> Step:
        lost = steps_of(fl.from_range(8).node)
        return lost if step.node.title == "from_range(9)" else step

    use(monkeypatch, lose)
    with pytest.raises(AssertionError, match="lose changed a promise"):
        optimize(steps_of(FLOW.node))


def test_a_rule_that_adds_an_effect_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def shuffle(step: Step) -> Step:
        shuffled = steps_of(fl.from_range(9).shuffle().node)
        return shuffled if step.node.title == "from_range(9)" else step

    use(monkeypatch, shuffle)
    with pytest.raises(AssertionError, match="shuffle changed a promise"):
        optimize(steps_of(FLOW.node))


def test_rules_that_undo_each_other_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def flip(step: Step) -> Step:
        if isinstance(step.node, Placement):
            return step.with_sources(
                *step.sources, workers=Workers(count=3 - step.node.workers.count)
            )
        return step

    use(monkeypatch, flip)
    with pytest.raises(AssertionError, match="the rules do not settle on <Prefetch prefetch"):
        optimize(steps_of(FLOW.node))
