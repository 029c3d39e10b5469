"""The orientation of a photograph, as a camera notes it in Exif, and how to turn the pixels."""

from __future__ import annotations

import struct

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.storage.images.headers import exif_of
from flowdsl.storage.images.options import Box

_ORIENTATION, _SHORT = 0x112, 3
_ENTRY = 12


@attrs.frozen
class Turn:
    """A turn of stored pixels for display: transposed first, then flipped."""

    transposed: bool = False
    upside_down: bool = False
    mirrored: bool = False

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Return the displayed size of a stored one, or the stored size of a displayed one."""
        return (width, height) if self.transposed else (height, width)

    def stored(self, box: Box, shown: tuple[int, int]) -> Box:
        """Return the stored part that is displayed as ``box``, of an image displayed at ``shown``.

        >>> Turn(transposed=True, mirrored=True).stored((0, 0, 2, 3), (10, 20))
        (17, 0, 3, 2)
        """
        top, left, h, w = box
        if self.upside_down:
            top = shown[0] - top - h
        if self.mirrored:
            left = shown[1] - left - w
        return (left, top, w, h) if self.transposed else (top, left, h, w)

    def pixels(self, stored: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the pixels as they are displayed."""
        if self == UPRIGHT:
            return stored
        turned = stored.swapaxes(0, 1) if self.transposed else stored
        down, right = (-1 if flipped else 1 for flipped in (self.upside_down, self.mirrored))
        return np.ascontiguousarray(turned[::down, ::right])


UPRIGHT = Turn()
_TURNS = {
    2: Turn(mirrored=True),
    3: Turn(upside_down=True, mirrored=True),
    4: Turn(upside_down=True),
    5: Turn(transposed=True),
    6: Turn(transposed=True, mirrored=True),
    7: Turn(transposed=True, upside_down=True, mirrored=True),
    8: Turn(transposed=True, upside_down=True),
}
"""By Exif's numbers. Other numbers, and Exif that is damaged, mean that nothing is turned."""


def turn_of(kind: str, data: memoryview) -> Turn:
    """Return how the image is turned, by its Exif."""
    try:
        return _TURNS.get(_orientation(exif_of(kind, data)), UPRIGHT)
    except struct.error:
        return UPRIGHT


def _orientation(exif: bytes) -> int:
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None:
        return 1
    (start,) = struct.unpack_from(f"{order}I", exif, 4)
    (count,) = struct.unpack_from(f"{order}H", exif, start)
    for at in range(start + 2, start + 2 + _ENTRY * count, _ENTRY):
        tag, kind, _, value = struct.unpack_from(f"{order}HHIH", exif, at)
        if (tag, kind) == (_ORIENTATION, _SHORT):
            return int(value)
    return 1
