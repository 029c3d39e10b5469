"""from_lmdb and write_lmdb: rows in an LMDB file, with random access by number."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload
from zlib import crc32

import attrs
import lmdb
import msgspec
from typing_extensions import TypeForm

from flowdsl import node
from flowdsl.effects import Exact, Finite
from flowdsl.errors import SourceError
from flowdsl.kinds import IndexedSource
from flowdsl.node import FlowBase, T
from flowdsl.specs import UNKNOWN, Spec, in_classes, join, names_classes, spec_of
from flowdsl.storage.codec import decode, encode, spec_from_plain, spec_to_plain
from flowdsl.storage.declared import held_to
from flowdsl.storage.environments import Environment
from flowdsl.storage.paths import OnePath, local_path
from flowdsl.storage.writing import write_file

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")

_EXPECTED = "a file that flow.write_lmdb(path) made"
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


class _File(Environment):
    """A file that ``write_lmdb`` made."""

    def __init__(self, path: str) -> None:
        super().__init__("from_lmdb", path, _EXPECTED, _MARGIN_BYTES)

    def header(self) -> tuple[_Header, Spec]:
        """The file's header and spec; raises SourceError if they are invalid."""
        try:
            stored = _unseal(0, self.get(_KEY_OF_HEADER) or b"")
            header = msgspec.msgpack.decode(stored, type=_Header)
            spec = spec_from_plain(header.spec) if header.version == _VERSION else UNKNOWN
            rows = self.transaction.stat()["entries"] - 1
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
    where = local_path("from_lmdb", path)
    header, stored = _File(where).header()
    spec = held_to("from_lmdb", where, element, stored)
    return node.flow(FromLmdb[Any](where, header.length, spec, header.digest))


def write(flow: FlowBase[object, Finite], path: OnePath, overwrite: bool = False) -> int:
    """Run one pass of a flow and write its elements; gives the number of rows.

    Raises:
        EndlessFlow: It never ends.
        InvalidFlow: The file exists, or its folder does not.
        SourceError: The disk refuses.
        SpecMismatch: An element cannot be written.
    """
    return write_file("write_lmdb", flow, path, overwrite, _write)


def _write(path: Path, elements: Iterable[object]) -> None:
    spec: Spec | None = None
    length = digest = waiting_bytes = 0
    waiting: list[tuple[bytes, bytes]] = []
    with (
        _errors_of_the_disk(),
        lmdb.open(
            str(path), subdir=False, lock=False, map_size=_FIRST_MAP_BYTES, sync=False, mode=0o666
        ) as env,
    ):
        for row in elements:
            stored = _seal(length, encode(row))
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


@contextmanager
def _errors_of_the_disk() -> Iterator[None]:
    """LMDB's errors as those of the system that they are."""
    try:
        yield
    except lmdb.DiskError as error:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
    except lmdb.Error as error:
        raise OSError(str(error)) from error


def _commit(env: lmdb.Environment, pairs: list[tuple[bytes, bytes]]) -> None:
    while True:
        try:
            with env.begin(write=True) as txn:
                for key, value in pairs:
                    txn.put(key, value)
            return
        except lmdb.MapFullError:  # the transaction is undone: grow the map, and write it again
            env.set_mapsize(env.info()["map_size"] * 2)
