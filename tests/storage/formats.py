"""Every storage format, for the laws, the fuzzer and the killer; a new format needs one entry."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from ml_dtypes import bfloat16, int4

import flowdsl as fl
from flowdsl import nodes
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.errors import EndlessFlow, SpecMismatch
from flowdsl.nodes import IndexedSource
from flowdsl.storage.codec import decode, encode
from flowdsl.testing.formats import Format
from flowdsl.testing.recipes import AnyFlow
from tests.storage.elements import ELEMENTS

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


def as_samples(rows: AnyFlow) -> AnyFlow:
    """Convert each row to a sample with one file; rows that cannot be encoded stay as they are."""
    numbers = count()

    def sample(row: Any) -> Any:
        key = f"folder/{next(numbers)}"
        try:
            return {"__key__": key, "row": encode(row), "cls": 7}
        except SpecMismatch:
            return {"__key__": key, "row": row}

    return rows.map(sample)


@attrs.frozen(eq=False, repr=False)
class Decoded(IndexedSource[Any]):
    """The rows of ``as_samples``, read back."""

    path: str

    @property
    def _samples(self) -> IndexedSource[Any]:
        source = fl.from_webdataset(self.path).node
        assert isinstance(source, IndexedSource)
        return source

    @property
    def title(self) -> str:
        return self._samples.title

    @property
    def fingerprint(self) -> str:
        return self._samples.fingerprint

    @property
    def length(self) -> int:
        return self._samples.length

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN

    def open(self) -> Callable[[int], Any]:
        sample = self._samples.open()
        return lambda i: decode(sample(i)["row"])


def from_samples(path: Path) -> AnyFlow:
    return nodes.flow(Decoded(str(path)))


@st.composite
def tables(draw: st.DrawFn) -> list[Any]:
    """Rows with the same columns."""
    dtypes: st.SearchStrategy[np.dtype[Any]] = st.one_of(
        hnp.boolean_dtypes(),
        hnp.integer_dtypes(endianness="="),
        hnp.floating_dtypes(endianness="="),
        st.sampled_from([np.dtype(code) for code in ("M8[ms]", "M8[ns]", "m8[us]")]),
    )
    scalars = dtypes.map(lambda dtype: hnp.from_dtype(dtype).map(dtype.type))
    arrays = st.tuples(dtypes, st.sampled_from([(2,), (2, 3), (1, 2, 1)]))
    plain = [
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(),
        st.text(st.characters(codec="utf-8")),
        st.binary(),
    ]
    column = (
        st.sampled_from([*plain, *(st.none() | one for one in plain)])
        | st.sampled_from([st.lists(one, max_size=3) for one in plain])
        | scalars
        | st.just(st.integers(-(2**31), 2**31 - 1).map(lambda day: np.datetime64(day, "D")))
        | arrays.map(lambda one: hnp.arrays(*one))
        | dtypes.map(lambda dtype: hnp.arrays(dtype, st.integers(0, 3)))
    )
    columns = draw(st.lists(column, min_size=1, max_size=4))
    names = [f"column {i}" for i in range(len(columns))]
    together = st.tuples(*columns)
    named = together.map(lambda values: dict(zip(names, values, strict=True)))
    row = draw(st.sampled_from([columns[0], together, named]))
    return draw(st.lists(row, max_size=12))


_ANY: st.SearchStrategy[list[Any]] = st.lists(ELEMENTS, max_size=5)
_NOT_BYTES: st.SearchStrategy[list[Any]] = st.lists(
    ELEMENTS.filter(lambda x: type(x) is not bytes), max_size=5
)
_ARRAY = np.zeros(3, np.float32)

_COLUMNS = [
    *(hnp.arrays(dtype, (2, 3)) for dtype in ("?", "<f2", ">i4", "u1", "<c8", ">f8", "S3")),
    hnp.arrays("<f4", (3, 2)).map(np.transpose),
    *(hnp.arrays("i8", shape) for shape in ((), (0, 2), (1,))),
    *(st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans(), st.complex_numbers()),
    *(st.integers(0, 255).map(np.uint8), st.floats(width=32).map(np.float32)),
]
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
PAIRS: st.SearchStrategy[list[Any]] = st.tuples(
    st.sampled_from([*_COLUMNS, TEXTS]), st.sampled_from([*_COLUMNS, TEXTS])
).flatmap(lambda pair: st.lists(st.tuples(*pair), max_size=12))
"""Rows of two components, each with one dtype and shape."""
_PLAIN = [
    *_COLUMNS,
    hnp.arrays("u1", (2, 6)).map(lambda array: array.view(bfloat16)),
    hnp.arrays("u1", (2, 3)).map(lambda array: array.view(int4)),
    *(hnp.arrays(dtype, (2, 3)) for dtype in ("<U2", ">U1", "<M8[s]", ">m8[D]")),
]
_NUMBERS: st.SearchStrategy[list[Any]] = st.tuples(
    st.sampled_from(_PLAIN), st.sampled_from(_PLAIN)
).flatmap(lambda pair: st.lists(st.tuples(*pair), max_size=12))
_DICTS: st.SearchStrategy[list[Any]] = _NUMBERS.map(
    lambda rows: [{"x": x, "a/y": y} for x, y in rows]
)
_SINGLE: st.SearchStrategy[list[Any]] = _NUMBERS.map(lambda rows: [x for x, _ in rows])
ROWS_OF_NUMBERS = _NUMBERS | _DICTS | _SINGLE
"""Rows of one or two components, as named and unnamed containers."""


def _write_npy(flow: AnyFlow, path: Path) -> int:
    """Write with ``np.save``, as flowdsl has no writer of this format."""
    if flow.node.length is None:
        raise EndlessFlow("it never ends")
    rows = flow.collect()
    np.save(path, np.stack(rows))
    return len(rows)


FORMATS = {
    "lmdb": Format(
        lambda flow, path: flow.write_lmdb(path, overwrite=True),
        lambda path: fl.from_lmdb(path),
        suffix=".lmdb",
        rows=_ANY,
        refused=[object(), 2**64, {1: 2}, Decimal(1), "\ud800", [0, (1, object())]],
    ),
    "lmdb, appended": Format(
        lambda flow, path: flow.write_lmdb(path, append=not path.exists(), overwrite=path.exists()),
        lambda path: fl.from_lmdb(path),
        suffix=".lmdb",
        rows=_ANY,
        refused=[object(), [0, (1, object())]],
    ),
    "lmdb folder": Format(
        lambda flow, path: flow.write_lmdb(f"{path}/", overwrite=True),
        lambda path: fl.from_lmdb(path),
        rows=_ANY,
        refused=[object(), [0, (1, object())]],
    ),
    "tfrecord": Format(
        lambda flow, path: flow.write_tfrecord(path, overwrite=True),
        lambda path: fl.from_tfrecord(path, object),
        suffix=".tfrecord",
        rows=_NOT_BYTES,
        refused=[object(), 2**64, {1: 2}, Decimal(1), b"bytes", [0, (1, object())]],
    ),
    "tfrecord, gzip": Format(
        lambda flow, path: flow.write_tfrecord(path, compression="gzip", overwrite=True),
        lambda path: fl.from_tfrecord(path, object, compression="gzip"),
        suffix=".tfrecord.gz",
        rows=_NOT_BYTES,
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
    "arrayrecord": Format(
        lambda flow, path: flow.write_arrayrecord(path, group_size=2, overwrite=True),
        lambda path: fl.from_arrayrecord(path, object),
        suffix=".arrayrecord",
        rows=_NOT_BYTES,
        refused=[object(), 2**64, {1: 2}, Decimal(1), b"raw", [0, (1, object())]],
    ),
    "webdataset": Format(
        lambda flow, path: as_samples(flow).write_webdataset(path, overwrite=True),
        from_samples,
        suffix=".tar",
        rows=_ANY,
        refused=[object(), Decimal(1)],
    ),
    "parquet": Format(
        lambda flow, path: flow.write_parquet(path, row_group=5, overwrite=True),
        lambda path: fl.from_parquet(path),
        suffix=".parquet",
        rows=tables(),
        refused=[object(), (1, 2), (1, np.zeros(3)), (1j, _ARRAY), (2**63, _ARRAY), {"a": 1}],
    ),
    "hdf5": Format(
        lambda flow, path: flow.write_hdf5(path, ["x", "a/y"], overwrite=True),
        lambda path: fl.from_hdf5(path, ["x", "a/y"]),
        suffix=".h5",
        rows=PAIRS,
        refused=[
            *(object(), 1, (1, 2, 3), {"x": 1, "a/y": np.zeros(3, np.float32)}, (1, None)),
            *((2**63, np.zeros(3, np.float32)), (1, np.zeros(3)), (1, np.zeros(4, np.float32))),
            *((1.0, np.zeros(3, np.float32)), (1, "a"), (1, np.array(["a", "b", "c"]))),
            *((1, np.zeros(3, "M8[s]")), (1, np.zeros(3, "U1"))),
        ],
    ),
    "hdf5 of text": Format(
        lambda flow, path: flow.write_hdf5(path, "texts", overwrite=True),
        lambda path: fl.from_hdf5(path, "texts"),
        suffix=".h5",
        rows=st.lists(TEXTS, max_size=12),
        refused=["\ud800", "a\0b", 3, ("a",)],
        some=[f"text {i}: äöü{'x' * i}" for i in range(12)],
    ),
    "npz": Format(
        lambda flow, path: flow.write_npz(path, overwrite=True),
        lambda path: fl.from_npz(path),
        suffix=".npz",
        rows=ROWS_OF_NUMBERS,
        refused=[
            *(object(), 1, (1, 2, 3), {"x": 1, "a/y": np.zeros(3, np.float32)}, (1, None), ()),
            *((2**63, np.zeros(3, np.float32)), (1, np.zeros(3)), (1, np.zeros(4, np.float32))),
            *((1.0, np.zeros(3, np.float32)), (1, "a"), (1, np.array(["a", "b", "c"]))),
        ],
    ),
    "npy": Format(
        _write_npy,
        lambda path: fl.from_npy(path),
        suffix=".npy",
        rows=st.lists(hnp.arrays("<f4", (2,)), min_size=1, max_size=12),
        refused=[],
        some=[np.full(3, i / 2, np.float32) for i in range(12)],
        checked=False,
    ),
}

FORMATS |= {  # its checksum detects damage
    f"{name}, gzip": attrs.evolve(FORMATS[name], suffix=f".{name}.gz", checked=True)
    for name in ("text", "csv")
}
