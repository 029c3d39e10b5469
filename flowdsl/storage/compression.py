"""Random access to the content of gzip and zlib files, with bounded memory.

The problem: content can only be decompressed from the beginning of a file. In random order, each
row would decompress all content before it. A copy of the content, in memory or on the disk, may be
of any size.

The choice: from the first read that goes back, a reader keeps *checkpoints* as it goes: copies of
the decompressor at regular distances. A read continues from the nearest checkpoint before it. If
there are too many checkpoints, every second one is dropped, and the distance doubles. All files
that a process has open share a limit. A file that is read in order needs no checkpoints.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, TypeAlias
from weakref import WeakValueDictionary

import attrs

from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.storage.byte_files import ByteFile
from flowdsl.storage.paths import base_name

Compression: TypeAlias = Literal["gzip", "zlib"]

WINDOW: dict[Compression, int] = {"gzip": 16 + zlib.MAX_WBITS, "zlib": zlib.MAX_WBITS}
"""The ``wbits`` argument of zlib for each compression."""

PIECE = 1 << 17
"""The bytes of content that are decompressed together."""

_INPUT = 1 << 14
"""The bytes that are read at once; a checkpoint keeps those not decompressed yet."""

_MAX_CHECKPOINTS = 1 << 11
"""The limit on the checkpoints of a process, of some 50 KB each."""
_MIN_CHECKPOINTS = 8
"""The number of checkpoints that a file may have, however many files are open."""


class _Decompressor:
    """Decompresses a file from some offset on."""

    __slots__ = ("_bytes_read", "_file", "_has_content", "_inflate", "_input", "_window")

    def __init__(self, file: ByteFile, window: int) -> None:
        self._file, self._window = file, window
        self._inflate = zlib.decompressobj(window)
        self._bytes_read = 0
        self._input = b""
        self._has_content = False

    def copy(self) -> _Decompressor:
        other = _Decompressor.__new__(_Decompressor)
        other._file, other._window = self._file, self._window
        other._inflate, other._bytes_read = self._inflate.copy(), self._bytes_read
        other._input, other._has_content = self._input, self._has_content
        return other

    def read(self, count: int) -> tuple[bytes, _Damage | None]:
        """Return the next bytes of content; fewer only at its end, or before damage.

        Raises:
            SourceError: The file cannot be read.
        """
        parts, damage = list[bytes](), None
        try:
            while count and (part := self._more(count)):
                parts.append(part)
                count -= len(part)
        except _Damaged as error:
            damage = error.damage
        return b"".join(parts), damage

    def _more(self, most: int) -> bytes:
        while True:
            if not self._input:
                self._input = self._file.read(self._bytes_read, _INPUT)
                self._bytes_read += len(self._input)
            if not self._input and self._inflate.eof:
                return b""
            if not self._input:
                raise self._damaged("it is cut short")
            if self._inflate.eof and self._window != WINDOW["gzip"]:
                raise self._damaged("something follows its end")
            if self._inflate.eof:  # a gzip file may have several members
                self._inflate = zlib.decompressobj(self._window)
            try:
                data = self._inflate.decompress(self._input, most)
            except zlib.error as error:
                raise self._damaged(str(error)) from error
            inflate = self._inflate
            self._input = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
            if data:
                self._has_content = True
                return data

    def _damaged(self, why: str) -> _Damaged:
        return _Damaged(_Damage(why, self._bytes_read if self._has_content else None))


@attrs.frozen
class _Damage:
    """An error in a compressed file, which cannot be decompressed."""

    why: str
    near: int | None
    """The byte of the file; None if there is no content before it."""

    def of(self, compression: Compression) -> str:
        """Say what is wrong with a file of this compression."""
        if self.near is not None:
            return f"is damaged, near byte {self.near}: {self.why}"
        return (
            f"cannot be read as {compression}: {self.why}; if that is wrong, pass another "
            f"compression, or None"
        )


@attrs.frozen
class _Damaged(Exception):  # it does not leave this module
    damage: _Damage


class Inflated:
    """The content of a gzip or zlib file, as a file; a gzip file may have several members."""

    def __init__(self, reader: str, file: ByteFile, compression: Compression) -> None:
        self._reader, self._file = reader, file
        self._compression: Compression = compression
        self._checkpoints = {0: _Decompressor(file, WINDOW[compression])}
        """Decompressors, by the number of the piece that is next: a multiple of ``_distance``."""
        self._distance = 1
        self._keeps_checkpoints = False
        self._next = 0, self._checkpoints[0].copy()
        """The number of the piece after the last one that was read, and its decompressor."""
        self._latest = 0, b""
        """The number of the last piece that was read, and its content."""
        self._end: int | None = None
        """The end of the content, or of its undamaged part, once that is known."""
        self._damage: _Damage | None = None
        self._lock = threading.Lock()
        _open[id(self)] = self
        for reference in _open.valuerefs():  # each may have fewer checkpoints now
            if (other := reference()) is not None and other._lock.acquire(blocking=False):
                try:
                    other._thin()
                finally:
                    other._lock.release()

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def stamp(self) -> str:
        return self._file.stamp

    @property
    def size(self) -> int:
        """The length of the content; if it is unknown, the whole content is decompressed."""
        number = self._latest[0]
        while self._end is None:
            self._piece(number)
            number += 1
        self._check_damage()
        return self._end

    def check(self) -> None:
        self._file.check()

    def read(self, start: int, count: int) -> bytes:
        number, begin = divmod(start, PIECE)
        parts = []
        while count > 0 and (part := self._piece(number)[begin : begin + count]):
            parts.append(part)
            count -= len(part)
            number, begin = number + 1, 0
        if count > 0:
            self._check_damage()
        return b"".join(parts)

    def _check_damage(self) -> None:
        if self._damage is not None:
            what = self._damage.of(self._compression)
            raise SourceError(f"{self._reader}: {self.path!r} {what}")

    def _piece(self, number: int) -> bytes:
        latest, piece = self._latest  # read as a pair: another thread may replace it
        if latest == number and piece:
            return piece
        with self._lock:
            if self._end is not None and number * PIECE >= self._end:
                return b""
            return self._read(number)

    def _read(self, number: int) -> bytes:
        """Return a piece, read from the nearest checkpoint or from the end of the last piece."""
        next_piece, decompressor = self._next
        nearest = min(number // self._distance * self._distance, next(reversed(self._checkpoints)))
        if not nearest <= next_piece <= number:
            next_piece, decompressor = nearest, self._checkpoints[nearest].copy()
            if number > 0:  # going back to the beginning is a new pass, which may be in order
                self._keeps_checkpoints = True
        self._next = 0, self._checkpoints[0].copy()  # the next read uses it if this one fails
        piece = b""
        while next_piece <= number:
            is_due = self._keeps_checkpoints and next_piece % self._distance == 0
            if is_due and next_piece not in self._checkpoints:
                self._checkpoints[next_piece] = decompressor.copy()
                self._thin()
            piece, damage = decompressor.read(PIECE)
            next_piece += 1
            if len(piece) < PIECE:
                self._damage, self._end = damage, (next_piece - 1) * PIECE + len(piece)
                break
        self._next = next_piece, decompressor
        if next_piece <= number:  # the content ends before it
            return b""
        self._latest = number, piece
        return piece

    def _thin(self) -> None:
        """Drop checkpoints beyond the share of this file."""
        most = max(_MIN_CHECKPOINTS, _MAX_CHECKPOINTS // len(_open))
        while len(self._checkpoints) > most:
            self._distance *= 2
            kept = (k for k in self._checkpoints if k % self._distance == 0)
            self._checkpoints = {k: self._checkpoints[k] for k in kept}


_open: WeakValueDictionary[int, Inflated] = WeakValueDictionary()
"""The files that share the limit on checkpoints."""


def check_compression(operator: str, compression: object) -> None:
    """Raise InvalidFlow for an unknown compression."""
    if compression not in (None, *WINDOW):
        raise InvalidFlow(
            f"{operator}: compression must be None, 'gzip' or 'zlib', got {compression!r}"
        )


def compression_of_name(path: str) -> Literal["gzip"] | None:
    """Return the compression that the name of a file says.

    >>> compression_of_name("https://example.com/a.csv.GZ?token=secret")
    'gzip'
    """
    return "gzip" if base_name(path).lower().endswith(".gz") else None


class Output(Protocol):
    """A file that is written from its beginning to its end."""

    def write(self, data: bytes, /) -> object: ...


@contextmanager
def created(path: Path, compression: Compression | None) -> Iterator[Output]:
    """Create a file, and compress what is written to it."""
    with open(path, "xb", buffering=1 << 20) as file:
        if compression is None:
            yield file
            return
        deflated = _Deflated(file, compression)
        yield deflated
        deflated.finish()


class _Deflated:
    """Compresses data that is written to a file."""

    def __init__(self, file: BinaryIO, compression: Compression) -> None:
        self._file = file
        self._deflate = zlib.compressobj(wbits=WINDOW[compression])

    def write(self, data: bytes) -> None:
        self._file.write(self._deflate.compress(data))

    def finish(self) -> None:
        self._file.write(self._deflate.flush())
