"""from_lmdb: rows of an LMDB file written by flowdsl, with random access."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from typing_extensions import TypeForm

from flowdsl import nodes
from flowdsl.effects import Exact
from flowdsl.errors import SourceError
from flowdsl.nodes import READER_KEYWORD_ADVICE, ReadsSpans, T, frozen_node, rejects_keywords
from flowdsl.storage.file_source import FileSource, RowReader
from flowdsl.storage.lmdb.rows import RowsFile
from flowdsl.storage.lmdb.stacked_rows import open_stacked_rows
from flowdsl.storage.paths import OnePath, local_path
from flowdsl.storage.schema import SchemaRows, checked_against

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")


@frozen_node
class FromLmdb(FileSource[T], ReadsSpans[T, Exact], Generic[T]):
    """The source of ``from_lmdb``: the rows of an LMDB file, by index."""

    reader: ClassVar[str] = "from_lmdb"

    trusted: bool = False

    def opened(self) -> tuple[int, int, Callable[[int], T]]:
        file = RowsFile(self.path, self.trusted)
        header, stored = file.header()
        checked = SchemaRows("from_lmdb", self.path, self.row_spec, stored)
        convert = checked.row if checked.changes else None
        return header.length, header.digest, RowReader(file.row, convert)

    def open_spans(self) -> Callable[[int, int], Any] | None:
        try:
            file = RowsFile(self.path, self.trusted)
            header, stored = file.header()
        except SourceError:  # raised again when rows are read one by one
            return None
        is_same = (header.length, header.digest) == (self.row_count, self.digest)
        rows = SchemaRows("from_lmdb", self.path, self.row_spec, stored)
        return (
            open_stacked_rows(file, stored, self.row_spec) if is_same and not rows.checks else None
        )


@overload
def from_lmdb(
    path: OnePath, *, trusted: bool = False, partial: bool = False
) -> Flow[object, Exact]: ...
@overload
def from_lmdb(
    path: OnePath, element: TypeForm[A], *, trusted: bool = False, partial: bool = False
) -> Flow[A, Exact]: ...
@rejects_keywords(**READER_KEYWORD_ADVICE)
def from_lmdb(
    path: OnePath, element: Any = object, *, trusted: bool = False, partial: bool = False
) -> Flow[Any, Exact]:
    """Read the rows of a file that ``write_lmdb`` wrote, in the order they were written.

    ``path`` is the file, or the folder that contains it as ``data.mdb``. ``element`` declares the
    type of a row: a NamedTuple or record class to build from its components, or any annotation,
    e.g. ``tuple[NDArray[np.uint8], np.int64]``. It is checked against the spec in the file's
    header. Each process opens the file itself and reads only the rows it works on. Arrays are
    read-only views of the bytes read. For a file larger than memory, ``shuffle(block=n)`` reads
    consecutive rows together, and still in a random order.

    Reading runs no code from the file, unless ``trusted=True`` is passed. Then Python objects that
    were written with ``trusted=True`` are read too. They are pickled, so the author of the file can
    run any code in this process. ``partial=True`` also reads a file whose writer was interrupted:
    its first rows.

    Length: the number of rows in the file.

    Effects: none.

    Errors: ``SourceError`` when the flow is built, if the file is missing, damaged, incomplete or
    not written by ``write_lmdb``; ``SpecMismatch`` when the flow is built, if the rows do not match
    ``element``.

    >>> import flowdsl as fl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = fl.from_range(4).map(lambda i: (i, i * i)).write_lmdb(f"{folder}/squares.lmdb")
    ...     fl.from_lmdb(f"{folder}/squares.lmdb", tuple[int, int]).collect()
    [(0, 0), (1, 1), (2, 4), (3, 9)]

    Source: ``LMDBSerializer.load`` in tensorpack; LMDB by Howard Chu.

    Elsewhere: tensorpack ``LMDBSerializer.load``; tf.data none; Grain none; torchdata none.
    """
    where = local_path("from_lmdb", path)
    header, stored = RowsFile(where).header()
    if not header.complete and not partial:
        raise SourceError(
            f"from_lmdb: {where!r} is incomplete: its writer was stopped, or is still writing, "
            f"after {header.length} rows. write_lmdb(path, append=True) adds the missing rows; "
            f"from_lmdb(path, partial=True) reads the rows that are there"
        )
    spec = checked_against("from_lmdb", where, element, stored)
    return nodes.flow(FromLmdb[Any](where, header.length, spec, header.digest, trusted))
