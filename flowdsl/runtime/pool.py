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
import time
import weakref
from collections.abc import Iterator
from itertools import islice
from typing import Any, NoReturn

import attrs
import cloudpickle
import zmq

from flowdsl.errors import NotShippable, WorkerDied
from flowdsl.node import Addresses, AnyNode, Row
from flowdsl.plan.lower import Stage
from flowdsl.runtime.program import Program, base_addresses, failure_in
from flowdsl.runtime.slabs import Window
from flowdsl.runtime.wire import pack, ship, unpack
from flowdsl.runtime.worker import LENGTH, READY, Lease, Result

LEASES_IN_HAND = 2
"""For each worker: one it works on, and one so that it need not wait for the next."""

LEASES_AHEAD = 1
"""For each worker: finished and waiting for the consumer."""

SECONDS_A_LEASE = 0.01
"""What a lease should cost: many messages' worth of work, and little to wait for."""

BYTES_A_LEASE = 8 << 20
MOST_A_LEASE = 4096
SECONDS_TO_LEAVE = 0.5


@attrs.define(eq=False)
class Worker:
    """One process, as the coordinator sees it."""

    identity: bytes
    process: subprocess.Popen[bytes]
    link: socket.socket
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


class Pool:
    """The workers of a stage; started by the first pass, ended by ``close``."""

    def __init__(self, stage: Stage, base: AnyNode | None) -> None:
        """``base`` is the stage's own, ready to iterate in this process."""
        self._stage = stage
        self._base = base
        self._workers: dict[bytes, Worker] = {}
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._poller = zmq.Poller()
        self._next_number = 0
        self._pace = _Pace(stage.procs)
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
            NotShippable: Before any worker starts.
        """
        self._start()
        self._abandon()
        work = self._work(epoch, start)
        turn = self._next_number
        credit = self._stage.procs * (LEASES_IN_HAND + LEASES_AHEAD)
        more, broken = True, None
        while True:
            while more and broken is None and len(self._leased) < credit and self._idle():
                try:
                    more = self._hand_out(next(work, None))
                except Exception as error:  # the base failed: first, everything that was before it
                    broken = error
            if turn not in self._leased:
                if broken is not None:
                    raise broken
                return
            while turn not in self._arrived:
                self._take_in()
            arrived = self._arrived.pop(turn)
            del self._leased[turn]
            turn += 1
            yield from self._open(arrived)

    def close(self) -> None:
        """End the workers. Arrays that the consumer holds stay valid."""
        if self._end is not None:
            self._end()

    # -- processes -----------------------------------------------------------------------------

    def _start(self) -> None:
        if self._workers:
            return
        if not hasattr(os, "memfd_create"):
            raise WorkerDied("prefetch(procs=...) needs Linux; procs=0 runs everywhere")
        program = ship(self._stage.program)
        self._context = zmq.Context()
        self._control = self._context.socket(zmq.ROUTER)
        self._control.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._control.setsockopt(zmq.LINGER, 0)
        address = f"ipc://@flowdsl-{os.getpid()}-{secrets.token_hex(8)}"
        self._control.bind(address)
        self._poller.register(self._control, zmq.POLLIN)
        self._end = weakref.finalize(self, _end, os.getpid(), self._workers, self._context)
        for _ in range(self._stage.procs):
            worker = _spawn(address, program)
            self._workers[worker.identity] = worker
            self._poller.register(worker.link, zmq.POLLIN)

    def _idle(self) -> Worker | None:
        """The worker with the least to do, if any has room for another lease."""
        ready = [w for w in self._workers.values() if w.ready and len(w.leases) < LEASES_IN_HAND]
        if not ready and not any(w.ready for w in self._workers.values()):
            self._take_in()
            return self._idle()
        return min(ready, key=lambda worker: len(worker.leases), default=None)

    def _hand_out(self, work: tuple[Lease, list[Any] | None] | None) -> bool:
        worker = self._idle()
        if work is None or worker is None:
            return False
        lease, supplied = work
        frames: list[Any] = [worker.identity, pack(lease)[0]]
        if supplied is not None:
            content, beside = pack(supplied)
            frames += [content, *beside]
        self._control.send_multipart(frames)
        self._leased[lease.number] = lease
        worker.leases.add(lease.number)
        return True

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
            if worker.link.fileno() in events and not _attach_slab(worker):
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
            select.select([worker.link], [], [])
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

    def _died(self, worker: Worker) -> NoReturn:
        try:
            status = worker.process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            status = None
        how = f"exit status {status}"
        if status is not None and status < 0:
            how = f"signal {signal.Signals(-status).name}"
        held = [self._leased[n] for n in sorted(worker.leases) if n in self._leased]
        spans = ", ".join(f"{lease.start} to {lease.stop - 1}" for lease in held)
        raise WorkerDied(
            f"worker process {worker.process.pid} ended ({how}) while it held "
            + (f"elements {spans} of {self._stage.meaning.title}" if held else "no work")
        )

    def _abandon(self) -> None:
        for arrived in self._arrived.values():
            arrived.worker.window.discard(arrived.result.places)
        self._arrived.clear()
        self._leased.clear()

    # -- work ----------------------------------------------------------------------------------

    def _work(self, epoch: int, start: int) -> Iterator[tuple[Lease, list[Any] | None]]:
        """Every lease of a pass, with the elements it is supplied with."""
        base = self._base
        if base is None:
            for lease in self._spans(epoch, start):
                yield lease, None
        elif isinstance(base, Stage):
            source = Program(base.program)
            for lease in self._spans(epoch, start):
                at = Addresses.span(epoch, lease.start, lease.stop)
                inner = base_addresses(self._stage.meaning, base.meaning, at)
                yield lease, [x for _, x in source.rows(inner)]
        else:
            yield from self._streamed(base, epoch, start)

    def _spans(self, epoch: int, start: int) -> Iterator[Lease]:
        end = _base_length(self._stage)
        while end is None or start < end:
            size = self._pace.size(None if end is None else end - start)
            stop = start + size if end is None else min(start + size, end)
            yield self._lease(epoch, start, stop)
            start = stop

    def _streamed(
        self, base: AnyNode, epoch: int, start: int
    ) -> Iterator[tuple[Lease, list[Any] | None]]:
        ratio = self._stage.rows_per_element
        elements = islice((x for _, x in base.rows(epoch)), start * ratio, None)
        while True:
            supplied: list[Any] = []
            failed: Exception | None = None
            deadline = time.monotonic() + SECONDS_A_LEASE
            for _ in range(self._pace.size(None)):
                try:
                    group = list(islice(elements, ratio))
                except Exception as error:
                    failed, group = error, []
                supplied += group
                if len(group) < ratio or time.monotonic() > deadline:
                    break
            if supplied:
                stop = start + -(-len(supplied) // ratio)
                yield self._lease(epoch, start, stop), supplied
                start = stop
            if failed is not None:
                raise failed
            if not supplied or len(supplied) % ratio:
                return

    def _lease(self, epoch: int, start: int, stop: int) -> Lease:
        lease = Lease(self._next_number, epoch, start, stop)
        self._next_number += 1
        return lease

    def _open(self, arrived: _Arrived) -> Iterator[Row[Any]]:
        result, lease = arrived.result, arrived.lease
        elements = unpack(arrived.content, arrived.worker.window.buffers(result.places))
        consecutive = range(lease.start, lease.start + result.count)
        positions = consecutive if result.positions is None else result.positions
        yield from zip(positions, elements, strict=True)
        failure = result.failure
        if failure is not None:
            raise failure_in(self._stage.meaning, failure) from failure.cause


class _Pace:
    """How many elements a lease should hold, from what the last ones cost."""

    def __init__(self, procs: int) -> None:
        self._procs = procs
        self._size = 1

    def size(self, remaining: int | None) -> int:
        """For the next lease; towards the end of a pass, no more than a fair share of the rest."""
        if remaining is None:
            return self._size
        return max(1, min(self._size, remaining // (2 * self._procs)))

    def observe(self, count: int, seconds: float, nbytes: int) -> None:
        """Learn from a finished lease."""
        by_time = SECONDS_A_LEASE * count / max(seconds, 1e-6)
        by_bytes = BYTES_A_LEASE * count / max(nbytes, 1)
        self._size = int(max(1, min(by_time, by_bytes, 2 * self._size, MOST_A_LEASE)))


def _base_length(stage: Stage) -> int | None:
    """The end of the positions to lease: the stage's own length, or that of what it filters."""
    node = stage.meaning
    while not node.indexable:
        node = node.sources[0]
    return node.length


def _spawn(address: str, program: bytes) -> Worker:
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
        )
    identity = secrets.token_bytes(16)
    setup = cloudpickle.dumps({"identity": identity, "address": address, "program": program})
    with contextlib.suppress(BrokenPipeError):  # it died already: the poller will tell
        ours.sendall(LENGTH.pack(len(setup)) + setup)
    ours.setblocking(False)
    return Worker(identity, process, ours)


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
    worker.window.attach(LENGTH.unpack(data)[0], fds[0])
    return True


def _end(pid: int, workers: dict[bytes, Worker], context: zmq.Context[zmq.Socket[bytes]]) -> None:
    if os.getpid() != pid:  # a fork of this process owns none of it
        return
    for worker in workers.values():
        worker.link.close()  # a worker leaves when this closes, whatever it is doing
    deadline = time.monotonic() + SECONDS_TO_LEAVE
    for worker in workers.values():
        try:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
    context.destroy(linger=0)
