"""The first element that ``flowdsl check`` computes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings

import flowdsl as fl
from flowdsl.cli import first_element
from flowdsl.cli.first_element import NotComputed, spec_computed
from flowdsl.errors import FlowError
from flowdsl.testing.recipes import Recipe
from tests.sampling import examples
from tests.strategies import chains

AnyFlow: TypeAlias = fl.Flow[Any, Any]
calls = Counter[tuple[str, str]]()


def _counted(name: str) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        calls[name, repr(x)] += 1
        return x

    return function


def _inverse(i: int) -> Any:
    calls["inverse", repr(i)] += 1
    return 1 / i


FLOWS: dict[str, Callable[[AnyFlow], AnyFlow]] = {
    "functions": lambda f: f.map(_counted("b")).map(_counted("c")),
    "a filter": lambda f: f.filter(lambda i: i > 3).map(_counted("b")),
    "a stream": lambda f: f.flat_map(lambda i: [i, i + 1]).map(_counted("b")).map(_counted("c")),
    "batches": lambda f: f.map(np.float64).batch(3).map(_counted("b")).unbatch(),
    "a skip": lambda f: f.map(_counted("b")).skip(1).map(_counted("c")),
    "an order": lambda f: f.shuffle(seed=1).map(_counted("b")).sample(5, seed=1),
    "an order of a stream": lambda f: f.filter(bool).shuffle(buffer=3).map(_counted("b")),
    "a window": lambda f: f.map(_counted("b")).window(3, stride=2).map(_counted("c")),
    "a pair": lambda f: f.zip(fl.from_range(10).map(_counted("z"))).map(_counted("c")),
    "two flows": lambda f: f.concat(fl.from_range(9).map(_counted("z"))).map(_counted("b")),
    "a mix": lambda f: fl.mix([f, fl.from_range(10).map(_counted("z"))], seed=1).map(_counted("b")),
    "copies": lambda f: f.filter(bool).map(_counted("b")).replicate(procs=1).map(_counted("c")),
    "a flow without elements": lambda f: f.filter(lambda i: False).map(_counted("b")).take(1),
    "no elements of functions": lambda f: f.map(_counted("b")).take(0).map(_counted("c")),
    "workers": lambda f: f.map(_counted("b")).prefetch(procs=2).map(_counted("c")),
}


@pytest.mark.parametrize("name", FLOWS)
def test_no_function_is_called_twice_with_an_element(name: str) -> None:
    calls.clear()
    spec = spec_computed(FLOWS[name](fl.from_range(10).map(_counted("a"))).node)
    assert set(calls.values()) <= {1}
    assert spec == FLOWS[name](fl.from_range(10).map(_counted("a"))).node.spec(probe=True)


@pytest.mark.parametrize(
    "above", [lambda f: f, lambda f: f.filter(lambda x: x < 1), lambda f: f.take(3)]
)
def test_an_element_that_a_run_leaves_out_is_not_computed(
    above: Callable[[AnyFlow], AnyFlow],
) -> None:
    calls.clear()
    flow = above(fl.from_range(10).map(_inverse).skip(1).map(_counted("b")))
    assert str(spec_computed(flow.node)) == "float"
    assert calls["inverse", "0"] == 0


def test_an_operator_that_reads_without_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_element, "SECONDS", 0.1)
    flow = fl.from_range(1).flat_map(lambda _: itertools.count()).filter(lambda _: False)
    with pytest.raises(NotComputed, match=r"none was found within 0\.1 seconds"):
        spec_computed(flow.node)


@settings(max_examples=examples(200), deadline=None)
@given(chains(most=4, one_pass=True))
def test_the_spec_is_as_without_computing_the_first_element(recipe: Recipe) -> None:
    try:
        expected = recipe.build(0).node.spec(probe=True)
        next(iter(recipe.build(0)), None)
    except FlowError:
        return
    with suppress(NotComputed):  # a source that is read only once
        assert spec_computed(recipe.build(0).node) == expected
