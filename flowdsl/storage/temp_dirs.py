"""Hidden folders for unfinished files; leftovers of killed writers are removed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import BaseFileLock, FileLock, Timeout

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
                lock.release()


def _sweep(parent: str | os.PathLike[str]) -> None:
    with os.scandir(parent) as entries:
        left = [entry for entry in entries if entry.name.startswith(_PREFIX)]
    for entry in left:
        with suppress(OSError):  # not readable, or removed in the meantime
            if _is_ours(entry) and time.time() - entry.stat().st_mtime > _YOUNG:
                lock = _locked(entry.path)
                if lock is not None:
                    lock.release()  # Windows removes no file that is open
                    shutil.rmtree(entry.path)


def _is_ours(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) and os.path.exists(os.path.join(entry, _MARK))


def _locked(folder: str) -> BaseFileLock | None:
    """Return the lock of a folder, acquired; None if another process holds it."""
    lock = FileLock(os.path.join(folder, _MARK), thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    return lock
