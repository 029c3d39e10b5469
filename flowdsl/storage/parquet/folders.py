"""Columns whose values are in the names of folders, as Hive writes: ``year=2024/0.parquet``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeAlias
from urllib.parse import unquote

import numpy as np

from flowdsl.elements.specs import UNKNOWN, ArraySpec, Spec, ValueSpec
from flowdsl.errors import SpecMismatch
from flowdsl.resources.file_names import common_start
from flowdsl.storage.csv.cells import CellType

_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The value that Hive and Spark write for a null."""

Keys: TypeAlias = dict[str, str | None]
"""The columns in the names of a file's folders, with the text of their values."""

_WHOLE = re.compile(r"-?[0-9]{1,18}")
"""Text that is read as an int64 if no type is declared, as Spark, Polars and pyarrow do."""


def keys_of(paths: Sequence[str], given: Sequence[str]) -> list[Keys]:
    """Return the keys in the names of folders of each file.

    Folders above all the files and patterns in ``given`` have no keys: where a table is, is not
    part of its rows.

    >>> folder = "/runs/lr=0.1/year=2024"
    >>> keys_of([f"{folder}/city=New%20York/0.parquet"], ["/runs/lr=0.1/year=*/**"])
    [{'year': '2024', 'city': 'New York'}]
    >>> keys_of([f"{folder}/0.parquet"], [f"{folder}/0.parquet"])
    [{}]
    """
    folders = [_folders(path) for path in paths]
    above = len(common_start([*folders, *map(_folders, given)])) if folders else 0
    return [_keys(names[above:]) for names in folders]


def _folders(path: str) -> list[str]:
    """Return the names of a file's folders; of a URL without its scheme, user, and query."""
    _, is_url, rest = path.partition("://")
    if is_url:
        host, _, path = re.split(r"[?#]|::", rest)[0].partition("/")
        path = f"{host.rpartition('@')[2]}/{path}"
    return [name for name in re.split(r"[/\\]", path)[:-1] if name]


def _keys(names: Sequence[str]) -> Keys:
    pairs = [name.partition("=") for name in names]
    named = {unquote(key): unquote(text) for key, mark, text in pairs if key and mark}
    return {key: None if text == _NULL else text for key, text in named.items()}


def values_of_key(
    name: str,
    texts: Sequence[str | None],
    paths: Sequence[str],
    wanted: Spec,
    optional: bool,
    fill: Any = None,
) -> tuple[tuple[Any, ...], Spec]:
    """Return the value of a key for each file, and their spec; ``wanted`` is declared for them.

    ``fill`` takes the place of nulls, unless it is None.

    Raises:
        SpecMismatch: A value is not of the declared type.
    """
    kind = _kind(wanted, texts)
    cell = CellType(kind)
    values: list[Any] = []
    for text, path in zip(texts, paths, strict=True):
        if text is None and not optional and fill is None:
            raise SpecMismatch(
                f"from_parquet: {path!r}: the value of {name!r} in its folder's name is null; "
                f"declare that it may be None, as with str | None, or fill nulls, "
                f"fill={{{name!r}: ...}}"
            )
        try:
            values += [fill] if text is None else cell.values([text])
        except (ValueError, OverflowError) as error:
            raise SpecMismatch(
                f"from_parquet: {path!r}: the value {text!r} of {name!r} in its folder's name is "
                f"not of the declared type, {cell}"
            ) from error
    return tuple(values), UNKNOWN if None in values else spec_of_key(wanted, texts)


def spec_of_key(wanted: Spec, texts: Sequence[str | None]) -> Spec:
    """Return the spec of a key's values; ``wanted`` is declared for them."""
    kind = _kind(wanted, texts)
    return ArraySpec(np.dtype(kind), ()) if issubclass(kind, np.generic) else ValueSpec(kind)


def _kind(wanted: Spec, texts: Sequence[str | None]) -> type:
    if isinstance(wanted, ValueSpec) and wanted.type in (str, int, float, bool):
        return wanted.type
    if isinstance(wanted, ArraySpec) and wanted.dtype is not None and wanted.shape == ():
        return wanted.dtype.type
    present = [text for text in texts if text is not None]
    return np.int64 if present and all(map(_WHOLE.fullmatch, present)) else str
