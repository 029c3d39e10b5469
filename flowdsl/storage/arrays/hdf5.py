"""from_hdf5: datasets of an HDF5 file, zipped, with random access by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast, overload

import attrs
import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeForm

from flowdsl import nodes
from flowdsl.effects import Exact
from flowdsl.elements.specs import UNKNOWN, Spec, StructSpec
from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.nodes import READER_KEYWORD_ADVICE, T, frozen_node, rejects_keywords
from flowdsl.storage.arrays.columns import FORMS, LIST, TEXT, Column, Extent, StoredColumn
from flowdsl.storage.arrays.hdf5_extents import check_heaps, extents_of
from flowdsl.storage.byte_files import LocalFile, guard_file, rows_are_verified
from flowdsl.storage.digests import Version, versions_of
from flowdsl.storage.file_source import FileSource, RowReader, file_has_changed, to_classes
from flowdsl.storage.layout import NO_OUT, OutArrays
from flowdsl.storage.libraries import library
from flowdsl.storage.open_files import Reopened
from flowdsl.storage.paths import OnePath, local_path
from flowdsl.storage.schema import checked_against

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")

HEADER = "__flowdsl__"
"""The name of the file attribute and the dataset that store flowdsl's header and checksums."""
VERSION = 1
_BLOCK_BYTES = 1 << 18
_MAX_BLOCK_BYTES = 1 << 26
"""Blocks larger than this are not cached: their rows are read one by one."""
_DEFLATES_TO = 1032
"""The highest ratio of uncompressed to compressed bytes that deflate can reach."""
_MAX_LINKS = 16
_ERRORS = (
    *(OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError),
    *(MemoryError, OverflowError, NotImplementedError),
)
"""Exceptions that h5py raises for damaged files."""


class Hdf5Header(msgspec.Struct, frozen=True):
    """The header that ``write_hdf5`` stores."""

    version: int
    length: int
    digest: int
    paths: list[str]
    forms: list[str]


def paths_of(operator: str, data_paths: str | Sequence[str]) -> list[str]:
    """Return the dataset names, without leading or trailing slashes.

    Raises:
        InvalidFlow: ``data_paths`` is not a list of dataset names.
    """
    listed: Any = [data_paths] if isinstance(data_paths, str) else data_paths
    if not isinstance(listed, list | tuple) or not listed:
        raise InvalidFlow(
            f"{operator}: data_paths must be a dataset's name or a non-empty list of names, got "
            f"{data_paths!r}"
        )
    names = [name.strip("/") if isinstance(name, str) else "" for name in listed]
    for name, argument in zip(names, listed, strict=True):
        parts = name.split("/")
        bad = not name or "\0" in name or parts[0] == HEADER or {"", ".", ".."} & {*parts}
        if bad or not name.isprintable():
            raise InvalidFlow(
                f"{operator}: data_paths has {argument!r}, which does not name a dataset"
            )
    return names


def dataset_names(path: OnePath) -> list[str]:
    """Return the names of the datasets in a file: in the order written, or else sorted.

    Raises:
        SourceError: The file cannot be read.
        MissingLibrary: h5py is not installed.
    """
    return RowsFile(local_path("from_hdf5", path), []).names()


def _opened(h5py: Any, path: str) -> Any:
    """Open the file with a lock, or without one if the file system has no locks.

    Raises:
        OSError: The file cannot be opened; a BlockingIOError if another program writes it.
    """
    try:
        return h5py.File(path, "r", rdcc_nbytes=0)
    except OSError as error:
        if "lock" not in str(error):
            raise
        if isinstance(error, BlockingIOError):
            raise BlockingIOError(error.errno, "another program has it open for writing") from error
    return h5py.File(path, "r", locking=False, rdcc_nbytes=0)


def _item_dtype(h5py: Any, dtype: Any) -> np.dtype[Any] | None:
    """Return the dtype of the items if values are lists of any length; None for others."""
    item = h5py.check_vlen_dtype(dtype)  # the class ``str`` for text
    return item if isinstance(item, np.dtype) else None


class RowsFile:
    """An HDF5 file that is open for reading, with the columns of the requested datasets."""

    def __init__(self, path: str, names: Sequence[str], version: Version | None = None) -> None:
        """``version`` is the version of the file from which the flow was built."""
        h5py = library("h5py", "from_hdf5", "hdf5")
        self.path = path
        self._bytes = LocalFile("from_hdf5", path)
        self.size = self._bytes.size
        with self._errors("it is damaged, not an HDF5 file, or locked by a program that writes it"):
            self._file = _opened(h5py, path)
            self.header = self._header()
        if LocalFile("from_hdf5", path).stamp != self._bytes.stamp:
            # h5py may have opened another file than the one that later reads are compared with
            raise SourceError(f"from_hdf5: {path!r} has changed while it was opened; try again")
        if self._file.id.get_filesize() != self.size:
            raise SourceError(
                f"from_hdf5: {path!r} was overwritten while a run in this process has it open, and "
                f"HDF5 still describes the earlier file; end that run first"
            )
        is_empty = self._is_without_rows(names)
        self._columns = [] if is_empty else [self._open(h5py, name) for name in names]
        self.columns = [column.column for column in self._columns]
        self.length = self._length(names)
        self.version: Version | None = None
        """The version of the file when it was opened; None if one was passed, or if all rows have
        checksums."""
        if self.header is not None and all(c.digests is not None for c in self._columns):
            guard_file(self._bytes, rows_are_verified)
            self.digest = self.header.digest
        elif version is not None:
            version.guard(self._bytes)
            self.digest = version.digest
        else:
            (self.version,) = versions_of([self._bytes])
            self.digest = self.version.digest

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except _ERRORS as error:
            raise self._error(what, error) from error

    def _error(self, what: str, error: BaseException) -> SourceError:
        return SourceError(f"from_hdf5: {self.path!r}: {what}: {error}")

    def _header(self) -> Hdf5Header | None:
        if HEADER not in self._file.attrs:
            return None
        header = msgspec.json.decode(bytes(self._file.attrs[HEADER]), type=Hdf5Header)
        if header.version != VERSION or len(header.paths) != len(header.forms):
            raise ValueError(f"its version is {header.version}; only {VERSION} is supported")
        return header

    def _is_without_rows(self, names: Sequence[str]) -> bool:
        """Return True for a file of ``write_hdf5`` without rows: its datasets do not exist."""
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
            if dataset.dtype.hasobject:
                check_heaps(self.path, dataset)
            shape = tuple(map(int, dataset.shape[1:]))
            item = _item_dtype(h5py, dataset.dtype)
            if item is not None:
                form, dtype = LIST, np.dtype(item.str)
            elif dataset.dtype.hasobject:
                form, dtype = "str", TEXT
            else:
                form, dtype = "array" if shape else "scalar", np.dtype(dataset.dtype.str)
            digests = None
            if self.header is not None and name in self.header.paths:
                k = self.header.paths.index(name)
                form, digests = self.header.forms[k], self._digests(k, len(dataset))
            column = Column(form, dtype, shape)
            known = form == LIST if item is not None else form in FORMS and column.valid()
            if not known or (text is None and form == "str"):
                raise ValueError(f"{dataset.dtype}{list(shape)} does not fit the form {form!r}")
            if column.nbytes > max(_MAX_BLOCK_BYTES, _DEFLATES_TO * self.size):
                raise ValueError(
                    f"too large: a row of {column.nbytes:,} bytes in a file of {self.size:,}"
                )
            verified = digests is not None
            extents = extents_of(h5py, dataset, column, verified, self.size)
            at_once = self._rows_at_once(dataset, column)
            return _Dataset(self._bytes, column, digests, name, dataset, at_once, extents)

    def _digests(self, k: int, length: int) -> Any:
        """Return the checksums of one component; the table must fit the size of the file."""
        table = self._file[HEADER]
        if table.shape[1:] != (length,) or 8 * length > self.size:
            raise ValueError(f"{length} rows, but checksums of shape {table.shape}")
        return table[k]

    def _follow(self, h5py: Any, name: str) -> Any:
        """Resolve a dataset name, following only links that stay in this file."""
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
                if links > _MAX_LINKS or not isinstance(link.path, str):
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
        text, item = h5py.check_string_dtype(dtype), _item_dtype(h5py, dtype)
        kind = dtype.kind if item is None else item.kind
        if (dtype.hasobject and text is None and item is None) or (
            kind not in ("biufcSO" if item is None else "biufc")
        ):
            shown = dtype if item is None else f"lists of {item}"
            raise SourceError(
                f"from_hdf5: {self.path!r}: {name!r} holds {shown}; only numbers, text and "
                f"lists of numbers can be read, not compounds, references or other lists"
            )
        if item is not None and not item.isnative:  # h5py does not swap their bytes
            raise SourceError(
                f"from_hdf5: {self.path!r}: {name!r} holds lists of {item} in the byte order of "
                f"another machine, which h5py reads as other numbers; write it as {item.name} in "
                f"this machine's order"
            )
        if dtype.hasobject and len(dataset.shape) > 1:
            kinds = "texts" if item is None else "lists"
            raise SourceError(f"from_hdf5: {self.path!r}: {name!r} has several {kinds} in a row")

    def names(self) -> list[str]:
        """Return the names of all datasets: in the order written, or else sorted."""
        paths = [] if self.header is None else list(self.header.paths)
        if not paths:
            with self._errors("its names cannot be read"):
                self._file.visititems(
                    lambda name, item: paths.append(name) if hasattr(item, "dtype") else None
                )
            paths.sort()
        return paths

    def _missing(self, name: str) -> SourceError:
        names = ", ".join(map(repr, sorted(self.names())[:20])) or "none"
        return SourceError(f"from_hdf5: {self.path!r} has no dataset {name!r}; it has {names}")

    def _rows_at_once(self, dataset: Any, column: Column) -> int:
        row = max(1, column.nbytes)
        if dataset.dtype.hasobject:  # the references are small, and values are elsewhere
            row = max(row, self.size // max(1, len(dataset)))
            return max(1, min(1024, _BLOCK_BYTES // row))
        if dataset.chunks is None:
            return max(1, min(1024, _BLOCK_BYTES // row))
        n = int(dataset.chunks[0])
        chunk = n * row  # and more where a chunk is wider than a row
        for size, side in zip(dataset.chunks[1:], dataset.shape[1:], strict=True):
            chunk = chunk * max(int(size), 1) // max(1, min(int(size), int(side)))
        if chunk > max(_MAX_BLOCK_BYTES, _DEFLATES_TO * self.size):
            raise ValueError(f"too large: a chunk of {chunk:,} bytes in a file of {self.size:,}")
        return n if n * row <= _MAX_BLOCK_BYTES else 1

    def _length(self, names: Sequence[str]) -> int:
        lengths = [len(column.dataset) for column in self._columns]
        for name, n in zip(names, lengths, strict=False):
            if n != lengths[0]:
                raise SourceError(
                    f"from_hdf5: {self.path!r}: {names[0]!r} has {lengths[0]} rows and {name!r} "
                    f"has {n}: they must have the same number"
                )
        length = lengths[0] if lengths else 0
        ours = any(column.digests is not None for column in self._columns)
        if self.header is not None and ours and length != self.header.length:
            raise SourceError(
                f"from_hdf5: {self.path!r} is damaged: its header says {self.header.length} "
                f"rows, but it holds {length}"
            )
        return length

    def value(self, k: int, i: int, place: NDArray[Any] | None = None) -> Any:
        """Return the value of component ``k`` in row ``i``, read into ``place`` if possible."""
        column = self._columns[k]
        try:
            return column.value(i, place)
        except _ERRORS as error:
            raise self._error(f"row {i} of {column.name!r} cannot be read", error) from error

    def row(self, i: int, out: OutArrays = NO_OUT) -> tuple[Any, ...]:
        """Return row ``i`` as a tuple, its arrays read into ``out`` if possible."""
        return tuple([self.value(k, i, out.get(str(k))) for k in range(len(self._columns))])


@attrs.define(eq=False)
class _Dataset(StoredColumn):
    """A dataset, with the rows that HDF5 read last."""

    name: str
    dataset: Any
    at_once: int
    extents: Callable[[int], Extent | None] | None
    _rows: tuple[int, Any] = (-1, ())

    def extent(self, i: int) -> Extent | None:
        return None if self.extents is None else self.extents(i)

    def converted(self, i: int) -> bytes:
        start = i - i % self.at_once
        first, rows = self._rows  # together: another thread may read other rows meanwhile
        if first != start:
            rows = self.dataset[start : start + self.at_once]
            self._rows = start, rows
        self.file.check()
        k = i - start
        if self.column.form == "str":
            return bytes(rows[k])
        if self.column.form == LIST:
            return np.asarray(rows[k], self.column.dtype).tobytes()
        return cast("bytes", rows[k : k + 1].tobytes())  # rows[k] would be in native order


@frozen_node
class FromHdf5(FileSource[T], Generic[T]):
    """The source of ``from_hdf5``: the rows of datasets in an HDF5 file, by index."""

    reader: ClassVar[str] = "from_hdf5"

    names: tuple[str, ...]
    single: bool
    version: Version | None

    @property
    def fingerprint(self) -> str:
        names = ", ".join(self.names)
        return f"{self.title} of {self.length} rows of {names} {self.digest:08x}"

    def opened(self) -> tuple[int, int, Callable[[int], T]]:
        file = Reopened(self._rows_file)
        file.get()  # fails at once if it was rewritten
        read = partial(self._row, file)
        return self.row_count, self.digest, RowReader(read, to_classes(self.row_spec))

    def _row(self, file: Reopened[RowsFile], i: int, out: OutArrays) -> Any:
        rows = file.get()
        return rows.value(0, i, out.get("")) if self.single else rows.row(i, out)

    def _rows_file(self) -> RowsFile:
        file = RowsFile(self.path, self.names, self.version)
        if (file.length, file.digest) != (self.row_count, self.digest):
            raise file_has_changed(self.path)
        return file


@overload
def from_hdf5(path: OnePath, data_paths: str | Sequence[str]) -> Flow[Any, Exact]: ...
@overload
def from_hdf5(
    path: OnePath, data_paths: str | Sequence[str], element: TypeForm[A]
) -> Flow[A, Exact]: ...
@rejects_keywords(**READER_KEYWORD_ADVICE)
def from_hdf5(
    path: OnePath, data_paths: str | Sequence[str], element: Any = object
) -> Flow[Any, Exact]:
    """Read the rows of datasets in an HDF5 file: their entries along the first axis.

    ``data_paths`` is the name of a dataset, whose entries become the rows, or a list of names, for
    rows that are tuples of entries in this order. ``element`` declares the type of a row, e.g.
    ``tuple[NDArray[np.uint8], np.int64]``, or a NamedTuple or record class to build from it.
    Entries are read-only arrays, NumPy scalars, or str for datasets of variable-length text; an
    entry of variable length is an array of its own length. Each process opens the file itself. It
    reads entries that are stored as in memory by their place in the file; of datasets that are
    compressed, or whose entries are in parts, it caches one chunk.

    Rows written by ``write_hdf5`` are verified against checksums. In other files, corruption of a
    number goes undetected unless the dataset has a checksum filter. Data outside the file is not
    read: external links, external storage and virtual datasets are refused, and so are compounds
    and references. Text and arrays of variable length are checked for damage when a process opens
    the file.

    Length: the number of entries.

    Effects: none.

    Errors: ``SourceError`` when the flow is built, if the file is missing or damaged, lacks a
    dataset, or has datasets of different lengths; ``SpecMismatch`` when the flow is built, if rows
    do not match ``element``; ``MissingLibrary`` without h5py.

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
        stored = UNKNOWN  # the file has no rows
    elif single:
        stored = fields[0][1]
    spec = checked_against("from_hdf5", where, element, stored)
    source = FromHdf5[Any](
        where, file.length, spec, file.digest, tuple(names), single, file.version
    )
    return nodes.flow(source)
