"""Random operators on several flows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs
from hypothesis import strategies as st
from typing_extensions import Unpack

from flowdsl.effects import Reordered
from flowdsl.nodes import Joining
from flowdsl.ops.several import zip as zip_flows
from flowdsl.plan.tree import walk
from flowdsl.testing import functions, models
from flowdsl.testing.catalogue import Draw
from flowdsl.testing.model import Model
from flowdsl.testing.operators import enumerate_, may_be, structure_of, take
from flowdsl.testing.recipes import AnyFlow, Facts, Recipe


def _draw_other(draw: Draw, recipe: Recipe, sources_in_use: int = 0) -> Recipe:
    """Draw another flow, with different rows, and elements of the first flow's structure.

    ``sources_in_use`` counts the sources of the other flows that were drawn already.
    """
    catalogue, number = recipe.drawn_from, len(recipe.parts) + sources_in_use
    name = recipe.name if recipe.name in catalogue.sources else None
    name = draw(st.sampled_from([name, None]))
    one_pass = draw(st.integers(0, 5)) == 0
    other = draw(catalogue.source_recipes(name, recipe.form, number, one_pass))
    joins = any(isinstance(node, Joining) for node in walk(recipe.flow.node))
    if joins or any(step.reshapes and step.others for step in recipe.steps):
        # do not copy the steps: a zip among them would use its second flow again, and that flow's
        # rows would occur twice; the same holds for another operator on several flows, and without
        # it the steps after it may not fit
        return other
    for step in recipe.steps:
        if step.reshapes:
            other = attrs.evolve(other, steps=(*other.steps, step), names=(*other.names, step.name))
    for name in draw(st.lists(st.sampled_from(catalogue.keeping_structure), max_size=2)):
        other = catalogue.operators[name](draw, other)
    return other


def _in_one_structure(recipes: list[Recipe]) -> list[Recipe]:
    """Convert the flows so that their elements have the same structure."""
    structures = [structure_of(x) for recipe in recipes for x in recipe.first[:1]]
    if len(structures) == len(recipes) and all(
        structure == structures[0] for structure in structures
    ):
        return recipes
    return list(map(_into_one_form, recipes))


def _into_one_form(recipe: Recipe) -> Recipe:
    return recipe.then(
        "map(in one form)",
        lambda f, _: f.map(functions.in_one_form),
        lambda m: models.map_(m, functions.in_one_form),
        reshapes=True,
        # of a group it keeps only the first row's mark, so the others look left out
        filters=True,
        loses_marks=True,
    )


def zip_(draw: Draw, recipe: Recipe, named: bool = False) -> Recipe:
    """Add a zip with another flow; if ``named``, of a dict of both."""
    # large elements would become larger; an order that may differ gives no pairs to compare
    if recipe.has_large_elements or Reordered in recipe.flow.effects:
        return enumerate_(draw, recipe)
    catalogue, one_pass = recipe.drawn_from, draw(st.integers(0, 5)) == 0
    other = draw(catalogue.source_recipes(number=len(recipe.parts), one_pass=one_pass))
    # a source may be Reordered too, such as from_zmq with several senders
    if Reordered in other.flow.effects:
        return enumerate_(draw, recipe)
    for name in draw(st.lists(st.sampled_from(catalogue.keeping_structure_and_order), max_size=2)):
        other = catalogue.operators[name](draw, other)
    if may_be(recipe, dict) and may_be(other, dict) and not named:
        func = partial(functions.renamed, str(len(recipe.parts)))
        other = other.then("map(rename)", lambda f, _: f.map(func), lambda m: models.map_(m, func))
    n, n_other = recipe.flow.node.length, other.flow.node.length
    choice = draw(st.integers(0, 7))
    if choice == 0 and (n is None or n_other is None):
        pass  # the lengths may differ, which is an error in the flow and in its model
    elif choice < 4 and n_other != 0 and not other.endless:
        other = other.then("repeat()", lambda f, _: f.repeat(), models.repeat, repeats=True)
    elif n is not None or n_other is not None or recipe.endless != other.endless:
        short = min((k for k in (n, n_other) if k is not None), default=5)
        recipe, other = (_cut(r, short) for r in (recipe, other))
    return recipe.then(
        f"zip({other.names}{', named' * named})",
        lambda f, procs: _zipped(f, other.build(procs), named),
        lambda m: models.zip_(
            m,
            other.model(m.failures_as_bad),
            join=(lambda a, b: {"one": a, "other": b}) if named else None,
        ),
        other,
        # zip ends with the finite flow, so rows of the endless one are left out
        omits=other.endless,
    )


def _zipped(one: AnyFlow, other: AnyFlow, named: bool) -> AnyFlow:
    return zip_flows({"one": one, "other": other}) if named else one.zip(other)


def zip_named(draw: Draw, recipe: Recipe) -> Recipe:
    """Add a zip of a dict of flows."""
    return zip_(draw, recipe, named=True)


def _cut(recipe: Recipe, n: int) -> Recipe:
    return recipe.then(
        f"take({n})", lambda f, _: f.take(n), lambda m: models.take(m, n), omits=True
    )


def combined(
    recipe: Recipe,
    name: str,
    others: list[Recipe],
    chain: Callable[..., AnyFlow],
    model: Callable[..., Model],
    **facts: Unpack[Facts],
) -> Recipe:
    """Combine several recipes by a function of their flows and a function of their models."""
    return recipe.then(
        f"{name}({', '.join(str(other.names) for other in others)})",
        lambda f, procs: chain(f, *(other.build(procs) for other in others)),
        lambda m: model(m, *(other.model(m.failures_as_bad) for other in others)),
        *others,
        **facts,
    )


def with_others(draw: Draw, recipe: Recipe) -> tuple[Recipe, list[Recipe]]:
    """Return the first recipe, adapted, and one or two others to combine it with."""
    others: list[Recipe] = []
    for _ in range(draw(st.integers(1, 2))):
        others.append(_draw_other(draw, recipe, sum(len(other.parts) for other in others)))
    recipe, *others = _in_one_structure([recipe, *others])
    return recipe, others


def concat(draw: Draw, recipe: Recipe) -> Recipe:
    """Add a concat with other flows."""
    if recipe.has_many_elements or recipe.endless:
        recipe = take(draw, recipe)
    recipe, others = with_others(draw, recipe)
    others[:-1] = [take(draw, o) if o.endless else o for o in others[:-1]]
    return combined(recipe, "concat", others, lambda f, *o: f.concat(*o), models.concat)


def interleave(draw: Draw, recipe: Recipe) -> Recipe:
    """Add an interleave with other flows."""
    recipe, others = with_others(draw, recipe)
    return combined(recipe, "interleave", others, lambda f, *o: f.interleave(*o), models.interleave)
