from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flowdsl.resources.worker_kinds import PROCESSES, THREADS
from flowdsl.statistics.figures import (
    HEADER,
    about,
    duration,
    losses,
    number,
    share,
    size,
    stage_cells,
)
from flowdsl.statistics.stages import StageStatistics
from tests.report.books import stage

positive = st.floats(1e-9, 1e12)
UNITS = {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
BYTES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def value(said: str) -> float:
    return float(said.replace(",", ""))


@given(positive)
def test_formatted_numbers_are_close(x: float) -> None:
    assert value(number(x)) == pytest.approx(x, rel=0.005)
    assert value(about(x)) == pytest.approx(x, rel=0.05)
    assert len(about(x).replace(",", "").replace(".", "").strip("0")) <= 2


@given(st.floats(1e-9, 1e5))
@example(999.7)
@example(0.9997e-3)
def test_formatted_durations_are_close(x: float) -> None:
    said, unit = duration(x).split()
    assert value(said) * UNITS[unit] == pytest.approx(x, rel=0.005)
    assert "e" not in said
    assert value(said) < 1000 or unit == "s"


@given(st.integers(1, 10**14))
@example(999_700)
def test_formatted_sizes_are_close(x: int) -> None:
    said, unit = size(x).split()
    assert value(said) * BYTES[unit] == pytest.approx(x, rel=0.005)
    assert "e" not in said


@given(st.floats(0, 1))
def test_a_share_is_shown_as_zero_only_if_it_is_zero(x: float) -> None:
    assert (share(x) == "0%") == (x == 0)


def test_losses_list_skips_retries_and_deaths() -> None:
    died = stage("map(f)", busy=(1.0,), filtered=1200, skipped=3, retried=8, deaths=1)
    assert losses(died) == "1,200 filtered, 3 skipped, 8 retried, 1 death"
    assert losses(stage("map(f)", busy=(1.0,))) == ""


def test_a_stage_that_has_not_started_has_few_figures() -> None:
    idle = StageStatistics(("map(f)",), 0.0, 0, 0, kind=PROCESSES)
    assert len(stage_cells(idle)) == len(HEADER)


def test_each_column_has_its_figure() -> None:
    full = stage("f", busy=(5.0, 1.0), waited=2.0, input_seconds=1.0, fill=0.5, nbytes=10)
    cells = dict(zip(HEADER, stage_cells(full), strict=True))
    assert cells == {
        "stage": "f",
        "where": "2 processes",
        "elements/s": "100",
        "busy": "30%",
        "skew": "+67%",
        "input": "10%",
        "waited for": "20%",
        "fill": "50%",
        "bytes/s": "1 B/s",
        "p50": "1.02 ms",
        "p99": "2.04 ms",
    }
    assert re.fullmatch("1 thread", stage_cells(stage("f", busy=(1.0,), kind=THREADS))[1])
