"""The fixture for pytest-benchmark, in a project of a user's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

BENCH = """
import flowdsl as fl
from flowdsl.testing.pytest_plugin import FlowBenchmark

def test_whole(flow_benchmark: FlowBenchmark) -> None:
    flow_benchmark(fl.from_range(100).map(abs).batch(4), rounds=3)

def test_part(flow_benchmark: FlowBenchmark) -> None:
    flow_benchmark(fl.from_range(9).repeat().prefetch(procs=1), size=50, rounds=2)
"""


def _pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text('pytest_plugins = ["flowdsl.testing.pytest_plugin"]')
    (folder / "test_bench.py").write_text(BENCH)
    # in a worker of pytest-xdist, pytest-benchmark would time nothing
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_rounds_and_rates_are_saved(tmp_path: Path) -> None:
    done = _pytest(tmp_path, "--benchmark-json=found.json")
    assert done.returncode == 0, done.stdout
    whole, part = json.loads((tmp_path / "found.json").read_text())["benchmarks"]
    assert (whole["stats"]["rounds"], part["stats"]["rounds"]) == (3, 2)
    assert (whole["extra_info"]["elements"], part["extra_info"]["elements"]) == (25, 50)
    rate = 25 / whole["stats"]["median"]
    assert abs(whole["extra_info"]["elements_per_second"] / rate - 1) < 1e-6
    assert abs(whole["extra_info"]["rows_per_second"] / (4 * rate) - 1) < 1e-6


def test_without_pytest_benchmark_the_remedy_is_named(tmp_path: Path) -> None:
    done = _pytest(tmp_path, "-p", "no:benchmark", "-k", "whole")
    assert done.returncode == 1
    assert "flow_benchmark needs pytest-benchmark: pip install pytest-benchmark" in done.stdout
