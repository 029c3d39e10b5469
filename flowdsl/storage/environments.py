"""LMDB files open for reading, each once in a process."""

from __future__ import annotations

import os
import weakref
from threading import RLock

import lmdb

from flowdsl.errors import SourceError

_Identity = tuple[int, int]
_environments: dict[_Identity, lmdb.Environment] = {}
_users: set[tuple[_Identity, int]] = set()
_lock = RLock()  # reentrant: a file may be collected while another is opened


class Environment:
    """An LMDB file, open for reading at one state.

    LMDB forbids a process to open a file twice, so all readers share one environment, which is
    closed with the last reader. A file replaced under the same path is another file.
    """

    def __init__(self, reader: str, path: str, expected: str, margin: int = 0) -> None:
        """``margin``: how many bytes must follow the last page; ``expected``: told in errors."""
        self.path = path
        try:
            status = os.stat(path)
            identity = status.st_dev, status.st_ino
            with _lock:
                _users.add(user := (identity, id(self)))  # now no other reader closes the file
                weakref.finalize(self, _release, user)
                if identity not in _environments:
                    _environments[identity] = _map(path, status.st_size)
                environment = self._environment = _environments[identity]
            self.transaction = environment.begin()
            pages = environment.info()["last_pgno"] + 1
            needed = pages * self.transaction.stat()["psize"] + margin
            if environment.info()["map_size"] < needed <= status.st_size:
                raise lmdb.MapResizedError("the map is too small")
        except lmdb.MapResizedError as error:
            raise SourceError(
                f"{reader}: {path!r} has grown since this process opened it: try again when the "
                f"passes that read it have ended"
            ) from error
        except (lmdb.Error, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise SourceError(
                f"{reader}: {path!r} cannot be opened: {reason}; expected {expected}"
            ) from error
        if status.st_size < needed:
            raise SourceError(
                f"{reader}: {path!r} is cut short, or no {expected.removeprefix('a ')}: it "
                f"has {status.st_size} bytes and needs {needed}"
            )

    def get(self, key: bytes) -> bytes | None:
        return self.transaction.get(key)

    def changed(self) -> bool:
        """Whether the file was written to since it was opened."""
        return bool(self._environment.info()["last_txnid"] != self.transaction.id())


def _map(path: str, size: int) -> lmdb.Environment:
    return lmdb.open(path, size, subdir=False, readonly=True, lock=False, readahead=False)


def _release(user: tuple[_Identity, int]) -> None:
    identity, _ = user
    with _lock:
        _users.discard(user)
        # Between any two steps the garbage collector may release another file, and so call this
        # again: each call checks a copy made in one step, and the last user closes the file.
        if all(other != identity for other, _ in _users.copy()):
            environment = _environments.pop(identity, None)
            if environment is not None:
                environment.close()
