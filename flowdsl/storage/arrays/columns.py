"""Columns of rows that are stored in arrays: each component has one dtype and shape."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import attrs
import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from flowdsl.elements.specs import ArraySpec, Spec, ValueSpec, text_of_any_width
from flowdsl.errors import SpecMismatch
from flowdsl.storage.byte_files import ByteFile, read_into
from flowdsl.storage.codec import array_of_bytes
from flowdsl.storage.values import is_array, is_ml_dtype, is_scalar, spelling_of, takes_any_bytes

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NUMBERS: dict[str, tuple[type, np.dtype[Any]]] = {
    "bool": (bool, np.dtype(np.bool_)),
    "int": (int, np.dtype(np.int64)),
    "float": (float, np.dtype(np.float64)),
    "complex": (complex, np.dtype(np.complex128)),
}
FORMS = ("array", "scalar", "str", *_NUMBERS)
"""The possible forms of a component; the last ones are Python numbers."""
_BLOCK_BYTES = 1 << 16
"""Smaller values are read together, up to this size."""
LIST = "list"
"""The form of a dataset of other programs in which each row is an array of its own length."""


@attrs.frozen
class Column:
    """The form, dtype and shape that all values of one component share."""

    form: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.form if self.is_python else f"{self.spec} ({self.form})"

    @property
    def is_python(self) -> bool:
        """True if values are Python numbers or text, not NumPy values."""
        return self.form not in ("array", "scalar", LIST)

    @property
    def spec(self) -> Spec:
        if self.form == "str":
            return ValueSpec(str)
        if self.form == LIST:
            return ArraySpec(self.dtype, (None,))
        if self.is_python:
            return ValueSpec(_NUMBERS[self.form][0])
        if self.form == "scalar":  # NumPy scalars are in native order; text has any width
            return ArraySpec(text_of_any_width(self.dtype.newbyteorder("=")), ())
        return ArraySpec(self.dtype, self.shape)

    @property
    def nbytes(self) -> int:
        """The size of one value in bytes; for text and lists, a lower bound."""
        size = self.dtype.itemsize
        for n in self.shape:
            size *= n
        return size

    def valid(self) -> bool:
        """Return True if this dtype and shape can have this form."""
        if self.form in ("array", "str"):
            return (self.form == "str") == self.dtype.hasobject
        if self.form == "scalar":
            return self.shape == () and not self.dtype.hasobject
        return self.form in _NUMBERS and (self.dtype, self.shape) == (_NUMBERS[self.form][1], ())

    def value(self, content: bytes) -> Any:
        """Return the value stored in these bytes; an array is read-only."""
        if self.form == "str":
            return content.decode()
        shape = self.shape
        if self.form == LIST:
            shape = (len(content) // self.dtype.itemsize,)
        array = array_of_bytes(self.dtype, shape, content)
        if self.form in ("array", LIST):
            return array
        return array.item() if self.is_python else array[()]


class Extent(NamedTuple):
    """Consecutive rows whose values are one after another in a file, as in memory."""

    first: int
    end: int
    offset: int
    """The offset in the file of the value of the first row."""


@attrs.define(eq=False)
class StoredColumn:
    """The values of one component, in a file."""

    file: ByteFile
    column: Column
    digests: Any
    """The checksum of each value; None if the file has none."""
    _block: tuple[int, int, bytes] = attrs.field(default=(0, 0, b""), init=False)
    """The values that were read last: the first number, the end, and the bytes."""

    @abstractmethod
    def extent(self, i: int) -> Extent | None:
        """Return the extent with value ``i``; None if the file does not store it as in memory."""

    @abstractmethod
    def converted(self, i: int) -> bytes:
        """Return the bytes of value ``i``, which the file does not store as in memory."""

    def content(self, i: int) -> bytes:
        """Return the bytes of value ``i``."""
        size = self.column.nbytes
        first, end, block = self._block  # together: another thread may read another block meanwhile
        if not first <= i < end:
            extent = self.extent(i)
            if extent is None:
                return self.converted(i)
            count = max(1, _BLOCK_BYTES // max(1, size))
            first = max(extent.first, i - i % count)
            end = min(extent.end, i - i % count + count)
            offset = extent.offset + (first - extent.first) * size
            block = self.file.read(offset, (end - first) * size)
            self._block = first, end, block
        return block[(i - first) * size : (i - first + 1) * size]

    def value(self, i: int, place: NDArray[Any] | None = None) -> Any:
        """Return value ``i``, read into ``place`` if possible.

        Raises:
            ValueError: It is damaged.
        """
        if place is not None and self._read_into(i, place):
            return place
        content = self.content(i)
        if not self._is_written(i, content):
            raise ValueError("its bytes are not those that were written")
        return self.column.value(content)

    def _read_into(self, i: int, place: NDArray[Any]) -> bool:
        """Read value ``i``, an array, into ``place``; return False if that is not possible."""
        column, buffer = self.column, cast("Buffer", place)
        if place.dtype != column.dtype or place.shape != column.shape:
            return False
        if not takes_any_bytes(column.dtype) or (extent := self.extent(i)) is None:
            return False
        offset = extent.offset + (i - extent.first) * column.nbytes
        filled = read_into(self.file, [buffer], offset, column.nbytes)
        return filled and self._is_written(i, buffer)

    def _is_written(self, i: int, content: Buffer) -> bool:
        """Return True if the bytes match the checksum of value ``i``, or there is none."""
        return self.digests is None or xxh3_64_intdigest(content, i) == self.digests[i]


TEXT = np.dtype(object)
"""The dtype of text columns, whose values are not arrays."""


def column_of(x: Any, at: str) -> Column:
    """Return the column that can store a value.

    Raises:
        SpecMismatch: It is not a number, text or plain array; the message names the component.
    """
    kind = type(x)
    if kind is str:
        return Column("str", TEXT)
    if kind.__name__ in _NUMBERS and kind is _NUMBERS[kind.__name__][0]:
        if kind is int and not -(2**63) <= x < 2**63:
            raise SpecMismatch(f"{at}: {x} is too large for int64")
        return Column(kind.__name__, _NUMBERS[kind.__name__][1])
    if not is_array(x) and not is_scalar(x):
        raise SpecMismatch(
            f"{at}: {kind.__name__} cannot be written; arrays, NumPy scalars, bool, int, float, "
            f"complex and str can"
        )
    dtype: np.dtype[Any] = x.dtype
    is_known = dtype.kind in "biufcSUmM" or is_ml_dtype(dtype)
    if not is_known or not dtype.itemsize or spelling_of(dtype) is None:
        raise SpecMismatch(
            f"{at}: an array of {dtype} cannot be written; one of numbers, times or characters can"
        )
    return Column("array" if is_array(x) else "scalar", dtype, x.shape)


def same_column(first: Column, x: Any, at: str) -> None:
    """Check that a value fits the column of the first row.

    Raises:
        SpecMismatch: It has another type, dtype or shape; the message names the component.
    """
    column = column_of(x, at)
    if column != first:
        seen, expected = str(column), str(first)
        if seen == expected:  # a spec does not show the width of text
            seen, expected = f"{seen} of dtype {column.dtype}", f"{expected} of dtype {first.dtype}"
        raise SpecMismatch(f"{at}: {seen}; the first row has {expected}: all must be alike")


def content_of(x: Any, at: str) -> bytes:
    """Return the bytes of a value.

    Raises:
        SpecMismatch: The value is text that cannot be written.
    """
    if type(x) is not str:
        _check_end(x, at)
        # pass the dtype: NumPy might choose another one for a Python number
        column = column_of(x, at)
        return np.asarray(x, column.dtype).tobytes()
    try:
        content = x.encode()
    except UnicodeEncodeError as error:
        raise SpecMismatch(f"{at}: text that is not Unicode cannot be written: {error}") from error
    if b"\0" in content:
        raise SpecMismatch(f"{at}: text with a NUL cannot be written: it would end there")
    return content


def _check_end(x: Any, at: str) -> None:
    text = x[:] if type(x) in (np.str_, np.bytes_) else ""
    if text[-1:] in ("\0", b"\0"):
        raise SpecMismatch(f"{at}: {text!r} cannot be written: the NUL at its end would be lost")
