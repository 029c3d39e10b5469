"""Rows whose arrays are read from a file straight to their places in a batch."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import attrs
import h5py  # type: ignore[import-untyped]  # it has no types
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.elements import preallocated
from flowdsl.resources import systems
from flowdsl.storage import layout as layouts
from flowdsl.storage.arrays.hdf5 import dataset_names
from flowdsl.storage.byte_files import LocalFile
from flowdsl.storage.codec import decode, encode, encode_numbered
from flowdsl.storage.layout import layout_of
from flowdsl.storage.tfrecord.framing import framed
from flowdsl.testing.elements import same
from tests.sampling import examples

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


class Store(NamedTuple):
    """A format: how a flow is written, and read again."""

    write: Callable[[fl.Flow[Any, Any], Path], object]
    read: Callable[..., fl.Flow[Any, Any]]


def write_hdf5(flow: fl.Flow[Any, Any], path: Path) -> None:
    first = next(iter(flow))
    is_array = type(first) is np.ndarray
    flow.write_hdf5(path, "x" if is_array else [str(k) for k in range(len(first))])


def read_hdf5(path: Path, element: Any = object) -> fl.Flow[Any, Any]:
    names = dataset_names(path)
    return fl.from_hdf5(path, "x" if names == ["x"] else names, element)


STORES = {
    "lmdb": Store(lambda flow, path: flow.write_lmdb(path), fl.from_lmdb),
    "tfrecord": Store(
        lambda flow, path: flow.write_tfrecord(path),
        lambda path, element=object: fl.from_tfrecord(path, element),
    ),
    "npz": Store(lambda flow, path: flow.write_npz(path), fl.from_npz),
    "hdf5": Store(write_hdf5, read_hdf5),
}
ENCODED = ["lmdb", "tfrecord"]
"""The formats whose rows may have any structure."""
every_format = pytest.mark.parametrize("suffix", STORES)
every_encoded_format = pytest.mark.parametrize("suffix", ENCODED)


def stored(
    suffix: str, rows: fl.Flow[Any, Any], folder: Path, element: Any = object
) -> fl.Flow[Any, Any]:
    """The rows of a file of this format, which is written first."""
    path = folder / f"rows.{suffix}"
    STORES[suffix].write(rows, path)
    return STORES[suffix].read(path, element)


def damage(path: Path, part: bytes) -> None:
    """Flip a bit within the part of a file."""
    data = bytearray(path.read_bytes())
    data[data.index(part) + len(part) // 2] ^= 1
    path.write_bytes(data)


@pytest.fixture
def read_in_place() -> Iterator[Counter[bool]]:
    """Count the reads to places, by whether they filled them."""
    counts = Counter[bool]()

    def counted(self: LocalFile, *args: Any) -> bool:
        filled = READ_INTO(self, *args)
        counts[filled] += 1
        return filled

    with mock.patch.object(LocalFile, "read_into", counted):
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


@every_encoded_format
def test_rows_of_many_layouts_make_few_guesses(
    suffix: str, tmp_path: Path, read_in_place: Counter[bool]
) -> None:
    rows = fl.from_items([(image(i), "x" * (i % 40)) for i in range(200)])
    flow = stored(suffix, rows, tmp_path)
    with mock.patch.object(layouts, "layout_of", wraps=layout_of) as guesses:
        assert same(flow.batch(20).collect(), rows.batch(20).collect())
    assert len(guesses.mock_calls) <= 8
    assert read_in_place[True] > 0  # of the layout that was guessed last


@every_encoded_format
@pytest.mark.parametrize(
    "other",
    [("ab", image(2), 200), ("a", image(2).astype("<i4"), 300), ("a", image(2).T.copy(), 300)],
    ids=["another place", "another dtype", "another shape"],
)
def test_rows_of_another_layout_are_not_taken_for_the_first(
    suffix: str, other: tuple[str, NDArray[Any], int], tmp_path: Path
) -> None:
    first = ("a", image(1), 300)
    assert len(encode(first)) == len(encode(other))
    flow = stored(suffix, fl.from_items([first, first, other, first]), tmp_path)
    assert same(outcome(flow.batch(4)), outcome(flow.map(lambda x: x).batch(4)))


@every_encoded_format
def test_a_row_of_the_last_layout_is_not_read_to_the_places_of_a_batch_of_another_dtype(
    suffix: str, tmp_path: Path
) -> None:
    kinds = ["<i4"] * 4 + ["<f4", "<i4", "<f4", "<f4"]
    rows = fl.from_items([np.full((70, 100), i, kind) for i, kind in enumerate(kinds)])
    flow = stored(suffix, rows, tmp_path)
    assert same(outcome(flow.batch(4)), outcome(flow.map(lambda x: x).batch(4)))


@every_encoded_format
def test_arrays_have_their_names_when_dicts_differ_in_the_order_of_keys(
    suffix: str, tmp_path: Path
) -> None:
    rows = [{"x": image(i), "y": image(-i)} for i in range(12)]
    rows[1::2] = [{"y": row["y"], "x": row["x"]} for row in rows[1::2]]
    flow = stored(suffix, fl.from_items(rows), tmp_path)
    assert same(flow.batch(6).collect(), fl.from_items(rows).batch(6).collect())


@every_encoded_format
@settings(max_examples=examples(600))
@given(
    form=st.sampled_from(FORMS),
    values=st.lists(VALUES, min_size=1, max_size=8),
    alike=st.booleans(),
    n=st.integers(1, 5),
)
def test_batches_of_stored_rows_equal_batches_of_the_rows(
    suffix: str, form: Any, values: list[Any], alike: bool, n: int
) -> None:
    rows = [form(*(values[0][:2] + v[2:] if alike else v)) for v in values]
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(preallocated, "LEAST_BYTES", 2048),
    ):
        flow = stored(suffix, fl.from_items(rows), Path(folder))
        for ordered in (flow, flow.shuffle(seed=3)):
            assert same(outcome(ordered.batch(n)), outcome(ordered.map(lambda x: x).batch(n)))


@every_encoded_format
@pytest.mark.parametrize("form", range(len(FORMS) - 3))
def test_rows_of_one_layout_are_read_in_place(
    suffix: str, form: int, tmp_path: Path, read_in_place: Counter[bool]
) -> None:
    make = FORMS[form]
    rows = fl.from_range(12).map(lambda i: make(image(i), image(-i), i, f"row {i:02}"))
    flow = stored(suffix, rows, tmp_path)
    assert same(flow.batch(4).collect(), rows.batch(4).collect())
    assert read_in_place == {True: 8}  # the first row of a batch has no place yet, one no layout


@every_format
@pytest.mark.parametrize("form", [0, 2, 3])
def test_each_format_reads_rows_in_place(
    suffix: str, form: int, tmp_path: Path, read_in_place: Counter[bool]
) -> None:
    rows = fl.from_range(14).map(lambda i: FORMS[form](image(i), image(-i), i, "row"))
    flow = stored(suffix, rows, tmp_path)
    batches = flow.batch(4).collect()
    assert same(batches, rows.batch(4).collect())
    assert same(batches, flow.map(lambda x: x).batch(4).collect())
    assert read_in_place[True] >= 9
    arrays = [part for batch in batches for part in (batch if form else [batch])]
    assert all(array.flags.writeable for array in arrays)


def test_rows_of_npy_files_are_read_in_place(tmp_path: Path, read_in_place: Counter[bool]) -> None:
    np.save(tmp_path / "a.npy", np.stack([image(i) for i in range(12)]))
    flow = fl.from_npy(tmp_path / "a.npy", NDArray[np.float32]).shuffle(seed=1)
    assert same(flow.batch(4).collect(), flow.map(lambda x: x).batch(4).collect())
    assert read_in_place == {True: 9}


ROW = (70, 100)
HOW_STORED: dict[str, tuple[bool, Callable[[Any, NDArray[Any]], object]]] = {
    "contiguous": (True, lambda file, x: file.create_dataset("x", data=x)),
    "in chunks of rows": (True, lambda file, x: file.create_dataset("x", data=x, chunks=(5, *ROW))),
    "of another machine": (True, lambda file, x: file.create_dataset("x", data=x.astype(">i4"))),
    "in parts of rows": (
        False,
        lambda file, x: file.create_dataset(
            "x", data=x, chunks=(5, *ROW[::-1]), maxshape=(None, None, None)
        ),
    ),
    "compressed": (
        False,
        lambda file, x: file.create_dataset("x", data=x, chunks=(5, *ROW), compression=1),
    ),
    "with checksums of chunks": (
        False,
        lambda file, x: file.create_dataset("x", data=x, chunks=(5, *ROW), fletcher32=True),
    ),
    "not stored": (
        False,
        lambda file, x: file.create_dataset("x", x.shape, x.dtype, chunks=(5, *ROW), fillvalue=7),
    ),
    "of fewer bits": (False, lambda file, x: with_fewer_bits(file, x)),
}
"""Ways in which h5py stores arrays, and whether their bytes are in the file as in memory."""


def with_fewer_bits(file: Any, values: NDArray[Any]) -> None:
    kind = h5py.h5t.STD_I32LE.copy()
    kind.set_precision(24)
    space = h5py.h5s.create_simple(values.shape)
    h5py.h5d.create(file.id, b"x", kind, space).write(space, space, values)


@pytest.mark.parametrize("userblock", [0, 512])
@pytest.mark.parametrize("how", HOW_STORED)
def test_arrays_of_h5py_are_read_in_place_where_they_are_stored_as_in_memory(
    how: str, userblock: int, tmp_path: Path, read_in_place: Counter[bool]
) -> None:
    path = tmp_path / "a.h5"
    as_in_memory, store = HOW_STORED[how]
    values = np.random.default_rng(3).integers(-999, 999, (22, *ROW)).astype("<i4")
    with h5py.File(path, "w", userblock_size=userblock) as file:
        store(file, values)
    with h5py.File(path) as file:
        values = np.asarray(file["x"])
    flow = fl.from_hdf5(path, "x").shuffle(seed=4)
    expected = fl.from_items(list(values)).shuffle(seed=4)
    assert same(flow.batch(4).collect(), expected.batch(4).collect())
    assert same(flow.collect(), expected.collect())
    assert bool(read_in_place[True]) is (as_in_memory and not userblock)


@every_format
def test_namedtuples_are_read_in_place(
    suffix: str, tmp_path: Path, read_in_place: Counter[bool]
) -> None:
    rows = fl.from_range(12).map(lambda i: Labelled(image(i), i))
    flow = stored(suffix, rows, tmp_path, Labelled)
    assert same(flow.batch(4).collect(), rows.batch(4).collect())
    assert read_in_place[True] >= 8


@every_format
def test_rows_of_several_files_are_read_in_place(
    suffix: str, tmp_path: Path, read_in_place: Counter[bool]
) -> None:
    flows = list[fl.Flow[Any, Any]]()
    for name in "ab":
        (tmp_path / name).mkdir()
        flows.append(stored(suffix, fl.from_range(12).map(image), tmp_path / name))
    flow = fl.interleave(flows).shuffle(seed=1)
    assert same(flow.batch(8).collect(), flow.map(lambda x: x).batch(8).collect())
    assert read_in_place[True] > 12


def test_rows_of_shards_are_read_in_place(tmp_path: Path, read_in_place: Counter[bool]) -> None:
    for name in "ab":
        fl.from_range(12).map(image).write_tfrecord(tmp_path / f"{name}.tfrecord")
    flow = fl.from_tfrecord(tmp_path / "*.tfrecord", NDArray[np.float32]).shuffle(seed=1)
    assert same(flow.batch(8).collect(), flow.map(lambda x: x).batch(8).collect())
    assert read_in_place[True] > 12


@attrs.define
class Exchanged:
    image: NDArray[np.float32]
    mask: NDArray[np.float32]

    def __attrs_post_init__(self) -> None:
        self.image, self.mask = self.mask, self.image


@every_encoded_format
def test_a_constructor_never_sees_memory_of_a_batch(
    suffix: str, tmp_path: Path, read_in_place: Counter[bool]
) -> None:
    rows = fl.from_range(12).map(lambda i: {"image": image(i), "mask": image(-i)})
    flow = stored(suffix, rows, tmp_path, Exchanged)
    assert same(flow.batch(4).collect(), flow.map(lambda x: x).batch(4).collect())
    assert not read_in_place


@every_format
def test_a_function_never_sees_memory_of_a_batch(
    suffix: str, tmp_path: Path, read_in_place: Counter[bool]
) -> None:
    flow = stored(suffix, fl.from_range(12).map(image), tmp_path)
    writeable = flow.map(lambda x: bool(x.flags.writeable)).collect()
    assert writeable == [False] * 12
    flow.map(lambda x: x).batch(4).collect()
    assert not read_in_place


@every_format
@pytest.mark.parametrize("several", [False, True])
def test_a_row_in_two_batches_is_unchanged_in_the_second_when_the_first_is_changed(
    suffix: str, several: bool, tmp_path: Path
) -> None:
    rows = stored(suffix, fl.from_range(8).map(image), tmp_path).repeat_each(3)
    flow = rows.concat(rows) if several else rows
    seen = list[float]()
    for batch in flow.batch(4):
        seen += batch[:, 0, 0].tolist()
        batch[:] = -1
    assert seen == [i // 3 for i in range(24)] * (1 + several)


@every_format
@pytest.mark.parametrize("row", [1, 5, 11])
def test_a_damaged_row_raises_the_same_error_as_when_it_is_read_alone(
    suffix: str, row: int, tmp_path: Path, read_in_place: Counter[bool]
) -> None:
    stored(suffix, fl.from_range(12).map(image), tmp_path)
    damage(tmp_path / f"rows.{suffix}", image(row).tobytes())
    flow = STORES[suffix].read(tmp_path / f"rows.{suffix}")
    with pytest.raises(fl.ElementError, match=rf"row {row} of.*(checksum|written)") as alone:
        flow.collect()
    assert not read_in_place
    with pytest.raises(fl.ElementError) as batched:
        flow.batch(4).collect()
    assert str(batched.value) == str(alone.value)
    assert row == 1 or read_in_place[True] > 0


def test_rows_of_tfrecord_files_that_were_exchanged_are_not_read_in_place(tmp_path: Path) -> None:
    stored("tfrecord", fl.from_range(12).map(image), tmp_path)
    path = tmp_path / "rows.tfrecord"
    data, record = path.read_bytes(), len(framed(encode_numbered(0, image(0)), lambda *_: 0))
    start, end = 5 * record, 7 * record
    path.write_bytes(data[:start] + data[start + record : end] + data[start:][:record] + data[end:])
    flow = fl.from_tfrecord(path, NDArray[np.float32])
    with pytest.raises(fl.ElementError, match="row 5 cannot be read: it was written as row 6"):
        flow.batch(4).collect()


@every_format
def test_damaged_rows_are_left_out_of_batches_if_that_is_asked_for(
    suffix: str, tmp_path: Path
) -> None:
    stored(suffix, fl.from_range(12).map(image), tmp_path)
    for row in (4, 6, 11):
        damage(tmp_path / f"rows.{suffix}", image(row).tobytes())
    rows = STORES[suffix].read(tmp_path / f"rows.{suffix}")
    found = rows.prefetch(procs=0, on_error=lambda error: None).batch(4).collect()
    expected = fl.from_range(12).filter(lambda i: i not in (4, 6, 11)).map(image).batch(4)
    assert same(found, expected.collect())


@every_format
def test_a_file_that_is_cut_short_raises_the_same_error_as_when_rows_are_read_alone(
    suffix: str, tmp_path: Path
) -> None:
    large = fl.from_range(12).map(lambda i: np.tile(image(i), 2))  # too large to be read ahead
    rows = stored(suffix, large, tmp_path)
    alone, batched = iter(rows), iter(rows.batch(4))
    assert same(next(batched), np.stack([next(alone) for _ in range(4)]))
    path = tmp_path / f"rows.{suffix}"
    os.truncate(path, path.stat().st_size // 2)
    errors = list[str]()
    for run in (alone, batched):
        with pytest.raises(fl.ElementError) as found:
            list(run)
        errors.append(str(found.value))
    assert errors[0] == errors[1]


@every_format
def test_a_pass_that_is_resumed_has_the_remaining_batches(
    suffix: str, tmp_path: Path, read_in_place: Counter[bool]
) -> None:
    flow = stored(suffix, fl.from_range(22).map(image), tmp_path).shuffle(seed=5).batch(4)
    run = iter(flow)
    before = [next(run), next(run)]
    read_in_place.clear()
    after = list(flow.resume(run.state_dict()))
    assert read_in_place[True] >= 8
    assert same(before + after, flow.collect())


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
    monkeypatch.setattr(systems, "read_into", None)
    assert same(flow.collect(), expected)


@pytest.mark.parametrize(
    "suffix", [pytest.param(one, marks=pytest.mark.long if one != "lmdb" else ()) for one in STORES]
)
def test_workers_read_in_place(suffix: str, tmp_path: Path) -> None:
    flow = stored(suffix, fl.from_range(64).map(lambda i: (image(i), i)), tmp_path)
    shuffled = flow.shuffle(seed=2).batch(8)
    assert same(shuffled.prefetch(procs=2).collect(), shuffled.collect())
