"""Flows over more files than a process may have open."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import simplejpeg

import flowdsl as fl
from flowdsl.errors import FlowError
from flowdsl.storage import open_files
from flowdsl.storage.byte_files import open_file
from flowdsl.testing.recipes import AnyFlow
from tests.storage.formats import FORMATS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it counts descriptors in /proc")

FILES, KEPT = 12, 3


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "most_open_files", lambda: 4 * KEPT)


def _open_in(folder: Path) -> int:
    """Return the number of files in a folder that this process has open."""
    numbers = os.listdir("/proc/self/fd")
    names = [os.path.realpath(f"/proc/self/fd/{number}") for number in numbers]
    return sum(name.startswith(f"{folder}/") for name in names)


def _check(flow: AnyFlow, folder: Path, expected: list[str], most: int) -> None:
    for order in (flow, flow.shuffle(seed=3)) if flow.node.length is not None else (flow,):
        rows = []
        for row in order:
            rows.append(repr(row))
            assert _open_in(folder) <= most
        in_order = order is flow
        assert (rows == expected) if in_order else (sorted(rows) == sorted(expected))


@pytest.mark.parametrize("name", FORMATS)
def test_few_of_many_files_are_open_at_once(name: str, tmp_path: Path) -> None:
    one = FORMATS[name]
    flows, rows = [], []
    for k in range(FILES):
        some = list(one.some)[k % 3 : k % 3 + 2]
        rows += list(map(repr, some))
        flows.append(one.written(some, tmp_path / f"{k:02}{one.suffix}"))
        assert _open_in(tmp_path) <= KEPT
    flow = flows[0].concat(*flows[1:])
    # HDF5 has a descriptor for a file that it reads and checks: each counts
    _check(flow, tmp_path, rows, 2 * KEPT if "hdf5" in name else KEPT)


READERS: dict[str, tuple[Callable[[Path, int], object], Callable[[list[Path]], AnyFlow]]] = {
    "text": (lambda path, k: path.write_text(f"{k}\n{k}b\n"), fl.from_text),
    "csv": (lambda path, k: path.write_text(f"a,b\n{k},1\n"), fl.from_csv),
    "tfrecord": (lambda path, k: fl.from_items([b"%d" % k]).write_tfrecord(path), fl.from_tfrecord),
    "arrayrecord": (
        lambda path, k: fl.from_items([b"%d" % k]).write_arrayrecord(path),
        fl.from_arrayrecord,
    ),
    "webdataset": (
        lambda path, k: fl.from_items([{"__key__": "a", "x": k}]).write_webdataset(path),
        fl.from_webdataset,
    ),
    "parquet": (lambda path, k: fl.from_items([{"a": k}]).write_parquet(path), fl.from_parquet),
    "svmlight": (lambda path, k: path.write_text(f"1 2:{k}\n"), fl.from_svmlight),
    "images": (
        lambda path, k: path.write_bytes(simplejpeg.encode_jpeg(np.full((8, 8, 3), k, np.uint8))),
        fl.from_images,
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_a_reader_of_many_files_has_few_open_at_once(name: str, tmp_path: Path) -> None:
    write, read = READERS[name]
    paths = [tmp_path / f"{k:02}" for k in range(FILES)]
    for k, path in enumerate(paths):
        write(path, k)
    expected = [repr(row) for path in paths for row in read([path])]
    flow = read(paths)
    assert _open_in(tmp_path) <= KEPT
    # ArrayRecord has a descriptor for a file that it reads and checks: each counts
    _check(flow, tmp_path, expected, KEPT)


def test_a_file_that_is_replaced_while_it_is_closed_is_an_error(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"first")
    first = open_file("read", str(path))
    others = []
    for k in range(2 * KEPT):
        (tmp_path / f"{k}").write_bytes(b"other")
        others.append(open_file("read", str(tmp_path / f"{k}")))
        assert others[-1].read(0, 5) == b"other"
    assert not any(
        os.path.realpath(f"/proc/self/fd/{number}") == str(path)
        for number in os.listdir("/proc/self/fd")
    )
    os.utime(path)
    os.replace(path, other)  # it is gone
    with pytest.raises(fl.SourceError, match=r"a' cannot be opened again.*No such file"):
        first.read(0, 5)
    times = other.stat()
    path.write_bytes(b"SECOND"[:5])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    for _ in range(2):
        with pytest.raises(fl.SourceError, match="a' has changed since it was opened"):
            first.read(0, 5)


def test_a_file_of_a_library_that_is_replaced_while_it_is_closed_is_an_error(
    tmp_path: Path,
) -> None:
    path, old, new = (str(tmp_path / name) for name in ("rows", "old", "new"))
    for name in (old, new):
        fl.from_items([(name, i) for i in range(4)]).write_arrayrecord(name)
    other = tmp_path / "other"
    other.write_bytes(b"other")
    for before, after in product(range(2 * KEPT), repeat=2):  # orders of what is closed
        shutil.copy(old, path)
        row = fl.from_arrayrecord(path, tuple[str, int]).node.open()  # type: ignore[attr-defined]  # an IndexedSource
        others = [open_file("read", str(other)) for _ in range(before)]
        assert row(2) == (old, 2)
        others += [open_file("read", str(other)) for _ in range(after)]
        shutil.copy(new, f"{path}-2")
        os.replace(f"{path}-2", path)
        others.clear()
        try:
            assert row(1) == (old, 1)
        except fl.SourceError as error:
            assert "changed since" in str(error)  # noqa: PT017  # or it is still open


def test_files_that_are_used_no_more_are_not_counted(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    for one in (path, other):
        one.write_bytes(b"bytes")
    first = open_file("read", str(path))
    for _ in range(10 * KEPT):
        open_file("read", str(other)).read(0, 1)
        assert _open_in(tmp_path) == 1
    path.unlink()
    with pytest.raises(fl.SourceError, match="has changed"):  # of its times: it is open
        first.read(0, 1)


def test_a_flow_over_files_that_change_while_they_are_closed_is_an_error(tmp_path: Path) -> None:
    paths = [tmp_path / f"{k:02}.txt" for k in range(FILES)]
    for k, path in enumerate(paths):
        path.write_text(f"{k}\n" * 3000)
    run = iter(fl.from_text(paths))
    assert next(run) == "0"
    paths[-1].unlink()
    paths[-1].write_text("x\n" * len(paths[-1].name) * 1000)
    with pytest.raises(FlowError, match=r"11\.txt' has changed"):
        list(run)
