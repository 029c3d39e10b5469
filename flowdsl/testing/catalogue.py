"""The catalogue: the sources and operators of random chains, and the strategy that draws chains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs
from hypothesis import strategies as st

from flowdsl.testing.elements import FORMS
from flowdsl.testing.recipes import Part, Recipe, Source

Draw: TypeAlias = st.DrawFn

DrawSource: TypeAlias = Callable[[Draw, str, int, int], Source]
"""Draws a source.

Called with ``draw``, the form of the elements, the id of the first row, and how many rows.
"""

DrawOperator: TypeAlias = Callable[[Draw, Recipe], Recipe]
"""Draws the arguments of an operator, and adds the operator to a flow and its model.

A model computes the expected elements of a flow in plain Python, without flowdsl's nodes.
"""

Theme: TypeAlias = tuple[str | None, tuple[tuple[str, ...], ...]]
"""A source, or None for any, and the operators to choose from for each place above it."""

MAX_ROWS = 24

_sizes = st.sampled_from([*range(MAX_ROWS + 1), *range(MAX_ROWS // 2, MAX_ROWS + 1)])
"""Numbers of rows, mostly large: operators of a chain leave many rows out."""


@attrs.frozen
class Catalogue:
    """Sources and operators by name, from which random chains are drawn."""

    sources: Mapping[str, DrawSource]
    operators: Mapping[str, DrawOperator]
    one_pass: frozenset[str]
    """Sources that support only one pass each time they are built."""
    reshaping: frozenset[str]
    """Operators that change the structure of elements, or combine flows."""
    reordering: frozenset[str]
    """Operators that reorder elements: ``zip`` refuses flows above them."""
    themes: tuple[Theme, ...] = ()
    """Operators that belong together, but are rarely drawn in sequence by chance."""
    sizes: st.SearchStrategy[int] = _sizes
    """Draws the number of rows of a source."""
    slow: frozenset[str] = frozenset()
    """Slow sources, which are drawn less often."""

    @property
    def keeping_structure(self) -> list[str]:
        """Operators on one flow that keep the structure of its elements."""
        return [name for name in self.operators if name not in self.reshaping]

    @property
    def keeping_structure_and_order(self) -> list[str]:
        """Operators on one flow that keep the structure and the order of its elements."""
        return [name for name in self.keeping_structure if name not in self.reordering]

    def source_recipes(
        self,
        name: str | None = None,
        form: str | None = None,
        number: int = 0,
        one_pass: bool = False,
    ) -> st.SearchStrategy[Recipe]:
        """Draw a random source; sources with different ``number`` have different rows."""
        return _source_recipes(self, name, form, number, one_pass)

    def chains(
        self,
        most: int = 5,
        last: str | None = None,
        prefetched: bool = False,
        one_pass: bool = False,
        form: str | None = None,
        source: str | None = None,
    ) -> st.SearchStrategy[Recipe]:
        """Draw a source and up to ``most`` operators, ending with ``last`` and a prefetch.

        With ``one_pass`` the source may support only one pass. ``form`` is the structure of the
        elements, one of ``FORMS``, or any by default. ``source`` names the source to use.
        """
        return _chains(self, most, last, prefetched, one_pass, form, source)


@st.composite
def _source_recipes(
    draw: Draw,
    catalogue: Catalogue,
    name: str | None,
    form: str | None,
    number: int,
    one_pass: bool,
) -> Recipe:
    names = [name for name in catalogue.sources if one_pass or name not in catalogue.one_pass]
    if name is None and catalogue.slow and draw(st.integers(0, 3)):
        names = [name for name in names if name not in catalogue.slow]
    name = name or draw(st.sampled_from(names))
    form = form or draw(st.sampled_from(FORMS))
    n, first = draw(catalogue.sizes), 100 * number
    source = catalogue.sources[name](draw, form, first, n)
    part = Part.of(source, tuple(range(first, first + n)))
    return Recipe(source, form, (f"{name}({n} {form})",), (part,), catalogue=catalogue)


@st.composite
def _chains(
    draw: Draw,
    catalogue: Catalogue,
    most: int,
    last: str | None,
    prefetched: bool,
    one_pass: bool,
    form: str | None,
    source: str | None,
) -> Recipe:
    operators = catalogue.operators
    theme: tuple[tuple[str, ...], ...] = ()
    if catalogue.themes and source is None and most > 4 and draw(st.integers(0, 4)) == 0:
        source, theme = draw(st.sampled_from(catalogue.themes))
    recipe = draw(catalogue.source_recipes(source, form, one_pass=one_pass))
    for names in theme:
        recipe = operators[draw(st.sampled_from(names))](draw, recipe)
    for _ in range(draw(st.integers(0, most - len(theme)))):
        recipe = operators[draw(st.sampled_from(list(operators)))](draw, recipe)
    if last is not None:
        recipe = operators[last](draw, recipe)
    return operators["Prefetch"](draw, recipe) if prefetched else recipe
