"""Reads the pages of an LMDB file, and validates every number in them.

The LMDB library maps a file into memory and trusts each page. In a damaged file it reads past the
end, which kills the process, or loops forever. Files of other programs have no checksums, so
flowdsl reads their pages itself: a file is a B+tree of pages, a page contains nodes, and a node is
a key with a value or with the number of a child page. Only the branch pages are kept in memory:
about 1% of a file of small values, and less of others.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from flowdsl.errors import SourceError
from flowdsl.storage.byte_files import LocalFile
from flowdsl.storage.read_ahead import ReadAhead

P = TypeVar("P")

_HEADER = struct.Struct("=QHHHH")  # of a page: its number, padding, kind, lower and upper end
PAGE_HEADER_BYTES = _HEADER.size
PAGE_KIND = 10
"""The offset of a page's kind; the padding before it may have any bytes."""
_NODE = struct.Struct("=HHHH")  # low and high half of a size, flags, length of the key
_META = struct.Struct("=IIQQ")  # magic, version, address, map size
_TREE = struct.Struct("=IHHQQQQQ")  # page size, flags, depth, 3 numbers of pages, entries, root
_LAST = struct.Struct("=QQ")  # last page, transaction
_META_BYTES = _HEADER.size + _META.size + 2 * _TREE.size + _LAST.size
_PAGE_NUMBER = struct.Struct("=Q")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF, OVERFLOW, _META_PAGE = 1, 2, 4, 8
_KINDS = 0x7F  # the page's kind; the other bits matter only while writing
BIG, _NAMED, _DUPLICATES = 1, 2, 4  # flags of a node
_ORDERS = {2: "reversed keys", 4: "several values for a key", 8: "integers for keys"}
_NO_PAGE = 2**64 - 1
_DEEPEST = 32  # LMDB's own limit
_MOST_AHEAD = 1 << 16
_MAX_BRANCHES, MAX_LEAVES = 1024, 4096  # kept in memory, of some kilobytes each


class _Root(NamedTuple):
    """The root of a tree, as stored in a meta page."""

    page_size: int
    flags: int
    depth: int
    branches: int
    leaves: int
    overflows: int
    entries: int
    page: int


class Page:
    """A branch or leaf page that is checked to contain all of its nodes."""

    def __init__(self, number: int, data: bytes, kind: int) -> None:
        own, _, flags, lower, upper = _HEADER.unpack_from(data)
        if own != number or flags & _KINDS != kind:
            raise SourceError(f"page {number} is damaged: it is not a {_name_of(kind)} page")
        if not _HEADER.size <= lower <= upper <= len(data) or lower % 2:
            raise SourceError(f"page {number} is damaged: its nodes end at {lower} and {upper}")
        self.number, self.data, self.kind = number, data, kind
        self.offsets = memoryview(data)[_HEADER.size : lower].cast("H").tolist()
        last = len(data) - _NODE.size
        if self.offsets and (min(self.offsets) < upper or max(self.offsets) > last):
            raise SourceError(f"page {number} is damaged: it has a node outside of itself")
        if kind == _BRANCH and not self.offsets:
            raise SourceError(f"page {number} is damaged: it is empty")

    def __len__(self) -> int:
        return len(self.offsets)

    def node(self, slot: int) -> tuple[int, int, int]:
        """Return a node's size or child page, its flags and the length of its key."""
        low, high, flags, length = _NODE.unpack_from(self.data, self.offsets[slot])
        return low | high << 16, flags, length

    def key(self, slot: int) -> bytes:
        return self.within(slot, 0, _NODE.unpack_from(self.data, self.offsets[slot])[3])

    def within(self, slot: int, start: int, count: int) -> bytes:
        """Return bytes of a node, counted from its key; raises SourceError outside the page."""
        begin = self.offsets[slot] + _NODE.size + start
        if begin + count > len(self.data):
            raise SourceError(f"page {self.number} is damaged: node {slot} extends beyond the page")
        return self.data[begin : begin + count]


class Branch(NamedTuple):
    """The pages below a branch page, in the order of their keys."""

    keys: list[bytes]
    """The lowest key that each page may have, except for the first page."""
    children: list[int]


def shown(db: bytes) -> str:
    """Return the name of a database as a user writes it."""
    try:
        return repr(db.decode())
    except UnicodeDecodeError:
        return repr(db)


def _name_of(kind: int) -> str:
    return {_BRANCH: "branch", _LEAF: "leaf", OVERFLOW: "overflow"}[kind]


class Leaf(NamedTuple):
    """A leaf page and the range of keys that it may have; ``end`` is None for the last leaf."""

    first: bytes
    end: bytes | None
    page: Page | None


_NO_LEAF = Leaf(first=b"", end=b"", page=None)
"""A leaf without keys, in place of the last one that was read."""


class _Meta(NamedTuple):
    """The state of a file after a transaction."""

    free: _Root
    """The tree of free pages."""
    rows: _Root
    """The tree of the main database."""
    last_page: int
    transaction: int


class Tree:
    """An LMDB file with lookup by key; thread-safe.

    The constructor raises SourceError for a file that is damaged or is not an LMDB file. Each
    method raises it if a page that it needs is damaged.
    """

    def __init__(
        self,
        reader: str,
        path: str,
        expected: str = "an LMDB file",
        file: LocalFile | None = None,
        db: bytes | None = None,
    ) -> None:
        """``path`` is a file, or a folder with a ``data.mdb``; errors name what is ``expected``.

        ``file`` is the file if it is open already, ``db`` the named database to read, or None for
        the main one.
        """
        self.path = os.path.join(path, "data.mdb") if os.path.isdir(path) else path
        try:
            self._file = LocalFile(reader, self.path) if file is None else file
        except SourceError as error:
            raise SourceError(f"{error}; expected {expected}") from error
        try:
            if not self._file.size:
                raise SourceError("it is empty (0 bytes), as if its writer or a copy had failed")
            meta = self._meta()
            self._rows, self._page_size = meta.rows, meta.free.page_size
            self._last_page, self.transaction = meta.last_page, meta.transaction
            # Writers store the leaves of small rows one after another.
            self._ahead = ReadAhead(self._file, _MOST_AHEAD)
            self._last_leaf = _NO_LEAF  # consecutive rows are mostly on one leaf
            self._branch_pages: dict[int, Branch] = {}
            self._leaf_pages: dict[int, Page] = {}
            self._require_order()
            self._require_the_end(meta.free)
        except SourceError as error:
            raise SourceError(
                f"{reader}: {self.path!r} cannot be read: {error}; expected {expected}"
            ) from error
        if db is not None:
            try:
                self._rows, self._last_leaf = self._named(db), _NO_LEAF
                self._require_order()
            except SourceError as error:
                raise SourceError(f"{reader}: {self.path!r}: db={shown(db)}: {error}") from error
        self.entries = self._rows.entries

    @property
    def file(self) -> LocalFile:
        return self._file

    @property
    def page_size(self) -> int:
        return self._page_size

    def get(self, key: bytes) -> bytes | memoryview | None:
        """Return the value of a key; None if there is no such key."""
        page = self.leaf_of(key).page
        return None if page is None else self._value_at(page, key)

    def leaf_of(self, key: bytes) -> Leaf:
        """Return the leaf that contains a key if the key exists."""
        leaf = self._last_leaf
        if not leaf.first <= key or (leaf.end is not None and leaf.end <= key):
            self._last_leaf = leaf = self.find(key)
        return leaf

    def _value_at(self, page: Page, key: bytes) -> bytes | memoryview | None:
        slot = bisect_left(range(len(page)), key, key=page.key)
        if slot == len(page) or page.key(slot) != key:
            return None
        return self._value(page, slot, key)

    def changed(self) -> bool:
        """Return True if the file was written to since it was opened."""
        return self._meta().transaction != self.transaction

    def find(self, key: bytes) -> Leaf:
        """Search for the leaf that contains a key if the key exists."""
        if self._rows.page == _NO_PAGE:
            return Leaf(first=b"", end=None, page=None)
        first, end, numbers, slot = self._way_to(key)
        return Leaf(first, end, self._leaf_page(numbers[slot]))

    def leaves_from(self, key: bytes) -> tuple[list[int], Page]:
        """Return the numbers of the leaf for a key and of the leaves after it, and its page.

        All these leaves are children of one branch.
        """
        if self._rows.page == _NO_PAGE:
            raise SourceError("it has no rows")
        _, _, numbers, slot = self._way_to(key)
        return numbers[slot:], self._leaf_page(numbers[slot])

    def pages_into(self, number: int, buffer: memoryview) -> bytes | memoryview:
        """Read pages from ``number`` on: into ``buffer``, or if that fails, into new memory.

        ``buffer`` has the size of the pages.
        """
        begin = self._begin(number, len(buffer))
        filled = self._file.read_into([buffer], begin, len(buffer))
        return buffer if filled else self._bytes(number, len(buffer))

    def _way_to(self, key: bytes) -> tuple[bytes, bytes | None, list[int], int]:
        """Return the range of keys of the leaf for a key, and its branch's leaves and slot."""
        numbers, slot, first, end = [self._rows.page], 0, b"", None
        for _ in range(min(self._rows.depth, _DEEPEST) - 1):
            number = numbers[slot]
            branch = self._branch_pages.get(number)
            if branch is None:
                branch = _kept(self._branch_pages, _MAX_BRANCHES, number, self._branch(number))
            keys, numbers = branch
            slot = bisect_right(keys, key)
            first = keys[slot - 1] if slot else first
            end = keys[slot] if slot < len(keys) else end
        return first, end, numbers, slot

    def _leaf_page(self, number: int) -> Page:
        page = self._leaf_pages.get(number)
        if page is None:
            page = _kept(self._leaf_pages, MAX_LEAVES, number, self._page(number, _LEAF))
        return page

    def _require_order(self) -> None:
        """Check that keys are unique, and sorted as bytes."""
        orders = [order for flag, order in _ORDERS.items() if self._rows.flags & flag]
        if self._rows.flags & 0x7F:
            raise SourceError(f"{', '.join(orders) or 'an unknown order'}: not supported")

    def _named(self, db: bytes) -> _Root:
        """Return the root of a named database, which is a value in the main one."""
        page = self.find(db).page
        slot = 0 if page is None else bisect_left(range(len(page)), db, key=page.key)
        if page is None or slot == len(page) or page.key(slot) != db:
            raise SourceError(f"there is no such database; {self._names()}")
        size, flags, _ = page.node(slot)
        if flags & ~_DUPLICATES != _NAMED or size != _TREE.size:
            raise SourceError(f"it is a key, and not a database; {self._names()}")
        return _Root(*_TREE.unpack(page.within(slot, len(db), size)))

    def _names(self) -> str:
        """Describe the named databases on the first leaf, which mostly has all."""
        page = self.find(b"").page
        slots = range(0 if page is None else len(page))
        names = [shown(page.key(k)) for k in slots if page and page.node(k)[1] & _NAMED]
        listed = ", ".join(names[:20])
        return f"the file has the databases {listed}" if names else "the file has no databases"

    def _value(self, page: Page, slot: int, key: bytes) -> bytes | memoryview:
        size, flags, _ = page.node(slot)
        if flags & _NAMED:
            raise SourceError(
                f"key {key!r} is a database: read it with from_lmdb_raw(path, db={shown(key)})"
            )
        if flags & ~BIG:
            raise SourceError(f"key {key!r} has a value of another kind: not supported")
        if not flags:
            return page.within(slot, len(key), size)
        (number,) = _PAGE_NUMBER.unpack(page.within(slot, len(key), _PAGE_NUMBER.size))
        return self._on_pages(number, size, key)

    def _on_pages(self, number: int, size: int, key: bytes) -> memoryview:
        """Read a large value from its overflow pages, which begin at page ``number``."""
        data = self._bytes(number, PAGE_HEADER_BYTES + size)
        if not self._has_value(number, size, data):
            raise SourceError(f"page {number} is damaged: it is not the value of key {key!r}")
        return memoryview(data)[_HEADER.size :]

    def _value_into(self, number: int, size: int, buffers: Sequence[Buffer]) -> bool:
        """Fill buffers with the first page's header and a large value.

        Return False if the file cannot do so, or if the page is not one of this value.
        """
        count = PAGE_HEADER_BYTES + size
        begin = self._begin(number, count)
        filled = self._file.read_into(buffers, begin, count)
        return filled and self._has_value(number, size, buffers[0])

    def _has_value(self, number: int, size: int, data: Buffer) -> bool:
        """Return True if the overflow pages that begin like this have a value of this size."""
        own, _, kind, low, high = _HEADER.unpack_from(data)
        room = (low | high << 16) * self._page_size
        fits = _HEADER.size + size <= room
        return bool(own == number and kind & _KINDS == OVERFLOW and fits)

    # -- reading pages -----------------------------------------------------------------------------

    def _meta(self) -> _Meta:
        """Return the state after the latest transaction."""
        first = self._meta_at(0)
        second = self._meta_at(first.free.page_size)
        return max(first, second, key=lambda meta: meta.transaction)

    def _meta_at(self, start: int) -> _Meta:
        data = self._file.read(start, _META_BYTES)
        known = len(data) == _META_BYTES and _HEADER.unpack_from(data)[2] & _META_PAGE
        at = _HEADER.size
        if not known or _META.unpack_from(data, at)[:2] != (_MAGIC, _VERSION):
            raise SourceError(self._why_unknown(start))
        free = _Root(*_TREE.unpack_from(data, at := at + _META.size))
        rows = _Root(*_TREE.unpack_from(data, at := at + _TREE.size))
        last, transaction = _LAST.unpack_from(data, at + _TREE.size)
        if free.page_size not in [1 << bits for bits in range(9, 17)]:
            raise SourceError(f"its pages have {free.page_size} bytes")
        return _Meta(free, rows, last, transaction)

    def _why_unknown(self, start: int) -> str:
        size = self._file.size
        if size < start + _META_BYTES:
            return f"it has {size} bytes: it is cut short, or is not an LMDB file"
        return f"its page at byte {start} is damaged" if start else "it is not an LMDB file"

    def _require_the_end(self, free: _Root) -> None:
        """Check that pages missing at the end of the file are free pages."""
        stored_pages = self._file.size // self._page_size
        missing = self._last_page + 1 - stored_pages
        if missing <= 0:
            return
        cut = SourceError(
            f"it is cut short: it has {self._file.size} bytes, and page {self._last_page} is in use"
        )
        if missing > stored_pages:
            raise cut
        left = set(range(stored_pages, self._last_page + 1))
        for numbers in self._values(free):
            left.difference_update(array("Q", numbers[: len(numbers) // 8 * 8])[1:])
        if left:
            raise cut

    def _values(self, root: _Root) -> Iterator[bytes]:
        for number in self._leaves_of(root)[0]:
            page = self._page(number, _LEAF)
            for slot in range(len(page)):
                yield bytes(self._value(page, slot, page.key(slot)))

    def _leaves_of(self, root: _Root) -> tuple[array[int], list[bytes]]:
        """Return the leaves of a tree, and the lowest key that each may have."""
        if root.page == _NO_PAGE:
            if root.entries or root.depth:
                raise SourceError(f"it should have {root.entries} rows, but has no page with rows")
            return array("Q"), []
        if not 0 < root.depth <= _DEEPEST:
            raise SourceError(f"its tree has depth {root.depth}")
        numbers, firsts = array("Q", [root.page]), [b""]
        pages = self._file.size // self._page_size
        if root.page >= pages:
            raise SourceError(f"page {root.page} is missing")
        seen = bytearray(pages)
        for _ in range(root.depth - 1):
            below, keys = array("Q"), list[bytes]()
            for number, least in zip(numbers, firsts, strict=True):
                branch = self._branch(number)
                for child in branch.children:
                    if child >= pages or seen[child]:
                        raise SourceError(f"page {number} is damaged: it refers to page {child}")
                    seen[child] = 1
                below.extend(branch.children)
                keys += [least, *branch.keys]
            numbers, firsts = below, keys
        if any(a >= b for a, b in pairwise(firsts)):
            raise SourceError("its branches are out of order")
        return numbers, firsts

    def _branch(self, number: int) -> Branch:
        page = self._page(number, _BRANCH)
        nodes = map(page.node, range(len(page)))
        children = [size | flags << 32 for size, flags, _ in nodes]
        return Branch([page.key(slot) for slot in range(1, len(page))], children)

    def _page(self, number: int, kind: int) -> Page:
        begin = self._begin(number, self._page_size)
        return Page(number, self._ahead.read(begin, begin + self._page_size), kind)

    def _begin(self, number: int, count: int) -> int:
        """Return where a page begins in the file, which must have ``count`` bytes from there."""
        begin = number * self._page_size
        if number < 2 or begin + count > self._file.size:
            raise SourceError(f"page {number} is missing, or cut short")
        return begin

    def _bytes(self, number: int, count: int) -> bytes:
        data = self._file.read(self._begin(number, count), count)
        if len(data) < count:
            raise SourceError(f"page {number} was cut off while the file was open")
        return data


def _kept(pages: dict[int, P], most: int, number: int, page: P) -> P:
    """Add a page to ``pages``, after dropping all others if there are ``most`` of them."""
    if len(pages) >= most:
        pages.clear()
    pages[number] = page
    return page


def pages_of(size: int, page_size: int) -> int:
    """Return the number of pages that a large value has."""
    return -(-(PAGE_HEADER_BYTES + size) // page_size)


class Pages(Tree):
    """An LMDB file with access to rows by number, in the order of their keys."""

    def __init__(self, reader: str, path: str, db: bytes | None = None) -> None:
        """``path`` is a file, or a folder with a ``data.mdb``; ``db`` names a database in it."""
        super().__init__(reader, path, db=db)
        try:
            self._leaves, self._firsts = self._leaves_of(self._rows)
            most = len(self._leaves) * (self._page_size // (_NODE.size + 2))
            if not len(self._leaves) <= self.entries <= most:
                raise SourceError(
                    f"it should have {self.entries} rows, in {len(self._leaves)} pages"
                )
        except SourceError as error:
            raise SourceError(f"{reader}: {self.path!r} cannot be read: {error}") from error
        self._latest: tuple[int, Page, list[bytes]] | None = None

    def require_values(self) -> None:
        """Check that the rows on the first leaf are not all named databases."""
        if self.entries and all(flags & _NAMED for flags in self._flags()):
            raise SourceError(f"{self._names()}: choose one with from_lmdb_raw(path, db=...)")

    def _flags(self) -> list[int]:
        page, keys = self._leaf(0)
        return [page.node(slot)[1] for slot in range(len(keys))]

    # -- reading rows ------------------------------------------------------------------------------

    def counts(self) -> NDArray[np.uint16]:
        """Return the number of rows in each leaf; reads only the leaves' headers."""
        counts = np.empty(len(self._leaves), np.uint16)
        for k, number in enumerate(self._leaves):
            own, _, flags, lower, _ = _HEADER.unpack(self._bytes(number, _HEADER.size))
            if own != number or flags & _KINDS != _LEAF or lower < _HEADER.size or lower % 2:
                raise SourceError(f"page {number} is damaged: it is not a leaf page")
            counts[k] = (lower - _HEADER.size) // 2
        if (actual := int(counts.sum(dtype=np.int64))) != self.entries:
            raise SourceError(f"it should have {self.entries} rows, but has {actual}")
        return counts

    def location(self, key: bytes) -> tuple[int, int] | None:
        """Return the location of a key: the number of its leaf, and its slot in the leaf."""
        k = bisect_right(self._firsts, key) - 1
        if k < 0:
            return None
        keys = self._leaf(k)[1]
        slot = bisect_left(keys, key)
        return (k, slot) if keys[slot : slot + 1] == [key] else None

    def row(self, leaf: int, slot: int) -> tuple[bytes, bytes]:
        """Return the key and value at a location."""
        page, _ = self._leaf(leaf)
        if slot >= len(page):
            raise SourceError(f"page {page.number} is damaged: it has only {len(page)} rows")
        key = page.key(slot)
        return key, bytes(self._value(page, slot, key))

    def _leaf(self, k: int) -> tuple[Page, list[bytes]]:
        """Return a leaf with its keys; consecutive rows are mostly on one leaf."""
        latest = self._latest
        if latest is not None and latest[0] == k:
            return latest[1:]
        page = self._page(self._leaves[k], _LEAF)
        keys = [page.key(slot) for slot in range(len(page))]
        above = self._firsts[k + 1 : k + 2]
        if any(a >= b for a, b in pairwise([*keys, *above])) or keys[:1] < self._firsts[k : k + 1]:
            raise SourceError(f"page {page.number} is damaged: its keys are out of order")
        self._latest = k, page, keys
        return page, keys
