"""from_caffe_lmdb: the images and labels of an LMDB file written by Caffe's tools."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from flowdsl import nodes
from flowdsl.effects import Exact
from flowdsl.elements.specs import ArraySpec, Spec, StructSpec, ValueSpec
from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.nodes import READER_KEYWORD_ADVICE, checked_int, frozen_node, rejects_keywords
from flowdsl.storage.images.decoding import stored_pixels
from flowdsl.storage.images.options import MAX_PIXELS
from flowdsl.storage.libraries import library
from flowdsl.storage.lmdb.keys import Keys
from flowdsl.storage.lmdb.raw import RawSource, raw_file
from flowdsl.storage.paths import OnePath

if TYPE_CHECKING:
    from flowdsl.flow import Flow

S = TypeVar("S", np.uint8, np.float32)
Pixel: TypeAlias = Literal["uint8", "float32"]

_READER = "from_caffe_lmdb"
_FIELDS = (
    *(("channels", 1, "INT32"), ("height", 2, "INT32"), ("width", 3, "INT32")),
    *(("data", 4, "BYTES"), ("label", 5, "INT32"), ("float_data", 6, "FLOAT")),
    ("encoded", 7, "BOOL"),
)
"""The fields of ``caffe.Datum``, as defined in Caffe's ``caffe.proto``."""


@cache
def _datum_class() -> Any:
    """Return the message class of ``caffe.Datum``."""
    descriptors = library("google.protobuf.descriptor_pb2", _READER, "caffe")
    pools = library("google.protobuf.descriptor_pool", _READER, "caffe")
    factory = library("google.protobuf.message_factory", _READER, "caffe")
    file = descriptors.FileDescriptorProto(name="flowdsl/caffe.proto", package="caffe")
    message = file.message_type.add(name="Datum")
    kinds = descriptors.FieldDescriptorProto
    for name, number, kind in _FIELDS:
        label = kinds.LABEL_REPEATED if name == "float_data" else kinds.LABEL_OPTIONAL
        message.field.add(
            name=name, number=number, type=getattr(kinds, f"TYPE_{kind}"), label=label
        )
    pool = pools.DescriptorPool()
    pool.Add(file)
    return factory.GetMessageClass(pool.FindMessageTypeByName("caffe.Datum"))


def _image(datum: Any, dtype: np.dtype[Any], most_pixels: int) -> NDArray[Any]:
    """Return the image of a datum, with channels last.

    Raises:
        SourceError: The datum has no image, or one of another dtype or size.
    """
    if datum.encoded:
        return _decoded(datum.data, dtype, most_pixels)
    sides = datum.channels, datum.height, datum.width
    actual = "uint8" if datum.data else "float32"
    if not datum.data and not datum.float_data:
        raise SourceError("it has no image")
    _require_dtype(actual, dtype)
    values = (
        np.frombuffer(datum.data, np.uint8)
        if datum.data
        else np.array(datum.float_data, np.float32)
    )
    if min(sides) < 0 or sides[0] * sides[1] * sides[2] != len(values):
        raise SourceError(f"its image should have {sides} values, but has {len(values)}")
    return np.ascontiguousarray(values.reshape(sides).transpose(1, 2, 0))


def _decoded(data: bytes, dtype: np.dtype[Any], most_pixels: int) -> NDArray[Any]:
    for name in ("cv2", "simplejpeg"):
        library(name, _READER, "images")
    try:
        image = stored_pixels(data, most_pixels)
    except SourceError as error:
        raise SourceError(f"its image cannot be decoded: {error}") from error
    _require_dtype(image.dtype.name, dtype)
    return image if image.ndim == 3 else image[:, :, None]


def _require_dtype(actual: str, dtype: np.dtype[Any]) -> None:
    if actual != dtype.name:
        hint = f": pass dtype={actual!r}" if actual in ("uint8", "float32") else ""
        raise SourceError(f"its image is {actual}, and not {dtype}{hint}")


@frozen_node
class FromCaffeLmdb(RawSource[tuple[NDArray[S], int]], Generic[S]):
    """The source of ``from_caffe_lmdb``: images and labels of an LMDB file, by index."""

    dtype: np.dtype[S]
    most_pixels: int

    @property
    def fingerprint(self) -> str:
        return f"{self.raw.fingerprint} as {self.dtype}"

    def spec(self, probe: bool) -> Spec:
        image = ArraySpec(self.dtype, (None, None, None))
        return StructSpec(tuple, (("0", image), ("1", ValueSpec(int))))

    def open(self) -> Callable[[int], tuple[NDArray[S], int]]:
        read, datum_class = self.raw.open(), _datum_class()
        damaged = library("google.protobuf.message", _READER, "caffe").DecodeError

        def row(i: int) -> tuple[NDArray[S], int]:
            key, value = read(i)
            try:
                datum = datum_class.FromString(value)
                return _image(datum, self.dtype, self.most_pixels), datum.label
            except (SourceError, damaged) as error:
                why = error if isinstance(error, SourceError) else f"it is not a Datum: {error}"
                raise SourceError(f"{self.raw.path!r}: key {key!r}: {why}") from error

        return row


@overload  # for calls with ``**options``, whose names pyright does not know
def from_caffe_lmdb(
    path: OnePath, keys: Keys | None = None, *, dtype: Never, most_pixels: int = MAX_PIXELS
) -> Flow[tuple[NDArray[Any], int], Exact]: ...
@overload
def from_caffe_lmdb(
    path: OnePath,
    keys: Keys | None = None,
    *,
    dtype: Literal["uint8"] = "uint8",
    most_pixels: int = MAX_PIXELS,
) -> Flow[tuple[NDArray[np.uint8], int], Exact]: ...
@overload
def from_caffe_lmdb(
    path: OnePath,
    keys: Keys | None = None,
    *,
    dtype: Literal["float32"],
    most_pixels: int = MAX_PIXELS,
) -> Flow[tuple[NDArray[np.float32], int], Exact]: ...
@rejects_keywords(**READER_KEYWORD_ADVICE)
def from_caffe_lmdb(
    path: OnePath,
    keys: Keys | None = None,
    *,
    dtype: Pixel = "uint8",
    most_pixels: int = MAX_PIXELS,
) -> Flow[Any, Exact]:
    r"""Read the images and labels of an LMDB file written by Caffe's tools.

    Images have channels last, in their stored order, which is blue, green, red for Caffe's own
    tools. Encoded images (JPEG, PNG, WebP, BMP or GIF) of at most ``most_pixels`` are decoded, also
    in that order, with all their channels. Files with ``float_data`` are read with
    ``dtype="float32"``; values are never cast. ``path`` and ``keys`` work as in ``from_lmdb_raw``.

    Length: the number of keys.

    Effects: none.

    Errors: ``SourceError`` when the flow is built, if the file is missing, damaged or truncated; at
    the row, if its key is not in the file, or its image cannot be decoded, has too many pixels,
    or another size or dtype than expected. ``InvalidFlow`` if ``keys`` is neither a list nor a
    format. ``MissingLibrary`` without ``flowdsl[caffe]``, and for encoded images without
    ``flowdsl[images]``.

    >>> import flowdsl as fl, lmdb, tempfile
    >>> datum = b"\x08\x03\x10\x01\x18\x02\x22\x06bgrBGR\x28\x07"  # 3 channels, 1 by 2
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with lmdb.open(folder) as store, store.begin(write=True) as txn:
    ...         _ = txn.put(b"00000000", datum)
    ...     [(image, label)] = fl.from_caffe_lmdb(folder, keys="{:0>8d}")
    >>> image.shape, image[0, 0].tobytes(), label
    ((1, 2, 3), b'brG', 7)

    Source: ``CaffeLMDB`` in tensorpack; Caffe by Yangqing Jia.

    Elsewhere: tensorpack ``CaffeLMDB``; tf.data none; Grain none; torchdata none.
    """
    if dtype not in ("uint8", "float32"):
        raise InvalidFlow(f"{_READER}: dtype must be 'uint8' or 'float32', got {dtype!r}")
    most = checked_int(f"{_READER}: most_pixels", most_pixels, 1)
    _datum_class()  # fails at once if a library is missing
    return nodes.flow(FromCaffeLmdb[Any](raw_file(_READER, path, keys), np.dtype(dtype), most))
