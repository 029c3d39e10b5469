"""Appending to LMDB files: added rows, killed writers, and concurrent readers."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import lmdb
import numpy as np
import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.errors import ElementError, InvalidFlow, SourceError, SpecMismatch
from flowdsl.storage.lmdb import rows as lmdb_rows
from flowdsl.storage.lmdb import writing as lmdb_writing
from tests.sampling import examples
from tests.storage.test_lmdb import output_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.lmdb"


@pytest.fixture
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_rows, "_COMMIT_ROWS", 4)


class Pair(NamedTuple):
    x: int
    y: NDArray[np.uint8]


def pairs(first: int, last: int) -> fl.Flow[Pair, fl.Exact]:
    return fl.from_range(last).skip(first).map(lambda i: Pair(i, np.full(i, i, np.uint8)))


def stays_readable(path: Path) -> None:
    """Check that the file's size is what LMDB needs, and that no other files are beside it."""
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as env:
        used = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    assert path.stat().st_size == used + (1 << 17)
    assert os.listdir(path.parent) == [path.name]


# -- what is added ---------------------------------------------------------------------------------


@settings(max_examples=examples(100))
@given(st.lists(st.integers(0, 11), max_size=5))
@pytest.mark.usefixtures("few_at_a_time")
def test_appending_in_pieces_equals_writing_at_once(tmp_path: Path, pieces: list[int]) -> None:
    whole, path = tmp_path / "whole.lmdb", tmp_path / "pieces" / "rows.lmdb"
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    n = 0
    for piece in pieces:
        assert pairs(n, n + piece).write_lmdb(path, append=True) == piece
        n += piece
        assert len(fl.from_lmdb(path)) == n
        stays_readable(path)
    if pieces:
        pairs(0, n).write_lmdb(whole, overwrite=True)
        got, expected = fl.from_lmdb(path, Pair), fl.from_lmdb(whole, Pair)
        assert str(got.spec) == str(expected.spec)
        assert [(x, y.tolist()) for x, y in got] == [(i, [i] * i) for i in range(n)]
        # Equal digests: a position that was saved over one is good for the other.
        assert got.node.fingerprint.split(")")[1] == expected.node.fingerprint.split(")")[1]


def test_rows_are_added_to_a_store_that_was_written_whole(path: Path) -> None:
    pairs(0, 5).write_lmdb(path)
    pairs(5, 8).write_lmdb(path, append=True)
    assert [row.x for row in fl.from_lmdb(path, Pair)] == list(range(8))
    stays_readable(path)


def test_spec_is_the_join_of_old_and_new_rows(path: Path) -> None:
    fl.from_items([(np.zeros((4, 2)), 1)]).write_lmdb(path, append=True)
    fl.from_items([(np.zeros((4, 3)), "a")]).write_lmdb(path, append=True)
    assert str(fl.from_lmdb(path).spec) == "(float64[4, ?], ?)"
    with pytest.raises(SpecMismatch):
        fl.from_lmdb(path, tuple[NDArray[np.float32], object])


def test_store_may_outgrow_its_map(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_writing, "_GROWTH_BYTES", 1 << 20)
    monkeypatch.setattr(lmdb_rows, "_COMMIT_BYTES", 1 << 18)
    rows = fl.from_range(40).map(lambda i: np.full(100_000, i, np.uint8))
    rows.write_lmdb(path, append=True)
    rows.write_lmdb(path, append=True)
    assert [row[-1] for row in fl.from_lmdb(path, NDArray[np.uint8])] == [*range(40)] * 2
    stays_readable(path)


def test_rows_are_committed_within_seconds(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr(lmdb_rows, "monotonic", lambda: next(clock))
    seen: list[int] = []

    def rows() -> Iterator[int]:
        for i in range(20):
            if path.exists():
                seen.append(i)
            yield i

    fl.from_iterable(rows).write_lmdb(path, append=True)
    assert seen[0] < 5
    assert fl.from_lmdb(path).collect() == list(range(20))


# -- what is left by a writer that does not come to its end ----------------------------------------


def failing(i: int) -> int:
    if i == 6:
        raise ValueError("half-way")
    return i


@pytest.mark.usefixtures("few_at_a_time")
@pytest.mark.parametrize("before", [0, 3])
def test_failing_flow_leaves_the_first_rows(path: Path, before: int) -> None:
    if before:
        fl.from_items([-1] * before).write_lmdb(path)
    with pytest.raises(ElementError, match="element 6") as caught:
        fl.from_range(9).map(failing).write_lmdb(path, append=True)
    there = before + 4
    assert f"holds {there} rows and is incomplete" in caught.value.__notes__[-1]
    with pytest.raises(SourceError, match=rf"rows\.lmdb' is incomplete: .* after {there} rows"):
        fl.from_lmdb(path)
    first = fl.from_lmdb(path, int, partial=True)
    assert first.collect() == [-1] * before + [0, 1, 2, 3]
    stays_readable(path)
    rest = fl.from_range(9).skip(len(first) - before)
    assert rest.write_lmdb(path, append=True) == 5
    assert fl.from_lmdb(path).collect() == [-1] * before + list(range(9))
    with pytest.raises(SourceError, match="has changed since"):
        first.collect()


@pytest.mark.parametrize("before", [0, 3])
def test_failure_before_the_first_write_changes_nothing(path: Path, before: int) -> None:
    if before:
        fl.from_range(before).write_lmdb(path)
    kept = path.read_bytes() if before else b""
    with pytest.raises(SpecMismatch, match=r"^write_lmdb: row 2: element\.1: set cannot"):
        fl.from_range(9).map(lambda i: (i, {i} if i == 2 else i)).write_lmdb(path, append=True)
    assert os.listdir(path.parent) == (["rows.lmdb"] if before else [])
    assert not before or path.read_bytes() == kept


def test_partial_also_reads_a_complete_store(path: Path) -> None:
    fl.from_range(3).write_lmdb(path)
    assert fl.from_lmdb(path, partial=True).collect() == [0, 1, 2]


KILLED = """
import os, random, signal, sys
import numpy as np
import flowdsl as fl
from flowdsl.storage.lmdb import rows as lmdb_rows

path, draw, kills, n = sys.argv[1], random.Random(sys.argv[2]), int(sys.argv[3]), 0
lmdb_rows._COMMIT_ROWS = 3


def row(i):
    return i, np.full(i * 997 % 20_000, i % 256, np.uint8)


def rows(first, last):
    return fl.from_range(last).skip(first).map(row)


def check(flow, count):
    seen = 0
    for i, (number, array) in enumerate(flow):
        expected = row(i)
        assert number == i and np.array_equal(array, expected[1]), i
        seen += 1
    assert seen == len(flow) == count, (seen, count)


for _ in range(kills):
    source, sink = os.pipe()
    child = os.fork()
    if not child:
        def message(x):
            os.write(sink, b".")
            return x
        rows(n, 10**6).map(message).write_lmdb(path, append=True)
    os.close(sink)
    for _ in range(draw.randrange(1, 12)):
        os.read(source, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(source)
    try:
        check(fl.from_lmdb(path), n)
        print("as it was")
    except fl.SourceError as error:
        if not os.path.exists(path):
            print("none")
            continue
        assert "is incomplete" in str(error), error
        first = fl.from_lmdb(path, partial=True)
        assert len(first) >= n and f"after {len(first)} rows" in str(error), error
        check(first, len(first))
        n = len(first)
        print("incomplete")
    if draw.random() < 0.3:
        rows(n, n + 2).write_lmdb(path, append=True)
        n += 2
        check(fl.from_lmdb(path), n)
        assert not os.path.exists(path + "-lock")
print("end")
"""


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.long)])
def test_killed_writer_leaves_the_first_rows(path: Path, kills: int) -> None:
    outcomes = output_of(KILLED, path, 3, kills).splitlines()
    assert len(outcomes) == kills + 1
    assert "incomplete" in outcomes
    assert set(outcomes) <= {"none", "as it was", "incomplete", "end"}


WHOLE_OR_NONE = """
import os, signal, sys
import flowdsl as fl
for overwrite in (False, True):
    source, sink = os.pipe()
    child = os.fork()
    if not child:
        fl.from_range(10**7).map(lambda i: os.write(sink, b".") and i).write_lmdb(
            sys.argv[1], overwrite=overwrite)
    os.close(sink)
    for _ in range(3000):
        os.read(source, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(os.path.exists(sys.argv[1]) and fl.from_lmdb(sys.argv[1]).collect())
    if not overwrite:
        fl.from_range(3).write_lmdb(sys.argv[1])
"""


def test_killed_writer_keeps_the_existing_store(path: Path) -> None:
    assert output_of(WHOLE_OR_NONE, path).splitlines() == ["False", "[0, 1, 2]"]


# -- a full disk -----------------------------------------------------------------------------------

FULL = """
import resource, sys, flowdsl as fl, numpy as np
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 23, 1 << 23))
rows = fl.from_range(30).map(lambda i: np.zeros(1 << 20, np.uint8))
fl.from_range(3).write_lmdb(sys.argv[1])
try: rows.write_lmdb(sys.argv[1], append=sys.argv[2] == "append", overwrite=sys.argv[2] != "append")
except fl.SourceError as error: print(error)
print(fl.from_lmdb(sys.argv[1]).collect())
"""


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_full_disk_keeps_the_existing_file(path: Path, mode: str) -> None:
    said, kept = output_of(FULL, path, mode).splitlines()
    assert said.startswith(f"write_lmdb: '{path}' cannot be written: ")
    assert "bytes were written" in said
    assert "are free" in said
    assert kept == "[0, 1, 2]"
    assert os.listdir(path.parent) == ["rows.lmdb"]


@pytest.mark.usefixtures("few_at_a_time")
def test_full_disk_error_reports_the_needed_space(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = iter(range(100))
    make_room = lmdb_writing._Growing._make_room

    def refuse(store: Any, more: int) -> None:
        make_room(store, more)
        if next(commits) == 2:
            raise lmdb.DiskError(f"mdb_txn_commit: {os.strerror(errno.ENOSPC)}")

    monkeypatch.setattr(lmdb_writing._Growing, "_make_room", refuse)
    rows = fl.from_range(80).map(lambda i: np.full(100_000, i, np.uint8))
    with pytest.raises(SourceError, match=r"No space left .* needed for 80 rows") as caught:
        rows.write_lmdb(path, append=True)
    needed = int(str(caught.value).partition("about ")[2].split()[0].replace(",", ""))
    assert 8_000_000 <= needed < 80_000_000
    assert len(fl.from_lmdb(path, partial=True)) == 8
    rows.skip(8).write_lmdb(path, append=True)
    assert [row[0] for row in fl.from_lmdb(path, NDArray[np.uint8])] == list(range(80))


# -- refusals --------------------------------------------------------------------------------------


def never() -> list[int]:
    raise AssertionError("the flow was run")


def test_append_to_an_invalid_store_is_refused_before_the_flow_runs(path: Path) -> None:
    flow = fl.from_iterable(never)
    with pytest.raises(InvalidFlow, match="overwrite=True and append=True exclude each other"):
        flow.write_lmdb(path, overwrite=True, append=True)
    with pytest.raises(InvalidFlow, match=r"no folder '.*gone'; make it first"):
        flow.write_lmdb(path.parent / "gone" / "rows.lmdb", append=True)
    path.write_text("x" * 10_000)
    with pytest.raises(SourceError, match="it is not an LMDB file"):
        flow.write_lmdb(path, append=True)
    assert path.read_text() == "x" * 10_000
    assert os.listdir(path.parent) == ["rows.lmdb"]


def test_only_one_writer_at_a_time(path: Path) -> None:
    fl.from_range(3).write_lmdb(path)
    with FileLock(path.with_name(f".flowdsl-{path.name}-lock")) as lock:
        with pytest.raises(InvalidFlow, match="is being appended to by another writer"):
            fl.from_iterable(never).write_lmdb(path, append=True)
        os.unlink(lock.lock_file)
    fl.from_range(5).skip(3).write_lmdb(path, append=True)
    assert fl.from_lmdb(path).collect() == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("few_at_a_time")
@pytest.mark.parametrize("before", [False, True])
def test_writer_locks_its_store(path: Path, before: bool) -> None:
    if before:
        fl.from_range(5).write_lmdb(path)

    def rows() -> Iterator[int]:
        yield from range(9)
        with pytest.raises(InvalidFlow, match="is being appended to by another writer"):
            fl.from_iterable(never).write_lmdb(path, append=True)

    assert fl.from_iterable(rows).write_lmdb(path, append=True) == 9
    assert len(fl.from_lmdb(path)) == (14 if before else 9)


def test_only_one_of_two_writers_creates_a_store(path: Path) -> None:
    def rows() -> Iterator[int]:
        fl.from_range(2).write_lmdb(path, append=True)
        yield 7

    with pytest.raises(InvalidFlow, match="was made by another writer meanwhile"):
        fl.from_iterable(rows).write_lmdb(path, append=True)
    assert fl.from_lmdb(path).collect() == [0, 1]


def test_store_read_by_this_process_may_be_appended_to(path: Path) -> None:
    fl.from_range(3).write_lmdb(path)
    run = iter(fl.from_lmdb(path))
    assert next(run) == 0
    fl.from_range(5).skip(3).write_lmdb(path, append=True)
    assert list(run) == [1, 2]
    assert fl.from_lmdb(path).collect() == [0, 1, 2, 3, 4]


@pytest.mark.skipif(lmdb.__version__ < "2", reason="before 2.0, lmdb does not notice it")
def test_store_open_in_lmdb_is_not_appended_to(path: Path) -> None:
    fl.from_range(3).write_lmdb(path)
    with (
        lmdb.open(str(path), subdir=False, lock=False),
        pytest.raises(InvalidFlow, match="is open in this process"),
    ):
        fl.from_range(1).write_lmdb(path, append=True)


# -- who reads on ----------------------------------------------------------------------------------

READS_ON = """
import os, sys
import numpy as np
import flowdsl as fl
from flowdsl.storage.lmdb import rows as lmdb_rows

lmdb_rows._COMMIT_ROWS = 4
path, sessions = sys.argv[1], int(sys.argv[2])
rows = fl.from_range(300).map(lambda i: np.full(50 + i, i % 256, np.uint8))
rows.write_lmdb(path)
(ready, is_ready), (go, send_go) = os.pipe(), os.pipe()
child = os.fork()
if not child:
    flow = fl.from_lmdb(path)
    run = iter(flow)
    seen = [next(run)]
    os.write(is_ready, b".")
    os.read(go, 1)
    try:
        seen += run
        print("reads on", len(seen), all(map(np.array_equal, seen, rows)))
    except fl.ElementError as error:
        print("refused", error.__cause__)
    try:
        fl.from_lmdb(path)
    except fl.SourceError as error:
        print(error)
    try:
        flow.collect()
    except fl.SourceError as error:
        print(error)
    sys.stdout.flush()
    os._exit(0)
os.read(ready, 1)
for _ in range(sessions):
    fl.from_range(400).map(lambda i: np.full(9000, i % 256, np.uint8)).write_lmdb(
        path, append=True)
os.write(send_go, b".")
os.waitpid(child, 0)
"""


def test_reader_continues_while_rows_are_appended(path: Path) -> None:
    said = output_of(READS_ON, path, 1).splitlines()
    assert said[0] == "reads on 300 True"
    assert "has changed since" in said[-1] or "has grown since this process opened it" in said[-1]


def test_reader_continues_or_is_refused_after_two_appends(path: Path) -> None:
    said = output_of(READS_ON, path, 2).splitlines()
    message = "has changed since it was opened" in said[0]
    assert message or said[0] == "reads on 300 True"


def test_flow_built_before_an_append_is_refused(path: Path) -> None:
    fl.from_range(3).write_lmdb(path)
    flow = fl.from_lmdb(path)
    fl.from_range(5).skip(3).write_lmdb(path, append=True)
    with pytest.raises(SourceError, match="has changed since this flow was built"):
        flow.collect()


# -- folders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("append", [False, True])
def test_folder_as_created_by_lmdb(tmp_path: Path, append: bool) -> None:
    folder = tmp_path / "rows"
    fl.from_range(3).write_lmdb(f"{folder}/", append=append)
    assert os.listdir(folder) == ["data.mdb"]
    assert fl.from_lmdb(folder).collect() == [0, 1, 2]
    assert fl.from_lmdb(folder).node.title == "from_lmdb('rows')"
    with lmdb.open(str(folder)) as env:
        assert env.stat()["entries"] == 4
    assert sorted(os.listdir(folder)) == ["data.mdb", "lock.mdb"]
    fl.from_range(5).skip(3).write_lmdb(folder, append=True)
    assert fl.from_lmdb(f"{folder}/").collect() == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidFlow, match=r"data\.mdb' exists; pass overwrite=True"):
        fl.from_range(2).write_lmdb(folder)
    fl.from_range(2).write_lmdb(folder, overwrite=True)
    assert fl.from_lmdb(folder).collect() == [0, 1]


def test_empty_folder_is_accepted(tmp_path: Path) -> None:
    fl.from_range(3).write_lmdb(tmp_path)
    assert os.listdir(tmp_path) == ["data.mdb"]
    assert fl.from_lmdb(tmp_path).collect() == [0, 1, 2]


@pytest.mark.parametrize("append", [False, True])
def test_folder_created_for_a_failed_write_is_removed(tmp_path: Path, append: bool) -> None:
    for there in ([], ["rows"]):
        for name in there:
            (tmp_path / name).mkdir()
        with pytest.raises(ElementError):
            fl.from_range(9).map(failing).write_lmdb(f"{tmp_path}/rows/", append=append)
        assert os.listdir(tmp_path) == there
    assert os.listdir(tmp_path / "rows") == []


def test_path_that_is_not_a_folder_is_refused(path: Path) -> None:
    flow = fl.from_iterable(never)
    with pytest.raises(InvalidFlow, match=r"gone/rows' cannot be made: No such file"):
        flow.write_lmdb(f"{path.parent}/gone/rows/")
    fl.from_range(3).write_lmdb(path)
    with pytest.raises(InvalidFlow, match=r"rows\.lmdb' is a file, not a folder"):
        flow.write_lmdb(f"{path}/", overwrite=True)
    with suppress(FileNotFoundError), pytest.raises(SourceError, match="No such file"):
        fl.from_lmdb(path.parent)


def test_a_limited_address_space_leaves_less_room_to_grow(tmp_path: Path) -> None:
    program = """
import resource, sys
import flowdsl as fl
resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))
for _ in range(2):
    fl.from_range(1000).write_lmdb(sys.argv[1], append=True)
"""
    path = tmp_path / "rows.lmdb"
    subprocess.run([sys.executable, "-c", program, str(path)], timeout=60, check=True)
    assert fl.from_lmdb(path).collect() == [*range(1000), *range(1000)]
    assert list(tmp_path.iterdir()) == [path]
