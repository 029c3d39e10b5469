"""The footer of a Parquet file: the number of rows, and the byte range of each column.

pyarrow aborts the process on some damaged footers, so these parts are parsed here. The footer is
a struct in Thrift's compact protocol; ``parquet.thrift`` defines its fields and their numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import chain
from typing import Any

import attrs


@attrs.frozen
class Chunk:
    """A column of a row group: its byte range and statistics."""

    name: str
    start: int
    end: int
    physical: int
    values: int
    uncompressed: int
    nulls: int | None


@attrs.frozen
class Group:
    """A row group."""

    rows: int
    chunks: tuple[Chunk, ...]


@attrs.frozen
class Footer:
    """The parsed parts of a footer."""

    rows: int
    groups: tuple[Group, ...]
    entries: dict[bytes, bytes]


def footer_of(raw: bytes) -> Footer:
    """Parse the bytes of a footer.

    Raises:
        ValueError: The bytes are not a footer.
    """
    try:
        top = _Reader(raw).struct(depth=0)  # 2: schema, 3: rows, 4: row groups, 5: entries
        # The first is the root, which has no children (5) in a file without columns.
        leaves = [leaf for leaf in top[2][1:] if not leaf.get(5)]
        groups = tuple(_group(stored, leaves) for stored in top.get(4, []))
        entries = {entry[1]: entry.get(2, b"") for entry in top.get(5, [])}
        if not all(isinstance(text, bytes) for text in chain(entries, entries.values())):
            raise ValueError("an entry is not text")
        if type(top[3]) is not int:
            raise ValueError("its number of rows is not a number")
        return Footer(top[3], groups, entries)
    except (LookupError, TypeError, AttributeError, struct.error, RecursionError) as error:
        raise ValueError(f"it cannot be read: {error!r}") from error


def _group(stored: dict[int, Any], leaves: list[dict[int, Any]]) -> Group:
    chunks = tuple(map(_chunk, stored[1], leaves))
    rows = stored[3]
    if len(stored[1]) != len(leaves) or type(rows) is not int or rows < 0:
        raise ValueError(f"a row group of {rows} rows has {len(chunks)} columns of {len(leaves)}")
    return Group(rows, chunks)


def _chunk(stored: dict[int, Any], leaf: dict[int, Any]) -> Chunk:
    if stored.get(1):
        raise ValueError("a column is in another file")
    # 1: type, 3: path, 5: values, 6: uncompressed bytes, 7: bytes, 9: first data page,
    # 11: dictionary page, 12: statistics, in which 3 is the number of nulls
    metadata = stored[3]
    name = b".".join(metadata[3]).decode()
    start = min(metadata[9], metadata.get(11) or metadata[9])
    size = metadata[7]
    nulls = metadata.get(12, {}).get(3)
    numbers = (start, size, metadata[5], metadata[6], 0 if nulls is None else nulls)
    if metadata[1] != leaf.get(1) or any(type(n) is not int or n < 0 for n in numbers):
        raise ValueError(f"its metadata of column {name!r} is inconsistent")
    return Chunk(name, start, start + size, metadata[1], metadata[5], metadata[6], nulls)


_DEEPEST = 16


class _Reader:
    """Parses consecutive values of Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._of_kind: dict[int, Callable[[int], Any]] = {
            3: lambda _: self._take(1)[0],
            **dict.fromkeys((4, 5, 6), lambda _: self._number()),
            7: lambda _: struct.unpack("<d", self._take(8))[0],
            8: lambda _: self._take(self._count()),
            9: self._list,
            10: self._list,
            12: self.struct,
        }

    def struct(self, depth: int) -> dict[int, Any]:
        """Parse a struct into a dict of its fields by number."""
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._take(1)[0]:
            increase, kind = divmod(head, 16)
            number = number + increase if increase else self._number()
            if kind in (1, 2):  # True and False
                fields[number] = kind == 1
            else:
                fields[number] = self._of_kind[kind](depth + 1)
        return fields

    def _list(self, depth: int) -> list[Any]:
        count, kind = divmod(self._take(1)[0], 16)
        if count == 15:
            count = self._count()
        if count > len(self._data):  # each item takes at least one byte
            raise ValueError(f"it has a list of {count}")
        if kind in (1, 2):
            return [byte == 1 for byte in self._take(count)]
        read = self._of_kind[kind]
        return [read(depth + 1) for _ in range(count)]

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) != count:
            raise ValueError("it ends too early")
        self._at += count
        return taken

    def _count(self) -> int:
        """Parse an unsigned number, in groups of seven bits."""
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 63:
                raise ValueError("it has a number that is too long")

    def _number(self) -> int:
        """Parse a signed number, whose sign is in the lowest bit."""
        value = self._count()
        return (value >> 1) ^ -(value & 1)
