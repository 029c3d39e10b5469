"""Worker processes: starts, watches and ends them, and exchanges messages with them.

Messages are sent through ZMQ. Arrays are stored in shared memory, and only its descriptors are
sent. A worker is identified by a secret that only it knows, so messages from other processes are
ignored. A process descriptor (pidfd) becomes readable when a worker ends; the end of its socket
would not be enough, since child processes of the worker may keep that open.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

import attrs
import zmq

from flowdsl.errors import FlowError, NotShippable
from flowdsl.plan.plan import Stage
from flowdsl.resources.cores import cores
from flowdsl.resources.limits import check_room, explained
from flowdsl.resources.streams import fill_standard_descriptors
from flowdsl.workers import launching, native_threads
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
from flowdsl.workers.slabs import Extent, Window
from flowdsl.workers.tasks import BYTES_IN_FLIGHT, InputRows, TaskInput
from flowdsl.workers.wire import (
    PackedStage,
    frames_of_rows,
    is_loading,
    nbytes_of_frames,
    pickled,
    unpack,
)
from flowdsl.workers.worker import (
    FILES_OF_ZMQ,
    FIRST_TASK_TIMEOUT_MS,
    LENGTH,
    PARK,
    READY,
    THREADS_OF_ZMQ,
    Setup,
)

FILES_OF_A_WORKER = 8
"""The number of descriptors that this process needs to start a worker and to receive from it.
libzmq opens one of them later; without it the worker would wait forever."""

SECONDS_TO_LEAVE = 0.5
"""A process that has not ended this long after its link was closed is killed."""
SECONDS_STOPPED = 5.0
"""A process that was stopped by a signal counts as dead after this time."""

SECONDS_TO_FINISH = 0.5
"""After a partial pass, workers are kept if they finish their current element within this time."""
SECONDS_AT_REST = 30.0
"""Parked workers exit if no further pass over their flow begins within this time."""

_TICK = POLL_SECONDS
"""Seconds between two checks for stopped or late workers."""


@attrs.define(eq=False)
class Process(Worker):
    """The consumer's record of a worker process."""

    identity: bytes = b""
    process: Child = attrs.field(kw_only=True)
    link: socket.socket = attrs.field(kw_only=True)
    end: int = attrs.field(kw_only=True)
    """A descriptor that becomes readable when the process has ended."""
    window: Window = attrs.field(factory=Window)
    since: float = 0.0
    """The time when the process began its oldest task, by ``time.monotonic``."""
    stopped: float | None = None
    """The time when the process was first seen stopped; None while it is running."""
    why: str | None = None
    """The reason why flowdsl ended the process, if it did."""


@attrs.frozen
class Sent:
    """Elements as sent by a process: a pickle, and where their arrays are in its slabs."""

    window: Window
    content: bytes
    extents: list[Extent]
    nbytes: int

    def open(self) -> Sequence[Any]:
        elements: list[Any] = unpack(self.content, self.window.buffers(self.extents))
        return elements

    def discard(self) -> None:
        self.window.discard(self.extents)


def processes(stage: Stage, time_operators: bool = False) -> Processes:
    """Create the backend of a stage whose workers are processes of this machine.

    Raises:
        NotShippable: The program cannot be sent to workers.
    """
    return Processes(PackedStage.of(stage, time_operators))


def start_process(setup: Setup) -> Process:
    """Start a worker, and send it its setup."""
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process, end = launching.start(theirs.fileno(), setup.modules)
    except BaseException:
        ours.close()
        raise
    message = pickled(setup)
    with contextlib.suppress(ConnectionError):  # it has died already: the poller will report it
        ours.sendall(LENGTH.pack(len(message)) + message)
    ours.setblocking(False)
    return Process(
        f"worker process {process.pid}",
        identity=setup.identity,
        process=process,
        link=ours,
        end=end,
    )


class Processes:
    """The worker processes of a stage."""

    spawn = staticmethod(start_process)
    """Starts a worker; may be replaced by any function that starts one on the same link."""

    def __init__(self, packed: PackedStage) -> None:
        """Store the program's large arrays in shared memory; no process is started yet."""
        self._packed = attrs.evolve(packed, arrays=())
        self._arrays = SharedArrays(packed.arrays) if packed.arrays else None
        self._environment = _folder(), ProcessEnvironment()
        """The working folder and the environment that the workers have."""
        self._members: dict[bytes, Process] = {}
        """The workers, by their identity."""
        self._leaving: list[Process] = []
        """Dismissed workers, whose end ``close`` awaits."""
        self._poller = zmq.Poller()
        self._end: weakref.finalize[..., Processes] | None = None
        self._owner = _Owner()
        self._last_check = time.monotonic()

    @property
    def workers(self) -> list[Worker]:
        return list[Worker](self._members.values())

    def start(self, count: int) -> None:
        self._owner.check()
        if is_loading():
            raise FlowError(
                "a worker process has imported a module that begins a pass with worker processes "
                "when it is imported: put that code under if __name__ == '__main__'"
            )
        if self._end is None:
            self._open()
        while len(self._members) < count:
            self._add()

    def _open(self) -> None:
        """Open the socket to which workers connect."""
        fill_standard_descriptors()
        check_room("prefetch, for worker processes", THREADS_OF_ZMQ, FILES_OF_ZMQ)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._control = context.socket(zmq.ROUTER)
        self._control.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._control.setsockopt(zmq.LINGER, 0)
        self._control.setsockopt(zmq.IPC_FILTER_UID, os.getuid())
        self._address = f"ipc://@flowdsl-{os.getpid()}-{os.urandom(8).hex()}"
        self._control.bind(self._address)
        self._poller.register(self._control, zmq.POLLIN)
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # ends a poll
        self._poller.register(self._bell, zmq.POLLIN)
        arguments = (self._owner, self._members, self._leaving, context, self._control, self._bell)
        backend: Processes = self
        self._end = weakref.finalize(backend, _end, *arguments)

    def pack(self, rows: InputRows) -> tuple[Any, int]:
        frames = frames_of_rows(rows)
        return frames, nbytes_of_frames(frames)

    def submit(self, worker: Worker, task_input: TaskInput) -> None:
        assert isinstance(worker, Process)
        self._owner.check()
        if not worker.held:
            worker.since = time.monotonic()
        worker.held[task_input.task.number] = task_input
        with contextlib.suppress(zmq.ZMQError):  # it has died: its descriptor will report it
            self._control.send_multipart(
                [worker.identity, pickled(task_input.task), *(task_input.packed or ())]
            )

    def poll(self) -> list[Event]:
        self._owner.check()
        events: list[Event] = []
        try:
            if not self._owner.ending:
                events = self._poll()
        except (OSError, zmq.ZMQError):
            if not self._owner.ending:  # otherwise another thread has closed the descriptors
                raise
        if self._owner.ending:
            raise self._owner.ended()
        return events

    def _poll(self, seconds: float = _TICK) -> list[Event]:
        with self._owner.polling:
            ready = dict(self._poller.poll(int(seconds * 1000)))
            if self._bell in ready:
                os.eventfd_read(self._bell)
            received = list[list[bytes]]()
            with contextlib.suppress(zmq.Again):  # raised after the last message
                while self._control in ready:
                    received.append(self._control.recv_multipart(zmq.NOBLOCK))
        events: list[Event] = []
        for identity, *frames in received:
            worker = self._members.get(identity)
            if worker is not None and (event := self._received(worker, frames)) is not None:
                events.append(event)
        for worker in self._members.values():
            is_closed = worker.link.fileno() in ready and not _attach_slab(worker)
            if is_closed or worker.end in ready:
                events.append(Died(worker, self._exit_reason(worker), worker.window.begun))
        self._check_workers()
        return events

    def wake(self) -> None:
        os.eventfd_write(self._bell, 1)

    def replace(self, worker: Worker) -> None:
        assert isinstance(worker, Process)
        self._forget(worker)
        self._add()

    def dismiss(self, worker: Worker) -> None:
        assert isinstance(worker, Process)
        self._forget(worker)  # its link closes, and the worker exits
        self._leaving.append(worker)

    def park(self) -> bool:
        if not self._owner.is_here or self._owner.ending or not self._will_finish_soon():
            return False
        for worker in self._members.values():
            if worker.held:
                worker.window.cancel()
            self._set_task_timeout(worker, int(SECONDS_AT_REST * 1000))
            worker.clear_figures()
        return True

    def _will_finish_soon(self) -> bool:
        """Return True if, after a partial pass, no worker needs long for its current element."""
        workers = self._members.values()
        if not any(worker.held for worker in workers):
            return True
        elements = sum(worker.elements for worker in workers)
        return (
            elements > 0 and sum(worker.busy for worker in workers) / elements < SECONDS_TO_FINISH
        )

    def can_reuse(self, stage: Stage, time_operators: bool) -> bool:
        if not self._owner.is_here or self._environment != (_folder(), ProcessEnvironment()):
            return False
        packed = PackedStage.of(stage, time_operators)
        same_arrays = self._arrays.holds(packed.arrays) if self._arrays else not packed.arrays
        return same_arrays and attrs.evolve(packed, arrays=()) == self._packed and self.resume()

    def resume(self) -> bool:
        """Prepare parked workers for the next pass; return False if one of them has ended."""
        if not self._drain_cancelled_tasks():
            return False
        ends = select.poll()
        for worker in self._members.values():
            worker.window.reset_marks()
            self._set_task_timeout(worker, FIRST_TASK_TIMEOUT_MS)
            ends.register(worker.end, select.POLLIN)
        return not ends.poll(0)

    def _drain_cancelled_tasks(self) -> bool:
        """Wait for the tasks of a partial pass; return False if a worker has ended.

        Workers that do not finish their current element soon are replaced.
        """
        deadline = time.monotonic() + SECONDS_TO_FINISH
        while busy := [worker for worker in self._members.values() if worker.held]:
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                break
            if not self._discard_results(seconds):
                return False
        for worker in busy:
            self._forget(worker)
            worker.process.kill()
            worker.process.wait()
            worker.window.detach()  # the consumer has none of its results
            self._add()
        return True

    def _discard_results(self, seconds: float) -> bool:
        """Wait for results and discard them; return False if a worker has ended."""
        for event in self._poll(seconds):
            match event:
                case Died():
                    return False
                case Done():
                    event.worker.held.pop(event.result.number)
                    event.delivery.discard()
                case Ready():
                    pass
        return True

    def close(self) -> None:
        if self._end is not None:
            self._end()
        for worker in self._members.values():
            worker.window.detach()

    def _set_task_timeout(self, worker: Process, milliseconds: int) -> None:
        """Make a worker exit if no task arrives within this time."""
        message = PARK + LENGTH.pack(milliseconds)
        with contextlib.suppress(zmq.ZMQError):  # it has not connected yet, or has ended
            self._control.send_multipart([worker.identity, message])

    def _add(self) -> None:
        packed = self._packed
        threads = share_of(cores(), packed.together)
        check_room("prefetch, for a worker process", 0, FILES_OF_A_WORKER)
        setup = Setup(
            address=self._address,
            identity=os.urandom(16),
            program=packed.program,
            modules=packed.modules | native_threads.modules(threads),
            program_arrays=self._arrays.layout if self._arrays else None,
            end_to_end=packed.end_to_end,
            time_operators=packed.time_operators,
            memory=(packed.workers.memory or BYTES_IN_FLIGHT) // packed.workers.count,
            consumer=os.getpid(),
            environment=ProcessEnvironment(),
            classes=packed.classes,
            threads=threads,
        )
        try:
            worker = self.spawn(setup)
        except OSError as error:
            raise FlowError(
                f"prefetch: a worker process cannot be started: {explained(error)}"
            ) from error
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
                message, cause = unpack(frames[1])
                raise NotShippable(message) from cause
            if len(frames) > 2:
                raise FlowError(f"prefetch: {frames[2].decode()}")
            worker.ready = True
            return Ready(worker)
        result: Result
        result, extents, dropped = unpack(frames[0])
        while not worker.window.has(extents):
            link = select.poll()
            link.register(worker.link, select.POLLIN)
            link.poll()
            if not _attach_slab(worker):
                return None  # it died before it sent the slab; its descriptor will report it
        worker.window.drop(dropped)
        worker.since = time.monotonic()  # it has begun its next task; the wait does not count
        nbytes = len(frames[1]) + worker.window.nbytes(extents)
        return Done(worker, result, Sent(worker.window, frames[1], extents, nbytes))

    def _exit_reason(self, worker: Process) -> str:
        """Wait for a process, killing it after a second; return how it ended, for messages."""
        try:
            status = worker.process.wait(timeout=1)
        except subprocess.TimeoutExpired:  # it closed its link but runs on
            worker.process.kill()
            status = worker.process.wait()
        if worker.why is not None:
            return worker.why
        if status is None:
            return "its exit status is unknown"
        return _signal_name(-status) if status < 0 else f"exit status {status}"

    def _check_workers(self) -> None:
        """Kill stopped and late workers; the next ``poll`` reports their deaths."""
        now = time.monotonic()
        if now - self._last_check < _TICK:
            return
        self._last_check = now
        timeout = self._packed.workers.timeout
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
    """The owner of a backend, with the state needed to close it from another thread."""

    polling: threading.Lock = attrs.field(factory=threading.Lock)
    """Locked while a thread waits for events, so that no other thread closes its sockets."""
    ending: bool = False
    """True if a thread has begun to close the backend."""

    def ended(self) -> BaseException:
        """Return what to raise in a thread that uses the backend while or after it is closed."""
        if not threading.main_thread().is_alive():  # the program exits: this thread leaves silently
            return SystemExit()
        return FlowError("the workers of this run were ended by another thread")


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError as error:
        raise FlowError(
            "prefetch: the working folder of this process has been removed, and worker processes "
            "begin in it: change to another by os.chdir"
        ) from error


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "T"
    except OSError:  # it has ended
        return False


def _attach_slab(worker: Process) -> bool:
    """Attach a slab if the worker has sent one; False if the worker is gone."""
    try:
        data, fds, _, _ = socket.recv_fds(worker.link, LENGTH.size, 1)
    except BlockingIOError:  # attached already, when its first result arrived
        return True
    except ConnectionError:
        return False
    if not data:
        return False
    if not fds:
        raise FlowError(
            "this process has no file descriptor left to receive a result from a worker process: "
            "close files, or raise ulimit -n"
        )
    try:
        worker.window.attach(LENGTH.unpack(data)[0], fds[0])
    except OSError as error:
        raise FlowError(
            f"this process cannot map the memory of a result from a worker process: "
            f"{explained(error)}; each result that is held needs a map (vm.max_map_count)"
        ) from error
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
    owner.ending = True
    for worker in members.values():
        worker.link.close()  # a worker exits when this closes, even in the middle of a task
        os.close(worker.end)
    deadline = time.monotonic() + SECONDS_TO_LEAVE
    for worker in [*members.values(), *leaving]:
        try:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
    os.eventfd_write(bell, 1)  # at exit, another thread may be waiting
    if owner.polling.acquire(timeout=SECONDS_TO_LEAVE):
        control.close(0)  # explicitly: a context collected in a cycle forgets its sockets
        context.destroy(0)
        os.close(bell)
        owner.polling.release()


def _signal_name(number: int) -> str:
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:  # a real-time signal: only the first and the last have names
        return f"signal {number}"
