"""The zmq_ops format of tensorpack, which its ``ZMQInput`` and TensorFlow op read.

One frame per element, a list of arrays; all numbers are little-endian (in tensorpack: native):

    int32                      the number of arrays
    and for each array:
        int32                  its dtype, as a number of TensorFlow's DataType
        int32                  the number of dimensions
        int32, int32, ...      the size of each dimension
        int64                  the number of bytes that follow
        ...                    its elements, in C order
"""

from __future__ import annotations

import struct
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.flattening import InSpecOrder
from flowdsl.elements.specs import UNKNOWN, Spec, StructSpec, spec_of
from flowdsl.elements.structure import components
from flowdsl.errors import SourceError, SpecMismatch
from flowdsl.remote.message import Frame
from flowdsl.storage.codec import array_of_bytes

_CODES: Final = {
    np.dtype(name): code
    for name, code in {
        "<f4": 1,
        "<f8": 2,
        "<i4": 3,
        "|u1": 4,
        "<i2": 5,
        "|i1": 6,
        "<c8": 8,
        "<i8": 9,
        "|b1": 10,
        "<u2": 17,
        "<c16": 18,
        "<f2": 19,
        "<u4": 22,
        "<u8": 23,
    }.items()
}
_DTYPES: Final = {code: dtype for dtype, code in _CODES.items()}
_MAX_DIMENSIONS = 8  # TensorFlow's op aborts its process at more
_MAX_INT32 = 2**31 - 1
_INT32, _INT64 = struct.Struct("<i"), struct.Struct("<q")


class Encoder:
    """Encodes the elements of a flow, each with its arrays in the same order.

    The format has no names. So the components of a dict or record are sent in the order of the
    flow's spec, or else of the first element; then a dict with keys in another order is an error.
    """

    def __init__(self, spec: Spec) -> None:
        self._order = None if _is_plain(spec) else InSpecOrder(cast("StructSpec", spec))

    def __call__(self, element: object) -> bytes:
        """Encode an element.

        Raises:
            SpecMismatch: As in ``encode``; or the components differ from the flow's spec, or from
                the components of the first element.
        """
        if self._order is None:
            spec = UNKNOWN if isinstance(element, list) else spec_of(element)
            if _is_plain(spec):
                return encode(element)
            self._order = InSpecOrder(cast("StructSpec", spec), fixed=True)
        try:
            values = self._order(element)
        except SpecMismatch as error:
            raise SpecMismatch(f"element: {error}; the format zmq_ops has no names") from error
        return _encoded(list(zip(self._order.names, values, strict=True)))


def _is_plain(spec: Spec) -> bool:
    """Return True if the components of elements have no names."""
    if not isinstance(spec, StructSpec):
        return True
    return issubclass(spec.form, tuple) and not spec.has_names


def encode(element: object) -> bytes:
    """Encode one element of arrays or numbers; names are left out.

    An array keeps its dtype; an int is int64, a float float64, a bool bool (tensorpack casts them
    to int32 and float32).

    Raises:
        SpecMismatch: A component is not an array or number of this format; the message names it.
    """
    if isinstance(element, list):
        return _encoded([(str(i), value) for i, value in enumerate(element)])
    named = components(element)
    return _encoded([("", element)] if named is None else named)


def _encoded(parts: list[tuple[str, Any]]) -> bytes:
    pieces = [_INT32.pack(len(parts))]
    for name, value in parts:
        path = f"element.{name}" if name else "element"
        array = _to_array(value, path)
        pieces += (
            struct.pack(f"<{2 + array.ndim}i", _CODES[array.dtype], array.ndim, *array.shape),
            _INT64.pack(array.nbytes),
            array.tobytes(),
        )
    return b"".join(pieces)


def decode(frame: Frame) -> tuple[NDArray[Any], ...]:
    """Decode the arrays, read-only and aligned; views where possible.

    Raises:
        SourceError: The bytes are not of this format.
    """
    try:
        return _decode(memoryview(frame).toreadonly())
    except (struct.error, ValueError, TypeError, OverflowError) as error:
        raise SourceError(f"not an element of the format zmq_ops: {error}") from error


def _decode(view: memoryview) -> tuple[NDArray[Any], ...]:
    (count,) = _INT32.unpack_from(view)
    offset = _INT32.size
    arrays: list[NDArray[Any]] = []
    while len(arrays) != count:
        code, ndim = struct.unpack_from("<ii", view, offset)
        if code not in _DTYPES:
            raise ValueError(f"unknown dtype {code}")
        if not 0 <= ndim <= _MAX_DIMENSIONS:
            raise ValueError(f"{ndim} dimensions")
        shape = struct.unpack_from(f"<{ndim}i", view, offset + 8)
        offset += 8 + 4 * ndim
        (nbytes,) = _INT64.unpack_from(view, offset)
        offset += _INT64.size
        if not 0 <= nbytes <= len(view) - offset:
            raise ValueError(f"{len(view) - offset} bytes left for an array of {nbytes}")
        arrays.append(array_of_bytes(_DTYPES[code], shape, view[offset : offset + nbytes]))
        offset += nbytes
    if offset != len(view):
        raise ValueError(f"{len(view) - offset} bytes after the end")
    return tuple(arrays)


def _to_array(value: object, path: str) -> NDArray[Any]:
    numeric = isinstance(value, bool | int | float | np.ndarray | np.generic)
    try:
        # ascontiguousarray alone would convert a scalar to an array of one dimension.
        dtype = np.int64 if type(value) is int else None  # NumPy uses other dtypes for large ints
        array = np.asarray(value, dtype, order="C") if numeric else None
    except OverflowError:
        array = None
    if array is not None and array.dtype.newbyteorder("<") in _CODES:
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if array is None or array.dtype not in _CODES:
        actual = f"an array of {array.dtype}" if array is not None else type(value).__name__
        raise SpecMismatch(
            f"{path}: {actual} is not in the format zmq_ops, which has arrays and numbers of "
            f"{', '.join(map(str, _CODES))}"
        )
    if array.ndim > _MAX_DIMENSIONS or max(array.shape, default=0) > _MAX_INT32:
        raise SpecMismatch(
            f"{path}: the format zmq_ops has at most {_MAX_DIMENSIONS} dimensions, of at most "
            f"{_MAX_INT32}; got {list(array.shape)}"
        )
    return array
