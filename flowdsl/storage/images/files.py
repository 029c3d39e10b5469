"""from_images: the pixels of image files, each decoded by the process that works on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl import nodes
from flowdsl.effects import Exact
from flowdsl.elements.specs import ArraySpec, Spec
from flowdsl.errors import Location, SourceError
from flowdsl.nodes import (
    READER_KEYWORD_ADVICE,
    IndexedSource,
    cached_per_node,
    frozen_node,
    rejects_keywords,
)
from flowdsl.resources.file_names import names_digest, without_secrets
from flowdsl.storage.byte_files import open_file
from flowdsl.storage.images.decoding import Image, decoded
from flowdsl.storage.images.options import (
    MAX_PIXELS,
    Channels,
    ImageOptions,
    Size,
    Truncated,
    checked_options,
)
from flowdsl.storage.libraries import library
from flowdsl.storage.paths import all_paths, is_url, title_of

if TYPE_CHECKING:
    from flowdsl.flow import Flow


def _stamp(file: str) -> str:
    try:
        stat = os.stat(file)
    except OSError:  # a pass reports it
        return "missing"
    return f"{stat.st_size}-{stat.st_mtime_ns}"


@frozen_node
class FromImages(IndexedSource[Image]):
    """The source of ``from_images``: the pixels of image files, in the order of the files."""

    files: tuple[str, ...] = attrs.field(repr=False)
    options: ImageOptions

    @property
    def title(self) -> str:
        return title_of("from_images", self.files, *self.options.described())

    @property
    @cached_per_node
    def fingerprint(self) -> str:
        return f"{self.title} {names_digest(self.files)}"

    def stamp(self) -> str:
        """See ``chain_digest.Stamped``: the sizes and times of the files; a URL has none."""
        return " ".join(_stamp(file) for file in self.files if not is_url(file))

    @property
    def length(self) -> int:
        return len(self.files)

    def spec(self, probe: bool) -> Spec:
        depth = 3 if self.options.channels == 3 else 1
        return ArraySpec(np.dtype(np.uint8), (*(self.options.size or (None, None)), depth))

    def location(self, row: int) -> Location:
        return Location(without_secrets(self.files[row]))

    def open(self) -> Callable[[int], Image]:
        files, options = self.files, self.options

        def row(i: int) -> Image:
            file = open_file("from_images", files[i])
            try:
                return decoded(file.read(0, file.size), options)
            except SourceError as error:
                raise SourceError(f"from_images: {files[i]!r} cannot be read: {error}") from error

        return row


@rejects_keywords(**READER_KEYWORD_ADVICE)
def from_images(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    channels: Channels = 3,
    resize: Size | None = None,
    antialias: bool = True,
    orient: bool = False,
    truncated: Truncated = "error",
    most_pixels: int = MAX_PIXELS,
) -> Flow[NDArray[np.uint8], Exact]:
    """Read image files as ``uint8[height, width, channels]``, in the order R, G, B.

    ``files`` is a path, a pattern or URL, or a list of these. The order of a list is kept, repeated
    files included; the files of a pattern are sorted by name. The options work as in
    ``decode_image``, which decodes JPEG, PNG, WebP, BMP and GIF: grey becomes colour for 3
    ``channels``, colour becomes grey for 1, and "palette" yields indices, as masks have them. Each
    file is read and decoded by the process that works on it. ``batch`` needs images of one size:
    use ``resize`` or ``map``. A saved state depends on the name of the folder that contains all
    files, and on the names below it: the folder may be moved but not renamed.

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
    options = checked_options(
        "from_images", channels, resize, antialias, orient, truncated, most_pixels
    )
    names = all_paths("from_images", files)
    for name in ("simplejpeg", *(("cv2",) if options.size else ())):
        library(name, "from_images", "images")
    if isinstance(files, str | os.PathLike) and not is_url(names[0]):
        open_file("from_images", names[0])
    return nodes.flow(FromImages(names, options))
