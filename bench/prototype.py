"""A bare prototype: what two forked processes can deliver at most, if nobody asks for more.

Ranges of rows go to forked processes by a pipe, each batch is stacked into a slot of shared memory
that was there from the start, and its number comes back by a pipe. There is no order, no end, no
error, no death, no resume, and an array is overwritten as soon as the next one is asked for. It is
the limit that flowdsl holds itself to.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.works import Row, Work

_NUMBER = struct.Struct("<q")
_SLOTS = 4
"""For each process: one to fill, one that is read, and two on their way."""


def batches(work: Work, procs: int) -> Iterator[Row]:
    """The batches of a work, of equal shapes, for as long as they are taken."""
    shape, dtype = _like(work)
    size = int(np.prod(shape)) * dtype.itemsize
    memory = mmap.mmap(-1, procs * _SLOTS * size)
    slots = [
        np.frombuffer(memory, dtype, int(np.prod(shape)), k * size).reshape(shape)
        for k in range(procs * _SLOTS)
    ]
    done_read, done_write = os.pipe()
    orders = [_forked(work, slots, done_write) for _ in range(procs)]
    following = 0
    asked: dict[int, tuple[int, int]] = {}
    for k in range(len(slots)):
        asked[k] = following, k % procs
        os.write(orders[k % procs], _NUMBER.pack(k) + _NUMBER.pack(following))
        following += work.batch
    while True:
        (k,) = _NUMBER.unpack(os.read(done_read, _NUMBER.size))
        start, process = asked[k]
        yield slots[k], np.arange(start, start + work.batch)
        asked[k] = following, process
        os.write(orders[process], _NUMBER.pack(k) + _NUMBER.pack(following))
        following += work.batch


def _like(work: Work) -> tuple[tuple[int, ...], np.dtype[Any]]:
    one = work.read(0)[0]
    return (work.batch, *one.shape), one.dtype


def _forked(work: Work, slots: list[NDArray[Any]], done: int) -> int:
    order_read, order_write = os.pipe()
    if os.fork():
        os.close(order_read)
        return order_write
    os.close(order_write)
    while order := os.read(order_read, 2 * _NUMBER.size):
        k, start = struct.unpack("<qq", order)
        np.stack([work.read(i)[0] for i in range(start, start + work.batch)], out=slots[k])
        os.write(done, _NUMBER.pack(k))
    os._exit(0)
