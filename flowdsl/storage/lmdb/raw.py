"""from_lmdb_raw and from_tensorpack_lmdb: the rows of LMDB files that others wrote."""

from __future__ import annotations

import math
import os
import pickle
import pickletools
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast, overload

import attrs
import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray
from typing_extensions import TypeForm

from flowdsl import node
from flowdsl.effects import Exact
from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.kinds import IndexedSource
from flowdsl.node import T
from flowdsl.specs import (
    Spec,
    StructSpec,
    ValueSpec,
    as_declared,
    in_classes,
    meet,
    names_classes,
    spec_declared,
    spec_of,
)
from flowdsl.storage.lmdb.pages import Pages
from flowdsl.storage.paths import OnePath, local_path

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")

Keys: TypeAlias = "Sequence[str | bytes] | str"
"""Keys in the order of the rows, or a format string for the numbers from 0 on."""

_KEY_OF_KEYS = b"__keys__"
_SAMPLES = 32
_SAMPLE_BYTES = 1 << 16
Read: TypeAlias = Callable[[int], tuple[bytes, bytes]]


# -- which row has which key -----------------------------------------------------------------------


@attrs.frozen
class _InOrder:
    """All rows, in the order of their keys."""

    length: int
    counts: NDArray[np.uint16] = attrs.field(eq=False, repr=False)

    @property
    def content(self) -> bytes:
        return b"in order"

    def reader(self, pages: Pages) -> Read:
        ends = np.cumsum(self.counts, dtype=np.int64)
        starts = memoryview((ends - self.counts).data)

        def read(i: int) -> tuple[bytes, bytes]:
            leaf = bisect_right(starts, i) - 1
            return pages.row(leaf, i - starts[leaf])

        return read


class _ByKey:
    """Rows that are found by their keys."""

    def key(self, i: int) -> bytes:
        raise NotImplementedError

    def reader(self, pages: Pages) -> Read:
        def read(i: int) -> tuple[bytes, bytes]:
            value = pages.get(key := self.key(i))
            if value is None:
                raise SourceError(f"there is no key {key!r}")
            return key, bytes(value)

        return read


@attrs.frozen
class _Formatted(_ByKey):
    """Keys that are numbers, each written as a format string says."""

    form: str
    length: int

    @property
    def content(self) -> bytes:
        return self.form.encode()

    def key(self, i: int) -> bytes:
        return self.form.format(i).encode()


@attrs.frozen
class _Listed(_ByKey):
    """Keys of any length."""

    keys: tuple[bytes, ...] = attrs.field(repr=False)

    @property
    def length(self) -> int:
        return len(self.keys)

    @property
    def content(self) -> bytes:
        return repr(self.keys).encode()

    def key(self, i: int) -> bytes:
        return self.keys[i]


@attrs.frozen
class _Packed(_ByKey):
    """Keys of one length, end to end: a list of as many bytes objects is five times as large."""

    content: bytes = attrs.field(repr=False)
    width: int

    @property
    def length(self) -> int:
        return len(self.content) // self.width

    def key(self, i: int) -> bytes:
        return self.content[i * self.width : (i + 1) * self.width]


_Rows: TypeAlias = _InOrder | _Formatted | _Listed | _Packed


def _listed(keys: Sequence[bytes]) -> _Listed | _Packed:
    widths = set(map(len, keys))
    if len(widths) == 1 and (width := widths.pop()):
        return _Packed(b"".join(keys), width)
    return _Listed(tuple(keys))


def _rows(reader: str, pages: Pages, keys: Keys | None) -> _Rows:
    if keys is not None and not isinstance(keys, str):
        return _listed(_given(reader, keys))
    try:
        hidden = pages.place(_KEY_OF_KEYS)
        if isinstance(keys, str):
            return _formatted(reader, keys, pages.entries - (hidden is not None))
        if hidden is not None:
            return _listed(_index(pages.row(*hidden)[1]))
        return _InOrder(pages.entries, pages.counts())
    except SourceError as error:
        raise SourceError(f"{reader}: {pages.path!r} cannot be read: {error}") from error


def _given(reader: str, keys: object) -> list[bytes]:
    if not isinstance(keys, Sequence) or isinstance(keys, bytes | bytearray | memoryview):
        raise InvalidFlow(
            f"{reader}: keys must be a list of str or bytes, or a format string such as "
            f"'{{:0>8d}}', got {keys!r}"
        )
    for i, key in enumerate(keys):
        if not isinstance(key, str | bytes):
            raise InvalidFlow(f"{reader}: keys must be str or bytes, got keys[{i}]={key!r}")
    return [key.encode() if isinstance(key, str) else key for key in keys]


def _formatted(reader: str, form: str, length: int) -> _Formatted:
    rows = _Formatted(form, length)
    try:
        different = rows.key(0) != rows.key(1)
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        raise InvalidFlow(f"{reader}: keys={form!r} is no format of a number: {error}") from error
    if not different:
        raise InvalidFlow(
            f"{reader}: keys={form!r} is one key for all rows; write a place for the row's "
            f"number, such as '{{:0>8d}}', or a list of keys"
        )
    return rows


_OPCODES = frozenset(
    (
        *("PROTO", "FRAME", "EMPTY_LIST", "MARK", "APPEND", "APPENDS", "STOP"),
        *("MEMOIZE", "BINPUT", "LONG_BINPUT", "SHORT_BINBYTES", "BINBYTES"),
    )
)
"""Those that a pickled list of bytes has, and that build nothing else: none of them is run."""


def _index(stored: bytes) -> list[bytes]:
    """The keys that the store itself lists, from MessagePack or from a pickle."""
    if not _is_pickle(stored):
        try:
            return msgspec.msgpack.decode(stored, type=list[bytes])
        except msgspec.MsgspecError as error:
            raise SourceError(
                f"its key {_KEY_OF_KEYS!r} lists no keys: {error}; give keys="
            ) from error
    keys: list[bytes] = []
    try:
        for opcode, argument, _ in pickletools.genops(stored):
            if opcode.name not in _OPCODES:
                raise ValueError(f"{opcode.name} is in no list of bytes")
            if isinstance(argument, bytes):
                keys.append(argument)
    except ValueError as error:
        raise SourceError(f"its key {_KEY_OF_KEYS!r} lists no keys: {error}; give keys=") from error
    return keys


def _is_pickle(stored: bytes) -> bool:
    return len(stored) > 2 and stored[0] == 0x80  # in MessagePack that is a dict of nothing


# -- pairs of bytes --------------------------------------------------------------------------------


@attrs.frozen(repr=False)
class RawFile:
    """The keys and values of an LMDB file, for the sources that are made of them."""

    reader: str
    path: str
    keys: _Rows
    digest: int

    @property
    def title(self) -> str:
        return f"{self.reader}({os.path.basename(self.path)!r})"

    @property
    def fingerprint(self) -> str:
        return f"{self.title} of {self.length} rows {self.digest:016x}"

    @property
    def length(self) -> int:
        return self.keys.length

    def open(self) -> Read:
        pages = Pages(self.reader, self.path)
        if _digest(pages, self.keys) != self.digest:
            raise SourceError(
                f"{self.path!r} holds other rows than when this flow was built: build a new flow"
            )
        read = self.keys.reader(pages)

        def row(i: int) -> tuple[bytes, bytes]:
            try:
                return read(i)
            except SourceError as error:
                raise SourceError(f"{self.path!r}: row {i} cannot be read: {error}") from error

        return row


def _digest(pages: Pages, keys: _Rows) -> int:
    """A digest of the tree, of the keys, and of some rows, the first and last among them."""
    read = keys.reader(pages)
    digest = xxhash.xxh3_64(pages.digest.to_bytes(8, "little") + keys.content)
    sampled = np.linspace(0, keys.length - 1, _SAMPLES if keys.length else 0, dtype=np.int64)
    for i in sorted({*sampled.tolist()}):
        try:
            _, value = read(i)
        except SourceError as error:  # the row says so when it is read
            digest.update(str(error).encode())
        else:
            digest.update(len(value).to_bytes(8, "little") + value[:_SAMPLE_BYTES])
    return digest.intdigest()


def raw_file(reader: str, path: OnePath, keys: Keys | None) -> RawFile:
    """An LMDB file, for the reader that errors name.

    Raises:
        InvalidFlow: The path or the keys are none.
        SourceError: The file is missing or damaged.
    """
    where = local_path(reader, path)
    pages = Pages(reader, where)
    rows = _rows(reader, pages, keys)
    return RawFile(reader, where, rows, _digest(pages, rows))


@attrs.frozen(repr=False)
class FromLmdbRaw(IndexedSource[tuple[bytes, bytes]]):
    """The keys and values of an LMDB file, by number."""

    raw: RawFile

    @property
    def title(self) -> str:
        return self.raw.title

    @property
    def fingerprint(self) -> str:
        return self.raw.fingerprint

    @property
    def length(self) -> int:
        return self.raw.length

    def spec(self, probe: bool) -> Spec:
        return StructSpec(tuple, (("0", ValueSpec(bytes)), ("1", ValueSpec(bytes))))

    def open(self) -> Read:
        return self.raw.open()


def from_lmdb_raw(path: OnePath, keys: Keys | None = None) -> Flow[tuple[bytes, bytes], Exact]:
    """The keys and values of an LMDB file that anybody wrote, as bytes.

    ``path`` is a file, or a folder with a ``data.mdb``. ``keys`` says which rows come, and in which
    order: a list of keys, or a format string such as ``"{:0>8d}"`` for the numbers from 0 to the
    number of rows. Without it they are those that the store lists under ``__keys__``, as tensorpack
    writes it, which is itself no row; or else all of them, sorted as bytes. For that the
    beginning of each page with keys is read once when the flow is built; with keys it is not.

    Decode them by ``map(lambda row: ...)``, or by ``filter_map`` where some are to be left out.
    Reading runs no code from the file, and every number in its pages is checked before it is used.
    The values have no checksum: a changed byte in one is not noticed. A saved state is refused over
    a file whose keys, or pages, or 32 sampled values are others, the first and last among them.

    Length: the number of keys.

    Effects: none.

    Errors: ``SourceError`` at once, if the file is missing, damaged, cut short, or has several
    values for a key; at the row, if its key is not in the file, or its page is damaged.
    ``InvalidFlow`` if keys are neither a list nor a format.

    >>> import flowdsl as fl, lmdb, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with lmdb.open(folder) as store, store.begin(write=True) as txn:
    ...         _ = txn.put(b"0000", b"cat"), txn.put(b"0001", b"dog")
    ...     fl.from_lmdb_raw(folder).collect()
    ...     fl.from_lmdb_raw(folder, keys=["0001"]).map(lambda row: row[1].decode()).collect()
    [(b'0000', b'cat'), (b'0001', b'dog')]
    ['dog']

    Source: ``LMDBData`` in tensorpack; LMDB by Howard Chu.

    Elsewhere: tensorpack ``LMDBData``, ``LMDBDataDecoder``; tf.data none; Grain none;
    torchdata none.
    """
    return node.flow(FromLmdbRaw(raw_file("from_lmdb_raw", path, keys)))


# -- what tensorpack wrote -------------------------------------------------------------------------


@attrs.frozen(repr=False)
class FromTensorpackLmdb(IndexedSource[T], Generic[T]):
    """The datapoints of an LMDB file that tensorpack wrote."""

    raw: RawFile
    declared: Spec
    trusted: bool

    @property
    def title(self) -> str:
        return self.raw.title

    @property
    def fingerprint(self) -> str:
        return self.raw.fingerprint

    @property
    def length(self) -> int:
        return self.raw.length

    def spec(self, probe: bool) -> Spec:
        return self.declared

    def open(self) -> Callable[[int], T]:
        read = self.raw.open()

        def row(i: int) -> T:
            key, value = read(i)
            try:
                x = _datapoint(value, self.trusted)
            except SourceError as error:
                raise SourceError(f"{self.raw.path!r}: key {key!r}: {error}") from error
            return cast("T", _held(x, self.declared))

        return row


def _held(x: object, declared: Spec) -> object:
    spec = meet(declared, as_declared(spec_of(x), declared), "row")
    return in_classes(x, spec) if names_classes(spec) else x


def _datapoint(stored: bytes, trusted: bool) -> object:
    """The datapoint of these bytes: a list of components comes as a tuple."""
    if not _is_pickle(stored):
        x = _from_msgpack(stored)
    elif trusted:
        try:
            x = pickle.loads(stored)
        except Exception as error:  # whatever a damaged pickle raises
            raise SourceError(f"its pickle cannot be read: {error!r}") from error
    else:
        raise SourceError(
            "it is a pickle, which can run any code when it is read: pass trusted=True if you "
            "trust who wrote the file"
        )
    return tuple(cast("list[object]", x)) if type(x) is list else x


def _from_msgpack(stored: bytes) -> object:
    try:
        return _array_or_part(msgspec.msgpack.decode(stored))
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise SourceError(f"it is no datapoint in MessagePack or pickle: {error}") from error


_DTYPE = re.compile(r"[<>|][biufcSUmM]\d{1,9}(\[\d*[a-zA-Z]+\])?")
"""The spelling of a dtype without fields or objects; NumPy would accept many others."""


def _array_or_part(x: Any) -> Any:
    """A part of a datapoint, with arrays and scalars as msgpack_numpy writes them."""
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
        raise ValueError("an array of objects or of fields is not read")
    if not _DTYPE.fullmatch(parts[b"type"]):
        raise ValueError(f"an array of {parts[b'type'][:40]!r} is not read")
    dtype, data = np.dtype(parts[b"type"]), parts[b"data"]
    shape = [int(side) for side in parts[b"shape"]] if parts[b"nd"] else []
    if (
        len(shape) > 64
        or min(shape, default=0) < 0
        or math.prod(shape) * dtype.itemsize != len(data)
    ):
        raise ValueError(f"an array of {dtype} and shape {shape} has {len(data)} bytes")
    array: NDArray[Any] = np.frombuffer(data, dtype).reshape(shape)
    return array if parts[b"nd"] else array[()]


@overload
def from_tensorpack_lmdb(path: OnePath, *, trusted: bool = False) -> Flow[object, Exact]: ...
@overload
def from_tensorpack_lmdb(
    path: OnePath, element: TypeForm[A], *, trusted: bool = False
) -> Flow[A, Exact]: ...
def from_tensorpack_lmdb(
    path: OnePath, element: Any = object, *, trusted: bool = False
) -> Flow[Any, Exact]:
    """The datapoints of an LMDB file that tensorpack's ``LMDBSerializer.save`` wrote.

    ``path`` is a file, or a folder with a ``data.mdb``. A datapoint that is a list of components
    comes as a tuple. ``element`` declares what a row is, and each row is checked against it.
    tensorpack writes pickles, or MessagePack if ``TENSORPACK_SERIALIZE=msgpack`` was set. A pickle
    can run any code when it is read, so it is read only with ``trusted=True``; MessagePack is read
    in any case, and runs none.

    Length: the number of datapoints.

    Effects: none.

    Errors: ``SourceError`` at once, if the file is missing or damaged, or its rows are pickles and
    it is not ``trusted``; at the row, if its bytes are no datapoint. ``SpecMismatch`` at the row,
    if it is not what ``element`` declares.

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
    raw = raw_file(reader, path, None)
    if raw.length and not trusted:
        key, value = raw.open()(0)
        if _is_pickle(value):
            raise SourceError(
                f"{reader}: {raw.path!r} holds pickles (key {key!r}), which can run any code when "
                f"they are read: pass trusted=True if you trust who wrote the file"
            )
    return node.flow(FromTensorpackLmdb[Any](raw, declared, trusted))
