"""The shared part of all writers, tested through one of them or directly."""

from __future__ import annotations

import errno
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import xxhash
from filelock import FileLock

import flowdsl as fl
from flowdsl.errors import FlowError
from flowdsl.storage import progress, temp_dirs
from flowdsl.storage.byte_files import ByteFile, open_file
from flowdsl.storage.index import Index, index_of
from flowdsl.storage.libraries import library
from flowdsl.storage.paths import all_paths
from flowdsl.storage.temp_dirs import move_new, temporary_directory
from flowdsl.storage.writing import write_file
from tests.storage.disk_full import SKIPPED
from tests.storage.formats import FORMATS
from tests.storage.fuzz import damaged


def test_leftovers_of_a_killed_writer_are_removed_by_the_next(tmp_path: Path) -> None:
    program = """
import os, sys
from flowdsl.storage.temp_dirs import temporary_directory
with temporary_directory(sys.argv[1]) as folder:
    (folder / "partial").write_bytes(bytes(1000))
    print(folder, flush=True)
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), 9)
    sys.stdin.read()
"""
    start = [sys.executable, "-c", program, str(tmp_path)]
    killed = subprocess.run([*start, "killed"], capture_output=True, text=True, timeout=60)
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*start, "alive"], **pipes) as alive:
        assert alive.stdout is not None
        living = alive.stdout.readline().strip()
        with temporary_directory(tmp_path) as young, temporary_directory(tmp_path):
            assert young.is_dir()
        assert not Path(killed.stdout.strip()).exists()
        assert Path(living).is_dir()
        alive.communicate("")


@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_writer_of_lmdb_leaves_nothing_after_the_next(
    tmp_path: Path, append: bool, by: signal.Signals
) -> None:
    program = """
import os, sys
import lmdb
import flowdsl as fl
from flowdsl.storage.lmdb import writing

def die(env, pairs):
    os.kill(os.getpid(), int(sys.argv[3]))

writing._commit = die
fl.from_range(3).write_lmdb(sys.argv[1], append=sys.argv[2] == "True")
"""
    path = tmp_path / "rows.lmdb"
    arguments = [sys.executable, "-c", program, str(path), str(append), str(int(by))]
    assert subprocess.run(arguments, timeout=60, check=False).returncode == -by
    assert [entry.name[:9] for entry in tmp_path.iterdir()] == [".flowdsl-"]
    fl.from_range(3).write_lmdb(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="it removes no file that is open")
def test_a_writer_that_locks_a_folder_being_removed_finds_no_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has opened the mark before, and gets the lock of the sweep afterwards."""
    import fcntl

    folder = tmp_path / ".flowdsl-left"
    folder.mkdir()
    mark = folder / ".made-by-flowdsl"
    opened = os.open(mark, os.O_CREAT | os.O_RDWR)
    found = list[bool]()

    def remove(path: str) -> None:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found.append(mark.exists())

    monkeypatch.setattr("shutil.rmtree", remove)
    temp_dirs._sweep(tmp_path)
    assert found == [False]
    os.close(opened)


def test_the_lock_of_a_mark_that_was_made_again_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process removes the mark, and another one, which waited for its lock, makes it again."""
    folder = tmp_path / "rows"
    mark = folder / ".made-by-flowdsl"
    acquire = FileLock.acquire

    def and_replace(lock: FileLock, *, blocking: bool) -> object:
        held = acquire(lock, blocking=blocking)
        mark.unlink()
        mark.touch()
        return held

    modes: tuple[Literal["xb", "rb"], ...] = ("xb", "rb")
    for mode in modes:
        folder.mkdir()
        if mode == "rb":
            mark.touch()
        with monkeypatch.context() as patch:
            patch.setattr(FileLock, "acquire", and_replace)
            assert temp_dirs._locked(str(folder), mode) is None
        assert not folder.exists()


def test_a_folder_has_one_lock(tmp_path: Path) -> None:
    lock = temp_dirs._locked(str(tmp_path), "xb")
    assert lock is not None
    assert temp_dirs._locked(str(tmp_path), "rb") is None
    lock.release()


def test_no_mark_is_made_again_for_its_lock(tmp_path: Path) -> None:
    assert temp_dirs._locked(str(tmp_path), "rb") is None
    assert list(tmp_path.iterdir()) == []


def test_writers_sweep_while_others_begin(tmp_path: Path) -> None:
    """A folder that was just made is never removed by the sweep of another writer."""

    def use() -> None:
        for i in range(60):
            with temporary_directory(tmp_path) as folder:
                (folder / "rows").write_text(str(i))
                assert (folder / "rows").read_text() == str(i)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(use) for _ in range(4)]:
            done.result()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("links", [True, False])
def test_one_of_several_writers_makes_a_new_file(
    tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on file systems without links."""

    def no_link(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if not links:
        monkeypatch.setattr(os, "link", no_link)
    target, at_once = tmp_path / "rows", threading.Barrier(4)

    def write(k: int) -> bool:
        file = tmp_path / f"new {k}"
        file.write_text(str(k))
        at_once.wait()
        try:
            move_new(file, target)
        except FileExistsError:
            return False
        return True

    for _ in range(30):
        with ThreadPoolExecutor(4) as threads:
            won = list(threads.map(write, range(4)))
        assert target.read_text() == str(won.index(True))
        assert sum(won) == 1
        target.unlink()


def test_full_disk_error_reports_the_needed_space(tmp_path: Path) -> None:
    def write(path: Path, rows: Iterable[int]) -> None:
        for i in rows:
            with path.open("ab") as file:
                file.write(bytes(100))
            if i == 3:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "rows"
    path.write_text("old")
    with pytest.raises(fl.SourceError) as caught:
        write_file("write_rows", fl.from_range(20), path, True, write)
    message = "400 bytes were written, about 2,000 are needed for 20 rows, and "
    assert (
        f"write_rows: {str(path)!r} cannot be written: No space left on device; {message}"
        in str(caught.value)
    )
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_progress_bar_is_drawn_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    with progress.bar("write_rows", 4) as draw:
        draw(3)
    assert "write_rows" in capsys.readouterr().err


def test_missing_library_error_has_the_install_command() -> None:
    with pytest.raises(ImportError, match=r'pip install "flowdsl\[parquet\]"'):
        library("no_such_library.part", "from_parquet", "parquet")


# -- names -----------------------------------------------------------------------------------------


def test_listed_names_keep_their_order_and_matches_are_sorted(tmp_path: Path) -> None:
    for name in ("b1", "a2", "a1", "c[1]"):
        (tmp_path / name).touch()
    given: list[str | Path] = [
        tmp_path / "c[1]",
        tmp_path / "b1",
        str(tmp_path / "a*"),
        tmp_path / "b1",
    ]
    names = [os.path.basename(name) for name in all_paths("from_rows", given)]
    assert names == ["c[1]", "b1", "a1", "a2", "b1"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("s-{08..11}.tar", ["s-08.tar", "s-09.tar", "s-10.tar", "s-11.tar"]),
        ("{0..10..5}", ["{0..10..5}"]),
        ("{9..11}{a,}", ["9a", "9", "10a", "10", "11a", "11"]),
        ("{2..0}", ["2", "1", "0"]),
        ("{a}{}{", ["{a}{}{"]),
    ],
)
def test_braces_stand_for_several_names(tmp_path: Path, pattern: str, names: list[str]) -> None:
    assert all_paths("from_rows", tmp_path / pattern) == tuple(str(tmp_path / n) for n in names)
    url = f"https://example.org/{pattern}"
    assert all_paths("from_rows", url) == tuple(f"https://example.org/{name}" for name in names)


def test_a_file_whose_name_has_braces_is_read(tmp_path: Path) -> None:
    (tmp_path / "{a,b}").touch()
    assert all_paths("from_rows", tmp_path / "{a,b}") == (str(tmp_path / "{a,b}"),)
    (tmp_path / "c1").touch()
    names = all_paths("from_rows", tmp_path / "{c,c}*")
    assert names == (str(tmp_path / "c1"),) * 2


def test_braces_in_a_folder_that_exists_are_literal(tmp_path: Path) -> None:
    names = [tmp_path / "{a,b}" / "run[1]" / f"{n}.txt" for n in (1, 2)]
    names[0].parent.mkdir(parents=True)
    for name in names:
        name.touch()
    wanted = tuple(map(str, names))
    for pattern in ("{a,b}/run[1]/*.txt", "{a,b}/run[1]/{1,2}.txt", "{a,b}/*/{1..2}.txt"):
        assert all_paths("from_rows", tmp_path / pattern) == wanted
    (tmp_path / "a").mkdir()
    assert all_paths("from_rows", tmp_path / "{a,b}" / "{x,y}" / "3.txt") == tuple(
        str(tmp_path / "{a,b}" / folder / "3.txt") for folder in "xy"
    )


def test_braces_of_too_many_names_are_refused() -> None:
    for path in ("{0..999999999999999}", "{1..1001}{1..1000}"):
        with pytest.raises(fl.InvalidFlow, match=r"from_rows: the braces in .* stand for 1,00"):
            all_paths("from_rows", path)


@pytest.mark.parametrize("path", [None, 3, b"a", [], [None], "", "a\0b"], ids=repr)
def test_invalid_path_is_refused(path: Any) -> None:
    with pytest.raises(fl.InvalidFlow, match="from_rows: path must be a str or path"):
        all_paths("from_rows", path)


def test_a_pattern_that_matches_nothing_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(fl.SourceError, match=r"no file matches .*; the folder .* does not exist"):
        all_paths("from_rows", tmp_path / "no" / "*.rows")


# -- bytes and indexes -----------------------------------------------------------------------------


def test_missing_file_or_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fl.SourceError, match="not a file"):
        open_file("from_rows", str(tmp_path))
    with pytest.raises(fl.SourceError, match="cannot be opened: No such file"):
        open_file("from_rows", str(tmp_path / "none"))


def _pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def _socket(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))
    return path


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such files")
@pytest.mark.parametrize(
    ("make", "what"),
    [(_pipe, "pipe"), (_socket, "socket"), (lambda _: Path("/dev/zero"), "device")],
    ids=["pipe", "socket", "device"],
)
@pytest.mark.timeout(10)
def test_a_pipe_socket_or_device_is_refused_at_once(
    make: Callable[[Path], Path], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path has a short limit
    path = make(Path("a.jpg"))
    with pytest.raises(fl.SourceError, match=rf"from_rows: '.*' is a {what}, not a file"):
        open_file("from_rows", str(path))
    with pytest.raises(FlowError, match=f"is a {what}, not a file"):
        fl.from_images([path]).collect()


def _scanned(counted: list[int]) -> Any:
    def scan(file: ByteFile) -> Index:
        counted.append(file.size)
        starts = np.arange(file.size, dtype=np.int64)
        return Index(starts, starts + 1, 2**64 - file.size)

    return scan


def _indexed(path: Path, counted: list[int], form: str = "rows 1") -> Index:
    return index_of(open_file("read", str(path)), form, _scanned(counted))


def test_index_is_built_once_per_version_of_its_file(tmp_path: Path) -> None:
    path, counted, then = tmp_path / "rows", list[int](), time.time() - 100
    path.write_bytes(b"abc")
    os.utime(path, (then, then))
    for _ in range(2):
        found = _indexed(path, counted)
        assert (found.starts.tolist(), found.ends.tolist()) == ([0, 1, 2], [1, 2, 3])
        assert found.digest == 2**64 - 3
    assert counted == [3]
    _indexed(path, counted, "rows 2")
    path.write_bytes(b"abcd")
    os.utime(path, (then, then))
    assert len(_indexed(path, counted)) == 4
    beside = tmp_path / ".rows.index"
    damaged = bytearray(beside.read_bytes())
    damaged[-20] ^= 1
    beside.write_bytes(damaged)
    assert len(_indexed(path, counted)) == 4
    assert counted == [3, 3, 4, 4]


def _an_indexed_file(folder: Path) -> tuple[Path, Path]:
    path = folder / "rows"
    path.write_bytes(b"abc")
    os.utime(path, (1, 1))
    _indexed(path, [])
    return path, folder / ".rows.index"


@pytest.mark.parametrize("change", [1, 8, -1, -8, -30, 1 << 40], ids=str)
def test_an_index_of_a_wrong_size_is_damaged(tmp_path: Path, change: int) -> None:
    path, beside = _an_indexed_file(tmp_path)
    good, counted = beside.read_bytes(), list[int]()
    os.truncate(beside, len(good) + change)  # larger: sparse
    assert len(_indexed(path, counted)) == 3
    assert counted == [3]
    assert beside.read_bytes() == good


def test_a_damaged_index_is_built_again(tmp_path: Path) -> None:
    path, beside = _an_indexed_file(tmp_path)
    good = beside.read_bytes()
    for seed in range(200):
        damaged_bytes = damaged(good, random.Random(seed))
        beside.write_bytes(damaged_bytes)
        counted = list[int]()
        found = _indexed(path, counted)
        assert (found.starts.tolist(), found.ends.tolist()) == ([0, 1, 2], [1, 2, 3])
        assert counted == ([] if damaged_bytes == good else [3])
        beside.unlink()  # damage may have made it a file of another program, which is left


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such files")
@pytest.mark.timeout(10)
def test_a_pipe_in_the_place_of_an_index_is_left_alone(tmp_path: Path) -> None:
    path, beside = _an_indexed_file(tmp_path)
    beside.unlink()
    os.mkfifo(beside)
    assert len(_indexed(path, [])) == 3
    assert beside.is_fifo()


def test_an_index_of_another_content_is_stale_even_if_it_names_this_version(tmp_path: Path) -> None:
    path, beside = _an_indexed_file(tmp_path)
    old, stamp = beside.read_bytes(), open_file("read", str(path)).stamp.encode()
    path.write_bytes(b"xyz")
    os.utime(path, (1, 1))
    forged = old[:-8].replace(stamp, open_file("read", str(path)).stamp.encode())
    beside.write_bytes(forged + xxhash.xxh3_64_digest(forged))
    counted = list[int]()
    _indexed(path, counted)
    assert counted == [3]


@pytest.mark.skipif(sys.platform == "win32", reason="its files have no such modes")
def test_an_index_is_readable_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        _, beside = _an_indexed_file(tmp_path)
    finally:
        os.umask(before)
    assert beside.stat().st_mode & 0o777 == 0o640


def test_leftovers_of_a_killed_writer_of_an_index_are_removed_by_the_next(tmp_path: Path) -> None:
    program = """
import os, sys
import flowdsl as fl
os.replace = lambda *_: os._exit(9)
fl.from_text(sys.argv[1])
"""
    path = tmp_path / "rows"
    path.write_text("one\n")
    done = subprocess.run([sys.executable, "-c", program, str(path)], timeout=60, check=False)
    assert done.returncode == 9
    (left,) = tmp_path.glob(".flowdsl-*")
    os.utime(left, (1, 1))
    fl.from_text(path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [".rows.index", "rows"]


def test_an_index_as_old_as_its_file_is_not_trusted(tmp_path: Path) -> None:
    path, counted = tmp_path / "rows", list[int]()
    path.write_bytes(b"abc")
    for _ in range(2):
        _indexed(path, counted)
    assert counted == [3, 3]


def test_index_that_cannot_be_stored_is_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, counted, then = tmp_path / "rows", list[int](), time.time() - 100
    path.write_bytes(b"abc")
    os.utime(path, (then, then))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "not yours")

    monkeypatch.setattr(os, "replace", refuse)
    assert len(_indexed(path, counted)) == len(_indexed(path, counted)) == 3
    assert counted == [3, 3]
    assert list(tmp_path.iterdir()) == [path]


def test_full_disk_keeps_the_existing_file(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.storage.disk_full", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    message = dict(line.rsplit(": ", 1) for line in done.stdout.splitlines())
    assert message == {name: "None" for name in FORMATS if name not in SKIPPED}


def test_file_created_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"

    def line(i: int) -> str:
        path.write_text("another's")
        return str(i)

    with pytest.raises(
        fl.InvalidFlow, match="created by another program meanwhile and was not replaced"
    ):
        fl.from_range(3).map(line).write_text(path)
    assert path.read_text() == "another's"
    assert fl.from_range(3).map(line).write_text(path, overwrite=True) == 3
    assert path.read_text() == "0\n1\n2\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="its files have no such modes")
@pytest.mark.parametrize("name", [name for name in FORMATS if name != "npy"])
def test_an_overwritten_file_keeps_its_mode(name: str, tmp_path: Path) -> None:
    one, path = FORMATS[name], tmp_path / "rows"
    one.written(one.some, path)
    (file,) = path.glob("data.mdb") if path.is_dir() else [path]
    file.chmod(0o600)
    one.written(one.some, path)
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(sys.platform == "win32", reason="making links needs a privilege")
@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("npy", "lmdb folder")])
def test_a_link_is_written_through(name: str, tmp_path: Path) -> None:
    one, link, file = FORMATS[name], tmp_path / "link", tmp_path / "folder" / "rows"
    file.parent.mkdir()
    link.symlink_to(file)
    for rows in (one.some[:3], one.some[5:9]):  # a link to no file, and to one
        expected = list(map(repr, one.written(rows, link)))
        assert link.is_symlink()
        assert list(map(repr, one.read(file))) == expected
        assert len(expected) == len(rows)


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such files")
def test_a_pipe_or_a_link_to_itself_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    _pipe(tmp_path / "pipe")
    for name, what in (("loop", "is a link that leads to itself"), ("pipe", "is a pipe, not a")):
        with pytest.raises(fl.InvalidFlow, match=f"write_text: '.*{name}' {what}"):
            fl.from_items(["a"]).write_text(tmp_path / name, overwrite=True)
    assert (tmp_path / "pipe").is_fifo()


def test_overwrite_must_be_a_bool(tmp_path: Path) -> None:
    no: Any = "no"
    with pytest.raises(fl.InvalidFlow, match="overwrite must be True or False, got 'no'"):
        fl.from_items(["a"]).write_text(tmp_path / "a", overwrite=no)


def test_folder_of_another_program_is_not_removed(tmp_path: Path) -> None:
    theirs = [tmp_path / ".flowdsl-notes", tmp_path / ".flowdsl-a1b2c3d4"]
    kept = tmp_path / "kept"
    kept.mkdir()
    (tmp_path / ".flowdsl-link").symlink_to(kept)
    for folder in (*theirs, kept):
        folder.mkdir(exist_ok=True)
        (folder / "work.txt").write_text("mine")
        os.utime(folder, (1, 1))
    fl.from_items(["a"]).write_text(tmp_path / "a.txt")
    fl.from_items(["a"]).write_lmdb(tmp_path / "a.lmdb")
    assert [(folder / "work.txt").read_text() for folder in (*theirs, kept)] == ["mine"] * 3


@pytest.mark.parametrize(
    "content", [b"notes of mine", b"flowdsl index", bytes(99)], ids=["text", "nearly one", "zeros"]
)
def test_a_file_with_the_name_of_an_index_is_not_overwritten(
    tmp_path: Path, content: bytes
) -> None:
    path, other = tmp_path / "d", tmp_path / ".d.index"
    path.write_text("one\ntwo\n")
    other.write_bytes(content)
    os.utime(path, (1, 1))
    for _ in range(2):
        assert fl.from_text(path).collect() == ["one", "two"]
    assert other.read_bytes() == content
    other.unlink()
    fl.from_text(path)
    assert other.read_bytes().startswith(b"flowdsl index")
