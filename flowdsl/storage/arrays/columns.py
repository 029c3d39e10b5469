"""The components of rows that lie in arrays: each has one dtype and shape for all rows."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flowdsl.elements.specs import ArraySpec, Spec, ValueSpec, text_of_any_width
from flowdsl.errors import SpecMismatch
from flowdsl.storage.codec import array_of_bytes

_NUMBERS: dict[str, tuple[type, np.dtype[Any]]] = {
    "bool": (bool, np.dtype(np.bool_)),
    "int": (int, np.dtype(np.int64)),
    "float": (float, np.dtype(np.float64)),
    "complex": (complex, np.dtype(np.complex128)),
}
FORMS = ("array", "scalar", "str", *_NUMBERS)
"""What a component may be; the last are Python's numbers."""


@attrs.frozen
class Column:
    """What the values of a component share."""

    form: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.form if self.is_python else f"{self.spec} ({self.form})"

    @property
    def is_python(self) -> bool:
        """Whether values are Python's own."""
        return self.form not in ("array", "scalar")

    @property
    def spec(self) -> Spec:
        if self.form == "str":
            return ValueSpec(str)
        if self.is_python:
            return ValueSpec(_NUMBERS[self.form][0])
        if self.form == "scalar":  # NumPy gives it the machine's byte order, and text its own width
            return ArraySpec(text_of_any_width(self.dtype.newbyteorder("=")), ())
        return ArraySpec(self.dtype, self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of a value; of text, its reference."""
        size = self.dtype.itemsize
        for n in self.shape:
            size *= n
        return size

    def valid(self) -> bool:
        """Whether this dtype and shape can have this form."""
        if self.form in ("array", "str"):
            return (self.form == "str") == self.dtype.hasobject
        if self.form == "scalar":
            return self.shape == () and not self.dtype.hasobject
        return self.form in _NUMBERS and (self.dtype, self.shape) == (_NUMBERS[self.form][1], ())

    def value(self, content: bytes) -> Any:
        """The value with these bytes; an array is read-only."""
        if self.form == "str":
            return content.decode()
        array = array_of_bytes(self.dtype, self.shape, content)
        if self.form == "array":
            return array
        return array.item() if self.is_python else array[()]


TEXT = np.dtype(object)
"""The dtype of columns of text, whose values are no arrays."""


def column_of(x: Any, at: str) -> Column:
    """The column that a value can be in.

    Raises:
        SpecMismatch: It is no number, text or plain array; the message names the component.
    """
    kind = type(x)
    if kind is str:
        return Column("str", TEXT)
    if kind.__name__ in _NUMBERS and kind is _NUMBERS[kind.__name__][0]:
        if kind is int and not -(2**63) <= x < 2**63:
            raise SpecMismatch(f"{at}: {x} is too large for int64")
        return Column(kind.__name__, _NUMBERS[kind.__name__][1])
    if kind not in (np.ndarray, np.memmap) and not isinstance(x, np.generic):
        raise SpecMismatch(
            f"{at}: {kind.__name__} cannot be written; arrays, NumPy scalars, bool, int, float, "
            f"complex and str can"
        )
    dtype: np.dtype[Any] = x.dtype
    if dtype.kind not in "biufcSUmM" or not dtype.itemsize:
        raise SpecMismatch(
            f"{at}: an array of {dtype} cannot be written; one of numbers, times or characters can"
        )
    return Column("scalar" if isinstance(x, np.generic) else "array", dtype, x.shape)


def same_column(first: Column, x: Any, at: str) -> None:
    """Refuse a value that is not in the column of the first.

    Raises:
        SpecMismatch: It has another type, dtype or shape; the message names the component.
    """
    column = column_of(x, at)
    if column != first:
        raise SpecMismatch(f"{at}: {column}; the first row has {first}: all must be alike")


def content_of(x: Any, at: str) -> bytes:
    """The bytes of a value.

    Raises:
        SpecMismatch: It is text that cannot be written.
    """
    if not isinstance(x, str):
        # a dtype given: NumPy might take another one for a number of Python
        column = column_of(x, at)
        return np.asarray(x, column.dtype).tobytes()
    try:
        content = x.encode()
    except UnicodeEncodeError as error:
        raise SpecMismatch(f"{at}: text that is not Unicode cannot be written: {error}") from error
    if b"\0" in content:
        raise SpecMismatch(f"{at}: text with a NUL cannot be written: it would end there")
    return content
