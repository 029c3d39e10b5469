"""Waiting consumers: warnings describe what the flow is doing, and waiting time is counted."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path
from time import sleep

import pytest

import flowdsl as fl
from flowdsl.feeding.pump import Pump
from tests.feeding.buffered import Queued


class Releases(logging.Handler):
    """Collects warnings, and releases the flow after a number of them with some text."""

    def __init__(self, text: str, times: int, release: Callable[[], object]) -> None:
        super().__init__()
        self.warnings: list[str] = []
        self.hears = False
        self._text, self._times, self._release = text, times, release

    def emit(self, record: logging.LogRecord) -> None:
        if not self.hears:
            return
        self.warnings.append(record.getMessage())
        said = sum(self._text in warning for warning in self.warnings)
        if said >= self._times or len(self.warnings) == 12:  # a test that fails ends
            self._release()


def warnings(
    flow: fl.Flow[int], text: str, release: Callable[[], object], times: int = 1
) -> list[str]:
    """Return the warnings of a waiting consumer that have a text; they release the flow.

    Before them, others may come: the flow begins to compute an element when the one before is
    taken, and may need longer for it than the patience of the consumer.
    """
    handler = Releases(text, times, release)
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
    return [warning for warning in handler.warnings if text in warning]


def test_a_function_that_does_not_return_is_named_in_a_warning() -> None:
    gate = threading.Event()

    def stuck_in_the_third(i: int) -> int:
        if i == 2:
            gate.wait()
        return i

    text = f"the flow is in stuck_in_the_third, line {line_of_the_wait()} of {__file__}"
    first, second, *_ = warnings(fl.from_range(4).map(stuck_in_the_third), text, gate.set, times=2)
    for line in (first, second):
        assert re.search(r"Input: a step has waited for [\d.]+ s, ", line)
        assert "element 2 of the pass has not arrived" in line


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
    text = "element(s) are with the workers of from_range(4) map("
    assert warnings(flow, text, gate.touch)
