"""Slabs: shared memory blocks that a worker fills, and that the consumer's arrays are views of.

The problem: large arrays must reach the consumer without a copy, and their memory must be reused,
since new memory costs a page fault for each page. The naive way is a ring buffer of fixed size that
the worker overwrites. This fails because the consumer may keep an array as long as it likes: the
worker must either wait for it or overwrite it.

The choice: a worker owns several slabs, each with a header whose first byte is 1 while the slab is
in use. The worker sets this byte when it sends a result. The consumer's process clears it when the
last array that views the slab is collected; only then does the worker fill it again, and otherwise
creates a new slab. This needs no message, and a view is never overwritten.

A slab is an anonymous file (``memfd``): it has no name that could leak or collide, it does not
count against ``/dev/shm``, and it is freed when no process maps it any more. Its pages are reserved
when it is created, so that a lack of memory raises an error then instead of a SIGBUS later.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, count
from math import prod
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.sharing import MemoryOfElement

ALIGNMENT = 64
"""The alignment of arrays in bytes. TensorFlow uses memory aligned to this without a copy."""

_HEADER = ALIGNMENT
_SMALLEST = 1 << 16
_LARGEST_AHEAD = 1 << 20
_MOST_FREE = 16
"""The maximum number of free slabs that a worker keeps."""

Extent = tuple[int, int, int]
"""Some bytes in a slab: the slab's number, then the offset and the size in bytes."""


def _round_up(size: int, step: int) -> int:
    """Round ``size`` up to a multiple of ``step``."""
    return -(-size // step) * step


def _slab_size(nbytes: int) -> int:
    """Return the size of a slab for this many bytes: one of eight steps between powers of two.

    So results of slightly different sizes can reuse each other's slabs, and at most an eighth of a
    slab is unused.
    """
    size = max(_SMALLEST, _HEADER + nbytes)
    return _round_up(size, (1 << (size - 1).bit_length()) // 16)


def _address(buffer: mmap.mmap | memoryview) -> int:
    address: int = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    return address


@attrs.define(eq=False)
class Slab:
    """One shared memory block, mapped into this process."""

    number: int
    memory: mmap.mmap
    address: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.address = _address(self.memory)

    @property
    def size(self) -> int:
        return len(self.memory)

    @property
    def in_use(self) -> bool:
        return self.memory[0] != 0

    @in_use.setter
    def in_use(self, value: bool) -> None:
        self.memory[0] = int(value)


_MAP_FIXED = 0x10

_lost: list[mmap.mmap] = []
"""Memory over which a slab could not be mapped. The system may have unmapped it already, and
another thread may have mapped something at its address. Its end would unmap that, so it is kept."""


@cache
def _mmap() -> Callable[..., int | None]:
    """The function of the C library: Python's ``mmap`` does not offer all its arguments."""
    function = ctypes.CDLL(None, use_errno=True).mmap
    size, number, offset = ctypes.c_size_t, ctypes.c_int, ctypes.c_ssize_t
    function.argtypes = (ctypes.c_void_p, size, number, number, number, offset)
    function.restype = ctypes.c_void_p
    return function


def _mapped(fd: int, size: int) -> mmap.mmap:
    """Map a slab with all its pages, which is faster than one page fault for each.

    ``fd`` can be closed afterwards. ``mmap.mmap`` would keep a duplicate of it, and a process may
    hold more results than it may have open files. So Python maps memory without a file, and the C
    library then maps the slab at the same address.
    """
    memory = mmap.mmap(-1, size)
    address = _address(memory)
    flags = mmap.MAP_SHARED | mmap.MAP_POPULATE | _MAP_FIXED
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    if _mmap()(address, size, protection, flags, fd, 0) != address:
        number = ctypes.get_errno()
        _lost.append(memory)
        raise OSError(number, os.strerror(number))
    return memory


_BEGUN = struct.Struct("<Q")
"""The number of the task that the worker has begun, plus 1; 0 if it has begun none."""
_CANCELLED = _BEGUN.size
"""The byte that is 1 if the worker's tasks are cancelled."""
_MARK = (1 << 64) - 1
"""The number of the slab that contains ``_BEGUN`` and ``_CANCELLED``."""


class Slabs:
    """The slabs of one worker, which fills one or more of them for each result."""

    def __init__(self, publish: Callable[[int, int], None], most_free: int = 1 << 30) -> None:
        """``publish(number, fd)`` sends a new slab to the consumer, before any result in it.

        At most ``most_free`` bytes of unused slabs are kept.
        """
        self._publish = publish
        self._most_free = most_free
        self._all: list[Slab] = []
        self._filling: list[Slab] = []
        """The slabs of the current result; the last one may have room left."""
        self._filled = 0
        """The bytes of the last slab that are in use."""
        self._allocated: list[Slab] = []
        """The slabs of the current result in which arrays were allocated."""
        self._placed: set[int] = set()
        """The numbers of the slabs that contain something of the current result."""
        self._numbers = count()
        self._mark: Slab | None = None

    def open(self) -> None:
        """Create the memory in which ``record_begun`` records.

        Raises:
            OSError: The system has no shared memory for this process.
        """
        self._mark = self._publish_new(_MARK, mmap.PAGESIZE)

    def record_begun(self, task: int) -> None:
        """Record the number of the task begun in memory that stays readable if this worker dies.

        A message could be lost with the worker, so another task would be blamed for its death.
        """
        if self._mark is None:
            self.open()
        assert self._mark is not None
        _BEGUN.pack_into(self._mark.memory, 0, task + 1)

    def is_cancelled(self) -> bool:
        """Return True if the consumer does not need the current task any more."""
        return self._mark is not None and self._mark.memory[_CANCELLED] != 0

    def begin(self) -> list[int]:
        """Start a new result; the slabs of the last one now belong to the consumer.

        Return the numbers of slabs to drop: free slabs that exceed the limits.
        """
        for slab in self._filling:
            if slab.number not in self._placed:  # the function failed, or copied the array
                slab.in_use = False
        self._filling, self._allocated = [], []
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
        """Return a new uninitialized array; a large one is allocated in a slab."""
        nbytes = prod(shape) * dtype.itemsize
        if nbytes < WORTH_SHARING:
            return np.empty(shape, dtype)
        slab, start = self._reserve(nbytes)
        if slab not in self._allocated:
            self._allocated.append(slab)
        return np.ndarray(tuple(shape), dtype, slab.memory, start)

    def place(self, content: memoryview) -> Extent:
        """Return where in the result's slabs these bytes are; copy them in if necessary."""
        nbytes = content.nbytes
        address = _address(content) if self._allocated else 0
        for slab in self._allocated:
            offset = address - slab.address
            if 0 <= offset < slab.size:
                self._placed.add(slab.number)
                return slab.number, offset, nbytes
        slab, start = self._reserve(nbytes)
        self._placed.add(slab.number)
        slab.memory[start : start + nbytes] = content
        return slab.number, start, nbytes

    def _reserve(self, nbytes: int) -> tuple[Slab, int]:
        if self._filling and self._filled + nbytes <= self._filling[-1].size:
            start = self._filled
        else:
            slab = self._find_free(nbytes) or self._create(nbytes)
            slab.in_use = True
            self._filling.append(slab)
            start = _HEADER
        self._filled = _round_up(start + nbytes, ALIGNMENT)
        return self._filling[-1], start

    def _find_free(self, nbytes: int) -> Slab | None:
        """Return the smallest free slab with room for this many bytes."""
        free = (s for s in self._all if not s.in_use and s.size >= _HEADER + nbytes)
        return min(free, key=lambda slab: slab.size, default=None)

    def _create(self, nbytes: int) -> Slab:
        size = _slab_size(nbytes)
        if self._filling:  # the result has several arrays: leave room for the next
            size = max(size, min(2 * self._filling[-1].size, _LARGEST_AHEAD))
        slab = self._publish_new(next(self._numbers), size)
        self._all.append(slab)
        return slab

    def _publish_new(self, number: int, size: int) -> Slab:
        fd = os.memfd_create("flowdsl", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(fd, 0, size)
            slab = Slab(number, _mapped(fd, size))
            self._publish(number, fd)
        finally:
            os.close(fd)
        return slab


WORTH_SHARING = 8192
"""Arrays of at least this many bytes are sent in a slab; for smaller ones a message is as fast."""


class _View(MemoryOfElement):
    """A view of a whole slab for one result; it is the base of the result's arrays."""


@attrs.define(eq=False)
class Window:
    """The consumer's side of the slabs: all slabs that one worker has sent."""

    _slabs: dict[int, Slab] = attrs.field(factory=dict[int, Slab])
    _views: dict[int, weakref.ref[_View]] = attrs.field(factory=dict[int, "weakref.ref[_View]"])
    """Weak references to the views in use, by their ``id``, since they cannot be hashed."""

    def attach(self, number: int, fd: int) -> None:
        """Map a slab that the worker created, and close ``fd``."""
        try:
            self._slabs[number] = Slab(number, _mapped(fd, os.fstat(fd).st_size))
        finally:
            os.close(fd)

    def detach(self) -> None:
        """Release all slabs; a slab that is still viewed is freed with its last view."""
        self._slabs.clear()

    @property
    def begun(self) -> int | None:
        """The number of the last task that the worker began; None if it began none."""
        mark = self._slabs.get(_MARK)
        number = 0 if mark is None else int(_BEGUN.unpack_from(mark.memory)[0])
        return number - 1 if number else None

    def cancel(self) -> None:
        """Make the worker end its tasks after the current element."""
        if (mark := self._slabs.get(_MARK)) is not None:
            mark.memory[_CANCELLED] = 1

    def reset_marks(self) -> None:
        """Clear the marks of the tasks of a pass, since the next one may use the same numbers."""
        if (mark := self._slabs.get(_MARK)) is not None:
            _BEGUN.pack_into(mark.memory, 0, 0)
            mark.memory[_CANCELLED] = 0

    def drop(self, numbers: Sequence[int]) -> None:
        """Release slabs that the worker has dropped."""
        for number in numbers:
            self._slabs.pop(number, None)

    def nbytes(self, extents: Sequence[Extent]) -> int:
        """Return the bytes of memory that these extents keep in use: their whole slabs."""
        return sum(self._slabs[number].size for number in {number for number, _, _ in extents})

    def has(self, extents: Sequence[Extent]) -> bool:
        """Return True if every slab of these extents is attached."""
        return all(number in self._slabs for number, _, _ in extents)

    def buffers(self, extents: Sequence[Extent]) -> list[NDArray[np.uint8]]:
        """Return views of the bytes at these extents; a slab stays in use while viewed."""
        numbers = {number for number, _, _ in extents}
        views = {number: self._view(self._slabs[number]) for number in numbers}
        return [views[number][start : start + size] for number, start, size in extents]

    def discard(self, extents: Sequence[Extent]) -> None:
        """Mark the slabs of an unused result as free."""
        # Clear each slab only once: the worker may fill it again as soon as it is free.
        for number in {number for number, _, _ in extents}:
            if number in self._slabs:
                self._slabs[number].in_use = False

    def _view(self, slab: Slab) -> _View:
        """Create a view of a slab for one result; it is collected after the result's arrays."""
        view = _View((slab.size,), np.uint8, slab.memory)

        getpid = os.getpid  # at exit, modules may be cleared before the last view is collected
        process = getpid()

        def release(ref: weakref.ref[_View]) -> None:
            del self._views[id(ref)]
            if getpid() == process:  # a fork's copy of the view must not free the slab
                slab.in_use = False

        ref = weakref.ref(view, release)
        self._views[id(ref)] = ref
        return view
