"""Every storage format through every law; a new one is one more entry."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import flowdsl as fl
from flowdsl import node
from flowdsl.errors import SpecMismatch
from flowdsl.kinds import IndexedSource
from flowdsl.specs import UNKNOWN, Spec
from flowdsl.storage.codec import decode, encode
from flowdsl.testing.formats import FORMAT_LAWS, Format, FormatLaw
from flowdsl.testing.recipes import AnyFlow


def as_samples(rows: AnyFlow) -> AnyFlow:
    """Each row as a sample with one file; what cannot be encoded is left for the writer."""
    numbers = count()

    def sample(row: Any) -> Any:
        key = f"folder/{next(numbers)}"
        try:
            return {"__key__": key, "row": encode(row), "cls": 7}
        except SpecMismatch:
            return {"__key__": key, "row": row}

    return rows.map(sample)


@attrs.frozen(repr=False)
class Decoded(IndexedSource[Any]):
    """The rows of ``as_samples``, read back."""

    title: str
    fingerprint: str
    length: int
    samples: Callable[[], Callable[[int], Any]]

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN

    def open(self) -> Callable[[int], Any]:
        sample = self.samples()
        return lambda i: decode(sample(i)["row"])


def from_samples(path: Path) -> AnyFlow:
    source = fl.from_webdataset(path).node
    assert isinstance(source, IndexedSource)
    return node.flow(Decoded(source.title, source.fingerprint, source.length, source.open))


SOME = np.zeros(3, np.float32)


@st.composite
def tables(draw: st.DrawFn) -> list[Any]:
    """Rows with the same columns."""
    dtypes: st.SearchStrategy[np.dtype[Any]] = st.one_of(
        hnp.boolean_dtypes(),
        hnp.integer_dtypes(endianness="="),
        hnp.floating_dtypes(endianness="="),
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
        | arrays.map(lambda one: hnp.arrays(*one))
        | dtypes.map(lambda dtype: hnp.arrays(dtype, st.integers(0, 3)))
    )
    columns = draw(st.lists(column, min_size=1, max_size=4))
    names = [f"column {i}" for i in range(len(columns))]
    together = st.tuples(*columns)
    named = together.map(lambda values: dict(zip(names, values, strict=True)))
    row = draw(st.sampled_from([columns[0], together, named]))
    return draw(st.lists(row, max_size=12))


FORMATS = {
    "lmdb": Format(
        lambda flow, path: flow.write_lmdb(path),
        lambda path: fl.from_lmdb(path),
        suffix=".lmdb",
        refused=[object(), 2**64, {1: 2}, 1j, "\ud800", [0, (1, object())]],
    ),
    "arrayrecord": Format(
        lambda flow, path: flow.write_arrayrecord(path, group_size=2),
        lambda path: fl.from_arrayrecord(path, object),
        suffix=".arrayrecord",
        refused=[object(), 2**64, {1: 2}, 1j, b"raw", [0, (1, object())]],
    ),
    "webdataset": Format(
        lambda flow, path: as_samples(flow).write_webdataset(path),
        from_samples,
        suffix=".tar",
        refused=[object(), 1j],
    ),
    "parquet": Format(
        lambda flow, path: flow.write_parquet(path, row_group=5),
        lambda path: fl.from_parquet(path),
        suffix=".parquet",
        rows=tables(),
        refused=[object(), (1, 2), (1, np.zeros(3)), (1j, SOME), (2**63, SOME), {"a": 1}],
    ),
}


@pytest.mark.hypothesis
@pytest.mark.parametrize("law", FORMAT_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", FORMATS)
def test_format(name: str, law: FormatLaw, tmp_path: Path) -> None:
    law(FORMATS[name], tmp_path)
