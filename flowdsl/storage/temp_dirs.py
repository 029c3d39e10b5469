"""Hidden folders for unfinished files; leftovers of killed writers are removed."""

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
"""An empty file in each such folder: a folder without it belongs to another program."""
_YOUNG = 60.0
"""The age in seconds below which a folder may be not locked yet."""


@contextmanager
def temporary_directory(parent: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a folder that is removed at the end of the block.

    The process holds a lock on the folder. If the process is killed, the lock ends, and the next
    call for the same parent removes the folder.
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
        with suppress(OSError):  # not readable, or removed in the meantime
            if _is_ours(entry) and time.time() - entry.stat().st_mtime > _YOUNG:
                lock = _locked(entry.path)
                if lock is not None:
                    shutil.rmtree(entry.path)
                    os.close(lock)


def _is_ours(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) and os.path.exists(os.path.join(entry, _MARK))


def _locked(folder: str) -> int | None:
    """Return a descriptor that locks the folder; None if it is locked or locks do not exist."""
    try:
        import fcntl  # not on Windows
    except ImportError:
        return None
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
