"""Rows whose arrays are read from a file straight to their places in a batch."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.elements import preallocated
from flowdsl.storage import byte_files
from flowdsl.storage.byte_files import LocalFile
from flowdsl.storage.codec import decode, encode
from flowdsl.storage.layout import layout_of
from flowdsl.storage.lmdb import rows as lmdb_rows
from flowdsl.storage.lmdb.rows import RowsFile
from flowdsl.testing.elements import same

READ_INTO = LocalFile.read_into
LARGE = 700  # numbers of 4 bytes: too many for a leaf page

FORMS: list[Any] = [
    lambda x, y, label, name: x,
    lambda x, y, label, name: (x,),
    lambda x, y, label, name: (x, label),
    lambda x, y, label, name: (label, x),
    lambda x, y, label, name: (name, x, label, y),
    lambda x, y, label, name: {"x": x, "label": label},
    lambda x, y, label, name: {"name": name, "y": y, "x": x},
    lambda x, y, label, name: ((x, label), y),
    lambda x, y, label, name: {"x": x, "more": [label, name]},
    lambda x, y, label, name: {"x": x, "y": y} if label == 1 else {"y": y, "x": x},
]
ARRAYS = st.builds(
    lambda seed, dtype, shape: np.random.default_rng(seed).integers(0, 99, shape).astype(dtype),
    st.integers(0, 9),
    st.sampled_from(["<f4", "<f4", "<f4", ">i4", "M8[s]"]),
    st.sampled_from([(LARGE,), (LARGE,), (2, LARGE), (8,)]),
)
VALUES = st.tuples(
    ARRAYS, ARRAYS, st.sampled_from([1, 2, 300, 1 << 40]), st.sampled_from(["a", "b", "cde"])
)


class Labelled(NamedTuple):
    image: NDArray[np.float32]
    label: int


@pytest.fixture
def read_in_place() -> Iterator[Counter[bool]]:
    """Count the large rows that are read to places, and those for which this was not possible."""
    counts, read = Counter[bool](), RowsFile._row_into

    def counted(self: RowsFile, *args: Any) -> Any:
        row = read(self, *args)
        counts[row is not None] += 1
        return row

    with mock.patch.object(RowsFile, "_row_into", counted):
        yield counts


def outcome(flow: fl.Flow[Any, Any]) -> Any:
    try:
        return flow.collect()
    except fl.FlowError as error:
        return str(error)


def image(i: int) -> NDArray[np.float32]:
    return np.full((70, 100), i, np.float32)


@given(st.sampled_from(FORMS), VALUES, VALUES)
def test_a_layout_finds_the_arrays_of_an_element_like_the_first(
    form: Any, one: tuple[Any, ...], other: tuple[Any, ...]
) -> None:
    first, data = form(*one), memoryview(encode(form(*other)))
    layout = layout_of(decode(encode(first)), memoryview(encode(first)))
    if layout is None or layout.size != len(data):
        return
    gaps, arrays, begin = list[bytes](), list[Any](), 0
    for gap, array in zip(layout.gaps, (*layout.arrays, None), strict=True):
        gaps.append(bytes(data[begin : begin + gap.size]))
        begin += gap.size
        if array is not None:
            size = np.empty(array.shape, array.dtype).nbytes
            arrays.append(np.ndarray(array.shape, array.dtype, data[begin : begin + size]))
            begin += size
    found = layout.element(gaps, arrays)
    assert found is None or same(found, decode(data))


def test_rows_of_many_layouts_make_few_guesses(
    tmp_path: Path, read_in_place: Counter[bool]
) -> None:
    rows = [(image(i), "x" * (i % 40)) for i in range(200)]
    fl.from_items(rows).write_lmdb(tmp_path / "a.lmdb")
    flow: fl.Flow[Any, Any] = fl.from_lmdb(tmp_path / "a.lmdb")
    with mock.patch.object(lmdb_rows, "layout_of", wraps=layout_of) as guesses:
        assert same(flow.batch(20).collect(), flow.map(lambda x: x).batch(20).collect())
    assert len(guesses.mock_calls) <= 8
    assert read_in_place[True] > 0  # of the layout that was guessed last


@pytest.mark.parametrize(
    "other",
    [("ab", image(2), 200), ("a", image(2).astype("<i4"), 300), ("a", image(2).T.copy(), 300)],
    ids=["another place", "another dtype", "another shape"],
)
def test_rows_of_another_layout_are_not_taken_for_the_first(
    other: tuple[str, NDArray[Any], int], tmp_path: Path
) -> None:
    first = ("a", image(1), 300)
    assert len(encode(first)) == len(encode(other))
    fl.from_items([first, first, other, first]).write_lmdb(tmp_path / "a.lmdb")
    flow: fl.Flow[Any, Any] = fl.from_lmdb(tmp_path / "a.lmdb")
    assert same(outcome(flow.batch(4)), outcome(flow.map(lambda x: x).batch(4)))


def test_arrays_have_their_names_when_dicts_differ_in_the_order_of_keys(tmp_path: Path) -> None:
    rows = [{"x": image(i), "y": image(-i)} for i in range(12)]
    rows[1::2] = [{"y": row["y"], "x": row["x"]} for row in rows[1::2]]
    fl.from_items(rows).write_lmdb(tmp_path / "a.lmdb")
    flow: fl.Flow[Any, Any] = fl.from_lmdb(tmp_path / "a.lmdb")
    assert same(flow.batch(6).collect(), fl.from_items(rows).batch(6).collect())


@settings(max_examples=40)
@given(
    form=st.sampled_from(FORMS),
    values=st.lists(VALUES, min_size=1, max_size=8),
    alike=st.booleans(),
    n=st.integers(1, 5),
)
def test_batches_of_stored_rows_equal_batches_of_the_rows(
    form: Any, values: list[Any], alike: bool, n: int
) -> None:
    rows = [form(*(values[0][:2] + v[2:] if alike else v)) for v in values]
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(preallocated, "LEAST", 2048):
        path = f"{folder}/rows.lmdb"
        fl.from_items(rows).write_lmdb(path)
        stored: fl.Flow[Any, Any] = fl.from_lmdb(path)
        for flow in (stored, stored.shuffle(seed=3)):
            assert same(outcome(flow.batch(n)), outcome(flow.map(lambda x: x).batch(n)))


@pytest.mark.parametrize("form", range(len(FORMS) - 3))
def test_rows_of_one_layout_are_read_in_place(
    form: int, tmp_path: Path, read_in_place: Counter[bool]
) -> None:
    make = FORMS[form]
    flow = fl.from_range(12).map(lambda i: make(image(i), image(-i), i, f"row {i:02}"))
    flow.write_lmdb(tmp_path / "a.lmdb")
    stored: fl.Flow[Any, Any] = fl.from_lmdb(tmp_path / "a.lmdb")
    assert same(stored.batch(4).collect(), flow.batch(4).collect())
    assert read_in_place == {True: 8, False: 1}  # the first row of a batch has no place yet


def test_namedtuples_are_read_in_place(tmp_path: Path, read_in_place: Counter[bool]) -> None:
    rows = fl.from_range(12).map(lambda i: Labelled(image(i), i))
    rows.write_lmdb(tmp_path / "a.lmdb")
    flow = fl.from_lmdb(tmp_path / "a.lmdb", Labelled).batch(4)
    assert same(flow.collect(), rows.batch(4).collect())
    assert read_in_place[True] == 8


@pytest.mark.parametrize("suffix", ["npz", "lmdb"])
@pytest.mark.parametrize("form", [0, 2, 3, 5])
def test_each_format_reads_rows_in_place(suffix: str, form: int, tmp_path: Path) -> None:
    make = FORMS[form]
    flow = fl.from_range(12).map(lambda i: make(image(i), image(-i), i, "row"))
    path = tmp_path / f"rows.{suffix}"
    flow.write_npz(path) if suffix == "npz" else flow.write_lmdb(path)
    stored: fl.Flow[Any, Any] = fl.from_npz(path) if suffix == "npz" else fl.from_lmdb(path)
    with mock.patch.object(LocalFile, "read_into", autospec=True, side_effect=READ_INTO) as calls:
        assert same(stored.batch(4).collect(), flow.batch(4).collect())
    assert len(calls.mock_calls) >= 8


def test_rows_of_npy_files_are_read_in_place(tmp_path: Path) -> None:
    images = np.stack([image(i) for i in range(12)])
    np.save(tmp_path / "a.npy", images)
    flow = fl.from_npy(tmp_path / "a.npy", NDArray[np.float32]).shuffle(seed=1)
    with mock.patch.object(LocalFile, "read_into", autospec=True, side_effect=READ_INTO) as calls:
        assert same(flow.batch(4).collect(), flow.map(lambda x: x).batch(4).collect())
    assert len(calls.mock_calls) == 9


def test_damaged_rows_of_npz_files_raise_the_same_error_in_batches(tmp_path: Path) -> None:
    fl.from_range(12).map(image).write_npz(tmp_path / "a.npz")
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[data.index(image(5).tobytes()) + 20_000] ^= 1
    (tmp_path / "a.npz").write_bytes(data)
    flow = fl.from_npz(tmp_path / "a.npz", NDArray[np.float32])
    with pytest.raises(fl.ElementError, match="not those that were written") as alone:
        flow.collect()
    with pytest.raises(fl.ElementError) as batched:
        flow.batch(4).collect()
    assert str(batched.value) == str(alone.value)


def test_rows_of_several_files_are_read_in_place(
    tmp_path: Path, read_in_place: Counter[bool]
) -> None:
    for name in "ab":
        fl.from_range(12).map(image).write_lmdb(tmp_path / f"{name}.lmdb")
    flows = [fl.from_lmdb(tmp_path / f"{name}.lmdb", NDArray[np.float32]) for name in "ab"]
    flow = fl.interleave(flows).shuffle(seed=1)
    assert same(flow.batch(8).collect(), flow.map(lambda x: x).batch(8).collect())
    assert read_in_place[True] > 12


@attrs.define
class Exchanged:
    image: NDArray[np.float32]
    mask: NDArray[np.float32]

    def __attrs_post_init__(self) -> None:
        self.image, self.mask = self.mask, self.image


def test_a_constructor_never_sees_memory_of_a_batch(
    tmp_path: Path, read_in_place: Counter[bool]
) -> None:
    rows = fl.from_range(12).map(lambda i: {"image": image(i), "mask": image(-i)})
    rows.write_lmdb(tmp_path / "a.lmdb")
    flow = fl.from_lmdb(tmp_path / "a.lmdb", Exchanged)
    assert same(flow.batch(4).collect(), flow.map(lambda x: x).batch(4).collect())
    assert not read_in_place


def test_a_function_never_sees_memory_of_a_batch(
    tmp_path: Path, read_in_place: Counter[bool]
) -> None:
    fl.from_range(12).map(image).write_lmdb(tmp_path / "a.lmdb")
    flow = fl.from_lmdb(tmp_path / "a.lmdb", NDArray[np.float32])
    writeable = flow.map(lambda x: bool(x.flags.writeable)).collect()
    assert writeable == [False] * 12
    flow.map(lambda x: x).batch(4).collect()
    assert not read_in_place


@pytest.mark.parametrize("several", [False, True])
def test_a_row_in_two_batches_is_unchanged_in_the_second_when_the_first_is_changed(
    several: bool, tmp_path: Path
) -> None:
    fl.from_range(8).map(image).write_lmdb(tmp_path / "a.lmdb")
    rows = fl.from_lmdb(tmp_path / "a.lmdb", NDArray[np.float32]).repeat_each(3)
    flow = rows.concat(rows) if several else rows
    seen = list[float]()
    for batch in flow.batch(4):
        seen += batch[:, 0, 0].tolist()
        batch[:] = -1
    assert seen == [i // 3 for i in range(24)] * (1 + several)


@pytest.mark.parametrize("row", [1, 5, 11])
def test_a_damaged_row_raises_the_same_error_as_when_it_is_read_alone(
    row: int, tmp_path: Path, read_in_place: Counter[bool]
) -> None:
    path = tmp_path / "a.lmdb"
    fl.from_range(12).map(image).write_lmdb(path)
    data = bytearray(path.read_bytes())
    data[data.index(image(row).tobytes()) + 20_000] ^= 1
    path.write_bytes(data)
    flow = fl.from_lmdb(path, NDArray[np.float32])
    with pytest.raises(fl.ElementError, match=f"row {row} cannot be read: .* checksum") as alone:
        flow.collect()
    with pytest.raises(fl.ElementError) as batched:
        flow.batch(4).collect()
    assert str(batched.value) == str(alone.value)
    assert read_in_place[False] == 1 + (row > 1)  # there is no layout before row 1


def test_rows_of_a_file_that_has_grown_or_without_preadv_are_read_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.lmdb"
    fl.from_range(12).map(image).write_lmdb(path)
    flow = fl.from_lmdb(path, NDArray[np.float32]).batch(4)
    expected = fl.from_range(12).map(image).batch(4).collect()
    run = iter(flow)
    assert same(next(run), expected[0])
    fl.from_range(3).map(image).write_lmdb(path, append=True)
    assert same(list(run), expected[1:])
    fl.from_range(12).map(image).write_lmdb(path, overwrite=True)
    monkeypatch.setattr(byte_files, "read_into", None)
    assert same(flow.collect(), expected)


def test_workers_read_in_place(tmp_path: Path) -> None:
    rows = fl.from_range(64).map(lambda i: (image(i), i))
    rows.write_lmdb(tmp_path / "a.lmdb")
    flow = fl.from_lmdb(tmp_path / "a.lmdb", tuple[NDArray[np.float32], int])
    shuffled = flow.shuffle(seed=2).batch(8)
    assert same(shuffled.prefetch(procs=2).collect(), shuffled.collect())
