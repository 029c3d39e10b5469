"""Leases: actors that reserve CPUs of a machine, kept for a while after their backend has ended.

The problem: a pass that the consumer leaves early ends its workers, and so does the next pass over
a flow of which the user has changed a function.
The naive way ends the actor with them. The next pass then waits for Ray to free the CPUs and for a
new interpreter that imports flowdsl, a second or two. The choice: a released actor stays for ten
seconds, without workers. The next backend that needs the same number of CPUs there gets it.
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

from flowdsl.ray.cluster import Node, session
from flowdsl.ray.reservation import SECONDS_IDLE, Reservation


@attrs.define(eq=False)
class Lease:
    """An actor that reserves ``cpus`` CPUs of a machine."""

    node: Node
    kind: type[Reservation]
    """The class of the actor."""
    cpus: int
    actor: Any
    job: str | None = attrs.field(factory=session)
    """The connection to Ray that the actor belongs to."""
    released: float = 0.0
    """The time of its release, by ``time.monotonic``."""

    def hold(self) -> None:
        """Keep the actor until ``rest``."""
        self._tell("hold")

    def rest(self) -> None:
        """Let the actor end after ``SECONDS_IDLE``, unless ``hold`` is called before."""
        self._tell("release")

    def _tell(self, name: str) -> None:
        if session() == self.job:
            with suppress(Exception):  # it has ended
                getattr(self.actor, name).options(num_returns=0).remote()

    def end(self) -> None:
        """End the actor."""
        if session() == self.job:
            with suppress(Exception):  # it has ended
                ray.kill(self.actor)


_active: list[Lease] = []
"""Leases in use."""

_idle: list[Lease] = []
"""Released leases. Their actors end by themselves after ``SECONDS_IDLE``."""


def acquire(kind: type[Reservation], node: Node, cpus: int) -> Lease:
    """Reserve CPUs of a machine: by a released actor that has this number, or by a new one."""
    for lease in _fresh():
        if (lease.kind, lease.node.id, lease.cpus) == (kind, node.id, cpus):
            _idle.remove(lease)
            _active.append(lease)
            lease.hold()
            return lease
    actor_class: Any = ray.remote(**_OPTIONS)(kind)
    actor = actor_class.options(
        num_cpus=cpus,
        max_restarts=0,
        max_task_retries=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
    ).remote()
    lease = Lease(node, kind, cpus, actor)
    _active.append(lease)
    lease.hold()
    return lease


_OPTIONS: Any = {"concurrency_groups": {"reports": 1, "life": 1}}
"""A thread for each of two groups of calls to the actor, so that they do not wait for tasks:
``reports`` for the call that returns what its workers report, and ``life`` for ``hold`` and
``release``."""


def release(lease: Lease) -> None:
    """Keep an actor without work for the next backend."""
    forget(lease)
    if session() == lease.job:
        lease.rest()
        lease.released = time.monotonic()
        _idle.append(lease)


def forget(lease: Lease) -> None:
    """Remove a lease from those in use."""
    with suppress(ValueError):
        _active.remove(lease)


def reserved() -> int:
    """Return the CPUs that passes of this process have reserved."""
    return sum(lease.cpus for lease in _active if lease.job == session())


def idle_cpus(node: Node) -> int:
    """Return the CPUs of a machine that actors at rest reserve."""
    return sum(lease.cpus for lease in _fresh() if lease.node.id == node.id)


def end_idle(unless: Callable[[Lease], bool] = lambda lease: False) -> None:
    """End the actors at rest, so that Ray frees their CPUs."""
    for lease in [lease for lease in _idle if not unless(lease)]:
        _idle.remove(lease)
        lease.end()


def _fresh() -> list[Lease]:
    """Return the idle leases that are certainly alive, and end the others.

    An actor that has been idle for nearly ``SECONDS_IDLE`` could end before it is held again.
    """
    now = time.monotonic()
    job = session()
    _idle[:] = [lease for lease in _idle if lease.job == job]
    end_idle(unless=lambda lease: now - lease.released < SECONDS_IDLE / 2)
    return list(_idle)


def _disown() -> None:
    """Forget the leases in a fork, but keep the handles of their actors alive.

    A handle that is collected sends a message to Ray, on a connection that belongs to the parent.
    """
    global _active, _idle
    _of_parents.extend((_active, _idle))
    _active, _idle = [], []


_of_parents: list[list[Lease]] = []
"""In a fork: the leases of the processes that it descends from."""
os.register_at_fork(after_in_child=_disown)
