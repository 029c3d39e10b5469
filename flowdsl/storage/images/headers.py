"""The headers of image files: format and size, read without decoding."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from zlib import crc32

import attrs

from flowdsl.errors import SourceError

_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PNG = b"\x89PNG\r\n\x1a\n"
_HEADER = 32
_DEFLATES_TO = 1032
"""The highest ratio of uncompressed to compressed bytes in a PNG."""
_SAMPLES = {2: 3, 4: 2, 6: 4}
"""Samples per pixel, by a PNG's colour type; other types have one."""
_PROGRESSIVE = frozenset((0xC2, 0xC6, 0xCA, 0xCE))
_START_OF_SCAN, _APPLICATION_1 = 0xDA, 0xE1
_SEGMENT = struct.Struct(">BBH")
_MAX_MARKERS = 10_000
"""The limit on the markers of a JPEG's header, which usually has some dozens."""
_EXIF = b"Exif\0\0"


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
    if kind == "PNG" and _bits_per_pixel(head) * width * height > 8 * _DEFLATES_TO * len(data):
        raise SourceError(
            f"this PNG image is cut off: {height} x {width} pixels cannot be in {len(data)} bytes"
        )
    return height, width


def _png(data: bytes) -> tuple[int, int]:
    if data[12:16] != b"IHDR" or len(data) < _HEADER:
        raise SourceError("this PNG image is damaged: it does not begin with its header")
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _bits_per_pixel(head: bytes) -> int:
    """Return the bits of a pixel in a PNG with this header, or a lower bound."""
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
        width, width_high, height, height_high = struct.unpack_from("<HBHB", data, 24)
        return 1 + width + (width_high << 16), 1 + height + (height_high << 16)
    if data[12:16] == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


_SIZES = {"PNG": _png, "GIF": _gif, "BMP": _bmp, "WebP": _webp}


# -- JPEG ------------------------------------------------------------------------------------------


@attrs.frozen
class JpegHeader:
    """The parts of a JPEG's header that decoders need."""

    height: int
    width: int
    factors: tuple[tuple[int, int], ...]
    """The samples of each component in a unit of the image, across and down."""
    has_scans: bool
    """True if it stores several scans of the whole image."""


def jpeg_header(data: memoryview) -> JpegHeader:
    """Return the header of a JPEG.

    Raises:
        SourceError: The header is truncated or damaged.
    """
    frame = kind = None
    for code, start, end in jpeg_segments(data):
        if code in _START_OF_FRAME:
            kind, frame = code, bytes(data[start:end])
        elif code == _START_OF_SCAN and frame is not None:
            if len(frame) < 6 or len(frame) < 6 + 3 * frame[5]:
                raise SourceError("this JPEG image is damaged: its header is too short")
            height, width, count = frame[1] << 8 | frame[2], frame[3] << 8 | frame[4], frame[5]
            factors = tuple([(byte >> 4, byte & 15) for byte in frame[7 : 6 + 3 * count : 3]])
            has_scans = kind in _PROGRESSIVE or data[start] < count
            return JpegHeader(height, width, factors, has_scans)
    raise SourceError("this JPEG image is damaged: its header has no size")


def jpeg_segments(data: memoryview) -> Iterator[tuple[int, int, int]]:
    """Yield the code, start and end of each segment of a JPEG's header, up to the first scan.

    Raises:
        SourceError: The header is truncated or damaged.
    """
    at, end = 2, len(data)
    for _ in range(_MAX_MARKERS):
        if at + 4 > end:
            break
        mark, code, size = _SEGMENT.unpack_from(data, at)
        if mark != 0xFF:
            raise SourceError(f"this JPEG image is damaged: expected a marker at byte {at}")
        if code == 0xFF:  # a fill byte
            at += 1
        elif code == 0x01 or 0xD0 <= code <= 0xD8:  # markers without content
            at += 2
        else:
            start, at = at + 4, at + 2 + size
            if start >= at or at > end:
                break
            yield code, start, at
            if code == _START_OF_SCAN:
                return
    raise SourceError(f"this JPEG image is cut off: it has {end} bytes, and no pixels")


# -- Exif ------------------------------------------------------------------------------------------


def exif_of(kind: str, data: memoryview) -> bytes:
    """Return the Exif of an image, from its byte order on; empty if there is none.

    Raises:
        SourceError: The header of a JPEG is truncated or damaged.
    """
    if kind == "JPEG":
        segments = jpeg_segments(data)
        contents = (bytes(data[i:end]) for code, i, end in segments if code == _APPLICATION_1)
        exif = next((content for content in contents if content.startswith(_EXIF)), b"")
    elif kind == "PNG":
        exif = _chunk(data, len(_PNG), b"eXIf", of_png=True)
    elif kind == "WebP":
        exif = _chunk(data, 12, b"EXIF", of_png=False)
    else:
        exif = b""
    return exif.removeprefix(_EXIF)


def _chunk(data: memoryview, at: int, name: bytes, of_png: bool) -> bytes:
    """Return the content of the first chunk of this name from ``at`` on; empty if there is none."""
    while at + 8 <= len(data):
        first, second = bytes(data[at : at + 4]), bytes(data[at + 4 : at + 8])
        if of_png:
            kind, size = second, int.from_bytes(first, "big")
        else:
            kind, size = first, int.from_bytes(second, "little")
        if kind == name:
            return bytes(data[at + 8 : at + 8 + size])
        at += 8 + size + (4 if of_png else size % 2)
    return b""
