"""from_images: the pixels of image files, each decoded by the process that works on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl import nodes
from flowdsl.effects import Exact
from flowdsl.elements.specs import ArraySpec, Spec
from flowdsl.errors import SourceError
from flowdsl.nodes import IndexedSource, cached_per_node, checked_flag
from flowdsl.resources.file_names import names_digest
from flowdsl.storage.byte_files import open_file
from flowdsl.storage.images.decoding import (
    Channels,
    Image,
    Size,
    checked_channels,
    checked_size,
    decode_image,
)
from flowdsl.storage.libraries import library
from flowdsl.storage.paths import all_paths, is_url, title_of

if TYPE_CHECKING:
    from flowdsl.flow import Flow


@attrs.frozen(repr=False)
class FromImages(IndexedSource[Image]):
    """The source of ``from_images``: the pixels of image files, in the order of the files."""

    files: tuple[str, ...] = attrs.field(repr=False)
    channels: Channels
    size: tuple[int, int] | None
    antialias: bool

    @property
    def title(self) -> str:
        grey = ["channels=1"] if self.channels == 1 else []
        resized = [f"resize={self.size}"] if self.size else []
        rough = [] if self.antialias else ["antialias=False"]
        return title_of("from_images", self.files, *grey, *resized, *rough)

    @property
    @cached_per_node
    def fingerprint(self) -> str:
        return f"{self.title} {names_digest(self.files)}"

    @property
    def length(self) -> int:
        return len(self.files)

    def spec(self, probe: bool) -> Spec:
        return ArraySpec(np.dtype(np.uint8), (*(self.size or (None, None)), self.channels))

    def open(self) -> Callable[[int], Image]:
        files = self.files
        decode = partial(
            decode_image, channels=self.channels, resize=self.size, antialias=self.antialias
        )

        def row(i: int) -> Image:
            file = open_file("from_images", files[i])
            try:
                return decode(file.read(0, file.size))
            except SourceError as error:
                raise SourceError(f"from_images: {files[i]!r} cannot be read: {error}") from error

        return row


def from_images(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    channels: Channels = 3,
    resize: Size | None = None,
    antialias: bool = True,
) -> Flow[NDArray[np.uint8], Exact]:
    """Read image files as ``uint8[height, width, channels]``, in the order R, G, B.

    ``files`` is a path, a pattern or URL, or a list of these. The order of a list is kept, repeated
    files included; the files of a pattern are sorted by name. ``channels``, ``resize`` (a side or
    ``(height, width)``) and ``antialias`` work as in ``decode_image``, which decodes JPEG, PNG,
    WebP, BMP and GIF: grey becomes colour for 3 channels, and colour becomes grey for 1. Each file
    is read and decoded by the process that works on it. ``batch`` needs images of one size: use
    ``resize`` or ``map``. A saved state is of the names below the folder that has all of the files.

    Length: the number of files.

    Effects: none.

    Errors: ``SourceError`` when the flow is built, for a pattern without matches and for a single
    path that does not exist; the files of a list are opened only when they are read. A missing or
    damaged file then raises an error that names it, and ``prefetch(on_error="skip")`` skips it.
    ``InvalidFlow`` for an argument out of range; ``MissingLibrary`` without the libraries.

    >>> import flowdsl as fl, numpy as np, simplejpeg, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, side in (("a", 32), ("b", 48)):
    ...         with open(f"{folder}/{name}.jpg", "wb") as file:
    ...             _ = file.write(simplejpeg.encode_jpeg(np.zeros((side, side, 3), np.uint8)))
    ...     fl.from_images(f"{folder}/*.jpg", resize=16).batch(2).collect()[0].shape
    (2, 16, 16, 3)

    Source: ``ImageFromFile`` in tensorpack.

    Elsewhere: tensorpack ``ImageFromFile``; tf.data none; Grain none; torchdata
    ``ImageFolder`` in torchvision.
    """
    color = checked_channels("from_images", channels)
    size = checked_size("from_images", resize)
    smooth = checked_flag("from_images: antialias", antialias)
    names = all_paths("from_images", files)
    for name in ("simplejpeg", *(("cv2",) if size else ())):
        library(name, "from_images", "images")
    if isinstance(files, str | os.PathLike) and not is_url(names[0]):
        open_file("from_images", names[0])
    return nodes.flow(FromImages(names, color, size, smooth))
