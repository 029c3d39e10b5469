"""What ``import flowdsl`` takes, beside the libraries that it imports: no assertions."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

_PROGRAMS = {
    "what it imports": "import attrs, numpy, typing_extensions",
    "flowdsl": "import flowdsl",
}


@pytest.mark.parametrize("program", _PROGRAMS.values(), ids=_PROGRAMS)
def test_import(benchmark: BenchmarkFixture, program: str) -> None:
    def run() -> None:
        subprocess.run([sys.executable, "-c", program], check=True)

    benchmark.pedantic(run, rounds=9, warmup_rounds=1)  # type: ignore[no-untyped-call]  # it has no types
