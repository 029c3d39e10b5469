"""decode_image: the pixels of a JPEG, PNG, WebP, BMP or GIF image, decoded only as needed.

JPEG is decoded by libjpeg-turbo (simplejpeg), other formats by OpenCV. A JPEG that is resized to
less than half its size is decoded at a half, a quarter or an eighth of its size; libjpeg does
that without computing the pixels in between.
"""

from __future__ import annotations

import os
from typing import Any, TypeAlias, cast

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.nodes import checked_flag
from flowdsl.storage.images.headers import (
    JpegHeader,
    check_png,
    image_format,
    jpeg_header,
    size_in_header,
)
from flowdsl.storage.images.options import (
    MAX_PIXELS,
    Box,
    Channels,
    ImageOptions,
    Size,
    Truncated,
    checked_crop,
    checked_options,
)
from flowdsl.storage.images.orientation import UPRIGHT, Turn, turn_of
from flowdsl.storage.images.palettes import with_indices
from flowdsl.storage.images.scratch import Scratch
from flowdsl.storage.libraries import library

Image: TypeAlias = NDArray[np.uint8]
Encoded: TypeAlias = "bytes | bytearray | memoryview | Image"

_MAX_SCANS = 500
"""The limit on scans of a JPEG. Each covers all pixels; usually there are ten."""
_SCANS_OF_THE_LARGEST = 16
"""The limit on scans of a JPEG that has ``most_pixels``; a smaller JPEG may have more."""
_SAMPLINGS = frozenset(
    (luma, (1, 1), (1, 1), *fourth)
    for luma in ((1, 1), (2, 1), (2, 2), (1, 2), (4, 1))
    for fourth in ((), (luma,))
)
"""The sampling factors of three or four components that simplejpeg decodes."""
_REDUCTIONS = (8, 4, 2)
"""The scales that libjpeg decodes fast; other scales take longer than full size."""
_SAMPLED = 4
"""Up to this factor, averaging four samples covers each pixel, faster than averaging all."""
_START_OF_SCAN = b"\xff\xda"
_END = {"JPEG": b"\xff\xd9", "GIF": b";"}
"""The bytes at the end of an image, in formats whose pixels can be decoded without them."""

_DECODED, _TWICE = Scratch(), Scratch()
"""Memory for the pixels of a JPEG, and for pixels at twice the wanted size."""


def decode_image(
    data: Encoded,
    *,
    channels: Channels = 3,
    resize: Size | None = None,
    crop: Box | None = None,
    antialias: bool = True,
    orient: bool = False,
    truncated: Truncated = "error",
    most_pixels: int = MAX_PIXELS,
) -> Image:
    """Decode an image into ``uint8[height, width, channels]``, in the order R, G, B.

    ``data`` contains the bytes of a JPEG, PNG, WebP, BMP or GIF file. With 3 ``channels``, a grey
    image becomes a colour image; with 1, a colour image becomes grey. ``channels="palette"``
    returns the index of each pixel's colour in the palette of a PNG, GIF or BMP, as masks store
    classes, or the grey of a grey image, as ``uint8[height, width, 1]``.

    ``crop=(top, left, height, width)`` cuts out a part, in pixels of the whole image. ``resize``,
    a side or ``(height, width)``, scales the part to this size, ignoring its aspect ratio: bilinear
    when it grows, and smoothed when it shrinks. With ``antialias=False``, shrinking is bilinear
    too, which is faster but skips pixels. Of indices, the nearest is taken. A JPEG that is resized
    to less than half its size is decoded at a smaller scale; a crop then begins at the nearest
    pixel of that scale.

    With ``orient=True`` the image is turned as its Exif says, before the crop; by default it is
    not, as in tf.data and torchvision. With ``truncated="allow"``, a JPEG that is cut off is
    decoded as far as it goes, and the rest is grey, and a GIF may lack its end. Transparency is
    dropped, and only the first frame of an animation is decoded. Sixteen-bit and floating-point
    images are refused, not rounded. The returned array is newly allocated and writable.

    Errors: ``SourceError`` for bytes that are not an image of these formats, for an image that is
    truncated or damaged (where the format can detect it), for an image of more than
    ``most_pixels``, and for a JPEG whose many scans would take as long to decode.
    ``InvalidFlow`` for an argument out of range, and for a ``crop`` that is not within the image.

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
    box = None if crop is None else checked_crop(crop)
    options = checked_options(
        "decode_image", channels, resize, antialias, orient, truncated, most_pixels
    )
    return decoded(data, options, box)


def image_size(data: Encoded, *, orient: bool = False) -> tuple[int, int]:
    """Return the height and width of an encoded image from its header, without decoding it.

    ``orient=True`` returns the size as ``decode_image`` does with this option.

    Errors: ``SourceError`` for bytes that ``decode_image`` does not recognise as an image;
    ``InvalidFlow`` for an argument out of range.

    >>> import flowdsl as fl, numpy as np, simplejpeg
    >>> fl.image_size(simplejpeg.encode_jpeg(np.zeros((60, 80, 3), np.uint8)))
    (60, 80)

    Source: ``extract_jpeg_shape`` in TensorFlow.
    """
    image = _encoded(viewed(data, "image_size"), None)
    turned = checked_flag("image_size: orient", orient)
    return image.turn().size(*image.size) if turned else image.size


def decoded(data: Encoded, options: ImageOptions, crop: Box | None = None) -> Image:
    """Decode an image, as ``decode_image`` does, with options that were checked before.

    Raises:
        SourceError: The image cannot be decoded.
        InvalidFlow: The crop is not within the image.
    """
    image = _encoded(viewed(data, "decode_image"), options.most_pixels)
    turn = image.turn() if options.orient else UPRIGHT
    height, width = shown = turn.size(*image.size)
    top, left, h, w = crop or (0, 0, height, width)
    if top + h > height or left + w > width:
        raise InvalidFlow(
            f"decode_image: crop={crop} is not within the image of {height} x {width} pixels"
        )
    size = turn.size(*(options.size or (h, w)))
    box = turn.stored((top, left, h, w), shown)
    if options.channels == "palette":
        pixels = _resized(_part(_indices(image, options), box), size, None)
    elif image.is_for_libjpeg:
        pixels = _decoded_jpeg(image, box, size, options)
    else:
        whole = _in_uint8(image, _with_opencv(image, options.truncated))
        part = _in_color(_part(whole, box), options.channels == 3)
        pixels = _resized(part, size, options.antialias)
    return turn.pixels(pixels)


def stored_pixels(data: bytes, most_pixels: int) -> NDArray[Any]:
    """Return the pixels of an image with its own channels, in OpenCV's order, and its own dtype.

    Raises:
        SourceError: The image cannot be decoded.
    """
    image = _encoded(memoryview(data), most_pixels)
    if image.header is not None and image.is_for_libjpeg:
        space = "GRAY" if len(image.header.factors) == 1 else "BGR"
        return _with_libjpeg(image, space, None, ImageOptions(most_pixels=most_pixels))
    return _with_opencv(image, "error")


def viewed(data: Any, function: str) -> memoryview:
    """Return the bytes of an image.

    Raises:
        InvalidFlow: The argument is not bytes.
    """
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


@attrs.frozen
class _EncodedImage:
    """The bytes of an image, and what its header says."""

    kind: str
    data: memoryview
    size: tuple[int, int]
    header: JpegHeader | None = None
    """The header of a JPEG."""

    @property
    def is_for_libjpeg(self) -> bool:
        header = self.header
        return header is not None and (len(header.factors) == 1 or header.factors in _SAMPLINGS)

    def turn(self) -> Turn:
        return turn_of(self.kind, self.data)

    def has_end(self) -> bool:
        """Return False if the image is cut off, as far as its format shows that by its end."""
        if self.kind == "GIF":
            return bytes(self.data[-1:]) == _END["GIF"]
        content = bytes(self.data) if self.kind == "JPEG" else b""
        return content.rfind(_END["JPEG"]) >= content.rfind(_START_OF_SCAN)

    def ended(self) -> memoryview:
        """Return the bytes with an end."""
        return memoryview(bytes(self.data) + _END[self.kind])

    def damage(self, what: str, truncated: Truncated) -> SourceError:
        """Return the error of a decoder."""
        hint = ""
        if truncated == "error" and not self.has_end():
            what_for = "if only its end is missing" if self.kind == "GIF" else "to decode the rest"
            hint = f"; it is cut off: pass truncated='allow' {what_for}"
        return SourceError(f"this {self.kind} image is damaged{what}{hint}")


def _encoded(data: memoryview, most: int | None) -> _EncodedImage:
    """Read the header of an image.

    Raises:
        SourceError: It is not an image, or its header is damaged, or has too many pixels.
    """
    kind = image_format(data)
    header = jpeg_header(data) if kind == "JPEG" else None
    size = (header.height, header.width) if header is not None else size_in_header(kind, data)
    height, width = size
    if height < 1 or width < 1:
        raise SourceError(f"this {kind} image has no pixels: its header says {height} x {width}")
    if most is not None and height * width > most:
        raise SourceError(
            f"this {kind} image has, by its header, {height} x {width} pixels, more than "
            f"most_pixels={most}; pass a larger most_pixels= to decode it"
        )
    image = _EncodedImage(kind, data, size, header)
    if most is not None and header is not None and header.has_scans:
        _check_scans(image, most)
    return image


def _decoded_jpeg(
    image: _EncodedImage, box: Box, size: tuple[int, int], options: ImageOptions
) -> Image:
    """Return a part of a JPEG, decoded at the smallest scale that suffices."""
    top, left, h, w = box
    by = _reduction((h, w), size)
    height, width = (-(-side // by) for side in image.size)
    depth = 3 if options.channels == 3 else 1
    buffer = None
    if size != image.size:  # the result is a part or resized, so the pixels are needed only here
        buffer = _DECODED.array(height, width, depth)
    pixels = _with_libjpeg(image, "RGB" if depth == 3 else "GRAY", buffer, options)
    if pixels.shape[:2] != (height, width):
        raise SourceError("this JPEG image is damaged: its header has several sizes")
    top, bottom, left, right = (_divided(x, by) for x in (top, top + h, left, left + w))
    part = pixels[top : max(bottom, top + 1), left : max(right, left + 1)]
    return _resized(part, size, options.antialias)


def _part(pixels: Image, box: Box) -> Image:
    top, left, h, w = box
    return pixels[top : top + h, left : left + w]


def _divided(x: int, by: int) -> int:
    """Return the nearest integer to ``x / by``."""
    return (x + by // 2) // by


def _reduction(part: tuple[int, int], size: tuple[int, int] | None) -> int:
    """Return the largest factor of reduction that keeps the part at least as large as ``size``."""
    if size is None:
        return 1
    fits = (by for by in _REDUCTIONS if part[0] >= size[0] * by and part[1] >= size[1] * by)
    return next(fits, 1)


def _with_libjpeg(
    image: _EncodedImage, space: str, buffer: Image | None, options: ImageOptions
) -> Image:
    """Decode a JPEG: into ``buffer``, at the scale that fits it; or to a new array, unscaled."""
    jpeg = library("simplejpeg", "decode_image", "images")
    height, width = (0, 0) if buffer is None else buffer.shape[:2]
    strict = options.truncated == "error" or image.has_end()
    data = image.data if strict else image.ended()
    try:
        pixels: Image = jpeg.decode_jpeg(
            data, space, min_height=height, min_width=width, buffer=buffer, strict=strict
        )
    except ValueError as error:
        raise image.damage(f": {error}", options.truncated) from error
    return pixels


def _check_scans(image: _EncodedImage, most_pixels: int) -> None:
    """Refuse a JPEG that takes much longer to decode than its size justifies."""
    scans = bytes(image.data).count(_START_OF_SCAN)
    if scans > _MAX_SCANS:
        raise SourceError(f"this JPEG image has more than {_MAX_SCANS} scans")
    height, width = image.size
    work = scans * height * width // _SCANS_OF_THE_LARGEST
    if work > max(most_pixels, MAX_PIXELS):
        raise SourceError(
            f"this JPEG image has {scans} scans of {height} x {width} pixels, and {scans} take as "
            f"long as {work} pixels; pass most_pixels={work} to decode it"
        )


def _with_opencv(image: _EncodedImage, truncated: Truncated) -> NDArray[Any]:
    """Decode an image with its own channels and dtype."""
    data = image.data
    if image.kind == "PNG":
        check_png(data)
    if image.kind == "JPEG" and not image.has_end():
        if truncated == "error":  # OpenCV would fill the rest with grey
            raise image.damage(": it has no end", truncated)
        data = image.ended()
    pixels = _read_by_opencv(image.kind, data)
    if pixels is None and image.kind == "GIF" and truncated == "allow":
        ends = (_END["GIF"], b"\0" + _END["GIF"])  # the second one ends the pixels too
        tried = (_read_by_opencv("GIF", memoryview(bytes(data) + end)) for end in ends)
        pixels = next((one for one in tried if one is not None), None)
    if pixels is None or pixels.shape[:2] != image.size:
        raise image.damage(", or of an unsupported kind", truncated)
    return pixels


def _read_by_opencv(kind: str, data: memoryview) -> NDArray[Any] | None:
    cv2 = library("cv2", "decode_image", "images")
    try:
        pixels: NDArray[Any] | None = cv2.imdecode(
            np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED
        )
    except cv2.error as error:
        raise SourceError(f"this {kind} image is damaged: {error.err}") from error
    return pixels


def _in_uint8(image: _EncodedImage, pixels: NDArray[Any]) -> Image:
    if pixels.dtype != np.uint8:
        raise SourceError(
            f"this {image.kind} image is of {pixels.dtype}, which would not fit into uint8; for "
            f"its unchanged pixels write .map(f) with cv2.imdecode(..., cv2.IMREAD_UNCHANGED)"
        )
    return pixels


def _indices(image: _EncodedImage, options: ImageOptions) -> Image:
    """Return the index of each pixel's colour in the palette; of a grey image, the grey."""
    if image.kind == "PNG":
        check_png(image.data)
    changed = with_indices(image.kind, image.data)
    if changed is not None:
        image = attrs.evolve(image, data=memoryview(changed))
    if image.header is not None and image.is_for_libjpeg and len(image.header.factors) == 1:
        return _with_libjpeg(image, "GRAY", None, options)
    pixels = _in_uint8(image, _with_opencv(image, options.truncated))
    if changed is None and pixels.ndim == 3 and pixels.shape[2] > 1:
        raise SourceError(
            f"this {image.kind} image has colours without a palette, and so no indices; pass "
            f"channels=3 or channels=1"
        )
    return pixels if pixels.ndim == 2 else pixels[:, :, 0]


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


def _resized(pixels: Image, size: tuple[int, int], smooth: bool | None) -> Image:
    """Resize to ``size``, with a channel axis; the result does not keep a larger array alive.

    ``smooth`` is None for indices of a palette, which cannot be interpolated.
    """
    if pixels.shape[:2] != size:
        pixels = _interpolated(pixels, size, smooth)
    elif pixels.base is not None:
        pixels = pixels.copy()
    return pixels if pixels.ndim == 3 else pixels.reshape(*size, 1)


def _interpolated(pixels: Image, size: tuple[int, int], smooth: bool | None) -> Image:
    cv2 = library("cv2", "decode_image", "images")
    (height, width), (h, w) = pixels.shape[:2], size
    if smooth is None:
        return cast("Image", cv2.resize(pixels, (w, h), interpolation=cv2.INTER_NEAREST_EXACT))
    if not smooth or (height <= h and width <= w):
        return cast("Image", cv2.resize(pixels, (w, h), interpolation=cv2.INTER_LINEAR))
    if height <= _SAMPLED * h and width <= _SAMPLED * w:
        buffer = _TWICE.array(2 * h, 2 * w, *pixels.shape[2:])
        twice = cv2.resize(pixels, (2 * w, 2 * h), dst=buffer, interpolation=cv2.INTER_LINEAR)
        return cast("Image", cv2.resize(twice, (w, h), interpolation=cv2.INTER_AREA))
    # average the sides that shrink, then interpolate a side that grows
    shrunk = cv2.resize(pixels, (min(width, w), min(height, h)), interpolation=cv2.INTER_AREA)
    return cast("Image", cv2.resize(shrunk, (w, h), interpolation=cv2.INTER_LINEAR))
