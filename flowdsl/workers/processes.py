"""Workers that are processes: starting, watching and ending them, and exchanging messages.

Messages go by ZMQ; arrays lie in shared memory, of which only descriptors are sent. A worker is
identified by a secret that only it was given, so messages of other processes are ignored. A process
descriptor shows the end of a worker at once, whatever the worker or its children are doing.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import zmq

from flowdsl.errors import FlowError, InvalidFlow, NotShippable
from flowdsl.plan.plan import Stage
from flowdsl.resources.cores import cores
from flowdsl.workers import launching
from flowdsl.workers.backend import (
    POLL_SECONDS,
    Died,
    Done,
    Event,
    Owner,
    Ready,
    Result,
    Worker,
)
from flowdsl.workers.launching import Child
from flowdsl.workers.native_threads import share_of
from flowdsl.workers.process_environment import ProcessEnvironment
from flowdsl.workers.shared_arrays import SharedArrays
from flowdsl.workers.slabs import Place, Window
from flowdsl.workers.tasks import BYTES_IN_FLIGHT, InputRows, TaskInput
from flowdsl.workers.wire import classes_of_main, nbytes_of_frames, pickled, ship, supply, unpack
from flowdsl.workers.worker import LENGTH, PATIENCE, READY, REST, Setup

SECONDS_TO_LEAVE = 0.5
SECONDS_STOPPED = 5.0
"""A process that a signal has stopped counts as dead after this time."""

SECONDS_AT_REST = 30.0
"""How long workers at rest wait for another pass over their flow before they leave."""

_TICK = POLL_SECONDS
"""Seconds between two checks for stopped or late workers, which no message reports."""


@attrs.define(eq=False)
class Process(Worker):
    """A worker process, as the consumer's process sees it."""

    identity: bytes = b""
    process: Child = attrs.field(kw_only=True)
    link: socket.socket = attrs.field(kw_only=True)
    end: int = attrs.field(kw_only=True)
    """A descriptor that becomes readable when the process has ended."""
    window: Window = attrs.field(factory=Window)
    since: float = 0.0
    """When the process began its oldest piece, by ``time.monotonic``."""
    stopped: float | None = None
    """When the process was first seen stopped; None while it is not."""
    why: str | None = None
    """Why flowdsl ended the process, if it did."""


@attrs.frozen
class _Sent:
    """Elements as a process sent them: a pickle, and the places of their arrays in its slabs."""

    window: Window
    content: bytes
    places: list[Place]
    nbytes: int

    def open(self) -> Sequence[Any]:
        elements: list[Any] = unpack(self.content, self.window.buffers(self.places))
        return elements

    def discard(self) -> None:
        self.window.discard(self.places)


def start_process(setup: Setup) -> Process:
    """Start a worker, and tell it what to do."""
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process, end = launching.start(theirs.fileno(), setup.modules)
    except BaseException:
        ours.close()
        raise
    told = pickled(setup)
    with contextlib.suppress(ConnectionError):  # it has died already: the poller will show it
        ours.sendall(LENGTH.pack(len(told)) + told)
    ours.setblocking(False)
    return Process(
        f"worker process {process.pid}",
        identity=setup.identity,
        process=process,
        link=ours,
        end=end,
    )


class Processes:
    """The processes of a stage."""

    spawn = staticmethod(start_process)
    """Starts a worker; may be replaced by any function that starts one serving the same link."""

    def __init__(self, stage: Stage, clock: bool = False) -> None:
        """Pack the program; no process is started yet.

        Raises:
            InvalidFlow: There can be no worker processes on this system.
            NotShippable: The program cannot travel.
        """
        if not hasattr(os, "memfd_create"):
            raise InvalidFlow("prefetch: procs must be 0 on this system; workers need Linux")
        shipped = ship(stage.program, stage.workers.kind, beside=True)
        self.program, self._modules = shipped.content, shipped.modules
        self._beside = SharedArrays(shipped.beside) if shipped.beside else None
        self._asked = stage.workers
        self._environment = os.getcwd(), ProcessEnvironment()
        # do not keep the stage: it refers to the run, and so to the flow
        self._end_to_end = stage.end_to_end
        self._together = stage.together
        self.clock = clock
        self._members: dict[bytes, Process] = {}
        self._leaving: list[Process] = []
        self._poller = zmq.Poller()
        self._end: weakref.finalize[..., Processes] | None = None
        self._owner = _Owner()
        self._looked = time.monotonic()

    @property
    def workers(self) -> list[Worker]:
        return list[Worker](self._members.values())

    def start(self, count: int) -> None:
        self._owner.check()
        if self._end is None:
            self._open()
        while len(self._members) < count:
            self._add()

    def _open(self) -> None:
        """Open the socket to which workers connect."""
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._control = context.socket(zmq.ROUTER)
        self._control.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._control.setsockopt(zmq.LINGER, 0)
        self._control.setsockopt(zmq.IPC_FILTER_UID, os.getuid())
        self._address = f"ipc://@flowdsl-{os.getpid()}-{secrets.token_hex(8)}"
        self._control.bind(self._address)
        self._poller.register(self._control, zmq.POLLIN)
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poller.register(self._bell, zmq.POLLIN)
        told = (self._owner, self._members, self._leaving, context, self._control, self._bell)
        backend: Processes = self
        self._end = weakref.finalize(backend, _end, *told)

    def pack(self, rows: InputRows) -> tuple[Any, int]:
        frames = supply(rows)
        return frames, nbytes_of_frames(frames)

    def submit(self, worker: Worker, task_input: TaskInput) -> None:
        assert isinstance(worker, Process)
        self._owner.check()
        if not worker.held:
            worker.since = time.monotonic()
        worker.held[task_input.task.number] = task_input
        with contextlib.suppress(zmq.ZMQError):  # it has died: its descriptor will show it
            self._control.send_multipart(
                [worker.identity, pickled(task_input.task), *(task_input.packed or ())]
            )

    def poll(self) -> list[Event]:
        self._owner.check()
        with self._owner.hearing:
            if self._owner.closed:
                raise FlowError("the workers of this run were ended by another thread")
            ready = dict(self._poller.poll(int(_TICK * 1000)))
            if self._bell in ready:
                os.eventfd_read(self._bell)
            received = list[list[bytes]]()
            with contextlib.suppress(zmq.Again):
                while self._control in ready:
                    received.append(self._control.recv_multipart(zmq.NOBLOCK))
        heard: list[Event] = []
        for identity, *frames in received:
            worker = self._members.get(identity)
            if worker is not None and (event := self._received(worker, frames)) is not None:
                heard.append(event)
        for worker in self._members.values():
            closed = worker.link.fileno() in ready and not _attach_slab(worker)
            if closed or worker.end in ready:
                heard.append(Died(worker, self._buried(worker), worker.window.begun))
        self._look()
        return heard

    def wake(self) -> None:
        os.eventfd_write(self._bell, 1)

    def replace(self, worker: Worker) -> None:
        assert isinstance(worker, Process)
        self._forget(worker)
        self._add()

    def dismiss(self, worker: Worker) -> None:
        assert isinstance(worker, Process)
        self._forget(worker)  # its link closes, at which it leaves
        self._leaving.append(worker)

    def park(self) -> bool:
        if any(worker.held for worker in self._members.values()):
            return False
        for worker in self._members.values():
            worker.window.settle()
            self._tell_to_wait(worker, int(SECONDS_AT_REST * 1000))
            worker.elements, worker.busy, worker.cpu = 0, 0.0, 0.0
        return True

    def can_reuse(self, stage: Stage, clock: bool) -> bool:
        now = (stage.workers, clock, (os.getcwd(), ProcessEnvironment()))
        if now != (self._asked, self.clock, self._environment) or not self._owner.is_here:
            return False
        shipped = ship(stage.program, stage.workers.kind, beside=True)
        beside = self._beside.holds(shipped.beside) if self._beside else not shipped.beside
        if shipped.content != self.program or not beside:
            return False
        ends = select.poll()
        for worker in self._members.values():
            self._tell_to_wait(worker, PATIENCE)
            ends.register(worker.end, select.POLLIN)
        return not ends.poll(0)

    def close(self) -> None:
        if self._end is not None:
            self._end()
        for worker in self._members.values():
            worker.window.detach()

    def _tell_to_wait(self, worker: Process, milliseconds: int) -> None:
        """Tell a worker to wait this long for its next task, and then to leave."""
        told = REST + LENGTH.pack(milliseconds)
        with contextlib.suppress(zmq.ZMQError):  # it has not connected yet, or has ended
            self._control.send_multipart([worker.identity, told])

    def _add(self) -> None:
        setup = Setup(
            self._address,
            secrets.token_bytes(16),
            self.program,
            self._modules,
            self._beside.layout if self._beside else None,
            self._end_to_end,
            self.clock,
            (self._asked.memory or BYTES_IN_FLIGHT) // self._asked.count,
            os.getpid(),
            ProcessEnvironment(),
            classes_of_main(),
            share_of(cores(), self._together),
        )
        worker = self.spawn(setup)
        self._members[worker.identity] = worker
        self._poller.register(worker.link, zmq.POLLIN)
        self._poller.register(worker.end, zmq.POLLIN)

    def _forget(self, worker: Process) -> None:
        del self._members[worker.identity]
        self._poller.unregister(worker.link)
        self._poller.unregister(worker.end)
        worker.link.close()
        os.close(worker.end)

    def _received(self, worker: Process, frames: list[bytes]) -> Event | None:
        if frames[0] == READY:
            if frames[1]:
                text = frames[1].decode()
                raise NotShippable(f"a worker process cannot load the plan:\n{text}")
            worker.ready = True
            return Ready(worker)
        result: Result
        result, places, dropped = unpack(frames[0])
        while not worker.window.has(places):
            shown = select.poll()
            shown.register(worker.link, select.POLLIN)
            shown.poll()
            if not _attach_slab(worker):
                return None  # it died before it sent the slab; its descriptor will show it
        worker.window.drop(dropped)
        worker.since = time.monotonic()  # before the check for late workers: this may have waited
        nbytes = len(frames[1]) + worker.window.nbytes(places)
        return Done(worker, result, _Sent(worker.window, frames[1], places, nbytes))

    def _buried(self, worker: Process) -> str:
        """How a process has ended, for messages; waits for the end, and kills it after a second."""
        try:
            status = worker.process.wait(timeout=1)
        except subprocess.TimeoutExpired:  # it closed its link but runs on
            worker.process.kill()
            status = worker.process.wait()
        if worker.why is not None:
            return worker.why
        if status is None:
            return "its exit status is not known"
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"

    def _look(self) -> None:
        """Kill workers that are stopped or late; the next ``poll`` reports their deaths."""
        now = time.monotonic()
        if now - self._looked < _TICK:
            return
        self._looked = now
        timeout = self._asked.timeout
        for worker in self._members.values():
            if not _is_stopped(worker.process.pid):
                worker.stopped = None
            elif worker.stopped is None:
                worker.stopped = now
            elif now - worker.stopped > SECONDS_STOPPED:
                self._kill(worker, f"stopped for {SECONDS_STOPPED:g} seconds")
            if timeout is not None and worker.held and now - worker.since > timeout:
                self._kill(worker, f"at work for more than {timeout:g} seconds")

    def _kill(self, worker: Process, why: str) -> None:
        worker.why = why
        worker.process.kill()


@attrs.define
class _Owner(Owner):
    """The process that a backend belongs to, and what closing it from another thread needs."""

    hearing: threading.Lock = attrs.field(factory=threading.Lock)
    """Held while a thread waits for events: a socket must not be closed under it."""
    closed: bool = False


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:  # it has ended
        return False


def _attach_slab(worker: Process) -> bool:
    """Attach a slab if the worker has sent one; False if the worker is gone."""
    try:
        data, fds, _, _ = socket.recv_fds(worker.link, LENGTH.size, 1)
    except BlockingIOError:  # attached already, when a result in it came
        return True
    except ConnectionError:
        return False
    if not data:
        return False
    full = FlowError(
        "no file descriptor is left for shared memory, and every large result that is held takes "
        "one: raise ulimit -n, or hold copies"
    )
    if not fds:
        raise full
    try:
        worker.window.attach(LENGTH.unpack(data)[0], fds[0])
    except OSError as error:
        raise full from error
    return True


def _end(
    owner: _Owner,
    members: dict[bytes, Process],
    leaving: list[Process],
    context: zmq.Context[zmq.Socket[bytes]],
    control: zmq.Socket[bytes],
    bell: int,
) -> None:
    if not owner.is_here:
        return
    for worker in members.values():
        worker.link.close()  # a worker leaves when this closes, whatever it is doing
        os.close(worker.end)
    deadline = time.monotonic() + SECONDS_TO_LEAVE
    for worker in [*members.values(), *leaving]:
        try:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
    os.eventfd_write(bell, 1)  # at exit, another thread may be waiting
    if owner.hearing.acquire(timeout=SECONDS_TO_LEAVE):
        owner.closed = True
        control.close(0)  # explicitly: a context collected in a cycle forgets its sockets
        context.destroy(0)
        os.close(bell)
        owner.hearing.release()
