"""Our sources at random, and what they mean."""

from __future__ import annotations

import atexit
import pickle
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.numbers.randomness import generator
from flowdsl.testing import Draw, Model, Source, models
from flowdsl.testing.elements import Listed, Named, Row, ids
from flowdsl.testing.functions import make_rows
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
    """A number of at least 0, as protobuf has it."""
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
