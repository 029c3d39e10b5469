"""A worker process: takes tasks, runs its program on them, and sends the results.

Its ``__main__`` is ``worker_main.py`` and not the user's script, so a script that imports
TensorFlow does not import it again in every worker. The worker reads its program once, from a
socket that it shares only with the consumer's process. It sends the descriptors of its slabs
through the same socket, and exits at the end-of-file of this socket: the consumer is then gone.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from typing import Any, NoReturn

import attrs
import numpy as np
import zmq

from flowdsl.errors import FlowError, NotShippable, travelling
from flowdsl.executor.execute import Executor, TaskFailure, TaskOutcome, execute, executor_of
from flowdsl.executor.program import InputExhausted
from flowdsl.resources.core_waits import waited_for_core
from flowdsl.resources.limits import check_room, explained
from flowdsl.resources.streams import write_to_standard_error
from flowdsl.workers import native_threads
from flowdsl.workers.backend import Result, result_of
from flowdsl.workers.malloc_tuning import MOST, UNTOUCHED, Heap
from flowdsl.workers.process_environment import ProcessEnvironment
from flowdsl.workers.shared_arrays import BufferLayout, mapped
from flowdsl.workers.slabs import Extent, Slabs
from flowdsl.workers.tasks import (
    InputRows,
    InputUnreadable,
    RowAlone,
    RowUnreadable,
    Task,
    load_rows_alone,
)
from flowdsl.workers.titles import set_title
from flowdsl.workers.wire import first_unpackable, load, pack_into, pickled, unpack

READY = b"ready"
PARK = b"park"
"""The prefix of a message with the milliseconds to wait for the next task before exiting."""
FIRST_TASK_TIMEOUT_MS = 600_000
"""Milliseconds to wait for the first task of a pass; the pass may end without a task."""

LENGTH = struct.Struct("<Q")

THREADS_OF_ZMQ = 2
FILES_OF_ZMQ = 9
"""The threads and files of a libzmq context with one socket."""


@attrs.frozen
class Setup:
    """Sent to a worker once, at its start: the address to connect to, its identity and program."""

    address: str
    identity: bytes
    """A secret that only this worker and the consumer know; identifies the worker's messages."""
    program: bytes
    modules: frozenset[str]
    """The modules of installed packages that the program imports."""
    program_arrays: BufferLayout | None
    """The shared memory with the large arrays of the program, if it has any."""
    end_to_end: bool
    """True if the worker runs the program end to end, by the reference of its operators."""
    time_operators: bool
    """True if the worker times each operator."""
    memory: int
    """The maximum bytes of unused memory, shared and private, that the worker keeps."""
    consumer: int
    """The process id of the consumer."""
    environment: ProcessEnvironment
    """The environment of the consumer when it started this worker."""
    classes: frozenset[str]
    """The names of the classes in the consumer's ``__main__``, whose instances it can unpickle."""
    threads: int
    """The number of threads of its numerical libraries, unless the environment sets it."""

    @property
    def private_memory(self) -> int:
        """The part of ``memory`` for private memory that functions free; the rest is shared."""
        return min(MOST, self.memory // 2)


def main(fd: int) -> None:
    """Run a worker from its start until the consumer closes the link or is gone."""
    gc.enable()
    link = socket.socket(fileno=fd)
    link.set_inheritable(False)  # programs that user functions start must not keep it open
    with link.makefile("rb", buffering=0) as stream:
        setup = unpack(_read(stream, LENGTH.unpack(_read(stream, LENGTH.size))[0]))
    set_title("flowdsl worker", f" of process {setup.consumer}")
    setup.environment.take_on()
    native_threads.use(setup.threads)
    # Not KeyboardInterrupt, which would appear to come from the user's function.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_exit_with_consumer, args=(link, setup.consumer), daemon=True).start()
    serve(link, setup, Heap(setup.private_memory))


def _reseed() -> None:
    """Reseed PyTorch's generator, so that workers draw different numbers.

    It starts in the same state in every process.
    """
    if seed := getattr(sys.modules.get("torch"), "seed", None):
        seed()


def serve(link: socket.socket, setup: Setup, heap: Heap = UNTOUCHED) -> None:
    """Process tasks until the link closes."""
    shared = setup.memory - setup.private_memory
    slabs = Slabs(lambda number, fd: _send_descriptor(link, number, fd), shared)
    try:
        check_room("a worker process", THREADS_OF_ZMQ, FILES_OF_ZMQ)
    except FlowError as error:
        write_to_standard_error(f"flowdsl: {error}\n")
        sys.exit(1)
    with zmq.Context() as context, context.socket(zmq.DEALER) as control:
        control.setsockopt(zmq.LINGER, 0)
        control.setsockopt(zmq.IDENTITY, setup.identity)
        control.connect(setup.address)
        try:
            slabs.open()
        except OSError as error:
            text = f"worker processes cannot share memory: {explained(error)}"
            control.send_multipart([READY, b"", text.encode()])
            _wait_for_close(link)
            return
        try:
            program_arrays = [] if setup.program_arrays is None else mapped(setup.program_arrays)
            program = load(setup.program, program_arrays)
            setup.environment.take_on("warning filters")  # whose categories are imported by now
            _reseed()
            executor = executor_of(program, setup.end_to_end, slabs.allocate, setup.time_operators)
        except Exception as error:
            cause = error.__cause__ or error
            control.send_multipart([READY, pickled((str(error), travelling(cause)))])
            _wait_for_close(link)
            return
        control.send_multipart([READY, b""])
        poller = zmq.Poller()
        poller.register(control, zmq.POLLIN)
        poller.register(link, zmq.POLLIN)
        timeout: int | None = FIRST_TASK_TIMEOUT_MS
        while control in dict(poller.poll(timeout)):  # the link is readable only at its end
            # Copied, because arrays in copies are aligned and writable.
            frames = [bytearray(frame.buffer) for frame in control.recv_multipart(copy=False)]
            if frames[0].startswith(PARK):
                (timeout,) = LENGTH.unpack(frames[0][len(PARK) :])
                executor.park()
                heap.trim()
                continue
            timeout = None
            task: Task = unpack(frames[0])
            slabs.record_begun(task.number)
            try:
                supplied: InputRows = unpack(frames[1], frames[2:]) if len(frames) > 1 else []
            except Exception as error:
                control.send_multipart(_unreadable(task, error))
            else:
                control.send_multipart(run(executor, slabs, task, supplied, setup.classes))
            heap.trim_excess()


def _wait_for_close(link: socket.socket) -> None:
    """Wait until the consumer has read the last message, and closes the link."""
    with contextlib.suppress(ConnectionError):
        link.recv(1)


def run(
    executor: Executor, slabs: Slabs, task: Task, supplied: InputRows, classes: frozenset[str]
) -> list[bytes]:
    """Run a task until its end or a failure; return the frames of its result."""
    surplus = slabs.begin()
    unreadable: dict[int, RowUnreadable] = {}
    if any(part and isinstance(next(iter(part)), RowAlone) for part in supplied):
        supplied, unreadable = load_rows_alone(supplied)
    result, extents, content = _computed(executor, slabs, task, supplied, unreadable, classes)
    return [pickled((result, extents, surplus)), content]


def _computed(
    executor: Executor,
    slabs: Slabs,
    task: Task,
    supplied: InputRows,
    unreadable: dict[int, RowUnreadable],
    classes: frozenset[str],
) -> tuple[Result, list[Extent], bytes]:
    """Compute a task; return its result, where the elements' arrays are, and the packed elements.

    If an element cannot be packed, return a result with the elements before it; if it is the first,
    the result says why.
    """
    began = time.perf_counter()
    cpu_before, waited_before = time.thread_time(), waited_for_core()
    process = os.getpid()
    outcome = execute(executor, task.addresses(), supplied, task.most_bytes, slabs.is_cancelled)
    if os.getpid() != process:
        _end_a_fork()
    failure = outcome.failure
    if failure is not None:
        cause = failure.cause
        if isinstance(cause, InputExhausted) and cause.slot in unreadable:
            failure = attrs.evolve(failure, cause=unreadable[cause.slot])
        else:
            failure = attrs.evolve(failure, cause=travelling(cause))
    unsent: Exception | None = None
    try:
        content, extents = pack_into(slabs, outcome.elements, classes)
    except Exception as error:
        unpackable = first_unpackable(outcome.elements)
        if unpackable is not None:
            first, why = unpackable
            before = int(np.searchsorted(task.addresses().position, outcome.positions[first]))
            if before:  # return the elements before it; the rest of the task will be another task
                part = task.part(task.number, task.start, task.start + before)
                return _computed(executor, slabs, part, supplied, unreadable, classes)
            unsent = NotShippable(f"the element cannot be sent from its worker process: {why}")
            outcome, failure = TaskOutcome([], []), None
        elif task.stop - task.start > 1:  # memory ran out: smaller tasks may fit
            outcome, failure = TaskOutcome([], []), None
        else:
            reason = explained(error) if isinstance(error, OSError) else str(error)
            full = FlowError(f"a worker process has no memory for the element: {reason}")
            failure = TaskFailure((), task.epoch, outcome.positions[0], travelling(full))
            outcome.positions, outcome.elements = [], []
            outcome.skipped = [skipped for skipped in outcome.skipped if not skipped.before]
        content, extents = pack_into(slabs, outcome.elements, classes)
    outcome.failure = failure
    # With packing, so that it does not look like waiting.
    outcome.cpu = time.thread_time() - cpu_before
    outcome.waited_for_core = max(0.0, waited_for_core() - waited_before)
    outcome.seconds = time.perf_counter() - began
    return attrs.evolve(result_of(outcome, task), unsent=unsent), extents, content


def _unreadable(task: Task, error: Exception) -> list[bytes]:
    """Return the frames of the result of a task whose rows cannot be loaded."""
    result = result_of(TaskOutcome([], []), task)
    result = attrs.evolve(result, unsent=InputUnreadable(repr(error)))
    return [pickled((result, [], [])), pickled([])]


def _end_a_fork() -> NoReturn:
    """End a process that a user's function has forked, and in which it has returned.

    The process shares the sockets and slabs of its parent, which continues with the result.
    """
    write_to_standard_error(
        "flowdsl: a function that is run by a worker process has called os.fork() and returned in "
        "the child process, which ends here; end it by os._exit() in the function\n"
    )
    os._exit(1)


def _read(stream: Any, size: int) -> bytes:
    """Read exactly ``size`` bytes; exit if the consumer ends before it has sent them."""
    content = bytearray()
    while len(content) < size:
        try:
            block = stream.read(size - len(content))
        except ConnectionError:  # it ended before it had read all that this process has sent
            block = b""
        if not block:
            sys.exit(0)
        content += block
    return bytes(content)


def _send_descriptor(link: socket.socket, number: int, fd: int) -> None:
    with contextlib.suppress(ConnectionError):  # the consumer is gone, and this worker will exit
        socket.send_fds(link, [LENGTH.pack(number)], [fd])


def _exit_with_consumer(link: socket.socket, consumer: int) -> None:
    """End this process, even during a task, when the consumer closes the link or is gone.

    The consumer's process is watched too, since a fork of it may hold its end of the link open.
    """
    try:
        ends = select.poll()
        ends.register(link, select.POLLIN)
        ends.register(os.pidfd_open(consumer), select.POLLIN)
        ends.poll()
    finally:
        os._exit(0)
