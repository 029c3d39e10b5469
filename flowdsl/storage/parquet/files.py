"""A Parquet file: its footer, its seal and its row groups.

Parquet has optional checksums for pages, but none for the footer. So ``write_parquet`` stores a
digest of each column of each row group in the footer, and a digest of the footer itself, the
seal. Other programs ignore these entries.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from flowdsl.errors import FlowError, SourceError
from flowdsl.storage.byte_files import ByteFile, guard_file, open_file, rows_are_verified
from flowdsl.storage.libraries import library
from flowdsl.storage.parquet.footer import Chunk, footer_of

ABOUT, SEAL = "flowdsl.parquet", "flowdsl.seal"
VERSION = 1
UNSEALED = "xxh3:" + "0" * 16
_SEALED = re.compile(rb"flowdsl\.seal\x18\x15xxh3:([0-9a-f]{16})")
"""The seal's entry in the footer: key, field byte, text length and text."""
TRACES = (ABOUT.encode(), SEAL.encode(), b"xxh3:", b'"digests":"')
"""Byte strings that show that a footer had a seal, even if it is partly damaged."""
_DIGESTS = re.compile(rb'"digests":"([0-9a-f]*)"')
_TAIL = 8
_BATCH_ROWS = 1 << 10
_MAX_BYTES = 1 << 28
_MAX_TIMES = 256
"""A column of a row group is refused if it claims more than _MAX_BYTES, and more than _MAX_TIMES
its bytes in the file: it would fill the memory."""


class About(msgspec.Struct, frozen=True):
    """The metadata that ``write_parquet`` stores about the rows."""

    version: int
    form: str
    """The form of a row: ``"tuple"``, ``"dict"`` or ``"value"``."""
    python: list[int]
    """The columns whose values are Python values."""
    missing: list[int]
    """The columns that contain None."""
    digests: str
    """The digests of each column's bytes, of the first row group, of the second, and so on."""


class ParquetBytes:
    """A file for pyarrow; the ranges in ``loaded`` are read from memory."""

    closed = False

    def __init__(self, file: ByteFile) -> None:
        self.loaded: list[tuple[int, bytes]] = []
        self._file = file
        self._at = 0

    def read(self, count: int = -1) -> bytes | memoryview:
        start = self._at
        end = self._file.size if count < 0 else min(start + count, self._file.size)
        self._at = max(start, end)
        for first, data in self.loaded:
            if first <= start and end <= first + len(data):
                return memoryview(data)[start - first : end - first]
        return self._file.read(start, max(0, end - start))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        """Do nothing: the file closes when it is garbage-collected."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False


class ParquetFile:
    """A Parquet file that is open for reading.

    ``max_bytes`` limits the decoded size of a column of a row group; None chooses the limit by the
    bytes of the column in the file.
    """

    def __init__(self, reader: str, path: str, max_bytes: int | None = None) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._reader = reader
        self._pa = library("pyarrow", reader, "parquet")
        parquet = library("pyarrow.parquet", reader, "parquet")
        self._file = open_file(reader, path)
        raw, self.digest = _checked_footer(reader, path, self._file)
        """The digest of the footer."""
        self._bytes = ParquetBytes(self._file)
        with self.errors("has no valid footer"):
            footer = footer_of(raw)
            self._parquet = parquet.ParquetFile(
                self._pa.PythonFile(self._bytes, mode="r"),
                pre_buffer=False,
                page_checksum_verification=True,
                thrift_string_size_limit=max(len(raw), 1),
                thrift_container_size_limit=max(len(raw), 1),
            )
            self.schema = self._parquet.schema_arrow
            self.types = {field.name: field.type for field in self.schema}
            self._groups = footer.groups
            self._about = about = _about(footer.entries)
            self.lengths = tuple(group.rows for group in footer.groups)
            chunks = sum(len(group.chunks) for group in footer.groups)
            if about is not None and len(about.digests) != 16 * chunks:
                raise ValueError(f"it does not have digests of {chunks} columns")
            if about is not None:
                guard_file(self._file, rows_are_verified)
            if sum(self.lengths) != footer.rows:
                raise ValueError(f"{footer.rows} rows, but {sum(self.lengths)} in row groups")

    @property
    def file(self) -> ByteFile:
        return self._file

    @property
    def is_verified(self) -> bool:
        """True if every column is checked against a digest in the footer."""
        return self._about is not None

    @property
    def form(self) -> str:
        """The form of a row: ``"tuple"``, ``"dict"`` or ``"value"``."""
        return self._about.form if self._about is not None else "dict"

    def is_python(self, name: str) -> bool:
        """Return True if Python values were written to this column."""
        return self._about is not None and self.schema.names.index(name) in self._about.python

    def nulls(self, name: str) -> int | None:
        """Return a lower bound of a column's nulls, positive if there are any; None if unknown."""
        if self._about is not None:
            return int(self.schema.names.index(name) in self._about.missing)
        if not self.schema.field(name).nullable:
            return 0
        if self._pa.types.is_null(self.types[name]):
            return sum(self.lengths)
        chunks = [chunk for group in self._groups for chunk in group.chunks if chunk.name == name]
        counts = [chunk.nulls for chunk in chunks if chunk.nulls is not None]
        return sum(counts) if len(counts) == len(self._groups) else None

    def table(self, group: int, columns: Sequence[str]) -> Any:
        """Decode columns of a row group.

        Raises:
            SourceError: The row group is damaged.
        """
        with self.errors(f"has a row group {group} that cannot be read"):
            most = self._load(group, columns)
            try:
                table = self._decoded(group, columns, most)
                table.validate()
                for column in table.columns:
                    if self._has_codes(column.type):  # codes may be outside of the dictionary
                        column.validate(full=True)
            finally:
                self._bytes.loaded = []
            rows = self.lengths[group]
            if table.num_rows != rows:
                raise ValueError(f"{table.num_rows} rows, but its footer says {rows}")
        return table

    def _has_codes(self, form: Any) -> bool:
        parts = [form.field(k).type for k in range(form.num_fields)]
        return self._pa.types.is_dictionary(form) or any(map(self._has_codes, parts))

    def _decoded(self, group: int, columns: Sequence[str], most: int | None) -> Any:
        """Decode columns; text in small batches, as each row may repeat one long text."""
        if most is None:
            return self._parquet.read_row_group(group, list(columns), use_threads=False)
        batches = []
        size = 0
        text = sum(
            chunk.uncompressed
            for _, chunk in self._chunks(group, columns)
            if chunk.physical not in _WIDTHS
        )
        rows = max(_BATCH_ROWS, most // max(1, text))  # no value is longer than all text together
        for batch in self._parquet.iter_batches(
            rows, row_groups=[group], columns=list(columns), use_threads=False
        ):
            batches.append(batch)
            size += batch.nbytes
            if size > most:
                raise ValueError(f"it decodes to over {size:,} bytes, from far fewer{_REMEDY}")
        schema = None if batches else self._pa.schema([self.schema.field(n) for n in columns])
        return self._pa.Table.from_batches(batches, schema)

    def _chunks(self, group: int, columns: Sequence[str]) -> list[tuple[int, Chunk]]:
        """Return the chunks of columns in a row group, each with its number."""
        return [
            (number, chunk)
            for number, chunk in enumerate(self._groups[group].chunks)
            if any(f"{chunk.name}.".startswith(f"{name}.") for name in columns)
        ]

    def _load(self, group: int, columns: Sequence[str]) -> int | None:
        """Read the bytes of columns, adjacent ones together, and check their digests.

        Returns a limit on the decoded size in bytes if the footer does not determine it, else None.
        """
        chunks = self._chunks(group, columns)
        if any(chunk.end > self._file.size for _, chunk in chunks):
            raise ValueError("a column is outside of the file")
        most = sum(self._checked_size(chunk) for _, chunk in chunks)
        for start, end in _merged(sorted((chunk.start, chunk.end) for _, chunk in chunks)):
            self._bytes.loaded.append((start, self._file.read(start, end - start)))
        self._check_digests(group, chunks)
        return most if any(chunk.physical not in _WIDTHS for _, chunk in chunks) else None

    def _checked_size(self, chunk: Chunk) -> int:
        """Return the limit on the decoded size of a column, after checking what it claims."""
        size = chunk.end - chunk.start
        claim = max(chunk.uncompressed, chunk.values * _WIDTHS.get(chunk.physical, 8))
        limit = self._max_bytes or max(_MAX_BYTES, size * _MAX_TIMES)
        if claim > limit:
            raise ValueError(
                f"its column {chunk.name!r} claims to be {claim:,} bytes, from {size:,} bytes of "
                f"the file{_REMEDY}"
            )
        return limit

    def _check_digests(self, group: int, chunks: Sequence[tuple[int, Chunk]]) -> None:
        if self._about is None:
            return
        before = group * len(self._groups[group].chunks)
        for number, chunk in chunks:
            self._bytes.seek(chunk.start)
            digest = xxhash.xxh3_64_hexdigest(self._bytes.read(chunk.end - chunk.start))
            if digest != self._about.digests[16 * (before + number) :][:16]:
                raise ValueError("its bytes are not those that were written")

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Raise errors of pyarrow, and of invalid metadata, as SourceError with the file's name."""
        try:
            yield
        except FlowError:
            raise
        except (
            *(self._pa.ArrowException, OSError, MemoryError),
            *(ValueError, TypeError, LookupError, OverflowError, msgspec.MsgspecError),
        ) as error:
            raise SourceError(f"{self._reader}: {self.path!r} {what}: {error}") from error


_REMEDY = "; if that is intended, raise the limit with max_bytes="

_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""The size in bytes of a value of each physical type of fixed size."""


def seal(path: Path) -> None:
    """Write the digests of a file's columns into its footer, and then the footer's own digest."""
    with path.open("r+b") as file:
        file.seek(-_TAIL, io.SEEK_END)
        size = int.from_bytes(file.read(4), "little")
        start = file.seek(-_TAIL - size, io.SEEK_END)
        footer = file.read(size)
        digests = []
        for chunk in (chunk for group in footer_of(footer).groups for chunk in group.chunks):
            file.seek(chunk.start)
            digests.append(xxhash.xxh3_64_hexdigest(file.read(chunk.end - chunk.start)))
        *_, about = _DIGESTS.finditer(footer)
        joined = "".join(digests).encode()
        assert len(joined) == len(about[1])
        footer = footer[: about.start(1)] + joined + footer[about.end(1) :]
        *_, sealed = _SEALED.finditer(footer)
        digest = xxhash.xxh3_64_hexdigest(footer).encode()
        file.seek(start)
        file.write(footer[: sealed.start(1)] + digest + footer[sealed.end(1) :])


def _checked_footer(reader: str, path: str, file: ByteFile) -> tuple[bytes, str]:
    """Return the footer and its digest; checks the seal if there is one."""
    tail = file.read(max(0, file.size - _TAIL), _TAIL)
    size = int.from_bytes(tail[:4], "little")
    if tail[4:] == b"PARE":
        raise SourceError(f"{reader}: {path!r} is encrypted, which is not supported")
    if tail[4:] != b"PAR1" or not 0 < size <= file.size - _TAIL - 4 or file.read(0, 4) != b"PAR1":
        raise SourceError(f"{reader}: {path!r} is not a Parquet file, or is cut off")
    raw = file.read(file.size - _TAIL - size, size)
    sealed = next(reversed(list(_SEALED.finditer(raw))), None)
    if sealed is None:
        if any(trace in raw for trace in TRACES):
            raise SourceError(f"{reader}: {path!r} is damaged: its footer has no seal")
        return raw, xxhash.xxh3_64_hexdigest(raw)
    unsealed = raw[: sealed.start(1)] + b"0" * 16 + raw[sealed.end(1) :]
    if xxhash.xxh3_64_hexdigest(unsealed) != sealed[1].decode():
        raise SourceError(
            f"{reader}: {path!r} is damaged: its footer is not the one that was written (or "
            f"another program rewrote the file, and kept the old seal)"
        )
    return raw, sealed[1].decode()


def _about(entries: dict[bytes, bytes]) -> About | None:
    stored = entries.get(ABOUT.encode())
    if stored is None:
        return None
    about = msgspec.json.decode(stored, type=About)
    if about.version != VERSION:
        raise ValueError(f"version {about.version} of flowdsl's entry, not {VERSION}")
    return about


def _merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in ranges:
        if merged and merged[-1][1] == start:
            merged[-1] = merged[-1][0], end
        else:
            merged.append((start, end))
    return merged
