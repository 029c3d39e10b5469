"""Index of a file: the byte offset of each row, computed once and stored beside the file.

Formats such as TFRecord, tar and text store only where the next row begins. An index gives them a
length and random access. The index of ``a.tfrecord`` is ``.a.tfrecord.index``. It is valid for
one version of the file and is rebuilt when the file changes. If the folder is not writable, or
another file has that name, the index is computed for each flow.

File timestamps have a limited resolution: a file that is written twice within one tick keeps its
time and may keep its size. So an index that is hardly newer than its file is not trusted, as in
Git.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from tempfile import NamedTemporaryFile

import attrs
import numpy as np
import xxhash
from numpy.typing import NDArray

from flowdsl.storage.byte_files import TICK, ByteFile
from flowdsl.storage.paths import is_url

_MAGIC = b"flowdsl index 1\n"


@attrs.frozen(eq=False)
class Index:
    """The start and end of each row in a file, and a digest of the rows' bytes."""

    starts: NDArray[np.int64] = attrs.field(repr=False)
    ends: NDArray[np.int64] = attrs.field(repr=False)
    digest: int

    def __len__(self) -> int:
        return len(self.starts)


def index_of(file: ByteFile, form: str, scan: Callable[[ByteFile], Index]) -> Index:
    """Return the index of a file: the stored one if it is valid, or else the result of ``scan``.

    ``form`` identifies the format with all options that affect the index, e.g. ``"tfrecord 1"``.

    Raises:
        SourceError: ``scan`` found a damaged file. No index is stored then.
    """

    def numbers(file: ByteFile) -> Table:
        index = scan(file)
        return Table(np.stack([index.starts, index.ends]), index.digest)

    kept = table_of(file, form, 2, numbers)
    return Index(kept.columns[0], kept.columns[1], kept.digest)


@attrs.frozen(eq=False)
class Table:
    """Columns of numbers that are computed in one scan of a file, and a digest of the file."""

    columns: NDArray[np.int64] = attrs.field(repr=False)
    digest: int


def table_of(file: ByteFile, form: str, columns: int, scan: Callable[[ByteFile], Table]) -> Table:
    """Return the table stored for a file's present version, or else the result of ``scan``.

    Raises:
        SourceError: ``scan`` found a damaged file. Nothing is stored then.
    """
    if is_url(file.path):
        return scan(file)
    folder, name = os.path.split(file.path)
    path = os.path.join(folder, f".{name}.index")
    head = _MAGIC + f"{form}\n{file.stamp}\n".encode()
    kept = _read(path, file.path, head, columns)
    if kept is None:
        kept = scan(file)
        _keep(path, head, kept)
    return kept


def _read(path: str, of: str, head: bytes, columns: int) -> Table | None:
    try:
        with open(path, "rb") as file:
            age = os.fstat(file.fileno()).st_mtime - os.stat(of).st_mtime
            data = file.read() if age > TICK else b""
    except OSError:
        return None
    body = data[len(head) : -8]
    if not data.startswith(head) or xxhash.xxh3_64_digest(data[:-8]) != data[-8:]:
        return None
    numbers = np.frombuffer(body, "<i8").astype(np.int64)
    return Table(numbers[1:].reshape(columns, -1), int(numbers[0]) % 2**64)


def _is_ours(path: str) -> bool:
    """Return True if an index may be written there: over an older one, or where no file is."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) in (b"", _MAGIC)
    except FileNotFoundError:
        return True
    except OSError:  # a folder, or a file that may not be read
        return False


def _keep(path: str, head: bytes, table: Table) -> None:
    if not _is_ours(path):
        return
    digest = np.array([table.digest], np.uint64).view(np.int64)
    data = head + np.concatenate([digest, table.columns.ravel()]).astype("<i8").tobytes()
    try:
        with NamedTemporaryFile(dir=os.path.dirname(path), prefix=".flowdsl-", delete=False) as new:
            try:
                new.write(data + xxhash.xxh3_64_digest(data))
                new.flush()
                os.replace(new.name, path)
            except BaseException:
                os.unlink(new.name)
                raise
    except OSError:  # a read-only folder or a full disk: the index is not stored
        return


@attrs.frozen
class Shards:
    """Numbers the rows of several files consecutively.

    >>> Shards([2, 0, 3]).find(2)
    (2, 0)
    """

    lengths: Sequence[int]
    _ends: list[int] = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_ends", list(accumulate(self.lengths)))

    @property
    def length(self) -> int:
        return self._ends[-1] if self._ends else 0

    def find(self, i: int) -> tuple[int, int]:
        """Return the file that has row ``i``, and the row's number in the file."""
        k = bisect_right(self._ends, i)
        return k, i - (self._ends[k - 1] if k else 0)
