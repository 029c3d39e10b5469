"""The headers of image files: format and size, read without decoding."""

from __future__ import annotations

import struct
from zlib import crc32

from flowdsl.errors import SourceError

_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PNG = b"\x89PNG\r\n\x1a\n"
_HEADER = 32
_DEFLATES_TO = 1032
"""The highest ratio of uncompressed to compressed bytes in a PNG."""
_SAMPLES = {2: 3, 4: 2, 6: 4}
"""Samples per pixel, by a PNG's colour type; other types have one."""
_PROGRESSIVE = frozenset((0xC2, 0xC6, 0xCA, 0xCE))


def image_format(data: memoryview) -> str:
    """Return the format of an encoded image: JPEG, PNG, WebP, BMP or GIF.

    Raises:
        SourceError: The image has none of these formats.
    """
    head = bytes(data[:16])
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if head.startswith(_PNG):
        return "PNG"
    if head.startswith(b"RIFF") and head[8:15] == b"WEBPVP8":
        return "WebP"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if head.startswith(b"BM"):
        return "BMP"
    if not head:
        raise SourceError("not an image: there are no bytes")
    raise SourceError(f"not a JPEG, PNG, WebP, BMP or GIF image: it begins with {head!r}")


def size_in_header(kind: str, data: memoryview) -> tuple[int, int]:
    """Return the height and width of an image that is not a JPEG.

    Raises:
        SourceError: The header is truncated or damaged.
    """
    head = bytes(data[:_HEADER])
    try:
        width, height = _SIZES[kind](head)
    except (struct.error, IndexError) as error:
        raise SourceError(f"this {kind} image is cut off: it has {len(data)} bytes") from error
    if kind == "PNG" and _bits(head) * width * height > 8 * _DEFLATES_TO * len(data):
        raise SourceError(
            f"this PNG image is cut off: {height} x {width} pixels cannot be in {len(data)} bytes"
        )
    return height, width


def _png(data: bytes) -> tuple[int, int]:
    if data[12:16] != b"IHDR" or len(data) < _HEADER:
        raise SourceError("this PNG image is damaged: it does not begin with its header")
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _bits(head: bytes) -> int:
    """Return a lower bound of the bits in a PNG's pixel."""
    return head[24] * _SAMPLES.get(head[25], 1)


def check_png(data: memoryview) -> None:
    """Walk through the chunks of a PNG and verify their checksums.

    OpenCV allocates the size that a chunk claims, up to 4 GiB, before it reads the chunk.

    Raises:
        SourceError: A chunk is truncated or damaged.
    """
    at = len(_PNG)
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 8 + length
        if end + 4 > len(data):
            break
        if crc32(data[at + 4 : end]) != int.from_bytes(data[end : end + 4]):
            raise SourceError(f"this PNG image is damaged: the checksum at byte {end} differs")
        if kind == b"IEND":
            return
        at = end + 4
    raise SourceError(f"this PNG image is cut off: it has {len(data)} bytes, and no end")


def _gif(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _bmp(data: bytes) -> tuple[int, int]:
    (header,) = struct.unpack_from("<I", data, 14)
    width, height = struct.unpack_from("<HH" if header == 12 else "<ii", data, 18)
    return width, abs(height)


def _webp(data: bytes) -> tuple[int, int]:
    if data[12:16] == b"VP8X":
        wide, high, more, still = struct.unpack_from("<HBHB", data, 24)
        return 1 + wide + (high << 16), 1 + more + (still << 16)
    if data[12:16] == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


_SIZES = {"PNG": _png, "GIF": _gif, "BMP": _bmp, "WebP": _webp}


def is_progressive(data: memoryview) -> bool:
    """Return True if a JPEG stores several scans of the whole image."""
    at, end = 2, len(data)
    while at + 4 <= end and data[at] == 0xFF:
        code = data[at + 1]
        if code in _START_OF_FRAME:
            return code in _PROGRESSIVE
        if code == 0xFF:  # a fill byte
            at += 1
        elif code == 0x01 or 0xD0 <= code <= 0xD8:  # markers without content
            at += 2
        else:
            at += 2 + (data[at + 2] << 8 | data[at + 3])
    return True  # no frame header was found: assume the worst
