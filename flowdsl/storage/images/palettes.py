"""Images whose palette is replaced by shades of grey, so that each pixel's colour is its index.

OpenCV returns the colours of a palette, and no indices.
"""

from __future__ import annotations

import struct
from functools import cache
from zlib import crc32

from flowdsl.errors import SourceError

_BMP_FILE_HEADER_BYTES, _GIF_COLOUR_BYTES = 14, 3


def with_indices(kind: str, data: memoryview) -> bytes | None:
    """Return the image with the palette 0, 1, 2, ...; None if it has no palette.

    Raises:
        SourceError: The image is cut off, or damaged.
    """
    replace = {"PNG": _png, "GIF": _gif, "BMP": _bmp}.get(kind)
    if replace is None:
        return None
    try:
        return replace(bytes(data))
    except (struct.error, IndexError) as error:
        raise SourceError(f"this {kind} image is cut off: it has {len(data)} bytes") from error


@cache
def _greys(count: int, colour_bytes: int = 3) -> bytes:
    return b"".join(bytes([i] * 3).ljust(colour_bytes, b"\0") for i in range(count))


def _png(data: bytes) -> bytes | None:
    depth, color = data[24], data[25]
    if color != 3 or depth not in (1, 2, 4, 8):
        return None
    parts, at = [data[:8]], 8
    while at + 12 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        end = at + 12 + length
        if name == b"PLTE":
            content = name + _greys(1 << depth)
            parts += [struct.pack(">I", len(content) - 4), content]
            parts += [struct.pack(">I", crc32(content))]
        else:
            parts.append(data[at:end])
        at = end
    return b"".join(parts)


def _gif(data: bytes) -> bytes | None:
    flags = data[10]
    at = 13 + _colours(flags) * _GIF_COLOUR_BYTES
    head = bytearray(data[:13])
    head[10] = flags | 0x87  # a palette of 256 colours
    parts = [bytes(head), _greys(256)]
    while data[at] == 0x21:  # an extension
        end = at + 2
        while data[end]:
            end += 1 + data[end]
        extension = bytearray(data[at : end + 1])
        if extension[1] == 0xF9:  # of the image that follows
            extension[3] &= 0xFE  # no colour is transparent
        parts.append(bytes(extension))
        at = end + 1
    if data[at] != 0x2C:
        raise SourceError(f"this GIF image is damaged: expected an image at byte {at}")
    flags = data[at + 9]
    parts += [data[at : at + 9], bytes([flags & 0x7F])]  # without a palette of its own
    parts.append(data[at + 10 + _colours(flags) * _GIF_COLOUR_BYTES :])
    return b"".join(parts)


def _colours(flags: int) -> int:
    return 2 << (flags & 7) if flags & 0x80 else 0


def _bmp(data: bytes) -> bytes | None:
    (pixels,) = struct.unpack_from("<I", data, 10)
    (header,) = struct.unpack_from("<I", data, 14)
    old = header == 12
    (depth,) = struct.unpack_from("<H", data, 24 if old else 28)
    if depth not in (1, 4, 8):
        return None
    palette = _greys(1 << depth, 3 if old else 4)
    head = bytearray(data[: _BMP_FILE_HEADER_BYTES + header])
    struct.pack_into("<I", head, 10, len(head) + len(palette))
    if not old:
        struct.pack_into("<I", head, 46, 0)  # as many colours as the depth allows
    return bytes(head) + palette + data[pixels:]
