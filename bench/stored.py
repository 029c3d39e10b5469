"""What the benches of stored rows read: arrays and photographs, written once for all turns."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import photographs
from bench.rates import Pass

LARGE, ROWS = 100_000, 1_000
ROWS_OF = {LARGE: ROWS, 10_000: 5_000, 1_000: 20_000}
"""How many arrays of each size are stored."""
BATCH, PROCS, SIDE = 32, 2, 224


def stored(name: str, write: Callable[[Path], object]) -> str:
    """The path of a file or folder, written once for all turns."""
    folder = Path(tempfile.gettempdir()) / f"flowdsl-bench-storage-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    path = folder / name
    if not path.exists():
        write(path)
        for file in [path] if path.is_file() else filter(Path.is_file, path.rglob("*")):
            _read_from_disk(file)
    return str(path)


def _read_from_disk(path: Path) -> None:
    """Let the system cache a file as it was read, and not as it was written.

    A file that is written page by page is cached in single pages. ``pread`` takes twice as long to
    copy from these as from the larger ones in which the system reads ahead.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while file.read(1 << 20):
            pass


def array(size: int, i: int) -> NDArray[np.uint8]:
    """The stored array with number ``i``."""
    return np.random.default_rng(i).integers(0, 255, size, np.uint8)


def image_names() -> list[str]:
    """The paths of the photographs."""
    return [str(photographs.folder() / f"{k}.jpg") for k in range(photographs.FILES)]


def each_once(size: int, begin: Pass, rows_of: Callable[[Any], Any]) -> Pass:
    """The passes of a contestant, which has shown that its batches have each array once.

    ``rows_of`` returns the rows of a batch as an array.
    """
    found = [np.asarray(rows_of(batch)).reshape(-1, size)[:, :8] for batch in begin()]
    expected = np.stack([array(size, i)[:8] for i in range(ROWS_OF[size])])
    ours, right = (np.sort(x.copy().view("u8"), axis=0) for x in (np.concatenate(found), expected))
    if not np.array_equal(ours, right):
        raise SystemExit(f"{len(ours)} rows came, or others, of {len(right)}")
    return begin


def each_image(begin: Pass) -> Pass:
    """The passes of a contestant, which has shown that it has as many images as there are."""
    came = sum(len(batch) for batch in begin())
    if came != photographs.FILES:
        raise SystemExit(f"{came} images came of {photographs.FILES}")
    return begin
