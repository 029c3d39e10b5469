"""HDF5 files: files of h5py and tensorpack, links to other files, and memory use."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import h5py  # type: ignore[import-untyped]  # it has no types
import numpy as np
import pytest
from numpy.typing import NDArray
from tensorpack.dataflow import DataFromList  # type: ignore[import-untyped]  # it has no types
from tensorpack.dataflow.serialize import HDF5Serializer  # type: ignore[import-untyped]  # it has no types

import flowdsl as fl
from flowdsl.elements.specs import ArraySpec, StructSpec, join, spec_of
from flowdsl.errors import ElementError, InvalidFlow, SourceError, SpecMismatch
from flowdsl.storage.arrays import hdf5, hdf5_extents
from flowdsl.testing.elements import same


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.h5"


class Sample(NamedTuple):
    image: NDArray[np.uint8]
    label: int


SAMPLES = [Sample(np.full((2, 3), i, np.uint8), i) for i in range(5)]


def test_records_are_read_back_unchanged(path: Path) -> None:
    assert fl.from_items(SAMPLES).write_hdf5(path, ["images", "labels"]) == 5
    got = fl.from_hdf5(path, ["images", "labels"], Sample).collect()
    assert all(map(same, got, SAMPLES))
    assert not got[0].image.flags.writeable
    labels = fl.from_hdf5(path, "labels", int)
    assert labels.collect() == [0, 1, 2, 3, 4]
    assert str(fl.from_hdf5(path, ["labels", "images"]).node.spec(False)) == "(int, uint8[2, 3])"


def test_h5py_reads_what_was_written(path: Path) -> None:
    rows = [(np.full(2, i, ">f4"), f"ä{i}", i % 2 == 0) for i in range(3000)]
    fl.from_items(rows).write_hdf5(path, ["/x", "group/text", "flag"])
    whole: Any = h5py.File
    with whole(path) as file:
        assert file["x"].dtype == ">f4"
        assert file["x"].shape == (3000, 2)
        assert file["group/text"].asstr()[2999] == "ä2999"
        assert file["flag"].dtype == np.bool_
    assert all(map(same, fl.from_hdf5(path, ["x", "group/text", "flag"]).collect(), rows))


def test_file_without_rows_has_only_names(path: Path) -> None:
    fl.from_items(SAMPLES[:0]).write_hdf5(path, ["images", "labels"])
    assert fl.from_hdf5(path, ["images", "labels"], Sample).collect() == []
    with pytest.raises(SourceError, match="has no dataset 'other'; it has 'images', 'labels'"):
        fl.from_hdf5(path, "other")


@pytest.mark.parametrize("how", [{}, {"chunks": (3, 2)}, {"chunks": (4, 1), "compression": "gzip"}])
def test_datasets_written_by_h5py_are_read(path: Path, how: dict[str, Any]) -> None:
    table = np.arange(20, dtype=">i2").reshape(10, 2)
    with h5py.File(path, "w") as file:
        file.create_dataset("a/b", data=table, **how)
        file["a/again"] = h5py.SoftLink("b")
        file["text"] = [f"t{i}" for i in range(10)]
        file["bytes"] = np.array([b"ab"] * 10)
    row = fl.from_hdf5(path, ["/a/again/", "text", "bytes"]).node.open()  # type: ignore[attr-defined]  # a source
    for i in (9, 0, 5, 4, 9):
        assert same(row(i), (table[i], f"t{i}", np.bytes_(b"ab")))


def test_files_written_by_tensorpack_are_read(path: Path) -> None:
    rows: list[Any] = [[np.full((2, 2), i, np.float32), i] for i in range(4)]
    HDF5Serializer.save(DataFromList(rows, shuffle=False), str(path), ["x", "y"])
    got = fl.from_hdf5(path, ["x", "y"]).collect()
    assert all(map(same, got, [(x, np.int64(y)) for x, y in rows]))
    ours = path.with_name("ours.h5")
    fl.from_items([(x, y) for x, y in rows]).write_hdf5(ours, ["x", "y"])
    load: Any = HDF5Serializer.load(str(ours), ["x", "y"], shuffle=False)
    load.reset_state()
    assert all(map(same, [(x, int(y)) for x, y in load], [(x, y) for x, y in rows]))


def test_links_to_other_files_are_refused(path: Path) -> None:
    other = path.with_name("other.h5")
    with h5py.File(other, "w") as file:
        file["x"] = np.arange(3)
    with h5py.File(path, "w") as file:
        file["link"] = h5py.ExternalLink(str(other), "x")
        file["soft"] = h5py.SoftLink("/link")
        file["loop"] = h5py.SoftLink("loop")
        layout = h5py.VirtualLayout((3,), np.int64)
        layout[:] = h5py.VirtualSource(str(other), "x", (3,))
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("raw", (3,), "u1", external=[(str(other), 0, 3)])
    for name in ("link", "soft", "virtual", "raw"):
        with pytest.raises(SourceError, match="data in other files is not read"):
            fl.from_hdf5(path, name)
    with pytest.raises(SourceError, match="has no dataset 'loop'"):
        fl.from_hdf5(path, "loop")


def test_non_numeric_array_is_refused(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["compound"] = np.zeros(3, [("a", "i4"), ("b", "f4")])
        file.create_dataset("lists of text", (3,), h5py.vlen_dtype(h5py.string_dtype()))
        file.create_dataset("pairs of lists", (3, 2), h5py.vlen_dtype(np.int32))
        file.create_dataset("references", (3,), h5py.ref_dtype)
        file["one"] = 3
        file["huge"] = np.zeros(2)
        file.create_dataset("bomb", (2, 2**40), "u1", chunks=(1, 2**16), compression="gzip")
        file["group/x"] = np.zeros(3)
    for name, why in {
        "compound": "not compounds",
        "lists of text": "only numbers, text and lists of numbers can be read",
        "pairs of lists": "has several lists in a row",
        "references": "references",
        "one": "has no rows",
        "bomb": "bytes in a file of",
        "group": "has no dataset 'group'; it has 'bomb', 'compound', 'group/x'",
    }.items():
        with pytest.raises(SourceError, match=why):
            fl.from_hdf5(path, name)
    with pytest.raises(SourceError, match="'huge' has 2 rows and 'group/x' has 3"):
        fl.from_hdf5(path, ["huge", "group/x"])
    with pytest.raises(SpecMismatch, match="declared float32"):
        fl.from_hdf5(path, "huge", np.float32)


@pytest.mark.parametrize("names", [[], 3, [""], ["a/../b"], ["__flowdsl__"], [3], ["a\0"]])
def test_invalid_names_are_refused(path: Path, names: Any) -> None:
    with pytest.raises(InvalidFlow, match="data_paths"):
        fl.from_items([(1,)]).write_hdf5(path, names)
    with pytest.raises(InvalidFlow, match="data_paths"):
        fl.from_hdf5(path, names)


@pytest.mark.parametrize("names", [["a", "a"], ["a", "a/b"]])
def test_conflicting_names_are_refused(path: Path, names: list[str]) -> None:
    with pytest.raises(InvalidFlow, match="'a' twice, or within another"):
        fl.from_items([(1, 2)]).write_hdf5(path, names)


def test_component_that_differs_from_the_first_row_is_named(path: Path) -> None:
    rows = [(1, np.zeros(2)), (2, np.zeros(3))]
    with pytest.raises(SpecMismatch, match=r"row 1: element\.y: float64\[3\].*first row has"):
        fl.from_items(rows).write_hdf5(path, ["x", "y"])


@pytest.mark.parametrize("how", [{}, {"chunks": (7,)}, {"chunks": (7,), "compression": 1}], ids=str)
@pytest.mark.parametrize("dtype", [np.int16, np.float64, np.bool_])
def test_lists_of_any_length_are_arrays(path: Path, how: dict[str, Any], dtype: type) -> None:
    lists: list[NDArray[Any]] = [np.arange(i % 5).astype(dtype) for i in range(20)]
    with h5py.File(path, "w") as file:
        stored = file.create_dataset("x", (20,), h5py.vlen_dtype(dtype), **how)
        for i, each in enumerate(lists):
            if len(each):  # the others are never written
                stored[i] = each
        file["y"] = np.arange(20)
    flow = fl.from_hdf5(path, ["x", "y"])
    assert all(same(x, lists[y]) for x, y in flow.shuffle(seed=1))
    assert len(flow) == 20
    assert flow.node.spec(False) == StructSpec(
        tuple, (("0", ArraySpec(np.dtype(dtype), (None,))), ("1", ArraySpec(np.dtype("i8"), ())))
    )
    assert not flow.at(4)[0].flags.writeable
    with pytest.raises(SpecMismatch, match="declared uint8"):
        fl.from_hdf5(path, "x", NDArray[np.uint8])


@pytest.mark.parametrize("dtype", [">i4", ">f8", ">c16"])
def test_lists_in_another_byte_order_are_refused(path: Path, dtype: str) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (2,), h5py.vlen_dtype(np.dtype(dtype)))[0] = np.ones(2, dtype)
    with pytest.raises(SourceError, match=rf"'x' holds lists of {dtype} in the byte order of an"):
        fl.from_hdf5(path, "x")


def test_long_lists_are_not_read_together(path: Path) -> None:
    with h5py.File(path, "w") as file:
        stored = file.create_dataset("x", (40,), h5py.vlen_dtype(np.uint8))
        for i in range(40):
            stored[i] = np.zeros(1 << 18, np.uint8)
    row = fl.from_hdf5(path, "x").node.open()  # type: ignore[attr-defined]  # a source
    tracemalloc.start()
    try:
        assert all(len(row(i)) == 1 << 18 for i in range(40))
        assert tracemalloc.get_traced_memory()[1] < 4e6  # of 10e6
    finally:
        tracemalloc.stop()


def test_damaged_text_is_reported(path: Path) -> None:
    """HDF5 has no checksum of text."""
    fl.from_items(["first", "second"]).write_hdf5(path, "text")
    path.write_bytes(path.read_bytes().replace(b"second", b"Second"))
    with pytest.raises(ElementError) as raised:
        fl.from_hdf5(path, "text").collect()
    assert "row 1 of 'text' cannot be read" in str(raised.value.__cause__)


def test_chunk_is_read_once_and_only_one_is_cached(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.zeros((4000, 1000)), chunks=(100, 1000), compression=1)
    row = fl.from_hdf5(path, "x").node.open()  # type: ignore[attr-defined]  # a source
    tracemalloc.start()
    try:
        for i in range(4000):
            row(i)
        assert tracemalloc.get_traced_memory()[1] < 4e6  # of 32e6, and 0.8e6 for a chunk
    finally:
        tracemalloc.stop()


def test_chunks_are_listed_once_and_not_before_many_are_read(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(2000).reshape(1000, 2), chunks=(1, 2))
    row = fl.from_hdf5(path, "x").node.open()  # type: ignore[attr-defined]  # a source
    listed = hdf5_extents._Chunks._listed
    with mock.patch.object(hdf5_extents._Chunks, "_listed", autospec=True) as listing:
        listing.side_effect = listed
        assert [row(i).tolist() for i in range(10)] == [[2 * i, 2 * i + 1] for i in range(10)]
        assert not listing.mock_calls
        assert [row(i).tolist() for i in range(1000)] == [[2 * i, 2 * i + 1] for i in range(1000)]
        assert len(listing.mock_calls) == 1


@pytest.mark.parametrize("dtype", [">i4", ">f8", ">c16", "<u2", "S3", "?"])
def test_values_of_any_byte_order_are_as_h5py_gives_them(path: Path, dtype: str) -> None:
    values = np.array([1, 0, 1], dtype)
    with h5py.File(path, "w") as file:
        file["x"] = values
    flow = fl.from_hdf5(path, "x")
    assert flow.collect() == values.tolist()
    spec = flow.node.spec(probe=False)
    assert all(join(spec, spec_of(x)) == spec for x in flow)


def test_labels_of_varying_length(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.array([b"a", b"bcd", b""])
    assert fl.from_hdf5(path, "x").collect() == [b"a", b"bcd", b""]


def test_scalars_of_another_byte_order_are_read_back(path: Path) -> None:
    rows = [np.array(i, ">i4") for i in range(3)]
    fl.from_items(rows).write_hdf5(path, "x")
    assert fl.from_hdf5(path, "x").collect() == rows


def test_file_may_also_be_open_in_h5py(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
    with h5py.File(path) as file:
        rows = iter(fl.from_hdf5(path, "x"))
        assert next(rows) == np.asarray(file["x"])[0]
    with h5py.File(path) as file:
        assert next(rows) == np.asarray(file["x"])[1]


WRITING = """
import sys, h5py
with h5py.File(sys.argv[1], "w") as file:
    file.create_dataset("x", (1000,), "i4")[:500] = 1
    print("open", flush=True)
    sys.stdin.read()
"""


def test_a_file_that_another_program_is_writing_is_refused(path: Path) -> None:
    command = [sys.executable, "-c", WRITING, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"open\n"
        with pytest.raises(SourceError, match="another program has it open for writing"):
            fl.from_hdf5(path, "x")
        writer.communicate()
    assert fl.from_hdf5(path, "x").collect() == [1] * 500 + [0] * 500


def test_a_file_that_is_replaced_while_it_is_opened_is_refused(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.h5"
    for file, value in ((path, 1), (other, 2)):
        with h5py.File(file, "w") as made:
            made["x"] = np.full(5, value)
    opened = hdf5._opened

    def replaced(h5py: Any, name: str) -> Any:
        if other.exists():
            other.replace(path)
        return opened(h5py, name)

    monkeypatch.setattr(hdf5, "_opened", replaced)
    with pytest.raises(SourceError, match="has changed while it was opened"):
        fl.from_hdf5(path, "x")
    assert fl.from_hdf5(path, "x").collect() == [2] * 5


def test_a_file_that_is_overwritten_while_it_is_open_is_not_read_by_the_earlier_description(
    path: Path, tmp_path: Path
) -> None:
    for file, padding in ((path, 1), (tmp_path / "other.h5", 5000)):
        with h5py.File(file, "w") as made:
            made["padding"] = np.arange(padding)
            made["x"] = np.full((10, 3000), padding)
    run = iter(fl.from_hdf5(path, "x"))
    next(run)
    path.write_bytes((tmp_path / "other.h5").read_bytes())
    with pytest.raises(SourceError, match="HDF5 still describes the earlier file; end that run"):
        fl.from_hdf5(path, "x")
    with pytest.raises(ElementError, match="has changed since it was opened"):
        list(run)
    del run
    assert (fl.from_hdf5(path, "x").collect()[3] == 5000).all()


def test_a_file_that_is_cut_short_while_it_is_checked_does_not_end_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "rows.h5")
    fl.from_items([("a" * i, i) for i in range(3000)]).write_hdf5(path, ["text", "number"])
    size = os.path.getsize(path)

    def cut(dataset: object) -> None:
        os.truncate(path, size // 3)

    dataset = h5py.File(path)["text"]
    hdf5_extents.check_heaps(path, dataset)
    monkeypatch.setattr(hdf5_extents, "_stored_parts", cut)
    with suppress(ValueError):  # whether it ends within a heap depends on the place
        hdf5_extents.check_heaps(path, dataset)


@pytest.mark.parametrize("values", [["a", "bc"], [np.arange(2), np.arange(3)]])
def test_values_of_variable_length_need_a_fill_value(values: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "rows.h5"
    kind = h5py.string_dtype() if isinstance(values[0], str) else h5py.vlen_dtype(np.int16)
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (2,), kind, chunks=(1,))
        for k, value in enumerate(values):
            dataset[k] = value
    message = b"\x05\x00\x08\x00\x01\x00\x00\x00\x02"  # the kind, size and version of a fill value
    data = path.read_bytes()
    assert data.count(message) == 1
    path.write_bytes(data.replace(message, b"\x05\x01" + message[2:]))  # of no known kind
    with pytest.raises(SourceError, match="its fill value is undefined"):
        fl.from_hdf5(path, "x")


@pytest.mark.parametrize("values", [["a", "bc"], [np.arange(2), np.arange(3)]])
def test_a_damaged_type_is_an_error_and_no_crash(values: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "rows.h5"
    kind = h5py.string_dtype() if isinstance(values[0], str) else h5py.vlen_dtype(np.int16)
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (2,), kind)
        dataset[0], dataset[1] = values
        encoded = dataset.id.get_type().encode()[2:6] + b"\x10\0\0\0"  # as the file has it
    data = path.read_bytes()
    assert data.count(encoded) == 1
    path.write_bytes(data.replace(encoded, bytes([encoded[0], 9, *encoded[2:]])))
    with pytest.raises(SourceError, match=r"dataset 'x' cannot be read: the type .* is damaged"):
        fl.from_hdf5(path, "x")
