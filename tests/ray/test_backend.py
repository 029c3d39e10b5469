"""Workers of a Ray cluster obey the laws of backends, and random pipelines give their reference.

A sample of both is in every run, on one cluster; the rest of ``tests/ray`` is ``long``.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest

import flowdsl as fl
from flowdsl.resources.worker_kinds import ACTORS
from flowdsl.testing import worker_backends
from flowdsl.testing.worker_backends import Law, Trial, laws
from tests.chaos.trials import Tally, try_case
from tests.ray.chaos import case_on_the_cluster, pipelines_on
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


def test_random_pipelines_give_their_reference(
    cluster: TestCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sample of ``make chaos-cluster``."""
    tally = Tally()
    with pipelines_on(cluster):
        for number in range(2):
            try_case(case_on_the_cluster(number), tally, real=True)
    assert tally.pipelines == 2
    assert tally.elements > 0


def test_calls_survive_a_patched_msgpack(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importing tensorpack patches it, and Ray packs the arguments of calls with it."""
    numpy_msgpack: Any = importlib.import_module("msgpack_numpy")
    monkeypatch.setattr("msgpack.dumps", numpy_msgpack.packb)
    worker_backends.rows_are_sent_to_workers(Trial(ACTORS, die=os.abort))


def test_one_kind_of_worker() -> None:
    unchecked: Any = fl.from_range(9)
    with pytest.raises(
        fl.InvalidFlow, match="set one of procs, threads and actors; got procs=2, a"
    ):
        fl.from_range(9).prefetch(procs=2, actors=2)
    with pytest.raises(fl.InvalidFlow, match="replicate: set procs or actors"):
        unchecked.replicate(procs=2, actors=2)
    with pytest.raises(fl.InvalidFlow, match='actors must be an int >= 0 or "auto", got -1'):
        fl.from_range(9).prefetch(actors=-1)
