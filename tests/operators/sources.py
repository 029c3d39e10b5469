"""Random recipes of sources, with their models."""

from __future__ import annotations

import atexit
import gzip
import os
import pickle
import random
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pyarrow.parquet as pq
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.nodes import generator
from flowdsl.storage.codec import encode
from flowdsl.testing import Draw, Model, Source, models
from flowdsl.testing.elements import Listed, Named, Row, ids
from flowdsl.testing.functions import damaged, make_rows
from flowdsl.testing.operators import SEEDS
from flowdsl.testing.sources import damage, rows
from tests import functions


@cache
def _folder() -> Path:
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    return Path(folder)


_KINDS: dict[str, Any] = {"named": Named, "record": Row, "listed": Listed}


def _settled(path: str | Path) -> str:
    """This file with an old modification time: the index of a new file is not kept."""
    os.utime(path, (1, 1))
    return str(path)


@cache
def _lmdb(form: str, first: int, n: int, bad: int | None = None) -> str:
    path = _folder() / f"{form}{first}-{n}-{bad}.lmdb"
    fl.from_items(list(make_rows(form, first, n))).write_lmdb(path)
    if bad is not None:
        with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as database:
            row = bytes(database.begin().get(b"%010d" % bad) or b"")
        path.write_bytes(path.read_bytes().replace(row, bytes(byte ^ 1 for byte in row)))
    return str(path)


def _mapped(items: Sequence[Any], func: Callable[[Any], Any], bad: int | None) -> Model:
    """Rows that a function makes from a file, one of which may be unreadable."""
    made = [func(item) for item in items]
    return models.rows(made if bad is None else damaged(made, bad)).at_depth(2)


def from_lmdb(draw: Draw, form: str, first: int, n: int) -> Source:
    return _lmdb_and_rows(form, first, n, damage(draw, n))


def _lmdb_and_rows(form: str, first: int, n: int, bad: int | None) -> Source:
    path, items = _lmdb(form, first, n, bad), rows(form, first, n, bad)
    if form in _KINDS:
        return Source(lambda: fl.from_lmdb(path, _KINDS[form]), lambda: models.rows(items))
    return Source(lambda: fl.from_lmdb(path), lambda: models.rows(items))


@cache
def _tfrecord(form: str, first: int, n: int, bad: int | None = None) -> list[str]:
    """Two files, whose rows are numbered consecutively."""
    paths = [str(_folder() / f"{form}{first}-{n}-{bad}-{k}.tfrecord") for k in range(2)]
    items = list(make_rows(form, first, n))
    for path, part in zip(paths, (items[: n // 2], items[n // 2 :]), strict=True):
        fl.from_items(part).write_tfrecord(path)
    if bad is not None:
        file, payload = Path(paths[bad >= n // 2]), encode(items[bad])
        file.write_bytes(file.read_bytes().replace(payload, payload[:-1] + b"\xc1", 1))
    return [_settled(path) for path in paths]


def from_tfrecord(draw: Draw, form: str, first: int, n: int) -> Source:
    bad = damage(draw, n)
    paths, items = _tfrecord(form, first, n, bad), rows(form, first, n, bad)
    element = _KINDS.get(form, object)
    return Source(lambda: fl.from_tfrecord(paths, element), lambda: models.rows(items))


@cache
def _compressed(form: str, first: int, n: int) -> str:
    path = str(_folder() / f"{form}{first}-{n}.tfrecord.gz")
    fl.from_items(list(make_rows(form, first, n))).write_tfrecord(path, compression="gzip")
    return _settled(path)


def from_compressed_tfrecord(draw: Draw, form: str, first: int, n: int) -> Source:
    path, items = _compressed(form, first, n), rows(form, first, n, None)
    element = _KINDS.get(form, object)
    return Source(
        lambda: fl.from_tfrecord(path, element, compression="gzip"),
        lambda: models.stream(items),
    )


@cache
def _parquet(form: str, first: int, n: int, bad: int | None) -> str:
    path = _folder() / f"{form}{first}-{n}-{bad}.parquet"
    fl.from_items(list(make_rows(form, first, n))).write_parquet(
        path, row_group=4 if bad is None else 1
    )
    if bad is not None:
        content = bytearray(path.read_bytes())
        content[pq.read_metadata(path).row_group(bad).column(0).data_page_offset] ^= 1
        path.write_bytes(content)
    return str(path)


def from_parquet(draw: Draw, form: str, first: int, n: int) -> Source:
    bad = damage(draw, n)
    path, items = _parquet(form, first, n, bad), rows(form, first, n, bad)
    kinds: dict[str, Any] = {"named": Named, "record": Row, "listed": Listed}
    if form in kinds and n:
        return Source(lambda: fl.from_parquet(path, kinds[form]), lambda: models.rows(items))
    return Source(lambda: fl.from_parquet(path), lambda: models.rows(items))


@cache
def _arrayrecord(form: str, first: int, n: int) -> str:
    path = _folder() / f"{form}{first}-{n}.arrayrecord"
    fl.from_items(list(make_rows(form, first, n))).write_arrayrecord(path, group_size=2)
    return str(path)


def from_arrayrecord(draw: Draw, form: str, first: int, n: int) -> Source:
    path, items = _arrayrecord(form, first, n), rows(form, first, n, None)
    kinds: dict[str, Any] = {"named": Named, "record": Row, "listed": Listed}
    declared = kinds.get(form, object)
    return Source(lambda: fl.from_arrayrecord(path, declared), lambda: models.rows(items))


@cache
def _webdataset(first: int, n: int, bad: int | None) -> str:
    path = _folder() / f"{first}-{n}-{bad}.tar"
    samples = [{"__key__": f"{i}", "i": i} for i in range(first, first + n)]
    fl.from_items(samples).write_webdataset(path)
    if bad is not None:
        content = bytearray(path.read_bytes())
        with tarfile.open(path) as file:
            content[file.getmembers()[bad].offset_data] ^= 1
        path.write_bytes(content)
    return _settled(path)


def from_webdataset(draw: Draw, form: str, first: int, n: int) -> Source:
    bad = damage(draw, n)
    path, func = _webdataset(first, n, bad), partial(functions.make_of_sample, form)
    samples = [functions.Numbered(i=i) for i in range(first, first + n)]
    return Source(
        lambda: fl.from_webdataset(path, functions.Numbered).map(func),
        lambda: _mapped(samples, func, bad),
    )


@cache
def _lmdb_of_others(kind: str, form: str, first: int, n: int) -> str:
    path = _folder() / f"{kind}-{form}{first}-{n}"
    path.mkdir()
    with (
        lmdb.open(str(path), map_size=1 << 24, sync=False) as database,
        database.begin(write=True) as txn,
    ):
        for i, row in enumerate(make_rows(form, first, n)):
            txn.put(b"%08d" % i, _stored(kind, row, first + i))
    return str(path)


def _stored(kind: str, row: object, i: int) -> bytes:
    if kind == "caffe":  # an image of one value, and a label
        return b"\x08\x01\x10\x01\x18\x01\x22\x01\x00\x28" + encoded_varint(i)
    return b"%d" % i if kind == "raw" else pickle.dumps([row])


def encoded_varint(x: int) -> bytes:
    """A non-negative number in the encoding of protobuf."""
    return bytes([x]) if x < 128 else bytes([x & 127 | 128]) + encoded_varint(x >> 7)


def from_lmdb_raw(draw: Draw, form: str, first: int, n: int) -> Source:
    path, items = _lmdb_of_others("raw", form, first, n), range(first, first + n)
    func, pairs = partial(functions.make_of_pair, form), [(b"", b"%d" % i) for i in items]
    return Source(
        lambda: fl.from_lmdb_raw(path).map(func),
        lambda: models.map_(models.rows(pairs), func),
        tuple(items),
    )


def from_caffe_lmdb(draw: Draw, form: str, first: int, n: int) -> Source:
    path, items = _lmdb_of_others("caffe", form, first, n), range(first, first + n)
    func, pairs = partial(functions.make_of_label, form), [(b"", i) for i in items]
    return Source(
        lambda: fl.from_caffe_lmdb(path).map(func),
        lambda: models.map_(models.rows(pairs), func),
        tuple(items),
    )


def from_tensorpack_lmdb(draw: Draw, form: str, first: int, n: int) -> Source:
    path, items = _lmdb_of_others("tensorpack", form, first, n), rows(form, first, n, None)
    wrapped = [(item,) for item in items]
    return Source(
        lambda: fl.from_tensorpack_lmdb(path, trusted=True).map(functions.only),
        lambda: models.map_(models.rows(wrapped), functions.only),
        tuple(range(first, first + n)),
    )


def attempt_to_read(draw: Draw, form: str, first: int, n: int) -> Source:
    bad = draw(st.integers(0, n - 1)) if n else None
    whole = _lmdb_and_rows(form, first, n, bad)
    return Source(
        lambda: whole.flow().prefetch(on_error="skip"),
        lambda: models.skip_bad(whole.model().with_failures_as_bad(), False),
    )


def attempt_to_read_here(draw: Draw, form: str, first: int, n: int) -> Source:
    bad = draw(st.integers(1, n - 1)) if n > 1 else None
    items = rows(form, first, n, bad)
    return Source(
        lambda: fl.from_items(items).prefetch(on_error="skip"),
        lambda: models.skip_bad(models.rows(items).with_failures_as_bad(), False),
    )


@cache
def _files(first: int, n: int) -> str:
    folder = _folder() / f"{first}-{n}"
    folder.mkdir()
    for i in range(n):
        (folder / f"{first + i:09}.row").touch()
    return str(folder / "*.row")


def from_files(draw: Draw, form: str, first: int, n: int) -> Source:
    rows = range(first, first + max(n, 1))
    pattern, func = _files(first, len(rows)), partial(functions.make_of_name, form)
    names = [f"{i:09}" for i in rows]
    return Source(
        lambda: fl.from_files(pattern).map(func),
        lambda: models.map_(models.rows(names), func),
        tuple(rows),
    )


@cache
def _text(first: int, n: int, bad: int | None, damage: bytes, suffix: str) -> str:
    path = _folder() / f"{first}-{n}-{bad}-{damage.hex()}{suffix}"
    lines = [b"%09d,%d\n" % (i, i) for i in range(first, first + n)]
    if bad is not None:
        lines[bad] = damage
    content = b"".join(lines)
    path.write_bytes(gzip.compress(content) if suffix == ".gz" else content)
    return _settled(path)


_SUFFIXES = st.sampled_from([".txt", ".gz"])


def from_text(draw: Draw, form: str, first: int, n: int) -> Source:
    bad = damage(draw, n)
    path = _text(first, n, bad, b"\xff\n", draw(_SUFFIXES))
    func = partial(functions.make_of_name, form)
    names = [f"{i:09},{i}" for i in range(first, first + n)]
    return Source(lambda: fl.from_text(path).map(func), lambda: _mapped(names, func, bad))


def from_csv(draw: Draw, form: str, first: int, n: int) -> Source:
    bad = damage(draw, n)
    path = _text(first, n, bad, b'"a"b,1\n', draw(_SUFFIXES))
    func = partial(functions.make_of_cells, form)
    names = [(f"{i:09}", i) for i in range(first, first + n)]
    return Source(
        lambda: fl.from_csv(path, tuple[str, int], header=False).map(func),
        lambda: _mapped(names, func, bad),
    )


@cache
def _arrays(kind: str, first: int, n: int) -> str:
    path = _folder() / f"{first}-{n}.{kind}"
    numbers = fl.from_items(list(range(first, first + n)))
    if kind == "h5":
        numbers.write_hdf5(path, "numbers")
    elif kind == "npz":
        numbers.write_npz(path)
    else:
        np.save(path, np.arange(first, first + n))
    return str(path)


def from_hdf5(draw: Draw, form: str, first: int, n: int) -> Source:
    path = _arrays("h5", first, n)
    return _made(lambda: fl.from_hdf5(path, "numbers", int), form, range(first, first + n))


def from_npz(draw: Draw, form: str, first: int, n: int) -> Source:
    path = _arrays("npz", first, n)
    return _made(lambda: fl.from_npz(path, int), form, range(first, first + n))


def from_npy(draw: Draw, form: str, first: int, n: int) -> Source:
    path = _arrays("npy", first, n)
    items = list(np.arange(first, first + n))
    return _made(lambda: fl.from_npy(path, np.int64), form, items)


def _made(make: Any, form: str, items: Any) -> Source:
    func = partial(functions.make_of_number, form)
    return Source(lambda: make().map(func), lambda: models.map_(models.rows(list(items)), func))


@cache
def _import_scikit_learn() -> None:
    """Import it where a strategy needs it: every worker of our tests would wait two seconds.

    The import draws random numbers, which Hypothesis forbids within strategies.
    """
    state = random.getstate()
    import sklearn.datasets  # noqa: F401

    random.setstate(state)


@cache
def _svmlight(first: int, n: int) -> str:
    _import_scikit_learn()
    path = _folder() / f"{first}-{n}.svm"
    path.write_text("".join(f"{i} 1:0.5 3:{i}\n" for i in range(first, first + n)))
    return _settled(path)


def from_svmlight(draw: Draw, form: str, first: int, n: int) -> Source:
    path, func = _svmlight(first, n), partial(functions.make_of_label, form)
    items = [(np.array([0.5, 0, i]), float(i)) for i in range(first, first + n)]
    return Source(
        lambda: fl.from_svmlight(path, n_features=3).map(func),
        lambda: models.map_(models.rows(items), func),
    )


@cache
def _images(first: int, n: int, bad: int | None) -> str:
    import simplejpeg  # here: most tests draw no images

    folder = _folder() / f"images{first}-{n}-{bad}"
    folder.mkdir()
    for i in range(n):
        digits = np.array([int(digit) for digit in f"{first + i:09}"], np.uint8)
        pixels = np.kron(digits * 20 + 30, np.ones((8, 8), np.uint8))[..., None]
        data: bytes = simplejpeg.encode_jpeg(pixels, colorspace="GRAY")
        (folder / f"{i:09}.jpg").write_bytes(data[:-20] if i == bad else data)
    return str(folder / "*.jpg")


def from_images(draw: Draw, form: str, first: int, n: int) -> Source:
    count = max(n, 1)
    bad = damage(draw, count)
    pattern = _images(first, count, bad)
    items, func = list(make_rows(form, first, count)), partial(functions.make_of_image, form)
    return Source(
        lambda: fl.from_images(pattern, channels=1).map(func),
        lambda: _mapped(items, functions.itself, bad),
        tuple(range(first, first + count)),
    )


def fake(draw: Draw, form: str, first: int, n: int) -> Source:
    func = partial(functions.make_of_fake, form)
    size = n if (random := draw(st.booleans())) else min(n, 1)  # else all would be one row
    shapes, dtypes, seed = [(), (3,)], ["int32", "float32"], first + draw(SEEDS)
    domains = [(1, 2**31), (0, 1)]
    flow = fl.fake(shapes, size, random=random, dtype=dtypes, domain=domains, seed=seed)
    model = models.map_(fake_model(shapes, size, random, dtypes, domains, seed), func)
    marks = tuple(i for x in model.elements(0) for i in ids(x))
    return Source(lambda: flow.map(func), lambda: model, marks)


def fake_model(
    shapes: Sequence[tuple[int, ...]],
    size: int,
    random: bool,
    dtypes: Sequence[str],
    domains: Sequence[tuple[int, int]],
    seed: int,
) -> Model:
    def draw(i: int) -> tuple[Any, ...]:
        rng = generator(seed, 0, 0, i)
        arrays = []
        for shape, dtype, (low, high) in zip(shapes, dtypes, domains, strict=True):
            if dtype == "float32":
                part = rng.random(shape, np.float32)
                arrays.append(np.asarray(low + part * (high - low), dtype))
            else:
                arrays.append(np.asarray(rng.integers(low, high, shape, dtype), dtype))
        return tuple(arrays)

    return models.rows([draw(i if random else 0) for i in range(size)])
