"""A worker process: takes leases of work, runs its program on them, and sends the results.

It is started as a new interpreter whose ``__main__`` is ``start.py`` and nothing of the user's, so
a script that imports TensorFlow does not import it again in every worker. It reads its program
once, from a socket that it shares with the consumer's process alone. The same socket carries the
descriptors of its slabs, and tells it by its end-of-file that the consumer is gone.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import sys
import threading
import time
import traceback
from typing import Any

import attrs
import zmq

from flowdsl.errors import FlowError, NotShippable, travelling
from flowdsl.making.make import Failure, Maker, make, maker
from flowdsl.workers.crew import result_of
from flowdsl.workers.leases import Lease
from flowdsl.workers.slabs import Slabs
from flowdsl.workers.wire import first_unpackable, pack_into, unpack, whole

READY = b"ready"
REST = b"rest"
"""Begins a message of no lease: the milliseconds to wait for the next, and then to leave."""
PATIENCE = 600_000
"""Milliseconds to wait for a first lease of a pass, which may have ended without this worker."""

LENGTH = struct.Struct("<Q")


@attrs.frozen
class Setup:
    """What a worker is told once: where to ask for work, as whom, and what to run on it."""

    address: str
    identity: bytes
    """Known to this worker and the consumer only: it is how they know each other's messages."""
    program: bytes
    whole: bool
    """It runs the program from end to end, by its reference."""
    clock: bool
    """It times each operator."""
    memory: int
    """Bytes of shared memory that it may keep for later."""
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
    slabs = Slabs(lambda number, fd: _show(link, number, fd), setup.memory)
    with zmq.Context() as context, context.socket(zmq.DEALER) as control:
        control.setsockopt(zmq.LINGER, 0)
        control.setsockopt(zmq.IDENTITY, setup.identity)
        control.connect(setup.address)
        try:
            making = maker(unpack(setup.program), setup.whole, slabs.allocate, setup.clock)
        except Exception:
            control.send_multipart([READY, traceback.format_exc().encode()])
            link.recv(1)  # until the consumer has read it, and closes
            return
        control.send_multipart([READY, b""])
        poller = zmq.Poller()
        poller.register(control, zmq.POLLIN)
        poller.register(link, zmq.POLLIN)
        patience: int | None = PATIENCE
        while control in dict(poller.poll(patience)):  # or the link, which tells only its end
            frames = control.recv_multipart()
            if frames[0].startswith(REST):
                (patience,) = LENGTH.unpack(frames[0][len(REST) :])
                making.rest()
                continue
            patience = None
            lease: Lease = unpack(frames[0])
            slabs.note(lease.number)
            supplied: list[list[Any]] = unpack(frames[1], frames[2:]) if len(frames) > 1 else []
            control.send_multipart(run(making, slabs, lease, supplied))


def run(making: Maker, slabs: Slabs, lease: Lease, supplied: list[list[Any]]) -> list[bytes]:
    """The frames of a lease's result: what was made of it up to its end, or to a failure."""
    surplus = slabs.begin()
    began = time.perf_counter()
    made = make(making, lease.addresses(), supplied)
    failure = made.failure
    if failure is not None:
        failure = attrs.evolve(failure, cause=travelling(failure.cause))
    try:
        content, places = pack_into(slabs, made.elements)
    except Exception as error:
        bad = first_unpackable(made.elements)
        if bad is None:  # it is not the elements: there is no memory for them
            full = FlowError(f"a worker process has no room for a result: {error}")
            failure, stop = Failure(None, lease.epoch, lease.start, travelling(full)), 0
        else:
            stop, cause = bad
            reason = NotShippable(f"the element cannot leave its worker process: {cause}")
            failure = Failure((), lease.epoch, made.positions[stop], travelling(reason))
        made.positions, made.elements = made.positions[:stop], made.elements[:stop]
        made.left = [one for one in made.left if one.before <= stop]
        content, places = pack_into(slabs, made.elements)
    seconds = time.perf_counter() - began
    result = result_of(attrs.evolve(made, failure=failure, seconds=seconds), lease)
    return [whole((result, places, surplus)), content]


def _read(stream: Any, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = stream.read(size - len(parts))
        if not part:
            sys.exit(0)  # the consumer was gone before it had sent the program
        parts += part
    return bytes(parts)


def _show(link: socket.socket, number: int, fd: int) -> None:
    with contextlib.suppress(ConnectionError):  # the consumer is gone, and so will be this worker
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
