"""Slabs: shared memory that a worker fills and the consumer's arrays look into.

A slab is an anonymous file (``memfd``): it has no name, so nothing can leak or collide, it does not
count against ``/dev/shm``, and it goes when the last process that maps it does. Its pages are
reserved when it is made, so that a full machine is an error here and not a SIGBUS later.

A slab starts with a header whose first byte says whether it is in use. The worker sets it when it
sends a result; the consumer's process clears it when the last array that views the slab is gone,
and only then does the worker fill it again. No message is needed for that, and no view is ever
overwritten.
"""

from __future__ import annotations

import mmap
import os
import struct
import weakref
from collections.abc import Callable, Sequence
from itertools import accumulate, count
from math import prod
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
"""Bytes. TensorFlow reads memory so aligned without copying it."""

_HEADER = ALIGNMENT
_SMALLEST = 1 << 16
_LARGEST_AHEAD = 1 << 20
_MOST_FREE = 16
"""Slabs that a worker keeps for later; more than it fills while the consumer keeps pace."""

Place = tuple[int, int, int]
"""Where bytes lie: the slab's number, the offset and the size, both in bytes."""


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


@attrs.define(eq=False)
class Slab:
    """One piece of shared memory, mapped into this process."""

    number: int
    memory: mmap.mmap
    address: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.address = np.frombuffer(self.memory, np.uint8).ctypes.data

    @property
    def size(self) -> int:
        return len(self.memory)

    @property
    def in_use(self) -> bool:
        return self.memory[0] != 0

    @in_use.setter
    def in_use(self, value: bool) -> None:
        self.memory[0] = int(value)


_BEGUN = struct.Struct("<Q")
_MARK = (1 << 64) - 1
"""The number of the slab in which a worker notes what it is at work on."""


class Slabs:
    """The slabs that one worker owns; it fills a few of them for each result."""

    def __init__(self, publish: Callable[[int, int], None], most_free: int = 1 << 30) -> None:
        """``publish(number, fd)`` shows a new slab to the consumer, before any result in it.

        No more than ``most_free`` bytes of slabs that nobody uses are kept.
        """
        self._publish = publish
        self._most_free = most_free
        self._all: list[Slab] = []
        self._filling: list[Slab] = []
        self._filled = 0
        self._placed: set[int] = set()
        self._numbers = count()
        self._mark: Slab | None = None

    def note(self, lease: int) -> None:
        """Note the number of the lease that is begun, where it is read when this worker is dead.

        A message could be lost with the worker, and one of those that it leaves blamed for it.
        """
        if self._mark is None:
            self._mark = self._publish_new(_MARK, mmap.PAGESIZE)
        _BEGUN.pack_into(self._mark.memory, 0, lease + 1)

    def begin(self) -> list[int]:
        """Start a result; what was placed for the last one belongs to the consumer now.

        Gives the numbers of slabs that are not kept: the consumer held many, and gave them back.
        """
        for slab in self._filling:
            if slab.number not in self._placed:  # it failed, or copied what it had allocated
                slab.in_use = False
        self._filling = []
        self._placed.clear()
        free = [slab for slab in reversed(self._all) if not slab.in_use]
        sizes = accumulate(slab.size for slab in free)
        surplus = {
            slab.number
            for k, (slab, size) in enumerate(zip(free, sizes, strict=True))
            if k >= _MOST_FREE or size > self._most_free
        }
        if surplus:
            self._all = [slab for slab in self._all if slab.number not in surplus]
        return sorted(surplus)

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """A new array; a large one lies in a slab. Its contents are undefined."""
        nbytes = prod(shape) * dtype.itemsize
        if nbytes < WORTH_SHARING:
            return np.empty(shape, dtype)
        slab, start = self._reserve(nbytes)
        return np.ndarray(tuple(shape), dtype, slab.memory, start)

    def place(self, content: memoryview) -> Place:
        """Where these bytes lie in the slabs of this result; copies them in if they do not yet."""
        array = np.frombuffer(content, np.uint8)
        for slab in self._filling:
            offset = array.ctypes.data - slab.address
            if 0 <= offset < slab.size:
                self._placed.add(slab.number)
                return slab.number, offset, array.nbytes
        slab, start = self._reserve(array.nbytes)
        self._placed.add(slab.number)
        np.frombuffer(slab.memory, np.uint8, array.nbytes, start)[:] = array
        return slab.number, start, array.nbytes

    def _reserve(self, nbytes: int) -> tuple[Slab, int]:
        if self._filling and self._filled + nbytes <= self._filling[-1].size:
            start = self._filled
        else:
            slab = self._free(nbytes) or self._create(nbytes)
            slab.in_use = True
            self._filling.append(slab)
            start = _HEADER
        self._filled = _aligned(start + nbytes)
        return self._filling[-1], start

    def _free(self, nbytes: int) -> Slab | None:
        roomy = (s for s in self._all if not s.in_use and s.size >= _HEADER + nbytes)
        return min(roomy, key=lambda slab: slab.size, default=None)

    def _create(self, nbytes: int) -> Slab:
        size = max(_SMALLEST, 1 << (_HEADER + nbytes - 1).bit_length())
        if self._filling:  # a result of several arrays: the next of them will want room too
            size = max(size, min(2 * self._filling[-1].size, _LARGEST_AHEAD))
        slab = self._publish_new(next(self._numbers), size)
        self._all.append(slab)
        return slab

    def _publish_new(self, number: int, size: int) -> Slab:
        fd = os.memfd_create("flowdsl", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(fd, 0, size)
            slab = Slab(number, mmap.mmap(fd, size))
            self._publish(number, fd)
        finally:
            os.close(fd)
        return slab


WORTH_SHARING = 8192
"""Bytes from which an array goes through a slab; below, a message is as fast."""


class _View(np.ndarray[Any, Any]):
    """All of a slab, for one result: the base of every array in it, so the last of them to go."""


@attrs.define(eq=False)
class Window:
    """The consumer's side: the slabs that one worker has shown it."""

    _slabs: dict[int, Slab] = attrs.field(factory=dict[int, Slab])
    _views: dict[int, weakref.ref[_View]] = attrs.field(factory=dict[int, "weakref.ref[_View]"])
    """By identity: an array has no hash, and so neither has a reference to it."""

    def attach(self, number: int, fd: int) -> None:
        """Map a slab that the worker made; closes ``fd``."""
        try:
            self._slabs[number] = Slab(number, mmap.mmap(fd, os.fstat(fd).st_size))
        finally:
            os.close(fd)

    def detach(self) -> None:
        """Let go of all slabs; those that are still viewed go with their last view."""
        self._slabs.clear()

    @property
    def begun(self) -> int | None:
        """The number of the last lease that the worker began, if any."""
        mark = self._slabs.get(_MARK)
        number = 0 if mark is None else int(_BEGUN.unpack_from(mark.memory)[0])
        return number - 1 if number else None

    def settle(self) -> None:
        """All that the worker has begun is done; the leases of another pass have other numbers."""
        if (mark := self._slabs.get(_MARK)) is not None:
            _BEGUN.pack_into(mark.memory, 0, 0)

    def drop(self, numbers: Sequence[int]) -> None:
        """Let go of slabs that the worker will not fill again."""
        for number in numbers:
            self._slabs.pop(number, None)

    def nbytes(self, places: Sequence[Place]) -> int:
        """The memory that these places take: all of their slabs."""
        return sum(self._slabs[number].size for number in {number for number, _, _ in places})

    def has(self, places: Sequence[Place]) -> bool:
        """Whether every slab of these places is attached."""
        return all(number in self._slabs for number, _, _ in places)

    def buffers(self, places: Sequence[Place]) -> list[NDArray[np.uint8]]:
        """The bytes at these places, not copied; their slabs are held while any is viewed."""
        numbers = {number for number, _, _ in places}
        views = {number: self._view(self._slabs[number]) for number in numbers}
        return [views[number][start : start + size] for number, start, size in places]

    def discard(self, places: Sequence[Place]) -> None:
        """Give the slabs of a result back that nobody will look at."""
        # Once each: the worker may fill it again as soon as it is free.
        for number in {number for number, _, _ in places}:
            if number in self._slabs:
                self._slabs[number].in_use = False

    def _view(self, slab: Slab) -> _View:
        """One view a slab a result: when it is gone, so is every array of the result in it."""
        view = _View((slab.size,), np.uint8, slab.memory)

        process = os.getpid()

        def release(ref: weakref.ref[_View]) -> None:
            del self._views[id(ref)]
            if os.getpid() == process:  # a fork's copy of a view says nothing of the original
                slab.in_use = False

        ref = weakref.ref(view, release)
        self._views[id(ref)] = ref
        return view
