"""Index of a file: the byte offset of each row, computed once and stored beside the file.

Formats such as TFRecord, tar and text store only where the next row begins. An index gives them a
length and random access. The index of ``a.tfrecord`` is ``.a.tfrecord.index``. It is valid for
one version of the file and is rebuilt when the file changes. If the folder is not writable, or
another file has that name, the index is computed for each flow.

File timestamps have a limited resolution: a file that is written twice within one tick keeps its
time and may keep its size. So an index that is hardly newer than its file is not trusted, as in
Git. Programs can also set a file's time. So an index also has a digest of some blocks of its file.
A wrong index would let a state resume on other rows: it contains the digest of all rows.
"""

from __future__ import annotations

import os
import secrets
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate

import attrs
import numpy as np
import xxhash
from numpy.typing import NDArray

from flowdsl.errors import SourceError
from flowdsl.storage.byte_files import TICK, ByteFile, LocalFile
from flowdsl.storage.open_files import Descriptor
from flowdsl.storage.paths import is_url

_MAGIC = b"flowdsl index 2\n"
_MAGICS = b"flowdsl index 1\n", _MAGIC
_SAMPLES, _SAMPLE_BYTES = 16, 1 << 16
"""The blocks of a file whose digest is in its index; smaller files are covered completely."""
_UNFINISHED = ".flowdsl-index-"
_LEFT_SECONDS = 3600.0
"""An unfinished index of this age was left by a writer that was killed."""


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

    def of(self, digest: int) -> Table:
        """Return the table of a file with another digest."""
        return Table(self.columns, digest)


def table_of(file: ByteFile, form: str, columns: int, scan: Callable[[ByteFile], Table]) -> Table:
    """Return the table stored for a file's present version, or else the result of ``scan``.

    Raises:
        SourceError: ``scan`` found a damaged file. Nothing is stored then.
    """
    if is_url(file.path):
        return scan(file)
    folder, name = os.path.split(file.path)
    path = os.path.join(folder, f".{name}.index")
    head = _MAGIC + f"{form}\n{file.stamp} {_sample_digest(file)}\n".encode()
    kept = _read(path, file.path, head, columns)
    if kept is None:
        kept = scan(file)
        _keep(path, head, kept)
    return kept


def _sample_digest(file: ByteFile) -> str:
    digest = xxhash.xxh3_64()
    starts: Sequence[int]
    if file.size <= _SAMPLES * _SAMPLE_BYTES:
        starts = range(0, file.size, _SAMPLE_BYTES)
    else:
        last = file.size - _SAMPLE_BYTES
        starts = [last * k // (_SAMPLES - 1) for k in range(_SAMPLES)]
    for start in starts:
        digest.update(file.read(start, _SAMPLE_BYTES))
    return digest.hexdigest()


def _read(path: str, source: str, head: bytes, columns: int) -> Table | None:
    """Return the table of ``source`` that is stored at ``path``; None if missing or invalid."""
    try:
        file = LocalFile("index", path)
        age = os.stat(path).st_mtime - os.stat(source).st_mtime
        begin = file.read(0, len(head) + 8)
        if age <= TICK or not begin.startswith(head):
            return None
        count = int.from_bytes(begin[len(head) :], "little")
        if file.size != len(head) + 8 * (3 + columns * count):  # before anything is allocated
            return None
        data = file.read(0, file.size)
    except (SourceError, OSError):
        return None
    if xxhash.xxh3_64_digest(data[:-8]) != data[-8:]:
        return None
    numbers = np.frombuffer(data[len(head) + 8 : -8], "<i8").astype(np.int64)
    return Table(numbers[1:].reshape(columns, -1), int(numbers[0]) % 2**64)


def _is_ours(path: str) -> bool:
    """Return True if an index may be written there: no file exists, or only an older index."""
    try:
        file = Descriptor(path)
        return os.read(file.number, len(_MAGIC)) in (b"", *_MAGICS)
    except FileNotFoundError:
        return True
    except OSError:  # a folder or pipe, or a file that may not be read
        return False


def _keep(path: str, head: bytes, table: Table) -> None:
    if not _is_ours(path):
        return
    count = np.array([table.columns.shape[1]], np.int64)
    digest = np.array([table.digest], np.uint64).view(np.int64)
    data = head + np.concatenate([count, digest, table.columns.ravel()]).astype("<i8").tobytes()
    data += xxhash.xxh3_64_digest(data)
    folder = os.path.dirname(path)
    new = os.path.join(folder, f"{_UNFINISHED}{secrets.token_hex(8)}")
    with suppress(OSError):  # a read-only folder or a full disk: the index is not stored
        _sweep(folder)
        try:
            with open(new, "xb") as file:  # tempfile would make it readable for its owner only
                file.write(data)
            os.replace(new, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(new)
            raise


@lru_cache(1024)  # a folder with thousands of files is listed once
def _sweep(folder: str) -> None:
    """Remove the unfinished indexes that killed writers have left in a folder."""
    with os.scandir(folder) as entries:
        left = [entry for entry in entries if entry.name.startswith(_UNFINISHED)]
    for entry in left:
        with suppress(OSError):  # not readable, or removed in the meantime
            if time.time() - entry.stat().st_mtime > _LEFT_SECONDS and _is_ours(entry.path):
                os.unlink(entry.path)


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
