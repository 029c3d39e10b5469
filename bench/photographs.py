"""Real image files: a thousand JPEG files, and where each is cut.

They are parts of the two photographs that scikit-learn bundles, of 360 x 480 pixels, as a camera's
program stores them. They are written once, into the folder for temporary files.
"""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import flowdsl as fl

FILES = 1000
HEIGHT, WIDTH = 360, 480
SIZE = 224


@cache
def folder() -> Path:
    """The folder of the files ``0.jpg`` to ``999.jpg``."""
    found = Path(tempfile.gettempdir()) / f"flowdsl-photographs-{os.getuid()}"
    if not found.exists():
        images: Any = import_module("PIL.Image")
        whole = [images.fromarray(photograph) for photograph in _photographs()]
        found.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=found.parent) as beside:
            new = Path(beside) / "new"
            new.mkdir()
            for i in range(FILES):
                draw = random.Random(i)
                left, top = draw.randint(0, 640 - WIDTH), draw.randint(0, 427 - HEIGHT)
                part = whole[i % 2].crop((left, top, left + WIDTH, top + HEIGHT))
                part.save(new / f"{i}.jpg", quality=90)
            with contextlib.suppress(OSError):  # another process was first
                new.rename(found)
    return found


@cache
def store() -> Path:
    """An LMDB file of the same, row ``k`` the bytes of file ``k.jpg``."""
    found = folder().with_name(f"{folder().name}.lmdb")
    if not found.exists():
        fl.from_items(names()).map(_bytes).write_lmdb(found)
    return found


def names() -> list[str]:
    """The files, by their number."""
    return [str(folder() / f"{k}.jpg") for k in range(FILES)]


def _bytes(name: str) -> bytes:
    return Path(name).read_bytes()


def _photographs() -> Any:
    return import_module("sklearn.datasets").load_sample_images().images


@cache
def crop(k: int) -> tuple[int, int, int, int, bool]:
    """Where file ``k`` is cut: top, left, height and width, and whether it is flipped.

    As a random resized crop draws it (Szegedy et al., 2015): a part of 0.2 to 1 of its area.
    """
    draw = random.Random(k)
    share, aspect = draw.uniform(0.2, 1), draw.uniform(3 / 4, 4 / 3)
    height = min(HEIGHT, round((share * HEIGHT * WIDTH / aspect) ** 0.5))
    width = min(WIDTH, round((share * HEIGHT * WIDTH * aspect) ** 0.5))
    top, left = draw.randint(0, HEIGHT - height), draw.randint(0, WIDTH - width)
    return top, left, height, width, draw.random() < 0.5
