"""Hidden folders for what is not complete yet, swept after writers that were killed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

_PREFIX = ".flowdsl-"
_MARK = ".made-by-flowdsl"
"""An empty file in each folder: what has none is somebody else's, whatever its name."""
_YOUNG = 60.0
"""Seconds within which a folder may not be locked yet."""


@contextmanager
def temporary_directory(parent: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder that is removed at the end of the block, or by the next one if it is killed.

    Its owner holds a lock on it, which ends with the process.
    """
    _sweep(parent)
    with TemporaryDirectory(prefix=_PREFIX, dir=parent) as name:
        Path(name, _MARK).touch()
        lock = _locked(name)
        try:
            yield Path(name)
        finally:
            if lock is not None:
                os.close(lock)


def _sweep(parent: str | os.PathLike[str]) -> None:
    with os.scandir(parent) as entries:
        left = [entry for entry in entries if entry.name.startswith(_PREFIX)]
    for entry in left:
        with suppress(OSError):  # another program's, or gone meanwhile
            if _is_ours(entry) and time.time() - entry.stat().st_mtime > _YOUNG:
                lock = _locked(entry.path)
                if lock is not None:
                    shutil.rmtree(entry.path)
                    os.close(lock)


def _is_ours(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) and os.path.exists(os.path.join(entry, _MARK))


def _locked(folder: str) -> int | None:
    """A descriptor that holds the folder's lock, unless another has it or none can be had."""
    try:
        import fcntl  # not on Windows
    except ImportError:
        return None
    held = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return None
    return held
