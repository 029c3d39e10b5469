"""States: they are small, belong to one flow, and can be resumed with other shards."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
from collections import Counter
from functools import reduce
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Flow, FlowError, StateMismatch
from flowdsl.errors import NotResumable
from flowdsl.nodes import OneShot, Unordered
from flowdsl.plan.tree import walk
from flowdsl.runtime.resume_points import ResumePoint, resumable_path
from flowdsl.runtime.state import state_of
from flowdsl.testing.recipes import Recipe
from tests.sampling import examples
from tests.strategies import chains

KILOBYTE = 1024


def size_of(flow: Flow[Any, Any], position: int = 2**61) -> int:
    return len(json.dumps(state_of(flow.node, 2**61, position)))


class TestSize:
    @settings(max_examples=examples(150))
    @given(chains(most=8))
    def test_states_of_random_flows_are_small(self, recipe: Recipe) -> None:
        flow = recipe.build()
        if any(isinstance(part, Unordered) for part in walk(flow.node)):
            with pytest.raises(FlowError, match="a position does not identify"):
                size_of(flow)
            return
        if any(isinstance(part, OneShot) for part in walk(flow.node)):
            with pytest.raises(NotResumable):
                size_of(flow)
            return
        assert size_of(flow) < KILOBYTE

    @pytest.mark.parametrize("n", [1, 30, 90])
    def test_states_of_long_chains_are_small(self, n: int) -> None:
        def a_function_with_a_name_that_is_rather_long(i: int) -> int:
            return i

        long = reduce(
            lambda flow, _: flow.map(a_function_with_a_name_that_is_rather_long),
            range(n),
            fl.from_range(10**6).shuffle(),
        )
        many = fl.from_range(3).concat(*[fl.from_range(k) for k in range(n)])
        for flow in (long, many):
            assert size_of(flow) < KILOBYTE
            run = iter(flow)
            first = next(run)
            state = json.loads(json.dumps(run.state_dict()))
            assert next(flow.resume(state)) == next(islice(flow, 1, None))
            assert first == next(iter(flow))

    def test_states_with_many_places_are_small(self) -> None:
        def a_function_with_a_name_that_is_rather_long(i: object) -> bool:
            return bool(i)

        flow: Flow[Any, Any] = fl.from_range(2**60)
        for _ in range(20):
            flow = flow.map(a_function_with_a_name_that_is_rather_long)
        for n in range(1, 6):
            flow = flow.filter(a_function_with_a_name_that_is_rather_long).batch(n).map(np.sum)
        places = resumable_path(flow.node)
        assert len(places) == 6
        mark = ResumePoint(2**61, ((2**61, 2**61),) * len(places))
        assert len(json.dumps(state_of(flow.node, 2**61, 2**61, mark))) < KILOBYTE

    def test_state_size_does_not_grow_with_a_shuffle(self) -> None:
        small, large = (fl.from_range(10**9).shuffle(), fl.from_range(10**9).shuffle(buffer=10**6))
        assert abs(size_of(small) - size_of(large)) < 50


def test_a_million_elements_are_resumed_within_a_second() -> None:
    flow = "fl.from_range(10**6).map(note).shuffle(seed=3).batch(4, collate=list)"
    script = f"""
import sys, time, json
import flowdsl as fl
seen = []
def note(i):
    seen.append(i)
    return i
began = time.perf_counter()
run = {flow}.resume(json.loads(sys.argv[1]))
print(json.dumps([next(run), len(seen), time.perf_counter() - began]))
"""

    def note(i: int) -> int:
        return i

    rows = fl.from_range(10**6).map(note).shuffle(seed=3)
    state = state_of(rows.batch(4, collate=list).node, 0, 225_000)
    out = subprocess.run(
        [sys.executable, "-c", script, json.dumps(state)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    batch, read, seconds = json.loads(out)
    assert batch == list(islice(rows.resume(state_of(rows.node, 0, 900_000)), 4))
    assert read == 4
    assert seconds < 10  # 0.01 in fact; it is the rows read that tell


class TestRefusals:
    def test_unordered_flows_have_no_state(self) -> None:
        flow = fl.from_range(9).prefetch(procs=1, ordered=False)
        with iter(flow) as run, pytest.raises(FlowError) as caught:
            run.state_dict()
        assert str(caught.value) == (
            "state_dict: after prefetch(ordered=False) a position does not identify the "
            "elements that were delivered; use ordered=True to save and resume"
        )

    @pytest.mark.parametrize(
        ("source", "title"),
        [
            (lambda: fl.from_queue(queue.Queue()), "from_queue(Queue)"),
            (lambda: fl.from_zmq("ipc://a"), "from_zmq('ipc://a')"),
            (lambda: fl.from_zmq("ipc://a", senders=2), "from_zmq('ipc://a')"),
            (lambda: fl.from_zmq("ipc://a", senders=None), "from_zmq('ipc://a')"),
            (lambda: fl.from_zmq("ipc://a", format="zmq_ops"), "from_zmq('ipc://a')"),
        ],
    )
    def test_one_shot_sources_have_no_state(self, source: Any, title: str) -> None:
        said = (
            f"state_dict: {title} yields each element only once, so a resumed run would leave "
            f"out elements that were never delivered; save and resume the flow at the other end, "
            f"which sends or puts them"
        )
        state = iter(fl.from_range(9)).state_dict()
        for flow in (source(), source().map(str), fl.from_range(3).concat(source())):
            with iter(flow) as run, pytest.raises(FlowError) as caught:
                run.state_dict()
            assert str(caught.value) == said
            with pytest.raises(FlowError) as caught:
                flow.resume(state)
            assert str(caught.value) == said

    def test_a_live_iterator_may_be_read_again(self) -> None:
        with iter(fl.from_iterable(iter("abc"))) as run:
            next(run)
            state = run.state_dict()
        assert list(fl.from_iterable(iter("abc")).resume(state)) == ["b", "c"]

    def test_a_mismatch_names_the_operator_even_if_shortened(self) -> None:
        def saved(i: int) -> int:
            return i

        def other(i: int) -> int:
            return i

        def flow(at: int, f: Any) -> Flow[Any, Any]:
            maps = (f if k == at else saved for k in range(40))
            return reduce(lambda x, g: x.map(g), maps, fl.from_range(7))

        state = state_of(flow(0, saved).node, 0, 3)
        with pytest.raises(StateMismatch, match=r"operator 11 is map\(saved\) there and map\(ot"):
            flow(9, other).resume(state)

    def test_a_mismatch_in_an_omitted_part_is_reported(self) -> None:
        def flow(odd: int) -> Flow[Any, Any]:
            shapes = [(2,)] * 49 + [(odd,)] + [(2,)] * 49
            return fl.fake([(2,)] * 99).concat(*[fl.fake(shapes) for _ in range(12)])

        with pytest.raises(
            StateMismatch, match="a part of an operator that the state does not spell out"
        ):
            flow(3).resume(state_of(flow(4).node, 0, 1))


def shards_of(rows: int, n: int, i: int, batch: int, passes: int) -> Flow[Any, Any]:
    flow: Flow[Any, Any] = fl.from_range(rows).shuffle(seed=5).shard(n, i).map(abs)
    if batch:
        flow = flow.batch(batch, collate=list)
    return flow.repeat(passes) if passes else flow


class TestShards:
    @settings(max_examples=examples(300))
    @given(
        st.integers(1, 60),
        st.integers(1, 6),
        st.integers(1, 6),
        st.integers(0, 4),
        st.integers(0, 3),
        st.integers(0, 40),
        st.integers(0, 1),
    )
    def test_resuming_with_other_shards_yields_every_row_once(
        self, rows: int, n: int, then: int, batch: int, passes: int, position: int, epoch: int
    ) -> None:
        def elements(run: Any) -> list[Any]:
            return [i for x in run for i in (x if batch else [x])]

        before = [shards_of(rows, n, i, batch, passes) for i in range(n)]
        if position > len(before[-1]):
            return
        got = list[Any]()
        for flow in before:
            run = flow.epoch(epoch)
            got += elements(islice(run, position))
        state = json.loads(json.dumps(before[n // 2].epoch(epoch).state_dict()))
        state["position"] = position
        after = [shards_of(rows, then, i, batch, passes) for i in range(then)]
        try:
            rest = [elements(flow.resume(state)) for flow in after]
        except StateMismatch:
            even = rows % n == rows % then == 0
            whole = (position * n * max(1, batch)) % (then * max(1, batch)) == 0
            assert not (even and whole and not passes and position < len(before[-1]))
            return
        got += [i for one in rest for i in one]
        assert Counter(got) == Counter(list(range(rows)) * max(1, passes))

    def test_resuming_with_unsuitable_shards_is_refused(self) -> None:
        state = state_of(fl.from_range(12).shard(3, 0).batch(2).node, 0, 1)
        with pytest.raises(StateMismatch) as caught:
            fl.from_range(12).shard(2, 1).batch(2).resume(state)
        assert str(caught.value) == (
            "resume: the state is of shard(3, i), here it is shard(2, 1), and with this number "
            "of shards no position follows from position 1 there; resume with as many shards as "
            "were saved, or save at a position where the rows delivered divide evenly among either "
            "number"
        )

    def test_resuming_with_other_shards_above_a_shuffle_is_refused(self) -> None:
        state = state_of(fl.from_range(12).shard(3, 0).shuffle().node, 0, 2)
        with pytest.raises(StateMismatch, match="no position follows"):
            fl.from_range(12).shard(2, 1).shuffle().resume(state)

    def test_a_state_of_one_shard_resumes_any_other(self) -> None:
        state = state_of(fl.from_range(12).shard(3, 0).node, 0, 2)
        assert list(fl.from_range(12).shard(3, 2).resume(state)) == [8, 11]


def test_a_state_whose_places_would_be_too_large_has_none() -> None:
    flow = fl.from_range(9).batch_by_key(2, abs)
    small = ResumePoint(1, ((0, 1, 0, (1 << 600) - 1), (0, 3)))
    assert state_of(flow.node, 0, 1, small)["places"] == small.numbers()
    large = ResumePoint(1, ((0, 1, 0, (1 << 3000) - 1), (0, 3)))
    state = state_of(flow.node, 0, 1, large)
    assert state["places"] == []
    assert len(json.dumps(state)) < 1024


@pytest.mark.parametrize("digits", range(0, 640, 9))
def test_a_state_is_made_however_little_room_its_places_leave(digits: int) -> None:
    flow = fl.concat([fl.from_range(9).batch_by_key(2, abs) for _ in range(7)])
    point = ResumePoint(1, ((int("7" * (digits + 1)), 3),))
    state = state_of(flow.node, 0, 1, point)
    assert state["flow"]
    assert len(json.dumps(state)) < 1024


@pytest.mark.parametrize("name", ["by key", "windows", "mixture", "interleave_map", "filter"])
def test_a_state_whose_numbers_are_those_of_numpy_resumes(name: str) -> None:
    rows = fl.from_range(900).filter(lambda x: x % 3 > 0)
    flow: Flow[Any, Any] = {
        "by key": rows.batch_by_key(9, lambda x: x * 7919 % 17, collate=list),
        "windows": rows.window(5, key=lambda x: x * 7919 % 17),
        "mixture": fl.interleave([rows, fl.from_range(9).filter(bool)]),
        "interleave_map": rows.interleave_map(lambda x: [x] * (x % 5)),
        "filter": rows,
    }[name]
    whole = flow.collect()
    run = iter(flow)
    elements = list(islice(run, 60))
    state = run.state_dict()
    restored = {**state, "places": [*np.array(state["places"], np.int64)]}
    again = iter(flow.resume(restored))
    elements += islice(again, 3)
    assert elements + list(flow.resume(json.loads(json.dumps(again.state_dict())))) == whole
