"""Profiles of real pipelines: in each, one part waits ten times as long as any other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import attrs
import numpy as np
import pytest
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import Flow, FlowError, InvalidFlow, Profile
from flowdsl.effects import Exact
from flowdsl.elements.specs import Spec, spec_of
from flowdsl.nodes import IndexedSource
from flowdsl.report.profiling import all_at_work
from flowdsl.report.verdict import Limit
from flowdsl.statistics.stages import WorkerStatistics
from tests.report.books import run, stage
from tests.report.clock import CLOCK, simulated
from tests.waiting import soonest

SLOW = 0.005
"""The seconds of the limiting part; other parts take some microseconds."""


def slow(i: int) -> int:
    time.sleep(SLOW)
    return i


def fast(i: int) -> int:
    return i


def keep(i: int) -> bool:
    return True


def slow_words() -> Iterator[int]:
    for i in range(10**6):
        time.sleep(SLOW)
        yield i


def slow_list(rows: Sequence[int]) -> list[int]:
    time.sleep(4 * SLOW)
    return list(rows)


def slow_once(i: int) -> NDArray[np.int64]:
    """One element takes a second: longer than other workers can run ahead within 1 MB."""
    time.sleep(200 * SLOW if i == 2000 else SLOW / 50)
    return np.full(1000, i)


@pytest.fixture
def clock() -> Iterator[None]:
    with simulated():
        yield


def worked(i: int) -> int:
    CLOCK.now += SLOW
    return i


class SlowRows(IndexedSource[int]):
    """Rows that take long to read, in any process."""

    @property
    def length(self) -> int:
        return 10**6

    @property
    def title(self) -> str:
        return "slow_rows()"

    def open(self) -> Callable[[int], int]:
        return slow

    def spec(self, probe: bool) -> Spec:
        return spec_of(0)


def slow_rows() -> Flow[int, Exact]:
    return Flow(SlowRows())


def numbers() -> Flow[int, Exact]:
    return fl.from_range(10**6)


def step(x: object) -> None:
    time.sleep(SLOW)


CASES: dict[str, tuple[Callable[[], Flow[Any, Any]], Limit, int | None, str | None]] = {
    "a slow map in processes": (
        lambda: numbers().map(fast).map(slow).prefetch(procs=2),
        "workers",
        0,
        "map(slow)",
    ),
    "a slow map in threads": (
        lambda: numbers().map(slow).map(fast).batch(4).prefetch(threads=2),
        "workers",
        0,
        "map(slow)",
    ),
    "a slow source, read by workers": (
        lambda: slow_rows().map(fast).prefetch(procs=2),
        "workers",
        0,
        "slow_rows()",
    ),
    "a slow stream": (
        lambda: fl.from_iterable(slow_words).map(fast).prefetch(procs=2),
        "input",
        0,
        "from_iterable(slow_words)",
    ),
    "a slow collate with the consumer": (
        lambda: numbers().filter(keep).batch(4, collate=slow_list).prefetch(procs=2),
        "thread",
        1,
        "batch(4, collate=slow_list)",
    ),
    "two pools, the first slow": (
        lambda: numbers().map(slow).prefetch(procs=1).shuffle(4).map(fast).prefetch(threads=1),
        "workers",
        0,
        "map(slow)",
    ),
    "two pools, the second slow": (
        lambda: numbers().map(fast).prefetch(threads=1).shuffle(4).map(slow).prefetch(procs=1),
        "workers",
        2,
        "map(slow)",
    ),
    "a slow map without workers": (
        lambda: numbers().map(slow).map(fast),
        "thread",
        0,
        "map(slow)",
    ),
    "a slow map behind the workers": (
        lambda: numbers().map(fast).prefetch(threads=2).map(slow),
        "thread",
        1,
        "map(slow)",
    ),
    "one slow element": (
        lambda: numbers().map(slow_once).prefetch(threads=4, memory=10**6),
        "straggler",
        0,
        "map(slow_once)",
    ),
}


def judged(make: Callable[[], Flow[Any, Any]], right: tuple[Any, ...], **given: Any) -> Profile:
    """A profile, repeated for longer if the machine was too busy for a clear verdict."""
    for seconds in (0.3, 1.5, 4.0, 4.0, 8.0):
        seen = make().profile(seconds, **given)
        verdict = seen.verdict
        if (verdict.limiting, verdict.stage, verdict.operator) == right:
            break
    return seen


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=pytest.mark.long if x == "one slow element" else []) for x in CASES],
)
def test_real_flows_have_the_expected_bottleneck(name: str) -> None:
    make, *right = CASES[name]
    seen = judged(make, tuple(right))
    verdict = seen.verdict
    assert [verdict.limiting, verdict.stage, verdict.operator] == right, seen


@pytest.mark.parametrize(
    "make",
    [
        lambda: numbers().map(fast),
        lambda: numbers().map(fast).prefetch(procs=2),
        lambda: numbers().map(fast).filter(keep).batch(2).prefetch(threads=2),
    ],
)
def test_a_slow_step_limits(make: Callable[[], Flow[Any, Any]]) -> None:
    seen = judged(make, ("consumer", None, None), step=step)
    assert seen.verdict.limiting == "consumer", seen
    assert seen.verdict.waited < 0.5


@pytest.mark.long
def test_advised_workers_reach_the_expected_rate() -> None:
    """The workers only sleep, so the number of cores does not matter."""

    def rate(threads: int) -> Profile:
        return numbers().map(slow).prefetch(threads=threads).profile(0.5)

    def off() -> float:
        one, four = rate(1), rate(4)
        if not one.verdict.limiting == four.verdict.limiting == "workers":
            return math.inf
        return abs(four.statistics.rate / (4 * one.statistics.rate) - 1)

    assert soonest(off, 0.3) < 0.3


def test_the_step_gets_the_elements_for_the_seconds() -> None:
    given: list[int] = []
    seen = numbers().profile(0.1, step=given.append)
    assert given == list(range(len(given)))
    assert seen.statistics.elements == len(given) - 1  # what came before the second is not timed
    assert seen.statistics.seconds > 0.1 - 1e-9  # also if the machine stops in the warm-up
    assert seen.statistics.profiled


@pytest.mark.usefixtures("clock")
def test_a_short_flow_is_profiled_over_several_passes() -> None:
    given: list[int] = []
    flow = fl.from_range(50).shuffle()
    seen = flow.map(worked).profile(60 * SLOW, step=given.append)
    assert len(given) == 61  # with the warm-up, which ends at the first
    assert seen.statistics.elements == 60
    assert given == [*flow.collect(), *flow.epoch(1)][:61]
    assert seen.statistics.stages[0].costs[-1].calls == 60


def test_a_one_shot_flow_is_profiled_over_one_pass() -> None:
    queue = iter(range(20))
    given: list[int] = []
    fl.from_iterable(queue).map(fast).profile(60, step=given.append)
    assert given == list(range(20))


def test_one_element_is_enough() -> None:
    seen = fl.from_iterable(iter([3])).profile(0.1)
    assert seen.statistics.elements == 1
    assert str(seen)


def test_short_passes_with_idle_workers_end() -> None:
    """In each pass, one of four threads makes the only element."""
    seen = fl.from_range(1).map(slow).prefetch(threads=4).profile(0.2)
    assert seen.statistics.elements > 1


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), "3", None, True])
def test_invalid_seconds_are_refused(seconds: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        numbers().profile(seconds)
    assert str(caught.value) == f"profile: seconds must be a number > 0, got {seconds!r}"


def test_a_step_that_is_not_callable_is_refused() -> None:
    not_a_step: Any = 3
    with pytest.raises(InvalidFlow) as caught:
        numbers().profile(step=not_a_step)
    assert str(caught.value) == "profile: step must be callable, or None, got 3"


def test_a_flow_without_elements_is_an_error() -> None:
    with pytest.raises(FlowError) as caught:
        fl.from_range(9).filter(lambda i: False).profile(0.1)
    assert str(caught.value) == (
        "profile: the flow has no elements, so there is nothing to time; see what "
        "filter(<lambda>) leaves out"
    )
    with pytest.raises(FlowError) as caught:
        fl.from_range(0).profile(0.1)
    assert str(caught.value) == "profile: the flow has no elements, so there is nothing to time"


def test_an_error_of_the_flow_or_the_step_is_raised() -> None:
    with pytest.raises(fl.ElementError):
        fl.from_range(9).map(lambda i: 1 // (3 - i)).profile(5)
    with pytest.raises(ZeroDivisionError):
        fl.from_range(9).profile(5, step=lambda i: 1 // (3 - i))


def worked_at_first(i: int) -> int:
    CLOCK.now += 0.5 if i == 0 else SLOW
    return i


@pytest.mark.usefixtures("clock")
def test_the_warm_up_is_not_counted() -> None:
    (seen,) = numbers().map(worked_at_first).prefetch(threads=1).profile(0.2).statistics.stages
    assert seen.p50 == seen.p99 == pytest.approx(SLOW, rel=0.1)


def test_warm_up_ends_when_each_worker_made_an_element() -> None:
    working, here = stage("f", busy=(1.0, 1.0)), stage("g")
    starting = attrs.evolve(working, workers=(WorkerStatistics(3, 1.0), WorkerStatistics(0, 0.0)))
    to_come = attrs.evolve(working, workers=())  # as of copies, which begin one after another
    assert all_at_work(run(here))
    assert all_at_work(run(working, here))
    assert not all_at_work(run(working, starting))
    assert not all_at_work(run(working, to_come))


@pytest.mark.usefixtures("clock")
def test_skips_of_many_passes_are_listed_up_to_the_limit() -> None:
    flow = fl.from_range(40).map(lambda i: 1 // (worked(i) % 2))
    seen = flow.prefetch(threads=1, on_error="skip").profile(300 * SLOW).statistics
    assert seen.skipped > len(seen.skips) == 100


def test_replicated_rows_are_advised_a_prefetch() -> None:
    flow = numbers().map(slow).replicate(procs=2)
    right = ("workers", 0, "map(slow)")
    verdict = judged(lambda: flow, right).verdict
    assert "prefetch(procs=" in verdict.advice
    assert "after replicate(procs=2) would give" in verdict.advice  # fewer, if cores are busy


def test_replicated_streams_are_not_advised_more_workers() -> None:
    flow = numbers().shuffle(4).map(slow).replicate(procs=2)
    verdict = judged(lambda: flow, ("workers", 0, None)).verdict
    assert verdict.limiting == "workers", verdict
    assert verdict.workers is None
    assert verdict.advice.startswith("replicate(procs=n) runs n passes")


@pytest.fixture(scope="module")
def profile() -> Profile:
    with simulated():
        return numbers().map(worked).batch(4).profile(10 * SLOW)


def test_a_profile_can_be_printed(profile: Profile) -> None:
    text = str(profile)
    assert text.startswith(str(profile.verdict))
    for said in ("from_range(1000000)", "map(worked)", "batch(4)", "this process", "of its stage"):
        assert said in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines()[1:])) <= 120
    assert repr(profile).startswith("Profile('thread', ")


def test_a_profile_can_be_printed_by_rich(profile: Profile) -> None:
    from rich.console import Console

    console = Console(width=120, force_terminal=True)
    with console.capture() as captured:
        console.print(profile)
    assert "\x1b[1;33m" in captured.get()  # the limiting stage
    assert "batch(4)" in captured.get()


def test_a_profile_can_be_saved(profile: Profile, tmp_path: Path) -> None:
    profile.save(tmp_path / "profile.svg")
    profile.save(str(tmp_path / "profile.html"))
    svg = (tmp_path / "profile.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert svg == profile.svg()
    html = (tmp_path / "profile.html").read_text(encoding="utf-8")
    assert svg in html
    assert "of its stage" in html
    with pytest.raises(InvalidFlow) as caught:
        profile.save("profile.png")
    assert str(caught.value) == "save: path must end in .svg or .html, got 'profile.png'"


def test_a_notebook_shows_the_picture(profile: Profile) -> None:
    bundle = profile._repr_mimebundle_()
    assert bundle == {"text/plain": str(profile), "text/html": profile.svg()}
