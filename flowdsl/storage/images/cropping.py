"""random_resized_crop: a random crop of an encoded image, decoded no further than needed."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
import numpy as np

from flowdsl.errors import InvalidFlow
from flowdsl.storage.images.decoding import Encoded, Image, decoded, image_size
from flowdsl.storage.images.options import (
    MAX_PIXELS,
    Box,
    Channels,
    ImageOptions,
    Size,
    Truncated,
    checked_options,
    checked_size,
)


def random_resized_crop(
    size: Size,
    *,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    channels: Channels = 3,
    antialias: bool = True,
    orient: bool = False,
    truncated: Truncated = "error",
    most_pixels: int = MAX_PIXELS,
) -> Callable[[Encoded, np.random.Generator], Image]:
    """Create a function for ``random_map`` that decodes a random crop of an image, at one size.

    The crop's share of the image's area is drawn from ``scale``, and the logarithm of its aspect
    ratio (width by height) from the logarithms of ``ratio``. If ten draws do not fit into the
    image, the crop is the largest centered one with an allowed aspect ratio. Decoding works as in
    ``decode_image``, with its options, which computes no pixels that a smaller scale does not need.

    Errors: ``InvalidFlow`` for an argument out of range; the errors of ``decode_image``.

    >>> import flowdsl as fl, numpy as np, simplejpeg
    >>> jpeg = simplejpeg.encode_jpeg(np.full((60, 80, 3), 200, np.uint8))
    >>> flow = fl.from_items([jpeg] * 4).random_map(fl.random_resized_crop(24), seed=7)
    >>> next(iter(flow.batch(4))).shape
    (4, 24, 24, 3)

    Source: Szegedy et al., 2015; ``RandomResizedCrop`` in torchvision.

    Elsewhere: tensorpack ``GoogleNetRandomCropAndResize``; tf.data
    ``sample_distorted_bounding_box``; Grain none; torchdata ``RandomResizedCrop``.
    """
    operator = "random_resized_crop"
    wanted = checked_size(operator, size, "size")
    if wanted is None:
        raise InvalidFlow(f"{operator}: size must be an int or (height, width), got None")
    low, high = _checked_range(f"{operator}: scale", scale)
    if high > 1:
        raise InvalidFlow(f"{operator}: scale must be at most 1, all of the image, got {scale!r}")
    ratios = _checked_range(f"{operator}: ratio", ratio)
    options = checked_options(operator, channels, wanted, antialias, orient, truncated, most_pixels)
    return _RandomResizedCrop((low, high), ratios, options)


@attrs.frozen
class _RandomResizedCrop:
    """The function that ``random_resized_crop`` returns: an object that can be pickled."""

    scale: tuple[float, float]
    ratio: tuple[float, float]
    options: ImageOptions

    def __call__(self, data: Encoded, rng: np.random.Generator) -> Image:
        size = image_size(data, orient=self.options.orient)
        return decoded(data, self.options, self._drawn(*size, rng))

    def _drawn(self, height: int, width: int, rng: np.random.Generator) -> Box:
        lowest, highest = self.ratio
        for _ in range(10):
            area = rng.uniform(*self.scale) * height * width
            aspect = math.exp(rng.uniform(math.log(lowest), math.log(highest)))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                top, left = rng.integers(height - h + 1), rng.integers(width - w + 1)
                return int(top), int(left), h, w
        w = min(width, max(1, round(height * highest)))
        h = min(height, max(1, round(width / lowest)))
        return (height - h) // 2, (width - w) // 2, h, w


def _checked_range(argument: str, limits: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = map(float, limits)
    except (TypeError, ValueError):
        low = high = math.nan
    if not 0 < low <= high < math.inf:
        raise InvalidFlow(f"{argument} must be (low, high), 0 < low <= high, got {limits!r}")
    return low, high
