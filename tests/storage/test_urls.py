"""Remote files: their bytes arrive unchanged, however often the network fails first."""

from __future__ import annotations

import errno
import io
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from aiohttp import ClientTimeout
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.resources import systems
from flowdsl.resources.file_names import Url
from flowdsl.storage import http, urls
from flowdsl.storage.byte_files import open_file
from flowdsl.storage.paths import all_paths
from flowdsl.storage.urls import RemoteFile
from tests.sampling import examples
from tests.storage.elsewhere import Server, served

fsspec: Any = import_module("fsspec")  # it has no types

DATA = np.random.default_rng(7).bytes(50_000)


@pytest.fixture(scope="module")
def a_server() -> Iterator[Server]:
    with served() as server:
        yield server


@pytest.fixture
def server(a_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(urls, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(urls, "BLOCK", 4096)
    monkeypatch.setattr(http, "_copies", OrderedDict())
    a_server.files, a_server.times, a_server.etags = {"a.bin": DATA}, {}, {}
    a_server.faults.clear()
    a_server.reads.clear()
    a_server.ranges, a_server.most_at_once = True, 0
    a_server.has_conditions = a_server.answers_of_parts = True
    a_server.endless, a_server.sent = False, 0
    return a_server


PARTS = st.lists(st.tuples(st.integers(0, 51_000), st.integers(0, 30_000)), max_size=8)


@settings(max_examples=examples(100), deadline=None)
@given(parts=PARTS, faults=st.lists(st.sampled_from(["error", "cut"]), max_size=3))
def test_any_part_is_read_after_earlier_failures(
    parts: list[tuple[int, int]], faults: list[str]
) -> None:
    with served() as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(urls, "FIRST_WAIT", 0.001)
        patch.setattr(urls, "BLOCK", 4096)
        server.files["a.bin"] = DATA
        file = open_file("read", server.url("a.bin"))
        server.faults = list(faults)
        for start, count in parts:
            assert file.read(start, count) == DATA[start : start + count]
        assert file.size == len(DATA)


def test_stalled_read_is_retried(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    file = open_file("read", server.url("a.bin"))
    monkeypatch.setattr(urls, "SECONDS", 0.3)
    server.faults = ["stall"]
    assert file.read(0, 100) == DATA[:100]
    server.over.set()
    server.over.clear()


def test_most_pixels_error_names_the_file(server: Server) -> None:
    file = open_file("from_x", server.url("a.bin"))
    server.faults = ["error"] * 100
    with pytest.raises(fl.SourceError, match=r"^from_x: .*a\.bin' cannot be read, after 4 .*503"):
        file.read(0, 100)
    server.faults.clear()
    assert file.read(0, 100) == DATA[:100]  # nothing of the failure is kept


def test_missing_or_forbidden_file_fails_at_once(server: Server) -> None:
    with pytest.raises(fl.SourceError, match="none' is missing"):
        open_file("from_text", server.url("none"))
    file = open_file("read", server.url("a.bin"))
    server.reads.clear()
    server.faults = ["forbid"]
    with pytest.raises(fl.SourceError, match=r"a\.bin' may not be read.*403"):
        file.read(49_000, 10)
    assert server.reads["a.bin"] == 1


MORNING, EVENING = "Mon, 05 Jan 2026 08:00:00 GMT", "Mon, 05 Jan 2026 20:00:00 GMT"


def _text(mark: str) -> bytes:
    return b"".join(b"%s %06d\n" % (mark.encode(), i) for i in range(6000))


KINDS = ["etag", "weak etag", "time", "ignored time", "unmet", "head", "size", "etag and time"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ["in order", "shuffled"])
def test_rows_are_of_one_version_when_a_file_changes_on_its_server(
    server: Server, kind: str, order: str
) -> None:
    name, url = "a.txt", server.url("a.txt")
    server.has_conditions, server.answers_of_parts = kind != "ignored time", kind != "head"
    marks: list[dict[str, str]] = []
    marks += [server.times] if "time" in kind else []
    marks += [server.etags] if "etag" in kind or kind == "head" else []
    server.files[name] = _text("old")
    for mark in marks:
        mark[name] = 'W/"1"' if kind == "weak etag" else MORNING
    flow = fl.from_text(url)
    run = iter(flow if order == "in order" else flow.shuffle(seed=1))
    rows = [next(run) for _ in range(3)]
    server.files[name] = _text("new")[: 12_000 if kind == "size" else None]
    for mark in marks:
        mark[name] = 'W/"2"' if kind == "weak etag" else EVENING
    server.faults = ["unmet"] * 10_000 if kind == "unmet" else []
    with pytest.raises(fl.FlowError, match=rf"row \d+ of from_text.*'{url}' was written again"):
        rows += list(run)
    assert {row[:3] for row in rows} == {"old"}


def test_servers_that_disagree_on_a_files_time_but_not_on_its_etag(server: Server) -> None:
    server.times["a.bin"], server.etags["a.bin"] = MORNING, '"1"'
    file = open_file("read", server.url("a.bin"))
    server.times["a.bin"] = EVENING
    assert file.read(40_000, 10) == DATA[40_000:40_010]


def test_servers_that_disagree_on_the_version_of_a_file(server: Server, tmp_path: Path) -> None:
    class Others(dict[str, str]):
        """Answers in turn as servers that report different times for a file."""

        def __getitem__(self, name: str) -> str:
            times.reverse()
            return times[0]

    times = [MORNING, EVENING]
    server.times = Others({"a.bin": ""})
    file = open_file("read", server.url("a.bin"))
    with pytest.raises(fl.SourceError, match=r"its servers disagree.*copy it first: fl\.fetch"):
        file.read(0, len(DATA))
    (copy,) = fl.fetch(server.url("a.bin"), tmp_path)
    assert Path(copy).read_bytes() == DATA


def test_a_change_between_passes_of_a_format_without_checksums_is_an_error(server: Server) -> None:
    def write(mark: int) -> None:  # a digest of the ends of the file shows no difference
        stream = io.BytesIO()
        np.save(stream, np.where(np.arange(100_000) == 50_000, mark, 7))
        server.files["a.npy"], server.etags["a.npy"] = stream.getvalue(), f'"{mark}"'

    write(1)
    flow = fl.from_npy(server.url("a.npy"), np.int64)
    run = iter(flow)
    assert next(run) == 7
    state = run.state_dict()
    write(2)
    with pytest.raises(fl.FlowError, match="has changed since this flow was built"):
        flow.collect()
    with pytest.raises(fl.StateMismatch):
        fl.from_npy(server.url("a.npy"), np.int64).resume(state)
    write(1)
    assert next(fl.from_npy(server.url("a.npy"), np.int64).resume(state)) == 7


# -- servers that send too much --------------------------------------------------------------------


def test_a_server_without_parts_sends_a_file_once(server: Server) -> None:
    server.ranges = False
    server.files["a.txt"] = _text("old")
    flow = fl.from_text(server.url("a.txt"))
    expected = _text("old").decode().split("\n")[:-1]
    again = fl.from_text(server.url("a.txt"))
    for rows in (flow, flow.shuffle(seed=1), flow.prefetch(threads=4), again):
        assert sorted(rows) == expected
    assert server.reads["a.txt"] <= 2  # the first answer is closed when it turns out to be whole
    assert open_file("read", server.url("a.bin")).read(9_000, 500) == DATA[9_000:9_500]
    assert open_file("read", server.url("a.bin")).read(49_990, 500) == DATA[49_990:]


def test_a_copy_is_of_one_version(server: Server) -> None:
    server.ranges, server.etags["a.bin"] = False, '"1"'
    file = open_file("read", server.url("a.bin"))
    assert file.read(9_000, 500) == DATA[9_000:9_500]
    server.files["a.bin"], server.etags["a.bin"] = DATA[::-1], '"2"'
    assert file.read(19_000, 500) == DATA[19_000:19_500]
    assert open_file("read", server.url("a.bin")).read(0, 500) == DATA[::-1][:500]
    file = open_file("read", server.url("a.bin"))
    server.etags["a.bin"] = '"3"'
    http._copies.clear()
    with pytest.raises(fl.SourceError, match="was written again since it was opened"):
        file.read(0, 500)


def test_a_large_file_of_a_server_without_parts_is_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(http, "MOST_COPIED", len(DATA) - 1)
    server.ranges = False
    file = open_file("from_x", server.url("a.bin"))
    with pytest.raises(
        fl.SourceError, match=r"from_x: '.*a\.bin' has 50,000 bytes, .* copy it first: fl\.fetch"
    ):
        file.read(0, 100)
    (copy,) = fl.fetch(server.url("a.bin"), tmp_path)
    assert Path(copy).read_bytes() == DATA


def test_copies_of_files_are_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "COPIES_BYTES", 2 * len(DATA))
    server.ranges = False
    files = []
    for k in range(5):
        server.files[f"{k}"] = bytes([k]) * len(DATA)
        files.append(open_file("read", server.url(f"{k}")))
    for _ in range(2):
        assert [file.read(9_000, 1) for file in files] == [bytes([k]) for k in range(5)]
        assert len(http._copies) == 2


@pytest.mark.parametrize("ranges", [True, False])
def test_an_endless_answer_is_not_read_to_its_end(
    server: Server, ranges: bool, tmp_path: Path
) -> None:
    file = open_file("read", server.url("a.bin"))
    server.ranges, server.endless = ranges, True
    with pytest.raises(fl.SourceError, match="bytes were received instead of"):
        file.read(9_000, 500)
    with pytest.raises(fl.SourceError, match="bytes were received instead of"):
        fl.fetch(server.url("a.bin"), tmp_path)
    assert server.sent < 1 << 28  # in some tens of requests; what the system buffers included
    assert list(tmp_path.iterdir()) == []


def test_a_copy_that_cannot_be_written_is_not_tried_again(server: Server) -> None:
    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    server.ranges = False
    file = open_file("fetch", server.url("a.bin"))
    assert isinstance(file, RemoteFile)
    with pytest.raises(fl.SourceError, match=r"fetch: a copy of '.*' cannot be written: No space"):
        file.copy_to(Full(), lambda _: None)
    assert server.reads["a.bin"] == 2


def test_a_copy_stays_open_while_it_is_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_at(number: int, count: int, start: int) -> bytes:
        http._copies.clear()  # another thread needs the space
        return systems.read_at(number, count, start)

    monkeypatch.setattr(http, "read_at", read_at)
    server.ranges = False
    file = open_file("read", server.url("a.bin"))
    assert file.read(9_000, 500) == DATA[9_000:9_500]


@pytest.mark.parametrize("method", ["none", "seek", "write", "flush"])
def test_a_copy_that_cannot_be_made_is_an_error_that_names_the_url(
    server: Server, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def file(**options: object) -> io.BytesIO:
        if method == "none":
            full()
        return type("Full", (io.BytesIO,), {method: full})()  # type: ignore[no-any-return]  # a subclass

    monkeypatch.setattr(tempfile, "TemporaryFile", file)
    server.ranges = False
    message = r"^from_x: a copy of '.*a\.bin' cannot be written: No space left"
    with pytest.raises(fl.SourceError, match=message):
        open_file("from_x", server.url("a.bin")).read(9_000, 500)
    assert server.reads["a.bin"] <= 2


def test_a_try_that_was_given_up_writes_no_more(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = open_file("fetch", server.url("a.bin"))
    assert isinstance(file, http.WebFile)
    monkeypatch.setitem(file._fs.kwargs, "timeout", ClientTimeout(total=None))  # of the user
    monkeypatch.setattr(http.WebFile, "_most_seconds", 0.2)
    server.ranges, server.faults, copy = False, ["", "pause"], io.BytesIO()
    file.copy_to(copy, lambda _: None)
    assert copy.getvalue() == DATA
    server.over.set()
    while server.at_once:
        time.sleep(0.01)
    time.sleep(0.05)
    server.over.clear()
    assert copy.getvalue() == DATA


def test_sequential_reading_fetches_blocks_ahead(server: Server) -> None:
    file = open_file("read", server.url("a.bin"))
    server.reads.clear()
    parts = [file.read(start, 1000) for start in range(0, len(DATA), 1000)]
    assert b"".join(parts) == DATA
    assert server.reads["a.bin"] == -(-len(DATA) // 4096)  # each block once
    monkey = open_file("read", server.url("a.bin"))
    server.reads.clear()
    monkey.read(20_000, 10)
    assert server.reads["a.bin"] == 1  # one row at random does not read ahead


def test_file_is_fetched_once(server: Server, tmp_path: Path) -> None:
    server.files["b.bin"] = b""
    given = [server.url("b.bin"), server.url("a.bin"), str(tmp_path / "local.bin")]
    server.faults = ["cut", "error"]
    empty, copy, local = fl.fetch(given, tmp_path / "copies")
    assert (Path(empty).read_bytes(), Path(copy).read_bytes(), local) == (b"", DATA, given[2])
    reads = server.reads.total()
    assert fl.fetch(given, tmp_path / "copies") == [empty, copy, local]
    assert server.reads.total() == reads
    assert sorted(map(str, (tmp_path / "copies").iterdir())) == sorted([empty, copy])


@pytest.mark.skipif(sys.platform == "win32", reason="making links needs a privilege")
def test_a_link_in_the_place_of_a_copy_is_replaced(server: Server, tmp_path: Path) -> None:
    (copy,) = fl.fetch(server.url("a.bin"), tmp_path / "copies")
    other = tmp_path / "other"
    other.write_bytes(bytes(len(DATA)))
    os.unlink(copy)
    os.symlink(other, copy)
    assert fl.fetch(server.url("a.bin"), tmp_path / "copies") == [copy]
    assert not os.path.islink(copy)
    assert Path(copy).read_bytes() == DATA
    assert other.read_bytes() == bytes(len(DATA))


@pytest.mark.parametrize(
    ("name", "copied"),
    [
        ("", "file"),
        ("?key=1", "file"),
        ("a.bin?key=1", "a"),
        ("folder/b", "b"),
        ("folder/", "folder"),
    ],
)
def test_a_copy_is_not_named_after_the_host(
    server: Server, tmp_path: Path, name: str, copied: str
) -> None:
    server.files[name] = DATA
    url = server.url(name).replace("//", "//me:password@")
    (copy,) = fl.fetch(url, tmp_path)
    assert Path(copy).name.rpartition("-")[0] == copied
    fsspec.filesystem("memory").pipe("/file.bin", DATA)
    (copy,) = fl.fetch("memory://file.bin", tmp_path)
    assert Path(copy).name.startswith("file-")
    assert Path(copy).suffix == ".bin"


def test_failed_fetch_leaves_no_file(server: Server, tmp_path: Path) -> None:
    server.faults = ["error"] * 1000
    with pytest.raises(fl.SourceError, match=r"a\.bin' cannot be read, after 4 tries"):
        fl.fetch(server.url("a.bin"), tmp_path)
    assert list(tmp_path.iterdir()) == []
    server.faults.clear()
    (tmp_path / "file").touch()
    with pytest.raises(fl.InvalidFlow, match="cannot be a folder"):
        fl.fetch(server.url("a.bin"), tmp_path / "file")


def test_patterns_of_urls() -> None:
    memory = fsspec.filesystem("memory")
    for name in ("b", "a", "c"):
        memory.pipe(f"/patterns/{name}.bin", name.encode())
    names = all_paths("from_text", "memory://patterns/[ab].bin")
    assert [open_file("read", name).read(0, 9) for name in names] == [b"a", b"b"]
    with pytest.raises(fl.SourceError, match=r"no file matches 'memory://patterns/\*\.txt'"):
        all_paths("from_text", "memory://patterns/*.txt")


def test_existing_names_with_brackets_are_not_patterns_of_urls(server: Server) -> None:
    memory = fsspec.filesystem("memory")
    for name in ("run[1]/a.bin", "run1/b.bin", "c[1].bin", "c1.bin"):
        memory.pipe(f"/literal/{name}", name.encode())

    def read(pattern: str) -> list[bytes]:
        return [open_file("read", name).read(0, 99) for name in all_paths("read", pattern)]

    assert read("memory://literal/run[1]/*.bin") == [b"run[1]/a.bin"]
    assert read("memory://literal/run[12]/*.bin") == [b"run1/b.bin"]
    assert read("memory://literal/c[1].bin") == [b"c[1].bin"]
    assert all_paths("read", "http://[::1]:80/a.bin") == ("http://[::1]:80/a.bin",)
    server.files["a%5B1%5D.bin"] = server.files["a1.bin"] = b"x"
    assert all_paths("read", server.url("a[1].bin")) == (server.url("a[1].bin"),)


def test_unknown_file_system_is_an_error() -> None:
    with pytest.raises(fl.SourceError, match=r"Protocol not known|protocol.*carrier"):
        open_file("from_text", "carrier-pigeon://loft/a.txt")


@pytest.mark.parametrize("path", ["http://127.0.0.1/a.lmdb", "s3://bucket/a.lmdb"])
def test_local_only_format_refuses_a_url(path: str) -> None:
    with pytest.raises(
        fl.InvalidFlow, match=r"must be a file on this machine's disk.*copy it first: fl\.fetch"
    ):
        fl.from_lmdb(path)


# -- secrets ---------------------------------------------------------------------------------------

PASSWORD, SIGNATURE = "pass" + "word7", "signa" + "ture7"  # not as they are in lines of a traceback


def _shown_of(call: Callable[[], object]) -> str:
    """Return what a call shows: its result, or its traceback."""
    try:
        return repr(call())
    except Exception as error:
        return "".join(traceback.format_exception(error))


def _secret_url(server: Server, name: str) -> str:
    return f"{server.url(name).replace('//', f'//me:{PASSWORD}@')}?key={SIGNATURE}"


@pytest.mark.parametrize(
    "reader",
    [
        *("from_text", "from_csv", "from_svmlight", "from_images", "from_tfrecord", "from_npy"),
        *("from_npz", "from_webdataset", "from_parquet", "from_lmdb", "from_arrayrecord"),
        *("from_files", "fetch"),
    ],
)
def test_secrets_of_a_url_are_not_shown_in_errors(server: Server, reader: str) -> None:
    server.files[f"bad?key={SIGNATURE}"] = b"\xff" * 10
    url, none, pattern = (_secret_url(server, name) for name in ("bad", "none", "*"))
    read = getattr(fl, reader)
    more = ("/no/such/folder/\0",) if reader == "fetch" else ()
    given: list[Any] = [url, [none], {url}, (url, 3), url.replace("bad", "{bad,b}"), pattern]
    shown = [_shown_of(lambda one=one: read(one, *more).collect()) for one in given]  # type: ignore[misc]  # mypy has no types for such defaults
    shown += [_shown_of(lambda: fl.from_items([b""]).write_tfrecord(url))]
    for text in shown:
        assert "SourceError" in text or "InvalidFlow" in text or text == "[]"
        assert PASSWORD not in text
        assert SIGNATURE not in text


def test_secrets_of_a_url_are_not_shown_in_plans(server: Server) -> None:
    url = _secret_url(server, "text")
    server.files[f"text?key={SIGNATURE}"] = b"one\ntwo\n"
    flow = fl.from_text([url, url])
    run = iter(flow.map(len).prefetch(threads=2))
    assert next(run) == 3
    shown = [repr(flow), repr(flow.node), flow.map(len).explain(), flow.node, flow.origins(1)]
    shown += [run.state_dict(), attrs.asdict(flow.node)]
    for text in map(repr, shown):
        assert "text" in text
        assert PASSWORD not in text
        assert SIGNATURE not in text
    run.close()


def test_secrets_are_not_shown_when_a_server_fails(server: Server) -> None:
    url = _secret_url(server, "text")
    server.files[f"text?key={SIGNATURE}"] = b"one\ntwo\n"
    for fault in ("error", "forbid", "cut"):
        server.faults = [fault] * 10
        text = _shown_of(lambda: fl.from_text(url))
        assert "SourceError: from_text: 'http://***@127.0.0.1" in text
        assert PASSWORD not in text
        assert SIGNATURE not in text
    server.faults = []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:p@ss@host/a?x=1#part", "https://***@host/a?***"),
        ("https://token@host/a", "https://***@host/a"),
        ("abfs://container@account/a", "abfs://container@account/a"),
        ("ftp://me:pass@host/a b", "ftp://me:***@host/a%20b"),
        ("zip://a::https://me:p@host/x?y::s3://c", "zip://a::https://***@host/x?***::s3://c"),
        ("http://[::1]:80/a?q", "http://[::1]:80/a?***"),
        ("https://me:p'w@h/a?t=a'b", "https://***@h/a?***"),
        ("s3://bucket/*.csv", "s3://bucket/*.csv"),
        ("/a folder/what?", "/a folder/what?"),
    ],
)
def test_what_is_shown_of_a_url(url: str, shown: str) -> None:
    assert repr(Url(url)) == repr(shown)
    assert pickle.loads(pickle.dumps(Url(url))) == url
    assert f"{Url(url)}" == url
