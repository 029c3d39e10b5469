"""Chains of thousands of operators."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

import flowdsl as fl
from flowdsl.effects import Reordered, Unsized
from flowdsl.resources.any_depth import CALLS_PER_THREAD, any_depth

MANY = 1200


def increment(i: int) -> int:
    return i + 1


def always(i: int) -> bool:
    return i >= 0


def chain_of(many: int) -> fl.Flow[int, Reordered | Unsized]:
    moved: fl.Flow[int, Reordered] = fl.from_range(10)
    for _ in range(many // 3):
        moved = moved.map(increment).shuffle(seed=1)
    kept: fl.Flow[int, Reordered | Unsized] = moved
    for _ in range(many // 3):
        kept = kept.filter(always)
    return kept


def test_a_long_chain_runs_like_a_short_one() -> None:
    flow = chain_of(MANY)
    assert sorted(flow.collect()) == [i + MANY // 3 for i in range(10)]
    with iter(flow) as run:
        first = [next(run) for _ in range(4)]
        state = run.state_dict()
    assert first + list(flow.resume(state)) == flow.collect()


@pytest.mark.slow
def test_a_long_chain_runs_in_worker_processes() -> None:
    flow = chain_of(900)
    assert flow.prefetch(procs=2).collect() == flow.collect()


def test_a_long_chain_is_explained() -> None:
    text = str(chain_of(750).explain())  # the time is quadratic
    assert text.count("map(increment)") == text.count("filter(always)") == 250


def test_the_spec_of_a_long_chain_is_left_unknown_where_nothing_declares_it() -> None:
    flow = fl.from_range(3)
    for _ in range(300):
        flow = flow.map(lambda i: i + 1)
    assert str(flow.spec) == "?"


@pytest.mark.parametrize("method", ["zip", "concat", "interleave", "mix"])
def test_hundreds_of_flows_are_combined_one_by_one(method: str) -> None:
    flow: Any = fl.from_range(3)
    for _ in range(500):
        flow = getattr(flow, method)(fl.from_range(3))
    assert flow.effects == getattr(fl.from_range(3), method)(fl.from_range(3)).effects
    assert len(flow) == (3 if method == "zip" else 3 * 501)


def test_an_error_in_a_long_chain_names_its_row() -> None:
    flow = chain_of(MANY).map(lambda i: 1 // (i - MANY // 3 - 7))
    with pytest.raises(fl.ElementError, match=r"row 7 of from_range\(10\)"):
        flow.collect()


@pytest.mark.parametrize("procs", [0, 2])
def test_iterators_that_nest_too_deeply_are_an_error_with_advice(procs: int) -> None:
    flow: fl.Flow[int, Unsized] = fl.from_range(3)
    for _ in range(sys.getrecursionlimit()):
        flow = flow.flat_map(lambda i: [i])
    with pytest.raises(fl.FlowError, match=r"chain of \d+ operators.*one concat of all flows"):
        flow.prefetch(procs=procs).collect()


def test_a_function_at_any_depth_raises_its_own_error_and_ends_its_threads() -> None:
    @any_depth
    def count_down(n: int) -> int:
        if n == 0:
            raise KeyError(threading.current_thread().name)
        return count_down(n - 1)

    before = threading.active_count()
    with pytest.raises(KeyError, match="recursion"):
        count_down(10 * CALLS_PER_THREAD)
    with pytest.raises(KeyError, match=threading.current_thread().name):
        count_down(CALLS_PER_THREAD - 1)
    assert threading.active_count() == before
