"""write_lmdb: a new file that appears when it is complete, or rows appended to a file in place.

Appending writes transactions. Each one contains rows, and a header that counts all rows and says
whether the writer finished. A writer that is killed at any moment therefore leaves the file as it
was, or with more of the first rows, and readers can detect an incomplete file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Self

import attrs
import lmdb
from filelock import BaseFileLock, FileLock, Timeout

from flowdsl.effects import Finite
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import FlowBase
from flowdsl.storage.lmdb.rows import KEY_OF_HEADER, MARGIN_BYTES, VERSION, Batch, RowsFile
from flowdsl.storage.paths import URL_REMEDY, OnePath, local_path
from flowdsl.storage.temp_dirs import move_new, temporary_directory
from flowdsl.storage.writing import RowsToWrite, os_error_behind, refuse_endless, write_file

_FIRST_MAP_BYTES = 1 << 24
_GROWTH_BYTES = 1 << 36
"""The growth in bytes before the file must be mapped again, which ends the protection of
readers from changes. This reserves address space only; less where that is limited."""
_LEAST_GROWTH_BYTES = 1 << 24
_ROOM_PAGES = 1024
"""Spare pages in addition to the pages that a transaction needs for its rows."""


def write(
    flow: FlowBase[object, Finite],
    path: OnePath,
    overwrite: bool = False,
    append: bool = False,
    trusted: bool = False,
) -> int:
    """Write the elements of a flow, as its method ``write_lmdb`` does."""
    refuse_endless("write_lmdb", flow)
    if overwrite and append:
        raise InvalidFlow("write_lmdb: overwrite=True and append=True exclude each other")
    with _target_file(path) as target:
        if append:
            return _append(flow, target, os.fspath(path), trusted)
        return write_file("write_lmdb", flow, target, overwrite, partial(write_rows, trusted))


@contextmanager
def _target_file(path: OnePath) -> Iterator[str]:
    """Yield the file to write; a folder is created for it if needed, and removed if left empty."""
    folder = local_path("write_lmdb", path, remedy=URL_REMEDY)
    if not (os.path.isdir(folder) or os.fspath(path).endswith(os.sep)):
        yield os.fspath(path)
        return
    created = not os.path.exists(folder)
    if created:
        try:
            os.mkdir(folder)
        except OSError as error:
            raise InvalidFlow(
                f"write_lmdb: the folder {folder!r} cannot be made: {error.strerror}"
            ) from error
    else:
        _check_folder(folder)
    try:
        yield os.path.join(folder, "data.mdb")
    finally:
        with suppress(OSError):  # fails if the folder contains a file now
            if created:
                os.rmdir(folder)


def _check_folder(folder: str) -> None:
    if not os.path.isdir(folder):
        raise InvalidFlow(f"write_lmdb: {folder!r} is a file, not a folder; remove the final '/'")
    for name in os.listdir(folder):
        if name not in ("data.mdb", "lock.mdb") and not name.startswith((".flowdsl-", "data.mdb-")):
            raise InvalidFlow(
                f"write_lmdb: {folder!r} exists; it is a folder that holds {name!r}, and a folder "
                f"of LMDB holds only data.mdb and lock.mdb"
            )


def write_rows(trusted: bool, path: Path, elements: Iterable[object], chain: str = "") -> None:
    """Write rows to a new file; ``chain`` is the digest of the chain whose rows ``cache`` keeps."""
    batch = Batch(trusted)
    with _errors_of_the_disk():
        with lmdb.open(
            str(path), subdir=False, lock=False, map_size=_FIRST_MAP_BYTES, sync=False, mode=0o666
        ) as env:
            for row in elements:
                batch.add(row)
                if batch.full:
                    _commit(env, batch.take())
            _commit(env, [*batch.take(), batch.header(complete=True, chain=chain)])
            env.sync(True)
        os.truncate(path, path.stat().st_size + MARGIN_BYTES)


@contextmanager
def _errors_of_the_disk() -> Iterator[None]:
    """Raise LMDB's errors as the OSErrors behind them."""
    try:
        yield
    except lmdb.Error as error:
        if isinstance(error, lmdb.DiskError):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise os_error_behind(error) from error


def _commit(env: lmdb.Environment, pairs: list[tuple[bytes, bytes]]) -> None:
    while True:
        try:
            with env.begin(write=True) as txn:
                for key, value in pairs:  # in the order of keys, which fills pages
                    txn.put(key, value, append=True)
            return
        except lmdb.MapFullError:  # the transaction was rolled back: grow the map and retry
            env.set_mapsize(env.info()["map_size"] * 2)


# -- appending to a file in place ------------------------------------------------------------------


def _append(flow: FlowBase[object, Finite], target: str, name: str, trusted: bool) -> int:
    path = Path(os.path.realpath(local_path("write_lmdb", target, remedy=URL_REMEDY)))
    if not path.parent.is_dir():
        raise InvalidFlow(f"write_lmdb: no folder {str(path.parent)!r}; make it first")
    rows = RowsToWrite("write_lmdb", flow, name, path)
    with rows.error_context(), _errors_of_the_disk(), _Growing(path) as store:
        batch = store.begin(trusted)
        rows.before = path.stat().st_size if store.is_open else 0
        try:
            with closing(rows.with_progress()) as elements:
                _append_rows(store, batch, elements)
        except BaseException as error:
            if store.started:
                error.add_note(
                    f"write_lmdb: {name!r} holds {store.length} rows and is incomplete; "
                    f"write_lmdb(path, append=True) adds the missing rows"
                )
            raise
    return rows.count


def _append_rows(store: _Growing, batch: Batch, rows: Generator[object]) -> None:
    for row in rows:
        batch.add(row)
        if batch.due:
            store.commit(batch, complete=False)
    store.commit(batch, complete=True)


@attrs.define(eq=False)
class _Growing:
    """A file to which one writer at a time appends rows, while others read it."""

    path: Path
    length: int = 0
    """The number of rows in the file."""
    started: bool = False
    """True if rows were added and the file is incomplete."""
    _growth: int = _GROWTH_BYTES
    _lock: BaseFileLock | None = None
    _env: lmdb.Environment | None = None
    _before: lmdb.Transaction | None = None
    """A read transaction that keeps the pages of earlier rows from being reused."""

    def __enter__(self) -> Self:
        return self

    @property
    def is_open(self) -> bool:
        return self._env is not None

    def begin(self, trusted: bool) -> Batch:
        """Open the file if it exists; return a batch to which rows are added."""
        if not self.path.exists():
            return Batch(trusted)
        self._acquire()
        header, spec = RowsFile(str(self.path)).header()
        if header.version != VERSION:
            raise InvalidFlow(
                f"write_lmdb: {str(self.path)!r} has format version {header.version}, to which "
                f"nothing is added: rewrite it with fl.from_lmdb(path).write_lmdb(path, "
                f"overwrite=True)"
            )
        self.length = header.length
        self._open()
        return Batch(trusted, header.length, header.digest, spec if header.length else None)

    def _acquire(self) -> None:
        path = self.path.resolve()
        lock = FileLock(path.with_name(f".flowdsl-{path.name}-lock"), thread_local=False)
        try:
            lock.acquire(blocking=False)
        except Timeout as error:
            raise InvalidFlow(
                f"write_lmdb: {str(self.path)!r} is being appended to by another writer"
            ) from error
        self._lock = lock

    def _open(self) -> None:
        size = self.path.stat().st_size + self._growth
        try:
            # There is one reader, but before lmdb 2.2 it takes a second slot before it frees one.
            self._env = lmdb.open(str(self.path), size, subdir=False, max_readers=2)
        except lmdb.Error as error:
            if "already open in this process" not in str(error):
                with suppress(OSError):
                    os.unlink(f"{self.path}-lock")
                if os.strerror(errno.ENOMEM) in str(error) and self._growth > _LEAST_GROWTH_BYTES:
                    self._growth //= 2
                    self._open()
                    return
                raise
            raise InvalidFlow(
                f"write_lmdb: {str(self.path)!r} is open in this process, by LMDB itself: rows "
                f"can be added when it is closed"
            ) from error
        self._before = self._env.begin()

    def commit(self, batch: Batch, complete: bool) -> None:
        """Write the rows of a batch in one transaction."""
        if self._env is None:
            self._create(batch.trusted)
            self._acquire()
            self._open()
        pairs, header = batch.take(), batch.header(complete)
        while not self._put(pairs, header):
            self._grow()
        self.length, self.started = batch.length, not complete

    def _create(self, trusted: bool) -> None:
        """Create an empty file atomically."""
        with temporary_directory(self.path.parent) as folder:
            new = folder / self.path.name
            with lmdb.open(str(new), subdir=False, lock=False, mode=0o666) as env:
                _commit(env, [Batch(trusted).header(complete=False)])
            os.truncate(new, new.stat().st_size + MARGIN_BYTES)
            try:
                move_new(new, self.path)
            except FileExistsError as error:
                raise InvalidFlow(
                    f"write_lmdb: {str(self.path)!r} was made by another writer meanwhile"
                ) from error

    def _put(self, pairs: list[tuple[bytes, bytes]], header: tuple[bytes, bytes]) -> bool:
        """Write one transaction; return False if the map is too small for it."""
        assert self._env is not None
        try:
            with self._env.begin(write=True) as txn:
                txn.delete(KEY_OF_HEADER)
                pages = _pages(txn)
                for key, value in pairs:
                    txn.put(key, value, append=True)
                txn.put(*header, append=True)
                # Extend the file before pages are written: the process may be killed in between.
                self._make_room(_pages(txn) - pages + _ROOM_PAGES)
        except lmdb.MapFullError:
            return False
        return True

    def _make_room(self, more: int) -> None:
        size = self._used(more)
        if self.path.stat().st_size < size:
            os.truncate(self.path, size)

    def _used(self, more: int = 0) -> int:
        """Return the size of the file with ``more`` additional pages."""
        assert self._env is not None
        pages = self._env.info()["last_pgno"] + 1 + more
        return pages * self._env.stat()["psize"] + MARGIN_BYTES

    def _grow(self) -> None:
        assert self._env is not None
        assert self._before is not None
        self._before.abort()
        self._env.set_mapsize(self._env.info()["map_size"] + self._growth)
        self._before = self._env.begin()

    def __exit__(self, *_: object) -> None:
        try:
            if self._env is not None:
                assert self._before is not None
                size = self._used()
                self._before.abort()
                self._env.close()
                os.truncate(self.path, size)
                os.unlink(f"{self.path}-lock")
        finally:
            if self._lock is not None:
                remove_lock(self._lock)


def remove_lock(lock: BaseFileLock) -> None:
    """Remove the file of a lock while it is held, so that no other process has locked the file."""
    with suppress(PermissionError):  # Windows keeps open files; filelock then removes it
        os.unlink(lock.lock_file)
    lock.release()


def _pages(txn: lmdb.Transaction) -> int:
    stat = txn.stat()
    return int(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"])
