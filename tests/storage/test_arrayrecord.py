"""ArrayRecord files: bytes of any writer, and elements that flowdsl encoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.errors import ElementError, InvalidFlow, MissingLibrary, SourceError, SpecMismatch
from flowdsl.storage import libraries
from flowdsl.storage.arrayrecord import _File
from flowdsl.testing.elements import same
from tests.sampling import examples

READ = _File.records


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.arrayrecord"


class Sample(NamedTuple):
    image: NDArray[np.uint8]
    label: int


RECORDS = st.binary(max_size=20).filter(lambda x: not x.startswith(b"\xc1flow"))
"""The prefix of encoded elements."""


@settings(max_examples=examples(100))
@given(
    st.lists(RECORDS, max_size=20),
    st.integers(1, 8),
    st.lists(st.integers(0, 19), max_size=20),
)
def test_records_of_any_writer_are_read_by_index(
    tmp_path: Path, records: list[bytes], group: int, order: list[int]
) -> None:
    path = tmp_path / "rows.arrayrecord"
    writer = ArrayRecordWriter(str(path), f"group_size:{group}")
    for record in records:
        writer.write(record)
    writer.close()
    source = fl.from_arrayrecord(path)
    assert source.collect() == records
    row = source.node.open()  # type: ignore[attr-defined]  # an IndexedSource
    assert [row(i) for i in order if i < len(records)] == [
        records[i] for i in order if i < len(records)
    ]


def test_bytes_are_written_unchanged(path: Path) -> None:
    assert fl.from_items([b"a", b"", b"\xff"]).write_arrayrecord(path, group_size=2) == 3
    reader = ArrayRecordReader(str(path))
    assert reader.read_all() == [b"a", b"", b"\xff"]
    assert "group_size:2," in reader.writer_options_string()


def test_elements_are_read_back_in_their_classes(path: Path) -> None:
    samples = [Sample(np.full((2, 2), i, np.uint8), i) for i in range(5)]
    fl.from_items(samples).write_arrayrecord(path)
    assert same(fl.from_arrayrecord(path, Sample).collect(), samples)
    assert same(fl.from_arrayrecord(path, object).collect(), [tuple(one) for one in samples])


def test_undeclared_rows_have_a_spec_without_sizes(path: Path) -> None:
    fl.from_range(3).map(lambda i: (np.int32(i), np.zeros(3))).write_arrayrecord(path)
    rows: list[fl.Flow[Any]] = [
        fl.from_arrayrecord(path, object),
        fl.from_arrayrecord(path, tuple[np.int32, NDArray[Any]]),
    ]
    for flow in rows:
        batches = flow.batch(2)
        assert str(batches.map(lambda x: x).spec) == "(int32[?], float64[?, ?])"


def test_row_that_contradicts_its_declaration_fails_at_its_position(path: Path) -> None:
    fl.from_items([(1, "a"), (2, "b"), (3, 4.0), (5, "c")]).write_arrayrecord(path)
    source = fl.from_arrayrecord(path, tuple[int, str])
    rows = iter(source)
    assert [next(rows), next(rows)] == [(1, "a"), (2, "b")]
    with pytest.raises(ElementError, match="row 2 of") as raised:
        next(rows)
    assert "row.1: declared str, got float" in str(raised.value.__cause__)
    assert source.node.open()(3) == (5, "c")  # type: ignore[attr-defined]  # an IndexedSource


def test_records_of_other_programs_are_not_elements(path: Path) -> None:
    fl.from_items([b"\xc1"]).write_arrayrecord(path)
    with pytest.raises(ElementError) as raised:
        fl.from_arrayrecord(path, object).collect()
    assert str(path) in str(raised.value.__cause__)


def test_bytes_and_other_elements_cannot_be_mixed(path: Path) -> None:
    for rows in ([b"a", 1], [1, b"a"]):
        with pytest.raises(
            SpecMismatch, match=r"row 1: element: row is of type .*, earlier rows are"
        ):
            fl.from_items(rows).write_arrayrecord(path)
    assert not path.exists()


def test_files_are_read_in_the_listed_order(tmp_path: Path) -> None:
    for i in range(3):
        fl.from_items([i * 10, i * 10 + 1]).write_arrayrecord(tmp_path / f"{i}.ar")
    assert fl.from_arrayrecord(tmp_path / "*.ar", int).collect() == [0, 1, 10, 11, 20, 21]
    order = [tmp_path / "2.ar", tmp_path / "0.ar"]
    assert fl.from_arrayrecord(order, int).collect() == [20, 21, 0, 1]
    with pytest.raises(InvalidFlow, match="must be a file on this machine's disk"):
        fl.from_arrayrecord("memory://bucket/rows.ar")


def test_rows_past_a_damaged_one_are_read(path: Path) -> None:
    fl.from_items([bytes([i]) * 100 for i in range(8)]).write_arrayrecord(path)
    whole = path.read_bytes()
    damaged = 0
    for at in range(0, 2000, 37):
        content = bytearray(whole)
        content[at] ^= 1
        path.write_bytes(content)
        try:
            row = fl.from_arrayrecord(path).node.open()  # type: ignore[attr-defined]  # an IndexedSource
        except SourceError:
            continue
        good = 0
        for i in range(8):
            try:
                assert row(i) == bytes([i]) * 100
                good += 1
            except SourceError as error:
                assert str(path) in str(error)  # noqa: PT017  # of any of the rows
        damaged += good == 7
    assert damaged > 3


@pytest.mark.parametrize(
    ("size", "group", "most"), [(100_000, 1, 1), (100_000, 4, 10), (100, 1, 256), (100, 4, 256)]
)
def test_large_records_are_read_one_by_one_unless_they_are_in_groups(
    size: int, group: int, most: int, path: Path
) -> None:
    records = [np.random.default_rng(i).bytes(size) for i in range(600 if size == 100 else 24)]
    fl.from_items(records).write_arrayrecord(path, group_size=group)
    sizes = list[int]()

    def counted(file: _File, start: int, end: int) -> list[bytes]:
        sizes.append(end - start)
        return READ(file, start, end)

    with mock.patch.object(_File, "records", counted):
        assert fl.from_arrayrecord(path).collect() == records
    assert max(sizes) == most


def test_rewritten_file_is_an_error(path: Path) -> None:
    fl.from_range(4).write_arrayrecord(path)
    source = fl.from_arrayrecord(path, int)
    fl.from_range(5).write_arrayrecord(path, overwrite=True)
    with pytest.raises(SourceError, match="has changed since this flow was built"):
        source.collect()


def test_full_disk_is_reported() -> None:
    from flowdsl.storage.arrayrecord import _write

    with pytest.raises(OSError, match="No space left on device"):
        _write(Path("/dev/full"), [b"x" * 10**6], 1)


def test_missing_library_error_has_the_install_command(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(libraries, "import_module", missing)
    message = r'needs array_record, which is not installed: pip install "flowdsl\[arrayrecord\]"'
    with pytest.raises(MissingLibrary, match=f"from_arrayrecord {message}"):
        fl.from_arrayrecord(path)
    with pytest.raises(MissingLibrary, match=f"write_arrayrecord {message}"):
        fl.from_range(3).write_arrayrecord(path)


def test_bad_arguments_are_named(path: Path) -> None:
    with pytest.raises(InvalidFlow, match="group_size must be an int >= 1, got 0"):
        fl.from_range(3).write_arrayrecord(path, group_size=0)
    with pytest.raises(InvalidFlow, match="cannot be checked against 3"):
        fl.from_arrayrecord(path, 3)  # type: ignore[call-overload]  # wrong on purpose


def test_bytes_and_encoded_elements_are_not_confused(path: Path) -> None:
    fl.from_items([b"x", b"y"]).write_arrayrecord(path)
    with pytest.raises(fl.ElementError, match="record 0 is not an element that"):
        fl.from_arrayrecord(path, int).collect()
    fl.from_range(3).write_arrayrecord(path, overwrite=True)
    with pytest.raises(fl.ElementError, match=r"encoded, not bytes; declare them"):
        fl.from_arrayrecord(path).collect()
    assert fl.from_arrayrecord(path, int).collect() == [0, 1, 2]
    with pytest.raises(SpecMismatch, match="bytes that begin with the mark of encoded elements"):
        fl.from_items([b"\xc1flow"]).write_arrayrecord(path, overwrite=True)
