"""A run over several flows, of which some are filtered, resumes each of them at its place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Flow, Run

ROWS = 600


class Counted:
    """Counts the rows that are computed."""

    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, x: int) -> int:
        self.rows += 1
        return x


def odd(x: int) -> bool:
    return x % 2 > 0


def is_small(x: int) -> bool:
    return x < 10**9


def twice(x: int) -> list[int]:
    return [x, x]


def through_json(run: Run[Any]) -> dict[str, Any]:
    text = json.dumps(run.state_dict())
    assert len(text) < 1024
    state: dict[str, Any] = json.loads(text)
    return state


Build = Callable[[Flow[int, Any], Flow[int, Any]], Flow[Any, Any]]

SEVERAL: dict[str, Build] = {
    "concat": lambda a, b: a.filter(odd).concat(b.flat_map(twice)),
    "concat after an endless one": lambda a, b: a.filter(odd).concat(b.filter(odd).repeat()),
    "interleave": lambda a, b: a.filter(odd).interleave(b),
    "interleave by weights": lambda a, b: a.filter(odd).interleave(b, weights=[3, 1]),
    "interleave two of three": lambda a, b: fl.interleave([a, b.filter(odd), a], cycle=2, block=3),
    "interleave until the first ends": lambda a, b: a.interleave(b.filter(odd), stop="first"),
    "choose": lambda a, b: a.filter(odd).choose(b.flat_map(twice), seed=1),
    "choose by weights": lambda a, b: fl.choose([a, b.filter(odd), a.map(abs)], weights=[5, 1, 2]),
    "choose until the first ends": lambda a, b: a.filter(odd).choose(b, stop="first"),
    "mix": lambda a, b: a.shuffle(buffer=9).mix(b.shuffle(buffer=5)),
    "zip": lambda a, b: a.filter(odd).zip(b.filter(odd).repeat()),
    "a mixture of mixtures": lambda a, b: (
        a.filter(odd).choose(b).interleave(a.concat(b.filter(odd)))
    ),
    "batches of a mixture": lambda a, b: a.filter(odd).choose(b).batch(3, collate=list).repeat(),
    "rows of a mixture": lambda a, b: a.filter(odd).choose(b).flat_map(twice).window(3),
    "by key": lambda a, b: a.filter(odd).choose(b).batch_by_key(4, odd, collate=list),
}


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.parametrize("name", SEVERAL)
def test_a_resume_computes_few_rows(name: str, threads: int) -> None:
    counted = Counted()
    rows = fl.from_range(ROWS).map(counted)
    flow = SEVERAL[name](rows, rows)
    if threads:
        flow = flow.prefetch(threads=threads)
    whole = list(islice(flow, 3 * ROWS))
    for n in (0, 1, 63, 64, 65, len(whole) // 2, len(whole) - 60, len(whole)):
        with iter(flow) as run:
            assert list(islice(run, n)) == whole[:n]
            state = through_json(run)
        before = counted.rows
        with flow.resume(state) as rest:
            first = list(islice(rest, 1))
            if not threads:  # a thread reads ahead
                assert counted.rows - before < 700
            some = min(len(whole), n + 200)
            assert [*first, *islice(rest, max(0, some - n - 1))][: some - n] == whole[n:some]


@pytest.mark.parametrize("name", SEVERAL)
def test_a_state_that_was_saved_with_workers_resumes_without_and_back(name: str) -> None:
    rows = fl.from_range(ROWS)
    flow = SEVERAL[name](rows, rows).map(str)
    ahead = flow.prefetch(threads=2)
    whole = list(islice(flow, 400))
    with iter(ahead) as run:
        assert list(islice(run, 150)) == whole[:150]
        state = through_json(run)
    with flow.resume(state) as run:
        assert list(islice(run, 100)) == whole[150:250]
        state = through_json(run)
    with ahead.resume(state) as run:
        assert list(islice(run, 150)) == whole[250:]


HOW: dict[str, Callable[[Flow[Any, Any]], Flow[Any, Any]]] = {
    "in this process": lambda flow: flow,
    "in threads": lambda flow: flow.prefetch(threads=2),
    "in a thread that reads ahead": lambda flow: flow.take_while(is_small).prefetch(threads=1),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", SEVERAL)
def test_a_pass_of_which_another_run_yields_each_element(name: str, how: str) -> None:
    a, b = fl.from_range(14), fl.from_range(8).map(lambda x: x + 100)
    prepared = HOW["in threads" if name == "mix" else how]  # mix needs lengths
    flow = SEVERAL[name](prepared(a), b)
    whole = list(islice(flow, 60))
    with iter(flow) as run:
        state = through_json(run)
    for x in whole:
        with flow.resume(state) as run:
            assert next(run) == x
            state = through_json(run)
    if len(whole) < 60:
        assert list(flow.resume(state)) == []


def test_flows_that_have_ended_have_no_more_turns_after_a_resume() -> None:
    sizes = [0, 3, 70, 5, 200, 1, 64]
    flows = [fl.from_range(2 * n).filter(odd) for n in sizes]
    for flow in (
        fl.interleave(flows),
        fl.interleave(flows, cycle=3),
        fl.interleave(flows, weights=[3, 1, 4, 1, 5, 9, 2]),
        fl.choose(flows, weights=[3, 1, 4, 1, 5, 9, 2]),
    ):
        whole = flow.collect()
        for n in range(0, len(whole) + 1, 19):
            with iter(flow) as run:
                list(islice(run, n))
                state = through_json(run)
            assert list(flow.resume(state)) == whole[n:]


def test_the_second_pass_of_a_mixture_begins_at_the_first_rows() -> None:
    flow = fl.from_range(9).filter(odd).choose(fl.from_range(5)).repeat(3)
    whole = flow.collect()
    for n in range(len(whole) + 1):
        with iter(flow) as run:
            list(islice(run, n))
            state = through_json(run)
        assert list(flow.resume(state)) == whole[n:]


@st.composite
def mixtures(draw: st.DrawFn, depth: int = 2) -> Flow[int, Any]:
    flow: Flow[int, Any] = fl.from_range(draw(st.integers(0, 90)))
    if depth and draw(st.booleans()):
        flows = [draw(mixtures(depth=depth - 1)) for _ in range(draw(st.integers(1, 3)))]
        kind = draw(st.sampled_from(["concat", "interleave", "cycle", "choose", "first", "all"]))
        if kind == "concat":
            flow = fl.concat([flow, *flows])
        elif kind == "cycle":
            flow = fl.interleave([flow, *flows], cycle=2, block=draw(st.integers(1, 3)))
        elif kind in ("interleave", "choose"):
            weights = draw(st.lists(st.integers(1, 4), min_size=1 + len(flows), max_size=4))
            mixed: Any = fl.interleave if kind == "interleave" else fl.choose
            flow = mixed([flow, *flows], weights=weights[: 1 + len(flows)])
        else:
            flow = fl.interleave([flow.concat(fl.from_range(1)), *flows], stop="first")
    step = draw(st.sampled_from(["filter", "flat_map", "shuffle", "repeat", "none"]))
    if step == "filter":
        return flow.filter(odd)
    if step == "flat_map":
        return flow.flat_map(twice)
    if step == "shuffle":
        return flow.shuffle(buffer=10)
    return flow.repeat(2) if step == "repeat" else flow


@given(mixtures(), st.integers(0, 300), st.integers(0, 300))
def test_a_pass_that_is_resumed_twice_yields_the_same(
    flow: Flow[int, Any], first: int, second: int
) -> None:
    whole = flow.collect()
    run: Iterator[int] = iter(flow)
    elements = list(islice(run, first))
    run = iter(flow.resume(through_json(run)))  # type: ignore[arg-type]  # a run
    elements += islice(run, second)
    assert [*elements, *flow.resume(through_json(run))] == whole  # type: ignore[arg-type]
