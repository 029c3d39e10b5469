"""Workers of a Ray cluster obey the laws of backends."""

from __future__ import annotations

import os

import pytest

from flowdsl.resources.worker_kinds import ACTORS
from flowdsl.testing.worker_backends import Law, Trial, laws
from tests.ray.cluster import TestCluster

_LAWS = laws(Trial(ACTORS, die=os.abort))


@pytest.mark.parametrize("law", _LAWS)
def test_workers_of_another_machine_obey_the_laws(law: Law, cluster: TestCluster) -> None:
    law(Trial(ACTORS, die=os.abort, living=cluster.worker_processes))
