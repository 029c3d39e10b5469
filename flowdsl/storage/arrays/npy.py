"""from_npy: the rows of an array in a .npy file, with random access by row."""

from __future__ import annotations

import io
import threading
import tokenize
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast, overload

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from typing_extensions import TypeForm

from flowdsl import nodes
from flowdsl.effects import Exact
from flowdsl.elements.declared_specs import spec_declared
from flowdsl.elements.specs import ArraySpec, Spec
from flowdsl.errors import SourceError
from flowdsl.nodes import READER_KEYWORD_ADVICE, T, frozen_node, rejects_keywords
from flowdsl.storage.arrays.columns import Column, Extent, StoredColumn
from flowdsl.storage.byte_files import ByteFile, open_file
from flowdsl.storage.codec import MAX_EMPTY
from flowdsl.storage.digests import Version, versions_of
from flowdsl.storage.file_source import FileSource, RowReader
from flowdsl.storage.layout import OutArrays
from flowdsl.storage.paths import OnePath, one_path
from flowdsl.storage.schema import checked_against
from flowdsl.storage.values import is_ml_dtype

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")

_HEADER_BYTES = 1 << 14
"""Longer than the header of any numeric array; NumPy reads at most 10,000 bytes of one."""
_KINDS = "biufcSUmM"
"""NumPy's kinds of numbers, text and times."""


class Pickled(ValueError):
    """Raised for an array that holds Python objects."""


class NpyRows(StoredColumn):
    """The entries of an array along its first axis, read on demand."""

    def __init__(
        self, file: ByteFile, start: int, size: int, known_dtype: np.dtype[Any] | None = None
    ) -> None:
        """Read the header of the array stored in ``size`` bytes at ``start``.

        ``known_dtype`` is used if the header has only the size of the dtype, as for bfloat16.

        Raises:
            ValueError: The bytes are not an array of numbers, text or times.
        """
        stream = io.BytesIO(file.read(start, min(size, _HEADER_BYTES)))
        dtype, shape, fortran = _header(stream)
        self._start = start + stream.tell()
        if (
            known_dtype is not None
            and is_ml_dtype(known_dtype)
            and dtype_in_npy_file(known_dtype) == dtype
        ):
            dtype = known_dtype
        if dtype.hasobject:
            raise Pickled("it holds pickled Python objects, and reading them runs code")
        if (dtype.kind not in _KINDS and not is_ml_dtype(dtype)) or not dtype.itemsize:
            raise ValueError(f"it holds {dtype}; numbers, text and times are read{_hint(dtype)}")
        if not shape:
            raise ValueError("it is one value and has no rows")
        self.length = shape[0]
        super().__init__(
            file, Column("array" if shape[1:] else "scalar", dtype, shape[1:]), digests=None
        )
        row = self.column.nbytes
        if min(shape) < 0 or row * self.length != size - stream.tell():
            raise ValueError(
                f"an array of {dtype}{list(shape)} does not fit {size - stream.tell():,} bytes"
            )
        if not row and self.length > MAX_EMPTY:
            raise ValueError(f"{self.length:,} rows of zero bytes")
        self._whole: NDArray[Any] | None = None
        if fortran and len(shape) > 1:  # a row is not contiguous in the file
            content = file.read(self._start, row * self.length)
            self._whole = np.ndarray(shape, dtype, content, order="F")

    def extent(self, i: int) -> Extent | None:
        return None if self._whole is not None else Extent(0, self.length, self._start)

    def converted(self, i: int) -> bytes:
        return cast("bytes", cast("NDArray[Any]", self._whole)[i].tobytes())


def dtype_in_npy_file(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that ``.npy`` files name: for one of ml_dtypes, raw bytes of its size."""
    return np.dtype(f"V{dtype.itemsize}") if is_ml_dtype(dtype) else dtype


def _hint(dtype: np.dtype[Any]) -> str:
    if dtype.kind != "V" or dtype.names is not None or dtype.itemsize not in (1, 2, 4):
        return ""
    return (
        "; if they are numbers of ml_dtypes, of which NumPy stores only the size, declare them, "
        "such as NDArray[ml_dtypes.bfloat16]"
    )


_parsing = threading.Lock()
"""NumPy parses a header by ``ast.literal_eval``, and CPython counts the depth of its recursion for
all threads together: where one is interrupted by another, it may raise a ``SystemError``."""


def _header(stream: io.BytesIO) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    version = npy.read_magic(stream)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"its version is {version}; versions 1 and 2 are read")
    try:
        with _parsing:
            shape, fortran, dtype = readers[version](stream)
    except (SyntaxError, TypeError, tokenize.TokenError, RecursionError, MemoryError) as error:
        raise ValueError(f"its header is damaged: {error}") from error
    return dtype, tuple(map(int, shape)), bool(fortran)


def _rows_of(file: ByteFile, declared: Spec) -> NpyRows:
    dtype = declared.dtype if isinstance(declared, ArraySpec) else None
    try:
        return NpyRows(file, 0, file.size, dtype)
    except ValueError as error:
        raise SourceError(f"from_npy: {file.path!r} is not a readable array: {error}") from error


@frozen_node
class FromNpy(FileSource[T], Generic[T]):
    """The source of ``from_npy``: the rows of a .npy file, by index."""

    reader: ClassVar[str] = "from_npy"

    version: Version

    def opened(self) -> tuple[int, int, Callable[[int], T]]:
        rows = _rows_of(self.version.open("from_npy"), self.row_spec)
        return rows.length, self.digest, RowReader(partial(self._row, rows))

    def _row(self, rows: NpyRows, i: int, out: OutArrays) -> Any:
        try:
            return rows.value(i, out.get(""))  # the name of an element that is one array
        except ValueError as error:
            raise SourceError(f"{self.path!r}: row {i} is damaged: {error}") from error


@overload
def from_npy(path: OnePath) -> Flow[Any, Exact]: ...
@overload
def from_npy(path: OnePath, element: TypeForm[A]) -> Flow[A, Exact]: ...
@rejects_keywords(**READER_KEYWORD_ADVICE)
def from_npy(path: OnePath, element: Any = object) -> Flow[Any, Exact]:
    """Read the rows of an array in a ``.npy`` file of ``np.save``, along its first axis.

    ``path`` is a file or a URL. A row is a read-only array, or a NumPy scalar if the array has one
    axis; ``element`` declares its type, e.g. ``NDArray[np.uint8]``. Rows are read on demand, so the
    file may be larger than memory; only an array in Fortran order is read completely. NumPy stores
    only the size of the dtypes of ml_dtypes: declare these, as ``NDArray[ml_dtypes.bfloat16]``. The
    format has no checksum, so corruption of a number goes undetected. Pickled objects are refused.

    Length: the size of the first axis.

    Effects: none.

    Errors: ``SourceError`` when the flow is built, if the file is missing, truncated or not such an
    array; ``SpecMismatch`` when the flow is built, if rows do not match ``element``.

    >>> import flowdsl as fl, numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.arange(3, dtype=np.uint8))
    ...     fl.from_npy(f"{folder}/a.npy", np.uint8).collect()
    [np.uint8(0), np.uint8(1), np.uint8(2)]

    Source: ``numpy.lib.format``.

    Elsewhere: tensorpack none; tf.data none; Grain none; torchdata none.
    """
    where = one_path("from_npy", path)
    file = open_file("from_npy", where)
    rows = _rows_of(file, spec_declared("from_npy: rows", element))
    spec = checked_against("from_npy", where, element, rows.column.spec)
    (version,) = versions_of([file])
    return nodes.flow(FromNpy[Any](where, rows.length, spec, version.digest, version))
