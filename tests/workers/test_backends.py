"""Processes and threads obey the laws of backends."""

from __future__ import annotations

import os
import threading

import pytest

import flowdsl as fl
from flowdsl.resources.worker_kinds import PROCESSES, THREADS
from flowdsl.testing.worker_backends import Law, Trial, laws

IN_PROCESSES = Trial(PROCESSES, die=os.abort)
IN_THREADS = Trial(THREADS)


@pytest.mark.parametrize("law", laws(IN_PROCESSES))
def test_processes_obey_the_laws(law: Law) -> None:
    law(IN_PROCESSES)


@pytest.mark.parametrize("law", laws(IN_THREADS))
def test_threads_obey_the_laws(law: Law) -> None:
    law(IN_THREADS)


def test_threads_end_with_their_run_although_it_is_referenced() -> None:
    before = set(threading.enumerate())
    run = iter(fl.from_range(9).map(abs).prefetch(threads=2))
    assert list(run) == list(range(9))
    assert set(threading.enumerate()) <= before
    assert run.position == 9


def test_a_mortal_kind_requires_a_die_function() -> None:
    with pytest.raises(TypeError, match="Trial: say how a worker process dies"):
        Trial(PROCESSES)
