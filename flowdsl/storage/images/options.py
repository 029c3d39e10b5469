"""The options of decoding that all readers of images share, and their checks."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import attrs
import numpy as np

from flowdsl.errors import InvalidFlow
from flowdsl.nodes import checked_flag, checked_int

Size: TypeAlias = "int | tuple[int, int]"
Channels: TypeAlias = Literal[1, 3, "palette"]
Truncated: TypeAlias = Literal["error", "allow"]
Box: TypeAlias = tuple[int, int, int, int]
"""A part of an image: top, left, height and width."""

MAX_PIXELS = 2**27
"""The default limit on an image's pixels: a few bytes can claim a huge image."""
_CROP_SIDES = (("top", 0), ("left", 0), ("height", 1), ("width", 1))
"""The numbers of a crop, and the least value of each."""


@attrs.frozen
class ImageOptions:
    """Options of decoding images; ``decode_image`` describes each."""

    channels: Channels = 3
    size: tuple[int, int] | None = None
    antialias: bool = True
    orient: bool = False
    truncated: Truncated = "error"
    most_pixels: int = MAX_PIXELS

    def described(self) -> list[str]:
        """Return the options that are not the default, as arguments."""
        changed = []
        for field in attrs.fields(ImageOptions):
            value, name = getattr(self, field.name), field.name
            if value != field.default:
                changed.append(f"{'resize' if name == 'size' else name}={value!r}")
        return changed


def checked_options(
    operator: str,
    channels: Channels,
    resize: Size | None,
    antialias: bool,
    orient: bool,
    truncated: Truncated,
    most_pixels: int,
) -> ImageOptions:
    """Check the arguments of an operator, and return them.

    Raises:
        InvalidFlow: An argument is out of range.
    """
    if isinstance(channels, bool) or channels not in get_args(Channels):
        raise InvalidFlow(
            f"{operator}: channels must be 1 (grey), 3 (RGB) or 'palette' (indices), got "
            f"{channels!r}"
        )
    if truncated not in get_args(Truncated):
        raise InvalidFlow(f"{operator}: truncated must be 'error' or 'allow', got {truncated!r}")
    return ImageOptions(
        channels,
        checked_size(operator, resize),
        checked_flag(f"{operator}: antialias", antialias),
        checked_flag(f"{operator}: orient", orient),
        truncated,
        checked_int(f"{operator}: most_pixels", most_pixels, 1),
    )


def checked_size(
    operator: str, resize: Size | None, argument: str = "resize"
) -> tuple[int, int] | None:
    """Return a side or ``(height, width)`` as ``(height, width)``.

    Raises:
        InvalidFlow: The argument is neither.
    """
    if resize is None:
        return None
    given: object = resize
    sides = given if isinstance(given, tuple) else (given, given)
    if len(sides) != 2 or not isinstance(given, tuple | int | np.integer):
        raise InvalidFlow(
            f"{operator}: {argument} must be an int or (height, width), got {resize!r}"
        )
    height, width = (checked_int(f"{operator}: {argument}", side, 1, 2**15) for side in sides)
    return height, width


def checked_crop(crop: Box) -> Box:
    """Return the crop as ints.

    Raises:
        InvalidFlow: It is not four ints in range.
    """
    box: object = crop
    if not isinstance(box, tuple | list) or len(box) != 4:
        raise InvalidFlow(f"decode_image: crop must be (top, left, height, width), got {crop!r}")
    top, left, height, width = (
        checked_int(f"decode_image: crop: {name}", value, least)
        for (name, least), value in zip(_CROP_SIDES, crop, strict=True)
    )
    return top, left, height, width
