"""Hidden folders for unfinished files; leftovers of killed writers are removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

_PREFIX = ".flowdsl-"
_MARK = ".made-by-flowdsl"
"""An empty file in each such folder: a folder without it belongs to another program."""


@contextmanager
def temporary_directory(parent: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a folder that is removed at the end of the block.

    The process holds a lock on the folder. If the process is killed, the lock ends, and the next
    call for the same parent removes the folder.
    """
    _sweep(parent)
    with ExitStack() as stack:
        name = lock = None
        while lock is None or name is None:
            name = stack.enter_context(
                TemporaryDirectory(prefix=_PREFIX, dir=parent, ignore_cleanup_errors=True)
            )
            # None if another process has just mistaken the folder for a leftover
            lock = _locked(name, "xb")
        try:
            yield Path(name)
        finally:
            lock.release()


def move_new(file: Path, target: Path) -> None:
    """Move a file to a name that does not exist yet, on any file system.

    Raises:
        FileExistsError: It exists; of two processes that do this at once, only one succeeds.
    """
    try:
        os.link(file, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: whoever creates the file may replace it
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.replace(file, target)


def _sweep(parent: str | os.PathLike[str]) -> None:
    """Remove the folders of killed processes, whose locks are free."""
    with os.scandir(parent) as entries:
        left = [entry for entry in entries if entry.name.startswith(_PREFIX)]
    for entry in left:
        with suppress(OSError):  # not readable, or removed in the meantime
            if _is_ours(entry) and (lock := _locked(entry.path, "rb")) is not None:
                # The mark is removed first, so that nobody who waits for its lock uses the folder.
                with suppress(PermissionError):  # Windows removes it with the lock
                    os.unlink(lock.lock_file)
                lock.release()
                shutil.rmtree(entry.path)


def _is_ours(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) and os.path.exists(os.path.join(entry, _MARK))


def _locked(folder: str, mode: Literal["xb", "rb"]) -> BaseFileLock | None:
    """Return the lock of a folder, acquired; None if another process holds it or removes it.

    ``mode`` is "xb" to make the mark of a new folder, and "rb" to find one.
    """
    mark = os.path.join(folder, _MARK)
    lock = FileLock(mark, thread_local=False)
    try:
        if issubclass(FileLock, SoftFileLock):  # a system without locks: the file itself is one
            lock.acquire(blocking=False)
            return lock
        with open(mark, mode) as ours:  # while it is open, no other file has its number
            lock.acquire(blocking=False)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(ours.fileno()), os.stat(mark)):
                    return lock
    except (Timeout, FileNotFoundError, FileExistsError):
        return None
    # Another process has removed the mark and the folder, and acquiring the lock may have made both
    # again. The file that is locked now is not the one that other processes lock.
    lock.release()
    shutil.rmtree(folder, ignore_errors=True)
    return None
