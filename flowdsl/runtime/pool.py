"""A pool: worker processes for one stage, and the order of what they make.

The consumer's own thread coordinates: each time it needs a result it hands out more numbered leases
and takes in what has come. There is no thread of ours in its process. Credit bounds what is in
flight, so a consumer that stops reading stops the workers soon after.

Contract: results are yielded in the order of lease numbers, whoever finished first.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any, NoReturn

import attrs
import zmq

from flowdsl.errors import FlowError, InvalidFlow, NotShippable, WorkerDied
from flowdsl.node import AnyNode, Row
from flowdsl.plan.lower import Stage
from flowdsl.runtime.leases import Lease, Pace, Work
from flowdsl.runtime.program import failure_in
from flowdsl.runtime.slabs import Window
from flowdsl.runtime.wire import Frame, ship, unpack, whole
from flowdsl.runtime.worker import LENGTH, READY, Result, Setup

LEASES_IN_HAND = 2
"""For each worker: one it works on, and one so that it need not wait for the next."""

LEASES_AHEAD = 1
"""For each worker: finished and waiting for the consumer."""

SECONDS_TO_LEAVE = 0.5


@attrs.define(eq=False)
class Worker:
    """One process, as the coordinator sees it."""

    identity: bytes
    process: subprocess.Popen[bytes]
    link: socket.socket
    end: int
    """A descriptor that is readable when the process has ended."""
    window: Window = attrs.field(factory=Window)
    ready: bool = False
    leases: set[int] = attrs.field(factory=set[int])


@attrs.define
class _Arrived:
    """A result that waits for its turn."""

    worker: Worker
    lease: Lease
    result: Result
    content: bytes


@attrs.frozen
class PoolStatistics:
    """What a pool has done so far."""

    procs: int
    leases: int
    elements: int
    worker_seconds: float
    in_flight: int


def spawn_process(setup: Setup) -> Worker:
    """Start a worker: a fresh interpreter that runs ``worker.main`` and no code of the user's."""
    ours, theirs = socket.socketpair()
    with theirs:
        start = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from flowdsl.runtime.worker import main; main({theirs.fileno()})"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", start],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            process_group=0,  # so that Ctrl-C in a terminal is the consumer's alone to handle
        )
    told = whole(setup)
    with contextlib.suppress(ConnectionError):  # it died already: the poller will tell
        ours.sendall(LENGTH.pack(len(told)) + told)
    ours.setblocking(False)
    return Worker(setup.identity, process, ours, os.pidfd_open(process.pid))


class Pool:
    """The workers of a stage; started by the first pass, ended by ``close``."""

    spawn = staticmethod(spawn_process)
    """How a worker is started: anything that serves leases over a link will do."""

    def __init__(self, stage: Stage, bases: tuple[AnyNode, ...]) -> None:
        """``bases`` are the stage's own, ready to iterate in this process.

        Raises:
            NotShippable: The program can not travel.
        """
        self._stage = stage
        self._program = ship(stage.program)
        self._pace = Pace(stage.procs)
        self._work = Work(stage, bases, self._pace)
        self._workers: dict[bytes, Worker] = {}
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._poller = zmq.Poller()
        self._arrived: dict[int, _Arrived] = {}
        self._leased: dict[int, Lease] = {}
        self._finished = 0
        self._elements = 0
        self._worker_seconds = 0.0
        self._end: weakref.finalize[..., Pool] | None = None

    def statistics(self) -> PoolStatistics:
        """What the pool has done so far."""
        return PoolStatistics(
            self._stage.procs,
            self._finished,
            self._elements,
            self._worker_seconds,
            len(self._leased),
        )

    def rows(self, epoch: int, start: int = 0) -> Iterator[Row[Any]]:
        """One pass over the stage, from a position on; a new call abandons the last.

        Raises:
            ElementError: An operator failed, after every element before it was yielded.
            WorkerDied: A worker ended.
        """
        self._start()
        self._abandon()
        work = self._work.leases(epoch, start)
        credit = self._stage.procs * (LEASES_IN_HAND + LEASES_AHEAD)
        more, failed = True, None
        while True:
            while more and len(self._leased) < credit and (worker := self._idle()):
                try:
                    lease, supplied = next(work)
                except StopIteration:
                    more = False
                except Exception as error:  # of the base: first, all that was before it
                    more, failed = False, error
                else:
                    self._hand_out(worker, lease, supplied)
            turn = next(iter(self._leased), None)  # they are handed out in the order of numbers
            if turn is not None and turn in self._arrived:
                del self._leased[turn]
                yield from self._open(self._arrived.pop(turn))
            elif more or turn is not None:
                self._take_in()
            elif failed is not None:
                raise failed
            else:
                return

    def close(self) -> None:
        """End the workers. Arrays that the consumer holds stay valid."""
        if self._end is not None:
            self._end()
        self._arrived.clear()
        for worker in self._workers.values():
            worker.window.detach()

    # -- processes -----------------------------------------------------------------------------

    def _start(self) -> None:
        if self._workers:
            return
        if not hasattr(os, "memfd_create"):
            raise InvalidFlow("prefetch: procs must be 0 on this system; workers need Linux")
        self._context = zmq.Context()
        self._control = self._context.socket(zmq.ROUTER)
        self._control.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._control.setsockopt(zmq.LINGER, 0)
        self._control.setsockopt(zmq.IPC_FILTER_UID, os.getuid())
        address = f"ipc://@flowdsl-{os.getpid()}-{secrets.token_hex(8)}"
        self._control.bind(address)
        self._poller.register(self._control, zmq.POLLIN)
        owner = os.getpid(), threading.get_ident()
        self._end = weakref.finalize(self, _end, owner, self._workers, self._context)
        for _ in range(self._stage.procs):
            identity = secrets.token_bytes(16)
            worker = self.spawn(Setup(address, identity, self._program, os.getpid()))
            self._workers[worker.identity] = worker
            self._poller.register(worker.link, zmq.POLLIN)
            self._poller.register(worker.end, zmq.POLLIN)

    def _idle(self) -> Worker | None:
        """The worker with the least to do, if one has room for another lease."""
        roomy = (w for w in self._workers.values() if w.ready and len(w.leases) < LEASES_IN_HAND)
        return min(roomy, key=lambda worker: len(worker.leases), default=None)

    def _hand_out(self, worker: Worker, lease: Lease, supplied: list[Frame]) -> None:
        try:
            self._control.send_multipart([worker.identity, whole(lease), *supplied])
        except zmq.ZMQError as error:
            self._died(worker, error)
        self._leased[lease.number] = lease
        worker.leases.add(lease.number)

    def _take_in(self) -> None:
        """Wait for a message, and act on all that have come."""
        events = dict(self._poller.poll())
        while self._control in events:
            try:
                identity, *frames = self._control.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            worker = self._workers.get(identity)
            if worker is not None:  # an identity is a secret: no other process is listened to
                self._receive(worker, frames)
        for worker in self._workers.values():
            ended = worker.end in events
            if ended or (worker.link.fileno() in events and not _attach_slab(worker)):
                self._died(worker)

    def _receive(self, worker: Worker, frames: list[bytes]) -> None:
        if frames[0] == READY:
            if frames[1]:
                text = frames[1].decode()
                raise NotShippable(f"a worker process can not load the plan:\n{text}")
            worker.ready = True
            return
        result: Result = unpack(frames[0])
        while not worker.window.has(result.places):
            shown = select.poll()
            shown.register(worker.link, select.POLLIN)
            shown.poll()
            if not _attach_slab(worker):
                self._died(worker)
        worker.leases.discard(result.number)
        lease = self._leased.get(result.number)
        if lease is None:  # of a pass that was abandoned
            worker.window.discard(result.places)
            return
        self._finished += 1
        self._elements += result.count
        self._worker_seconds += result.seconds
        nbytes = len(frames[1]) + sum(size for _, _, size in result.places)
        self._pace.observe(lease.stop - lease.start, result.seconds, nbytes)
        self._arrived[result.number] = _Arrived(worker, lease, result, frames[1])

    def _died(self, worker: Worker, cause: Exception | None = None) -> NoReturn:
        try:
            status = worker.process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            status = None
        how = f"exit status {status}"
        if status is not None and status < 0:
            how = f"signal {signal.Signals(-status).name}"
        held = [self._leased[n] for n in sorted(worker.leases) if n in self._leased]
        work = "no work"
        if held:
            first, last = held[0], held[-1]
            origin = self._stage.meaning.origin(first.epoch, first.start)
            work = f"elements {first.start} to {last.stop - 1} of {self._stage.meaning.title}"
            work = f"{work} (from {origin} on)"
        what = f"worker process {worker.process.pid} ended ({how}) while it held {work}"
        raise WorkerDied(what) from cause

    def _abandon(self) -> None:
        for arrived in self._arrived.values():
            arrived.worker.window.discard(arrived.result.places)
        self._arrived.clear()
        self._leased.clear()

    def _open(self, arrived: _Arrived) -> Iterator[Row[Any]]:
        result, lease = arrived.result, arrived.lease
        elements = unpack(arrived.content, arrived.worker.window.buffers(result.places))
        consecutive = range(lease.start, lease.start + result.count)
        positions = consecutive if result.positions is None else result.positions
        yield from zip(positions, elements, strict=True)
        failure = result.failure
        if failure is None:
            return
        if failure.path is None:
            raise failure.cause
        where = failure_in(self._stage.meaning, failure.path, failure.epoch, failure.position)
        raise where from failure.cause


def _attach_slab(worker: Worker) -> bool:
    """Take in a slab, if the worker shows one; False when the worker is gone."""
    try:
        data, fds, _, _ = socket.recv_fds(worker.link, LENGTH.size, 1)
    except BlockingIOError:  # a result that lies in it has brought it in already
        return True
    except ConnectionError:
        return False
    if not data:
        return False
    full = FlowError(
        "no descriptor is left for a slab of shared memory, of which every large result that is "
        "held takes one: raise ulimit -n, or hold copies"
    )
    if not fds:
        raise full
    try:
        worker.window.attach(LENGTH.unpack(data)[0], fds[0])
    except OSError as error:
        raise full from error
    return True


def _end(
    owner: tuple[int, int],
    workers: dict[bytes, Worker],
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    process, thread = owner
    if os.getpid() != process:  # a fork of this process owns none of it
        return
    for worker in workers.values():
        worker.link.close()  # a worker leaves when this closes, whatever it is doing
        os.close(worker.end)
    deadline = time.monotonic() + SECONDS_TO_LEAVE
    for worker in workers.values():
        try:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
    if threading.get_ident() == thread:  # at exit, another may still be waiting on the socket
        context.destroy(linger=0)
