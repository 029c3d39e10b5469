"""Pools of two workers, to compare one state of the code with another: no peers, no assertions."""

from __future__ import annotations

from itertools import islice

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.contestants import OURS
from bench.works import ROWS, WORKS, Work


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
def test_pool(benchmark: BenchmarkFixture, work: Work) -> None:
    batches = OURS.prepare(work, ROWS)()

    def some() -> None:
        for _ in islice(batches, 500):
            pass

    benchmark.extra_info["rows"] = 500 * work.batch
    benchmark.pedantic(some, rounds=5, warmup_rounds=1)  # type: ignore[no-untyped-call]  # it has no types
    batches.close()


def test_first_batch(benchmark: BenchmarkFixture) -> None:
    def first() -> None:
        batches = OURS.prepare(WORKS["tiny"], 64)()
        next(batches)
        batches.close()

    benchmark.pedantic(first, rounds=5, warmup_rounds=1)  # type: ignore[no-untyped-call]  # it has no types
