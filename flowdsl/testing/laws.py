"""The laws of flows: functions that fail if a law is broken; their docstrings state the laws."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeAlias

import attrs

from flowdsl.effects import Effect, Endless, Reordered, Resampled, Unsized, describe
from flowdsl.elements.matching_specs import meet
from flowdsl.elements.specs import Spec, spec_of, without_sizes
from flowdsl.errors import ElementError, FlowError, NotResumable, SourceError, SpecMismatch
from flowdsl.nodes import AnyNode, Elementwise, Failed, OneShot, frozen_node, with_sources
from flowdsl.plan.tree import Step, steps_of, walk
from flowdsl.runtime.origins import Origin
from flowdsl.testing.elements import ids, same, with_other_data
from flowdsl.testing.outcomes import (
    REWRITES,
    Outcome,
    agree,
    difference,
    element_difference,
    outcome,
    plan_rows,
    reference,
    reference_rows,
    require,
)
from flowdsl.testing.recipes import MAX_ELEMENTS, AnyFlow, Part, Recipe

Law: TypeAlias = Callable[[Recipe], None]

EPOCHS = range(3)
MAX_RESUMED = 8
"""The number of positions, from the first on, at which a pass is resumed."""
MAX_TRACED = 6
"""The number of elements of a pass whose origins are checked."""


# -- the meaning of a flow -------------------------------------------------------------------------


def reference_is_the_model(recipe: Recipe) -> None:
    """The reference equals the model of the operators, at the same positions."""
    for epoch in EPOCHS:
        got, error = _until_error(lambda: reference_rows(recipe.build().node, epoch))  # noqa: B023
        expected, model_error = _until_error(lambda: recipe.model().rows(epoch))  # noqa: B023
        what = f"epoch {epoch} of the reference"
        if error is None or model_error is None:
            require(error is model_error, f"{what}: it raised {error!r}, the model {model_error!r}")
        if isinstance(error, SourceError):  # of a second pass: before or at its first row
            size = min(len(got), len(expected))
            got, expected = got[:size], expected[:size]
        found = element_difference([x for _, x in got], [x for _, x in expected])
        require(found is None, f"{what}: {found}")
        positions = [i for i, _ in got], [i for i, _ in expected]
        require(
            positions[0] == positions[1],
            "{}: the positions are {}, and not {}".format(what, *positions),
        )


def _until_error(
    rows: Callable[[], Iterator[Any]],
) -> tuple[list[Any], Exception | None]:
    got: list[Any] = []
    try:
        for row in islice(rows(), MAX_ELEMENTS):
            got.append(row)  # noqa: PERF402  # rows before an error count, too
    except Exception as error:  # a model may raise any error
        return got, error.with_traceback(None)  # its frames would keep sources open
    return got, None


def passes_are_pure(recipe: Recipe) -> None:
    """A second iteration yields the same elements as the first, or raises a SourceError."""
    flow = recipe.build()
    if not recipe.is_in_order(0):
        return
    for epoch in (0, 1):
        first, second = (outcome(flow.epoch(epoch)) for _ in range(2))
        found = difference(second, first)
        if flow.node.replayable:
            require(found is None, f"the second pass of epoch {epoch}: {found}")
        elif element_difference(second.elements, first.elements) is not None:
            is_refused = (second.error or "").startswith(SourceError.__name__)
            require(is_refused, f"a second pass, which is not possible, is not refused: {found}")
            return


# -- effects, length and spec ----------------------------------------------------------------------


def promises_match_the_model(recipe: Recipe) -> None:
    """The effects and the length equal the effects and length of the model."""
    flow, model = recipe.build(), recipe.model()
    effects, expected = describe(flow.effects), describe(model.tags)
    require(flow.effects == model.tags, f"the effects are {effects}, but {expected} in the model")
    length = flow.node.length
    require(length == model.length, f"the length is {length}, but {model.length} in the model")


def length_is_true(recipe: Recipe) -> None:
    """A known length is the number of elements; a flow without Unsized or Endless has one."""
    flow = recipe.build()
    got, length = reference(flow.node), flow.node.length
    if Endless in flow.effects:
        require(length is None, f"a flow that is Endless has the length {length}")
        is_endless = not got.ended or got.error is not None
        require(is_endless, f"a flow that is Endless ended after {len(got)} elements")
    elif Unsized not in flow.effects:
        require(length is not None, "a flow that is not Unsized has no length")
    if length is not None and got.error is None:
        came = f"it has {len(got)}" + ("" if got.ended else " and more")
        fits = len(got) == min(length, MAX_ELEMENTS)
        require(fits, f"a flow of {length} elements: {came}")


def rows_keep_the_effects(recipe: Recipe) -> None:
    """Without Resampled, every epoch has the same rows, each once; without Reordered, in order.

    If no operator leaves rows out, these are all rows of every source.
    """
    effects = recipe.flow.effects
    passes = [reference(recipe.build().node, epoch) for epoch in EPOCHS]
    if Resampled in effects or any(got.error or not got.ended for got in passes):
        return
    rows = [[i for element in got.elements for i in ids(element)] for got in passes]
    for seen in rows:
        often = [i for i, times in Counter(seen).items() if times > 1]
        require(not often, f"without Resampled, these rows come more than once: {often}")
        if not (Reordered in effects and recipe.drops_by_group):
            alike = sorted(seen) == sorted(rows[0])
            require(alike, f"without Resampled, the rows of two epochs are {rows[0]} and {seen}")
        for part in recipe.parts:
            ours = [i for i in seen if i in part.ids]
            if Reordered not in effects:
                in_order = ours == sorted(ours, key=part.ids.index)
                require(in_order, f"without Reordered, the rows of {part.title} come as {ours}")
            if not recipe.omits:
                missing = sorted({*part.ids} - {*ours})
                require(
                    not missing,
                    f"no operator leaves rows out, and these rows are missing: {missing}",
                )


def spec_is_true(recipe: Recipe) -> None:
    """Every element matches the spec."""
    got = reference(recipe.build().node)
    if got.error is not None or not got.elements:
        return
    try:
        spec = recipe.build().spec
    except FlowError as error:
        # A probe ignores the shuffle, and may use a row that take leaves out.
        may_differ = Reordered in recipe.flow.effects or recipe.is_combined
        require(may_differ and recipe.omits, f"the spec is unknown: {error}")
        return
    if recipe.is_ragged or recipe.is_combined:  # the probed element may differ in size
        spec = without_sizes(spec)
    for element in got.elements:
        try:
            meet(spec, spec_of(element))
        except SpecMismatch as error:
            raise AssertionError(f"{element!r} is not {spec}: {error}") from error


def errors_name_the_row(recipe: Recipe) -> None:
    """An error names the rows of the failed element, if positions determine them."""
    flow = recipe.build()
    try:
        for _ in islice(iter(flow), MAX_ELEMENTS):
            pass
    except ElementError as error:
        bad = re.fullmatch(r"row (\d+) is bad", str(error.__cause__))
        if bad and error.origin.startswith("row "):
            named = _is_named(recipe, int(bad[1]), error.origin)
            require(named, f"row {bad[1]} is bad, and the error names {error.origin}")
    except FlowError:
        pass


_ROW = re.compile(
    r"row (\d+) of (.*?)(?:, (?:line \d+ of )?'[^']*')?(?= and row| to row| and \d+ more|$)"
)


def _is_named(recipe: Recipe, bad: int, origin: str) -> bool:
    """Return True if the row ``bad`` is among the rows that an error names, or between them."""
    begin, _, end = origin.partition(" to row ")
    first = [(int(i), title) for i, title in _ROW.findall(begin)]
    last = [(int(i), title) for i, title in _ROW.findall(f"row {end}")] if end else first
    places = [(p.ids.index(bad), p.title) for p in recipe.parts if bad in p.ids]
    if not places:
        return False
    if Reordered in recipe.flow.effects and (end or " more of " in origin):
        return True
    between = any(
        any(named == title and i >= low for low, named in first)
        or any(named == title and i <= high for high, named in last)
        for i, title in places
    )
    exactly = bool(end) or any(place in first for place in places)
    titles = {title for _, title in (*first, *last)}
    if titles == {recipe.parts[0].title} and not recipe.is_combined and not recipe.repeats:
        between &= min(i for i, _ in first) <= places[0][0] <= max(i for i, _ in last)
    return between and exactly


# -- origins ---------------------------------------------------------------------------------------


def origins_name_the_rows(recipe: Recipe) -> None:
    """The origins of an element are exactly the rows it is marked with, each equally often."""
    flow, parts = recipe.build(), _parts_by_source(recipe)
    for position, element, origins in _origins(recipe, flow, 0):
        named = Counter(parts[origin.step].ids[origin.row] for origin in origins)
        marked = Counter(ids(element))
        fits = marked <= named if recipe.loses_marks else marked == named
        rows = sorted(marked.elements())
        require(fits, f"element {position} has the rows {rows}, and its origins are {origins}")


def changing_a_row_changes_exactly_its_elements(recipe: Recipe, row: int, epoch: int = 0) -> None:
    """If a source row changes, exactly the elements change that have it among their origins."""
    rows = [
        (step, i) for step, part in _parts_by_source(recipe).items() for i in range(len(part.ids))
    ]
    if not rows:
        return
    step, row = rows[row % len(rows)]
    flow = recipe.build()
    changed = reference(_with_a_change(steps_of(recipe.build().node), step, row), epoch).elements
    for position, element, origins in _origins(recipe, flow, epoch):
        if position < len(changed):  # else an operator fails on an element it reads ahead
            differs = not same(element, changed[position])
            named = (step, row) in {(origin.step, origin.row) for origin in origins}
            does = f"element {position} {'changes' if differs else 'does not change'}"
            hidden = named and (recipe.loses_marks or recipe.is_ragged)
            require(
                hidden or differs == named,
                f"{does} with row {row} of source {step}, and its origins are {origins}",
            )


def _origins(recipe: Recipe, flow: AnyFlow, epoch: int) -> Iterator[tuple[int, Any, list[Origin]]]:
    """Yield some positions of a pass with elements and origins, if the flow supports origins."""
    if recipe.is_unordered or not flow.node.replayable:
        return
    elements = reference(recipe.build().node, epoch).elements
    for position in range(0, len(elements), 1 + len(elements) // MAX_TRACED):
        yield position, elements[position], flow.origins(position, epoch)


def _parts_by_source(recipe: Recipe) -> dict[int, Part]:
    """Return the rows of each source, by its number in the flow."""
    steps = (step for step in walk(steps_of(recipe.flow.node)) if not step.sources)
    return {step.number: part for step, part in zip(steps, recipe.parts, strict=True)}


@frozen_node
class _Changed(Elementwise[Any, Any, Effect]):
    """The elements of a source, one of them with other data and the same mark."""

    row: int

    @property
    def title(self) -> str:
        return self.source.title

    @property
    def depth(self) -> int:
        return self.source.depth

    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)

    def apply(self, x: Any, epoch: int, position: int) -> Any:
        return x if isinstance(x, Failed) or position != self.row else with_other_data(x)


def _with_a_change(step: Step, number: int, row: int) -> AnyNode:
    """Return the flow with other data in one row of one source.

    The row is changed above the functions that add marks to the rows.
    """
    below = step
    while isinstance(below.node, Elementwise) and not below.node.drops:
        (below,) = below.sources
    if below.number == number:
        return _Changed(step.node, row)
    return with_sources(
        step.node, tuple(_with_a_change(source, number, row) for source in step.sources)
    )


# -- plans and runs --------------------------------------------------------------------------------


def planning_keeps_the_meaning(recipe: Recipe, epoch: int = 0) -> None:
    """The results of each rule and of the lowering have the same meaning as the original chain."""
    expected = reference(recipe.build(procs=2).node, epoch)
    for rewritten in REWRITES:
        before = recipe.build(procs=2).node  # built again, since a flow may have state of a pass
        after = rewritten(before)
        if after is before:
            continue
        promises = [(describe(node.effects), node.length) for node in (after, before)]
        require(
            promises[0] == promises[1],
            "a plan has the effects and length {}, and not {}".format(*promises),
        )
        found = difference(reference(after, epoch), expected)
        require(found is None, f"a plan means something else: {found}\n{after}")
    rows = plan_rows(recipe.build(procs=2).node, epoch)
    found = difference(outcome(x for _, x in rows), expected)
    require(found is None, f"the plan means something else: {found}")


def running_gives_the_reference(recipe: Recipe, procs: int = 0, epoch: int = 0) -> None:
    """A run yields the elements of the reference, and its error at the same position."""
    if not recipe.is_in_order(procs):
        return
    node = recipe.build(procs).node
    expected = reference(node, epoch)
    with recipe.build(procs).epoch(epoch) as run:
        agree("a run", outcome(run), expected, node)


def resuming_gives_the_rest(
    recipe: Recipe, position: int, procs: int = 0, then_procs: int = 0, epoch: int = 0
) -> None:
    """A resumed run yields the rest of the first run, with any number of procs, or is refused.

    This also holds for a run resumed from the state of a resumed run. A state is refused if the
    order is unknown, or if a source is not resumable.
    """
    node = recipe.build(procs).node
    if recipe.is_unordered:
        return
    if any(isinstance(part, OneShot) for part in walk(node)):
        _state_is_refused(recipe, procs, epoch)
        return
    whole = reference(node, epoch)
    if position > len(whole):
        return
    with recipe.build(procs).epoch(epoch) as run:
        for _ in range(position):
            next(run)
        state = run.state_dict()
    with recipe.build(then_procs).resume(state) as rest:
        got = outcome(rest, MAX_ELEMENTS - position)
    expected = Outcome(whole.elements[position:], whole.error, whole.ended)
    agree(f"resumed after {position} elements", got, expected, node)
    further = min(position + 2, len(whole))
    with recipe.build(then_procs).resume(state) as rest:
        for _ in range(further - position):
            next(rest)
        state = rest.state_dict()
    with recipe.build(procs).resume(state) as rest:
        got = outcome(rest, MAX_ELEMENTS - further)
    expected = attrs.evolve(expected, elements=whole.elements[further:])
    agree(f"resumed after {position}, and again after {further} elements", got, expected, node)


def _state_is_refused(recipe: Recipe, procs: int, epoch: int) -> None:
    with recipe.build(procs).epoch(epoch) as run:
        try:
            run.state_dict()
        except NotResumable:
            return
    raise AssertionError("a source that is not resumable returned a state")


def resuming_anywhere_gives_the_rest(recipe: Recipe) -> None:
    """After each of the first elements, a resumed run yields the rest, or is refused."""
    for position in range(MAX_RESUMED):
        resuming_gives_the_rest(recipe, position)


def prefetch_changes_nothing(recipe: Recipe, place: int, procs: int, epoch: int = 0) -> None:
    """A prefetch anywhere in a chain changes no element, not even random ones above it."""
    if not recipe.is_in_order(procs):
        return
    with_prefetch = recipe.with_prefetch(place)
    node = with_prefetch.build(procs).node
    expected = reference(recipe.build().node, epoch)
    found = difference(reference(node, epoch), expected)
    require(found is None, f"the reference with a prefetch: {found}")
    with with_prefetch.build(procs).epoch(epoch) as run:
        agree("a run with a prefetch", outcome(run), expected, node)


def unordered_is_a_permutation(recipe: Recipe, procs: int, threads: int, epoch: int = 0) -> None:
    """With ordered=False every element occurs once, at any position."""
    expected = reference(recipe.build(procs).node, epoch)
    if recipe.is_unordered or expected.error is not None or not expected.ended:
        return
    flow = recipe.build(procs).prefetch(procs, threads, ordered=False)
    with flow.epoch(epoch) as run:
        missing = expected.elements
        for x in run:
            i = next((i for i, y in enumerate(missing) if same(x, y)), None)
            require(i is not None, f"{x!r} came twice, or is not in the reference")
            del missing[i or 0]
        require(not missing, f"these elements did not come: {missing}")


LAWS: tuple[Law, ...] = (
    reference_is_the_model,
    promises_match_the_model,
    passes_are_pure,
    length_is_true,
    rows_keep_the_effects,
    spec_is_true,
    errors_name_the_row,
    origins_name_the_rows,
    planning_keeps_the_meaning,
    running_gives_the_reference,
    resuming_anywhere_gives_the_rest,
)
"""The laws with only a recipe as argument; the others also need a number of procs or a position."""
