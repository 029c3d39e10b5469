"""write_hdf5: a dataset for each component, written in blocks, with checksums."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import attrs
import msgspec
import numpy as np
from xxhash import xxh3_64_intdigest

from flowdsl.effects import Finite
from flowdsl.elements.flattening import InSpecOrder
from flowdsl.elements.specs import StructSpec, spec_of
from flowdsl.errors import InvalidFlow, SpecMismatch
from flowdsl.nodes import FlowBase
from flowdsl.storage.arrays.columns import Column, column_of, content_of, same_column
from flowdsl.storage.arrays.hdf5 import HEADER, VERSION, Hdf5Header, paths_of
from flowdsl.storage.libraries import library
from flowdsl.storage.paths import OnePath
from flowdsl.storage.values import components_to_store, is_ml_dtype
from flowdsl.storage.writing import write_file

_BLOCK_BYTES = 1 << 18
_BLOCK_ROWS = 1024
_MAX_AXES = 31
"""HDF5 stores arrays of at most 32 axes; the first is the rows."""
_MAX_ROW_BYTES = 2**32 - 1
"""The largest chunk that HDF5 supports."""


def write(
    flow: FlowBase[object, Finite],
    path: OnePath,
    data_paths: str | Sequence[str],
    overwrite: bool = False,
) -> int:
    """Write the elements of a flow, as its method ``write_hdf5`` does."""
    h5py = library("h5py", "write_hdf5", "hdf5")
    names = paths_of("write_hdf5", data_paths)
    for name in names:
        if names.count(name) > 1 or any(other.startswith(f"{name}/") for other in names):
            raise InvalidFlow(f"write_hdf5: data_paths has {name!r} twice, or within another")
    single = isinstance(data_paths, str)
    return write_file("write_hdf5", flow, path, overwrite, partial(_write, h5py, names, single))


def _write(
    h5py: Any, names: list[str], single: bool, path: Path, elements: Iterable[object]
) -> None:
    with _Disk(path) as disk, h5py.File(disk, "w", libver="latest") as file:
        block, parts_of = _Block(h5py, file, names), _Parts(names)
        for element in elements:
            block.add([element] if single else parts_of(element))
            disk.check()
        block.flush()
        block.finish()
    disk.check()


class _Disk(io.RawIOBase):
    """The file object that HDF5 writes to; it hides disk errors until ``check`` is called.

    HDF5 cannot handle a failing write: it retries when it closes the file and may abort the
    process. So ``write`` always reports success and records the error, and ``check`` raises it.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("x+b", buffering=0)
        self._error: OSError | None = None

    def check(self) -> None:
        """Raise the first disk error, if there was one."""
        if self._error is not None:
            raise self._error

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        try:
            if self._error is None:
                done = 0
                while done < len(view):
                    done += self._file.write(view[done:]) or 0
        except OSError as error:
            self._error = error
        return len(view)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        done = self._file.readinto(view) or 0
        view[done:] = bytes(len(view) - done)  # zeros for bytes that were not written
        return len(view)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def truncate(self, size: int | None = None) -> int:
        try:
            return self._file.truncate(size)
        except OSError as error:
            self._error = self._error or error
            return size or 0

    def close(self) -> None:
        self._file.close()
        super().close()


class _Parts:
    """Splits an element into one component per data path, in the order of the first element."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._order: InSpecOrder | None = None

    def __call__(self, element: object) -> list[Any]:
        parts = components_to_store(element, "element")
        if parts is None or isinstance(element, dict):
            raise SpecMismatch(
                f"element: {type(element).__name__} is not a tuple with a component for each of "
                f"data_paths; make one, as in .map(lambda row: (row['image'], row['label']))"
            )
        if len(parts) != len(self._names):
            raise SpecMismatch(
                f"element: {len(parts)} components for {len(self._names)} data_paths"
            )
        if self._order is None or not self._order.has_names:
            self._order = InSpecOrder(cast("StructSpec", spec_of(element)))
        try:
            return self._order(element)
        except SpecMismatch as error:
            raise SpecMismatch(f"element: {error}") from error


@attrs.define(eq=False)
class _Block:
    """The block of rows that is written next."""

    h5py: Any
    file: Any
    names: list[str]
    columns: list[Column] = attrs.field(factory=list)
    written: int = 0
    digest: int = 0
    _rows: list[list[Any]] = attrs.field(factory=list)
    _digests: list[list[int]] = attrs.field(factory=list)
    _bytes: int = 0

    def add(self, parts: list[Any]) -> None:
        """Add a row; raises SpecMismatch if it cannot be written."""
        labels = [f"element.{name}" for name in self.names]
        if not self.columns:
            pairs = zip(parts, labels, strict=True)
            self.columns = [_checked(column_of(x, label), label) for x, label in pairs]
        number = self.written + len(self._rows)
        row, digests = [], []
        for x, column, label in zip(parts, self.columns, labels, strict=True):
            same_column(column, x, label)
            if column.nbytes > _MAX_ROW_BYTES:
                raise SpecMismatch(f"{label}: {column.nbytes:,} bytes; HDF5 stores at most 4 GiB")
            content = content_of(x, label)
            digests.append(xxh3_64_intdigest(content, number))
            self._bytes += len(content)
            row.append(content)
        self._rows.append(row)
        self._digests.append(digests)
        self.digest = xxh3_64_intdigest(np.array(digests, "<u8").tobytes(), self.digest)
        if self._bytes >= _BLOCK_BYTES or len(self._rows) == _BLOCK_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows."""
        n = len(self._rows)
        if not n:
            return
        if not self.written:
            self._create(n)
        end = self.written + n
        for k, (name, column) in enumerate(zip(self.names, self.columns, strict=True)):
            dataset = self.file[name]
            dataset.resize(end, axis=0)
            contents = [row[k] for row in self._rows]
            block: Any
            if column.form == "str":
                block = np.array([text.decode() for text in contents], object)
            else:
                block = np.frombuffer(b"".join(contents), column.dtype)
                block = block.reshape(n, *column.shape)
            dataset[self.written : end] = block
        digests = self.file[HEADER]
        digests.resize(end, axis=1)
        digests[:, self.written : end] = np.array(self._digests, np.uint64).T
        self.written, self._bytes, self._rows, self._digests = end, 0, [], []

    def _create(self, n: int) -> None:
        for name, column in zip(self.names, self.columns, strict=True):
            dtype = self.h5py.string_dtype() if column.form == "str" else column.dtype
            self.file.create_dataset(
                name,
                shape=(0, *column.shape),
                # an axis of size zero can have chunks only if it is resizable
                maxshape=(None, *(size or None for size in column.shape)),
                chunks=(n, *(size or 1 for size in column.shape)),
                dtype=dtype,
                fletcher32=column.form != "str",  # for text it would cover only the references
            )
        self.file.create_dataset(
            HEADER,
            shape=(len(self.names), 0),
            maxshape=(len(self.names), None),
            chunks=(1, n),
            dtype="<u8",
            fletcher32=True,
        )

    def finish(self) -> None:
        """Write the header."""
        forms = [column.form for column in self.columns] or ["array"] * len(self.names)
        header = Hdf5Header(VERSION, self.written, self.digest, self.names, forms)
        self.file.attrs[HEADER] = np.bytes_(msgspec.json.encode(header))


def _checked(column: Column, at: str) -> Column:
    """Return the column; raise SpecMismatch if HDF5 cannot store it."""
    if column.dtype.kind in "UmM" or is_ml_dtype(column.dtype):
        raise SpecMismatch(
            f"{at}: an array of {column.dtype} cannot be written: HDF5 has no such type; arrays of "
            f"numbers and bytes can, and text as str"
        )
    if len(column.shape) > _MAX_AXES:
        raise SpecMismatch(
            f"{at}: an array of {len(column.shape)} axes cannot be written: HDF5 stores at most "
            f"{_MAX_AXES}"
        )
    return column
