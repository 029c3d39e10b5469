"""from_lmdb and write_lmdb: rows in an LMDB file, with random access by number."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload
from zlib import crc32

import attrs
import lmdb
import msgspec
from typing_extensions import TypeForm

from flowdsl import node
from flowdsl.effects import Endless, Exact, Finite
from flowdsl.errors import EndlessFlow, InvalidFlow, SourceError, SpecMismatch
from flowdsl.kinds import IndexedSource
from flowdsl.node import FlowBase, T
from flowdsl.specs import (
    UNKNOWN,
    Spec,
    as_declared,
    in_classes,
    join,
    meet,
    names_classes,
    spec_declared,
    spec_of,
)
from flowdsl.storage.codec import decode, encode, spec_from_plain, spec_to_plain

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")

_KEY_OF_HEADER = b"__flowdsl__"
_VERSION = 1
_CHECKSUM_BYTES = 4
_FIRST_MAP_BYTES = 1 << 24
_COMMIT_BYTES = 1 << 24
_COMMIT_ROWS = 1024
_MARGIN_BYTES = 1 << 17
"""Empty space after the last page. LMDB trusts a page's 16-bit offsets to a key and from there to
its row: in a damaged page they lead this far, and reading past the file's end kills the process."""


class _Header(msgspec.Struct, frozen=True):
    """The header of a file."""

    version: int
    length: int
    digest: int
    """The checksum of the rows' checksums: files with equal digests hold the same rows."""
    spec: dict[str, Any]


def _key(i: int) -> bytes:
    return b"%010d" % i


def _seal(i: int, data: bytes) -> bytes:
    """Row ``i`` with a checksum: LMDB itself detects neither flipped bits nor swapped rows."""
    return data + crc32(data, i).to_bytes(_CHECKSUM_BYTES, "little")


def _unseal(i: int, stored: bytes) -> memoryview:
    view = memoryview(stored)[:-_CHECKSUM_BYTES]
    if crc32(view, i).to_bytes(_CHECKSUM_BYTES, "little") != stored[-_CHECKSUM_BYTES:]:
        raise SourceError("its bytes are not those that were written: the checksum differs")
    return view


_Identity = tuple[int, int]
_environments: dict[_Identity, lmdb.Environment] = {}
_users: set[tuple[_Identity, int]] = set()
_lock = RLock()  # reentrant: a file may be collected while another is opened


class _File:
    """A complete file, open for reading at one state.

    LMDB forbids a process to open a file twice, so all readers share one environment, which is
    closed with the last reader. A file replaced under the same path is another file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            status = os.stat(path)
            identity = status.st_dev, status.st_ino
            with _lock:
                _users.add(user := (identity, id(self)))  # now no other reader closes the file
                weakref.finalize(self, _release, user)
                if identity not in _environments:
                    _environments[identity] = _map(path, status.st_size)
                environment = _environments[identity]
            self._transaction = environment.begin()
            pages = environment.info()["last_pgno"] + 1
            needed = pages * self._transaction.stat()["psize"] + _MARGIN_BYTES
        except (lmdb.Error, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise SourceError(
                f"from_lmdb: {path!r} cannot be opened: {reason}; expected a file that "
                f"flow.write_lmdb(path) made"
            ) from error
        if status.st_size < needed:
            raise SourceError(
                f"from_lmdb: {path!r} is cut short, or no file that flow.write_lmdb(path) made: "
                f"it has {status.st_size} bytes and needs {needed}"
            )

    def get(self, key: bytes) -> bytes | None:
        return self._transaction.get(key)

    def header(self) -> tuple[_Header, Spec]:
        """The file's header and spec; raises SourceError if they are invalid."""
        try:
            stored = _unseal(0, self.get(_KEY_OF_HEADER) or b"")
            header = msgspec.msgpack.decode(stored, type=_Header)
            spec = spec_from_plain(header.spec) if header.version == _VERSION else UNKNOWN
            rows = self._transaction.stat()["entries"] - 1
        except (
            *(SourceError, msgspec.MsgspecError, lmdb.Error),
            *(KeyError, TypeError, ValueError, RecursionError),
        ) as error:
            raise SourceError(
                f"from_lmdb: {self.path!r} has no valid flowdsl header; expected a file that "
                f"flow.write_lmdb(path) made"
            ) from error
        if header.version != _VERSION:
            raise SourceError(
                f"from_lmdb: {self.path!r} has format version {header.version}, this flowdsl "
                f"reads version {_VERSION}"
            )
        if rows != header.length:
            raise SourceError(
                f"from_lmdb: {self.path!r} is damaged: its header says {header.length} rows, it "
                f"holds {rows}"
            )
        return header, spec

    def row(self, i: int) -> Any:
        """The row of this number; raises SourceError if it is damaged."""
        try:
            stored = self.get(_key(i))
            if stored is None:
                raise SourceError("it is missing")
            return decode(_unseal(i, stored))
        except (SourceError, lmdb.Error) as error:
            raise SourceError(f"{self.path!r}: row {i} cannot be read: {error}") from error


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


@attrs.frozen(repr=False)
class FromLmdb(IndexedSource[T], Generic[T]):
    """The rows of an LMDB file, by number."""

    path: str
    row_count: int
    row_spec: Spec
    digest: int

    @property
    def title(self) -> str:
        return f"from_lmdb({os.path.basename(self.path)!r})"

    @property
    def fingerprint(self) -> str:
        return f"{self.title} of {self.length} rows {self.digest:08x}"

    @property
    def length(self) -> int:
        return self.row_count

    def spec(self, probe: bool) -> Spec:
        return self.row_spec

    def open(self) -> Callable[[int], T]:
        file = _File(self.path)
        header, _ = file.header()
        if (header.length, header.digest) != (self.row_count, self.digest):
            raise SourceError(
                f"{self.path!r} holds other rows than when this flow was built: build a new flow"
            )
        if not names_classes(self.row_spec):
            return file.row
        return lambda i: cast("T", in_classes(file.row(i), self.row_spec))


@overload
def from_lmdb(path: str | os.PathLike[str]) -> Flow[object, Exact]: ...
@overload
def from_lmdb(path: str | os.PathLike[str], element: TypeForm[A]) -> Flow[A, Exact]: ...
def from_lmdb(path: str | os.PathLike[str], element: Any = object) -> Flow[Any, Exact]:
    """The rows of a file that ``write_lmdb`` made, in the order they were written.

    ``element`` declares what a row is: a NamedTuple or record class to make of its components, or
    any annotation, e.g. ``tuple[NDArray[np.uint8], np.int64]``. It is checked against what the file
    says of its rows. Each process opens the file for itself and reads only the rows it works on.
    Reading runs no code from the file. Arrays are read-only views of the bytes read.

    Length: the number of rows in the file.

    Effects: none.

    Errors: ``SourceError`` at once, if the file is missing, damaged or of another kind;
    ``SpecMismatch`` at once, if the rows are not what ``element`` declares.

    >>> import flowdsl as fl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = fl.from_range(4).map(lambda i: (i, i * i)).write_lmdb(f"{folder}/squares.lmdb")
    ...     fl.from_lmdb(f"{folder}/squares.lmdb", tuple[int, int]).collect()
    [(0, 0), (1, 1), (2, 4), (3, 9)]

    Source: ``LMDBSerializer.load`` in tensorpack; LMDB by Howard Chu.

    Elsewhere: tensorpack ``LMDBSerializer.load``; tf.data none; Grain none; torchdata none.
    """
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise InvalidFlow(f"from_lmdb: path must be a str or path, got {path!r}")
    where = str(Path(path).absolute())
    header, stored = _File(where).header()
    declared = spec_declared("from_lmdb: rows", element)
    try:
        spec = meet(declared, as_declared(stored, declared), "row")
    except SpecMismatch as error:
        raise SpecMismatch(
            f"from_lmdb: {os.fspath(path)!r}: {error}; declared {declared}, stored {stored}"
        ) from error
    return node.flow(FromLmdb[Any](where, header.length, spec, header.digest))


def write(
    flow: FlowBase[object, Finite], path: str | os.PathLike[str], overwrite: bool = False
) -> int:
    """Run one pass of a flow and write its elements; gives the number of rows.

    Raises:
        EndlessFlow: It never ends.
        InvalidFlow: The file exists, or its folder does not.
        SourceError: The disk refuses.
        SpecMismatch: An element cannot be written.
    """
    if Endless in flow.node.effects:
        raise EndlessFlow(
            f"write_lmdb: {flow.node.title} never ends, so no disk can hold it; "
            f"put .take(n) before it"
        )
    target = Path(path).absolute()
    if target.is_dir() or (target.exists() and not overwrite):
        remedy = "it is a folder" if target.is_dir() else "pass overwrite=True"
        raise InvalidFlow(f"write_lmdb: {os.fspath(path)!r} exists; {remedy}")
    if not target.parent.is_dir():
        raise InvalidFlow(f"write_lmdb: no folder {str(target.parent)!r}; make it first")
    try:
        folder = TemporaryDirectory(prefix=".flowdsl-", dir=target.parent)
    except OSError as error:
        raise _refused(path, error) from error
    with folder as name:
        partial = Path(name) / "partial.lmdb"
        try:
            with closing(iter(flow)) as elements:
                length = _write(partial, elements)
        except lmdb.Error as error:
            raise _refused(path, error) from error
        os.replace(partial, target)
    return length


def _refused(path: str | os.PathLike[str], error: Exception) -> SourceError:
    return SourceError(f"write_lmdb: {os.fspath(path)!r} cannot be written: {error}")


def _write(path: Path, elements: Iterable[object]) -> int:
    spec: Spec | None = None
    length = digest = waiting_bytes = 0
    waiting: list[tuple[bytes, bytes]] = []
    with lmdb.open(
        str(path), subdir=False, lock=False, map_size=_FIRST_MAP_BYTES, sync=False, mode=0o666
    ) as env:
        for row in elements:
            try:
                stored = _seal(length, encode(row))
            except SpecMismatch as error:
                raise SpecMismatch(f"write_lmdb: row {length}: {error}") from error
            seen = spec_of(row)
            spec = seen if spec is None else join(spec, seen)
            digest = crc32(stored[-_CHECKSUM_BYTES:], digest)
            waiting.append((_key(length), stored))
            waiting_bytes += len(stored)
            length += 1
            if waiting_bytes >= _COMMIT_BYTES or len(waiting) == _COMMIT_ROWS:
                _commit(env, waiting)
                waiting, waiting_bytes = [], 0
        header = _Header(_VERSION, length, digest, spec_to_plain(spec or UNKNOWN))
        _commit(env, [*waiting, (_KEY_OF_HEADER, _seal(0, msgspec.msgpack.encode(header)))])
        env.sync(True)
    os.truncate(path, path.stat().st_size + _MARGIN_BYTES)
    return length


def _commit(env: lmdb.Environment, pairs: list[tuple[bytes, bytes]]) -> None:
    while True:
        try:
            with env.begin(write=True) as txn:
                for key, value in pairs:
                    txn.put(key, value)
            return
        except lmdb.MapFullError:  # the transaction is undone: grow the map, and write it again
            env.set_mapsize(env.info()["map_size"] * 2)
