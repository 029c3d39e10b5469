"""from_tensorpack_lmdb: the datapoints of LMDB files written by tensorpack."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeForm

from flowdsl import nodes
from flowdsl.effects import Exact
from flowdsl.elements.declared_specs import spec_declared
from flowdsl.elements.specs import Spec
from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.nodes import READER_KEYWORD_ADVICE, T, frozen_node, rejects_keywords
from flowdsl.storage.lmdb.keys import is_pickle
from flowdsl.storage.lmdb.raw import RawSource, raw_file
from flowdsl.storage.paths import OnePath
from flowdsl.storage.schema import SchemaRows

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")


@frozen_node
class FromTensorpackLmdb(RawSource[T], Generic[T]):
    """The source of ``from_tensorpack_lmdb``: the datapoints of an LMDB file, by index."""

    declared: Spec
    trusted: bool

    def spec(self, probe: bool) -> Spec:
        return self.declared

    def open(self) -> Callable[[int], T]:
        read = self.raw.open()
        checked = SchemaRows("from_tensorpack_lmdb", self.raw.path, self.declared)

        def row(i: int) -> T:
            key, value = read(i)
            try:
                x = _datapoint(value, self.trusted)
            except SourceError as error:
                raise SourceError(f"{self.raw.path!r}: key {key!r}: {error}") from error
            return cast("T", checked.row(i, x))

        return row


def _datapoint(stored: bytes, trusted: bool) -> object:
    """Decode the datapoint of these bytes; a list of components becomes a tuple."""
    if not is_pickle(stored):
        x = _from_msgpack(stored)
    elif trusted:
        try:
            x = pickle.loads(stored)
        except Exception as error:  # a damaged pickle may raise anything
            raise SourceError(f"its pickle cannot be read: {error!r}") from error
    else:
        raise SourceError(
            "it is a pickle, which can run any code when it is read: pass trusted=True if you "
            "trust the author of the file"
        )
    return tuple(cast("list[object]", x)) if type(x) is list else x


def _from_msgpack(stored: bytes) -> object:
    try:
        return _array_or_part(msgspec.msgpack.decode(stored))
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise SourceError(f"it is not a datapoint in MessagePack or pickle: {error}") from error


_DTYPE = re.compile(r"[<>|][biufcSUmM]\d{1,9}(\[\d*[a-zA-Z]+\])?")
"""Matches a dtype without fields or objects; NumPy would accept many other strings."""


def _array_or_part(x: Any) -> Any:
    """Decode arrays and scalars in a part of a datapoint, as msgpack_numpy writes them."""
    if isinstance(x, list):
        return [_array_or_part(item) for item in x]
    if not isinstance(x, dict):
        return x
    parts: dict[Any, Any] = x
    if b"complex" in parts:
        return complex(parts[b"data"])
    if b"nd" not in parts:
        return {name: _array_or_part(part) for name, part in parts.items()}
    if parts.get(b"kind") or not isinstance(parts[b"type"], str):
        raise ValueError("an array of objects, or with fields, is not supported")
    if not _DTYPE.fullmatch(parts[b"type"]):
        raise ValueError(f"an array of {parts[b'type'][:40]!r} is not supported")
    dtype, data = np.dtype(parts[b"type"]), parts[b"data"]
    shape = [int(side) for side in parts[b"shape"]] if parts[b"nd"] else []
    if (
        len(shape) > 64  # NumPy's limit
        or min(shape, default=0) < 0
        or math.prod(shape) * dtype.itemsize != len(data)
    ):
        raise ValueError(f"{len(data)} bytes do not fit an array of {dtype} and shape {shape}")
    array: NDArray[Any] = np.frombuffer(data, dtype).reshape(shape)
    return array if parts[b"nd"] else array[()]


@overload
def from_tensorpack_lmdb(path: OnePath, *, trusted: bool = False) -> Flow[Any, Exact]: ...
@overload
def from_tensorpack_lmdb(
    path: OnePath, element: TypeForm[A], *, trusted: bool = False
) -> Flow[A, Exact]: ...
@rejects_keywords(**READER_KEYWORD_ADVICE)
def from_tensorpack_lmdb(
    path: OnePath, element: Any = object, *, trusted: bool = False
) -> Flow[Any, Exact]:
    """Read the datapoints of an LMDB file written by tensorpack's ``LMDBSerializer.save``.

    ``path`` is a file, or a folder with a ``data.mdb``. A datapoint that is a list of components
    becomes a tuple. ``element`` declares the type of a row, and each row is checked against it.
    tensorpack writes pickles, or MessagePack if ``TENSORPACK_SERIALIZE=msgpack`` was set. A pickle
    can run any code when it is read, so pickles are read only with ``trusted=True``. MessagePack is
    always read, and runs no code.

    Length: the number of datapoints.

    Effects: none.

    Errors: ``SourceError`` when the flow is built, if the file is missing or damaged, or if its
    rows are pickles and ``trusted`` is false; at the row, if its bytes are not a datapoint.
    ``SpecMismatch`` at a row that does not match ``element``.

    >>> import flowdsl as fl, lmdb, pickle, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with lmdb.open(folder) as store, store.begin(write=True) as txn:
    ...         _ = txn.put(b"00000000", pickle.dumps(["cat", 3]))
    ...     fl.from_tensorpack_lmdb(folder, tuple[str, int], trusted=True).collect()
    [('cat', 3)]

    Source: ``LMDBSerializer.load`` in tensorpack.

    Elsewhere: tensorpack ``LMDBSerializer.load``; tf.data none; Grain none; torchdata none.
    """
    reader = "from_tensorpack_lmdb"
    declared = spec_declared(f"{reader}: rows", element)
    if not isinstance(cast("object", trusted), bool):
        raise InvalidFlow(f"{reader}: trusted must be True or False, got {trusted!r}")
    raw = raw_file(reader, path, keys=None)
    if raw.length and not trusted:
        key, value = raw.open()(0)
        if is_pickle(value):
            raise SourceError(
                f"{reader}: {raw.path!r} holds pickles (key {key!r}), which can run any code when "
                f"they are read: pass trusted=True if you trust the author of the file"
            )
    return nodes.flow(FromTensorpackLmdb[Any](raw, declared, trusted))
