"""What the first bytes of an image file say: its format and size."""

from __future__ import annotations

import struct

from flowdsl.errors import SourceError

_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_HEADER = 32
_PROGRESSIVE = frozenset((0xC2, 0xC6, 0xCA, 0xCE))


def image_format(data: memoryview) -> str:
    """The format of an encoded image: JPEG, PNG, WebP, BMP or GIF.

    Raises:
        SourceError: It is none of these.
    """
    head = bytes(data[:16])
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if head.startswith(b"RIFF") and head[8:15] == b"WEBPVP8":
        return "WebP"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if head.startswith(b"BM"):
        return "BMP"
    if not head:
        raise SourceError("no image: there are no bytes")
    raise SourceError(f"no JPEG, PNG, WebP, BMP or GIF image: it begins with {head!r}")


def size_in_header(kind: str, data: memoryview) -> tuple[int, int]:
    """The height and width of an image that is no JPEG.

    Raises:
        SourceError: Its header is cut off, or damaged.
    """
    try:
        width, height = _SIZES[kind](bytes(data[:_HEADER]))
    except (struct.error, IndexError) as error:
        raise SourceError(f"this {kind} image is cut off: it has {len(data)} bytes") from error
    return height, width


def _png(data: bytes) -> tuple[int, int]:
    if data[12:16] != b"IHDR":
        raise SourceError("this PNG image is damaged: it does not begin with its header")
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


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
    """Whether a JPEG comes in scans of the whole image."""
    at, end = 2, len(data)
    while at + 4 <= end and data[at] == 0xFF:
        code = data[at + 1]
        if code in _START_OF_FRAME:
            return code in _PROGRESSIVE
        if code == 0xFF:  # a filler
            at += 1
        elif code == 0x01 or 0xD0 <= code <= 0xD8:  # these have no content
            at += 2
        else:
            at += 2 + (data[at + 2] << 8 | data[at + 3])
    return True  # garbage between two markers, which libjpeg skips: look at it closely
