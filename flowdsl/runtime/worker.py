"""A worker process: takes leases of work, runs its program on them, and sends the results.

It is started as a new interpreter whose ``__main__`` is this module's ``main`` and nothing of the
user's, so a script that imports TensorFlow does not import it again in every worker. It reads its
program once, from a socket that it shares with the consumer's process alone. The same socket
carries the descriptors of its slabs, and its end-of-file tells each side that the other is gone.
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import struct
import sys
import threading
import time
import traceback
from typing import Any

import attrs
import cloudpickle
import zmq

from flowdsl.errors import FlowError, NotShippable
from flowdsl.runtime.leases import Lease
from flowdsl.runtime.program import OperatorFailed, Program
from flowdsl.runtime.slabs import Place, Slabs
from flowdsl.runtime.wire import first_unpackable, pack_into, unpack, whole


@attrs.frozen
class Failure:
    """What stopped a lease: where, and the exception as it can travel."""

    path: tuple[int, ...] | None
    """As in ``OperatorFailed``; None where no operator failed, but a source could not be opened."""
    epoch: int
    position: int
    cause: BaseException


@attrs.frozen
class Result:
    """What became of a lease; the elements are pickled beside it."""

    number: int
    count: int
    positions: list[int] | None
    """The position of each element, where a filter left gaps; else they are consecutive."""
    places: list[Place]
    seconds: float
    failure: Failure | None


READY = b"ready"
LENGTH = struct.Struct("<Q")


@attrs.frozen
class Setup:
    """What a worker is told once: where to ask for work, as whom, and what to run on it."""

    address: str
    identity: bytes
    """Known to this worker and the consumer only: it is how they know each other's messages."""
    program: bytes
    consumer: int
    """The process that asks."""


def main(fd: int) -> None:
    """A worker's whole life: until the consumer closes the link, or is gone."""
    link = socket.socket(fileno=fd)
    link.set_inheritable(False)  # or a program that a function starts would keep it open
    with link.makefile("rb", buffering=0) as stream:
        setup = unpack(_read(stream, LENGTH.unpack(_read(stream, LENGTH.size))[0]))
    threading.Thread(target=_leave_with, args=(link, setup.consumer), daemon=True).start()
    serve(link, setup)


def serve(link: socket.socket, setup: Setup) -> None:
    """Work off leases until the link closes."""
    slabs = Slabs(lambda number, fd: _show(link, number, fd))
    with zmq.Context() as context, context.socket(zmq.DEALER) as control:
        control.setsockopt(zmq.LINGER, 0)
        control.setsockopt(zmq.IDENTITY, setup.identity)
        control.connect(setup.address)
        try:
            program, trouble = Program(unpack(setup.program), slabs.allocate), b""
        except Exception:
            program, trouble = None, traceback.format_exc().encode()
        control.send_multipart([READY, trouble])
        poller = zmq.Poller()
        poller.register(control, zmq.POLLIN)
        poller.register(link, zmq.POLLIN)
        while control in dict(poller.poll()):  # or the link, which has nothing to say but its end
            assert program is not None
            frames = control.recv_multipart()
            lease: Lease = unpack(frames[0])
            supplied: list[list[Any]] = unpack(frames[1], frames[2:]) if len(frames) > 1 else []
            control.send_multipart(run(program, slabs, lease, supplied))


def run(program: Program, slabs: Slabs, lease: Lease, supplied: list[list[Any]]) -> list[bytes]:
    """The frames of a lease's result: what was made of it up to its end, or to a failure."""
    slabs.begin()
    began = time.perf_counter()
    positions: list[int] = []
    elements: list[Any] = []
    failure: Failure | None = None
    try:
        for position, element in program.rows(lease.addresses(), supplied):
            positions.append(position)
            elements.append(element)
    except OperatorFailed as error:
        failure = Failure(error.path, error.epoch, error.position, _travelling(error.__cause__))
    except FlowError as error:
        failure = Failure(None, lease.epoch, lease.start, _travelling(error))
    try:
        content, places = pack_into(slabs, elements)
    except Exception as error:
        bad = first_unpackable(elements)
        if bad is None:  # it is not the elements: there is no memory for them
            full = FlowError(f"a worker process has no room for a result: {error}")
            failure, count = Failure(None, lease.epoch, lease.start, _travelling(full)), 0
        else:
            count, cause = bad
            reason = NotShippable(f"the element can not leave its worker process: {cause}")
            failure = Failure((), lease.epoch, positions[count], _travelling(reason))
        positions, elements = positions[:count], elements[:count]
        content, places = pack_into(slabs, elements)
    gaps = positions != list(range(lease.start, lease.start + len(positions)))
    result = Result(
        lease.number,
        len(elements),
        positions if gaps else None,
        places,
        time.perf_counter() - began,
        failure,
    )
    return [whole(result), content]


def _travelling(error: BaseException | None) -> BaseException:
    """The exception with its traceback as a note, or a stand-in where it can not be pickled."""
    assert error is not None
    trace = "".join(traceback.format_exception(error))
    try:
        copy: BaseException = pickle.loads(cloudpickle.dumps(error))
        sent = error if type(copy) is type(error) else RuntimeError(repr(error))
    except Exception:
        sent = RuntimeError(f"{type(error).__qualname__}: {error}")
    sent.__traceback__ = None
    sent.add_note(f"\nIn worker process {os.getpid()}:\n{trace}")
    return sent


def _read(stream: Any, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = stream.read(size - len(parts))
        if not part:
            sys.exit(0)  # the consumer was gone before it had sent the program
        parts += part
    return bytes(parts)


def _show(link: socket.socket, number: int, fd: int) -> None:
    socket.send_fds(link, [LENGTH.pack(number)], [fd])


def _leave_with(link: socket.socket, consumer: int) -> None:
    """End this process, whatever it is doing, when the consumer closes the link or is gone.

    Its end is watched for by itself, since a fork of it may hold its side of the link open.
    """
    try:
        ends = select.poll()
        ends.register(link, select.POLLIN)
        ends.register(os.pidfd_open(consumer), select.POLLIN)
        ends.poll()
    finally:
        os._exit(0)
