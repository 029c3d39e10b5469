"""The clock of a turn, and the reference workloads."""

from __future__ import annotations

import time

import pytest

from flowdsl.report.bench import reference


def test_the_clock_counts_waiting_for_anything_but_a_core() -> None:
    # of several: a wait for a core that begins before the clock is looked at is left out as well
    times = [reference.timed(lambda: time.sleep(0.01)) for _ in range(5)]
    assert max(seconds for seconds, _ in times) > 0.009
    assert all(0 <= waited < 1 for _, waited in times)


def test_the_clock_leaves_out_waiting_for_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter([1.0, 1.005])
    clocks = iter([7.0, 7.010])
    monkeypatch.setattr(reference, "waited_for_core", lambda: next(waits))
    monkeypatch.setattr("time.perf_counter", lambda: next(clocks))
    seconds, waited = reference.timed(lambda: None)
    assert [seconds, waited] == pytest.approx([0.005, 0.5])


def test_a_wait_that_began_earlier_leaves_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter([1.0, 1.020])
    clocks = iter([7.0, 7.010])
    monkeypatch.setattr(reference, "waited_for_core", lambda: next(waits))
    monkeypatch.setattr("time.perf_counter", lambda: next(clocks))
    seconds, waited = reference.timed(lambda: None)
    assert seconds > 0
    assert waited < 1


def test_the_reference_takes_about_a_millisecond() -> None:
    one_run = [min(reference.timed(work)[0] for _ in range(5)) for work in KINDS]
    assert 1e-5 < sum(one_run) < 0.1


KINDS = [*reference.REFERENCE.values(), *reference.OTHERS.values()]
