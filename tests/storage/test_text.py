"""Text files: lines by index, with any content, and only lines that are in the file."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.errors import ElementError, InvalidFlow, SourceError, SpecMismatch
from flowdsl.nodes import IndexedSource
from flowdsl.storage.text import blocks as text_blocks
from flowdsl.storage.text import indexing as text_indexing
from tests.sampling import examples


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lines.txt"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use blocks and reads of a few bytes, so that short files have many."""
    monkeypatch.setattr(text_indexing, "STRETCH", 5)
    monkeypatch.setattr(text_indexing, "_READ_BYTES", 7)
    monkeypatch.setattr(text_blocks, "_FILES_OPEN", 2)


def reader_of(flow: Any) -> Any:
    assert isinstance(flow.node, IndexedSource)
    return flow.node.open()


def lines_of(content: str) -> list[str]:
    """Split into lines: each ends with a newline, which one carriage return may precede."""
    lines = content.replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


CONTENTS = st.text(st.sampled_from("aä€\n\r\n 😀"), max_size=60) | st.text(
    st.characters(codec="utf-8")
)


# -- lines -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CONTENTS, st.lists(st.integers(0, 10**6), max_size=8))
def test_lines_equal_the_files_lines(tmp_path: Path, content: str, places: list[int]) -> None:
    path = tmp_path / "any.txt"
    path.unlink(missing_ok=True)
    path.write_bytes(content.encode())
    flow, lines = fl.from_text(path), lines_of(content.removeprefix("\ufeff"))
    assert len(flow) == len(lines)
    assert flow.collect() == lines
    if lines:
        read = reader_of(flow)
        assert [read(i % len(lines)) for i in places] == [lines[i % len(lines)] for i in places]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"\n\n", ["", ""]),
        (b"a", ["a"]),
        (b"a\r\nb\n", ["a", "b"]),
        (b"a\r", ["a\r"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\r\r\n", ["a\r"]),
        (b"\xef\xbb\xbfa\n", ["a"]),
        (b"\xef\xbb\xbf", []),
        (b"a\n\xef\xbb\xbfb", ["a", "\ufeffb"]),
        ("a\x85b\u2028c\x0bd\x0ce\x00f\n".encode(), ["a\x85b\u2028c\x0bd\x0ce\x00f"]),
    ],
)
def test_line_endings(path: Path, content: bytes, lines: list[str]) -> None:
    path.write_bytes(content)
    assert fl.from_text(path).collect() == lines


def test_long_line_is_read(path: Path) -> None:
    lines = ["a" * 3_000_000, "", "b", "c" * 20_000, "d"]
    path.write_text("\n".join(lines))
    flow = fl.from_text(path)
    read = reader_of(flow)
    assert [read(i) for i in (4, 0, 3, 1, 2)] == [lines[i] for i in (4, 0, 3, 1, 2)]
    assert flow.collect() == lines


def test_index_has_few_blocks(path: Path) -> None:
    path.write_bytes(b"\n" * 1_000_000)
    flow: Any = fl.from_text(path)
    assert len(flow) == 1_000_000
    assert flow.node.files[0].blocks.nbytes < 5_000


@pytest.mark.usefixtures("small")
def test_threads_read_one_file(path: Path) -> None:
    lines = [f"line {i}" for i in range(500)]
    path.write_text("\n".join(lines))
    read = reader_of(fl.from_text(path))
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(read, [*range(500)] * 4)) == lines * 4


# -- encodings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8-sig", "shift_jis", "iso2022_jp", "utf-7"])
def test_lines_are_decoded(path: Path, encoding: str) -> None:
    lines = ["abc", "\xfcber" if encoding == "latin-1" else "\u65e5\u672c", ""] * 5
    path.write_bytes(b"".join(line.encode(encoding) + b"\n" for line in lines[:1]))
    name = encoding.removesuffix("-sig")
    with path.open("ab") as file:
        file.writelines(line.encode(name) + b"\n" for line in lines[1:])
    flow = fl.from_text(path, encoding=encoding)
    assert flow.collect() == lines
    assert reader_of(flow)(7) == lines[7]


def test_byte_order_mark_is_skipped_only_in_utf_8(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbfa\n")
    for _ in range(2):
        assert fl.from_text(path, encoding="latin-1").collect() == ["\xef\xbb\xbfa"]
        assert fl.from_text(path).collect() == ["a"]


@pytest.mark.usefixtures("small")
def test_bytes_outside_the_encoding_are_named(path: Path) -> None:
    good = [f"row {i}" for i in range(20)]
    content = "\n".join(good).encode().replace(b"row 11", b"row \xff11")
    path.write_bytes(content)
    flow = fl.from_text(path)
    at = content.index(b"\xff")
    with pytest.raises(ElementError, match="from_text") as failed:
        flow.collect()
    message = str(failed.value.__cause__)
    assert isinstance(failed.value.__cause__, SourceError)
    assert all(part in message for part in (str(path), "line 12 ", f"byte {at} is not utf-8"))
    rest = [line for line in good if line != "row 11"]
    assert flow.prefetch(on_error="skip").collect() == rest
    assert fl.from_text(path, encoding="latin-1").collect()[11] == "row \xff11"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le", "cp037", "hex", "punycode", "none", 3])
def test_encodings_without_newlines_are_refused(path: Path, encoding: Any) -> None:
    path.write_text("a\n")
    with pytest.raises(InvalidFlow, match=r"from_text: encoding .*"):
        fl.from_text(path, encoding=encoding)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x1f\x8b\x08\x00", "cannot be read as gzip: it is cut short"),
        (b"BZh91AY&SY", "compressed by bzip2.* bunzip2"),
        (b"\xfd7zXZ\x00\x00", "compressed by xz.* unxz"),
        (b"\x28\xb5\x2f\xfd\x00", "compressed by zstd.* unzstd"),
        ("ab\n".encode("utf-16"), "UTF-16.* iconv"),
    ],
)
def test_non_text_is_refused(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(SourceError, match=message):
        fl.from_text(path)


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_files_are_read_one_after_another(tmp_path: Path) -> None:
    lines = {f"part-{k}.txt": [f"{k} {i}" for i in range(k % 4)] for k in range(9)}
    for name, some in lines.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in some))
    flow = fl.from_text(tmp_path / "part-*.txt")
    expected = [line for some in lines.values() for line in some]
    assert flow.collect() == expected
    assert flow.prefetch(procs=2).collect() == expected
    read = reader_of(flow)
    backwards = range(len(expected) - 1, -1, -1)
    assert [read(i) for i in backwards] == expected[::-1]
    two = fl.from_text([tmp_path / "part-7.txt", str(tmp_path / "part-2.txt")])
    assert two.collect() == [*lines["part-7.txt"], *lines["part-2.txt"]]
    assert two.node.title == "from_text('part-7.txt', 2 files)"


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no-such\.txt"):
        fl.from_text(tmp_path / "no-such.txt")
    with pytest.raises(SourceError, match="no file matches"):
        fl.from_text(tmp_path / "*.txt")
    with pytest.raises(SourceError, match="not a file"):
        fl.from_text(tmp_path)
    with pytest.raises(InvalidFlow, match="path must be"):
        fl.from_text([])


def test_path_may_begin_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fl.from_items(["a", "b"]).write_text("~/lines.txt") == 2
    assert (tmp_path / "lines.txt").read_text() == "a\nb\n"
    for name in ("~/lines.txt", Path("~/lines.txt"), "~/*.txt", ["~/lines.txt"]):
        assert fl.from_text(name).collect() == ["a", "b"]
    with pytest.raises(SourceError, match=f"{tmp_path}/none.txt"):
        fl.from_text("~/none.txt")


@pytest.mark.filterwarnings("ignore")
def test_lines_are_read_from_a_url() -> None:
    fsspec: Any = import_module("fsspec")
    lines = [f"line {i}" for i in range(5000)]
    for k in range(2):
        with fsspec.open(f"memory://texts/{k}.txt", "w") as file:
            file.write("\n".join(lines[k::2]))
    flow = fl.from_text("memory://texts/*.txt")
    assert flow.collect() == lines[::2] + lines[1::2]


def test_a_file_is_read_once_to_find_its_lines(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("a\nb\n")
    os.utime(path, (1, 1))  # an index is trusted that is younger than its file
    before = fl.from_text(path)
    monkeypatch.setattr(text_indexing, "scan", None)
    again = fl.from_text(path)
    assert again.collect() == before.collect() == ["a", "b"]
    assert again.node.fingerprint == before.node.fingerprint


def test_a_file_that_changed_is_an_error(path: Path) -> None:
    path.write_text("a\nb\n")
    flow = fl.from_text(path)
    path.unlink()
    path.write_text("a\nc\n")
    with pytest.raises(SourceError, match="has changed since this flow was built"):
        flow.prefetch(on_error="skip").collect()
    assert fl.from_text(path).collect() == ["a", "c"]


def test_touched_file_with_equal_content_is_accepted(path: Path) -> None:
    path.write_text("a\nb\n")
    flow = fl.from_text(path)
    os.utime(path, (1, 1))
    assert flow.collect() == ["a", "b"]


def test_a_file_that_is_cut_off_while_it_is_read(path: Path) -> None:
    path.write_text("line\n" * 10_000)
    read = reader_of(fl.from_text(path))
    assert read(0) == "line"
    os.truncate(path, 30_000)
    with pytest.raises(SourceError, match="has changed since it was opened"):
        read(9_999)


def test_a_file_that_is_written_over_while_it_is_read(path: Path) -> None:
    path.write_text("line\n" * 10_000)
    read = reader_of(fl.from_text(path))
    assert read(0) == "line"
    with path.open("r+b") as file:
        file.write(b"lin\n\n" * 10_000)
    with pytest.raises(SourceError, match="has changed since"):
        read(9_999)


def test_lines_replaced_by_equally_long_ones_while_reading_are_detected(path: Path) -> None:
    path.write_text("one\n" * 200_000)
    read = reader_of(fl.from_text(path))
    assert read(0) == "one"
    time.sleep(0.02)  # it is looked at every 0.01 s
    os.utime(path, (1, 1))
    assert read(5_000) == "one"
    time.sleep(0.02)
    with path.open("r+b") as file:
        file.write(b"two\n" * 200_000)
    with pytest.raises(SourceError, match="has changed since it was opened"):
        read(199_999)


# -- writing ---------------------------------------------------------------------------------------


def test_text_file_contains_plain_lines(path: Path) -> None:
    assert fl.from_items(["a", "", "\u20ac b\t"]).write_text(path) == 3
    assert path.read_bytes() == "a\n\n\u20ac b\t\n".encode()
    with pytest.raises(InvalidFlow, match="overwrite=True"):
        fl.from_items(["b"]).write_text(path)
    assert fl.from_items(["b"]).write_text(path, overwrite=True) == 1
    assert fl.from_text(path).collect() == ["b"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (3, r"row 1: element: a line must be a str, got int; .*map\(str\)"),
        ("a\nb", "row 1: .*must not contain a newline"),
        ("a\r", "row 1: .*or end with"),
        ("\ud800", "row 1: element: .* cannot be encoded as UTF-8"),
    ],
)
def test_element_that_is_not_a_line_is_refused(path: Path, line: Any, message: str) -> None:
    with pytest.raises(SpecMismatch, match=message):
        fl.from_items(["a", line]).write_text(path)
    assert list(path.parent.iterdir()) == []


def test_byte_order_mark_that_would_be_lost_is_refused(path: Path) -> None:
    with pytest.raises(SpecMismatch, match=r"row 0: .*ufeff"):
        fl.from_items(["\ufeffa"]).write_text(path)
    fl.from_items(["a", "\ufeffb"]).write_text(path)
    assert fl.from_text(path).collect() == ["a", "\ufeffb"]


def test_a_shift_that_does_not_end_with_its_line_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b'plain\n\x1b$B$"\n$$\x1b(B\n\x1b(J~\n')
    flow = fl.from_text(path, encoding="iso-2022-jp")
    assert flow.take(1).collect() == ["plain"]
    for k in (1, 3):
        with pytest.raises(fl.ElementError, match="iso2022_jp"):
            flow.skip(k).take(1).collect()
    path.write_bytes("あ\nい\n".encode("iso-2022-jp"))
    assert fl.from_text(path, encoding="iso-2022-jp").collect() == ["あ", "い"]


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="needs /proc")
def test_a_file_that_reports_no_size_is_refused() -> None:
    with pytest.raises(fl.SourceError, match="reports a size of 0 but contains bytes"):
        fl.from_text("/proc/version")
