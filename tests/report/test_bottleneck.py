"""Verdicts for known bottlenecks: from a model, made by hand, and their exact text."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.errors import InvalidArgument
from flowdsl.report.bottleneck import verdict
from flowdsl.report.phrasing import MAX_WORKERS
from flowdsl.report.verdict import Limit, Verdict
from flowdsl.resources.worker_kinds import PROCESSES, THREADS, WorkerKind
from flowdsl.statistics.run import RunStatistics
from flowdsl.statistics.stages import StageStatistics, WorkerStatistics
from tests.report.books import ELEMENTS, SECONDS, run, stage, times

CORES = 8
LONG = 1e6
UNEVEN = times({1e-4: 90, 0.1: 10})
"""Most elements are quick, a few are not."""

costs = st.floats(1e-5, 1.0)
pools = st.lists(st.tuples(st.integers(1, 8), costs), min_size=1, max_size=3)


def steady(
    workers: list[tuple[int, float]], consumer: float, hosted: float
) -> tuple[RunStatistics, float]:
    """The statistics of a long run, from the seconds per element of its parts, and its rate.

    The busiest part is always busy, and the consumer's thread waits for it, if it is another.
    """
    slowest = max(range(len(workers)), key=lambda k: workers[k][1] / workers[k][0])
    rate = 1 / max(consumer + hosted, workers[slowest][1] / workers[slowest][0])
    stages = [
        StageStatistics(
            operators=(f"pool {k}",),
            kind=PROCESSES,
            seconds=LONG,
            entered=int(rate * LONG),
            delivered=int(rate * LONG),
            workers=(WorkerStatistics(int(rate * LONG / procs), rate * LONG * each / procs),)
            * procs,
            waited=LONG * max(0, 1 - rate * (consumer + hosted)) if k == slowest else 0.0,
        )
        for k, (procs, each) in enumerate(workers)
    ]
    if hosted:
        stages.append(StageStatistics(("hosted",), LONG, 1, 1))
    figures = RunStatistics(
        int(rate * LONG), LONG, rate * LONG * consumer, tuple(stages), profiled=True
    )
    return figures, rate


def test_other_objects_than_statistics_are_refused() -> None:
    run = iter(fl.from_range(3))
    with pytest.raises(InvalidArgument) as caught:
        verdict(run)  # type: ignore[arg-type]  # it is what is refused
    said = f"verdict: statistics must be the result of run.statistics(), got {run!r}"
    assert str(caught.value) == said


@given(pools, costs, st.just(0.0) | costs)
@example([(1, 1.0), (1, 0.5)], 0.1, 0.0)
@example([(1, 0.1)], 1.0, 0.1)
@example([(1, 0.1)], 0.1, 1.0)
def test_the_slowest_part_limits(
    workers: list[tuple[int, float]], consumer: float, hosted: float
) -> None:
    figures, rate = steady(workers, consumer, hosted)
    result = verdict(figures, CORES)
    demands = [each / procs for procs, each in workers]
    first, *rest = sorted([*demands, consumer + hosted], reverse=True)
    assume(first > 1.2 * rest[0])
    if first == consumer + hosted:
        assume(max(consumer, hosted) > 1.01 * min(consumer, hosted))
        assert result.limiting == ("consumer" if consumer > hosted else "thread")
        assert result.stage == (None if consumer > hosted else len(workers))
        left = max(min(consumer, hosted), *demands)
        assert result.headroom == pytest.approx(first / left, rel=0.01)
    else:
        assert (result.limiting, result.stage) == ("workers", demands.index(first))
        assert result.headroom == pytest.approx(first / rest[0], rel=0.01)
    assert result.rate == pytest.approx(rate, rel=0.01)


@given(st.lists(st.tuples(st.integers(1, 3), costs), min_size=1, max_size=2), costs)
def test_the_advised_workers_reach_the_expected_rate(
    workers: list[tuple[int, float]], consumer: float
) -> None:
    figures, _ = steady(workers, consumer, 0.0)
    result = verdict(figures, CORES)
    assume(result.limiting == "workers" and result.workers is not None)
    assert result.stage is not None
    assert result.workers is not None
    assert result.expected is not None
    changed = list(workers)
    changed[result.stage] = (result.workers, workers[result.stage][1])
    assert result.workers > workers[result.stage][0]
    assert result.expected == pytest.approx(steady(changed, consumer, 0.0)[1], rel=0.02)
    fewer = list(workers)
    fewer[result.stage] = (result.workers - 1, workers[result.stage][1])
    assert steady(fewer, consumer, 0.0)[1] < 1.02 * result.expected  # no more than are of use
    assert f"procs={result.workers})" in result.advice


@given(st.floats(0.01, 1.0), st.floats(0.0, 0.9))
def test_a_flow_without_workers_is_advised_with_the_expected_rate(
    each: float, other: float
) -> None:
    """Amdahl: the consumer's own work is not divided among workers."""
    consumer = each * other
    rate = 1 / (each + consumer)
    made = stage("map(f)", costs={"map(f)": rate * LONG * each})
    figures = RunStatistics(int(rate * LONG), LONG, rate * LONG * consumer, (made,), profiled=True)
    result = verdict(figures, CORES)
    assert result.limiting == "thread"
    assert result.workers is not None
    assert result.workers <= CORES
    assert result.expected == pytest.approx(1 / max(consumer, each / result.workers), rel=0.02)


some_seconds = st.just(0.0) | st.floats(1e-9, 100)  # the resolution of clocks
stages = st.builds(
    lambda kind, workers, **fields: StageStatistics(
        operators=("from_range(9)", "map(f)"),
        kind=kind,
        entered=10,
        delivered=10,
        workers=() if kind is None else workers,
        **fields,
    ),
    kind=st.sampled_from([PROCESSES, THREADS, None]),
    seconds=some_seconds,
    workers=st.lists(
        st.builds(
            WorkerStatistics,
            st.integers(0, 9),
            some_seconds,
            st.none() | some_seconds,
            some_seconds,
        ),
        max_size=4,
    ).map(tuple),
    input_seconds=some_seconds,
    waited=some_seconds,
    fill=st.floats(0, 1),
    times=st.dictionaries(st.floats(1e-9, 100), st.integers(1, 9)).map(times),
    stays=st.sampled_from([(), ("map(f)",), ("from_range(9)", "map(f)")]),
)


@given(
    st.builds(
        RunStatistics,
        st.integers(0, 1000),
        some_seconds,
        some_seconds,
        st.lists(stages, max_size=3).map(tuple),
        profiled=st.booleans(),
        waited_for_core=some_seconds,
    ),
    st.integers(1, 64),
)
@example(
    run(attrs.evolve(stage("f", busy=(0.0, 0.0), waited=9.0, times=UNEVEN), seconds=0.0)), CORES
)
def test_any_statistics_have_a_verdict(figures: RunStatistics, cores: int) -> None:
    result = verdict(figures, cores)
    assert result.headroom >= 1
    assert result.expected is None or math.isfinite(result.expected)
    assert result.workers is None or 1 <= result.workers <= max(MAX_WORKERS, cores)
    assert str(result).endswith(".")
    assert "nan" not in str(result)


KNOWN: dict[str, tuple[RunStatistics, Limit, int | None, str | None]] = {
    "a slow map in workers": (
        run(
            stage(
                "from_range(9)",
                "map(slow)",
                busy=(9.9, 9.8),
                waited=9.0,
                costs={"from_range(9)": 0.1, "map(slow)": 18.0},
            ),
            consumer=0.8,
        ),
        "workers",
        0,
        "map(slow)",
    ),
    "a slow source, read by workers": (
        run(
            stage(
                "from_lmdb('x')",
                "map(f)",
                busy=(9.9, 9.8),
                waited=9.0,
                costs={"from_lmdb('x')": 18.0, "map(f)": 0.1},
            ),
            consumer=0.8,
        ),
        "workers",
        0,
        "from_lmdb('x')",
    ),
    "too few workers": (
        run(stage("from_range(9)", "map(f)", busy=(9.9,), waited=3.0), consumer=6.5),
        "workers",
        0,
        None,
    ),
    "a slow stream": (
        run(
            stage("from_iterable(words)", stays=("from_iterable(words)",)),
            stage("map(f)", busy=(0.9, 0.8), input_seconds=9.3, waited=0.2),
            consumer=0.2,
        ),
        "input",
        0,
        "from_iterable(words)",
    ),
    "a slow stream of which nothing is known": (
        run(stage("map(f)", busy=(0.9, 0.8), input_seconds=9.3, waited=0.2), consumer=0.2),
        "input",
        0,
        None,
    ),
    "a slow consumer": (
        run(stage("from_range(9)", "map(f)", busy=(1.9, 1.8), waited=0.1), consumer=9.7),
        "consumer",
        None,
        None,
    ),
    "a slow collate with the consumer": (
        run(
            stage("from_range(9)", "filter(f)", busy=(1.9, 1.8), waited=0.1),
            stage("batch(8)", stays=("batch(8)",)),
            consumer=0.7,
        ),
        "thread",
        1,
        "batch(8)",
    ),
    "two pools, the first slow": (
        run(
            stage("from_range(9)", "map(f)", busy=(9.9, 9.8), waited=9.0),
            stage("map(g)", busy=(1.0, 1.0), input_seconds=9.2, waited=0.1),
            consumer=0.2,
        ),
        "workers",
        0,
        None,
    ),
    "two pools, the second slow": (
        run(
            stage("from_range(9)", "map(f)", busy=(1.9, 1.8), waited=0.1),
            stage("map(g)", busy=(9.8, 9.9), input_seconds=0.4, waited=9.0),
            consumer=0.2,
        ),
        "workers",
        1,
        "map(g)",
    ),
    "a slow stream below two pools": (
        run(
            stage("map(f)", busy=(1.0, 1.0), input_seconds=9.0, waited=0.2),
            stage("map(g)", busy=(1.0, 1.0), input_seconds=9.4, waited=0.1),
            consumer=0.2,
        ),
        "input",
        0,
        None,
    ),
    "one slow worker": (
        run(stage("from_range(9)", "map(f)", busy=(9.8, 1.0, 1.0, 1.0), waited=9.4), consumer=0.2),
        "straggler",
        0,
        None,
    ),
    "a few slow elements": (
        run(
            stage(
                "from_range(9)",
                "map(f)",
                busy=(4.8, 4.0, 4.0, 4.0),
                waited=9.4,
                times=UNEVEN,
            ),
            consumer=0.2,
        ),
        "straggler",
        0,
        None,
    ),
    "all alike": (
        run(stage("from_range(9)", "map(f)", busy=(9.8, 9.4), waited=0.5), consumer=8.5),
        "balanced",
        0,
        None,
    ),
    "a slow map without workers": (
        run(
            stage("from_range(9)", "map(slow)", costs={"from_range(9)": 0.1, "map(slow)": 9.0}),
            consumer=0.2,
        ),
        "thread",
        0,
        "map(slow)",
    ),
    "a slow consumer without workers": (
        run(
            stage("from_range(9)", "map(f)", costs={"from_range(9)": 0.1, "map(f)": 0.9}),
            consumer=8.9,
        ),
        "consumer",
        None,
        None,
    ),
    "tiny elements": (
        run(stage("from_range(9)", busy=(2.0, 2.0), waited=0.1), consumer=0.2),
        "handing over",
        0,
        None,
    ),
    "a branch without workers beside one with": (
        run(
            stage("from_range(9)", "map(slow)", costs={"from_range(9)": 0.1, "map(slow)": 8.5}),
            stage("from_range(9)", "map(f)", busy=(1.0, 1.0), waited=0.1),
            stage("zip(...)", costs={"zip(...)": 0.1}, stays=("zip(...)",)),
            consumer=0.2,
        ),
        "thread",
        0,
        "map(slow)",
    ),
    "workers that are only starting": (
        run(stage("from_range(9)", "map(f)", busy=(3.0, 3.0), waited=7.0), consumer=0.5),
        "unclear",
        None,
        None,
    ),
    "what was not timed, without workers": (
        run(stage("from_range(9)", "map(f)"), profiled=False),
        "unclear",
        None,
        None,
    ),
    "what was not timed, beside the consumer": (
        run(
            stage("from_range(9)", "filter(f)", busy=(1.9, 1.8), waited=0.1),
            stage("batch(8)", stays=("batch(8)",)),
            consumer=9.7,
            profiled=False,
        ),
        "unclear",
        None,
        None,
    ),
    "nothing yet": (RunStatistics(0, 0.0, 0.0, ()), "unclear", None, None),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_bottlenecks_are_found(name: str) -> None:
    figures, limiting, number, operator = KNOWN[name]
    result = verdict(figures, CORES)
    assert (result.limiting, result.stage, result.operator) == (limiting, number, operator)


def result(name: str, cores: int = CORES) -> str:
    return str(verdict(KNOWN[name][0], cores))


def test_verdicts_are_printed_as_sentences() -> None:
    assert result("a slow map in workers", 4) == (
        "map(slow) limits the run to 100 elements/s: its 2 processes are busy 99% of the time. The "
        "consumer waits 92% of the time. prefetch(procs=4) would give about 200 elements/s on 4 "
        "cores; more workers would help if they mostly wait for I/O."
    )
    assert result("too few workers") == (
        "from_range(9) … map(f) limits the run to 100 elements/s: its one process is busy 99% of "
        "the time. The consumer waits 35% of the time. prefetch(procs=2) would give about 140 "
        "elements/s."
    )
    assert result("a slow consumer") == (
        "The consumer limits the run to 100 elements/s: its own work takes 97% of the time. The "
        "flow alone could give about 540; prefetch(procs=1) would do."
    )
    assert result("a slow stream").startswith(
        "from_iterable(words) limits the run to 100 elements/s: it is read in the consumer's "
        "thread, which takes 93% of the time. The consumer waits 98% of the time. No number of "
        "procs changes that."
    )
    slow = run(stage("map(f)", busy=(0.9,), kind=THREADS, input_seconds=9.3), consumer=0.2)
    assert verdict(slow, CORES).advice.startswith("No number of threads changes that.")
    assert result("a slow collate with the consumer").endswith(
        "Make it cheaper, or move work from it into a map, which workers can run: the rest could "
        "go up to about 540 elements/s."
    )
    assert result("all alike") == (
        "The run is balanced at 100 elements/s: the 2 processes of from_range(9) … map(f) are busy "
        "96% of the time, and the consumer's thread 95%; most of the thread's time is the "
        "consumer's own work. The consumer waits 15% of the time. Speeding up only one of them "
        "will not help; both must become faster."
    )
    assert result("two pools, the first slow").endswith(
        "prefetch(procs=8) after map(f) would give about 400 elements/s on 8 cores; more workers "
        "would help if they mostly wait for I/O."
    )
    assert result("nothing yet") == (
        "Nothing can be said yet: no element was delivered. Let it run on."
    )


def busy_workers(
    count: int,
    computing: float | None,
    consumer: float = 0.2,
    kind: WorkerKind = PROCESSES,
    waiting_for_core: float = 0.0,
) -> RunStatistics:
    made: Any = stage(
        "from_range(9)",
        "map(f)",
        busy=(9.9,) * count,
        kind=kind,
        waited=10 - consumer,
        computing=computing,
        waiting_for_core=waiting_for_core,
    )
    return run(made, consumer=consumer)


def advised(figures: RunStatistics, cores: int) -> Verdict:
    found = verdict(figures, cores)
    assert found.limiting == "workers"
    return found


def test_no_more_workers_than_cores_are_advised_where_they_compute() -> None:
    assert advised(busy_workers(2, computing=1.0), 4).workers == 4
    full = advised(busy_workers(2, computing=1.0), 2)
    assert (full.workers, full.expected) == (None, None)
    assert full.advice.startswith(
        "The workers are CPU-bound and all 2 cores are in use, so make it cheaper"
    )


@pytest.mark.parametrize(("count", "computing"), [(4, 0.45), (5, 0.36), (2, 0.8)])
def test_no_more_workers_are_advised_when_cores_are_used_up(count: int, computing: float) -> None:
    full = advised(busy_workers(count, computing), 2)
    assert (full.workers, full.expected) == (None, None)
    assert full.advice.startswith(
        "The workers are CPU-bound and all 2 cores are in use, so make it cheaper"
    )


@pytest.mark.parametrize(("computing", "waiting"), [(0.33, 0.66), (0.07, 0.92), (0.3, 0.5)])
def test_no_more_workers_are_advised_while_other_programs_use_the_cores(
    computing: float, waiting: float
) -> None:
    """Workers that wait for a core do not look like those that wait for a file."""
    unaware = advised(busy_workers(2, computing), 2)
    assert unaware.expected is not None
    assert unaware.expected >= 300  # as if they waited for files
    full = advised(busy_workers(2, computing, waiting_for_core=waiting), 2)
    assert (full.workers, full.expected) == (None, None)
    assert (
        f" The workers waited {waiting:.0%} of their time for a core: other programs, or other "
        "threads of this one, use the cores too."
    ) in full.finding
    assert full.advice.startswith(
        "All 2 cores are in use and more workers would wait for a core too, so end what else uses "
        "cores, or make it cheaper: the rest could go"
    )


def test_more_workers_than_cores_are_said_to_wait_for_cores() -> None:
    crowded = advised(busy_workers(6, 0.33, waiting_for_core=0.66), 2)
    assert crowded.workers is None
    assert (
        " The workers waited 66% of their time for a core: more workers than cores run, or other "
        "programs use this machine."
    ) in crowded.finding
    assert crowded.advice.startswith(
        "All 2 cores are in use and more workers would wait for a core too, so make it cheaper"
    )
    alone = advised(busy_workers(1, 0.5, waiting_for_core=0.5), 1)
    assert " The worker waited 50% of its time for a core: other programs" in alone.finding
    assert alone.advice.startswith("The only core is in use and more workers would wait")


@pytest.mark.parametrize(
    ("cores", "count", "computing", "waiting", "workers", "times"),
    [
        (2, 1, 0.5, 0.5, 2, 2 * 4 / 5),  # of 4 threads one was a worker; of 5, two are
        (2, 2, 0.2, 0.3, 4, 2 * 5 / 6),  # a thread and four others; then two and four
        (8, 4, 0.5, 0.5, 8, 2 * 16 / 20),
        (4, 2, 0.95, 0.05, 4, 2),  # too little to say that others use the cores
    ],
)
def test_a_forecast_leaves_other_programs_their_share_of_the_cores(
    cores: int, count: int, computing: float, waiting: float, workers: int, times: float
) -> None:
    found = advised(busy_workers(count, computing, waiting_for_core=waiting), cores)
    assert found.workers == workers
    assert found.expected == pytest.approx(100 * times, rel=0.02)
    assert ("up to about" in found.advice) == (waiting > 0.1)
    assert (f"what {cores} cores can do beside their other work" in found.advice) == (waiting > 0.1)


@given(st.integers(1, 8), st.integers(1, 8), st.floats(0, 1), st.floats(0, 1))
def test_no_forecast_exceeds_the_cores(
    count: int, cores: int, computing: float, waiting: float
) -> None:
    assume(computing + waiting <= 1)
    assume(computing + waiting >= 0.1)
    found = verdict(busy_workers(count, computing, waiting_for_core=waiting), cores)
    if found.expected is not None and found.workers is not None:
        assert found.workers * (computing + waiting) <= cores + 1
        assert found.expected / found.rate * count * computing <= cores + 1


def test_cores_for_which_another_stage_waits_are_not_free() -> None:
    wanting: Any = {"computing": 0.5, "waiting_for_core": 0.5, "copies": None}
    other = stage("from_range(9)", "map(f)", busy=(8.0, 8.0), waited=0.1, **wanting)
    slow = stage("map(g)", busy=(9.9,), waited=9.0, input_seconds=0.2, **wanting)
    assert verdict(run(other, slow, consumer=0.2), 2).workers is None


def test_a_flow_without_workers_is_forecast_beside_other_programs() -> None:
    def found(waited: float, consumer: float = 0.0) -> Verdict:
        one = stage("map(f)", costs={"map(f)": SECONDS - consumer})
        return verdict(run(one, consumer=consumer, waited_for_core=waited), 2)

    free = found(0.2)
    assert free.expected == pytest.approx(200)
    assert "for a core" not in free.finding
    busy = found(5.0)  # of 4 threads on 2 cores, one is the consumer's; of 5, two are workers
    assert busy.expected == pytest.approx(100 * 2 * 4 / 5)
    assert (
        " The thread waited 50% of its time for a core: other programs, or other threads of this "
        "one, use the cores too."
    ) in busy.finding
    assert busy.advice == (
        "prefetch(procs=2) at its end would give up to about 160 elements/s, which is what 2 cores "
        "can do beside their other work."
    )
    consumer = found(5.0, consumer=5.5)
    assert consumer.limiting == "consumer"
    assert consumer.expected == pytest.approx(100 / 0.55 * 4 / (4 + 1 / 0.55 - 1))
    assert "in parallel with the consumer: up to about 150 elements/s" in consumer.advice
    assert "The thread waited 50% of its time for a core" in consumer.finding


@pytest.mark.parametrize(
    "fields",
    [{"busy": (9.8, 1.0, 1.0, 1.0)}, {"busy": (4.8, 4.0, 4.0, 4.0), "times": UNEVEN}],
)
def test_evenly_shared_work_is_forecast_beside_other_programs(fields: Any) -> None:
    made = stage("map(f)", waited=9.4, computing=0.5, waiting_for_core=0.5, **fields)
    busy = verdict(run(made, consumer=0.2), 4)
    free = verdict(run(attrs.evolve(made, workers=_never_waiting(made)), consumer=0.2), 4)
    assert (busy.limiting, free.limiting) == ("straggler", "straggler")
    assert busy.expected is not None
    assert free.expected is not None
    used = made.utilisation * 4
    assert busy.expected == pytest.approx(free.expected * 8 / (8 - used + 4), rel=0.02)
    assert "The workers waited 50% of their time for a core" in busy.finding


def _never_waiting(made: StageStatistics) -> tuple[WorkerStatistics, ...]:
    return tuple(attrs.evolve(worker, waited_for_core=0.0) for worker in made.workers)


def test_auto_workers_are_not_advised_to_change_below_the_cores() -> None:
    figures = busy_workers(2, computing=1.0)
    (stage,) = figures.stages
    figures = attrs.evolve(figures, stages=(attrs.evolve(stage, worker_seconds=2 * stage.seconds),))
    found = advised(figures, 4)
    assert (found.workers, found.expected) == (None, None)
    assert found.advice.startswith(
        'prefetch(procs="auto") tried other numbers of workers and none was faster; make it cheaper'
    )
    assert advised(figures, 2).advice.startswith(
        "The workers are CPU-bound and all 2 cores are in use"
    )


def test_a_worker_that_started_later_is_not_a_straggler() -> None:
    uneven = stage("map(f)", busy=(0.9 * SECONDS, 0.1 * SECONDS), waited=SECONDS)
    figures = RunStatistics(ELEMENTS, SECONDS, 0.0, (uneven,))
    assert verdict(figures, 4).limiting == "straggler"
    found = attrs.evolve(figures, stages=(attrs.evolve(uneven, worker_seconds=1.1 * SECONDS),))
    assert verdict(found, 4).limiting == "workers"


def test_workers_that_wait_are_not_limited_by_cores() -> None:
    waiting = advised(busy_workers(2, computing=0.01), 2)
    assert waiting.workers == MAX_WORKERS
    assert waiting.expected == pytest.approx(3200)
    assert advised(busy_workers(2, computing=0.0), 2).workers == MAX_WORKERS
    assert advised(busy_workers(2, computing=0.5), 2).workers == 4


def test_without_cpu_times_the_advice_covers_both_cases() -> None:
    full = advised(busy_workers(2, computing=None), 2)
    assert full.workers is None
    assert full.advice.startswith(
        "There are 2 cores, so more workers would help only if they wait rather than compute"
    )
    one = advised(busy_workers(1, computing=None), 1)
    assert one.advice.startswith("There is 1 core, so")


def test_cores_that_another_stage_uses_are_not_free() -> None:
    other = stage("from_range(9)", "map(f)", busy=(8.0, 8.0), waited=0.1, computing=1.0)
    slow = stage("map(g)", busy=(9.9,), waited=9.0, input_seconds=0.2, computing=1.0)
    # the other pool bears 1.25 times the rate, so here it is the cores alone that bound
    assert verdict(run(other, slow, consumer=0.2), 2).workers is None
    assert verdict(run(other, slow, consumer=0.2), 4).workers == 2


def test_threads_are_advised_with_the_lock_in_mind() -> None:
    threads = advised(busy_workers(2, None, kind=THREADS), 4)
    assert "prefetch(threads=4)" in threads.advice
    assert "if the functions release the interpreter lock" in threads.advice


def test_calls_are_named_if_they_differ_from_elements() -> None:
    made = stage(
        "from_lmdb('x')",
        "map(decode)",
        "batch(32)",
        busy=(9.9, 9.8),
        waited=3.3,
        costs={"from_lmdb('x')": 1.0, "map(decode)": 17.0, "batch(32)": 1.0},
        calls={"from_lmdb('x')": 32000, "map(decode)": 32000},
    )
    found = verdict(run(made, consumer=6.2), CORES)
    assert found.finding.startswith("map(decode) limits the run to 100 elements/s (3,200 calls/s)")
    assert found.waited == pytest.approx(0.38)
    slow: Any = {"busy": (9.9, 9.8), "waited": 9.0, "costs": {"map(read)": 18.0}}
    few = stage("map(read)", calls={"map(read)": 100}, **slow)
    assert "map(read) limits the run to 100 elements/s (10 calls/s)" in verdict(run(few)).finding
    alike = stage("map(read)", calls={"map(read)": 1100}, **slow)
    assert "calls/s" not in verdict(run(alike)).finding


def test_packing_is_distinguished_from_computing() -> None:
    made = stage("from_range(9)", "map(f)", busy=(9.9, 9.8), waited=9.0, costs={"map(f)": 2.0})
    found = verdict(run(made), CORES)
    assert found.operator is None
    assert found.finding.startswith("Packing the results of from_range(9) … map(f) limits")


def test_ordered_false_is_advised_only_for_ordered_stages() -> None:
    few = stage("map(f)", busy=(4.0, 4.0), waited=9.4, times=UNEVEN)
    assert "ordered=False" in verdict(run(few), CORES).advice
    loose = stage("map(f)", busy=(4.0, 4.0), waited=9.4, times=UNEVEN, ordered=False)
    assert "ordered=False" not in verdict(run(loose), CORES).advice


def test_a_map_after_a_prefetch_is_advised_to_move_before_it() -> None:
    pool = stage("from_range(9)", "map(f)", busy=(1.0, 1.0), waited=0.1)
    found = verdict(run(pool, stage("map(slow)"), consumer=0.2), CORES)
    assert (found.limiting, found.operator) == ("thread", "map(slow)")
    assert found.advice.startswith(
        "A prefetch after it in the chain, rather than before it, would give"
    )


def test_a_source_that_workers_cannot_run_gets_other_advice() -> None:
    made = stage(
        "from_iterable(words)",
        "map(f)",
        costs={"from_iterable(words)": 9.0, "map(f)": 0.2},
        stays=("from_iterable(words)",),
    )
    found = verdict(run(made), CORES)
    assert found.operator == "from_iterable(words)"
    assert found.workers is None
    assert found.advice.startswith("No worker can run it, as it must see the elements in order.")


def test_operators_that_stay_are_named_if_their_cost_is_unknown() -> None:
    made = stage("from_iterable(words)", "map(f)", stays=("from_iterable(words)",))
    found = verdict(run(made), 2)
    assert found.operator is None
    assert found.advice == (
        "prefetch(procs=2) at its end would give up to 200 elements/s, which is what 2 cores can "
        "do, less the time of from_iterable(words), which no worker can run."
    )


def test_without_a_profile_the_consumer_may_include_operators() -> None:
    pool = stage("from_range(9)", "map(f)", busy=(1.9, 1.8), waited=0.1)
    found = verdict(run(pool, consumer=9.7, profiled=False), CORES)
    assert found.limiting == "consumer"
    assert "flow.profile(step=...) times them apart from the consumer" in found.advice


def test_more_copies_are_not_advised_as_they_change_the_flow() -> None:
    copied = stage("map(f)", busy=(9.9, 9.8), waited=9.0, copies="passes")
    found = verdict(run(copied), 4)
    assert (found.expected, found.workers) == (None, None)
    assert found.advice == (
        "replicate(procs=n) runs n passes, so another number changes the elements; make it "
        "cheaper: the rest could go up to about 1,000 elements/s."
    )
    idle = stage("map(f)", busy=(0.2, 0.1), waited=0.1, copies="passes")
    assert "would do" not in verdict(run(idle, consumer=9.7), 4).advice
    few = stage("map(f)", busy=(4.0, 4.0), waited=9.4, times=UNEVEN)
    assert "ordered=False" in verdict(run(few), 4).advice
    assert "prefetch" not in verdict(run(attrs.evolve(few, copies="passes")), 4).advice


def test_more_workers_are_advised_if_copies_share_rows() -> None:
    shared = stage("map(f)", "replicate(procs=2)", busy=(9.9, 9.8), waited=9.0, copies="rows")
    found = verdict(run(shared), 4)
    assert found.workers == 4
    assert found.advice.startswith("prefetch(procs=4) after replicate(procs=2) would give about")


@pytest.mark.parametrize("copies", ["rows", "passes"])
def test_advice_for_copies_names_replicate_and_not_prefetch(copies: Any) -> None:
    small = stage("from_range(9)", busy=(2.0, 2.0), waited=0.1, copies=copies)
    found = verdict(run(small, consumer=0.2), CORES)
    assert found.limiting == "handing over"
    assert found.advice == "Fewer and larger elements cost less: batch them before replicate."
    found = verdict(run(small, stage("map(slow)", costs={"map(slow)": 9.5}), consumer=0.2), CORES)
    assert found.limiting == "thread"
    assert found.advice.startswith("A prefetch after it in the chain would give about")


def test_tiny_elements_are_advised_to_run_without_prefetch() -> None:
    advice = verdict(KNOWN["tiny elements"][0], CORES).advice
    assert advice.endswith("without prefetch, it would be about 240 elements/s.")


@pytest.mark.parametrize(
    ("each", "consumer", "rows", "helps"),
    [
        (1e-6, 0.0, 0, False),
        (90e-6, 0.0, 0, True),
        (90e-6, 0.0, 32, False),  # rows in memory, of which each is sent
        (1e-3, 0.0, 32, True),
        (3e-6, 4e-6, 0, False),
        (30e-6, 40e-6, 0, True),
        (30e-6, 40e-6, 1, True),
        (30e-6, 40e-6, 4, False),
    ],
)
def test_workers_are_advised_where_they_are_faster_than_their_transfers(
    each: float, consumer: float, rows: int, helps: bool
) -> None:
    rate = 1 / (each + consumer)
    made = stage("map(f)", costs={"map(f)": rate * SECONDS * each})
    elements = int(rate * SECONDS)
    figures = RunStatistics(elements, SECONDS, elements * consumer, (made,), profiled=True)
    found = verdict(figures, 2, rows_sent=rows)
    assert (found.workers is not None) == (found.expected is not None) == helps
    if helps:
        thread = consumer + 5e-6 + rows * 10e-6
        assert found.expected == pytest.approx(1 / max(thread, each / 2, consumer), rel=0.1)
    else:
        assert found.advice.startswith("Workers would hardly help: an element takes")
        assert ("write_lmdb" in found.advice) == (rows > 0)


def test_cores_default_to_the_machine() -> None:
    from flowdsl.resources.cores import cores

    figures = busy_workers(1, computing=1.0)
    assert verdict(figures) == verdict(figures, cores())
