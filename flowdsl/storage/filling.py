"""Values that replace nulls and empty cells: the argument ``fill`` of readers of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, TypeAlias

import numpy as np

from flowdsl.elements.specs import UNKNOWN, ArraySpec, Spec, ValueSpec, class_of
from flowdsl.elements.stacking import checked_padding
from flowdsl.errors import InvalidFlow, SpecMismatch

Fill: TypeAlias = Mapping[str, object]
"""By the name of a column, the value that replaces its nulls."""


def checked_fill(reader: str, fill: Any, columns: Sequence[str]) -> dict[str, Any]:
    """Return a copy of the argument ``fill``.

    Raises:
        InvalidFlow: It is not a dict of values, or names a column that is not read.
    """
    if fill is None:
        return {}
    if not isinstance(fill, Mapping):
        raise InvalidFlow(
            f"{reader}: fill must be a dict of a value for each column with nulls, such as "
            f"{{{(columns or ['age'])[0]!r}: 0}}, got {fill!r}"
        )
    for name, value in fill.items():
        if name not in columns:
            raise InvalidFlow(
                f"{reader}: fill has {name!r}; the columns that are read are "
                f"{', '.join(map(repr, columns))}"
            )
        if value is None:
            raise InvalidFlow(
                f"{reader}: fill of {name!r} must be a value; leave {name!r} out to keep its nulls"
            )
    return dict(fill)


def value_for(reader: str, name: str, value: Any, spec: Spec) -> Any:
    """Return the value that fills a column, converted to the spec of the column's values.

    Raises:
        InvalidFlow: The value is not one of this spec.
    """
    at = f"{reader}: fill of {name!r}"
    dtype = spec.dtype if isinstance(spec, ArraySpec) and spec.shape == () else None
    if dtype is not None and dtype.kind in "mM":
        return _time(at, value, dtype)
    if isinstance(spec, ValueSpec) and spec.type in (bool, int, float):
        dtype = np.dtype(spec.type)
    if dtype is not None and dtype.kind in "biufc":
        is_number = isinstance(value, int | float | complex | np.number | np.bool_)
        if is_number and isinstance(value, bool | np.bool_) is (dtype.kind == "b"):
            try:
                number = checked_padding(value, dtype, at)
            except SpecMismatch as error:
                raise _refused(at, value, f"a value of {spec}") from error
            return number if isinstance(spec, ArraySpec) else number.item()
        raise _refused(at, value, f"a value of {spec}")
    kind = class_of(spec)
    if spec == UNKNOWN or isinstance(spec, ArraySpec) or kind in (list, dict):
        raise InvalidFlow(
            f"{at}: columns of numbers, text, bytes and times can be filled, and this one is "
            f"{spec}; fill it with .map"
        )
    if not isinstance(value, kind) or (kind is date and isinstance(value, datetime)):
        raise _refused(at, value, f"of the class {kind.__name__}")
    return value


def _time(at: str, value: Any, dtype: np.dtype[Any]) -> Any:
    accepted = date | datetime | np.datetime64 if dtype.kind == "M" else np.timedelta64
    if isinstance(value, accepted):
        filled = np.array(value, dtype)[()]
        if filled == value or np.isnat(filled):  # a conversion of units loses nothing
            return filled
    raise _refused(at, value, f"a value of {dtype}")


def _refused(at: str, value: object, wanted: str) -> InvalidFlow:
    return InvalidFlow(f"{at} must be {wanted}, got {value!r}")
