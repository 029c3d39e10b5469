"""from_npz: the arrays of a .npz file, zipped row by row, with random access by row."""

from __future__ import annotations

import io
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

import attrs
import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeForm
from xxhash import xxh3_64_digest, xxh3_64_intdigest

from flowdsl import nodes
from flowdsl.effects import Exact
from flowdsl.elements.declared_specs import spec_declared
from flowdsl.elements.specs import UNKNOWN, ArraySpec, Spec, StructSpec
from flowdsl.errors import SourceError, SpecMismatch
from flowdsl.nodes import READER_KEYWORD_ADVICE, T, frozen_node, rejects_keywords
from flowdsl.storage.arrays.columns import FORMS, Column
from flowdsl.storage.arrays.npy import NpyRows, Pickled
from flowdsl.storage.byte_files import ByteFile, guard_file, open_file, rows_are_verified
from flowdsl.storage.digests import versions_of
from flowdsl.storage.file_source import FileSource, RowReader, to_classes
from flowdsl.storage.layout import NO_OUT, OutArrays
from flowdsl.storage.paths import OnePath, one_path
from flowdsl.storage.schema import checked_against
from flowdsl.storage.values import dtype_of

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")

HEADER = "__flowdsl__.json"
DIGESTS = "__flowdsl__.npy"
COMMENT = b"flowdsl"
"""Marks archives of ``write_npz``, even if a corrupt directory hides their header."""
VERSION = 1
_DEFLATES_TO = 1032
"""The highest ratio of uncompressed to compressed bytes that deflate can reach."""
_READ_BYTES = 1 << 20
_UNNAMED = re.compile(r"arr_\d{1,9}( arr_\d{1,9})*")
"""The names that ``np.savez`` generates for unnamed arrays."""
_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, EOFError, struct.error, ValueError, OverflowError),
    *(RuntimeError, NotImplementedError, KeyError, msgspec.MsgspecError, OSError, MemoryError),
)
"""Exceptions that are raised for damaged archives."""


class NpzHeader(msgspec.Struct, frozen=True):
    """The header that ``write_npz`` stores."""

    version: int
    length: int
    digest: int
    form: str
    """The form of a row: ``tuple``, ``dict`` or ``single``."""
    names: list[str]
    forms: list[str]
    dtypes: dict[str, str] = msgspec.field(default_factory=dict)
    """The dtypes of ml_dtypes, by name: NumPy stores their size only."""


class _Stream(io.RawIOBase):
    """A ByteFile as a stream, for ``zipfile``."""

    def __init__(self, file: ByteFile) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.size}[whence]
        if base + offset < 0:
            raise OSError("a position before the beginning")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


@attrs.frozen
class _Bytes:
    """A member that is decompressed in memory, as a ByteFile."""

    path: str
    content: bytes = attrs.field(repr=False)
    stamp: str = ""

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, start: int, count: int) -> bytes:
        return self.content[start : start + count]

    def check(self) -> None:
        """Do nothing: the content is in memory."""


class _Objects:
    """The entries of an array of pickled objects, for ``trusted=True``."""

    def __init__(self, content: bytes) -> None:
        try:
            self._array: NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=True)
        except Exception as error:  # whatever the objects' own methods raise
            raise ValueError(f"its pickled objects cannot be read: {error!r}") from error
        if not self._array.ndim:
            raise ValueError("it is one value and has no rows")
        self.length = len(self._array)

    def value(self, i: int, place: NDArray[Any] | None = None) -> Any:
        return self._array[i].tolist() if self._array.ndim > 1 else self._array[i]


class RowsFile:
    """A .npz file, open for reading."""

    def __init__(self, path: str, trusted: bool, check: bool, declared: Spec = UNKNOWN) -> None:
        """``check`` verifies the CRC of members that have no checksums per row.

        ``declared`` is the spec of rows that the user declared.
        """
        self.path, self._trusted, self._check = path, trusted, check
        self._file = open_file("from_npz", path)
        with self._errors("it is damaged or is not a .npz file"):
            self._zip = zipfile.ZipFile(io.BufferedReader(_Stream(self._file)))
            self._members = self._by_name()
            self.header = self._header()
        self.names, self.form = self._names_and_form(declared)
        self._place_names = self.names if self.form != "single" else [""]
        if self.form == "tuple":
            self._place_names = [str(k) for k in range(len(self.names))]
        dtypes = self._dtypes(declared)
        self._arrays = [self._array(name, dtypes.get(name)) for name in self.names]
        self.length = self._arrays[0].length if self._arrays else 0
        for name, array in zip(self.names, self._arrays, strict=True):
            if array.length != self.length:
                raise SourceError(
                    f"from_npz: {path!r}: {self.names[0]!r} has {self.length} rows and {name!r} "
                    f"has {array.length}: they must have equally many; to read some of the arrays, "
                    f"declare a NamedTuple, record or TypedDict with their names"
                )
        self.digest = self._digest()
        if self.header is None:
            versions_of([self._file])
        else:
            guard_file(self._file, rows_are_verified)
            with self._errors("it is damaged"):
                self._load_checksums(self.header)
            self._select(declared)

    def _select(self, declared: Spec) -> None:
        """Leave out the arrays that a declaration of names does not name."""
        chosen = {*_names_declared(declared)}
        if self.form == "single" or not chosen or not chosen < {*self.names}:
            return
        arrays = dict(zip(self.names, self._arrays, strict=True))
        self.names = self._place_names = [name for name in self.names if name in chosen]
        self.form, self._arrays = "dict", [arrays[name] for name in self.names]

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except _ERRORS as error:
            raise self._error(what, error) from error

    def _error(self, what: str, error: BaseException) -> SourceError:
        trust = "; pass trusted=True if you trust its author"
        hint = trust if isinstance(error, Pickled) else ""
        return SourceError(f"from_npz: {self.path!r}: {what}: {error}{hint}")

    def _by_name(self) -> dict[str, zipfile.ZipInfo]:
        members: dict[str, zipfile.ZipInfo] = {}
        for info in self._zip.infolist():
            if info.filename in members:
                raise ValueError(f"{info.filename!r} is listed twice")
            self._zip.open(info).close()  # checks the name in the member against the directory
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{info.filename!r} is compressed by method {info.compress_type}")
            stored = info.compress_type == zipfile.ZIP_STORED
            most = info.compress_size * (1 if stored else _DEFLATES_TO)
            if info.file_size > most or info.compress_size > self._file.size:
                raise ValueError(
                    f"{info.filename!r} claims that its {info.compress_size:,} bytes expand to "
                    f"{info.file_size:,}, and they cannot be so many"
                )
            members[info.filename] = info
        return members

    def _header(self) -> NpzHeader | None:
        marked = self._zip.comment == COMMENT
        if not marked and not {HEADER, DIGESTS} & self._members.keys():
            return None
        if not marked:
            raise ValueError("its end is damaged")
        data = self._content(self._members[HEADER])
        if xxh3_64_digest(data[8:]) != data[:8]:
            raise ValueError("its header is damaged")
        header = msgspec.json.decode(data[8:], type=NpzHeader)
        if header.version != VERSION:
            raise ValueError(f"its version is {header.version}; only {VERSION} is supported")
        return header

    def _content(self, info: zipfile.ZipInfo) -> bytes:
        """Return the bytes of a member, verified."""
        if info.file_size > _memory():
            raise ValueError(f"{info.filename!r} has {info.file_size:,} bytes, more than memory")
        data = self._zip.read(info)
        if len(data) != info.file_size:
            raise ValueError(f"{info.filename!r} is cut off")
        return data

    def _names_and_form(self, declared: Spec) -> tuple[list[str], str]:
        """Return the names of the arrays to read, and the form of a row."""
        if self.header is not None:
            return self.header.names, self.header.form
        names = []
        for file in self._members:
            if not file.endswith(".npy"):
                raise SourceError(f"from_npz: {self.path!r} holds {file!r}, which is not an array")
            names.append(file.removesuffix(".npy"))
        if not names:
            raise SourceError(f"from_npz: {self.path!r} holds no array")
        if _UNNAMED.fullmatch(" ".join(names)):
            return sorted(names, key=lambda name: int(name[4:])), "tuple"
        if self._trusted and names == ["buffer"]:  # of tensorpack
            return names, "single"
        chosen = _names_declared(declared)
        if missing := [name for name in chosen if name not in names]:
            raise SpecMismatch(
                f"from_npz: {self.path!r} has no array {missing[0]!r}, it has "
                f"{', '.join(map(repr, names))}; declared {declared}"
            )
        return [name for name in names if name in chosen] or names, "dict"

    def _dtypes(self, declared: Spec) -> dict[str, np.dtype[Any]]:
        """Return the dtypes that the header names, or else the declaration, by array."""
        if self.header is not None:
            with self._errors("its header is damaged"):
                return {name: dtype_of(text) for name, text in self.header.dtypes.items()}
        parts = [("", declared)]
        if isinstance(declared, StructSpec):
            parts = list(declared.fields)
        if self.form != "dict":
            parts = list(zip(self.names, (part for _, part in parts), strict=False))
        return {n: s.dtype for n, s in parts if isinstance(s, ArraySpec) and s.dtype is not None}

    def _array(self, name: str, dtype: np.dtype[Any] | None) -> NpyRows | _Objects:
        with self._errors(f"{name!r} cannot be read"):
            info = self._members[f"{name}.npy"]
            if info.compress_type != zipfile.ZIP_STORED:
                content = self._content(info)
                if self._trusted and _is_pickled(content[:_READ_BYTES]):
                    return _Objects(content)
                return NpyRows(_Bytes(self.path, content), 0, len(content), dtype)
            start = self._start(info)
            if self._trusted and _is_pickled(self._file.read(start, min(info.file_size, 1 << 14))):
                return _Objects(self._content(info))
            if self.header is None and self._check:
                self._check_crc(info, start)
            return NpyRows(self._file, start, info.file_size, dtype)

    def _start(self, info: zipfile.ZipInfo) -> int:
        """Return the offset of a member's bytes: after 30 bytes, its name and extra fields."""
        lengths = struct.unpack("<HH", self._file.read(info.header_offset + 26, 4))
        start = info.header_offset + 30 + sum(lengths)
        if start + info.file_size > self._file.size:
            raise ValueError("it is cut off")
        return int(start)

    def _check_crc(self, info: zipfile.ZipInfo, start: int) -> None:
        crc = 0
        for at in range(0, info.file_size, _READ_BYTES):
            crc = zlib.crc32(
                self._file.read(start + at, min(_READ_BYTES, info.file_size - at)), crc
            )
        if crc != info.CRC:
            raise ValueError("its bytes are not those that were written")

    def _load_checksums(self, header: NpzHeader) -> None:
        """Check the arrays against the header, and load the checksums of their rows."""
        data = self._content(self._members[DIGESTS])
        n, k = header.length, len(header.names)
        table = NpyRows(_Bytes(self.path, data), 0, len(data))
        if (table.length, table.column) != (n, Column("array", np.dtype("<u8"), (k,))):
            raise ValueError("its checksums do not match its rows")
        body = data[len(data) - 8 * n * k :]
        if xxh3_64_intdigest(body) != header.digest or (self.names and self.length != n):
            raise ValueError("its checksums are not the ones that were written")
        digests = np.frombuffer(body, "<u8").reshape(n, k)
        if len(header.forms) != k:
            raise ValueError("its header is damaged")
        for j, form in enumerate(header.forms):
            array = self._arrays[j]
            if isinstance(array, _Objects) or form not in FORMS:
                raise ValueError(f"{self.names[j]!r} is not what was written")
            array.column, array.digests = attrs.evolve(array.column, form=form), digests[:, j]
            if not array.column.valid():
                raise ValueError(f"{self.names[j]!r} is not what was written")

    def _digest(self) -> int:
        if self.header is not None:
            return self.header.digest
        contents = [(name, info.CRC, info.file_size) for name, info in self._members.items()]
        return xxh3_64_intdigest(repr(contents).encode())

    def value(self, k: int, i: int, place: NDArray[Any] | None = None) -> Any:
        """Return the value of component ``k`` in row ``i``, read into ``place`` if possible."""
        try:
            return self._arrays[k].value(i, place)
        except _ERRORS as error:
            raise self._error(f"row {i} of {self.names[k]!r} cannot be read", error) from error

    def row(self, i: int, out: OutArrays = NO_OUT) -> Any:
        """Return row ``i``, its arrays read into ``out`` if possible."""
        values = [self.value(k, i, out.get(name)) for k, name in enumerate(self._place_names)]
        if self.form == "tuple":
            return tuple(values)
        return values[0] if self.form == "single" else dict(zip(self.names, values, strict=True))

    @property
    def spec(self) -> Spec:
        specs = [x.column.spec if isinstance(x, NpyRows) else UNKNOWN for x in self._arrays]
        if not specs:
            return UNKNOWN  # the file has no rows
        if self.form == "single":
            return specs[0]
        names: Sequence[str] = self.names
        if self.form == "tuple" and _UNNAMED.fullmatch(" ".join(names)):
            names = [str(k) for k in range(len(specs))]
        form = tuple if self.form == "tuple" else dict
        return StructSpec(form, tuple(zip(names, specs, strict=True)))


def _names_declared(declared: Spec) -> list[str]:
    if not isinstance(declared, StructSpec) or declared.form is tuple:
        return []
    return [name for name, _ in declared.fields]


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _is_pickled(head: bytes) -> bool:
    return re.search(rb"'descr': '\|O\d*'", head[:256]) is not None


@frozen_node
class FromNpz(FileSource[T], Generic[T]):
    """The source of ``from_npz``: the rows of a .npz file, by index."""

    reader: ClassVar[str] = "from_npz"

    trusted: bool = False

    def opened(self) -> tuple[int, int, Callable[[int], T]]:
        file = RowsFile(self.path, self.trusted, check=True, declared=self.row_spec)
        return file.length, file.digest, RowReader(file.row, to_classes(self.row_spec))


@overload
def from_npz(path: OnePath, *, trusted: bool = False) -> Flow[Any, Exact]: ...
@overload
def from_npz(path: OnePath, element: TypeForm[A], *, trusted: bool = False) -> Flow[A, Exact]: ...
@rejects_keywords(**READER_KEYWORD_ADVICE | {"allow_pickle": "write trusted={}"})
def from_npz(path: OnePath, element: Any = object, *, trusted: bool = False) -> Flow[Any, Exact]:
    """Read the rows of the arrays in a ``.npz`` file: their entries along the first axis, zipped.

    ``path`` is a file or a URL. Rows written by ``write_npz`` have the form in which they were
    written. Rows of ``np.savez(path, x=..., y=...)`` are dicts; rows of ``np.savez(path, a, b)``
    are tuples. ``element`` declares the type of a row, e.g. ``tuple[NDArray[np.uint8], np.int64]``,
    or a NamedTuple or record class to build from its components; it may name some of the
    arrays: only these are read, and in a file of ``np.savez`` the others may have other lengths.
    Arrays are read-only. NumPy stores only the size of the dtypes of ml_dtypes, such as bfloat16:
    declare them for ``np.savez``.

    Each process opens the file itself and reads only the rows it works on, so the file may be
    larger than memory. An array of ``np.savez_compressed``, or in Fortran order, is loaded into
    memory. Rows written by ``write_npz`` are verified against checksums; arrays of other programs
    are verified as a whole, when a process opens the file.

    Reading runs no code from the file, unless ``trusted=True`` is passed. Then arrays of Python
    objects are read too, as tensorpack writes them. They are pickled, so the author of the file can
    run any code in this process.

    Length: the number of entries.

    Effects: none.

    Errors: ``SourceError`` when the flow is built, if the file is missing or damaged, or if its
    arrays have different lengths; ``SpecMismatch`` when the flow is built, if rows do not match
    ``element``.

    >>> import flowdsl as fl, numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/a.npz", x=np.arange(2), y=np.array([True, False]))
    ...     fl.from_npz(f"{folder}/a.npz").collect()
    [{'x': np.int64(0), 'y': np.True_}, {'x': np.int64(1), 'y': np.False_}]

    Source: ``NumpySerializer.load`` in tensorpack, which unpickles; ``numpy.savez``.

    Elsewhere: tensorpack ``NumpySerializer.load``; tf.data none; Grain none; torchdata none.
    """
    where = one_path("from_npz", path)
    declared = spec_declared("from_npz: rows", element)
    file = RowsFile(where, trusted, check=False, declared=declared)
    spec = checked_against("from_npz", where, element, file.spec)
    return nodes.flow(FromNpz[Any](where, file.length, spec, file.digest, trusted))
