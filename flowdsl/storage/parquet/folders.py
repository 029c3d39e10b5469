"""Columns whose values are in the names of folders, as Hive writes: ``year=2024/0.parquet``."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np

from flowdsl.elements.specs import UNKNOWN, ArraySpec, Spec, ValueSpec
from flowdsl.errors import SpecMismatch
from flowdsl.storage.csv.cells import CellType

_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The value that Hive and Spark write for a null."""

_WHOLE = re.compile(r"-?[0-9]{1,18}")
"""Text that is read as an int64 if no type is declared, as Spark, Polars and pyarrow do."""


def keys_of(path: str) -> dict[str, str | None]:
    """Return the keys in the names of a file's folders, with the text of their values.

    >>> keys_of("/data/year=2024/city=New%20York/part-0.parquet")
    {'year': '2024', 'city': 'New York'}
    """
    pairs = [name.partition("=") for name in re.split(r"[/\\]", os.path.dirname(path))]
    named = {unquote(key): unquote(text) for key, mark, text in pairs if key and mark}
    return {key: None if text == _NULL else text for key, text in named.items()}


def values_of_key(
    name: str, texts: Sequence[str | None], paths: Sequence[str], wanted: Spec, optional: bool
) -> tuple[tuple[Any, ...], Spec]:
    """Return the value of a key for each file, and their spec; ``wanted`` is declared for them.

    Raises:
        SpecMismatch: A value is not of the declared type.
    """
    kind = _kind(wanted, texts)
    cell = CellType(kind)
    values: list[Any] = []
    for text, path in zip(texts, paths, strict=True):
        if text is None and not optional:
            raise SpecMismatch(
                f"from_parquet: {path!r}: the value of {name!r} in its folder's name is null; "
                f"declare that it may be None, as with str | None"
            )
        try:
            values += [None] if text is None else cell.values([text])
        except (ValueError, OverflowError) as error:
            raise SpecMismatch(
                f"from_parquet: {path!r}: the value {text!r} of {name!r} in its folder's name is "
                f"not of the declared type, {cell}"
            ) from error
    has_dtype = issubclass(kind, np.generic)
    spec: Spec = ArraySpec(np.dtype(kind), ()) if has_dtype else ValueSpec(kind)
    return tuple(values), UNKNOWN if optional and None in values else spec


def _kind(wanted: Spec, texts: Sequence[str | None]) -> type:
    if isinstance(wanted, ValueSpec) and wanted.type in (str, int, float, bool):
        return wanted.type
    if isinstance(wanted, ArraySpec) and wanted.dtype is not None and wanted.shape == ():
        return wanted.dtype.type
    present = [text for text in texts if text is not None]
    return np.int64 if present and all(map(_WHOLE.fullmatch, present)) else str
