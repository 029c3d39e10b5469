"""The framing of records in a TFRecord file: lengths, checksums, and the index of records.

A record consists of its length in 8 bytes, a checksum of the length, the payload, and a checksum
of the payload. A checksum is a CRC-32C, "masked" as in Chubby and LevelDB, in 4 bytes. All
numbers are little-endian.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, cast

import attrs
import numpy as np
import xxhash
from numpy.typing import NDArray

from flowdsl.errors import SourceError
from flowdsl.storage.byte_files import ByteFile, read_into
from flowdsl.storage.index import Index
from flowdsl.storage.libraries import library
from flowdsl.storage.paths import is_url
from flowdsl.storage.read_ahead import ReadAhead

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Checksum(Protocol):
    """Computes the masked CRC-32C of bytes in one or several parts."""

    def __call__(self, *parts: bytes | NDArray[np.uint8]) -> int: ...


HEADER = struct.Struct("<QI")
FOOTER = struct.Struct("<I")
_BETWEEN = struct.Struct("<IQI")
"""The bytes between two payloads: the end of a record and the header of the next."""

_BLOCK = 1 << 20
_LITTLE = 1 << 12
"""Bytes that a scan reads at once: a block of small records, or just the header of a large one."""

_LARGE, _LARGE_REMOTE = 1 << 16, 1 << 23
"""The size from which payloads are skipped, not read; more where each read is slow."""


def checksum_for(operator: str) -> Checksum:
    """Return a function that computes the masked CRC-32C.

    Raises:
        MissingLibrary: google-crc32c is not installed.
    """
    extend = library("google_crc32c", operator, "tfrecord").extend

    def masked(*parts: bytes | NDArray[np.uint8]) -> int:
        crc = 0
        for part in parts:
            crc = extend(crc, part)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    return masked


def framed(payload: bytes, checksum: Checksum) -> bytes:
    """Return a payload framed as a record."""
    length = len(payload).to_bytes(8, "little")
    sums = checksum(length).to_bytes(4, "little"), checksum(payload).to_bytes(4, "little")
    return b"".join((length, sums[0], payload, sums[1]))


def scan(file: ByteFile, checksum: Checksum) -> Index:
    """Find the payloads of a file; the digest covers their lengths and stored checksums.

    The checksums of lengths are verified here, the checksums of payloads when a record is read.

    Raises:
        SourceError: The file is damaged, truncated or not a TFRecord file; the message says where.
    """
    ends, sums = array("q"), array("I")
    large = _LARGE_REMOTE if is_url(file.path) else _LARGE
    # most lengths recur
    checksum_of_length = lru_cache(1 << 14)(lambda n: checksum(n.to_bytes(8, "little")))
    size, length = file.size, 0
    end = begin = -FOOTER.size  # as if a payload ended just before the file
    block = bytes(FOOTER.size) + file.read(0, _BLOCK)
    while end + FOOTER.size < size:
        k = end - begin
        if k + _BETWEEN.size > len(block):
            if begin + len(block) < size:
                block, begin, k = file.read(end, _BLOCK if length < large else _LITTLE), end, 0
            if k + _BETWEEN.size > len(block):
                raise cut_short(file.path, end + FOOTER.size)
        sum_before, length, expected = _BETWEEN.unpack_from(block, k)
        if checksum_of_length(length) != expected:
            raise no_record(file.path, end + FOOTER.size, block[k + 4 : k + 6])
        start = end + _BETWEEN.size
        end = start + length
        if end + FOOTER.size > size:
            raise cut_short(file.path, start - HEADER.size)
        ends.append(end)
        sums.append(sum_before)
    digest = xxhash.xxh3_64(np.array(ends, "<i8").tobytes())
    digest.update(
        np.array(sums[1:], "<u4").tobytes() + (file.read(end, FOOTER.size) if ends else b"")
    )
    all_ends = np.array(ends, np.int64)
    starts = np.concatenate([[HEADER.size], all_ends[:-1] + _BETWEEN.size])[: len(ends)]
    return Index(starts, all_ends, digest.intdigest())


@attrs.frozen(eq=False)
class Payloads:
    """The payloads of a file, by index."""

    path: str
    ahead: ReadAhead
    checksum: Checksum
    starts: memoryview
    ends: memoryview  # a memoryview returns Python ints, and faster than an array

    def size(self, i: int) -> int:
        return self.ends[i] - self.starts[i]

    def get_into(self, i: int, buffers: Sequence[Buffer]) -> bool:
        """Fill buffers with a payload; return False if that fails, or if the payload is damaged."""
        footer = bytearray(FOOTER.size)
        count = self.size(i) + FOOTER.size
        if not read_into(self.ahead.file, [*buffers, footer], self.starts[i], count):
            return False
        parts = [np.frombuffer(cast("bytes", buffer), np.uint8) for buffer in buffers]
        return self.checksum(*parts).to_bytes(4, "little") == footer

    def get(self, i: int) -> bytes:
        """Return a payload; raises SourceError if it is damaged."""
        start = self.starts[i]
        length = self.ends[i] - start
        data = self.ahead.read(start, start + length + FOOTER.size)
        payload = data[:length]
        if data[length:] != self.checksum(payload).to_bytes(4, "little"):
            raise SourceError(
                f"{self.path!r}: record {i}, at byte {start}, is damaged: its checksum differs"
            )
        return payload


def cut_short(path: str, at: int) -> SourceError:
    """Return the error for an incomplete record at byte ``at``."""
    return SourceError(
        f"from_tfrecord: {path!r} is cut short: the record at byte {at} is incomplete"
    )


def no_record(path: str, at: int, first: bytes) -> SourceError:
    """Return the error for a header with a wrong checksum; ``first`` contains the bytes there."""
    if at == 0 and (name := compression_of(first)):
        return SourceError(
            f"from_tfrecord: {path!r} is not a TFRecord file, but seems compressed; "
            f"pass compression={name!r}"
        )
    if at == 0:
        return SourceError(
            f"from_tfrecord: {path!r} is damaged or is not a TFRecord file: the checksum of the "
            f"first record's length differs"
        )
    return SourceError(
        f"from_tfrecord: {path!r} is damaged: at byte {at} the checksum of a record's length "
        f"differs"
    )


def compression_of(first: bytes) -> str | None:
    """Return the compression that the first two bytes of a file indicate."""
    if first == b"\x1f\x8b":
        return "gzip"
    deflated = len(first) == 2 and first[0] & 0x0F == 8 and first[0] >> 4 <= 7
    return "zlib" if deflated and int.from_bytes(first, "big") % 31 == 0 else None
