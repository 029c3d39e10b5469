"""How an element is written to a file: MessagePack, with extensions for arrays and tuples.

Reading cannot run code, whatever the bytes are: there is no pickle in it. Numbers, text, bytes,
None, lists, dicts, tuples, arrays and NumPy scalars are carried; anything else is refused when it
is written. A record or NamedTuple is written as its components.

The array extension is self-describing: the dtype and shape, then the bytes in C order.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

from flowdsl.elements import ArraySpec, Spec, StructSpec, ValueSpec, components
from flowdsl.errors import SourceError, SpecMismatch

_TUPLE, _ARRAY, _SCALAR = 1, 2, 3
_PLAIN: dict[str, type] = {t.__name__: t for t in (bool, int, float, str, bytes, list, object)}


def encode(element: object) -> bytes:
    """The bytes of one element.

    Raises:
        SpecMismatch: A component has a type that is not carried; the message names it.
    """
    return _encoder.encode(_to_wire(element, "element"))


def decode(data: bytes) -> Any:
    """The element of these bytes; arrays in it are read-only views of them.

    Raises:
        SourceError: The bytes are not an element.
    """
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise SourceError(f"not an element: {error}") from error


def _to_wire(x: Any, at: str) -> Any:
    if isinstance(x, (np.ndarray, np.generic)):
        if x.dtype.hasobject:
            raise SpecMismatch(f"{at}: an array of Python objects can not be written")
        array = np.asarray(x)
        code = _ARRAY if isinstance(x, np.ndarray) else _SCALAR
        content = (array.dtype.str, array.shape, array.tobytes())
        return msgspec.msgpack.Ext(code, _encoder.encode(content))
    if x is None or isinstance(x, (bool, int, float, str, bytes)):
        return x
    if isinstance(x, list):
        return [_to_wire(v, f"{at}[{i}]") for i, v in enumerate(x)]
    parts = components(x)
    if parts is None:
        raise SpecMismatch(
            f"{at}: {type(x).__name__} can not be written; arrays, numbers, text, bytes, lists, "
            f"dicts, tuples and records can"
        )
    if isinstance(x, tuple):
        fields = [_to_wire(v, f"{at}.{name}") for name, v in parts]
        return msgspec.msgpack.Ext(_TUPLE, _encoder.encode(fields))
    if not all(isinstance(name, str) for name, _ in parts):
        raise SpecMismatch(f"{at}: a dict is written with str keys only")
    return {name: _to_wire(v, f"{at}.{name}") for name, v in parts}


def _extension(code: int, data: memoryview) -> Any:
    if code == _TUPLE:
        return tuple(_decoder.decode(data))
    if code not in (_ARRAY, _SCALAR):
        raise ValueError(f"unknown extension {code}")
    dtype_str, shape, content = _array_decoder.decode(data)
    dtype = np.dtype(dtype_str)
    if dtype.hasobject or len(content) != dtype.itemsize * math.prod(shape):
        raise ValueError(f"{len(content)} bytes for {dtype_str}{list(shape)}")
    array = np.frombuffer(content, dtype).reshape(shape)
    return array[()] if code == _SCALAR else np.require(array, requirements="A")


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ext_hook=_extension)
_array_decoder = msgspec.msgpack.Decoder(tuple[str, tuple[int, ...], memoryview])


def spec_to_plain(spec: Spec) -> dict[str, Any]:
    """A spec as plain values for a file's header; records and NamedTuples lose their class."""
    if isinstance(spec, ArraySpec):
        return {"dtype": spec.dtype.str if spec.dtype else None, "shape": spec.shape}
    if isinstance(spec, ValueSpec):
        return {"type": spec.type.__name__ if spec.type in _PLAIN.values() else "object"}
    form = "tuple" if issubclass(spec.form, tuple) else "dict"
    return {"form": form, "fields": [[name, spec_to_plain(part)] for name, part in spec.fields]}


def spec_from_plain(plain: dict[str, Any]) -> Spec:
    """The inverse; raises KeyError, TypeError or ValueError on anything else."""
    if "dtype" in plain:
        dtype, shape = plain["dtype"], plain["shape"]
        return ArraySpec(dtype and np.dtype(dtype), None if shape is None else tuple(shape))
    if "type" in plain:
        return ValueSpec(_PLAIN[plain["type"]])
    fields = tuple((str(name), spec_from_plain(part)) for name, part in plain["fields"])
    return StructSpec({"tuple": tuple, "dict": dict}[plain["form"]], fields)
