"""A file that is modified while, or after, it is read: the rows of one version, or an error."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import h5py  # type: ignore[import-untyped]  # it has no types
import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flowdsl as fl
from flowdsl.errors import FlowError
from flowdsl.testing.recipes import AnyFlow

ROWS = 1500


@attrs.frozen
class Kind:
    """A format: a writer of files of one size for every ``mark``, and the reader."""

    name: str
    write: Callable[[Path, int], None]
    read: Callable[[Path], AnyFlow]


def _numbers(mark: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.arange(ROWS * 16).reshape(ROWS, 16) % 97 + 1000 * mark


def _with(writer: str, *arguments: object) -> Callable[[Path, int], None]:
    def write(path: Path, mark: int) -> None:
        rows = fl.from_items(list(_numbers(mark)))
        getattr(rows, writer)(path, *arguments, overwrite=True)

    return write


def _bytes_with(writer: str, **options: object) -> Callable[[Path, int], None]:
    def write(path: Path, mark: int) -> None:
        rows = fl.from_items([b"%d %06d" % (mark, i) * 20 for i in range(ROWS)])
        getattr(rows, writer)(path, overwrite=True, **options)

    return write


def _npy(path: Path, mark: int) -> None:
    np.save(path, _numbers(mark))


def _npz(path: Path, mark: int) -> None:
    np.savez(path, x=_numbers(mark))


def _h5py(path: Path, mark: int) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = _numbers(mark)


def _raw_lmdb(path: Path, mark: int) -> None:
    path.unlink(missing_ok=True)
    with (
        lmdb.open(str(path), subdir=False, map_size=1 << 24) as store,
        store.begin(write=True) as transaction,
    ):
        for i in range(ROWS):
            transaction.put(b"%06d" % i, b"%d %06d" % (mark, i) * 20)


def _pyarrow(path: Path, mark: int) -> None:
    columns = {"x": _numbers(mark)[:, 0], "y": _numbers(mark)[:, 1]}
    pq.write_table(pa.table(columns), path, row_group_size=100, compression="none")


def _tar(path: Path, mark: int) -> None:
    with tarfile.open(path, "w") as tar:
        for i in range(ROWS):
            content = b"%d %06d" % (mark, i) * 20
            info = tarfile.TarInfo(f"{i:06}.txt")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def _samples(path: Path, mark: int) -> None:
    rows = [{"__key__": f"{i:06}", "txt": b"%d %06d" % (mark, i) * 20} for i in range(ROWS)]
    fl.from_items(rows).write_webdataset(path, overwrite=True)


def _text(path: Path, mark: int) -> None:
    path.write_text("".join(f"{mark} {i:06}\n" * 20 for i in range(ROWS // 20)))


def _csv(path: Path, mark: int) -> None:
    path.write_text("a,b\n" + "".join(f"{mark},{i:06}\n" for i in range(ROWS)))


def _gzipped(write: Callable[[Path, int], None]) -> Callable[[Path, int], None]:
    def written(path: Path, mark: int) -> None:
        write(path, mark)
        path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))

    return written


def _svmlight(path: Path, mark: int) -> None:
    path.write_text("".join(f"{mark} 1:{i:06}\n" for i in range(ROWS)))


KINDS = [
    Kind("write_lmdb", _with("write_lmdb"), fl.from_lmdb),
    Kind("lmdb of others", _raw_lmdb, fl.from_lmdb_raw),
    Kind("write_tfrecord", _bytes_with("write_tfrecord"), fl.from_tfrecord),
    Kind("write_arrayrecord", _bytes_with("write_arrayrecord"), fl.from_arrayrecord),
    Kind("write_webdataset", _samples, fl.from_webdataset),
    Kind("tar of others", _tar, fl.from_webdataset),
    Kind("write_parquet", _with("write_parquet"), fl.from_parquet),
    Kind("parquet of others", _pyarrow, fl.from_parquet),
    Kind("write_hdf5", _with("write_hdf5", "x"), lambda path: fl.from_hdf5(path, "x")),
    Kind("hdf5 of others", _h5py, lambda path: fl.from_hdf5(path, "x")),
    Kind("npy", _npy, fl.from_npy),
    Kind("write_npz", _with("write_npz"), fl.from_npz),
    Kind("npz of others", _npz, fl.from_npz),
    Kind("text", _text, fl.from_text),
    Kind("csv", _csv, fl.from_csv),
    Kind("svmlight", _svmlight, fl.from_svmlight),
    Kind("text, gzip", _gzipped(_text), fl.from_text),
    Kind(
        "tfrecord, gzip",
        _bytes_with("write_tfrecord", compression="gzip"),
        lambda path: fl.from_tfrecord(path, compression="gzip"),
    ),
]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    found = request.param
    assert isinstance(found, Kind)
    return found


@pytest.fixture(scope="module")
def written(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A file, and another one, of the same size but for `write_parquet`."""
    suffix = ".npz" if "npz" in kind.name else ".npy" if "npy" in kind.name else ".data"
    folder = tmp_path_factory.mktemp("written")
    first, second = folder / f"a{suffix}", folder / f"b{suffix}"
    kind.write(first, 1)
    kind.write(second, 2)
    return first, second


@pytest.fixture
def paths(written: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Copies of the files, which a test may modify."""
    first, second = (Path(shutil.copyfile(path, tmp_path / path.name)) for path in written)
    return first, second


def test_rows_are_of_one_version_when_it_is_overwritten_in_place(
    kind: Kind, paths: tuple[Path, Path]
) -> None:
    path, other = paths
    rows = list(map(repr, kind.read(path)))
    run = iter(kind.read(path))
    before = [repr(next(run)) for _ in range(5)]
    with path.open("r+b") as file:
        file.write(other.read_bytes())
    with suppress(FlowError):  # rows that were decoded before are still there
        before.extend(map(repr, run))
        assert len(before) == len(rows)
    assert set(before) <= set(rows)


@pytest.mark.parametrize("restore_time", [False, True], ids=["", "with its time"])
def test_another_content_between_passes_is_an_error(
    kind: Kind, paths: tuple[Path, Path], restore_time: bool
) -> None:
    path, other = paths
    flow = kind.read(path)
    first = flow.take(3).collect()
    assert len(first) == 3
    times = path.stat()
    with path.open("r+b") as file:
        file.write(other.read_bytes())
    if restore_time:
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(FlowError):
        flow.collect()


def test_a_state_is_not_resumed_on_another_content(kind: Kind, paths: tuple[Path, Path]) -> None:
    path, other = paths
    run = iter(kind.read(path))
    next(run)
    state = run.state_dict()
    run.close()
    del run  # HDF5 keeps the content of a file that is open in this process
    shutil.copyfile(other, path)
    with pytest.raises(FlowError):
        next(kind.read(path).resume(state))


def test_a_touched_copied_or_renamed_file_is_the_same(
    kind: Kind, paths: tuple[Path, Path], tmp_path: Path
) -> None:
    path, _ = paths
    flow = kind.read(path)
    expected = list(map(repr, flow))
    run = iter(flow)
    seen = [repr(next(run)) for _ in range(5)]
    os.utime(path)
    seen += [repr(next(run)) for _ in range(5)]
    os.link(path, tmp_path / "link")
    state = run.state_dict()
    assert seen + list(map(repr, run)) == expected
    copy = tmp_path / "copy" / path.name
    copy.parent.mkdir()
    shutil.copyfile(path, copy)
    os.replace(copy, path)
    assert list(map(repr, kind.read(path).resume(state))) == expected[10:]
    assert list(map(repr, flow)) == expected


def test_a_state_is_resumed_where_the_file_is_in_another_folder(
    kind: Kind, paths: tuple[Path, Path], tmp_path: Path
) -> None:
    path, _ = paths
    run = iter(kind.read(path))
    next(run)
    state = run.state_dict()
    second = repr(next(run))
    other = tmp_path / "job 2" / path.name
    other.parent.mkdir()
    shutil.copyfile(path, other)
    assert repr(next(kind.read(other).resume(state))) == second


def test_appended_rows_belong_to_a_new_flow(tmp_path: Path) -> None:
    path = tmp_path / "rows.lmdb"
    fl.from_range(2000).write_lmdb(path, append=True)
    flow = fl.from_lmdb(path)
    run = iter(flow)
    assert next(run) == 0
    state = run.state_dict()
    fl.from_range(10).write_lmdb(path, append=True)
    assert list(run) == list(range(1, 2000))
    with pytest.raises(FlowError, match="has changed since this flow was built"):
        flow.collect()
    with pytest.raises(FlowError, match="of another flow"):
        fl.from_lmdb(path).resume(state)


def test_a_file_that_is_deleted_or_replaced_is_read_to_its_end_if_it_is_open(
    tmp_path: Path,
) -> None:
    path, other = tmp_path / "rows.txt", tmp_path / "other.txt"
    for replace in (False, True):
        _text(path, 1)
        expected = fl.from_text(path).collect()
        run = iter(fl.from_text(path))
        rows = [next(run)]
        path.unlink()
        if replace:
            _text(other, 2)
            other.rename(path)
        assert rows + list(run) == expected
