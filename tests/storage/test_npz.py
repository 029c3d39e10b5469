"""NPZ and NPY files: files of NumPy and tensorpack, refused files, and memory use."""

from __future__ import annotations

import gc
import io
import sys
import threading
import tracemalloc
import zipfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.errors import ElementError, SourceError, SpecMismatch
from flowdsl.testing.elements import same
from tests.sampling import examples
from tests.storage.elsewhere import served


class Sample(NamedTuple):
    image: NDArray[np.uint8]
    label: int


SAMPLES = [Sample(np.full((2, 3), i, np.uint8), i) for i in range(5)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.npz"


def test_records_are_read_back_unchanged(path: Path) -> None:
    assert fl.from_items(SAMPLES).write_npz(path) == 5
    got = fl.from_npz(path, Sample).collect()
    assert all(map(same, got, SAMPLES))
    assert not got[0].image.flags.writeable
    arrays = np.load(path)
    assert arrays["label"].tolist() == [0, 1, 2, 3, 4]
    assert arrays["image"].shape == (5, 2, 3)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_store_without_rows(path: Path) -> None:
    fl.from_items(SAMPLES[:0]).write_npz(path)
    assert fl.from_npz(path, Sample).collect() == []


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_files_written_by_numpy_are_read(path: Path, save: Any) -> None:
    table = np.asfortranarray(np.arange(20, dtype=">i2").reshape(10, 2))
    names = np.array([f"t{i}" for i in range(10)])
    save(path, x=table, names=names)
    rows = fl.from_npz(path).collect()
    assert all(
        same(row, {"x": x, "names": name}) for row, x, name in zip(rows, table, names, strict=True)
    )
    save(path, *[np.arange(3) + k for k in range(11)])
    assert fl.from_npz(path).collect() == [tuple(range(i, i + 11)) for i in range(3)]


def test_files_of_tensorpack_can_run_code(path: Path) -> None:
    rows = [[np.full((i, 2), i), i] for i in range(3)]
    # what ``NumpySerializer.save`` does, which no longer runs: it names ``np.object``
    np.savez_compressed(path, buffer=np.asarray(rows, dtype=object))
    with pytest.raises(SourceError, match="reading them runs code; pass trusted=True"):
        fl.from_npz(path)
    assert all(map(same, fl.from_npz(path, trusted=True).collect(), rows))


def test_remote_file_is_read(path: Path) -> None:
    fl.from_items(SAMPLES).write_npz(path)
    with served() as server:
        server.files["rows.npz"] = path.read_bytes()
        assert all(map(same, fl.from_npz(server.url("rows.npz"), Sample).collect(), SAMPLES))


def test_file_without_valid_rows_is_refused(path: Path) -> None:
    np.savez(path, x=np.zeros(2), y=np.zeros(3))
    with pytest.raises(SourceError, match="'x' has 2 rows and 'y' has 3"):
        fl.from_npz(path)
    np.savez(path, x=np.float64(1))
    with pytest.raises(SourceError, match="one value and has no rows"):
        fl.from_npz(path)
    np.savez(path, x=np.zeros(2, "i4,f4"))
    with pytest.raises(SourceError, match="numbers, text and times are read"):
        fl.from_npz(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "x")
    with pytest.raises(SourceError, match=r"holds 'readme\.txt', which is not an array"):
        fl.from_npz(path)
    np.savez(path, x=np.zeros(2))
    with pytest.raises(SpecMismatch, match="declared"):
        fl.from_npz(path, Sample)


def test_decompression_bomb_is_refused(path: Path) -> None:
    header = io.BytesIO()
    described = {"descr": "|u1", "fortran_order": False, "shape": (2**30,)}
    np.lib.format.write_array_header_1_0(header, described)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header.getvalue())
    data = path.read_bytes()
    size = len(header.getvalue()).to_bytes(4, "little")
    path.write_bytes(data.replace(size, (2**31).to_bytes(4, "little")))
    with pytest.raises(SourceError, match="and they cannot be"):
        fl.from_npz(path)


def test_damage_in_a_numpy_file_is_reported(path: Path) -> None:
    np.savez(path, x=np.arange(1000))
    data = bytearray(path.read_bytes())
    data[4000] ^= 1
    path.write_bytes(data)
    with pytest.raises(SourceError, match="not those that were written"):
        fl.from_npz(path).collect()


def test_damaged_row_is_named(path: Path) -> None:
    fl.from_items([b * np.ones(9, np.uint8) for b in b"abc"]).write_npz(path)
    path.write_bytes(path.read_bytes().replace(b"b" * 9, b"x" * 9))
    with pytest.raises(ElementError) as raised:
        fl.from_npz(path).collect()
    assert "row 1 of 'arr_0' cannot be read" in str(raised.value.__cause__)


def test_text_and_invalid_names_are_refused(path: Path) -> None:
    for row, why in (
        ((1, "text"), r"element\.1: text cannot be written.*write_hdf5"),
        ({"a\0b": 1}, "cannot be the name of an array"),
        ({"__flowdsl__": 1}, "reserved"),
    ):
        with pytest.raises(SpecMismatch, match=f"row 0: .*{why}"):
            fl.from_items([row]).write_npz(path)


def test_reading_and_writing_take_bounded_memory(path: Path) -> None:
    tracemalloc.start()
    try:
        fl.from_range(4000).map(lambda i: np.full(1000, float(i))).write_npz(path)
        assert sum(1 for _ in fl.from_npz(path)) == 4000
        assert tracemalloc.get_traced_memory()[1] < 8e6  # of 32e6
    finally:
        tracemalloc.stop()


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    hnp.arrays(
        st.sampled_from(["?", "i8", ">f2", "c8", "U3", "S2", "M8[s]"]),
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4),
    ),
    st.booleans(),
)
def test_any_numpy_array_is_read_back(tmp_path: Path, array: NDArray[Any], fortran: bool) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.asfortranarray(array) if fortran else array)
    got = fl.from_npy(path).collect()
    assert len(got) == len(array)
    assert all(map(same, got, array))


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (np.array([{}, 1]), "pickled Python objects"),
        (np.float64(1), "one value"),
        (np.zeros(2, "i4,f4"), "numbers, text and times"),
    ],
)
def test_unsupported_arrays_are_refused(tmp_path: Path, array: Any, why: str) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, array)
    with pytest.raises(SourceError, match=why):
        fl.from_npy(path)


def test_a_shape_beyond_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    with path.open("wb") as file:
        described = {"descr": "<f8", "fortran_order": True, "shape": (2**40, 2)}
        np.lib.format.write_array_header_1_0(file, described)
    with pytest.raises(SourceError, match="does not fit 0 bytes"):
        fl.from_npy(path)


class _Cycle:
    """Garbage whose collection runs Python code, so that another thread may run."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        sum(range(50))


def test_threads_that_open_files_at_the_same_time_read_their_headers(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(partial(gc.set_threshold, *gc.get_threshold()))
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    path = tmp_path / "rows.npy"
    np.save(path, np.zeros((3, 2), np.float32))
    node: Any = fl.from_npy(path).node
    failed: list[BaseException] = []

    def open_at_depth(depth: int) -> None:
        if depth:
            open_at_depth(depth - 1)
            return
        for _ in range(100):
            _Cycle()
            try:
                node.open()
            except BaseException as error:
                failed.append(error)

    gc.set_threshold(20)
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=open_at_depth, args=(3 * k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


class Train(NamedTuple):
    y_train: np.int64
    x_train: NDArray[np.float64]


class Images(TypedDict):
    x_test: NDArray[np.float64]


def test_some_arrays_of_a_file_are_read(tmp_path: Path) -> None:
    """As in the file of MNIST: arrays of two lengths, for training and for tests."""
    x, y = np.random.default_rng(0).random((7, 2)), np.arange(7)
    for save in (np.savez, np.savez_compressed):
        path = tmp_path / f"{save.__name__}.npz"
        save(path, x_train=x, x_test=x[:3], y_train=y, y_test=y[:3])
        flow = fl.from_npz(path, Train)
        assert same(flow.prefetch(procs=1).collect(), [*map(Train, y, x)])
        assert same(fl.from_npz(path, Images).collect(), [{"x_test": row} for row in x[:3]])
        with pytest.raises(
            SourceError, match=r"'x_train' has 7 rows and 'x_test' has 3.*declare a"
        ):
            fl.from_npz(path)


class OfTwo(NamedTuple):
    x: int
    y: float


class OnlyY(NamedTuple):
    y: float


class OnlyQ(NamedTuple):
    q: np.int64


@pytest.mark.parametrize("make", [OfTwo, lambda x, y: {"x": x, "y": y}])
def test_some_arrays_of_our_own_file_are_read(make: Any, tmp_path: Path) -> None:
    fl.from_items([make(i, i / 2) for i in range(4)]).write_npz(tmp_path / "rows.npz")
    flow = fl.from_npz(tmp_path / "rows.npz", OnlyY)
    assert flow.prefetch(procs=1).collect() == [OnlyY(i / 2) for i in range(4)]


def test_a_declared_array_that_is_missing_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(3), n=np.int64(3))
    with pytest.raises(SpecMismatch, match=r"has no array 'q', it has 'x', 'n'; declared OnlyQ"):
        fl.from_npz(tmp_path / "a.npz", OnlyQ)


def test_the_width_of_text_is_named(tmp_path: Path) -> None:
    rows = fl.from_items([np.str_("a"), np.str_("bcd")])
    with pytest.raises(SpecMismatch, match=r"of dtype <U3; the first row .* of dtype <U1: all"):
        rows.write_npz(tmp_path / "a.npz")
