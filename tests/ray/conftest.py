"""A Ray cluster on this machine, whose nodes stand for machines; one for all tests of a process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

pytest.importorskip("ray")

from tests.ray.cluster import TestCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[TestCluster]:
    """A cluster of this process's machine, without free CPUs, and one other machine."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        started = TestCluster()
        started.add(cpus=8)
    except Exception as error:
        pytest.skip(f"Ray cannot start a cluster on this machine: {error}")
    yield started
    started.shutdown()
