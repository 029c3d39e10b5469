"""The standard catalogue: random chains of some operators of each kind."""

from __future__ import annotations

from hypothesis import strategies as st

from flowdsl.testing import combining, operators, sources
from flowdsl.testing.catalogue import Catalogue, DrawOperator, DrawSource
from flowdsl.testing.recipes import Recipe

SOURCES: dict[str, DrawSource] = {
    "FromItems": sources.in_memory,
    "FromIterable": sources.streamed,
    "FromQueue": sources.once,
    "FromRange": sources.by_number,
}

OPERATORS: dict[str, DrawOperator] = {
    "Batch": operators.batch,
    "Cache": operators.cache,
    "Concat": combining.concat,
    "Enumerate": operators.enumerate_,
    "Filter": operators.filter_,
    "FlatMap": operators.flat_map,
    "Interleave": combining.interleave,
    "SkipFailed": operators.on_error,
    "Map": operators.map_,
    "Prefetch": operators.prefetch,
    "RandomMap": operators.random_map,
    "Repeat": operators.repeat,
    "RepeatForever": operators.repeat_forever,
    "Shuffle": operators.shuffle,
    "Skip": operators.skip,
    "Take": operators.take,
    "Threads": operators.threads,
    "WindowShuffle": operators.window_shuffle,
    "Zip": combining.zip_,
}

ONE_PASS = frozenset({"FromQueue"})
"""Sources that support only one pass."""
RESHAPING = frozenset({"Batch", "Concat", "Enumerate", "Interleave", "Zip"})
"""Operators that change the structure of elements, or combine flows."""
REORDERING = frozenset({"Shuffle", "WindowShuffle"})
"""Operators that reorder elements: ``zip`` refuses flows above them."""

CATALOGUE = Catalogue(
    SOURCES, OPERATORS, one_pass=ONE_PASS, reshaping=RESHAPING, reordering=REORDERING
)
"""Sources and operators of each kind that the planner distinguishes, and some others."""


def chains(
    most: int = 5,
    last: str | None = None,
    prefetched: bool = False,
    one_pass: bool = False,
    form: str | None = None,
) -> st.SearchStrategy[Recipe]:
    """Random flows with their models: a source and up to ``most`` operators.

    They end with the operator ``last`` and, with ``prefetched``, a prefetch. With ``one_pass`` the
    source may support only one pass, like a queue. The elements are marked with the number of their
    row; their structure is ``form`` (one of ``elements.FORMS``), or any.

    >>> from hypothesis import given, settings
    >>> from flowdsl.testing.laws import running_gives_the_reference
    >>> @settings(max_examples=5, database=None)
    ... @given(chains(most=3))
    ... def check(recipe):
    ...     running_gives_the_reference(recipe)
    >>> check()
    """
    return CATALOGUE.chains(most, last, prefetched, one_pass, form)
