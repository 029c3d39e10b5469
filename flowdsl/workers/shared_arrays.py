"""What a program refers to and is large: it travels once, beside the program.

An array of many megabytes, such as a table that a function looks into, is written once into shared
memory. Each worker maps it: privately, so that what a function writes into it is its own, as it
would be in a copy. A ``numpy.memmap`` is not read at all: each worker maps the file. A tensor of
PyTorch, as in a dataset, travels as the array that it is.
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

LARGE = 1 << 20
"""Arrays of at least so many bytes travel beside the program."""

_ALIGNMENT = 64


@attrs.frozen
class BufferLayout:
    """Where buffers lie in one piece of shared memory."""

    path: str
    """The name of the memory, as long as the process lives that made it."""
    sizes: tuple[int, ...]

    @property
    def ends(self) -> list[int]:
        """The end of each, with what is left free behind it."""
        return list(accumulate(-(-size // _ALIGNMENT) * _ALIGNMENT for size in self.sizes))

    def buffers(self, memory: mmap.mmap) -> list[memoryview]:
        """Views of the buffers."""
        whole = memoryview(memory)
        starts = [0, *self.ends[:-1]]
        return [whole[a : a + n] for a, n in zip(starts, self.sizes, strict=True)]


class SharedArrays:
    """Buffers in shared memory, made once; equal if their contents are."""

    def __init__(self, buffers: Sequence[memoryview]) -> None:
        """Copy the buffers.

        Raises:
            OSError: There is not as much memory.
        """
        fd = os.memfd_create("flowdsl", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, fd).atexit = False
        sizes = tuple(buffer.nbytes for buffer in buffers)
        self.layout = BufferLayout(f"/proc/{os.getpid()}/fd/{fd}", sizes)
        os.posix_fallocate(fd, 0, self.layout.ends[-1])
        self._memory = mmap.mmap(fd, self.layout.ends[-1])
        for new, old in zip(self.layout.buffers(self._memory), buffers, strict=True):
            np.frombuffer(new, np.uint8)[:] = np.frombuffer(old, np.uint8)

    def holds(self, buffers: Sequence[memoryview]) -> bool:
        """Whether these are the contents."""
        mine = self.layout.buffers(self._memory)
        return len(mine) == len(buffers) and all(
            np.array_equal(np.frombuffer(x, np.uint8), np.frombuffer(y, np.uint8))
            for x, y in zip(mine, buffers, strict=True)
        )


def mapped(layout: BufferLayout) -> list[memoryview]:
    """The buffers, for this process alone to change."""
    with open(layout.path, "rb") as file:
        memory = mmap.mmap(file.fileno(), layout.ends[-1], flags=mmap.MAP_PRIVATE)
    return layout.buffers(memory)


def reduced(array: np.memmap[Any, Any]) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """How to map an array's file elsewhere; None if that would not give the same array.

    Where the map is a private copy, or the file has no name any more, only the array's values are
    what the function saw.
    """
    root = array
    while isinstance(root.base, np.memmap):
        root = root.base
    if root.mode == "c" or root.filename is None or not os.path.exists(root.filename):
        return None
    offset = array.ctypes.data - root.ctypes.data
    how = (os.fspath(root.filename), root.mode, root.offset, root.nbytes)
    return _mapped_file, (*how, array.dtype, array.shape, array.strides, offset)


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
    again: Any = "r+" if mode == "w+" else mode
    whole: np.memmap[Any, Any] = np.memmap(path, np.uint8, again, start, (nbytes,))
    return np.ndarray.__new__(np.memmap, shape, dtype, whole, offset, strides)


def reduced_tensor(value: object) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """How to make a large tensor of PyTorch of its array; None if it is none, or has no array.

    PyTorch itself would put a copy of its values into the pickle.
    """
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not getattr(torch, "Tensor", None):
        return None
    tensor: Any = value
    try:
        array = tensor.numpy()  # refused on another device, with a gradient, of a dtype of its own
    except (RuntimeError, TypeError):
        return None
    whole = array.flags.c_contiguous and not vars(tensor)  # what else it is would be lost
    return (_tensor, (array,)) if whole and array.nbytes >= LARGE else None


def _tensor(array: np.ndarray[Any, Any]) -> Any:
    return import_module("torch").from_numpy(array)
