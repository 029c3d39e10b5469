"""A clock of the tests, in place of the machine's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flowdsl.executor import codegen

TICK = 1e-6


class Clock:
    """A clock that advances by a tick at each look, and by what functions say they take.

    The machine's clock also counts what other programs take, and how long they stop this one, so
    exact times need this one.
    """

    now = 0.0

    def __call__(self) -> float:
        self.now += TICK
        return self.now


CLOCK = Clock()


@contextmanager
def simulated() -> Iterator[None]:
    """Time flows by ``CLOCK``, and let no thread have waited for a core."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.perf_counter", CLOCK)
        patch.setattr(codegen, "perf_counter", CLOCK)
        uncached = vars(codegen)["_loop"].__wrapped__  # compiled loops keep the clock
        patch.setattr(codegen, "_loop", uncached)
        for user in ("profiling", "bench.reference"):
            patch.setattr(f"flowdsl.report.{user}.waited_for_core", lambda: 0.0)
        yield
