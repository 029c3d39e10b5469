"""Leases: actors that reserve CPUs of a machine, kept for a while after their backend has ended.

The problem: a pass that the consumer leaves early ends its workers, and so does a changed function.
The naive way ends the actor with them. The next pass then waits for Ray to free the CPUs and for a
new interpreter that imports flowdsl, a second or two. The choice: a released actor stays for half a
minute, without workers, and the next backend that needs as many CPUs of the machine gets it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import attrs
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from flowdsl.ray.cluster import Node
from flowdsl.ray.reservation import SECONDS_IDLE, Reservation


@attrs.define(eq=False)
class Lease:
    """An actor that reserves ``cpus`` CPUs of a machine."""

    node: Node
    kind: type[Reservation]
    """The class of the actor."""
    cpus: int
    actor: Any
    job: str = attrs.field(factory=lambda: _job())
    """The connection to Ray that the actor belongs to."""
    released: float = 0.0
    """When it was released, by ``time.monotonic``."""

    def end(self) -> None:
        """End the actor."""
        if ray.is_initialized():
            with suppress(Exception):  # it has ended, or belongs to an earlier connection
                ray.kill(self.actor)


_idle: list[Lease] = []
"""Released leases. Their actors end by themselves after ``SECONDS_IDLE``."""


def acquire(kind: type[Reservation], node: Node, cpus: int) -> Lease:
    """Reserve CPUs of a machine: by a released actor with as many, or by a new one."""
    for lease in _fresh():
        if (lease.kind, lease.node.id, lease.cpus) == (kind, node.id, cpus):
            _idle.remove(lease)
            _tell(lease, "hold")
            return lease
    actor_class: Any = ray.remote(**_OPTIONS)(kind)
    actor = actor_class.options(
        num_cpus=cpus,
        max_restarts=0,
        max_task_retries=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
    ).remote()
    lease = Lease(node, kind, cpus, actor)
    _tell(lease, "hold")
    return lease


_OPTIONS: Any = {"concurrency_groups": {"reports": 1, "life": 1}}


def release(lease: Lease) -> None:
    """Keep an actor without work for the next backend."""
    if ray.is_initialized() and lease.job == _job():
        _tell(lease, "release")
        lease.released = time.monotonic()
        _idle.append(lease)


def _tell(lease: Lease, name: str) -> None:
    getattr(lease.actor, name).options(num_returns=0).remote()


def _job() -> str:
    return str(ray.get_runtime_context().get_job_id())


def idle_cpus(node: Node) -> int:
    """Return the CPUs of a machine that actors at rest reserve."""
    return sum(lease.cpus for lease in _fresh() if lease.node.id == node.id)


def end_idle(unless: Callable[[Lease], bool] = lambda lease: False) -> None:
    """End the actors at rest, so that Ray frees their CPUs."""
    for lease in [lease for lease in _idle if not unless(lease)]:
        _idle.remove(lease)
        lease.end()


def _fresh() -> list[Lease]:
    """Return the idle leases whose actors have not ended by themselves."""
    now = time.monotonic()
    job = _job()
    _idle[:] = [lease for lease in _idle if lease.job == job]
    end_idle(unless=lambda lease: now - lease.released < SECONDS_IDLE / 2)
    return list(_idle)


def _disown() -> None:
    """In a fork: forget the leases, and keep their actors' handles.

    The end of a handle is a message to Ray, on a connection that belongs to the parent.
    """
    global _idle
    _kept.append(_idle)
    _idle = []


_kept: list[list[Lease]] = []
os.register_at_fork(after_in_child=_disown)
