"""The pool with simulated backends: its output is the reference for any delays and deaths.

The backend here is simulated, and its events are chosen by hypothesis, so that thousands of
courses of events are tried, and one in which nothing can happen any more is an error at once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, cycle, islice, repeat
from math import inf
from typing import Any
from unittest import mock

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Flow, FlowError, WorkerDied
from flowdsl.executor.execute import execute, executor_of
from flowdsl.nodes import PassFactory, Unordered
from flowdsl.plan.lower import plan_of
from flowdsl.plan.plan import Hosted, Lookup, Part, Stage
from flowdsl.resources.cancellation import cancelled_when
from flowdsl.runtime.skips import Skips
from flowdsl.workers import pool as pools
from flowdsl.workers.backend import (
    Died,
    Done,
    Event,
    Ready,
    Worker,
    WorkerBackend,
    create_backend,
    result_of,
)
from flowdsl.workers.pool import Pool
from flowdsl.workers.task_sizer import TaskSizer
from flowdsl.workers.tasks import InputRows, TaskInput
from tests.paces import paced, tuned, whims
from tests.sampling import examples

MAX_DEATHS = 12


@attrs.frozen
class Handed:
    """Elements with a simulated size in bytes."""

    backend: ChosenEvents
    elements: list[Any]

    @property
    def nbytes(self) -> int:
        return self.backend.nbytes_each * len(self.elements)

    def open(self) -> Sequence[Any]:
        self.backend.open.append(self)
        return self.elements

    def discard(self) -> None:
        self.backend.discarded += 1


@attrs.define(eq=False)
class ChosenEvents:
    """A backend whose choices determine which worker acts next, and if it dies."""

    stage: Stage
    choices: Iterator[int]
    poison: frozenset[int] = frozenset()
    nbytes_each: int = 0
    limits: Iterator[float] = attrs.field(factory=lambda: repeat(inf))
    """The bytes at which each task ends, of which an element has 8."""
    deaths_left: int = MAX_DEATHS
    deaths: Counter[int] = attrs.field(factory=Counter[int])
    """The deaths of tasks of one element, by position."""
    open: list[Handed] = attrs.field(factory=list[Handed])
    discarded: int = 0
    most_held: int = 0
    members: list[Worker] = attrs.field(factory=list[Worker])
    makers: dict[int, Any] = attrs.field(factory=dict[int, Any])
    bell: threading.Event = attrs.field(factory=threading.Event)

    @property
    def workers(self) -> list[Worker]:
        return self.members

    def start(self, count: int) -> None:
        while len(self.members) < count:
            self.members.append(Worker(f"worker {len(self.members)}"))

    def pack(self, rows: InputRows) -> tuple[Any, int]:
        return rows, sum(map(len, rows))

    def submit(self, worker: Worker, task_input: TaskInput) -> None:
        assert worker.ready
        worker.held[task_input.task.number] = task_input
        assert len(worker.held) <= pools.TASKS_PER_WORKER
        self.most_held = max(self.most_held, sum(len(w.held) for w in self.members))

    def poll(self) -> list[Event]:
        able = [w for w in self.members if not w.ready or w.held]
        if not able:
            assert self.bell.wait(60), "wedged: nobody has anything to do"
            self.bell.clear()
            return []
        return [self._act(able[next(self.choices) % len(able)])]

    def _act(self, worker: Worker) -> Event:
        dies = next(self.choices) % 4 == 0 and self.deaths_left > 0
        if not worker.ready:
            worker.ready = True
            return Ready(worker)
        task_input = next(iter(worker.held.values()))
        positions = task_input.task.addresses().position.tolist()
        bad = [p for p in positions if p in self.poison]
        if bad or dies:
            self.deaths_left -= not bad
            return Died(worker, "a sudden end", task_input.task.number)
        making = self.makers.get(id(worker)) or executor_of(
            self.stage.program, self.stage.end_to_end
        )
        self.makers[id(worker)] = making
        addresses, limit = task_input.task.addresses(), next(self.limits)
        made = execute(making, addresses, task_input.rows, limit)
        return Done(worker, result_of(made, task_input.task), Handed(self, made.elements))

    def wake(self) -> None:
        self.bell.set()

    def replace(self, worker: Worker) -> None:
        assert not worker.held
        self.members[self.members.index(worker)] = Worker("another")

    def dismiss(self, worker: Worker) -> None:
        assert not worker.held
        self.members.remove(worker)

    def park(self) -> bool:
        return False

    def can_reuse(self, stage: Stage, time_operators: bool) -> bool:
        return False

    def close(self) -> None:
        """Do nothing: there are no workers to end."""


def stage_of(flow: Flow[Any, Any]) -> Stage:
    part = plan_of(flow.node).root
    if isinstance(part, Hosted) and isinstance(part.top.node, Unordered):
        (part,) = part.sources
    assert isinstance(part, Stage)
    assert part.workers.count
    return part


def pool_of(stage: Stage, backend: WorkerBackend, start: int = 0) -> Pool:
    """The pool of a stage whose streams begin at the element ``start`` of the stage."""

    def read(base: Part) -> PassFactory:
        return lambda epoch: islice(
            base.top.node.reference(epoch), start * stage.rows_per_element, None
        )

    streams = tuple(read(base) for base in stage.bases if not isinstance(base, Lookup))
    return Pool(stage, streams, backend, Skips().report)


def many(i: int) -> bool:
    return i % 3 != 1


FLOWS: dict[str, Flow[Any, Any]] = {
    "indexed": fl.from_range(40).shuffle(seed=1).map(abs),
    "batched": fl.from_range(41).map(abs).batch(3, collate=list),
    "filtered": fl.from_range(40).map(abs).filter(many),
    "streamed": fl.from_iterable(range(40)).map(abs).batch(3, collate=list),
    "streamed with gaps": fl.from_iterable(range(60)).filter(many).take(30).map(abs),
    "in memory": fl.from_items(range(40)).shuffle(seed=2).map(abs),
    "two in memory": fl.from_items(range(20)).map(abs).zip(fl.from_items(range(20)).map(str)),
}


limits = st.lists(st.sampled_from([inf, 1, 9, 17, 33]), min_size=1, max_size=4)
courses = st.lists(st.integers(0, 7), min_size=1, max_size=60)


@settings(max_examples=examples(400))
@given(
    st.sampled_from(sorted(FLOWS)),
    st.integers(1, 4),
    courses,
    whims,
    st.sampled_from([1, 2, 6]),
    st.sampled_from([None, 1, 50, 400]),
    st.integers(0, 5),
    st.booleans(),
    st.none() | st.lists(st.integers(1, 4), min_size=1),
    limits,
)
def test_random_event_orders_yield_the_reference(
    name: str,
    procs: int,
    choices: list[int],
    sizes: list[int],
    ahead: int,
    memory: int | None,
    start: int,
    ordered: bool,
    numbers: list[int] | None,
    most: list[float],
) -> None:
    """For any events, any changes of the number of workers, and any bytes at which tasks end."""
    flow = FLOWS[name]
    whole = flow.collect()
    stage = stage_of(flow.prefetch(procs, memory=memory, ordered=ordered, deaths=MAX_DEATHS + 1))
    backend = ChosenEvents(stage, cycle(choices), nbytes_each=10, limits=cycle(most))
    if numbers is not None:
        stage = attrs.evolve(stage, workers=attrs.evolve(stage.workers, auto=True))
    with mock.patch.object(pools, "TASKS_AHEAD", ahead), paced(sizes), tuned(numbers or [1]):
        start = 0 if stage.drops else start
        pool = pool_of(stage, backend, start)
        got = [x for _, x in pool.rows(0, start)]
    expected = whole[start:]
    assert got == expected if ordered else Counter(map(str, got)) == Counter(map(str, expected))
    statistics = pool.statistics()
    assert statistics.deaths == MAX_DEATHS - backend.deaths_left
    assert statistics.in_flight == 0
    assert pool._budget.in_flight == 0
    assert backend.discarded == 0
    assert all(not worker.held for worker in backend.workers)


@settings(max_examples=examples(300))
@given(
    st.integers(1, 4),
    courses,
    whims,
    st.sets(st.integers(0, 39), max_size=3),
    st.integers(1, 3),
    st.booleans(),
)
def test_an_element_that_kills_workers_is_found(
    procs: int,
    choices: list[int],
    sizes: list[int],
    poison: set[int],
    deaths: int,
    skip: bool,
) -> None:
    reported: list[str] = []
    flow: Flow[Any, Any] = fl.from_range(40).map(abs)
    flow = flow.prefetch(
        procs, deaths=deaths, on_error=(lambda e: reported.append(e.origin)) if skip else "raise"
    )
    stage = stage_of(flow)
    backend = ChosenEvents(stage, cycle(choices), frozenset(poison), deaths_left=0)
    with paced(sizes):
        rows = pool_of(stage, backend).rows(0)
        got: list[Any] = []
        if poison and not skip:
            with pytest.raises(WorkerDied) as caught:
                got.extend(x for _, x in rows)
            first = min(poison)
            assert got == list(range(first))
            died, _, rest = str(caught.value).partition(" at work on ")
            # the first may be over several elements
            how_many = range(deaths, max(deaths, 2) + 1)
            whos = {n: f"{n} workers died, one after another," for n in how_many}
            assert died in {**whos, 1: "a worker died"}.values()
            assert rest.startswith(
                f"element {first} of map(abs) (row {first} of from_range(40)); "
                f"{'it' if died == 'a worker died' else 'the last of them'} was "
            )
        else:
            got.extend(x for _, x in rows)
            assert got == [i for i in range(40) if i not in poison]
            assert reported == [f"row {i} of from_range(40)" for i in sorted(poison)]


@settings(max_examples=examples(100))
@given(courses, whims, st.integers(0, 12), st.integers(0, 12), limits)
def test_a_flow_that_one_worker_runs_from_end_to_end(
    choices: list[int], sizes: list[int], n: int, start: int, most: list[float]
) -> None:
    flow = fl.from_iterable(range(n)).map(abs).batch(3, collate=list)
    plan = plan_of(flow.replicate(procs=2).node).root
    assert isinstance(plan, Hosted)
    (stage, _) = plan.sources
    assert isinstance(stage, Stage)
    backend = ChosenEvents(stage, cycle(choices), deaths_left=2, limits=cycle(most))
    with paced(sizes):
        assert [x for _, x in pool_of(stage, backend, start).rows(0, start)] == flow.collect()[
            start:
        ]


def test_a_flow_that_is_run_from_end_to_end_is_not_begun_again_for_a_task_cut_short() -> None:
    begun: list[int] = []

    def stream() -> Iterator[int]:
        begun.append(1)
        yield from range(60)

    plan = plan_of(fl.from_iterable(stream).map(abs).replicate(procs=2).node).root
    assert isinstance(plan, Hosted)
    (stage, _) = plan.sources
    assert isinstance(stage, Stage)
    backend = ChosenEvents(stage, repeat(1), limits=cycle([9, inf]))
    with paced([5]):
        assert [x for _, x in pool_of(stage, backend).rows(0)] == list(range(60))
    assert len(begun) == 1


@settings(max_examples=examples(100))
@given(courses, whims, st.integers(1, 20), st.integers(1, 3))
def test_an_abandoned_pass_leaves_nothing_behind(
    choices: list[int], sizes: list[int], taken: int, passes: int
) -> None:
    stage = stage_of(fl.from_range(40).map(abs).prefetch(procs=2))
    backend = ChosenEvents(stage, cycle(choices), deaths_left=2)
    with paced(sizes):
        pool = pool_of(stage, backend)
        for _ in range(passes):
            rows = pool.rows(0)
            assert [x for _, x in islice(rows, taken)] == list(range(taken))
        assert [x for _, x in pool.rows(1)] == list(range(40))
    assert pool.statistics().in_flight == 0


def test_results_that_arrive_with_a_cancellation_are_counted() -> None:
    """Else the next pass over the pool would wait for workers that have answered."""
    stage = stage_of(fl.from_range(8).map(abs).prefetch(threads=1))
    backend = create_backend(stage, False)
    pool = pool_of(stage, backend)
    answers: list[Done] = []
    poll = backend.poll

    def recorded() -> list[Event]:
        events = poll()
        answers.extend(event for event in events if isinstance(event, Done))
        return events

    with mock.patch.object(backend, "poll", recorded), cancelled_when(lambda: bool(answers)):
        rows = pool.rows(0)
        with pytest.raises(FlowError, match="was cancelled"):
            list(rows)
    assert not any(answer.result.number in answer.worker.held for answer in answers)
    assert [x for _, x in pool.rows(1)] == list(range(8))
    backend.close()


@settings(max_examples=examples(200))
@given(courses, st.integers(1, 40), st.integers(1, 4))
def test_bytes_in_flight_are_limited(choices: list[int], memory: int, procs: int) -> None:
    stage = stage_of(fl.from_range(200).map(abs).prefetch(procs, memory=1000 * memory))
    backend = ChosenEvents(stage, cycle(choices), nbytes_each=1000, deaths_left=0)
    pool = pool_of(stage, backend)
    taken = 0
    for _ in pool.rows(0):
        taken += 1
        in_flight = sum(p.size for w in backend.workers for p in w.held.values())
        arrived = sum(len(h.elements) for h in backend.open)
        assert in_flight <= max(1, memory)
        assert arrived <= 200
    assert taken == 200
    assert pool.statistics().nbytes == 200_000


@pytest.mark.parametrize("procs", [1, 2, 3, 9])
def test_all_workers_are_started_by_the_end(procs: int) -> None:
    stage = stage_of(fl.from_range(400).map(abs).prefetch(procs=procs))
    backend = ChosenEvents(stage, cycle(range(procs)), deaths_left=0)
    with paced([1]):
        assert [x for _, x in pool_of(stage, backend).rows(0)] == list(range(400))
    assert len(backend.members) == procs


def test_task_sizes_depend_on_the_current_workers() -> None:
    stage = stage_of(fl.from_range(400).map(abs).prefetch(procs=4, memory=8 << 20))
    stage = attrs.evolve(stage, workers=attrs.evolve(stage.workers, auto=True))
    backend = ChosenEvents(stage, cycle([0, 1, 1, 2, 3]), deaths_left=0)
    with (
        tuned([1, 4, 2]),
        paced([1]),
        mock.patch.object(TaskSizer, "observe"),
        mock.patch.object(TaskSizer, "share", autospec=True) as share,
    ):
        assert len(list(pool_of(stage, backend).rows(0))) == 400
    shares = {call.args[1]: call.args[2] for call in share.call_args_list}
    assert shares == {1: 1 << 20, 4: 1 << 18, 2: 1 << 19}


def test_undelivered_results_are_discarded_at_the_end() -> None:
    stage = stage_of(fl.from_range(40).map(abs).prefetch(procs=2))
    slow_first = chain([0, 1], repeat(1))  # the second worker does all it may, then the first
    backend = ChosenEvents(stage, slow_first, deaths_left=0)
    with paced([1]):
        pool = pool_of(stage, backend)
        rows = pool.rows(0)
        assert [x for _, x in islice(rows, 2)] == [0, 1]
    waiting = len(pool._arrived)
    assert waiting
    assert backend.discarded == 0
    pool.end()
    assert (backend.discarded, pool.next_position) == (waiting, 2)


def test_workers_that_never_become_ready_are_an_error() -> None:
    @attrs.define(eq=False)
    class Stillborn(ChosenEvents):
        def _act(self, worker: Worker) -> Event:
            return Died(worker, "exit status 4")

    stage = stage_of(fl.from_range(4).map(abs).prefetch(procs=2))
    with pytest.raises(WorkerDied, match=r"another ended before it was ready \(exit status 4\)"):
        list(pool_of(stage, Stillborn(stage, cycle([0]))).rows(0))


def test_a_timeout_limits_the_task_size() -> None:
    stage = stage_of(fl.from_range(50).map(abs).prefetch(procs=2, timeout=0.1))
    with mock.patch.object(pools, "TaskSizer") as pace:
        pool_of(stage, ChosenEvents(stage, cycle([0])))
    assert pace.call_args.args[2] == 0.1


def test_the_task_sizer_observes_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty tasks beyond the end of an end-to-end stage are not observed."""
    learnt: list[int] = []
    observe = TaskSizer.observe

    def noted(pace: TaskSizer, count: int, seconds: float, nbytes: int) -> None:
        learnt.append(count)
        observe(pace, count, seconds, nbytes)

    monkeypatch.setattr(TaskSizer, "observe", noted)
    flow = fl.from_iterable(range(9)).map(abs).replicate(procs=1).repeat(2)
    assert len(flow.collect()) == 18
    assert sum(learnt) == 18
    assert all(learnt)


def test_operators_that_hold_more_than_the_memory_are_an_error() -> None:
    stage = stage_of(fl.from_range(50).map(abs).prefetch(procs=1, memory=500))
    backend = ChosenEvents(stage, cycle([0, 1]), nbytes_each=100, deaths_left=0)
    pool = Pool(stage, (), backend, Skips().report, held_above=7)
    with pytest.raises(FlowError) as caught:
        list(pool.rows(0))
    assert str(caught.value) == (
        "prefetch: memory=500 bytes is less than the 7 elements of about 100 bytes that are held "
        "above map(abs); give at least 1,400, or a smaller buffer"
    )


def test_a_result_is_delivered_once_although_its_worker_died() -> None:
    """A task without a result is retried; the late result has an old number and is discarded."""
    stage = stage_of(fl.from_range(6).map(abs).prefetch(procs=1))
    backend = ChosenEvents(stage, cycle([0, 1]), deaths_left=0)
    pool = pool_of(stage, backend)
    seen: list[Done] = []
    kept: list[Event] = []
    heard = backend.poll

    def late() -> list[Event]:
        events = heard()
        done = [event for event in events if isinstance(event, Done)]
        seen.extend(done)
        if len(seen) == 2 and done:
            kept.extend(done)
            return [Died(done[0].worker, "after its last word")]
        if kept and done:  # it has been handed out again by now
            return [kept.pop(), *events]
        return events

    with mock.patch.object(ChosenEvents, "poll", side_effect=late):
        assert [x for _, x in pool.rows(0)] == list(range(6))
    assert backend.discarded == 1
