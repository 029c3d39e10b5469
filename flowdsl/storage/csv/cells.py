"""Cells of CSV files: parsing text into values of each type that can be declared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import starmap
from typing import Any, Generic, get_args, get_origin

import attrs
import numpy as np

from flowdsl.elements.declared_specs import spec_declared, spec_of_type
from flowdsl.elements.hints import type_hints, without_none
from flowdsl.elements.specs import Spec, StructSpec, ValueSpec
from flowdsl.elements.structure import assemble
from flowdsl.errors import InvalidFlow, SpecMismatch
from flowdsl.nodes import T
from flowdsl.storage.csv.times import EXAMPLES, parser_of_times, spec_of_times

# -- cells --------------------------------------------------------------------------------


@attrs.frozen
class CellType:
    """The type of a column's cells, and its parser."""

    kind: type
    optional: bool = False
    """True if an empty cell is read as None."""
    decimal: str = "."
    """The character before the fraction of a float."""
    fill: Any = None
    """The value of an empty cell, if it has one."""

    def __str__(self) -> str:
        names = {str: "text", np.str_: "text", bool: "bool (true, false, 1 or 0)"} | EXAMPLES
        name = names.get(self.kind, self.kind.__name__)
        if self.is_float and self.decimal != ".":
            name = f"{name} with decimal={self.decimal!r}"
        return f"{name} or empty" if self.optional else name

    def remedy(self, text: str) -> str:
        """Return the end of a message about a cell that is not of this type: what to do."""
        if text:
            return ""
        return f"; declare {self.kind.__name__} | None, or fill empty cells with fill={{...}}"

    @property
    def spec(self) -> Spec:
        """The spec of the values of cells that are not empty."""
        return spec_of_times(self.kind) if self.kind in EXAMPLES else spec_of_type(self.kind)

    @property
    def is_float(self) -> bool:
        return issubclass(self.kind, (float, np.floating))

    def values(self, texts: Iterable[str]) -> list[Any]:
        """Parse the cells of one column.

        Raises:
            ValueError: A cell is not a value of this type.
        """
        parse = _parser(self.kind)
        if self.is_float and self.decimal != ".":
            parse = _with_decimal(self.decimal, parse)
        if self.optional or self.fill is not None:
            return [self.fill if text == "" else parse(text) for text in texts]
        if self.kind is int and _is_plain_number("".join(texts)):
            return list(map(int, texts))
        return list(texts) if self.kind is str else list(map(parse, texts))


def _parser(kind: type) -> Callable[[str], Any]:
    if kind in EXAMPLES:
        return parser_of_times(kind)
    if kind in (str, np.str_):
        return kind
    if kind is int:
        return _int
    if kind is float:
        return _float
    if kind is bool:
        return _bool
    if issubclass(kind, np.bool_):
        return lambda text: kind(_bool(text))
    if issubclass(kind, np.integer):
        return lambda text: kind(_int(text))  # NumPy refuses values out of range
    return lambda text: _rounded(kind, text)


def _with_decimal(mark: str, parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def parsed(text: str) -> Any:
        if "." in text:  # it may separate thousands
            raise ValueError(text)
        return parse(text.replace(mark, "."))

    return parsed


def _is_plain_number(text: str) -> bool:
    """Return True if numbers are spelled plainly: no ``1_000``, no digits of other scripts."""
    return "_" not in text and text.isascii()


def _int(text: str) -> int:
    if not _is_plain_number(text):
        raise ValueError(text)
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not _is_plain_number(text) or (math.isinf(value) and "inf" not in text.lower()):
        raise ValueError(text)  # a number that is too large is not infinity
    return value


_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def _bool(text: str) -> bool:
    value = _BOOLS.get(text.strip(" ").lower())
    if value is None:
        raise ValueError(text)
    return value


def _rounded(kind: type, text: str) -> Any:
    value = _float(text)
    with np.errstate(over="ignore"):
        number = kind(value)
    if np.isinf(number) and not math.isinf(value):
        raise ValueError(text)
    return number


# -- declared elements -----------------------------------------------------------------------------

_KINDS = (str, int, float, bool)
SCALARS = {
    *(np.str_, np.bool_, np.float16, np.float32, np.float64),
    *(np.dtype(code).type for code in np.typecodes["AllInteger"]),
}


@attrs.frozen(eq=False)
class DeclaredCells:
    """The components of a declared element, and the cells from which they are parsed."""

    spec: StructSpec
    cells: tuple[CellType, ...]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.spec.fields]

    @property
    def is_named(self) -> bool:
        """True if components are matched to columns by the names in a header."""
        return self.spec.form is not tuple


def declared_cells(element: Any, decimal: str) -> DeclaredCells:
    """Return the cells of a declared class or tuple.

    Raises:
        InvalidFlow: The class has no components, or one that a cell cannot hold.
    """
    spec = spec_declared("from_csv: rows", element)
    if not isinstance(spec, StructSpec) or not spec.fields:
        raise InvalidFlow(
            f"from_csv: element must have a component for each column: a NamedTuple, a record, a "
            f"dataclass, a TypedDict or tuple[A, B], got {element!r}"
        )
    if spec.form is tuple:
        hints = {str(i): hint for i, hint in enumerate(get_args(element))}
    else:
        hints = _hints(element)
    cells = tuple(_cell(name, hints.get(name), decimal) for name, _ in spec.fields)
    pairs = zip(spec.fields, cells, strict=True)
    fields = tuple(
        (name, cell.spec if cell.kind is np.datetime64 else part) for (name, part), cell in pairs
    )
    return DeclaredCells(StructSpec(spec.form, fields), cells)


def _hints(form: Any) -> dict[str, Any]:
    try:
        return type_hints(form, include_extras=False)
    except NameError as error:
        raise InvalidFlow(
            f"from_csv: the types of {(get_origin(form) or form).__name__} cannot be resolved: "
            f"{error}; define the types that it names in a module, not in a function"
        ) from error


def _cell(name: str, hint: Any, decimal: str) -> CellType:
    kind, optional = without_none(hint)
    if not isinstance(kind, type) or kind not in {*_KINDS, *SCALARS, *EXAMPLES}:
        raise InvalidFlow(
            f"from_csv: component {name!r} must be declared str, int, float, bool, date, datetime, "
            f"a NumPy scalar such as np.float32 or np.datetime64, or one of these or None, got "
            f"{hint!r}"
        )
    return CellType(kind, optional, decimal)


def text_spec(form: type, names: Sequence[str]) -> StructSpec:
    """Return the spec of rows in which all cells are text."""
    fields = tuple((name, ValueSpec(str)) for name in names)
    return StructSpec(form, fields)


@attrs.frozen
class CellRows(Generic[T]):
    """Converts records of cells into rows."""

    form: type
    names: tuple[str, ...]
    """The names of a row's components."""
    chosen: tuple[int, ...]
    """The column number of each component."""
    cells: tuple[CellType, ...]
    width: int
    """The number of cells in a record."""
    columns: tuple[str, ...]
    """The name of each chosen column in error messages."""

    def rows(self, records: Sequence[list[str]]) -> list[T]:
        """Convert records into rows.

        Raises:
            SpecMismatch: A cell is not of the declared type; the message has its column and text.
            ValueError: A record has too many or too few cells.
        """
        for record in records:
            if len(record) != self.width:
                raise ValueError(_other_width(record, self.width))
        if self._needs_no_conversion or not records:
            return self._assembled(records)
        by_column = list(zip(*records, strict=True))
        pairs = zip(self.chosen, self.cells, self.columns, strict=True)
        values = [_column(by_column[k], cell, name) for k, cell, name in pairs]
        return self._assembled(list(zip(*values, strict=True)))

    _needs_no_conversion: bool = attrs.field(init=False, repr=False, eq=False)
    """True if the records can be used as rows without any conversion."""

    def __attrs_post_init__(self) -> None:
        is_text = {*self.cells} == {CellType(str)} and self.chosen == tuple(range(self.width))
        object.__setattr__(self, "_needs_no_conversion", is_text)

    def _assembled(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        names = self.names
        if self.form is dict:
            return [dict(zip(names, row, strict=True)) for row in rows]
        if self.form is tuple:
            return list(map(tuple, rows))
        try:
            if issubclass(self.form, tuple):
                return list(starmap(self.form, rows))
            return [assemble(self.form, dict(zip(names, row, strict=True))) for row in rows]
        except Exception as error:  # a user's class may validate its values
            raise SpecMismatch(
                f"cannot construct {self.form.__name__} from a row: {error!r}"
            ) from error


def _other_width(record: list[str], width: int) -> str:
    cells = "1 cell" if len(record) == 1 else f"{len(record)} cells"
    return f"the row has {cells}, but there are {width} columns"


def _column(texts: tuple[str, ...], cell: CellType, name: str) -> list[Any]:
    try:
        return cell.values(texts)
    except (ValueError, OverflowError):
        for text in texts:
            try:
                cell.values([text])
            except (ValueError, OverflowError) as error:
                raise SpecMismatch(
                    f"column {name}: {_shown(text)} is not of the declared type, {cell}"
                    f"{cell.remedy(text)}"
                ) from error
        raise


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:80]!r}..."
