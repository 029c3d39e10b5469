"""The laws of flows: each a sentence, and a function that fails when it is broken."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial, reduce
from itertools import islice
from typing import Any

import attrs

from flowdsl import Endless, FlowError, Reordered, Resampled, Unsized
from flowdsl.capabilities import Live
from flowdsl.errors import ElementError, EndlessFlow, SourceError
from flowdsl.kinds import Grouping, Indexing
from flowdsl.node import AnyNode, Row
from flowdsl.plan.lower import plan_of
from flowdsl.plan.optimize import optimize
from flowdsl.plan.plan import Hosted, Part
from flowdsl.plan.reference import interpret
from flowdsl.plan.rules import RULES, Rule
from flowdsl.plan.tree import Step, rewrite, steps_of, walk
from flowdsl.specs import UNKNOWN, meet, spec_of, with_sizes
from tests.elements import ids, same
from tests.strategies import MOST_ELEMENTS, Recipe

EPOCHS = range(3)


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
        return Outcome(got, _named(error), True)
    return Outcome(got, None, len(got) < most)


def _named(error: FlowError) -> str:
    kind, cause = type(error).__name__, error.__cause__
    if type(error) in (FlowError, EndlessFlow):  # it names what a rule may have moved
        return f"{kind}: ..."
    return f"{kind}: {error} <- {type(cause).__name__}: {cause}"


def reference(node: AnyNode, epoch: int = 0) -> Outcome:
    return outcome(interpret(node, epoch))


def _reads_what_it_does_not_give(node: AnyNode) -> bool:
    """Its reference has to make elements before those that it gives; a run need not."""
    if isinstance(node, Grouping):
        return node.drop_remainder
    return isinstance(node, Indexing) and not node.keeps_positions


def _agree(got: Outcome, expected: Outcome, node: AnyNode) -> None:
    """A run gives the reference, and its error at its place.

    But where the reference fails on what it reads and does not give yet, or never gives, a run may
    fail later or not at all: it makes no more than is asked for.
    """
    if expected.error is not None and any(map(_reads_what_it_does_not_give, walk(node))):
        assert len(got.elements) >= len(expected.elements)
        assert same(got.elements[: len(expected.elements)], expected.elements)
        if len(got.elements) == len(expected.elements) and got.ended and got.error is not None:
            kinds = [error.split(":")[0] for error in (got.error, expected.error)]
            assert kinds[0] in (kinds[1], FlowError.__name__)  # flows may turn out to be unequal
    else:
        assert got == expected


# -- what a flow means -----------------------------------------------------------------------------


def reference_is_the_model(recipe: Recipe) -> None:
    """The reference gives what a model of the operators gives, at the same positions."""
    for epoch in EPOCHS:
        got, error = _until_error(recipe.build().node.reference, epoch)
        expected, model_error = _until_error(recipe.model().rows, epoch)
        assert (error is None) == (model_error is None), error or model_error
        if isinstance(error, SourceError):  # of a second pass: before it begins, or its first row
            size = min(len(got), len(expected))
            got, expected = got[:size], expected[:size]
        assert same(got, expected)


def _until_error(
    rows: Callable[[int], Iterator[Any]], epoch: int
) -> tuple[list[Any], Exception | None]:
    got: list[Any] = []
    try:
        for row in islice(rows(epoch), MOST_ELEMENTS):
            got.append(row)  # noqa: PERF402  # what came before an error counts too
    except Exception as error:  # a model raises what it likes
        return got, error
    return got, None


def passes_are_pure(recipe: Recipe) -> None:
    """Iterating twice gives the same elements twice, or says that it can not."""
    flow = recipe.build()
    if not recipe.is_in_order(0):
        return
    for epoch in (0, 1):
        first, second = (outcome(flow.epoch(epoch)) for _ in range(2))
        if flow.node.replayable:
            assert second == first
        elif not same(second.elements, first.elements):
            assert (second.error or "").startswith(SourceError.__name__)
            return


# -- what a flow promises --------------------------------------------------------------------------


def promises_are_those_of_the_model(recipe: Recipe) -> None:
    """The effects and the length are what the operators are said to have."""
    flow, model = recipe.build(), recipe.model()
    assert flow.effects == model.tags
    assert flow.node.length == model.length


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
        assert flow.node.length is not None
    if flow.node.length is not None and got.error is None:
        assert len(got.elements) == min(flow.node.length, MOST_ELEMENTS)


def rows_keep_the_effects(recipe: Recipe) -> None:
    """Without Resampled, every epoch has the same rows, each once; without Reordered, in order.

    They are all rows of every source, where no operator is there to choose.
    """
    effects = recipe.flow.effects
    passes = [reference(recipe.build().node, epoch) for epoch in EPOCHS]
    if Resampled in effects or any(one.error or not one.ended for one in passes):
        return
    rows = [[i for element in one.elements for i in ids(element)] for one in passes]
    for seen in rows:
        assert max(Counter(seen).values(), default=0) <= 1
        if not (Reordered in effects and recipe.judges_groups):
            assert sorted(seen) == sorted(rows[0])
        for part in recipe.parts:
            ours = [i for i in seen if i in part.ids]
            if Reordered not in effects:
                assert ours == sorted(ours, key=part.ids.index)
            if not recipe.chooses:
                assert sorted(ours) == sorted(part.ids)


def spec_is_true(recipe: Recipe) -> None:
    """Every element is what the spec says."""
    got = reference(recipe.build().node)
    if got.error is not None or not got.elements:
        return
    try:
        spec = recipe.build().spec
    except FlowError:  # a probe leaves out the shuffle, and may meet what was not taken
        assert Reordered in recipe.flow.effects or recipe.is_combined
        assert recipe.chooses
        return
    if recipe.is_ragged or recipe.is_combined:  # one element tells no size of those of another flow
        spec = with_sizes(spec, UNKNOWN)
    for element in got.elements:
        meet(spec, spec_of(element))


def errors_name_the_row(recipe: Recipe) -> None:
    """An element that fails is named by the rows it came from, where positions tell them."""
    flow = recipe.build()
    try:
        for _ in islice(iter(flow), MOST_ELEMENTS):
            pass
    except ElementError as error:
        bad = re.fullmatch(r"row (\d+) is bad", str(error.__cause__))
        if bad and error.origin.startswith("row "):
            _is_named(recipe, int(bad[1]), error.origin)
    except FlowError:
        pass


_ROW = re.compile(r"row (\d+) of (.*?)(?= and row| to row| and \d+ more|$)")


def _is_named(recipe: Recipe, bad: int, origin: str) -> None:
    """Whether the rows that an error names, or those between them, have a row among them."""
    begin, _, end = origin.partition(" to row ")
    first = [(int(i), title) for i, title in _ROW.findall(begin)]
    last = [(int(i), title) for i, title in _ROW.findall(f"row {end}")] if end else first
    places = [(p.ids.index(bad), p.title) for p in recipe.parts if bad in p.ids]
    assert places
    effects = recipe.flow.effects
    if Reordered in effects and (end or " more of " in origin):
        return
    assert any(
        any(title == one and i >= low for low, one in first)
        or any(title == one and i <= high for high, one in last)
        for i, title in places
    ), (bad, origin)
    if not end:
        assert any(place in first for place in places), (bad, origin)
    titles = {title for _, title in (*first, *last)}
    if titles == {recipe.parts[0].title} and not recipe.is_combined and not recipe.repeats:
        assert min(i for i, _ in first) <= places[0][0] <= max(i for i, _ in last)


# -- however it is run -----------------------------------------------------------------------------


def planning_keeps_the_meaning(recipe: Recipe, epoch: int = 0) -> None:
    """What each rule and the lowering give means what was written."""
    expected = reference(recipe.build(procs=2).node, epoch)

    def check(plan: Callable[[Step], Step]) -> None:
        before = recipe.build(procs=2).node
        after = plan(steps_of(before)).node
        if after is not before:
            assert (after.effects, after.length) == (before.effects, before.length)
            assert reference(after, epoch) == expected

    for k in range(len(RULES)):
        check(partial(_rewritten, RULES[: k + 1]))
    check(optimize)
    node = recipe.build(procs=2).node
    assert outcome(x for _, x in _meaning(plan_of(node).root, epoch)) == expected


def _rewritten(rules: tuple[Rule, ...], step: Step) -> Step:
    return reduce(rewrite, rules, step)


def _meaning(part: Part, epoch: int) -> Iterator[Row[Any]]:
    """What a plan means: every stage by the reference of what it gives."""
    if isinstance(part, Hosted):
        return part.top.node.rows(epoch, [partial(_meaning, one) for one in part.sources])
    return part.meaning.reference(epoch)


def running_gives_the_reference(recipe: Recipe, procs: int = 0, epoch: int = 0) -> None:
    """A run delivers the reference sequence, whatever runs it; and its error, at its place."""
    if not recipe.is_in_order(procs):
        return
    node = recipe.build(procs).node
    expected = reference(node, epoch)
    with recipe.build(procs).epoch(epoch) as run:
        _agree(outcome(run), expected, node)


def resuming_gives_the_rest(
    recipe: Recipe, position: int, procs: int = 0, then_procs: int = 0, epoch: int = 0
) -> None:
    """A run resumed from a state gives what the first would have given, on any procs.

    So does one that is resumed from a state of that.
    """
    node = recipe.build(procs).node
    if recipe.is_unordered or any(isinstance(part, Live) for part in walk(node)):
        return
    whole = reference(node, epoch)
    if position > len(whole.elements):
        return
    with recipe.build(procs).epoch(epoch) as run:
        for _ in range(position):
            next(run)
        state = run.state_dict()
    with recipe.build(then_procs).resume(state) as rest:
        got = outcome(rest, MOST_ELEMENTS - position)
    expected = Outcome(whole.elements[position:], whole.error, whole.ended)
    _agree(got, expected, node)
    further = min(position + 2, len(whole.elements))
    with recipe.build(then_procs).resume(state) as rest:
        for _ in range(further - position):
            next(rest)
        state = rest.state_dict()
    with recipe.build(procs).resume(state) as rest:
        got = outcome(rest, MOST_ELEMENTS - further)
    _agree(got, attrs.evolve(expected, elements=whole.elements[further:]), node)


def resuming_anywhere_gives_the_rest(recipe: Recipe) -> None:
    """The same after every element."""
    for position in range(MOST_ROWS_RESUMED):
        resuming_gives_the_rest(recipe, position)


MOST_ROWS_RESUMED = 8


def prefetch_changes_nothing(recipe: Recipe, place: int, procs: int, epoch: int = 0) -> None:
    """A prefetch anywhere in a chain changes no element: not even a random draw above it."""
    if not recipe.is_in_order(procs):
        return
    with_prefetch = recipe.with_prefetch(place)
    node = with_prefetch.build(procs).node
    expected = reference(recipe.build().node, epoch)
    assert reference(node, epoch) == expected
    with with_prefetch.build(procs).epoch(epoch) as run:
        _agree(outcome(run), expected, node)


def unordered_is_a_permutation(recipe: Recipe, procs: int, threads: int, epoch: int = 0) -> None:
    """With ordered=False every element comes once, at whatever place."""
    expected = reference(recipe.build(procs).node, epoch)
    if recipe.is_unordered or expected.error is not None or not expected.ended:
        return
    flow = recipe.build(procs).prefetch(procs, threads, ordered=False)
    with flow.epoch(epoch) as run:
        left = expected.elements
        for x in run:
            del left[next(i for i, y in enumerate(left) if same(x, y))]
        assert not left


LAWS = (
    reference_is_the_model,
    promises_are_those_of_the_model,
    passes_are_pure,
    length_is_true,
    rows_keep_the_effects,
    spec_is_true,
    errors_name_the_row,
    planning_keeps_the_meaning,
    running_gives_the_reference,
    resuming_anywhere_gives_the_rest,
)
