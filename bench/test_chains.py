"""Chains in one process, to compare one state of the code with another: no peers, no assertions."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.chains import CHAINS, Chain
from bench.inline import nothing, through


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.name)
def test_chain(benchmark: BenchmarkFixture, chain: Chain) -> None:
    rows = chain.rows // 5
    benchmark.extra_info["rows"] = rows
    benchmark.pedantic(through, (chain, rows, nothing), rounds=5, warmup_rounds=1)  # type: ignore[no-untyped-call]  # it has no types
