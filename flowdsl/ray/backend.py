"""The backend of ``prefetch(actors=n)``: worker processes on the machines of a Ray cluster.

Each worker is a process and reserves one CPU of the cluster. The workers of this machine are
children of the consumer's process, as with ``procs``, so their elements stay in shared memory. On
each other machine a host runs the workers: see ``host.py``.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from functools import partial
from typing import Any

import attrs
import numpy as np
import ray
from ray.exceptions import RayError
from xxhash import xxh3_128_digest

from flowdsl.errors import FlowError
from flowdsl.plan.plan import Stage
from flowdsl.plan.tree import walk
from flowdsl.ray import cluster
from flowdsl.ray.files import files_of
from flowdsl.ray.host import Buffers, Host, HostSetup
from flowdsl.ray.leases import Lease, acquire, end_idle, idle_cpus, release, reserved
from flowdsl.ray.machine import SECONDS_TO_START, Inbox, Machine, RemoteWorker
from flowdsl.ray.reservation import SECONDS_IDLE, Reservation
from flowdsl.resources.logs import logger
from flowdsl.workers.backend import POLL_SECONDS, Event, Owner, Ready, Worker
from flowdsl.workers.processes import Processes
from flowdsl.workers.tasks import InputRows, TaskInput
from flowdsl.workers.wire import PackedStage, frames_of_rows, nbytes_of_frames

_log = logger()

SECONDS_TO_RESERVE = 5.0
"""The wait for CPUs that are being released, before too few free CPUs are an error."""

SECONDS_WITHOUT_WORKERS = 30.0
"""The wait for a machine with a free CPU if all workers have died."""

SECONDS_OF_LAG = 2.0
"""The time after the start of an actor for which Ray may still show its CPUs as free."""

MAX_LOST_HOSTS = 3
"""The pass fails if this many hosts in a row end before one of their workers is ready."""

_parked: weakref.WeakSet[Actors] = weakref.WeakSet()
"""Backends that keep CPUs between passes; they are closed if another backend needs the CPUs."""


class Actors:
    """The workers of a stage on the machines of a cluster."""

    def __init__(self, stage: Stage, time_operators: bool = False) -> None:
        """Pack the program; no worker is started yet.

        Raises:
            MissingLibrary: Ray is not installed.
            FlowError: This process is not connected to a cluster.
            NotShippable: The program cannot be sent to workers.
        """
        cluster.connect()
        packed = PackedStage.of(stage, time_operators)
        self._packed, self._digest = attrs.evolve(packed, arrays=()), _digest(packed)
        self._arrays = [np.frombuffer(array, np.uint8) for array in packed.arrays]
        self._files = files_of(stage.program)
        self._local = Processes(packed)
        self._sent_arrays: Any = None
        self._inbox = Inbox()
        self._workers: list[Worker] = []
        self._vacant_here = 0
        """The CPUs of this machine that are reserved for workers that are not started."""
        self._missing = 0
        """The number of workers to start as soon as a machine has free CPUs."""
        self._missing_since = self._last_look = time.monotonic()
        self._lost_hosts = 0
        """The number of hosts that have ended, one after another, before a worker was ready."""
        self._owner = Owner()
        self._resources = _Resources(self._owner, self._local, self._inbox)
        self._end = weakref.finalize(self, self._resources.release_later)
        self._session = cluster.session()
        self._reads_ray_data = any(
            getattr(step.node, "operator", None) == "from_ray" for step in walk(stage.top)
        )
        self._unsuitable = set[str]()
        """The ids of machines that joined during the pass and lack a file."""
        self._parked_at: float | None = None

    @property
    def workers(self) -> list[Worker]:
        return list(self._workers)

    def start(self, count: int) -> None:
        self._owner.check()
        if not self._resources.are_open:
            self._resources.open()
            self._reserve(max(count, self._packed.workers.count))
        while len(self._workers) + self._missing < count:
            if not self._add() and not self._reserve(1):
                return

    def pack(self, rows: InputRows) -> tuple[Any, int]:
        frames = frames_of_rows(rows)
        return frames, nbytes_of_frames(frames)

    def submit(self, worker: Worker, task_input: TaskInput) -> None:
        self._owner.check()
        if isinstance(worker, RemoteWorker):
            self._check_session()
            worker.held[task_input.task.number] = task_input
            worker.machine.submit(worker, task_input)
        else:
            self._local.submit(worker, task_input)

    def poll(self) -> list[Event]:
        self._owner.check()
        self._check_session()
        if self._local.workers:
            events = self._local.poll()
            messages = self._inbox.take(None)
        else:
            events, messages = [], self._inbox.take(POLL_SECONDS)
        machines = self._resources.machines
        for number, call, answer in messages:
            if (machine := machines.get(number)) is not None:
                events += machine.events(call, answer)
        for machine in machines.values():
            events += machine.check()
        if any(isinstance(event, Ready) for event in events):
            self._lost_hosts = 0
        self._drop_dead_machines()
        self._fill()
        return events

    def wake(self) -> None:
        self._inbox.put(None)

    def replace(self, worker: Worker) -> None:
        if isinstance(worker, RemoteWorker):
            self._lose(worker)
            if self._add():  # otherwise ``poll`` starts it when a CPU is free
                self._missing -= 1
        else:
            self._local.replace(worker)
            self._workers[self._workers.index(worker)] = self._local.workers[-1]

    def dismiss(self, worker: Worker) -> None:
        self._workers.remove(worker)
        if isinstance(worker, RemoteWorker):
            worker.machine.dismiss(worker)
        else:
            self._local.dismiss(worker)
            self._vacant_here += 1

    def park(self) -> bool:
        machines = self._resources.machines.values()
        if any(worker.held for worker in self._workers) or not ray.is_initialized():
            return False
        if self._missing or any(machine.dead for machine in machines) or not self._local.park():
            return False
        for machine in machines:
            machine.park()
        for lease in self._resources.leases:
            lease.rest()
        for worker in self._workers:
            worker.clear_figures()
        self._parked_at = time.monotonic()
        _parked.add(self)
        return True

    def can_reuse(self, stage: Stage, time_operators: bool) -> bool:
        if not self._owner.is_here or self._parked_at is None or not self._end.alive:
            return False
        _parked.discard(self)
        if cluster.session() != self._session:
            return False
        packed = PackedStage.of(stage, time_operators)
        if (attrs.evolve(packed, arrays=()), _digest(packed)) != (self._packed, self._digest):
            return False
        if time.monotonic() - self._parked_at > SECONDS_IDLE / 2:
            return False
        if not self._local.can_reuse(stage, time_operators):
            return False
        for machine in self._resources.machines.values():
            machine.resume()
        for lease in self._resources.leases:
            lease.hold()
        return True

    def close(self) -> None:
        _parked.discard(self)
        if self._end.detach() is not None:
            self._resources.release()

    # -- machines ------------------------------------------------------------------------------

    def _add(self) -> bool:
        """Start a worker on a vacant CPU; return False if there is none."""
        if self._vacant_here:
            self._vacant_here -= 1
            self._local.start(len(self._local.workers) + 1)
            self._workers.append(self._local.workers[-1])
            return True
        for machine in self._resources.machines.values():
            if machine.vacant and machine.dead is None:
                self._workers.append(machine.start())
                return True
        return False

    def _lose(self, worker: Worker) -> None:
        self._workers.remove(worker)
        self._missing += 1
        self._missing_since = time.monotonic()

    def _drop_dead_machines(self) -> None:
        """Forget machines that died; their workers that were not ready are started elsewhere.

        Raises:
            FlowError: Hosts have ended one after another before a worker was ready.
        """
        machines = self._resources.machines
        for number, machine in list(machines.items()):
            if machine.dead is None:
                continue
            del machines[number]
            unready = [
                worker
                for worker in self._workers
                if isinstance(worker, RemoteWorker) and worker.machine is machine
                if not worker.ready
            ]
            for worker in unready:
                self._lose(worker)
            machine.close()
            self._lost_hosts += bool(unready)
            if self._lost_hosts >= MAX_LOST_HOSTS and not any(w.ready for w in self._workers):
                raise FlowError(
                    f"prefetch(actors=...): {MAX_LOST_HOSTS} hosts ended before a worker was "
                    f"ready, the last on {machine.node}: {machine.dead}"
                )

    def _reserve(self, count: int) -> bool:
        """Reserve CPUs for workers, and start the hosts of other machines.

        For a tuned number of workers, reserve only what is free; return True if there is any.

        Raises:
            FlowError: Too few CPUs are free, or a machine lacks a file.
        """
        deadline = time.monotonic() + SECONDS_TO_RESERVE
        auto = self._packed.workers.auto
        while sum((allotted := self._allotted(count)).values()) < count:
            parked = list(_parked)
            for backend in parked:
                backend.close()
            if auto and not parked and (allotted or self._workers):
                break
            if time.monotonic() > deadline:
                raise FlowError(_too_few(self._packed.workers.count))
            time.sleep(0.05)
        if self._reads_ray_data and sum(node.free for node in _nodes()) <= sum(allotted.values()):
            raise FlowError(
                f"prefetch: actors={count} would reserve all free CPUs of the cluster, and "
                f"from_ray needs one to execute its dataset; use fewer actors, or procs"
            )
        self._take(allotted)
        return bool(allotted)

    def _allotted(self, count: int) -> dict[cluster.Node, int]:
        """Divide workers among the machines, without the CPUs of hosts that are being started."""
        actual = {node.id: node for node in cluster.nodes() if node.id not in self._unsuitable}
        starting = dict[str, int]()
        for machine in self._resources.machines.values():
            since = machine.first_answer
            if since is None or time.monotonic() - since < SECONDS_OF_LAG:
                starting[machine.node.id] = starting.get(machine.node.id, 0) + machine.cpus
        free = [
            attrs.evolve(node, free=max(0, node.free - starting.get(node.id, 0)))
            for node in _nodes()
            if node.id in actual
        ]
        return {actual[node.id]: n for node, n in cluster.allot(count, free).items()}

    def _take(self, allotted: dict[cluster.Node, int], in_mid_pass: bool = False) -> None:
        """Reserve the CPUs, and start hosts; in mid-pass, leave out machines that lack a file."""
        new = dict[Machine, Any]()
        for node, n in allotted.items():
            if node.free < n:  # released actors still reserve the other CPUs
                end_idle(unless=partial(_may_stay, node, n))
            if node.is_here:
                self._resources.leases.append(acquire(Reservation, node, n))
                self._vacant_here += n
                continue
            if self._sent_arrays is None:
                self._sent_arrays = ray.put(Buffers(self._arrays))
            store = min(other.store for other in (node, *cluster.nodes()) if other.store)
            setup = HostSetup(self._packed, store)
            machine = Machine(acquire(Host, node, n), setup, self._sent_arrays, self._inbox)
            self._resources.machines[machine.number] = machine
            if self._files:
                new[machine] = machine.missing_files(self._files)
        for machine, answer in new.items():
            try:
                _check_files(machine, answer)
            except FlowError as error:
                if not in_mid_pass:
                    raise
                _log.warning("%s", error)
                self._unsuitable.add(machine.node.id)
                del self._resources.machines[machine.number]
                machine.close()

    def _check_session(self) -> None:
        if cluster.session() != self._session:
            raise FlowError("prefetch(actors=...): the connection to Ray was closed in mid-pass")

    def _fill(self) -> None:
        """Start missing workers where CPUs are free, also on machines that joined the cluster.

        Raises:
            FlowError: All workers have died and no machine has had a free CPU for some time.
        """
        while self._missing and self._add():
            self._missing -= 1
        now = time.monotonic()
        if not self._missing or now - self._last_look < POLL_SECONDS:
            return
        self._last_look = now
        self._take(self._allotted(self._missing), in_mid_pass=True)
        while self._missing and self._add():
            self._missing -= 1
        if not self._workers and now - self._missing_since > SECONDS_WITHOUT_WORKERS:
            raise FlowError(
                f"{_too_few(self._packed.workers.count)}; all workers have died, and no CPU was "
                f"free for {SECONDS_WITHOUT_WORKERS:g} seconds"
            )


@attrs.define(eq=False)
class _Resources:
    """The resources of a backend: local workers, other machines, and reserved CPUs."""

    owner: Owner
    local: Processes
    inbox: Inbox
    machines: dict[int, Machine] = attrs.field(factory=dict[int, Machine])
    leases: list[Lease] = attrs.field(factory=list[Lease])
    are_open: bool = False

    def open(self) -> None:
        """Prepare to start workers."""
        self.are_open = True
        self.local.start(0)
        self.inbox.ring(self.local.wake)

    def release(self) -> None:
        """End the workers; hosts and reservations stay for the next backend for some time."""
        if self.owner.is_here:
            self._close_here()
            self._release_leases()

    def release_later(self) -> None:
        """Release when the backend is garbage-collected, which may happen in a thread of Ray.

        A call of Ray in that thread would wait for itself, so another thread makes it.
        """
        if self.owner.is_here:
            self._close_here()
            if not sys.is_finalizing():
                threading.Thread(target=self._release_leases, daemon=True).start()

    def _close_here(self) -> None:
        self.inbox.ring(None)
        self.local.close()

    def _release_leases(self) -> None:
        for machine in self.machines.values():
            machine.close()
        for lease in self.leases:
            release(lease)


def _nodes() -> list[cluster.Node]:
    """Return the machines; CPUs that only released actors reserve count as free."""
    return [attrs.evolve(node, free=node.free + idle_cpus(node)) for node in cluster.nodes()]


def _may_stay(node: cluster.Node, n: int, lease: Lease) -> bool:
    """Return True if a released lease is elsewhere, or reserves the ``n`` CPUs that are needed."""
    return lease.node.id != node.id or lease.cpus == n


def _check_files(machine: Machine, answer: Any) -> None:
    """Wait until a machine has looked for the files of the stage.

    Raises:
        FlowError: A file is missing there.
    """
    try:
        missing: list[str] = ray.get(answer, timeout=SECONDS_TO_START)
    except RayError:  # the answers to other calls report it
        return
    if missing:
        others = f" and {len(missing) - 1} more files" if len(missing) > 1 else ""
        raise FlowError(
            f"prefetch(actors=...): {machine.node} does not have {missing[0]!r}{others}, which "
            f"workers there would read; copy the files there, or read from storage that all "
            f"machines share"
        )


def _digest(packed: PackedStage) -> bytes:
    """Return a digest of the large arrays, which the user may change between two passes."""
    return b"".join(xxh3_128_digest(array) for array in packed.arrays)


def _too_few(count: int) -> str:
    nodes = _nodes()
    free = ", ".join(f"{node.free} of {node.cpus} on {node}" for node in nodes)
    ours = f"; passes of this process have reserved {n}" if (n := reserved()) else ""
    return (
        f"prefetch: actors={count} needs {count} free CPUs, one for each worker, and the cluster "
        f"has {sum(node.free for node in nodes)}: {free or 'no machine is alive'}{ours}"
    )
