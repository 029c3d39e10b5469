"""Workers of a Ray cluster obey the laws of backends; a sample of the laws is not ``long``."""

from __future__ import annotations

import os

import pytest

from flowdsl.resources.worker_kinds import ACTORS
from flowdsl.testing import worker_backends
from flowdsl.testing.worker_backends import Law, Trial, laws
from tests.ray.cluster import TestCluster

SAMPLE = (
    worker_backends.rows_are_sent_to_workers,
    worker_backends.delivered_elements_stay_valid,
    worker_backends.wake_ends_the_wait_of_poll,
    worker_backends.parked_workers_refuse_another_stage,
    worker_backends.a_fork_is_refused,
    worker_backends.an_error_is_raised_at_its_position,
    worker_backends.a_death_is_reported_once,
    worker_backends.an_element_that_kills_workers_is_named,
)
REPEATS = 12
"""In every run the sampled laws run once; ``make long`` repeats the laws of deaths."""


@pytest.mark.parametrize(
    "law",
    [
        *SAMPLE,
        *(
            pytest.param(law, marks=pytest.mark.long)
            for law in laws(Trial(ACTORS, die=os.abort, repeats=REPEATS))
        ),
    ],
)
def test_workers_of_another_machine_obey_the_laws(law: Law, cluster: TestCluster) -> None:
    law(Trial(ACTORS, die=os.abort, living=cluster.worker_processes))
