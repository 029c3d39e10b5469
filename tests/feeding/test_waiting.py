"""Waiting consumers: warnings describe what the flow is doing, and waiting time is counted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from time import sleep

import pytest

import flowdsl as fl
from flowdsl.feeding.pump import Pump
from tests.feeding.buffered import Queued


class Releases(logging.Handler):
    """Collects warnings, and releases the flow after a number of them."""

    def __init__(self, times: int, release: Callable[[], object]) -> None:
        super().__init__()
        self.warnings: list[str] = []
        self.hears = False
        self._times, self._release = times, release

    def emit(self, record: logging.LogRecord) -> None:
        if not self.hears:
            return
        self.warnings.append(record.getMessage())
        if len(self.warnings) >= self._times:
            self._release()


def warnings(flow: fl.Flow[int], release: Callable[[], object], times: int = 1) -> list[str]:
    """Return the warnings of a waiting consumer; the flow is released after them."""
    handler = Releases(times, release)
    logger = logging.getLogger("flowdsl.feeding.pump")
    logger.addHandler(handler)
    try:
        with Pump(iter(flow), Queued(), capacity=5, name="Input", patience=0.01) as pump:
            pump.take(2)
            handler.hears = True
            pump.take(2)
            assert pump.waited >= 0.01
    finally:
        logger.removeHandler(handler)
    return handler.warnings


def test_a_function_that_does_not_return_is_named_in_a_warning() -> None:
    gate = threading.Event()

    def stuck_in_the_third(i: int) -> int:
        if i == 2:
            gate.wait()
        return i

    first, second, *_ = warnings(fl.from_range(4).map(stuck_in_the_third), gate.set, times=2)
    for line in (first, second):
        assert "Input: a step has waited for 0.0" in line
        assert "element 2 of the pass has not arrived" in line
        assert f"the flow is in stuck_in_the_third, line {line_of_the_wait()} of {__file__}" in line


def line_of_the_wait() -> int:
    lines = Path(__file__).read_text().splitlines()
    return 1 + next(k for k, line in enumerate(lines) if line.strip() == "gate.wait()")


@pytest.mark.parametrize("kind", ["threads", "procs"])
def test_busy_workers_are_named_in_a_warning(kind: str, tmp_path: Path) -> None:
    gate = tmp_path / "open"

    def wait(i: int) -> int:
        while i == 2 and not gate.exists():
            sleep(0.01)
        return i

    flow = fl.from_range(4).map(wait)
    flow = flow.prefetch(threads=1) if kind == "threads" else flow.prefetch(procs=1)
    (line, *_) = warnings(flow, gate.touch)
    assert "element(s) are with the workers of from_range(4) map(" in line
