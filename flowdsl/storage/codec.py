"""The encoding of an element as bytes: MessagePack, with extensions for arrays and tuples.

Decoding untrusted bytes runs no code: no pickle is loaded. It allocates no more memory than the
bytes justify: an array is as large as its bytes. Python objects are larger than their encoding,
by at most a factor of about one hundred, which an empty list reaches.

Supported values are numbers, text, bytes, None, lists, dicts, tuples, arrays and NumPy scalars,
also of the dtypes of ml_dtypes, such as bfloat16. A value that would not be decoded unchanged is
refused when it is encoded. A record or NamedTuple is encoded as its components. If both sides pass
``trusted=True``, other values are pickled.

The array extension is self-describing: the dtype and shape, then the bytes in C order.
"""

from __future__ import annotations

import pickle
import struct
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.specs import ArraySpec, ListSpec, Spec, StructSpec, ValueSpec
from flowdsl.errors import SourceError, SpecMismatch
from flowdsl.storage.values import (
    components_to_store,
    dtype_of,
    is_array,
    is_scalar,
    spelling_of,
    takes_any_bytes,
)

_TUPLE, _ARRAY, _SCALAR, _COMPLEX, _PICKLED, _NUMPY_TEXT = 1, 2, 3, 4, 5, 6
_COMPLEX_PARTS = struct.Struct("<dd")

MAX_EMPTY = 2**32
"""The limit on the elements of an array without bytes, such as empty texts."""

_PLAIN: dict[str, type] = {
    t.__name__: t for t in (bool, int, float, complex, str, bytes, list, object)
}


def encode(element: object, trusted: bool = False) -> bytes:
    """Return the bytes of one element; with ``trusted``, unsupported values are pickled.

    Raises:
        SpecMismatch: A component has a type or value that is not supported; the message names it.
    """
    try:
        return _encoder.encode(_to_wire(element, "element", trusted))
    except RecursionError as error:
        raise SpecMismatch("element: nested too deeply to be written") from error


def decode(data: bytes | memoryview, trusted: bool = False) -> Any:
    """Return the element of these bytes; arrays are read-only and aligned, views where possible.

    Raises:
        SourceError: The bytes are not an element, or hold a pickle and are not ``trusted``.
    """
    try:
        return (_trusting_decoder if trusted else _decoder).decode(data)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise SourceError(f"not an element: {error}") from error


class LastArray(NamedTuple):
    """The array that was decoded last, without its content."""

    size: int
    """The bytes of the encoded array, with its content."""
    head: bytes
    """The bytes before its content."""
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Decoder:
    """Decodes elements as ``decode`` does; an array like the last one needs no parsing."""

    def __init__(self, trusted: bool = False) -> None:
        self._trusted = trusted
        self._last = LastArray(-1, b"", np.dtype(np.uint8), ())

    def __call__(self, data: memoryview) -> Any:
        """Return the element of these bytes.

        Raises:
            SourceError: As for ``decode``.
        """
        size, head, dtype, shape = self._last
        if len(data) == size and data[: len(head)] == head:
            array: NDArray[Any] = np.ndarray(shape, dtype, data, len(head))
            if array.flags.aligned:
                return array
        element = decode(data, self._trusted)
        if type(element) is np.ndarray and takes_any_bytes(element.dtype) and data.readonly:
            head = bytes(data[: len(data) - element.nbytes])
            self._last = LastArray(len(data), head, element.dtype, element.shape)
        return element


NUMBER_BYTES = 6


def encode_numbered(i: int, element: object) -> bytes:
    """Return the bytes of row ``i``, for files whose own checksums do not cover the row number."""
    return encode(element) + bytes_of_number(i)


def bytes_of_number(i: int) -> bytes:
    """Return the bytes after the element of row ``i``."""
    return i.to_bytes(NUMBER_BYTES, "little")


def decode_numbered(i: int, data: bytes | memoryview) -> Any:
    """Return the element of row ``i``.

    Raises:
        SourceError: The bytes are not an element, or belong to another row.
    """
    element = decode(memoryview(data)[:-NUMBER_BYTES])
    number = int.from_bytes(data[-NUMBER_BYTES:], "little")
    if number != i:
        raise SourceError(f"it was written as row {number}")
    return element


def _to_wire(x: Any, at: str, trusted: bool) -> Any:
    """Return ``x`` as msgspec encodes it; with ``trusted``, unsupported values as pickles."""
    if not trusted:
        return _supported(x, at, trusted)
    try:
        return _supported(x, at, trusted)
    except SpecMismatch as refusal:
        return msgspec.msgpack.Ext(_PICKLED, _pickled(x, refusal))


def _pickled(x: object, refusal: SpecMismatch) -> bytes:
    import cloudpickle  # slow to import, and few files need it

    try:
        return bytes(cloudpickle.dumps(x, protocol=5))
    except RecursionError:
        raise
    except Exception as error:  # whatever the object's own methods raise
        raise SpecMismatch(f"{refusal}; nor can it be pickled: {error}") from error


def _supported(x: Any, at: str, trusted: bool) -> Any:
    kind = type(x)
    if kind in (np.str_, np.bytes_):  # as an array it would lose the zeros at its end
        text = x[:]  # a Python str or bytes; str(x) would end before zeros
        return msgspec.msgpack.Ext(_NUMPY_TEXT, _encoder.encode(_supported(text, at, trusted)))
    if is_array(x) or is_scalar(x):
        spelling = spelling_of(x.dtype)
        if spelling is None:
            raise SpecMismatch(f"{at}: an array of {x.dtype} cannot be written")
        array = np.asarray(x)
        code = _ARRAY if is_array(x) else _SCALAR
        content = (spelling, array.shape, array.tobytes())
        return msgspec.msgpack.Ext(code, _encoder.encode(content))
    if kind is int and not -(2**63) <= x < 2**64:
        raise SpecMismatch(f"{at}: {x} cannot be written: an int has at most 64 bits")
    if kind is str:
        _check_text(x, at)
    if x is None or kind in (bool, int, float, str, bytes):
        return x
    if kind is complex:
        return msgspec.msgpack.Ext(_COMPLEX, _COMPLEX_PARTS.pack(x.real, x.imag))
    if kind is list:
        return [_to_wire(v, f"{at}[{i}]", trusted) for i, v in enumerate(x)]
    parts = components_to_store(x, at)
    if parts is None:
        raise SpecMismatch(
            f"{at}: {kind.__name__} cannot be written; arrays, bool, int, float, complex, text, "
            f"bytes, None, lists, dicts, tuples and records can"
        )
    if isinstance(x, tuple):
        fields = [_to_wire(v, f"{at}.{name}", trusted) for name, v in parts]
        return msgspec.msgpack.Ext(_TUPLE, _encoder.encode(fields))
    if any(type(name) is not str for name, _ in parts):
        raise SpecMismatch(f"{at}: a dict is written with str keys only")
    for name, _ in parts:
        _check_text(name, at)
    return {name: _to_wire(v, f"{at}.{name}", trusted) for name, v in parts}


def _check_text(text: str, at: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SpecMismatch(f"{at}: text that is not Unicode cannot be written: {error}") from error


def array_of_bytes(
    dtype: np.dtype[Any], shape: Sequence[int], content: bytes | memoryview
) -> NDArray[Any]:
    """Return the array with this content in C order, read-only and aligned; a view where possible.

    Raises:
        ValueError: There are too few or too many bytes, or bytes that are invalid for the dtype.
    """
    # NumPy computes a length of -1 from the content. For a dtype of 0 bytes it divides by zero, and
    # the signal ends the process.
    if -1 in shape:
        raise ValueError(f"negative dimensions: {dtype}{list(shape)}")
    try:
        array: NDArray[Any] = np.ndarray(shape, dtype, content)
    except TypeError as error:  # raised by NumPy for too few bytes
        raise _not_of_size(dtype, shape, content) from error
    if array.nbytes != len(content):
        raise _not_of_size(dtype, shape, content)
    if not content and array.size > MAX_EMPTY:
        raise ValueError(f"{array.size:,} elements of zero bytes")
    if dtype.kind in "Ub":
        _check_content(dtype, content)
    if not array.flags.aligned:
        array = array.copy()
    if array.flags.writeable:  # most are read-only already, and the test is cheap
        array.flags.writeable = False
    return array


def array_header(dtype: np.dtype[Any], shape: Sequence[int]) -> bytes:
    """Return the bytes before an array's content in an encoded element."""
    array = np.zeros(shape, dtype)
    return _encoder.encode(_supported(array, "element", trusted=False))[: -array.nbytes]


def _not_of_size(
    dtype: np.dtype[Any], shape: Sequence[int], content: bytes | memoryview
) -> ValueError:
    return ValueError(f"{len(content)} bytes for {dtype}{list(shape)}")


def _check_content(dtype: np.dtype[Any], content: bytes | memoryview) -> None:
    """Refuse bytes that are invalid for a dtype; NumPy accepts them and fails when it uses them."""
    if dtype.kind == "U" and content:
        points = np.frombuffer(content, np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        if points.max() > sys.maxunicode:
            raise ValueError(f"{points.max():#x} is not a character")
    if dtype.kind == "b" and content and np.frombuffer(content, np.uint8).max() > 1:
        raise ValueError("a byte that is neither True nor False")


def _extension(code: int, data: memoryview) -> Any:
    if code == _ARRAY:
        return _array(data)
    if code == _TUPLE:
        return tuple(_decoder.decode(data))
    if code == _PICKLED:
        raise SourceError(
            "it holds a pickled Python object, and reading it runs code: pass trusted=True if you "
            "trust its author"
        )
    return _value(code, data)


def _trusted_extension(code: int, data: memoryview) -> Any:
    if code == _TUPLE:
        return tuple(_trusting_decoder.decode(data))
    if code == _PICKLED:
        try:
            return pickle.loads(data)
        except Exception as error:  # whatever the object's own methods raise
            raise ValueError(f"its pickled object cannot be read: {error!r}") from error
    return _array(data) if code == _ARRAY else _value(code, data)


def _array(data: memoryview) -> NDArray[Any]:
    dtype, shape, content = _array_decoder.decode(data)
    return array_of_bytes(dtype_of(dtype), shape, content)


def _value(code: int, data: memoryview) -> Any:
    if code == _SCALAR:
        return _array(data)[()]
    if code == _COMPLEX and len(data) == _COMPLEX_PARTS.size:
        return complex(*_COMPLEX_PARTS.unpack(data))
    if code == _NUMPY_TEXT:
        text = _decoder.decode(data)
        if type(text) in (str, bytes):
            return np.str_(text) if type(text) is str else np.bytes_(text)
    raise ValueError(f"unknown extension {code} of {len(data)} bytes")


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ext_hook=_extension)
_trusting_decoder = msgspec.msgpack.Decoder(ext_hook=_trusted_extension)
_array_decoder = msgspec.msgpack.Decoder(tuple[str, tuple[int, ...], memoryview])


class SameTupleNames:
    """Refuses a NamedTuple whose field names differ from the names in earlier elements.

    Files store tuples without names. NamedTuples with other names would be read back as tuples that
    look alike, with their components swapped.
    """

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}

    def check(self, spec: Spec, at: str = "element") -> None:
        """Check the spec of the next element.

        Raises:
            SpecMismatch: A NamedTuple has as many components as an earlier one, but other names.
        """
        if isinstance(spec, ListSpec):
            self.check(spec.item, f"{at}[]")
        if not isinstance(spec, StructSpec):
            return
        for name, part in spec.fields:
            self.check(part, f"{at}.{name}")
        if not issubclass(spec.form, tuple) or not spec.has_names:
            return
        names = [name for name, _ in spec.fields]
        before = self._names.setdefault(f"{at}/{len(names)}", names)
        if names != before:
            raise SpecMismatch(
                f"{at}: a NamedTuple of {', '.join(names)} after one of {', '.join(before)}: "
                f"tuples are stored without names; make the names equal, or make dicts, with .map"
            )


def spec_to_plain(spec: Spec) -> dict[str, Any]:
    """Return the spec as plain values for a file header; records and NamedTuples lose the class."""
    if not _is_plain(spec):
        return {"type": "object"}
    if isinstance(spec, ArraySpec):
        spelling = None if spec.dtype is None else spelling_of(spec.dtype)
        return {"dtype": spelling, "shape": spec.shape}
    if isinstance(spec, ValueSpec):
        return {"type": spec.type.__name__ if spec.type in _PLAIN.values() else "object"}
    if isinstance(spec, ListSpec):
        return {"item": spec_to_plain(spec.item), "length": spec.length}
    form = "tuple" if issubclass(spec.form, tuple) else "dict"
    return {"form": form, "fields": [[name, spec_to_plain(part)] for name, part in spec.fields]}


def _is_plain(spec: Spec) -> bool:
    """Return True if the codec encodes such values itself, without pickling them."""
    if isinstance(spec, ArraySpec):
        return spec.dtype is None or spelling_of(spec.dtype) is not None
    if isinstance(spec, StructSpec):
        return all(type(name) is str and _is_unicode(name) for name, _ in spec.fields)
    return True


def _is_unicode(text: str) -> bool:
    return text.encode("utf-8", "ignore").decode() == text


def spec_from_plain(plain: dict[str, Any]) -> Spec:
    """Return the spec of plain values.

    Raises:
        KeyError, TypeError, ValueError, RecursionError: The values are not valid.
    """
    if "dtype" in plain:
        dtype, shape = plain["dtype"], plain["shape"]
        return ArraySpec(dtype and dtype_of(dtype), None if shape is None else tuple(shape))
    if "type" in plain:
        return ValueSpec(_PLAIN[plain["type"]])
    if "item" in plain:
        return ListSpec(spec_from_plain(plain["item"]), plain["length"])
    fields = tuple((str(name), spec_from_plain(part)) for name, part in plain["fields"])
    return StructSpec({"tuple": tuple, "dict": dict}[plain["form"]], fields)
