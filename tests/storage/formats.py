"""Every storage format, as the laws, the fuzzer and the killer know it; a new one is one entry."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.testing.formats import Format

LINES = st.text(st.characters(codec="utf-8", exclude_characters="\n")).filter(
    lambda line: not line.endswith("\r") and not line.startswith("\ufeff")
)
CELLS = st.text(st.characters(codec="utf-8")) | st.text("\",;\r\n \t'x")


class Cells(NamedTuple):
    """A row of a CSV file."""

    text: str
    number: int
    ratio: float
    flag: bool
    some: np.float32
    maybe: int | None


RECORDS = st.builds(
    Cells,
    CELLS.filter(lambda text: not text.startswith("\ufeff")),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.floats(width=32).map(np.float32),
    st.none() | st.integers(),
)

FORMATS = {
    "lmdb": Format(
        lambda flow, path: flow.write_lmdb(path, overwrite=True),
        lambda path: fl.from_lmdb(path),
        suffix=".lmdb",
        refused=[object(), 2**64, {1: 2}, Decimal(1), "\ud800", [0, (1, object())]],
    ),
    "lmdb, appended": Format(
        lambda flow, path: flow.write_lmdb(path, append=not path.exists(), overwrite=path.exists()),
        lambda path: fl.from_lmdb(path),
        suffix=".lmdb",
        refused=[object(), [0, (1, object())]],
    ),
    "lmdb folder": Format(
        lambda flow, path: flow.write_lmdb(f"{path}/", overwrite=True),
        lambda path: fl.from_lmdb(path),
        refused=[object(), [0, (1, object())]],
    ),
    "tfrecord": Format(
        lambda flow, path: flow.write_tfrecord(path, overwrite=True),
        lambda path: fl.from_tfrecord(path, object),
        suffix=".tfrecord",
        refused=[object(), 2**64, {1: 2}, Decimal(1), b"bytes", [0, (1, object())]],
    ),
    "tfrecord, gzip": Format(
        lambda flow, path: flow.write_tfrecord(path, compression="gzip", overwrite=True),
        lambda path: fl.from_tfrecord(path, object, compression="gzip"),
        suffix=".tfrecord.gz",
        refused=[object(), 2**64, b"bytes"],
    ),
    "text": Format(
        lambda flow, path: flow.write_text(path, overwrite=True),
        lambda path: fl.from_text(path),
        suffix=".txt",
        rows=st.lists(LINES, max_size=12),
        refused=[object(), 3, b"ab", None, "a\nb", "a\r", "\ud800", ["a"]],
        some=[f"line {i}: äöü{'x' * i}\t" for i in range(12)],
        checked=False,
    ),
    "csv": Format(
        lambda flow, path: flow.write_csv(path, overwrite=True),
        lambda path: fl.from_csv(path, Cells),
        suffix=".csv",
        rows=st.lists(RECORDS, min_size=1, max_size=12),
        refused=[
            *(object(), 3, "ab", ("a", 1, 0.5, True, np.float32(1), None), np.zeros(6)),
            *({"text": "a"}, Cells("a", 1, 0.5, True, np.float32(1), np.zeros(2))),  # type: ignore[arg-type]  # what is refused
            *(Cells("\ud800", 1, 0.5, True, np.float32(1), None), [1] * 6),
            Cells(None, 1, 0.5, True, np.float32(1), ""),  # type: ignore[arg-type]  # the same
        ],
        some=[
            Cells(f'"a{i}",\nb', i, i / 7, i % 2 == 0, np.float32(i / 3), i if i % 3 else None)
            for i in range(12)
        ],
        checked=False,
    ),
}
