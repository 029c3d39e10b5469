"""A sample of ``make chaos-cluster``."""

from __future__ import annotations

import pytest

from tests.chaos.trials import Tally, try_case
from tests.ray.chaos import case_on_the_cluster, pipelines_on
from tests.ray.cluster import TestCluster


def test_random_pipelines_on_the_cluster_give_their_reference(
    cluster: TestCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = Tally()
    with pipelines_on(cluster):
        for number in range(2):
            try_case(case_on_the_cluster(number), tally, real=True)
    assert tally.pipelines == 2
    assert tally.elements > 0
