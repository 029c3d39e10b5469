"""The key of each row in LMDB files written by other programs."""

from __future__ import annotations

import pickletools
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs
import msgspec
import numpy as np
from numpy.typing import NDArray

from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.storage.lmdb.pages import Pages

Keys: TypeAlias = "Sequence[str | bytes] | str"
"""Keys in the order of the rows, or a format string for the numbers from 0 on."""

RowReader: TypeAlias = Callable[[int], tuple[bytes, bytes]]
"""Returns the key and the value of a row."""

_KEY_LIST_KEY = b"__keys__"
"""The key under which writers such as tensorpack store the list of all keys."""


@attrs.frozen
class _InOrder:
    """All rows, in the order of their keys."""

    length: int
    counts: NDArray[np.uint16] = attrs.field(eq=False, repr=False)
    """The number of rows in each leaf page."""

    @property
    def fingerprint_bytes(self) -> bytes:
        """Bytes that distinguish these keys from others, for the fingerprint of a source."""
        return b"in order"

    def reader(self, pages: Pages) -> RowReader:
        ends = np.cumsum(self.counts, dtype=np.int64)
        starts = memoryview((ends - self.counts).data)

        def read(i: int) -> tuple[bytes, bytes]:
            leaf = bisect_right(starts, i) - 1
            return pages.row(leaf, i - starts[leaf])

        return read


class _ByKey:
    """Rows that are looked up by their keys."""

    def key(self, i: int) -> bytes:
        raise NotImplementedError

    def reader(self, pages: Pages) -> RowReader:
        def read(i: int) -> tuple[bytes, bytes]:
            value = pages.get(key := self.key(i))
            if value is None:
                raise SourceError(f"there is no key {key!r}")
            return key, bytes(value)

        return read


@attrs.frozen
class _Formatted(_ByKey):
    """Keys that are row numbers, formatted with a format string."""

    form: str
    length: int

    @property
    def fingerprint_bytes(self) -> bytes:
        return self.form.encode()

    def key(self, i: int) -> bytes:
        return self.form.format(i).encode()


@attrs.frozen
class _Listed(_ByKey):
    """A list of keys of various lengths."""

    keys: tuple[bytes, ...] = attrs.field(repr=False)

    @property
    def length(self) -> int:
        return len(self.keys)

    @property
    def fingerprint_bytes(self) -> bytes:
        return repr(self.keys).encode()

    def key(self, i: int) -> bytes:
        return self.keys[i]


@attrs.frozen
class _Packed(_ByKey):
    """Keys of one length, concatenated: a list of bytes objects takes five times the memory."""

    joined: bytes = attrs.field(repr=False)
    width: int

    @property
    def length(self) -> int:
        return len(self.joined) // self.width

    @property
    def fingerprint_bytes(self) -> bytes:
        return self.joined

    def key(self, i: int) -> bytes:
        return self.joined[i * self.width : (i + 1) * self.width]


KeysOfRows: TypeAlias = _InOrder | _Formatted | _Listed | _Packed


def _listed(keys: Sequence[bytes]) -> _Listed | _Packed:
    widths = set(map(len, keys))
    if len(widths) == 1 and (width := widths.pop()):
        return _Packed(b"".join(keys), width)
    return _Listed(tuple(keys))


def keys_of_rows(reader: str, pages: Pages, keys: Keys | None) -> KeysOfRows:
    """Return the keys passed by the user, or the keys that the store lists, or all keys.

    Raises:
        InvalidFlow: ``keys`` is not a valid argument.
        SourceError: The store is damaged.
    """
    if keys is not None and not isinstance(keys, str):
        return _listed(_checked_keys(reader, keys))
    try:
        key_list_location = pages.location(_KEY_LIST_KEY)
        if isinstance(keys, str):
            return _formatted(reader, keys, pages.entries - (key_list_location is not None))
        if key_list_location is not None:
            return _listed(_index(pages.row(*key_list_location)[1]))
        pages.require_values()
        return _InOrder(pages.entries, pages.counts())
    except SourceError as error:
        raise SourceError(f"{reader}: {pages.path!r} cannot be read: {error}") from error


def _checked_keys(reader: str, keys: object) -> list[bytes]:
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
        raise InvalidFlow(f"{reader}: keys={form!r} is not a number format: {error}") from error
    if not different:
        raise InvalidFlow(
            f"{reader}: keys={form!r} is one key for all rows; write a field for the row's "
            f"number, such as '{{:0>8d}}', or a list of keys"
        )
    return rows


_OPCODES = frozenset(
    (
        *("PROTO", "FRAME", "EMPTY_LIST", "MARK", "APPEND", "APPENDS", "STOP"),
        *("MEMOIZE", "BINPUT", "LONG_BINPUT", "SHORT_BINBYTES", "BINBYTES"),
    )
)
"""The opcodes that occur in a pickled list of bytes; no opcode is executed."""


_BAD_KEY_LIST = f"the value of {_KEY_LIST_KEY.decode()!r} is not a list of keys"


def _index(stored: bytes) -> list[bytes]:
    """Return the keys that the store itself lists, from MessagePack or a pickle."""
    if not is_pickle(stored):
        try:
            return msgspec.msgpack.decode(stored, type=list[bytes])
        except msgspec.MsgspecError as error:
            raise SourceError(f"{_BAD_KEY_LIST}: {error}; pass the keys with keys=[...]") from error
    keys: list[bytes] = []
    try:
        for opcode, argument, _ in pickletools.genops(stored):
            if opcode.name not in _OPCODES:
                raise ValueError(f"{opcode.name} does not occur in a list of bytes")
            if isinstance(argument, bytes):
                keys.append(argument)
    except ValueError as error:
        raise SourceError(f"{_BAD_KEY_LIST}: {error}; pass the keys with keys=[...]") from error
    return keys


def is_pickle(stored: bytes) -> bool:
    """Return True if a value is a pickle, and not MessagePack."""
    # A pickle starts with 0x80; a MessagePack value starting with it is an empty dict, one byte.
    return len(stored) > 2 and stored[0] == 0x80
