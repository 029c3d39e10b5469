"""from_hdf5: datasets of an HDF5 file, zipped, with random access by number."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

import attrs
import msgspec
import numpy as np
from typing_extensions import TypeForm
from xxhash import xxh3_64_intdigest

from flowdsl import nodes
from flowdsl.effects import Exact
from flowdsl.elements.specs import UNKNOWN, Spec, StructSpec, in_classes, names_classes
from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.nodes import IndexedSource, T
from flowdsl.storage.arrays.columns import FORMS, TEXT, Column
from flowdsl.storage.byte_files import LocalFile
from flowdsl.storage.libraries import library
from flowdsl.storage.paths import OnePath, local_path
from flowdsl.storage.schema import checked_against

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")

HEADER = "__flowdsl__"
"""The attribute of the file, and the dataset, with what protects the rows that flowdsl wrote."""
VERSION = 1
_BLOCK_BYTES = 1 << 18
_MOST_BLOCK_BYTES = 1 << 26
"""A chunk of more bytes is not kept: its rows are read one by one."""
_DEFLATES_TO = 1032
"""The bytes that one compressed byte can stand for, at most."""
_MOST_LINKS = 16
_ERRORS = (
    *(OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError),
    *(MemoryError, OverflowError, NotImplementedError),
)
"""What h5py raises for files that are damaged."""


class Hdf5Header(msgspec.Struct, frozen=True):
    """What ``write_hdf5`` says of its rows."""

    version: int
    length: int
    digest: int
    paths: list[str]
    forms: list[str]


def paths_of(operator: str, data_paths: str | Sequence[str]) -> list[str]:
    """The names of datasets, without a slash at the ends.

    Raises:
        InvalidFlow: They are no names, or not different ones.
    """
    given: Any = [data_paths] if isinstance(data_paths, str) else data_paths
    if not isinstance(given, list | tuple) or not given:
        raise InvalidFlow(
            f"{operator}: data_paths must be the name of a dataset, or a list of at least one, got "
            f"{data_paths!r}"
        )
    names = [name.strip("/") if isinstance(name, str) else "" for name in given]
    for name, told in zip(names, given, strict=True):
        parts = name.split("/")
        bad = not name or "\0" in name or parts[0] == HEADER or {"", ".", ".."} & {*parts}
        if bad or not name.isprintable():
            raise InvalidFlow(f"{operator}: data_paths has {told!r}, which names no dataset")
    return names


_HEAP = b"GCOL\x01"
_HEAP_HEAD = 16
_HEAP_ENTRY = struct.Struct("<HHIQ")


def check_heaps(path: str) -> None:
    """Follow the entries of the heaps that text of any length lies in.

    They have no checksum, and HDF5 follows a damaged one for ever.

    Raises:
        ValueError: One is damaged.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = data.find(_HEAP)
        while start >= 0:
            end = start + int.from_bytes(data[start + 8 : start + _HEAP_HEAD], "little")
            at = start + _HEAP_HEAD
            if not at < end <= len(data):
                raise ValueError(f"the heap at byte {start} is damaged")
            while end - at >= _HEAP_ENTRY.size:
                number, _, _, size = _HEAP_ENTRY.unpack_from(data, at)
                size = size if number == 0 else _HEAP_ENTRY.size + size + -size % 8
                if size < _HEAP_ENTRY.size or at + size > end:
                    raise ValueError(f"the heap at byte {start} is damaged")
                at += size
            start = data.find(_HEAP, start + 1)


def _opened(h5py: Any, path: str) -> Any:
    """The file, locked as this process's other users of it expect, or else without a lock."""
    try:
        return h5py.File(path, "r", rdcc_nbytes=0)
    except OSError as error:
        if "lock" not in str(error):
            raise
    return h5py.File(path, "r", locking=False, rdcc_nbytes=0)


class RowsFile:
    """An HDF5 file, open for reading, and the columns of some of its datasets."""

    def __init__(self, path: str, names: Sequence[str]) -> None:
        h5py = library("h5py", "from_hdf5", "hdf5")
        self.path = path
        self.size = LocalFile("from_hdf5", path).size
        with self._errors("it is damaged, no HDF5 file, or held by a program that writes it"):
            self._file = _opened(h5py, path)
            self._has_sound_heaps = False
            self.header = self._header()
        self._columns = [] if self._is_empty(names) else [self._open(h5py, name) for name in names]
        self.columns = [column.column for column in self._columns]
        self.length = self._length(names)
        self.digest = self._digest() if self.header is None else self.header.digest

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except _ERRORS as error:
            raise SourceError(f"from_hdf5: {self.path!r}: {what}: {error}") from error

    def _header(self) -> Hdf5Header | None:
        if HEADER not in self._file.attrs:
            return None
        header = msgspec.json.decode(bytes(self._file.attrs[HEADER]), type=Hdf5Header)
        if header.version != VERSION or len(header.paths) != len(header.forms):
            raise ValueError(f"its version is {header.version}, and {VERSION} is read here")
        return header

    def _is_empty(self, names: Sequence[str]) -> bool:
        header = self.header
        if header is None or header.length:
            return False
        for name in names:
            if name not in header.paths:
                raise self._missing(name)
        return True

    def _open(self, h5py: Any, name: str) -> _Dataset:
        with self._errors(f"dataset {name!r} cannot be read"):
            dataset = self._follow(h5py, name)
            self._refuse(h5py, name, dataset)
            text = h5py.check_string_dtype(dataset.dtype)
            if dataset.dtype.hasobject and not self._has_sound_heaps:
                check_heaps(path=self.path)
                self._has_sound_heaps = True
            dtype = np.dtype(dataset.dtype.str) if not dataset.dtype.hasobject else TEXT
            shape = tuple(map(int, dataset.shape[1:]))
            form = "str" if dtype is TEXT else "array" if shape else "scalar"
            digests = None
            if self.header is not None and name in self.header.paths:
                k = self.header.paths.index(name)
                form, digests = self.header.forms[k], self._digests(k, len(dataset))
            column = Column(form, dtype, shape)
            if form not in FORMS or not column.valid() or (text is None and form == "str"):
                raise ValueError(f"{dataset.dtype}{list(shape)} are no values of {form!r}")
            if column.nbytes > max(_MOST_BLOCK_BYTES, _DEFLATES_TO * self.size):
                raise ValueError(f"a row of {column.nbytes:,} bytes in a file of {self.size:,}")
            return _Dataset(name, dataset, column, digests, self._rows_at_once(dataset, column))

    def _digests(self, k: int, length: int) -> Any:
        """The checksums of a component, of which the file holds all bytes."""
        table = self._file[HEADER]
        if table.shape[1:] != (length,) or 8 * length > self.size:
            raise ValueError(f"{length} rows, and checksums {table.shape}")
        return table[k]

    def _follow(self, h5py: Any, name: str) -> Any:
        """The dataset, found by links that stay in this file."""
        parts, at, links = name.split("/"), self._file, 0
        while parts:
            part = parts.pop(0)
            link = at.get(part, getlink=True) if isinstance(at, h5py.Group) else None
            if link is None:
                raise self._missing(name)
            if isinstance(link, h5py.ExternalLink):
                raise self._elsewhere(name, f"a link to {link.filename!r}")
            if isinstance(link, h5py.SoftLink):
                links += 1
                if links > _MOST_LINKS or not isinstance(link.path, str):
                    raise self._missing(name)
                if link.path.startswith("/"):
                    at = self._file
                parts = [p for p in link.path.split("/") if p not in ("", ".")] + parts
                continue
            at = at[part]
        if not isinstance(at, h5py.Dataset):
            raise self._missing(name)
        return at

    def _elsewhere(self, name: str, what: str) -> SourceError:
        return SourceError(
            f"from_hdf5: {self.path!r}: {name!r} is {what}: data in other files is not read"
        )

    def _refuse(self, h5py: Any, name: str, dataset: Any) -> None:
        if dataset.is_virtual:
            raise self._elsewhere(name, "a virtual dataset")
        if dataset.external:
            raise self._elsewhere(name, f"stored in {dataset.external[0][0]!r}")
        if not dataset.shape:
            raise SourceError(f"from_hdf5: {self.path!r}: {name!r} is one value and has no rows")
        dtype = dataset.dtype
        text = h5py.check_string_dtype(dtype)
        if (dtype.hasobject and text is None) or dtype.kind not in "biufcSO":
            raise SourceError(
                f"from_hdf5: {self.path!r}: {name!r} holds {dtype}; numbers and text are read, and "
                f"no compounds, references or lists of any length"
            )
        if text is not None and dtype.hasobject and len(dataset.shape) > 1:
            raise SourceError(f"from_hdf5: {self.path!r}: {name!r} holds several texts for a row")

    def _missing(self, name: str) -> SourceError:
        there = [] if self.header is None else list(self.header.paths)
        if not there:
            with self._errors("its names cannot be read"):
                self._file.visititems(
                    lambda at, x: there.append(at) if hasattr(x, "dtype") else None
                )
        told = ", ".join(map(repr, sorted(there)[:20])) or "none"
        return SourceError(f"from_hdf5: {self.path!r} has no dataset {name!r}; it has {told}")

    def _rows_at_once(self, dataset: Any, column: Column) -> int:
        row = max(1, column.nbytes)
        if dataset.chunks is None:
            return max(1, min(1024, _BLOCK_BYTES // row))
        n = int(dataset.chunks[0])
        chunk = n * row
        for size, of in zip(dataset.chunks[1:], dataset.shape[1:], strict=True):
            chunk = chunk * max(int(size), 1) // max(1, min(int(size), int(of)))
        if chunk > max(_MOST_BLOCK_BYTES, _DEFLATES_TO * self.size):
            raise ValueError(f"a chunk of {chunk:,} bytes in a file of {self.size:,}")
        return n if n * row <= _MOST_BLOCK_BYTES else 1

    def _length(self, names: Sequence[str]) -> int:
        lengths = [len(one.dataset) for one in self._columns]
        for name, n in zip(names, lengths, strict=False):
            if n != lengths[0]:
                raise SourceError(
                    f"from_hdf5: {self.path!r}: {names[0]!r} has {lengths[0]} rows and {name!r} "
                    f"has {n}: they must have equally many"
                )
        length = lengths[0] if lengths else 0
        ours = any(column.digests is not None for column in self._columns)
        if self.header is not None and ours and length != self.header.length:
            raise SourceError(
                f"from_hdf5: {self.path!r} is damaged: its header says {self.header.length} "
                f"rows, it holds {length}"
            )
        return length

    def _digest(self) -> int:
        """Of a file that others wrote: its size, what it holds, and some of its rows."""
        told = f"{self.size} {[(c.name, str(c.column)) for c in self._columns]} {self.length}"
        digest = xxh3_64_intdigest(told.encode())
        for i in sorted({*range(0, self.length, max(1, self.length // 8)), self.length - 1}):
            for column in self._columns if i >= 0 else ():
                digest = xxh3_64_intdigest(self._content(column, i), digest)
        return digest

    def _content(self, column: _Dataset, i: int) -> bytes:
        with self._errors(f"row {i} of {column.name!r} cannot be read"):
            return column.content(i)

    def value(self, k: int, i: int) -> Any:
        """The value of a component in a row."""
        column = self._columns[k]
        with self._errors(f"row {i} of {column.name!r} cannot be read"):
            content = column.content(i)
            digests = column.digests
            if digests is not None and xxh3_64_intdigest(content, i) != digests[i]:
                raise ValueError("its bytes are not those that were written")
            return column.column.value(content)

    def row(self, i: int) -> tuple[Any, ...]:
        """The row of this number."""
        return tuple([self.value(k, i) for k in range(len(self._columns))])


@attrs.define(eq=False)
class _Dataset:
    """A dataset, and the rows of it that were read last."""

    name: str
    dataset: Any
    column: Column
    digests: Any
    at_once: int
    _block: tuple[int, Any] = (-1, ())

    def content(self, i: int) -> bytes:
        """The bytes of a value."""
        start = i - i % self.at_once
        first, block = self._block  # together: another thread may read another block meanwhile
        if first != start:
            block = self.dataset[start : start + self.at_once]
            self._block = start, block
        k = i - start
        if self.column.form == "str":
            return bytes(block[k])
        return cast("bytes", block[k : k + 1].tobytes())  # an entry by itself is in native order


@attrs.frozen(repr=False)
class FromHdf5(IndexedSource[T], Generic[T]):
    """The rows of datasets in an HDF5 file, by number."""

    path: str
    names: tuple[str, ...]
    single: bool
    row_count: int
    row_spec: Spec
    digest: int

    @property
    def title(self) -> str:
        return f"from_hdf5({os.path.basename(self.path)!r})"

    @property
    def fingerprint(self) -> str:
        names = ", ".join(self.names)
        return f"{self.title} of {self.length} rows of {names} {self.digest:08x}"

    @property
    def length(self) -> int:
        return self.row_count

    def spec(self, probe: bool) -> Spec:
        return self.row_spec

    def open(self) -> Callable[[int], T]:
        file = RowsFile(self.path, self.names)
        if (file.length, file.digest) != (self.row_count, self.digest):
            raise SourceError(
                f"{self.path!r} holds other rows than when this flow was built: build a new flow"
            )
        if self.single:
            return lambda i: cast("T", file.value(0, i))
        if not names_classes(self.row_spec):
            return cast("Callable[[int], T]", file.row)
        return lambda i: cast("T", in_classes(file.row(i), self.row_spec))


@overload
def from_hdf5(path: OnePath, data_paths: str | Sequence[str]) -> Flow[Any, Exact]: ...
@overload
def from_hdf5(
    path: OnePath, data_paths: str | Sequence[str], element: TypeForm[A]
) -> Flow[A, Exact]: ...
def from_hdf5(
    path: OnePath, data_paths: str | Sequence[str], element: Any = object
) -> Flow[Any, Exact]:
    """The rows of datasets in an HDF5 file: the entries along their first axis.

    ``data_paths`` is the name of a dataset, whose entries are the rows; or a list of names, and
    rows are tuples of their entries, in this order. ``element`` declares what a row is, e.g.
    ``tuple[NDArray[np.uint8], np.int64]``, or a NamedTuple or record class to make of it. Entries
    are read-only arrays, NumPy scalars, or str where the dataset holds text of any length. Each
    process opens the file for itself, and keeps one chunk of each dataset.

    Rows that ``write_hdf5`` wrote are checked against their checksums; of other files a damaged
    number may be another number, unless the dataset has a checksum filter. No other file is read:
    external links, external storage and virtual datasets are refused, and so are compounds and
    references. A file with text of any length is searched for damage when a process opens it.

    Length: the number of entries.

    Effects: none.

    Errors: ``SourceError`` at once if the file is missing, damaged, or has no such datasets, or if
    they differ in their number of entries; ``SpecMismatch`` at once if rows are not what
    ``element`` declares; ``MissingLibrary`` without h5py.

    >>> import flowdsl as fl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = fl.from_range(3).map(lambda i: (i, i / 2)).write_hdf5(f"{folder}/a.h5", ["x", "y"])
    ...     fl.from_hdf5(f"{folder}/a.h5", ["y", "x"], tuple[float, int]).collect()
    [(0.0, 0), (0.5, 1), (1.0, 2)]

    Source: ``HDF5Data`` in tensorpack, which reads whole files into memory; HDF5, The HDF Group.

    Elsewhere: tensorpack ``HDF5Data``, ``HDF5Serializer.load``; tf.data none; Grain none; torchdata
    none.
    """
    where = local_path("from_hdf5", path)
    names = paths_of("from_hdf5", data_paths)
    single = isinstance(data_paths, str)
    file = RowsFile(where, names)
    fields = tuple((str(k), column.spec) for k, column in enumerate(file.columns))
    stored: Spec = StructSpec(tuple, fields)
    if not fields:
        stored = UNKNOWN  # of a file without rows
    elif single:
        stored = fields[0][1]
    spec = checked_against("from_hdf5", where, element, stored)
    return nodes.flow(FromHdf5[Any](where, tuple(names), single, file.length, spec, file.digest))
