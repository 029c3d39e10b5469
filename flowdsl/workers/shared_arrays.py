"""Shared arrays: large arrays of a program are sent to workers once, through shared memory.

The problem: a pickled program contains a copy of every array its functions refer to, such as a
lookup table of many megabytes, and each worker would receive and store its own copy. The choice:
large arrays are written once into shared memory, and each worker maps it privately. Pages are
shared until a function writes to them, and a write is visible only to its own worker, as with a
copy. A ``numpy.memmap`` is not read at all: each worker maps the file. A PyTorch tensor, as in a
dataset, is sent as a NumPy array.
"""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import accumulate
from typing import Any

import attrs
import numpy as np

from flowdsl.errors import FlowError
from flowdsl.resources.limits import explained

LARGE = 1 << 20
"""Arrays of at least this many bytes are sent through shared memory."""

_ALIGNMENT = 64


@attrs.frozen
class BufferLayout:
    """The layout of buffers in one block of shared memory."""

    path: str
    """The path of the memory, valid while the process that created it is alive."""
    sizes: tuple[int, ...]

    @property
    def ends(self) -> list[int]:
        """The end of each buffer, including its padding."""
        return list(accumulate(-(-size // _ALIGNMENT) * _ALIGNMENT for size in self.sizes))

    def buffers(self, memory: mmap.mmap) -> list[memoryview]:
        """Return views of the buffers."""
        whole = memoryview(memory)
        starts = [0, *self.ends[:-1]]
        return [whole[a : a + n] for a, n in zip(starts, self.sizes, strict=True)]


class SharedArrays:
    """Buffers in shared memory, written once."""

    def __init__(self, buffers: Sequence[memoryview]) -> None:
        """Copy the buffers.

        Raises:
            FlowError: There is not enough memory.
        """
        try:
            self._copy(buffers)
        except OSError as error:
            raise FlowError(
                f"prefetch: the large arrays that functions refer to cannot be copied into shared "
                f"memory: {explained(error)}"
            ) from error

    def _copy(self, buffers: Sequence[memoryview]) -> None:
        fd = os.memfd_create("flowdsl", os.MFD_CLOEXEC)
        closing = weakref.finalize(self, os.close, fd)
        closing.atexit = False  # workers may open the memory by its path until this process ends
        sizes = tuple(buffer.nbytes for buffer in buffers)
        self.layout = BufferLayout(f"/proc/{os.getpid()}/fd/{fd}", sizes)
        os.posix_fallocate(fd, 0, self.layout.ends[-1])
        self._memory = mmap.mmap(fd, self.layout.ends[-1])
        for new, old in zip(self.layout.buffers(self._memory), buffers, strict=True):
            np.frombuffer(new, np.uint8)[:] = np.frombuffer(old, np.uint8)

    def holds(self, buffers: Sequence[memoryview]) -> bool:
        """Return True if the buffers in shared memory have the same contents as these."""
        mine = self.layout.buffers(self._memory)
        return len(mine) == len(buffers) and all(
            np.array_equal(np.frombuffer(x, np.uint8), np.frombuffer(y, np.uint8))
            for x, y in zip(mine, buffers, strict=True)
        )


def mapped(layout: BufferLayout) -> list[memoryview]:
    """Map the buffers privately: writes are visible only in this process."""
    with open(layout.path, "rb") as file:
        memory = mmap.mmap(file.fileno(), layout.ends[-1], flags=mmap.MAP_PRIVATE)
    return layout.buffers(memory)


def pickled_as_file(
    array: np.memmap[Any, Any],
) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """Return the ``__reduce__`` tuple that maps an array's file; None if its values must be sent.

    The values must be sent if the map is copy-on-write, which hides changes from the file, or if
    the file was deleted: a file of that name may hold other values.
    """
    root = array
    while isinstance(root.base, np.memmap):
        root = root.base
    if root.mode == "c" or root.filename is None or not os.path.exists(root.filename):
        return None
    offset = array.ctypes.data - root.ctypes.data
    file = (os.fspath(root.filename), root.mode, root.offset, root.nbytes)
    return _mapped_file, (*file, array.dtype, array.shape, array.strides, offset)


def _mapped_file(
    path: str,
    mode: str,
    start: int,
    nbytes: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
) -> np.memmap[Any, Any]:
    reopened: Any = "r+" if mode == "w+" else mode
    whole: np.memmap[Any, Any] = np.memmap(path, np.uint8, reopened, start, (nbytes,))
    return np.ndarray.__new__(np.memmap, shape, dtype, whole, offset, strides)


def pickled_as_array(value: object) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """Return the ``__reduce__`` tuple that creates a large PyTorch tensor from a NumPy array.

    Return None if the value is not such a tensor, or cannot be represented as an array. PyTorch's
    own pickling would copy the values of the tensor into the pickle.
    """
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not getattr(torch, "Tensor", None):
        return None
    tensor: Any = value
    try:
        array = tensor.numpy()  # raises on another device, with a gradient, or for some dtypes
    except (RuntimeError, TypeError):
        return None
    is_lossless = array.flags.c_contiguous and not vars(tensor)  # no strides or attributes to lose
    return (_tensor, (array,)) if is_lossless and array.nbytes >= LARGE else None


def _tensor(array: np.ndarray[Any, Any]) -> Any:
    return import_module("torch").from_numpy(array)
