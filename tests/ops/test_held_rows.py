"""A resume above batches and windows by key reads again what these held, and not the whole pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import Flow

ROWS = 4_000


def some_key(x: int) -> int:
    return x * 7919 % 13


def rare(x: int) -> object:
    """The first row has a key that does not come again."""
    return "rare" if not x else x % 3


def of_length(x: int) -> NDArray[np.int64]:
    return np.full(1 + x * 7919 % 50, x)


def first_numbers(group: list[NDArray[np.int64]]) -> list[int]:
    return [int(array[0]) for array in group]


BY_KEY: dict[str, Callable[[Flow[int, Any]], Flow[Any, Any]]] = {
    "batch_by_key": lambda f: f.batch_by_key(8, some_key),
    "batch_by_key of a flow with gaps": lambda f: f.filter(lambda x: x % 3 > 0).batch_by_key(
        5, some_key
    ),
    "batch_by_shape": lambda f: f.map(lambda x: np.zeros(x % 5)).batch_by_shape(8, lambda a: a),
    "bucket_by_length": lambda f: f.map(of_length).bucket_by_length(
        len, [10, 20, 40], 16, collate=first_numbers
    ),
    "bucket_by_length of tokens": lambda f: f.map(of_length).bucket_by_length(
        len, [10, 20, 40], max_tokens=200, collate=first_numbers
    ),
    "windows": lambda f: f.window(10, 3, key=some_key),
    "windows without overlap": lambda f: f.window(4, 4, key=some_key),
    "windows with gaps": lambda f: f.window(2, 9, key=some_key, remainder="fill"),
    "windows of every second": lambda f: f.window(3, 2, dilation=2, key=some_key, stack=True),
}


class Counted:
    """Counts the rows that are computed."""

    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, x: int) -> int:
        self.rows += 1
        return x


@pytest.mark.parametrize("name", BY_KEY)
@pytest.mark.parametrize("at", [0.0, 0.01, 0.3, 0.999, 1.0])
def test_a_resume_computes_few_rows(name: str, at: float) -> None:
    counted = Counted()
    flow = BY_KEY[name](fl.from_range(ROWS).map(counted))
    whole = flow.collect()
    run = iter(flow)
    elements = list(islice(run, int(len(whole) * at)))
    state = json.loads(json.dumps(run.state_dict()))
    assert len(json.dumps(state)) < 1024
    run.close()
    before = counted.rows
    rest = iter(flow.resume(state))
    first = list(islice(rest, 1))
    assert counted.rows - before < 1_000
    assert repr(elements + first + list(rest)) == repr(whole)


@pytest.mark.parametrize("at", [5, 500, 740])
def test_a_key_that_came_once_is_held_and_the_rows_after_it_are_not_grouped_again(at: int) -> None:
    keys = list[object]()

    def key(x: int) -> object:
        keys.append(rare(x))
        return keys[-1]

    flow = fl.from_range(3_000).batch_by_key(4, key)
    whole = flow.collect()
    run = iter(flow)
    elements = list(islice(run, at))
    state = run.state_dict()
    assert len(json.dumps(state)) < 1024
    keys.clear()
    rest = iter(flow.resume(state))
    first = list(islice(rest, 1))
    assert len(keys) < 400
    assert repr(elements + first + list(rest)) == repr(whole)


def test_a_state_of_more_rows_than_it_can_hold_resumes_all_the_same() -> None:
    flow = fl.from_range(9_000).batch_by_key(9, lambda x: x * x % 1_999)
    whole = flow.collect()
    run = iter(flow)
    elements = list(islice(run, 300))
    state = run.state_dict()
    assert len(json.dumps(state)) < 1024
    assert repr(elements + list(flow.resume(state))) == repr(whole)


@st.composite
def chains(draw: st.DrawFn) -> Flow[Any, Any]:
    rows = draw(st.integers(0, 700))
    keys = draw(st.lists(st.integers(0, 9), min_size=1, max_size=12))
    flow: Flow[Any, Any] = fl.from_range(rows)
    if draw(st.booleans()):
        flow = flow.filter(lambda x: x % 5 != 2)

    def key(x: int) -> int:
        return keys[x * x % len(keys)]

    n, stride, dilation = draw(st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(1, 3)))
    if draw(st.booleans()):
        return flow.batch_by_key(n, key, drop_remainder=draw(st.booleans()))
    if draw(st.booleans()):
        return flow.window(n, stride, dilation=dilation, remainder="fill", key=key)
    remainder: Literal["drop", "keep"] = draw(st.sampled_from(["drop", "keep"]))
    return flow.window(n, stride, dilation=dilation, remainder=remainder, key=key)


@given(chains(), st.integers(0, 400), st.integers(0, 400), st.booleans())
def test_a_pass_that_is_resumed_twice_yields_the_same(
    flow: Flow[Any, Any], first: int, second: int, in_threads: bool
) -> None:
    whole = repr(flow.collect())
    chain = flow.prefetch(threads=1) if in_threads else flow
    run: Iterator[Any] = iter(chain)
    elements = list(islice(run, first))
    run = iter(chain.resume(json.loads(json.dumps(run.state_dict()))))  # type: ignore[attr-defined]
    elements += islice(run, second)
    assert repr([*elements, *chain.resume(run.state_dict())]) == whole  # type: ignore[attr-defined]
