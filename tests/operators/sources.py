"""Our sources at random, and what they mean."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import sklearn.datasets  # noqa: F401  # its import draws random numbers, which no strategy may
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.numbers.randomness import generator
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


@cache
def _lmdb(form: str, first: int, n: int, bad: int | None = None) -> str:
    path = _folder() / f"{form}{first}-{n}-{bad}.lmdb"
    fl.from_items(list(make_rows(form, first, n))).write_lmdb(path)
    if bad is not None:
        with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as database:
            row = bytes(database.begin().get(b"%010d" % bad) or b"")
        path.write_bytes(path.read_bytes().replace(row, bytes(byte ^ 1 for byte in row)))
    return str(path)


def from_lmdb(draw: Draw, form: str, first: int, n: int) -> Source:
    return _lmdb_and_rows(form, first, n, damage(draw, n))


def _lmdb_and_rows(form: str, first: int, n: int, bad: int | None) -> Source:
    path, items = _lmdb(form, first, n, bad), rows(form, first, n, bad)
    kinds: dict[str, Any] = {"named": Named, "record": Row, "listed": Listed}
    if form in kinds:
        return Source(lambda: fl.from_lmdb(path, kinds[form]), lambda: models.rows(items))
    return Source(lambda: fl.from_lmdb(path), lambda: models.rows(items))


def attempt_to_read(draw: Draw, form: str, first: int, n: int) -> Source:
    bad = draw(st.integers(0, n - 1)) if n else None
    whole = _lmdb_and_rows(form, first, n, bad)
    return Source(
        lambda: whole.flow().prefetch(on_error="skip"),
        lambda: models.skip_bad(whole.model().carefully(), False),
    )


def attempt_to_read_here(draw: Draw, form: str, first: int, n: int) -> Source:
    bad = draw(st.integers(1, n - 1)) if n > 1 else None
    items = rows(form, first, n, bad)
    return Source(
        lambda: fl.from_items(items).prefetch(on_error="skip"),
        lambda: models.skip_bad(models.rows(items).carefully(), False),
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
def _text(first: int, n: int, bad: int | None, damage: bytes) -> str:
    path = _folder() / f"{first}-{n}-{bad}-{damage.hex()}.txt"
    lines = [b"%09d,%d\n" % (i, i) for i in range(first, first + n)]
    if bad is not None:
        lines[bad] = damage
    path.write_bytes(b"".join(lines))
    return str(path)


def from_text(draw: Draw, form: str, first: int, n: int) -> Source:
    bad = damage(draw, n)
    path, func = _text(first, n, bad, b"\xff\n"), partial(functions.make_of_name, form)
    names = [f"{i:09},{i}" for i in range(first, first + n)]
    items = names if bad is None else damaged(names, bad)
    return Source(
        lambda: fl.from_text(path).map(func), lambda: models.map_(models.rows(items), func)
    )


def from_csv(draw: Draw, form: str, first: int, n: int) -> Source:
    bad = damage(draw, n)
    path, func = _text(first, n, bad, b'"a"b,1\n'), partial(functions.make_of_cells, form)
    names = [(f"{i:09}", i) for i in range(first, first + n)]
    items = names if bad is None else damaged(names, bad)
    return Source(
        lambda: fl.from_csv(path, tuple[str, int], header=False).map(func),
        lambda: models.map_(models.rows(items), func),
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
def _svmlight(first: int, n: int) -> str:
    path = _folder() / f"{first}-{n}.svm"
    path.write_text("".join(f"{i} 1:0.5 3:{i}\n" for i in range(first, first + n)))
    return str(path)


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
    items, func = rows(form, first, count, bad), partial(functions.make_of_image, form)
    return Source(
        lambda: fl.from_images(pattern, channels=1).map(func),
        lambda: models.map_(models.rows(items), functions.itself),
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
