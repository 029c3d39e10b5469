"""Runs: iteration, state, statistics and closing."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import weakref
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import ElementError, Flow, FlowError, StateMismatch
from flowdsl.resources.worker_kinds import PROCESSES
from flowdsl.runtime.run import Run
from flowdsl.runtime.state import state_of
from flowdsl.workers.processes import Processes


def draw(i: int, rng: np.random.Generator) -> float:
    return i + float(rng.random())


FLOW = fl.from_range(40).shuffle(seed=3).random_map(draw).repeat(2)


class TestPosition:
    def test_counts_delivered_elements(self) -> None:
        run = iter(FLOW)
        assert run.position == 0
        list(islice(run, 7))
        assert run.position == 7
        list(run)
        assert run.position == 80
        assert list(run) == []
        assert run.position == 80

    def test_does_not_count_failed_elements(self) -> None:
        run = iter(fl.from_range(5).map(lambda i: 1 // (i - 2)))
        with pytest.raises(ElementError):
            list(run)
        assert run.position == 2
        with pytest.raises(FlowError, match="closed"):
            next(run)

    def test_continues_after_a_resume(self) -> None:
        run = FLOW.resume(state_of(FLOW.node, 1, 30))
        next(run)
        assert run.position == 31


class TestClose:
    @pytest.mark.parametrize("procs", [0, 1])
    def test_ends_the_pass_and_can_be_repeated(self, procs: int) -> None:
        run = iter(FLOW.prefetch(procs=procs))
        next(run)
        run.close()
        run.close()
        with pytest.raises(FlowError, match="closed"):
            next(run)
        assert run.position == 1
        assert run.state_dict()["position"] == 1

    def test_before_the_start(self) -> None:
        run = iter(FLOW)
        run.close()
        with pytest.raises(FlowError, match="closed"):
            next(run)

    def test_is_called_at_the_end_of_a_with_block(self) -> None:
        with iter(FLOW) as run:
            next(run)
        with pytest.raises(FlowError, match="closed"):
            next(run)

    def test_does_not_hide_an_error_of_the_with_block(self) -> None:
        with pytest.raises(KeyError), iter(FLOW) as run:
            raise KeyError
        with pytest.raises(FlowError, match="closed"):
            next(run)

    def test_is_refused_while_an_element_is_computed(self) -> None:
        def close(i: int) -> int:
            run.close()
            return i

        run = iter(fl.from_range(3).map(close))
        with pytest.raises(ElementError) as raised:
            next(run)
        assert str(raised.value.__cause__) == (
            "close: this run is computing an element; close it when that is done"
        )

    @pytest.mark.parametrize("on_error", ["raise", "skip"])
    def test_an_unreferenced_run_is_collected_immediately(self, on_error: Any) -> None:
        run = iter(fl.from_range(3).map(abs).prefetch(threads=1, on_error=on_error))
        next(run)
        gone = weakref.ref(run)
        gc.disable()
        try:
            del run
            assert gone() is None
        finally:
            gc.enable()

    @pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
    def test_a_run_is_one_object(self, way: Callable[[object], object]) -> None:
        with pytest.raises(TypeError, match=r"cannot be copied or pickled; save its state_dict"):
            way(iter(fl.from_range(3)))


class TestState:
    def test_is_small_plain_json(self) -> None:
        flow: Flow[Any, Any] = FLOW
        for _ in range(10):
            flow = flow.map(abs).shuffle(9)
        run = iter(flow.batch(3).prefetch())
        next(run)
        state = run.state_dict()
        text = json.dumps(state)
        assert json.loads(text) == state
        assert len(text) < 1000
        assert state["position"] == 1

    def test_of_an_earlier_position(self) -> None:
        run = iter(FLOW)
        whole = [*islice(run, 10)]
        assert list(islice(FLOW.resume(run.state_dict(4)), 6)) == whole[4:]

    @pytest.mark.parametrize("position", [-1, 11, 4])
    def test_of_a_position_outside_the_run_is_refused(self, position: int) -> None:
        run = FLOW.resume(state_of(FLOW.node, 0, 5))
        list(islice(run, 5))
        with pytest.raises(ValueError, match="position must be between 5 and 10, got"):
            run.state_dict(position)

    @pytest.mark.parametrize("epoch", [0, 3])
    @pytest.mark.parametrize("position", [0, 1, 39, 40, 79, 80])
    def test_continues_at_its_position(self, epoch: int, position: int) -> None:
        run = FLOW.epoch(epoch)
        whole = list(FLOW.epoch(epoch))
        list(islice(run, position))
        state = json.loads(json.dumps(run.state_dict()))
        assert list(FLOW.resume(state)) == whole[position:]

    def test_continues_from_the_state_of_a_resume(self) -> None:
        first = FLOW.resume(state_of(FLOW.node, 0, 10))
        list(islice(first, 10))
        assert list(FLOW.resume(first.state_dict())) == FLOW.collect()[20:]

    @pytest.mark.usefixtures("mortals")
    def test_continues_with_other_procs(self) -> None:
        whole = FLOW.batch(3).collect()
        with iter(FLOW.batch(3).prefetch(procs=2)) as run:
            list(islice(run, 5))
            state = run.state_dict()
        for flow in (FLOW.batch(3), FLOW.prefetch().batch(3).prefetch(procs=1)):
            rest = list(flow.resume(state))
            assert [b.tolist() for b in rest] == [b.tolist() for b in whole[5:]]

    @pytest.mark.parametrize(
        "flow",
        [
            fl.from_iterable(range(30)).filter(lambda i: i % 3 != 0).batch(2),
            fl.from_range(30).filter(lambda i: i % 3 != 0).map(abs),
            fl.from_range(30).shuffle(5).batch(2),
            fl.from_items(range(30)).batch(2),
        ],
        ids=["stream", "filter", "window", "items"],
    )
    @pytest.mark.parametrize("procs", [0, 1])
    def test_continues_any_kind_of_flow(self, flow: Flow[Any, Any], procs: int) -> None:
        whole = [np.asarray(x).tolist() for x in flow]
        with flow.prefetch(procs=procs).resume(state_of(flow.node, 0, 4)) as run:
            assert [np.asarray(x).tolist() for x in run] == whole[4:]

    def test_reads_no_delivered_rows_again(self) -> None:
        seen: list[int] = []
        flow = fl.from_range(100).map(lambda i: (seen.append(i), i)[1]).batch(10)  # type: ignore[func-returns-value]  # for its effect
        next(flow.resume(state_of(flow.node, 0, 7)))
        assert min(seen) == 70


class TestRefusals:
    @pytest.mark.parametrize(
        ("flow", "difference"),
        [
            (
                fl.from_range(41).shuffle(seed=3),
                "1 is from_range(40) there and from_range(41) here",
            ),
            (
                fl.from_range(40).shuffle(seed=4),
                "2 is shuffle(seed=3) there and shuffle(seed=4) here",
            ),
            (fl.from_range(40), "2 is shuffle(seed=3) there and nothing here"),
            (
                fl.from_range(40).prefetch().shuffle(seed=3).map(abs),
                "3 is nothing there and map(abs) here",
            ),
        ],
    )
    def test_a_state_of_another_flow_names_the_differing_operator(
        self, flow: Flow[Any, Any], difference: str
    ) -> None:
        state = iter(fl.from_range(40).shuffle(seed=3).prefetch(procs=2)).state_dict()
        with pytest.raises(StateMismatch) as caught:
            flow.resume(state)
        assert str(caught.value) == (
            f"resume: the state is of another flow: operator {difference}; resume with the "
            f"flow that was saved (procs may differ)"
        )

    @pytest.mark.parametrize("state", [{}, None, [], "state", 3, {"version": 1, "epoch": 0}])
    def test_an_invalid_state_is_refused(self, state: Any) -> None:
        with pytest.raises(StateMismatch, match=r"state must be what state_dict\(\) returned"):
            FLOW.resume(state)

    @pytest.mark.parametrize(
        "change",
        [
            {"version": 1},
            {"digest": None},
            {"shards": 2},
            {"shards": [0]},
            {"shards": [[2]]},
            {"shards": [[0, 0]]},
            {"shards": [[2, -1]]},
            {"places": None},
            {"places": [-1]},
            {"places": ["1"]},
            {"version": None},
            {"epoch": -1},
            {"epoch": "0"},
            {"position": -1},
            {"position": 1.0},
            {"position": None},
            {"flow": "from_range(40)"},
            {"flow": None},
        ],
        ids=str,
    )
    def test_a_state_of_another_version_is_refused(self, change: dict[str, Any]) -> None:
        state = {**state_of(FLOW.node, 0, 1), **change}
        with pytest.raises(StateMismatch, match="not of this version"):
            FLOW.resume(state)

    @pytest.mark.parametrize(
        "change",
        [{"position": 2}, {"epoch": 1}, {"places": [1, 2, 3, 4, 5]}, {"shards": [[2, 0]]}],
        ids=str,
    )
    def test_a_state_that_was_changed_is_refused(self, change: dict[str, Any]) -> None:
        state = iter(FLOW).state_dict()
        with pytest.raises(StateMismatch, match="the state was changed after state_dict"):
            FLOW.resume({**state, **change})

    @given(st.data())
    def test_a_state_with_a_changed_character_is_refused(self, data: st.DataObject) -> None:
        """A state that is damaged on its way is refused: it would resume another pass."""
        flow = fl.from_range(40).filter(bool).batch(3)
        run = iter(flow)
        next(run)
        text = json.dumps(run.state_dict())
        at = data.draw(st.integers(0, len(text) - 1))
        damaged = text[:at] + chr(data.draw(st.integers(32, 126))) + text[at + 1 :]
        try:
            state = json.loads(damaged)
        except ValueError:
            return
        if state == json.loads(text):
            return
        with pytest.raises(StateMismatch):
            flow.resume(state)

    def test_a_state_may_have_gone_through_json_and_numpy(self) -> None:
        run = iter(FLOW)
        next(run)
        state = json.loads(json.dumps(run.state_dict()))
        state["position"] = np.int64(state["position"])
        assert list(FLOW.resume(state)) == list(run)


def test_nothing_is_computed_before_the_first_next() -> None:
    seen: list[int] = []

    def note(i: int) -> int:
        seen.append(i)
        return i

    run = iter(fl.from_range(100).map(note))
    assert seen == []
    assert list(islice(run, 10)) == list(range(10))
    assert seen == list(range(10))


@pytest.mark.parametrize("n", [0, 1, 1023, 1024, 5000])
def test_a_pass_in_this_process_is_complete(n: int) -> None:
    assert list(fl.from_range(n).map(abs)) == list(range(n))


def test_statistics_count_the_work() -> None:
    assert iter(FLOW).statistics().stages == ()
    run = iter(fl.from_range(100).map(abs).prefetch(procs=1))
    next(run)
    (stage,) = run.statistics().stages
    assert stage.entered == stage.in_flight + stage.delivered <= 100
    elements = list(run)
    (stage,) = run.statistics().stages
    assert (stage.entered, stage.delivered, stage.in_flight) == (100, 1 + len(elements), 0)
    assert (stage.kind, stage.operators) == (PROCESSES, ("from_range(100)", "map(abs)"))
    assert [worker.elements for worker in stage.workers] == [100]
    assert 0 < stage.busy < stage.seconds
    assert 0 < stage.p50 <= stage.p99 < stage.seconds


@pytest.mark.parametrize("workers", [{}, {"threads": 1}], ids=str)
@pytest.mark.parametrize("start", [0, 3])
def test_statistics_count_elements_taken_so_far(workers: dict[str, Any], start: int) -> None:
    flow = fl.from_range(5000).map(abs).batch(2).prefetch(**workers)
    with flow.resume(state_of(flow.node, 0, start)) as run:
        for taken in range(1, 40):
            next(run)
            (stage,) = run.statistics().stages
            assert stage.delivered == taken
            assert stage.entered == taken + stage.in_flight


def test_statistics_of_a_filter_count_elements_taken_so_far() -> None:
    flow = fl.from_range(5000).filter(lambda i: i % 3 == 0)
    run = flow.resume(state_of(flow.node, 0, 5))
    for taken in range(6, 40):
        next(run)
        (stage,) = run.statistics().stages
        assert stage.delivered == taken
        assert stage.entered == taken + stage.filtered + stage.in_flight


def test_every_pool_has_its_statistics() -> None:
    flow = fl.from_range(20).map(abs).shuffle(5).map(abs).prefetch(procs=1)
    run = iter(flow)
    assert sorted(run) == list(range(20))
    assert [stage.delivered for stage in run.statistics().stages] == [20, 20]


def test_an_error_ends_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowdsl.workers.processes.SECONDS_TO_LEAVE", 60.0)
    run = iter(fl.from_range(9).map(lambda i: 1 // (i - 2)).prefetch(procs=1))
    with pytest.raises(ElementError) as caught:
        list(run)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(FlowError, match="closed"):
        next(run)
    (pool,) = run._execution.pools
    assert isinstance(pool.backend, Processes)
    assert [worker.process.wait(0) for worker in pool.backend._members.values()] == [0]


def test_an_error_of_a_stream_comes_after_the_elements_before_it() -> None:
    def stream() -> Iterator[int]:
        yield from range(7)
        raise OSError("gone")

    run = iter(fl.from_iterable(stream).map(abs).prefetch(procs=1))
    assert list(islice(run, 7)) == list(range(7))
    with pytest.raises(ElementError, match=r"from_iterable\(stream\) failed on element 7"):
        next(run)


def test_abandoned_passes_hold_no_memory() -> None:
    rows = fl.from_range(100).map(lambda i: np.full(5000, i)).filter(lambda row: True)
    run = iter(rows.prefetch(procs=1).take(2).repeat(40))
    assert [int(row[0]) for row in run] == [0, 1] * 40
    (pool,) = run._execution.pools
    assert isinstance(pool.backend, Processes)
    (worker,) = pool.backend._members.values()
    assert len(worker.window._slabs) < 20


def test_positions_after_a_filter_are_kept_through_workers() -> None:
    flow = fl.from_range(60).filter(lambda i: i % 3 == 1)
    ahead = flow.prefetch(procs=2).random_map(draw)
    assert ahead.collect() == flow.random_map(draw).collect()
    assert flow.random_map(draw).prefetch(procs=1).collect() == ahead.collect()


def test_a_run_has_the_type_of_its_elements() -> None:
    assert isinstance(iter(FLOW), Run)
    assert isinstance(FLOW.epoch(2), Run)


def test_a_method_of_flows_on_a_run_is_answered_with_what_to_write() -> None:
    flow = fl.from_range(3)
    run: Any = flow.resume(iter(flow).state_dict())
    with pytest.raises(AttributeError, match=r"no attribute 'collect'.*list\(run\) has its elem"):
        run.collect()
    assert not hasattr(run, "map")
