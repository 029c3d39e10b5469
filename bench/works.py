"""The works: what every contestant has to deliver, defined once.

A row is a pair of an array and the row's number, so that what was delivered can be checked. Rows
are cheap to make, but for the ones that are all about that: what is measured is the way to the
consumer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from bench import photographs

Row: TypeAlias = tuple[NDArray[Any], Any]
"""An array, and the number of the row."""
Rows: TypeAlias = fl.Flow[Row, fl.Finite]


@cache
def _table() -> NDArray[np.float32]:
    return np.random.default_rng(0).random((1024, 8), np.float32)


@cache
def _images(dtype: str) -> NDArray[Any]:
    pixels = np.random.default_rng(0).integers(0, 256, (32, 224, 224, 3), np.uint8)
    return pixels.astype(dtype)


def tiny(i: int) -> Row:
    """Eight numbers."""
    return _table()[i % 1024], i


def image(dtype: str, i: int) -> Row:
    """An image in the worker's memory: copying it is the work."""
    return _images(dtype)[i % 32], i


def fresh(dtype: str, i: int) -> Row:
    """A newly allocated image, as decoders and augmenters return: the page faults are the work."""
    return np.add(_images("uint8")[i % 32], 1, dtype=dtype), i


@cache
def _matrices() -> NDArray[np.float32]:
    return np.random.default_rng(0).integers(0, 2, (32, 256, 256)).astype(np.float32)


def products(i: int) -> Row:
    """Matrix products by NumPy's BLAS, which has threads of its own; of 0 and 1, so exact."""
    x = _matrices()[i % 32]
    for _ in range(4):
        x = (x @ x > 64).astype(np.float32)
    return x, i


def jpeg(i: int) -> Row:
    """A photograph from its file: decoded, cut at random, brought to one size, perhaps flipped.

    By simplejpeg, the fastest of five decoders here, and OpenCV, which gives what tf.data gives.
    """
    decoder, cv2 = _libraries()
    k = i % photographs.FILES
    top, left, height, width, flip = photographs.crop(k)
    whole = decoder.decode_jpeg((photographs.folder() / f"{k}.jpg").read_bytes())
    part = whole[top : top + height, left : left + width]
    x = cv2.resize(part, (photographs.SIZE, photographs.SIZE), interpolation=cv2.INTER_LINEAR)
    return (np.ascontiguousarray(x[:, ::-1]) if flip else x), i


@cache
def _libraries() -> tuple[Any, Any]:
    cv2: Any = import_module("cv2")
    cv2.setNumThreads(0)  # the workers are those that run side by side
    return import_module("simplejpeg"), cv2


def file(i: int) -> Row:
    """A photograph from its file, all of it brought to one size."""
    data = (photographs.folder() / f"{i % photographs.FILES}.jpg").read_bytes()
    return fl.decode_image(data, resize=photographs.SIZE), i


def files(rows: int) -> Rows:
    images = fl.from_images(photographs.names(), resize=photographs.SIZE)
    return images.repeat().take(rows).enumerate().select(fl.c1, fl.c0)


def stored(i: int) -> Row:
    """A photograph from an LMDB file."""
    return fl.decode_image(_row()(i % photographs.FILES), resize=photographs.SIZE), i


@cache
def _row() -> Callable[[int], bytes]:
    node: Any = fl.from_lmdb(photographs.store(), bytes).node
    read: Callable[[int], bytes] = node.open()
    return read


def store(rows: int) -> Rows:
    decode = partial(fl.decode_image, resize=photographs.SIZE)
    images = fl.from_lmdb(photographs.store(), bytes).repeat().map(decode)
    return images.take(rows).enumerate().select(fl.c1, fl.c0)


def spin(loops: int, i: int) -> Row:
    """Python that takes its time, and holds the interpreter's lock."""
    x = i
    for _ in range(loops):
        x = x * 3 & 0xFFFF
    return _table()[i % 1024], i


def timed_spin(loops: int, i: int) -> Row:
    """The same, but the array tells the seconds that it took."""
    began = time.perf_counter()
    spin(loops, i)
    return np.array([time.perf_counter() - began]), i


@attrs.frozen
class Work:
    """Rows, and how they are to be delivered."""

    name: str
    read: Callable[[int], Row]
    batch: int
    target: float
    """How many times as fast as the best of the others flowdsl is to be."""
    needs: tuple[str, ...] = ()
    """The packages without which it is left out."""
    flow: Callable[[int], Rows] | None = None
    """So many rows of it as flowdsl's own sources read them; else ``read`` is mapped."""

    def rows(self, n: int) -> Rows:
        """So many rows of it, for flowdsl."""
        return self.flow(n) if self.flow else fl.from_range(n).map(self.read)


_FOR_JPEG = ("PIL", "sklearn", "simplejpeg", "cv2")
WORKS = {
    "tiny": Work("tiny rows, batch 64", tiny, 64, 2.5),
    "uint8": Work("224x224x3 uint8, batch 32", partial(image, "uint8"), 32, 3.0),
    "float32": Work("224x224x3 float32, batch 32", partial(image, "float32"), 32, 2.5),
    "fresh-uint8": Work("... newly allocated, uint8", partial(fresh, "uint8"), 32, 3.0),
    "fresh-float32": Work("... newly allocated, float32", partial(fresh, "float32"), 32, 2.5),
    "products": Work("four products of 256x256, batch 8", products, 8, 1.0),
    "jpeg": Work("JPEG files cut to 224x224x3, batch 32", jpeg, 32, 1.0, _FOR_JPEG),
    "files": Work("JPEG files shrunk to 224x224x3, batch 32", file, 32, 1.0, _FOR_JPEG, files),
    "lmdb": Work("... from LMDB", stored, 32, 1.0, _FOR_JPEG, store),
}


def python_work(loops: int, timed: bool = False) -> Work:
    """Rows that take so many turns of a Python loop; its target is the two cores' limit."""
    read = partial(timed_spin if timed else spin, loops)
    return Work("200 µs of Python a row, batch 32", read, 32, 0.98)


ROWS = 10**9
"""More than anybody delivers: a pass is cut short when its time is up."""
