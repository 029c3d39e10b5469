"""from_lmdb_raw: the keys and values of LMDB files written by other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

import attrs
import xxhash

from flowdsl import nodes
from flowdsl.effects import Exact
from flowdsl.elements.specs import Spec, StructSpec, ValueSpec
from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.nodes import READER_KEYWORD_ADVICE, IndexedSource, T, frozen_node, rejects_keywords
from flowdsl.storage.digests import Version, versions_of
from flowdsl.storage.lmdb.keys import Keys, KeysOfRows, RowReader, keys_of_rows
from flowdsl.storage.lmdb.pages import Pages, shown
from flowdsl.storage.paths import OnePath, local_path, title_of

if TYPE_CHECKING:
    from flowdsl.flow import Flow


@attrs.frozen(repr=False)
class RawFile:
    """The keys and values of an LMDB file, shared by the sources that decode them."""

    reader: str
    path: str
    keys: KeysOfRows
    version: Version
    db: bytes | None = None
    """The name of the database in the file; None for the main one."""

    @property
    def title(self) -> str:
        options = [] if self.db is None else [f"db={shown(self.db)}"]
        return title_of(self.reader, [self.path], *options)

    @property
    def fingerprint(self) -> str:
        digest = xxhash.xxh3_64_hexdigest(self.keys.fingerprint_bytes, self.version.digest)
        return f"{self.title} of {self.length} rows {digest}"

    @property
    def length(self) -> int:
        return self.keys.length

    def open(self) -> RowReader:
        pages = Pages(self.reader, self.path, self.db)
        self.version.guard(pages.file)
        read = self.keys.reader(pages)

        def row(i: int) -> tuple[bytes, bytes]:
            try:
                return read(i)
            except SourceError as error:
                raise SourceError(f"{self.path!r}: row {i} cannot be read: {error}") from error

        return row


def raw_file(reader: str, path: OnePath, keys: Keys | None, db: bytes | None = None) -> RawFile:
    """Open an LMDB file; ``reader`` is the operator's name in errors.

    Raises:
        InvalidFlow: The path or the keys are invalid.
        SourceError: The file is missing or damaged.
    """
    where = local_path(reader, path)
    pages = Pages(reader, where, db)
    rows = keys_of_rows(reader, pages, keys)
    (version,) = versions_of([pages.file])
    return RawFile(reader, where, rows, version, db)


@frozen_node
class RawSource(IndexedSource[T], Generic[T]):
    """The base of sources that decode the rows of an LMDB file of another program."""

    raw: RawFile

    @property
    def title(self) -> str:
        return self.raw.title

    @property
    def fingerprint(self) -> str:
        return self.raw.fingerprint

    @property
    def length(self) -> int:
        return self.raw.length


@frozen_node
class FromLmdbRaw(RawSource[tuple[bytes, bytes]]):
    """The source of ``from_lmdb_raw``: keys and values of an LMDB file, by index."""

    def spec(self, probe: bool) -> Spec:
        return StructSpec(tuple, (("0", ValueSpec(bytes)), ("1", ValueSpec(bytes))))

    def open(self) -> RowReader:
        return self.raw.open()


@rejects_keywords(**READER_KEYWORD_ADVICE)
def from_lmdb_raw(
    path: OnePath, keys: Keys | None = None, *, db: str | bytes | None = None
) -> Flow[tuple[bytes, bytes], Exact]:
    """Read the keys and values of any LMDB file, as bytes.

    ``path`` is a file, or a folder with a ``data.mdb``. ``keys`` selects and orders the rows: a
    list of keys, or a format string such as ``"{:0>8d}"`` for the numbers from 0 to the number of
    rows. Without it, the keys are those that the store lists under ``__keys__``, as tensorpack
    writes them (that entry is not a row), or else all keys, sorted as bytes. To find all keys, the
    beginning of each leaf page is read once when the flow is built; with ``keys`` it is not. ``db``
    is the name of a database within the file.

    Decode rows with ``map(lambda row: ...)``, or with ``filter_map`` to drop some. Reading runs no
    code from the file, and every number in its pages is validated before use. Values have no
    checksum: corruption of a value goes undetected.

    Length: the number of keys.

    Effects: none.

    Errors: ``SourceError`` when the flow is built, if the file is missing, damaged or truncated, or
    if the database does not exist, has several values for a key, or integers for keys; at the row,
    if its key is not in the file or its page is damaged. ``InvalidFlow`` if ``keys`` is neither a
    list nor a format.

    >>> import flowdsl as fl, lmdb, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with lmdb.open(folder) as store, store.begin(write=True) as txn:
    ...         _ = txn.put(b"0000", b"cat"), txn.put(b"0001", b"dog")
    ...     fl.from_lmdb_raw(folder).collect()
    ...     fl.from_lmdb_raw(folder, keys=["0001"]).map(lambda row: row[1].decode()).collect()
    [(b'0000', b'cat'), (b'0001', b'dog')]
    ['dog']

    Source: ``LMDBData`` in tensorpack; LMDB by Howard Chu.

    Elsewhere: tensorpack ``LMDBData``, ``LMDBDataDecoder``; tf.data none; Grain none;
    torchdata none.
    """
    if db is not None and (not isinstance(db, str | bytes) or not db):
        raise InvalidFlow(f"from_lmdb_raw: db must be the name of a database, or None, got {db!r}")
    name = db.encode() if isinstance(db, str) else db
    return nodes.flow(FromLmdbRaw(raw_file("from_lmdb_raw", path, keys, name)))
