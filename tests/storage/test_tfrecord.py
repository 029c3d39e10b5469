"""TFRecord files: exchange with TensorFlow in both directions; a bad file is an error."""

from __future__ import annotations

import gzip
import os
import random
import struct
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import attrs
import fsspec
import google_crc32c
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.errors import (
    ElementError,
    EndlessFlow,
    InvalidFlow,
    MissingLibrary,
    SourceError,
    SpecMismatch,
)
from flowdsl.storage import index
from flowdsl.storage.tfrecord import framing as tfrecord_framing
from flowdsl.storage.tfrecord import records as tfrecord
from flowdsl.storage.tfrecord.ending import END
from tests.sampling import examples

Compression: TypeAlias = Literal["gzip", "zlib"] | None

COMPRESSIONS: list[Compression] = [None, "gzip", "zlib"]
COMPRESSED: list[Literal["gzip", "zlib"]] = ["gzip", "zlib"]
MIB = 1 << 20


class Sample(NamedTuple):
    image: NDArray[np.uint8]
    label: int


@attrs.frozen
class PointBatch:
    x: NDArray[np.float64]


@attrs.frozen
class Point(fl.Record[PointBatch]):
    x: float


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.tfrecord"


def read(path: Path | str | list[str], compression: Compression = None, **options: Any) -> Any:
    """Typed loosely: the compression is one of several."""
    anyhow: Any = fl.from_tfrecord
    return anyhow(path, compression=compression, **options)


def masked(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32)


def header(length: int) -> bytes:
    """The valid header of a record."""
    data = struct.pack("<Q", length)
    return data + masked(data)


def record(payload: bytes) -> bytes:
    return header(len(payload)) + payload + masked(payload)


def squeezed(content: bytes, compression: Compression) -> bytes:
    if compression == "gzip":
        return gzip.compress(content)
    return zlib.compress(content) if compression == "zlib" else content


def size_of_file(path: Path, n: int) -> int:
    """Return the size in bytes of the first ``n`` records."""
    rows = fl.from_tfrecord(path).collect()[:n]
    return sum(len(row) + 16 for row in rows)


# -- bytes -----------------------------------------------------------------------------------------

PAYLOADS = st.lists(st.binary(max_size=60).filter(lambda x: not x.startswith(END)), max_size=8)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@settings(max_examples=examples(100))
@given(rows=PAYLOADS)
def test_bytes_are_written_unchanged(
    tmp_path: Path, compression: Compression, rows: list[bytes]
) -> None:
    path = tmp_path / "rows.tfrecord"
    flow = fl.from_items([b"", *rows]).skip(1)
    assert flow.write_tfrecord(path, compression=compression, overwrite=True) == len(rows)
    content = path.read_bytes()
    if compression:
        content = zlib.decompress(content, 47)
    assert content == b"".join(map(record, rows))
    source = read(path, compression)
    assert source.collect() == rows
    assert source.node.length == (len(rows) if compression is None else None)
    assert source.effects == ({fl.Unsized} if compression else frozenset())


@settings(max_examples=examples(200))
@given(PAYLOADS, st.integers(16, 70), st.integers(16, 30), st.integers(0, 80))
def test_scan_result_is_independent_of_block_size(
    rows: list[bytes], block: int, little: int, far: int
) -> None:
    class Content:
        path, stamp = "rows.tfrecord", ""
        content = b"".join(map(record, rows))
        size = len(content)

        def read(self, start: int, count: int) -> bytes:
            assert start >= 0
            return self.content[start : start + count]

        def check(self) -> None:
            """It is in memory."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfrecord_framing, "_BLOCK", block)
        patch.setattr(tfrecord_framing, "_LITTLE", little)
        patch.setattr(tfrecord_framing, "_LARGE", far)
        file = Content()
        found = tfrecord_framing.scan(file, tfrecord_framing.checksum_for("test"))
    spans = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
    assert [file.content[start:end] for start, end in spans] == rows


def test_digest_covers_the_payloads(tmp_path: Path) -> None:
    digests = set()
    for rows in ([b"ab"], [b"ab", b""], [b"ac"], [b"a", b"b"], [b"", b"ab"], [b"ab", b"ac"], []):
        (path := tmp_path / "rows").write_bytes(b"".join(map(record, rows)))
        digests.add(fl.from_tfrecord(path).node.fingerprint)
    assert len(digests) == 7


def test_rows_of_several_files_are_numbered_consecutively(tmp_path: Path) -> None:
    for name, rows in {"b": [b"2", b"3"], "a": [b"0", b"1"], "c": []}.items():
        (tmp_path / f"{name}.tfrecord").write_bytes(b"".join(map(record, rows)))
    source = fl.from_tfrecord(tmp_path / "*.tfrecord", size=4)
    assert source.collect() == [b"0", b"1", b"2", b"3"]
    assert sorted(source.shuffle(seed=3)) == source.collect()
    (tmp_path / "d.tfrecord").write_bytes(record(b"4"))
    names = [f"{tmp_path}/{name}.tfrecord" for name in "dcba"]
    assert fl.from_tfrecord(names).collect() == [b"4", b"2", b"3", b"0", b"1"]
    assert fl.from_tfrecord(names).node.title == "from_tfrecord('d.tfrecord', 4 files)"


def test_number_of_open_files_is_limited(tmp_path: Path) -> None:
    names = [tmp_path / f"{i:03}" for i in range(100)]
    for i, name in enumerate(names):
        name.write_bytes(record(b"%d" % i))
    before = len(os.listdir("/proc/self/fd"))
    run = iter(fl.from_tfrecord(tmp_path / "[0-9]*").shuffle(seed=1))
    opened = [len(os.listdir("/proc/self/fd")) - before for _ in run]
    assert 30 < max(opened) <= 64 + 5
    run.close()
    del run
    assert len(os.listdir("/proc/self/fd")) <= before


# -- TensorFlow and tensorpack ---------------------------------------------------------------------

ROWS = [b"", b"a", bytes(range(256)) * 50, b"\n\x00"]
THEIRS = {None: "", "gzip": "GZIP", "zlib": "ZLIB"}


def tensorflow() -> Any:
    """Typed loosely: our stubs contain only what flowdsl uses."""
    return pytest.importorskip("tensorflow")


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_files_written_by_tensorflow_are_read(path: Path, compression: Compression) -> None:
    with tensorflow().io.TFRecordWriter(str(path), THEIRS[compression]) as writer:
        for row in ROWS:
            writer.write(row)
    assert read(path, compression).collect() == ROWS


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_tensorflow_reads_written_files(path: Path, compression: Compression) -> None:
    fl.from_items(ROWS).write_tfrecord(path, compression=compression)
    dataset = tensorflow().data.TFRecordDataset(str(path), THEIRS[compression])
    assert list(dataset.as_numpy_iterator()) == ROWS


def test_files_written_by_tensorpack_are_read_as_bytes(path: Path) -> None:
    tensorflow()  # which tensorpack writes by
    import pickle

    from tensorpack.dataflow import (  # type: ignore[import-untyped]
        DataFromList,
        TFRecordSerializer,
    )

    rows = [[i, np.full(3, i)] for i in range(4)]
    TFRecordSerializer.save(DataFromList(rows, shuffle=False), str(path))
    mine = fl.from_tfrecord(path, size=4)
    got: list[Any] = [pickle.loads(row) for row in mine]  # its default serializer
    assert [(i, a.tolist()) for i, a in got] == [(i, [i] * 3) for i in range(4)]
    with pytest.raises(SourceError, match="holds no whole flow of encoded elements"):
        fl.from_tfrecord(path, object)


def test_neither_tensorflow_nor_protobuf_is_imported(path: Path) -> None:
    program = (
        "import sys, flowdsl as fl\n"
        "fl.from_items([b'a']).write_tfrecord(sys.argv[1])\n"
        "fl.from_tfrecord(sys.argv[1]).collect()\n"
        "print(*({'tensorflow', 'google.protobuf', 'fsspec', 'google_crc32c'} & {*sys.modules}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["google_crc32c"]


# -- any elements ----------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_declared_class_is_built(path: Path, compression: Compression) -> None:
    rows = [Sample(np.full((2, i), i, np.uint8), i) for i in range(3)]
    fl.from_items(rows).write_tfrecord(path, compression=compression)
    source = read(path, compression, element=Sample)
    got = source.collect()
    assert [type(row) for row in got] == [Sample] * 3
    assert [(row.image.tolist(), row.label) for row in got] == [
        (row.image.tolist(), row.label) for row in rows
    ]
    assert str(source.node.spec(True)).startswith("Sample(image: uint8[")
    points = [Point(0.5), Point(1.5)]
    fl.from_items(points).write_tfrecord(path, compression=compression, overwrite=True)
    assert read(path, compression, element=Point).collect() == points


def test_declaration_is_checked_when_the_flow_is_built(path: Path) -> None:
    fl.from_items([("a", 1), ("b", 2)]).write_tfrecord(path)
    with pytest.raises(SpecMismatch, match=r"rows\.tfrecord.*declared \(int, int\), stored \(str"):
        fl.from_tfrecord(path, tuple[int, int])
    with pytest.raises(SpecMismatch, match=r"declare them: from_tfrecord\(path, Sample\)"):
        fl.from_tfrecord(path)
    with pytest.raises(InvalidFlow, match="cannot be checked against 3"):
        fl.from_tfrecord(path, 3)  # type: ignore[call-overload]  # as a mistake
    assert str(fl.from_tfrecord(path, object).node.spec(False)) == "(str, int)"


def test_every_row_of_a_stream_is_checked(path: Path) -> None:
    fl.from_items([("a", 1), ("b", 2), ("c", None)]).write_tfrecord(path, compression="gzip")
    run = iter(fl.from_tfrecord(path, tuple[str, int], compression="gzip"))
    assert [next(run), next(run)] == [("a", 1), ("b", 2)]
    with pytest.raises(SpecMismatch, match=r"declared \(str, int\), the row is \(str, NoneType\)"):
        next(run)
    with pytest.raises(SpecMismatch, match="not bytes; declare them"):
        fl.from_tfrecord(path, compression="gzip").collect()


def test_bytes_and_other_elements_are_not_mixed(path: Path) -> None:
    mixed: Any = fl.from_items([b"a", b"b", "c"])
    with pytest.raises(SpecMismatch, match=r"^write_tfrecord: row 2: element: str after bytes"):
        mixed.write_tfrecord(path)
    mixed = fl.from_items([(1,), b"b"])
    with pytest.raises(SpecMismatch, match=r"row 1: element: bytes after encoded elements"):
        mixed.write_tfrecord(path)
    assert os.listdir(path.parent) == []


def test_bytes_that_look_like_the_end_mark_are_refused(path: Path) -> None:
    with pytest.raises(
        SpecMismatch, match="row 1: element: bytes that begin like the end of encoded"
    ):
        fl.from_items([b"a", END + b"b"]).write_tfrecord(path)
    for rows in ([END], [b"a", END], [END, b"a"]):  # as another program may write them
        for compression in COMPRESSED:
            path.write_bytes(squeezed(b"".join(map(record, rows)), compression))
            with pytest.raises(SourceError, match="its last record is damaged"):
                read(path, compression).collect()
    path.write_bytes(record(b"a") + record(END))
    with pytest.raises(SourceError, match="its last record is damaged"):
        fl.from_tfrecord(path)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_file_without_rows(path: Path, compression: Compression) -> None:
    assert fl.from_range(0).write_tfrecord(path, compression=compression) == 0
    assert read(path, compression, element=int).collect() == []
    assert read(path, compression).collect() == []
    rows = fl.from_items([b"a"])
    for empty in (rows.take(0), rows.filter(lambda row: row != b"a")):
        assert empty.write_tfrecord(path, compression=compression, overwrite=True) == 0
        assert path.read_bytes() == b"" or zlib.decompress(path.read_bytes(), 47) == b""
    assert read(path, compression).collect() == []
    with pytest.raises(SourceError, match="holds no whole flow of encoded elements"):
        read(path, compression, element=int).collect()


def end(length: int, version: int = 1) -> bytes:
    content = {"version": version, "length": length, "spec": {"type": "int"}}
    return record(END + msgspec.msgpack.encode(content))


FIRST = bytes(6)
"""The end of row 0."""

FORGED = {
    "bytes": (record(b"\x05" + FIRST), "no whole flow"),
    "another count": (record(b"\x05" + FIRST) + end(2), "its end says 2 rows, but it holds 1"),
    "a later version's": (record(b"\x05" + FIRST) + end(1, version=2), "has format version 2"),
    "an end of nothing": (record(b"\x05" + FIRST) + record(END), "its last record is damaged"),
    "an end of a class": (
        record(b"\x05" + FIRST) + record(END + msgspec.msgpack.encode([1, 1, {"type": "Popen"}])),
        "its last record is damaged",
    ),
    "two of them": ((record(b"\x05" + FIRST) + end(1)) * 2, "its end says 1 rows|no whole flow"),
    "another row": (record(b"\x05" + (3).to_bytes(6, "little")) + end(1), "written as row 3"),
    "no element": (record(b"\xc1" + FIRST) + end(1), "row 0 cannot be read"),
}


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize(("content", "reason"), FORGED.values(), ids=FORGED)
def test_file_not_written_by_flowdsl_is_refused(
    path: Path, content: bytes, reason: str, compression: Compression
) -> None:
    path.write_bytes(squeezed(content, compression))
    with pytest.raises((SourceError, ElementError), match=reason):
        read(path, compression, element=object).collect()


# -- the index -------------------------------------------------------------------------------------


def test_index_is_built_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> index.Index:
        raise AssertionError("scanned")

    path.write_bytes(record(b"a") + record(b"b"))
    os.utime(path, (1, 1))  # an index is trusted that is younger than its file
    fl.from_tfrecord(path)
    with monkeypatch.context() as patch:
        patch.setattr(tfrecord, "scan", refuse)
        assert fl.from_tfrecord(path).collect() == [b"a", b"b"]
        path.write_bytes(record(b"a") + record(b"b") + record(b"c"))
        with pytest.raises(AssertionError, match="scanned"):
            fl.from_tfrecord(path)
    assert len(fl.from_tfrecord(path)) == 3


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_replaced_file_is_an_error(path: Path, compression: Compression) -> None:
    path.write_bytes(squeezed(record(b"a") + record(b"b"), compression))
    old = read(path, compression)
    path.unlink()
    path.write_bytes(squeezed(record(b"a") + record(b"c"), compression) + b"")
    os.utime(path, ns=(1, 1))
    with pytest.raises(SourceError, match="has changed since this flow was built"):
        old.collect()


# -- the number of rows ----------------------------------------------------------------------------


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_wrong_size_is_an_error(path: Path, compression: Compression) -> None:
    fl.from_range(3).write_tfrecord(path, compression=compression)
    assert read(path, compression, element=int, size=3).collect() == [0, 1, 2]
    for size in (0, 2, 4):
        with pytest.raises(SourceError, match=rf"size={size}, but '.*' holds 3 rows"):
            read(path, compression, element=int, size=size).collect()
    with pytest.raises(InvalidFlow, match="size must be None or an int >= 0, got -1"):
        read(path, compression, size=-1)
    with pytest.raises(InvalidFlow, match=r"size must be None or an int >= 0, got 2\.0"):
        read(path, compression, size=2.0)


# -- damage ----------------------------------------------------------------------------------------


def outcome(path: Path, compression: Compression, **options: Any) -> list[Any] | str:
    """Return the rows that are read, or the error."""
    error: BaseException | None
    try:
        got: list[Any] = read(path, compression, **options).collect()
    except SourceError as raised:
        error = raised
    except ElementError as raised:
        error = raised.__cause__
    else:
        return got
    assert isinstance(error, SourceError)
    assert str(path) in str(error)
    return str(error)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_file_truncated_anywhere_is_refused(path: Path, compression: Compression) -> None:
    rows = [b"first", b"", b"the third"]
    content = squeezed(b"".join(map(record, rows)), compression)
    ends = {0: 0, 21: 1, 37: 2} if compression is None else {}
    for k in range(len(content)):
        path.write_bytes(content[:k])
        os.utime(path, ns=(k, k))
        found = outcome(path, compression)
        if k in ends:  # which only the number of rows would tell
            assert found == rows[: ends[k]]
            found = outcome(path, compression, size=3)
        assert isinstance(found, str), k


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_changing_any_byte_raises_an_error(path: Path, compression: Compression) -> None:
    rows = [b"first", b"", b"the third"]
    content = squeezed(b"".join(map(record, rows)), compression)
    silent = {4, 5, 6, 7, 8, 9} if compression == "gzip" else set()  # the time, and the system
    for k in range(len(content)):
        path.write_bytes(content[:k] + bytes([content[k] ^ 0x41]) + content[k + 1 :])
        os.utime(path, ns=(k, k))
        found = outcome(path, compression)
        assert isinstance(found, str) or (k in silent and found == rows), k


@settings(max_examples=examples(200))
@given(st.binary(max_size=40), st.sampled_from(COMPRESSIONS), st.booleans())
def test_arbitrary_bytes_raise_an_error_or_are_rows(
    tmp_path: Path, content: bytes, compression: Compression, wrapped: bool
) -> None:
    path = tmp_path / "rows"
    path.write_bytes(squeezed(record(b"a") + content, compression) if wrapped else content)
    os.utime(path, ns=(n := random.getrandbits(40), n))
    found = outcome(path, compression)
    assert isinstance(found, str) or (not content and found in ([], [b"a"]))


def test_damaged_record_is_named_and_other_records_are_read(path: Path) -> None:
    content = b"".join(map(record, [b"first", b"second", b"third"]))
    path.write_bytes(content.replace(b"second", b"sEcond"))
    source = fl.from_tfrecord(path)
    assert source.skip(2).collect() == [b"third"]
    with pytest.raises(ElementError, match=r"row 1 of from_tfrecord\('rows\.tfrecord'\)") as caught:
        source.collect()
    assert "record 1, at byte 33, is damaged" in str(caught.value.__cause__)


FOREIGN = {
    "gzip, said to be nothing": (gzip.compress(record(b"a")), None, "pass compression='gzip'"),
    "zlib, said to be nothing": (zlib.compress(record(b"a")), None, "pass compression='zlib'"),
    "text": (
        b"a,b\n1,2\n" * 10,
        None,
        "is damaged or is not a TFRecord file: the checksum of the first",
    ),
    "a little text": (b"a,b", None, "is cut short: the record at byte 0"),
    "nothing, said to be gzip": (record(b"a"), "gzip", "cannot be read as gzip: .*if that is"),
    "zlib, said to be gzip": (zlib.compress(record(b"a")), "gzip", "cannot be read as gzip"),
    "gzip, said to be zlib": (gzip.compress(record(b"a")), "zlib", "cannot be read as zlib"),
    "zlib and more": (zlib.compress(record(b"a")) + b"x", "zlib", "something follows its end"),
    "gzip twice": (gzip.compress(gzip.compress(record(b"a"))), "gzip", "compression='gzip'"),
    "cut gzip": (gzip.compress(record(b"a"))[:-1], "gzip", "is damaged, near byte 31: it is cut"),
    "no gzip at all": (b"", "gzip", "it is cut short"),
    "damage": (record(b"a") + b"x" * 20, None, "is damaged: at byte 17 the checksum of a record's"),
    "gzipped damage": (gzip.compress(record(b"a") + b"x" * 20), "gzip", "damaged: at byte 17"),
}


@pytest.mark.parametrize(("content", "compression", "reason"), FOREIGN.values(), ids=FOREIGN)
def test_foreign_file_is_refused(
    path: Path, content: bytes, compression: Compression, reason: str
) -> None:
    path.write_bytes(content)
    with pytest.raises(SourceError, match=reason) as caught:
        read(path, compression).collect()
    assert str(path) in str(caught.value)


def test_gzip_file_may_have_several_members(path: Path) -> None:
    content = record(b"a") + record(b"b" * 50)
    path.write_bytes(b"".join(gzip.compress(content[k : k + 9]) for k in range(0, 90, 9)))
    assert read(path, "gzip").collect() == [b"a", b"b" * 50]


def peak(run: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", [1 << 34, 1 << 50, 2**64 - 1])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_claimed_length_takes_no_memory(path: Path, length: int, compression: Compression) -> None:
    path.write_bytes(squeezed(record(b"a") + header(length) + b"some", compression))
    found: list[object] = []
    used = peak(lambda: found.append(outcome(path, compression)))
    assert "is cut short: the record at byte 17" in str(found)
    assert used < 8 * MIB


@pytest.mark.parametrize("compression", COMPRESSED)
def test_decompression_bomb_takes_no_memory(
    path: Path, compression: Literal["gzip", "zlib"]
) -> None:
    path.write_bytes(squeezed(header(9) + bytes(40 * MIB), compression))
    found: list[object] = []
    used = peak(lambda: found.append(outcome(path, compression)))
    assert "the checksum of the record at byte 0 of its content differs" in str(found)
    assert used < 8 * MIB


@pytest.mark.parametrize("compression", COMPRESSED)
def test_a_record_may_be_larger_than_a_block(
    path: Path, compression: Literal["gzip", "zlib"]
) -> None:
    rows = [os.urandom(3), os.urandom(2 * MIB + 5), b"x" * (3 * MIB), b"", b"y"]
    fl.from_items(rows).write_tfrecord(path, compression=compression)
    assert fl.from_tfrecord(path, compression=compression).collect() == rows


# -- files elsewhere -------------------------------------------------------------------------------


@pytest.fixture
def elsewhere() -> Iterator[Any]:
    memory = fsspec.filesystem("memory")
    yield memory
    memory.store.clear()


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_url_is_read(elsewhere: Any, compression: Compression) -> None:
    for i in range(2):
        content = b"".join(record(b"%d.%d" % (i, k)) for k in range(3))
        elsewhere.pipe_file(f"/set/{i}.tfrecord", squeezed(content, compression))
    rows = [b"%d.%d" % (i, k) for i in range(2) for k in range(3)]
    assert read("memory://set/*.tfrecord", compression).collect() == rows
    assert read(["memory://set/1.tfrecord"], compression).collect() == rows[3:]
    with pytest.raises(SourceError, match=r"'memory://set/2\.tfrecord' is missing"):
        read("memory://set/2.tfrecord", compression)
    with pytest.raises(SourceError, match="no file matches"):
        read("memory://set/3*", compression)


def test_writing_to_a_url_is_refused(elsewhere: Any) -> None:
    with pytest.raises(InvalidFlow, match="this machine's disk; write it here, then"):
        fl.from_items([b"a"]).write_tfrecord("memory://set/0.tfrecord")


# -- refusals --------------------------------------------------------------------------------------


def test_missing_library_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(record(b"a"))
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    command = r'google-crc32c, which is not installed: pip install "flowdsl\[tfrecord\]"'
    with pytest.raises(MissingLibrary, match=f"from_tfrecord needs {command}"):
        fl.from_tfrecord(path)
    with pytest.raises(MissingLibrary, match=f"write_tfrecord needs {command}"):
        fl.from_items([b"a"]).write_tfrecord(path, overwrite=True)
    assert path.read_bytes() == record(b"a")


@pytest.mark.parametrize("compression", ["GZIP", "", "lz4", 9])
def test_another_compression_is_refused(path: Path, compression: Any) -> None:
    match = rf"compression must be None, 'gzip' or 'zlib', got {compression!r}"
    with pytest.raises(InvalidFlow, match=f"from_tfrecord: {match}"):
        fl.from_tfrecord(__file__, compression=compression)
    with pytest.raises(InvalidFlow, match=f"write_tfrecord: {match}"):
        fl.from_items([b"a"]).write_tfrecord(path, compression=compression)


def test_missing_file_or_folder_is_refused(tmp_path: Path, path: Path) -> None:
    with pytest.raises(SourceError, match=r"rows\.tfrecord' cannot be opened: No such file"):
        fl.from_tfrecord(path)
    with pytest.raises(SourceError, match="no file matches"):
        fl.from_tfrecord(tmp_path / "*.tfrecord")
    with pytest.raises(SourceError, match="not a file"):
        fl.from_tfrecord(tmp_path)
    with pytest.raises(InvalidFlow, match="path must be a str or path, or a list"):
        fl.from_tfrecord([])
    with pytest.raises(InvalidFlow, match="path must be a str or path, got 3"):
        fl.from_tfrecord([3])  # type: ignore[list-item]  # as a mistake


def test_writer_refuses_an_existing_file_and_an_endless_flow(path: Path) -> None:
    path.write_bytes(record(b"a"))
    with pytest.raises(InvalidFlow, match="exists; pass overwrite=True"):
        fl.from_items([b"b"]).write_tfrecord(path)
    endless: Any = fl.from_items([b"b"]).repeat()
    with pytest.raises(EndlessFlow, match="write_tfrecord: repeat"):
        endless.write_tfrecord(path, overwrite=True)
    assert fl.from_tfrecord(path).collect() == [b"a"]
