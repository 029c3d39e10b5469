"""Rows, and batches of rows, from the columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from flowdsl.elements.declared_specs import names_classes, restore_classes
from flowdsl.elements.specs import UNKNOWN, ArraySpec, Spec, StructSpec, ValueSpec
from flowdsl.elements.stacking import batch_form
from flowdsl.elements.structure import arguments, remade


def maker(
    form: str, names: Sequence[str], spec: Spec
) -> Callable[[Sequence[list[Any]]], list[Any]]:
    """Return a function that builds rows from the values of their columns."""
    if form == "value":
        return lambda columns: [restore_classes(value, spec) for value in columns[0]]
    if not isinstance(spec, StructSpec) or any(names_classes(part) for _, part in spec.fields):
        plain = maker(form, names, StructSpec(tuple if form == "tuple" else dict, ()))
        return lambda columns: [restore_classes(row, spec) for row in plain(columns)]
    cls, fields = spec.form, [name for name, _ in spec.fields] or names
    if cls is tuple:
        return lambda columns: list(zip(*columns, strict=True))
    order = range(len(names)) if form == "tuple" else list(map(names.index, fields))
    column_of_key = dict(zip(fields, order, strict=True))
    if cls is not dict:
        column_of_key = arguments(cls, column_of_key)
    rows_of = _comprehension(tuple(column_of_key), cls is dict)
    return lambda columns: rows_of(
        cls, zip(*(columns[k] for k in column_of_key.values()), strict=True)
    )


def gatherer(form: str, names: Sequence[str], spec: Spec) -> Callable[[Sequence[Any]], Any] | None:
    """Return a function that makes a batch of the columns of its rows.

    Return None if rows are made by classes of users, which may check or convert values, or if they
    have lists or other values that are not columns of arrays or text.
    """
    if form == "value":
        return (lambda columns: columns[0]) if _is_column(spec) else None
    if not isinstance(spec, StructSpec):
        spec = StructSpec(tuple if form == "tuple" else dict, tuple((n, UNKNOWN) for n in names))
    is_plain = spec.form in (tuple, dict) or spec.form.__bases__ == (tuple,)
    if not is_plain or not all(_is_column(part) for _, part in spec.fields):
        return None
    kind, fields = batch_form(spec.form), [name for name, _ in spec.fields]
    order = range(len(names)) if form == "tuple" else list(map(names.index, fields))
    pairs = list(zip(fields, order, strict=True))
    if kind is dict:
        return lambda columns: {name: columns[k] for name, k in pairs}
    return lambda columns: remade(kind, {name: columns[k] for name, k in pairs})


def _is_column(spec: Spec) -> bool:
    """Return True if values of this spec may be in an array, or are text."""
    if isinstance(spec, ValueSpec):
        return spec.type in (object, bool, int, float, str, bytes)
    return isinstance(spec, ArraySpec)


@cache
def _comprehension(keys: Sequence[str], of_dicts: bool) -> Callable[..., list[Any]]:
    """Compile a loop that builds rows; it is three times as fast as calling ``dict``."""
    names = [f"x{k}" for k in range(len(keys))]
    pairs = list(zip(keys, names, strict=True))
    row = f"{{{', '.join(f'{key!r}: {name}' for key, name in pairs)}}}"
    if not of_dicts:
        row = f"cls({', '.join(f'{key}={name}' for key, name in pairs)})"
    rows_of: Callable[..., list[Any]] = eval(
        f"lambda cls, rows: [{row} for {''.join(f'{name}, ' for name in names)} in rows]"
    )
    return rows_of
