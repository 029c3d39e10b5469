"""The laws of flows: each a sentence, and a function that fails when it is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import attrs

from flowdsl import Endless, FlowError, Reordered, Resampled, Unsized
from flowdsl.errors import ElementError
from flowdsl.node import AnyNode, Indexing
from flowdsl.plan.lower import lower
from flowdsl.plan.optimize import optimize
from flowdsl.plan.reference import interpret
from flowdsl.plan.tree import walk
from flowdsl.specs import meet, spec_of
from tests.elements import ids, same
from tests.strategies import MOST_ELEMENTS, Recipe


@attrs.frozen
class Outcome:
    """What a pass gave: elements, then perhaps an error; or it was cut short."""

    elements: list[Any]
    error: str | None
    ended: bool

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Outcome)
            and (self.error, self.ended) == (other.error, other.ended)
            and same(self.elements, other.elements)
        )


def outcome(elements: Iterator[Any], most: int = MOST_ELEMENTS) -> Outcome:
    """Run a pass, up to ``most`` elements."""
    got: list[Any] = []
    try:
        for element in islice(elements, most):
            got.append(element)  # noqa: PERF402  # what came before an error counts too
    except FlowError as error:
        cause = error.__cause__
        return Outcome(
            got, f"{type(error).__name__}: {error} <- {type(cause).__name__}: {cause}", True
        )
    return Outcome(got, None, len(got) < most)


def reference(node: AnyNode, epoch: int = 0) -> Outcome:
    return outcome(interpret(node, epoch))


def _collects(node: AnyNode) -> bool:
    """Its reference has to see all elements before it gives the first; a run need not."""
    return isinstance(node, Indexing) and Reordered in node.adds


def planning_keeps_the_meaning(recipe: Recipe, epoch: int = 0) -> None:
    """What the rules and the lowering give means what was written."""
    node = recipe.build(procs=2).node
    expected = reference(node, epoch)
    better = optimize(node)
    assert better.effects == node.effects
    assert better.length == node.length
    assert reference(better, epoch) == expected
    assert reference(lower(better), epoch) == expected


def running_gives_the_reference(recipe: Recipe, procs: int = 0, epoch: int = 0) -> None:
    """A run delivers the reference sequence, whatever runs it; and its error, at its place."""
    flow = recipe.build(procs)
    expected = reference(flow.node, epoch)
    with flow.epoch(epoch) as run:
        got = outcome(run)
    if expected.error is not None and any(map(_collects, walk(flow.node))):
        # The reference collects what it shuffles and fails; a run makes no more than is asked for.
        assert got.error is None or got.error.split(":")[0] == expected.error.split(":")[0]
    else:
        assert got == expected


def resuming_gives_the_rest(recipe: Recipe, position: int, procs: int = 0) -> None:
    """A run resumed from a state gives what the first would have given, on any procs."""
    flow = recipe.build()
    whole = reference(flow.node)
    if whole.error is not None or position > len(whole.elements):
        return
    with iter(flow) as run:
        for _ in range(position):
            next(run)
        state = run.state_dict()
    with recipe.build(procs).resume(state) as rest:
        left = MOST_ELEMENTS - position
        assert outcome(rest, left) == Outcome(whole.elements[position:], None, whole.ended)


def prefetch_changes_nothing(recipe: Recipe, place: int, procs: int, epoch: int = 0) -> None:
    """A prefetch anywhere in a chain changes no element: not even a random draw above it."""
    steps = list(recipe.steps)
    steps.insert(place % (len(steps) + 1), lambda flow, n: flow.prefetch(procs=n))
    flow = attrs.evolve(recipe, steps=tuple(steps)).build(procs)
    expected = reference(recipe.build().node, epoch)
    assert reference(flow.node, epoch) == expected
    if expected.error is None:
        with flow.epoch(epoch) as run:
            assert outcome(run) == expected


def passes_are_pure(recipe: Recipe) -> None:
    """Iterating twice gives the same elements twice."""
    flow = recipe.build()
    first = outcome(iter(flow))
    assert outcome(iter(flow)) == first


def length_is_true(recipe: Recipe) -> None:
    """A known length is the number of elements; a flow without Unsized or Endless has one."""
    flow = recipe.build()
    got = reference(flow.node)
    if Endless in flow.effects:
        assert flow.node.length is None
        assert not got.ended or got.error is not None
    elif Unsized in flow.effects:
        assert got.ended or len(got.elements) == MOST_ELEMENTS
    else:
        length = flow.node.length
        assert length is not None
        if got.error is None:
            assert len(got.elements) == min(length, MOST_ELEMENTS)


def rows_keep_the_effects(recipe: Recipe) -> None:
    """Without Resampled, every epoch has the same rows, each once; without Reordered, in order."""
    flow = recipe.build()
    passes = [reference(flow.node, epoch) for epoch in range(3)]
    if Resampled in flow.effects or any(one.error or not one.ended for one in passes):
        return
    rows = [[i for element in one.elements for i in ids(element)] for one in passes]
    for seen in rows:
        assert max(Counter(seen).values(), default=0) <= 1
        assert sorted(seen) == sorted(rows[0])
        if Reordered not in flow.effects:
            assert seen == sorted(seen)


def spec_is_true(recipe: Recipe) -> None:
    """Every element is what the spec says."""
    flow = recipe.build()
    got = reference(flow.node)
    if got.error is None and got.elements:
        spec = flow.spec
        for element in got.elements:
            meet(spec, spec_of(element))


def errors_name_the_row(recipe: Recipe) -> None:
    """An element that fails is named by the row it came from, where positions tell it."""
    flow = recipe.build()
    try:
        for _ in islice(iter(flow), MOST_ELEMENTS):
            pass
    except ElementError as error:
        cause = str(error.__cause__)
        if cause.startswith("row ") and error.origin.startswith("row "):
            bad = int(cause.split()[1])
            first, *last = (int(word) for word in error.origin.split() if word.isdigit())
            if Reordered not in flow.effects:
                assert first <= bad <= max([first, *last])
            elif not last:
                assert first == bad
    except FlowError:
        pass


LAWS = (
    planning_keeps_the_meaning,
    running_gives_the_reference,
    passes_are_pure,
    length_is_true,
    rows_keep_the_effects,
    spec_is_true,
    errors_name_the_row,
)
