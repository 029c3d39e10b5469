"""Where each row of a file begins: made by one reading, and kept beside the file.

Formats that only say where the next row begins, such as TFRecord, tar and text, get a length and
random access so. The index of ``a.tfrecord`` is ``.a.tfrecord.index``; it is good for one state of
the file, and made anew for another. Where the folder cannot be written, or has another file of
that name, it is made for each flow.

A file system's clock has ticks: a file that is written twice within one has the same time, and may
have the same size. So an index that is hardly younger than its file is not trusted, as in Git.
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

from flowdsl.storage.byte_files import ByteFile
from flowdsl.storage.paths import is_url

_A_TICK = 2.0
"""Seconds; the longest are those of FAT."""
_MAGIC = b"flowdsl index 1\n"


@attrs.frozen(eq=False)
class Index:
    """Where the rows of a file begin and end, and a digest of their bytes."""

    starts: NDArray[np.int64] = attrs.field(repr=False)
    ends: NDArray[np.int64] = attrs.field(repr=False)
    digest: int

    def __len__(self) -> int:
        return len(self.starts)


def index_of(file: ByteFile, form: str, scan: Callable[[ByteFile], Index]) -> Index:
    """The index of a file: that beside it if it is good, or what ``scan`` makes.

    ``form`` says what the index is of, with all options that it depends on, e.g. ``"tfrecord 1"``.

    Raises:
        SourceError: What ``scan`` raises for a damaged file. No index is kept then.
    """

    def numbers(file: ByteFile) -> Table:
        made = scan(file)
        return Table(np.stack([made.starts, made.ends]), made.digest)

    kept = table_of(file, form, 2, numbers)
    return Index(kept.columns[0], kept.columns[1], kept.digest)


@attrs.frozen(eq=False)
class Table:
    """Numbers that one reading of a file gives, in equally long columns, and a digest of it."""

    columns: NDArray[np.int64] = attrs.field(repr=False)
    digest: int


def table_of(file: ByteFile, form: str, columns: int, scan: Callable[[ByteFile], Table]) -> Table:
    """The numbers kept beside a file if they are of its present state, or what ``scan`` makes.

    Raises:
        SourceError: What ``scan`` raises for a damaged file. Nothing is kept then.
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
            data = file.read() if age > _A_TICK else b""
    except OSError:
        return None
    body = data[len(head) : -8]
    if not data.startswith(head) or xxhash.xxh3_64_digest(data[:-8]) != data[-8:]:
        return None
    numbers = np.frombuffer(body, "<i8").astype(np.int64)
    return Table(numbers[1:].reshape(columns, -1), int(numbers[0]) % 2**64)


def _is_ours(path: str) -> bool:
    """Whether an index may be written there: over an older one, or where nothing is."""
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
    except OSError:  # a folder of somebody else's, or a full disk: the index is made again
        return


@attrs.frozen
class Shards:
    """The rows of several files, numbered through.

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
        """The file that has row ``i``, and the row's number in it."""
        k = bisect_right(self._ends, i)
        return k, i - (self._ends[k - 1] if k else 0)
