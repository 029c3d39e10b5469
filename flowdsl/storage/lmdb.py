"""from_lmdb and write_lmdb: rows in an LMDB file, any of which can be read by its number."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

import attrs
import lmdb
import msgspec
from typing_extensions import TypeForm

from flowdsl.effects import Exact, Finite
from flowdsl.elements import (
    UNKNOWN,
    Spec,
    StructSpec,
    assemble,
    join,
    meet,
    spec_of,
    spec_of_type,
)
from flowdsl.errors import InvalidFlow, SourceError, SpecMismatch
from flowdsl.node import E, FlowBase, IndexedSource, T, flow
from flowdsl.storage.codec import decode, encode, spec_from_plain, spec_to_plain

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")

_HEADER = b"__flowdsl__"
_VERSION = 1
_COMMIT_ROWS = 1024


def _key(i: int) -> bytes:
    return b"%010d" % i


def _open(path: str) -> lmdb.Environment:
    """A read-only environment, without a lock file: the file is complete and never changes."""
    try:
        return lmdb.open(
            path, subdir=False, readonly=True, lock=False, readahead=False, max_readers=1
        )
    except lmdb.Error as error:
        reason = "no such file" if not Path(path).exists() else str(error)
        raise SourceError(
            f"from_lmdb: {path!r} can not be opened: {reason}; expected a file that "
            f"flow.write_lmdb(path) made"
        ) from error


def _read_header(path: str) -> tuple[int, Spec]:
    with _open(path) as env, env.begin() as txn:
        try:
            header = msgspec.msgpack.decode(txn.get(_HEADER) or b"")
            if header["version"] != _VERSION:
                raise SourceError(
                    f"from_lmdb: {path!r} has format version {header['version']}, this flowdsl "
                    f"reads version {_VERSION}"
                )
            length, spec = int(header["length"]), spec_from_plain(header["spec"])
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError, lmdb.Error) as error:
            if isinstance(error, SourceError):
                raise
            raise SourceError(
                f"from_lmdb: {path!r} has no valid flowdsl header; expected a file that "
                f"flow.write_lmdb(path) made"
            ) from error
        entries = txn.stat()["entries"] - 1
        if entries != length:
            raise SourceError(
                f"from_lmdb: {path!r} is damaged: its header says {length} rows, it holds {entries}"
            )
    return length, spec


@attrs.frozen
class FromLmdb(IndexedSource[T], Generic[T]):
    """The rows of an LMDB file, by number."""

    path: str
    row_count: int
    row_spec: Spec

    @property
    def title(self) -> str:
        return f"from_lmdb({os.path.basename(self.path)!r})"

    @property
    def length(self) -> int:
        return self.row_count

    def spec(self, probe: bool) -> Spec:
        return self.row_spec

    def open(self) -> Callable[[int], T]:
        transaction = _open(self.path).begin()
        form = self.row_spec.form if isinstance(self.row_spec, StructSpec) else None
        restore = form if form not in (None, tuple, dict) else None

        def read(i: int) -> T:
            data = transaction.get(_key(i))
            if data is None:
                raise SourceError(f"{self.path!r} holds no row {i}")
            row = decode(data)
            if restore is not None:
                row = restore(*row) if isinstance(row, tuple) else assemble(restore, row)
            return cast("T", row)

        return read


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

    Errors: ``SourceError`` at once, if the file is missing, damaged or of another kind;
    ``SpecMismatch`` at once, if the rows are not what ``element`` declares.

    >>> import flowdsl as fl, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "squares.lmdb")
    >>> fl.from_range(4).map(lambda i: (i, i * i)).write_lmdb(path)
    4
    >>> fl.from_lmdb(path, tuple[int, int]).collect()
    [(0, 0), (1, 1), (2, 4), (3, 9)]

    Source: ``LMDBSerializer.load`` in tensorpack; LMDB by Howard Chu.
    """
    where = str(Path(path).absolute())
    length, stored = _read_header(where)
    try:
        spec = _check(spec_of_type(element), stored)
    except SpecMismatch as error:
        raise SpecMismatch(f"from_lmdb: {os.fspath(path)!r}: {error}") from error
    return flow(FromLmdb[Any](where, length, spec))


def _check(declared: Spec, stored: Spec) -> Spec:
    """What is known of the rows; a class may be declared for what is stored as tuple or dict."""
    if not isinstance(declared, StructSpec) or declared.form in (tuple, dict):
        return meet(declared, stored, "row")
    plain = attrs.evolve(declared, form=tuple if issubclass(declared.form, tuple) else dict)
    if isinstance(stored, StructSpec) and plain.form is dict:
        by_name = dict(stored.fields)
        if by_name.keys() != dict(declared.fields).keys():
            raise SpecMismatch(f"row: declared {declared}, got {stored}")
        stored = StructSpec(stored.form, tuple((n, by_name[n]) for n, _ in declared.fields))
    met = meet(plain, stored, "row")
    return attrs.evolve(met, form=declared.form) if isinstance(met, StructSpec) else declared


class Storing(FlowBase[T, E]):
    """Operators that run a flow and keep its elements."""

    def write_lmdb(
        self: FlowBase[T, Finite], path: str | os.PathLike[str], *, overwrite: bool = False
    ) -> int:
        """Run one pass and write its elements to an LMDB file; gives the number of rows.

        The file appears under its name only when it is complete; after an error there is none.
        It grows as needed: there is no size to guess.

        Errors: ``InvalidFlow`` if the file exists (unless ``overwrite``); ``SpecMismatch`` for an
        element that can not be written, with its row; whatever the flow raises.

        >>> import flowdsl as fl, tempfile, os
        >>> fl.from_range(3).write_lmdb(os.path.join(tempfile.mkdtemp(), "three.lmdb"))
        3

        Source: ``LMDBSerializer.save`` in tensorpack, which loses the rows of a full map.
        """
        target = Path(path).absolute()
        if target.exists() and not overwrite:
            raise InvalidFlow(f"write_lmdb: {os.fspath(path)!r} exists; pass overwrite=True")
        if not target.parent.is_dir():
            raise InvalidFlow(f"write_lmdb: no folder {str(target.parent)!r}; make it first")
        partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
        try:
            length = _write(partial, iter(self))
            os.replace(partial, target)
        finally:
            with suppress(FileNotFoundError):
                partial.unlink()
        return length


def _write(path: Path, elements: Iterator[object]) -> int:
    spec: Spec | None = None
    length = 0
    with lmdb.open(str(path), subdir=False, lock=False, map_size=1 << 24, sync=False) as env:
        while rows := list(islice(elements, _COMMIT_ROWS)):
            encoded: list[tuple[bytes, bytes]] = []
            for row in rows:
                try:
                    encoded.append((_key(length), encode(row)))
                except SpecMismatch as error:
                    raise SpecMismatch(f"write_lmdb: row {length}: {error}") from error
                seen = spec_of(row)
                spec = seen if spec is None else join(spec, seen)
                length += 1
            _commit(env, encoded)
        plain = spec_to_plain(spec if spec is not None else UNKNOWN)
        header = {"version": _VERSION, "length": length, "spec": plain}
        _commit(env, [(_HEADER, msgspec.msgpack.encode(header))])
        env.sync(True)
    return length


def _commit(env: lmdb.Environment, pairs: list[tuple[bytes, bytes]]) -> None:
    while True:
        try:
            with env.begin(write=True) as txn:
                for key, value in pairs:
                    txn.put(key, value)
            return
        except lmdb.MapFullError:  # the transaction is undone: grow, and write it again
            env.set_mapsize(env.info()["map_size"] * 2)
