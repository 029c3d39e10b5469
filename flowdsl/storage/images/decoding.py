"""decode_image: the pixels of a JPEG, PNG, WebP, BMP or GIF image, decoded only as needed.

JPEG is decoded by libjpeg-turbo (simplejpeg), other formats by OpenCV. A JPEG that is resized to
less than half its size is decoded at a half, a quarter or an eighth of its size; libjpeg does
that without computing the pixels in between.
"""

from __future__ import annotations

import os
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.nodes import checked_flag, checked_int
from flowdsl.storage.images.headers import check_png, image_format, is_progressive, size_in_header
from flowdsl.storage.images.scratch import Scratch
from flowdsl.storage.libraries import library

Image: TypeAlias = NDArray[np.uint8]
Encoded: TypeAlias = "bytes | bytearray | memoryview | Image"
Size: TypeAlias = "int | tuple[int, int]"
Channels: TypeAlias = Literal[1, 3]

MAX_PIXELS = 2**27
"""The default limit on an image's pixels: a few bytes can claim a huge image."""

_MAX_SCANS = 500
"""The limit on scans of a progressive JPEG. Each covers all pixels; usually there are ten."""
_REDUCTIONS = (8, 4, 2)
"""The scales that libjpeg decodes fast; other scales take longer than full size."""
_OF_A_CROP = (("top", 0), ("left", 0), ("height", 1), ("width", 1))
_SAMPLED = 4
"""Up to this factor, averaging four samples covers each pixel, faster than averaging all."""

_DECODED, _TWICE = Scratch(), Scratch()


def decode_image(
    data: Encoded,
    *,
    channels: Channels = 3,
    resize: Size | None = None,
    crop: tuple[int, int, int, int] | None = None,
    antialias: bool = True,
    most_pixels: int = MAX_PIXELS,
) -> Image:
    """Decode an image into ``uint8[height, width, channels]``, in the order R, G, B.

    ``data`` contains the bytes of a JPEG, PNG, WebP, BMP or GIF file. With 3 ``channels``, a grey
    image becomes a colour image; with 1, a colour image becomes grey. ``crop=(top, left, height,
    width)`` cuts out a part, in pixels of the stored image. ``resize``, a side or ``(height,
    width)``, scales the part to this size, ignoring its aspect ratio: bilinear when it grows, and
    smoothed when it shrinks. With ``antialias=False``, shrinking is bilinear too, which is faster
    but skips pixels. A JPEG that is resized to less than half its size is decoded at a smaller
    scale; a crop then begins at the nearest pixel of that scale.

    Transparency is dropped, only the first frame of an animation is decoded, and the Exif
    orientation is not applied, as in tf.data and torchvision. Sixteen-bit and floating-point images
    are refused, not rounded. The returned array is newly allocated and writable.

    Errors: ``SourceError`` for bytes that are not an image of these formats, for an image that is
    truncated or damaged (where the format can detect it), and for an image of more than
    ``most_pixels``. ``InvalidFlow`` for an argument out of range, and for a ``crop`` that is not
    within the image.

    >>> import flowdsl as fl, numpy as np, simplejpeg
    >>> jpeg = simplejpeg.encode_jpeg(np.full((60, 80, 3), 200, np.uint8))
    >>> fl.decode_image(jpeg, crop=(0, 20, 40, 40), resize=16).shape
    (16, 16, 3)
    >>> fl.from_items([jpeg]).map(fl.decode_image).collect()[0].shape
    (60, 80, 3)

    Source: ``decode_and_crop_jpeg`` in TensorFlow; the scaled decoding of the Independent JPEG
    Group's library, by libjpeg-turbo.

    Elsewhere: tensorpack ``cv2.imdecode``; tf.data ``tf.io.decode_image``; Grain none; torchdata
    ``torchvision.io.decode_image``.
    """
    size = checked_size("decode_image", resize)
    color = checked_channels("decode_image", channels) == 3
    box = None if crop is None else _checked_crop(crop)
    smooth = checked_flag("decode_image: antialias", antialias)
    most = checked_int("decode_image: most_pixels", most_pixels, 1)
    return _decoded(_view(data), color, size, box, smooth, most)


def image_size(data: Encoded) -> tuple[int, int]:
    """Return the height and width of an encoded image from its header, without decoding it.

    Errors: ``SourceError`` for bytes that ``decode_image`` does not recognise as an image.

    >>> import flowdsl as fl, numpy as np, simplejpeg
    >>> fl.image_size(simplejpeg.encode_jpeg(np.zeros((60, 80, 3), np.uint8)))
    (60, 80)

    Source: ``extract_jpeg_shape`` in TensorFlow.
    """
    return _size(_view(data, "image_size"), None)


# -- arguments -------------------------------------------------------------------------------------


def checked_size(
    operator: str, resize: Size | None, argument: str = "resize"
) -> tuple[int, int] | None:
    """Return a side or ``(height, width)`` as ``(height, width)``.

    Raises:
        InvalidFlow: The argument is neither.
    """
    if resize is None:
        return None
    argument_value: object = resize
    sides = argument_value if isinstance(argument_value, tuple) else (argument_value,) * 2
    if len(sides) != 2 or not isinstance(argument_value, tuple | int | np.integer):
        raise InvalidFlow(
            f"{operator}: {argument} must be an int or (height, width), got {resize!r}"
        )
    height, width = (checked_int(f"{operator}: {argument}", side, 1, 2**15) for side in sides)
    return height, width


def checked_channels(operator: str, channels: Channels) -> Channels:
    """Check and return the number of channels.

    Raises:
        InvalidFlow: The number is neither 1 nor 3.
    """
    if isinstance(channels, bool) or channels not in (1, 3):
        raise InvalidFlow(f"{operator}: channels must be 1 (grey) or 3 (RGB), got {channels!r}")
    return channels


def _checked_crop(crop: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    box: object = crop
    if not isinstance(box, tuple | list) or len(box) != 4:
        raise InvalidFlow(f"decode_image: crop must be (top, left, height, width), got {crop!r}")
    top, left, height, width = (
        checked_int(f"decode_image: crop: {name}", value, least)
        for (name, least), value in zip(_OF_A_CROP, crop, strict=True)
    )
    return top, left, height, width


def _view(data: Any, function: str = "decode_image") -> memoryview:
    try:
        view = memoryview(data)
        if view.itemsize == 1:
            return view.cast("B")
    except TypeError:
        pass
    hint = "; from_images reads files" if isinstance(data, str | os.PathLike) else ""
    raise InvalidFlow(
        f"{function}: data must be the bytes of an image file, got {type(data).__name__}{hint}"
    )


# -- decoding --------------------------------------------------------------------------------------


def _size(data: memoryview, most: int | None) -> tuple[int, int]:
    """Return the height and width in the image's header."""
    kind = image_format(data)
    height, width = _jpeg_size(data) if kind == "JPEG" else size_in_header(kind, data)
    if height < 1 or width < 1:
        raise SourceError(f"this {kind} image has no pixels: its header says {height} x {width}")
    if most is not None and height * width > most:
        raise SourceError(
            f"this {kind} image has, by its header, {height} x {width} pixels, more than "
            f"most_pixels={most}; decode_image(data, most_pixels=...) allows for more"
        )
    return height, width


def _jpeg_size(data: memoryview) -> tuple[int, int]:
    jpeg = library("simplejpeg", "decode_image", "images")
    try:
        height, width, *_ = jpeg.decode_jpeg_header(data)
    except ValueError as error:
        raise SourceError(f"not a valid JPEG image: {error}") from error
    return height, width


def _decoded(
    data: memoryview,
    color: bool,
    size: tuple[int, int] | None,
    crop: tuple[int, int, int, int] | None,
    smooth: bool,
    most: int,
) -> Image:
    height, width = _size(data, most)
    top, left, h, w = crop or (0, 0, height, width)
    if top + h > height or left + w > width:
        raise InvalidFlow(
            f"decode_image: crop={crop} is not within the image of {height} x {width} pixels"
        )
    if image_format(data) != "JPEG":
        pixels = _with_opencv(data, (height, width))[top : top + h, left : left + w]
        return _resized(_in_color(pixels, color), size or (h, w), smooth)
    by = _reduction((h, w), size)
    room = None
    if crop is not None or size is not None:
        room = _DECODED.array(-(-height // by), -(-width // by), 3 if color else 1)
    pixels = _with_libjpeg(data, color, room)
    if crop is not None:
        top, bottom, left, right = (_over(x, by) for x in (top, top + h, left, left + w))
        pixels = pixels[top : max(bottom, top + 1), left : max(right, left + 1)]
    return _resized(pixels, size or (h, w), smooth)


def _over(x: int, by: int) -> int:
    return (x + by // 2) // by


def _reduction(part: tuple[int, int], size: tuple[int, int] | None) -> int:
    """Return the largest factor of reduction that keeps the part at least as large as ``size``."""
    if size is None:
        return 1
    fits = (by for by in _REDUCTIONS if part[0] >= size[0] * by and part[1] >= size[1] * by)
    return next(fits, 1)


def _with_libjpeg(data: memoryview, color: bool, room: Image | None) -> Image:
    """Decode a JPEG; into ``room`` if there is one, at the scale that fits it."""
    if is_progressive(data) and bytes(data).count(b"\xff\xda") > _MAX_SCANS:
        raise SourceError(f"this JPEG image has more than {_MAX_SCANS} scans")
    jpeg = library("simplejpeg", "decode_image", "images")
    height, width = (0, 0) if room is None else room.shape[:2]
    try:
        pixels: Image = jpeg.decode_jpeg(
            data, "RGB" if color else "GRAY", min_height=height, min_width=width, buffer=room
        )
    except ValueError as error:
        raise SourceError(f"this JPEG image is damaged: {error}") from error
    return pixels


def _with_opencv(data: memoryview, size: tuple[int, int]) -> Image:
    kind = image_format(data)
    if kind == "PNG":
        check_png(data)
    cv2 = library("cv2", "decode_image", "images")
    try:
        pixels: NDArray[Any] | None = cv2.imdecode(
            np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED
        )
    except cv2.error as error:
        raise SourceError(f"this {kind} image is damaged: {error.err}") from error
    if pixels is None or pixels.shape[:2] != size:
        raise SourceError(f"this {kind} image is damaged, or of an unsupported kind")
    if pixels.dtype != np.uint8:
        raise SourceError(
            f"this {kind} image is of {pixels.dtype}, which would not fit into uint8; for its "
            f"unchanged pixels write .map(f) with cv2.imdecode(..., cv2.IMREAD_UNCHANGED)"
        )
    return pixels


def _in_color(pixels: Image, color: bool) -> Image:
    """Convert OpenCV's grey, BGR or BGRA to RGB or grey."""
    cv2 = library("cv2", "decode_image", "images")
    depth = 1 if pixels.ndim == 2 else pixels.shape[2]
    if depth == 1:
        return cast("Image", cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB)) if color else pixels
    if color:
        code = cv2.COLOR_BGR2RGB if depth == 3 else cv2.COLOR_BGRA2RGB
    else:
        code = cv2.COLOR_BGR2GRAY if depth == 3 else cv2.COLOR_BGRA2GRAY
    return cast("Image", cv2.cvtColor(pixels, code))


def _resized(pixels: Image, size: tuple[int, int], smooth: bool) -> Image:
    """Resize to ``size``, with a channel axis; the result does not keep a larger array alive."""
    if pixels.shape[:2] != size:
        pixels = _interpolated(pixels, size, smooth)
    elif pixels.base is not None:
        pixels = pixels.copy()
    return pixels if pixels.ndim == 3 else pixels.reshape(*size, 1)


def _interpolated(pixels: Image, size: tuple[int, int], smooth: bool) -> Image:
    cv2 = library("cv2", "decode_image", "images")
    (height, width), (h, w) = pixels.shape[:2], size
    if not smooth or (height <= h and width <= w):
        return cast("Image", cv2.resize(pixels, (w, h), interpolation=cv2.INTER_LINEAR))
    if height <= _SAMPLED * h and width <= _SAMPLED * w:
        room = _TWICE.array(2 * h, 2 * w, *pixels.shape[2:])
        twice = cv2.resize(pixels, (2 * w, 2 * h), dst=room, interpolation=cv2.INTER_LINEAR)
        return cast("Image", cv2.resize(twice, (w, h), interpolation=cv2.INTER_AREA))
    least = min(width, w), min(height, h)
    mean = cv2.resize(pixels, least, interpolation=cv2.INTER_AREA)
    return cast("Image", cv2.resize(mean, (w, h), interpolation=cv2.INTER_LINEAR))
