"""The file and line of a row in errors: of sources of several files, and of text."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import ElementError
from flowdsl.errors import Location


def fails(x: object) -> object:
    raise ValueError("bad")


def error_of(flow: Any, position: int) -> ElementError:
    """The error of a function above the row at a position."""
    with pytest.raises(ElementError) as caught:
        flow.map(fails).at(position)
    return caught.value


def test_a_function_above_from_files_fails_on_a_file(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(name)
    error = error_of(fl.from_files(tmp_path / "*.txt"), 1)
    path = str(tmp_path / "b.txt")
    assert error.location == Location(path)
    assert f"(row 1 of from_files('{tmp_path}/*.txt', 3 files), {path!r}): ValueError" in str(error)


@pytest.mark.parametrize("procs", [0, 2])
def test_a_location_comes_from_worker_processes(procs: int, tmp_path: Path) -> None:
    for k in range(3):
        (tmp_path / f"{k}.jsonl").write_text("1\n\n2\n" * 4)
    seen: list[Location | None] = []
    lines = fl.from_text(tmp_path / "*.jsonl").map(int)
    flow = lines.prefetch(procs=procs, on_error=lambda error: seen.append(error.location))
    assert len(flow.collect()) == 24
    assert seen == [
        Location(str(tmp_path / f"{k}.jsonl"), line) for k in range(3) for line in (2, 5, 8, 11)
    ]


def test_rows_of_several_lines_are_found(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('id,text\n1,"a\nb"\n\n2,c\n3,"d\n\ne"\n4,f\n')
    flow = fl.from_csv(path)
    lines = [error_of(flow, i).location for i in range(4)]
    assert lines == [Location(str(path), line) for line in (2, 5, 6, 9)]
    assert f"row 3 of from_csv('rows.csv'), line 9 of '{path}'" in str(error_of(flow, 3))


def test_a_last_line_without_a_newline_is_found(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n\n1,x\n2,y")
    assert [error_of(fl.from_csv(path), i).location for i in range(2)] == [
        Location(str(path), 3),
        Location(str(path), 4),
    ]
    path.write_text('a,b\n1,"p\nq"\n2,y')
    assert error_of(fl.from_csv(path), 1).location == Location(str(path), 4)


def test_comments_of_svmlight_are_not_counted_as_samples(tmp_path: Path) -> None:
    path = tmp_path / "rows.svm"
    path.write_text("# c\n# c\n0 1:1\n")
    assert error_of(fl.from_svmlight(path), 0).location == Location(str(path))


def test_a_file_that_shrank_is_named_without_a_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a\n" + '"x\ny"\n' * 50)
    flow: Any = fl.from_csv(path)
    path.write_text('a\n"x\ny"\n')
    assert flow.node.location(40) == Location(str(path))


def test_a_compressed_file_with_rows_of_several_lines_is_named_without_a_line(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b'id,text\n1,"a\nb"\n2,c\n'))
    assert error_of(fl.from_csv(path), 1).location == Location(str(path))
    rows = "".join(f"{i},a\n" for i in range(3000))  # several blocks
    path.write_bytes(gzip.compress(f"id,text\n{rows}".encode()))
    assert error_of(fl.from_csv(path), 1).location == Location(str(path), 3)


def test_a_changed_file_is_named_without_a_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('id,text\n1,"a\nb"\n2,c\n')
    flow: Any = fl.from_csv(path)
    path.unlink()
    assert flow.node.location(1) == Location(str(path))


def write_lmdb_like(writer: str, path: Path, rows: range) -> None:
    flow: Any = fl.from_items([{"x": i} for i in rows])
    getattr(flow, f"write_{writer}")(path)


@pytest.mark.parametrize("name", ["parquet", "tfrecord", "arrayrecord"])
def test_the_file_of_several_is_named(name: str, tmp_path: Path) -> None:
    if name == "tfrecord":
        pytest.importorskip("google_crc32c")
    if name == "arrayrecord":
        pytest.importorskip("array_record")
    write_lmdb_like(name, tmp_path / f"a.{name}", range(3))
    write_lmdb_like(name, tmp_path / f"b.{name}", range(3, 5))
    read: Any = getattr(fl, f"from_{name}")
    element = [] if name == "parquet" else [dict[str, int]]
    flow = read(tmp_path / f"*.{name}", *element)
    path = str(tmp_path / f"b.{name}")
    assert error_of(flow, 3).location == Location(path)
    assert f"row 3 of from_{name}('a.{name}', 2 files), {path!r}" in str(error_of(flow, 3))
    alone = read(tmp_path / f"b.{name}", *element)
    assert error_of(alone, 1).location is None  # the title names the only file
    assert f"(row 1 of from_{name}('b.{name}')): ValueError" in str(error_of(alone, 1))


def test_the_error_of_a_source_has_the_location_and_says_it_once(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id\n1\nx\n3\n")
    seen: list[ElementError] = []
    flow = fl.from_csv(path, tuple[int]).prefetch(threads=1, on_error=seen.append)
    assert flow.collect() == [(1,), (3,)]
    (error,) = seen
    assert error.location == Location(str(path), 3)
    assert error.origin == "row 1 of from_csv('rows.csv')"


def test_origins_have_locations(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("x\ny\n")
    (first, second) = fl.from_text(tmp_path / "*.txt").shuffle(seed=1).batch(2).origins(0)
    for origin in (first, second):
        k, line = divmod(origin.row, 2)
        assert origin.location == Location(str(tmp_path / f"{'ab'[k]}.txt"), line + 1)
        assert str(origin).endswith(f", {origin.location}")


def test_an_error_on_several_rows_has_no_location(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x\ny\n")
    error = error_of(fl.from_text(path).batch(2), 0)
    assert error.location is None
    assert "line 1" in error.origin
    assert "line 2" in error.origin


@given(
    st.lists(st.sampled_from(["", "a", '"b"', '"c\nd"', '"\n\n"', "# e"]), max_size=40),
    st.sampled_from(["\n", "\r\n"]),
)
def test_lines_are_those_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, cells: list[str], newline: str
) -> None:
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    text = "".join(f"{cell}{newline}" for cell in cells)
    path.write_bytes(text.encode())
    if not any(cells):
        return
    flow: Any = fl.from_csv(path, header=False)
    expected, line = [], 1
    for cell in cells:
        if cell:
            expected.append(line)
        line += 1 + cell.count("\n")
    assert [flow.node.location(i).line for i in range(len(flow))] == expected
