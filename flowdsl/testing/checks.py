"""check_operator and check_source: check an operator or a source against all laws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from typing_extensions import Unpack

from flowdsl.effects import Endless, Unsized
from flowdsl.errors import InvalidFlow
from flowdsl.testing import models
from flowdsl.testing.catalogue import Draw
from flowdsl.testing.elements import make, same
from flowdsl.testing.laws import (
    LAWS,
    changing_a_row_changes_exactly_its_elements,
    origins_name_the_rows,
    resuming_gives_the_rest,
    rows_keep_the_effects,
    running_gives_the_reference,
)
from flowdsl.testing.model import Model
from flowdsl.testing.outcomes import naming
from flowdsl.testing.recipes import MAX_ELEMENTS, AnyFlow, Facts, Recipe
from flowdsl.testing.standard import CATALOGUE, chains

_EXAMPLES_IN_PROCESSES = 2
"""The number of examples with worker processes, which take most of a second to start."""


def check_operator(
    chain: Callable[[AnyFlow], AnyFlow],
    model: Callable[[Model], Model],
    *,
    below: st.SearchStrategy[Recipe] | None = None,
    examples: int = 50,
    **facts: Unpack[Facts],
) -> None:
    """Check an operator against all laws: on random flows, below other operators, and in workers.

    ``chain`` adds the operator to a flow, and ``model`` implements its meaning in plain Python; the
    model of an operator that chooses rows by their positions ends with ``selected_by_position()``.
    ``below`` draws the flows that it is added to, such as ``chains(most=3, form="tuple")``; by
    default they have elements of any form, and some support only one pass. Flows that the operator
    refuses with an ``InvalidFlow`` are skipped.

    The ``facts`` are properties that the laws cannot determine. ``omits=True``: the
    operator may leave rows out. ``filters=True``: it may leave rows out because of their
    content. ``repeats=True``: a row may occur more than once. ``reshapes=True``: it changes the
    structure of elements. ``ragged=True``: its elements differ in shape. ``loses_marks=True``: an
    element may not contain the marks of all rows it was computed from.

    Each element is marked with the rows it was computed from (``flowdsl.testing.elements``). If the
    operator calls a function on elements, pass a function that preserves the marks, such as the
    functions in ``flowdsl.testing.functions``.

    >>> from itertools import islice
    >>> from flowdsl.testing import Model, check_operator
    >>> def every_other(source: Model) -> Model:
    ...     def rows(epoch):
    ...         return islice(source.elements(epoch), 0, None, 2)
    ...     length = None if source.length is None else -(-source.length // 2)
    ...     return source.then_renumbered(rows, length).selected_by_position()
    >>> finite = chains(most=1).filter(lambda recipe: not recipe.endless)
    >>> options = {"below": finite, "examples": 5, "omits": True}
    >>> check_operator(lambda flow: flow.shard(2, 0), every_other, **options)
    >>> try:
    ...     check_operator(lambda flow: flow.shard(2, 1), every_other, **options)
    ... except AssertionError:
    ...     print("a law is broken")
    a law is broken

    Raises:
        AssertionError: A law is broken; the error names the law, the flow and the difference.
        hypothesis.errors.Unsatisfiable: The operator refuses all flows.
    """
    flows = chains(most=3, one_pass=True) if below is None else below

    def chained(recipe: Recipe) -> Recipe:
        try:
            title = chain(recipe.flow).node.title
        except InvalidFlow:
            assume(False)
            raise
        return recipe.then(title, lambda flow, _: chain(flow), model, **facts)

    _check(flows.map(chained), examples)


def check_source(
    make_flow: Callable[[], AnyFlow], rows: Sequence[object], *, examples: int = 25
) -> None:
    """Check a source against all laws: alone, below random operators, and in workers.

    ``make_flow`` creates a flow over the source. ``rows`` are the expected rows of a pass: all
    different, and at most 60, because the laws check no more. If a source supports only one
    pass, ``make_flow`` is called for each pass. For an endless source, return a flow of its first
    rows, with ``take``.

    >>> import flowdsl as fl
    >>> from flowdsl.testing import check_source
    >>> check_source(lambda: fl.from_items("abc"), ["a", "b", "c"], examples=5)
    >>> try:
    ...     check_source(lambda: fl.from_items("abc"), ["a", "c", "b"], examples=5)
    ... except AssertionError as error:
    ...     for line in (error, *error.__notes__):
    ...         print(line)
    epoch 0 of the reference: element 1 is 'b', and not 'c'
    the law: The reference equals the model of the operators, at the same positions.
    the flow: from_items(3 items)

    Raises:
        AssertionError: A law is broken; the error names the law, the flow and the difference.
        ValueError: Two rows are equal, or there are too many rows, or the source is endless.
    """
    flow = make_flow()
    effects, replayable = flow.effects, flow.node.replayable
    if Endless in effects:
        raise ValueError(
            f"{flow.node.title} never ends: return a flow of its first rows, with take(n)"
        )
    _check_rows(rows)

    def unmarked() -> Model:
        model = models.rows(rows) if replayable else models.one_pass(rows)
        return attrs.evolve(
            model, length=None if Unsized in effects else len(rows), tags=effects, read=None
        )

    recipe = attrs.evolve(Recipe.of(flow.node.title, make_flow, unmarked), catalogue=CATALOGUE)
    mark = partial(_marked, rows)
    marked = attrs.evolve(
        Recipe.of(
            flow.node.title,
            lambda: make_flow().map(mark),
            lambda: models.map_(unmarked(), mark),
        ),
        catalogue=CATALOGUE,
    )
    for law in LAWS:
        if law not in (rows_keep_the_effects, origins_name_the_rows):  # the rows have no marks
            check_law(law, recipe)
    _check(st.just(marked), examples)


def _check_rows(rows: Sequence[object]) -> None:
    if len(rows) > MAX_ELEMENTS:
        raise ValueError(f"rows must contain at most {MAX_ELEMENTS} rows, got {len(rows)}")
    for i, row in enumerate(rows):
        for k in range(i):
            if same(row, rows[k]):
                raise ValueError(f"rows {k} and {i} are equal: {row!r}")


def _marked(rows: Sequence[object], row: object) -> Any:
    """Return the row with a mark that identifies it for the laws."""
    return make("tuple", next(i for i, other in enumerate(rows) if same(other, row)))


_places = st.integers(0, 9)
_rows = st.integers(0, MAX_ELEMENTS - 1)


@st.composite
def _below_others(draw: Draw, flows: st.SearchStrategy[Recipe]) -> Recipe:
    """A flow with one or two more operators above it."""
    recipe = draw(flows)
    names = st.sampled_from(list(CATALOGUE.operators))
    for name in draw(st.lists(names, min_size=1, max_size=2)):
        recipe = CATALOGUE.operators[name](draw, recipe)
    return recipe


def _check(flows: st.SearchStrategy[Recipe], examples: int) -> None:
    """Check all laws on flows, alone and below other operators; some with threads or processes."""
    quiet = settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )

    @quiet
    @given(flows | _below_others(flows), _rows)
    def here(recipe: Recipe, row: int) -> None:
        for law in LAWS:
            check_law(law, recipe)
        check_law(changing_a_row_changes_exactly_its_elements, recipe, row)

    @quiet
    @given(flows | _below_others(flows), _places, st.integers(1, 3), _places)
    def in_threads(recipe: Recipe, place: int, n: int, position: int) -> None:
        prefetched = recipe.with_prefetch(place, threads=True)
        check_law(running_gives_the_reference, prefetched, n)
        check_law(resuming_gives_the_rest, prefetched, position, n)

    @settings(quiet, max_examples=_EXAMPLES_IN_PROCESSES)
    @given(flows)
    def in_processes(recipe: Recipe) -> None:
        check_law(running_gives_the_reference, recipe.with_prefetch(len(recipe.steps)), 1)

    here()
    in_threads()
    in_processes()


def check_law(law: Callable[..., None], recipe: Recipe, *arguments: int) -> None:
    """Check a flow against a law; an error names the law and the flow.

    Raises:
        AssertionError: The law is broken.
    """
    try:
        with naming(law):
            law(recipe, *arguments)
    except Exception as error:
        error.add_note(f"the flow: {' > '.join(recipe.names)}")
        raise
