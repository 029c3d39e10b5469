"""Rows a second of batches of a table with nulls: by flowdsl, by pyarrow by hand, row by row.

python -m bench.tables
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import flowdsl as fl
from bench.rates import Pass, Work, run

ROWS, GROUP, BATCH = 1_000_000, 1 << 16, 256
NUMBERS = [f"x{k}" for k in range(6)]
FILL: dict[str, Any] = {**dict.fromkeys(NUMBERS, 0.0), "age": 0, "city": ""}
"""The value of each column with nulls; ``open`` has none."""


@cache
def table() -> Path:
    """A file of a million rows: six columns of floats, an int, a text and a bool."""
    pa: Any = import_module("pyarrow")
    rng = np.random.default_rng(0)

    def column(values: Any) -> Any:
        return pa.array(values, mask=rng.random(ROWS) < 0.1)

    columns = {name: column(rng.random(ROWS)) for name in NUMBERS}
    columns |= {"age": column(rng.integers(0, 90, ROWS))}
    columns |= {"city": column(rng.choice(["Athens", "Rome", "Paris", "Oslo"], ROWS))}
    columns |= {"open": pa.array(rng.random(ROWS) < 0.5)}
    folder = Path(_folder().name)
    pq: Any = import_module("pyarrow.parquet")
    pq.write_table(pa.table(columns), folder / "table.parquet", row_group_size=GROUP)
    return folder / "table.parquet"


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()  # removed at the end of the program


def _checked(begin: Pass) -> Pass:
    """The passes of a contestant, which has shown that its batches are complete and right."""
    batches: Any = list(begin())
    expected = _filled(import_module("pyarrow.parquet").read_table(table()))
    for name, values in expected.items():
        parts = [batch[name] for batch in batches]
        is_text = isinstance(values, list)
        found = [x for part in parts for x in part] if is_text else np.concatenate(parts)
        if not (found == values if is_text else np.array_equal(found, values)):
            raise SystemExit(f"{name} came with other values")
    return begin


def _filled(part: Any) -> dict[str, Any]:
    """The columns of a table of Arrow, without nulls: arrays, and lists of text."""
    columns = dict[str, Any]()
    for name in part.column_names:
        column = part.column(name).combine_chunks()
        if name in FILL:
            column = column.fill_null(FILL[name])
        text = name == "city"
        columns[name] = column.to_pylist() if text else column.to_numpy(zero_copy_only=False)
    return columns


def _flow() -> Pass:
    flow = fl.from_parquet(table(), fill=FILL).batch(BATCH)
    return _checked(lambda: flow)


def _by_hand() -> Pass:
    """A row group at a time; batches end with their row group, which spares joining two."""

    def batches() -> Iterator[dict[str, Any]]:
        file: Any = import_module("pyarrow.parquet").ParquetFile(table())
        for group in range(file.num_row_groups):
            part = _filled(file.read_row_group(group, use_threads=False))
            for i in range(0, len(part["age"]), BATCH):
                yield {
                    name: x[i : i + BATCH] if isinstance(x, list) else x[i : i + BATCH].copy()
                    for name, x in part.items()
                }

    return _checked(batches)


def filled_row(row: dict[str, Any]) -> dict[str, Any]:
    """The row with values in the place of None, in the classes of the columns."""
    numbers = {name: np.float64(0) if row[name] is None else row[name] for name in NUMBERS}
    age = np.int64(0) if row["age"] is None else row["age"]
    return {**numbers, "age": age, "city": row["city"] or "", "open": row["open"]}


def _by_rows() -> Pass:
    flow = fl.from_parquet(table()).map(filled_row).batch(BATCH)
    return lambda: flow


WORKS: dict[str, Work] = {
    "a table with nulls": Work(
        ROWS,
        {"flowdsl": _flow, "by hand": _by_hand, "row by row": _by_rows},
        goal=0.8,
        of="by hand",
    ),
}

NEEDS = {"by hand": "pyarrow"}


def main() -> None:
    run("bench.tables", __doc__, "rows", WORKS, NEEDS, Path("out/tables.json"))


if __name__ == "__main__":
    main()
