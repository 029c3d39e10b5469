"""from_lmdb_raw: the keys and values of LMDB files that others wrote."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import attrs
import numpy as np
import xxhash

from flowdsl import nodes
from flowdsl.effects import Exact
from flowdsl.elements.specs import Spec, StructSpec, ValueSpec
from flowdsl.errors import SourceError
from flowdsl.nodes import IndexedSource
from flowdsl.storage.lmdb.keys import Keys, KeysOfRows, Read, keys_of_rows
from flowdsl.storage.lmdb.pages import Pages
from flowdsl.storage.paths import OnePath, local_path

if TYPE_CHECKING:
    from flowdsl.flow import Flow

_SAMPLES = 32
_SAMPLE_BYTES = 1 << 16


@attrs.frozen(repr=False)
class RawFile:
    """The keys and values of an LMDB file, for the sources that are made of them."""

    reader: str
    path: str
    keys: KeysOfRows
    digest: int

    @property
    def title(self) -> str:
        return f"{self.reader}({os.path.basename(self.path)!r})"

    @property
    def fingerprint(self) -> str:
        return f"{self.title} of {self.length} rows {self.digest:016x}"

    @property
    def length(self) -> int:
        return self.keys.length

    def open(self) -> Read:
        pages = Pages(self.reader, self.path)
        if _digest(pages, self.keys) != self.digest:
            raise SourceError(
                f"{self.path!r} holds other rows than when this flow was built: build a new flow"
            )
        read = self.keys.reader(pages)

        def row(i: int) -> tuple[bytes, bytes]:
            try:
                return read(i)
            except SourceError as error:
                raise SourceError(f"{self.path!r}: row {i} cannot be read: {error}") from error

        return row


def _digest(pages: Pages, keys: KeysOfRows) -> int:
    """A digest of the tree, of the keys, and of some rows, the first and last among them."""
    read = keys.reader(pages)
    digest = xxhash.xxh3_64(pages.digest.to_bytes(8, "little") + keys.content)
    sampled = np.linspace(0, keys.length - 1, _SAMPLES if keys.length else 0, dtype=np.int64)
    for i in sorted({*sampled.tolist()}):
        try:
            _, value = read(i)
        except SourceError as error:  # the row says so when it is read
            digest.update(str(error).encode())
        else:
            digest.update(len(value).to_bytes(8, "little") + value[:_SAMPLE_BYTES])
    return digest.intdigest()


def raw_file(reader: str, path: OnePath, keys: Keys | None) -> RawFile:
    """An LMDB file, for the reader that errors name.

    Raises:
        InvalidFlow: The path or the keys are none.
        SourceError: The file is missing or damaged.
    """
    where = local_path(reader, path)
    pages = Pages(reader, where)
    rows = keys_of_rows(reader, pages, keys)
    return RawFile(reader, where, rows, _digest(pages, rows))


@attrs.frozen(repr=False)
class FromLmdbRaw(IndexedSource[tuple[bytes, bytes]]):
    """The keys and values of an LMDB file, by number."""

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

    def spec(self, probe: bool) -> Spec:
        return StructSpec(tuple, (("0", ValueSpec(bytes)), ("1", ValueSpec(bytes))))

    def open(self) -> Read:
        return self.raw.open()


def from_lmdb_raw(path: OnePath, keys: Keys | None = None) -> Flow[tuple[bytes, bytes], Exact]:
    """The keys and values of an LMDB file that anybody wrote, as bytes.

    ``path`` is a file, or a folder with a ``data.mdb``. ``keys`` says which rows come, and in which
    order: a list of keys, or a format string such as ``"{:0>8d}"`` for the numbers from 0 to the
    number of rows. Without it they are those that the store lists under ``__keys__``, as tensorpack
    writes it, which is itself no row; or else all of them, sorted as bytes. For that the
    beginning of each page with keys is read once when the flow is built; with keys it is not.

    Decode them by ``map(lambda row: ...)``, or by ``filter_map`` where some are to be left out.
    Reading runs no code from the file, and every number in its pages is checked before it is used.
    The values have no checksum: a changed byte in one is not noticed. A saved state is refused over
    a file whose keys, or pages, or 32 sampled values are others, the first and last among them.

    Length: the number of keys.

    Effects: none.

    Errors: ``SourceError`` at once, if the file is missing, damaged, cut short, or has several
    values for a key; at the row, if its key is not in the file, or its page is damaged.
    ``InvalidFlow`` if keys are neither a list nor a format.

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
    return nodes.flow(FromLmdbRaw(raw_file("from_lmdb_raw", path, keys)))
