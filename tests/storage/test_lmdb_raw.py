"""LMDB files of other programs: rows are read back, and a damaged file is refused."""

from __future__ import annotations

import os
import pickle
import random
import struct
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import lmdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.errors import (
    ElementError,
    FlowError,
    InvalidFlow,
    SourceError,
    StateMismatch,
)
from flowdsl.nodes import IndexedSource
from flowdsl.testing import check_source
from flowdsl.testing.elements import same
from tests.sampling import examples

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.lmdb"


def store(path: Path, *transactions: dict[bytes, bytes], **options: Any) -> Path:
    """Write an LMDB file with the LMDB library."""
    with lmdb.open(
        str(path), subdir=path.is_dir(), lock=False, map_size=1 << 30, sync=False, **options
    ) as env:
        for pairs in transactions:
            with env.begin(write=True) as txn:
                for key, value in pairs.items():
                    txn.put(key, value)
    return path


def numbered(n: int, size: int = 20) -> dict[bytes, bytes]:
    return {b"%08d" % i: b"%d " % i * size for i in range(n)}


def row_of(flow: Any, i: int) -> Any:
    assert isinstance(flow.node, IndexedSource)
    return flow.node.open()(i)


# -- rows ------------------------------------------------------------------------------------------

KEYS = st.binary(min_size=1, max_size=20).filter(lambda key: key != b"__keys__")
BYTES = st.binary(max_size=60) | st.sampled_from([b"x" * n for n in (1999, 2100, 4080, 4081, 9000)])


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.dictionaries(KEYS, BYTES, max_size=40)))
def test_rows_are_ordered_by_key(
    tmp_path_factory: pytest.TempPathFactory, transactions: list[dict[bytes, bytes]]
) -> None:
    path = store(tmp_path_factory.mktemp("rows") / "rows.lmdb", *transactions)
    rows = {key: value for pairs in transactions for key, value in pairs.items()}
    flow = fl.from_lmdb_raw(path)
    assert len(flow) == len(rows)
    assert flow.collect() == sorted(rows.items())
    assert fl.from_lmdb_raw(path, keys=list(rows)).collect() == list(rows.items())


def test_files_with_many_changes_are_read(tmp_path: Path) -> None:
    """Pages are reused, and free ones at the end of a file may be missing."""
    short = 0
    for seed in range(80):
        rng, path = random.Random(seed), tmp_path / f"{seed}.lmdb"
        with lmdb.open(str(path), subdir=False, lock=False, map_size=1 << 26, sync=False) as env:
            for _ in range(rng.randint(1, 6)):
                with env.begin(write=True) as txn:
                    for _ in range(rng.randint(1, 40)):
                        key = b"%d" % rng.randrange(30)
                        if rng.random() < 0.4:
                            txn.delete(key)
                        else:
                            txn.put(key, bytes([seed]) * rng.choice([5, 500, 3000, 9000, 50000]))
            with env.begin() as txn:
                rows = list(txn.cursor())
            short += path.stat().st_size < (env.info()["last_pgno"] + 1) * PAGE
        assert fl.from_lmdb_raw(path).collect() == rows
    assert short  # else nothing of it is tested


def test_large_trees_are_read_by_number_and_by_key(path: Path) -> None:
    rows = numbered(30_000, 30)
    store(path, rows)
    items = list(rows.items())
    for keys in (None, "{:0>8d}", [key.decode() for key in rows]):
        flow = fl.from_lmdb_raw(path, keys)
        assert len(flow) == len(rows)
        row = flow.node.open()  # type: ignore[attr-defined]  # of an indexed source
        for i in (29_999, 0, 1, 2, 15_000, 7, 15_001):
            assert row(i) == items[i]
    assert fl.from_lmdb_raw(path).collect() == items


def test_source_passes_the_laws(path: Path) -> None:
    rows = numbered(20)
    store(path, rows)
    check_source(lambda: fl.from_lmdb_raw(path), list(rows.items()), examples=5)
    backward = sorted(rows.items(), reverse=True)
    check_source(lambda: fl.from_lmdb_raw(path, [key for key, _ in backward]), backward, examples=3)
    assert fl.from_lmdb_raw(path).prefetch(procs=2).collect() == list(rows.items())


def test_a_path_is_a_file_or_a_folder(tmp_path: Path) -> None:
    store(tmp_path, rows := numbered(3))
    for path in (tmp_path, str(tmp_path), tmp_path / "data.mdb"):
        assert fl.from_lmdb_raw(path).collect() == list(rows.items())


def test_keys_select_the_rows(path: Path) -> None:
    store(path, {b"a": b"1", b"b": b"2", b"long": b"3"})
    flow = fl.from_lmdb_raw(path, keys=["b", b"long", "b"])
    assert flow.collect() == [(b"b", b"2"), (b"long", b"3"), (b"b", b"2")]
    assert fl.from_lmdb_raw(path, keys=[]).collect() == []


def test_missing_key_is_named(path: Path) -> None:
    store(path, {b"a": b"1", b"c": b"2"})
    flow = fl.from_lmdb_raw(path, keys=["a", "b"])
    assert row_of(flow, 0) == (b"a", b"1")
    with pytest.raises(ElementError, match=r"rows\.lmdb'.*row 1 .*no key b'b'"):
        flow.collect()
    with pytest.raises(ElementError, match="no key b'00000000'"):
        fl.from_lmdb_raw(path, keys="{:0>8d}").collect()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (b"abc", "list of str or bytes"),
        (3, "list of str or bytes"),
        (["a", 3], r"keys\[1\]=3"),
        ("all", "one key for all rows"),
        ("{x}", "not a number format"),
        ("{:s}", "not a number format"),
        ("{", "not a number format"),
    ],
)
def test_invalid_keys_are_refused(path: Path, keys: Any, message: str) -> None:
    store(path, numbered(2))
    with pytest.raises(InvalidFlow, match=message):
        fl.from_lmdb_raw(path, keys)


@pytest.mark.parametrize(
    ("flag", "message"),
    [(2, "reversed keys"), (4, "several values"), (8, "integers"), (64, "unknown")],
)
def test_unsupported_key_orders_are_refused(path: Path, flag: int, message: str) -> None:
    data = bytearray(store(path, numbered(3)).read_bytes())
    for meta in (0, PAGE):
        data[meta + 92] |= flag  # of the tree of rows
    path.write_bytes(data)
    with pytest.raises(SourceError, match=f"{message}.*not supported"):
        fl.from_lmdb_raw(path)


def named(path: Path, databases: dict[str, dict[bytes, bytes]], **options: Any) -> Path:
    """Write databases within one file; the name "" is the main one."""
    with lmdb.open(str(path), subdir=False, lock=False, max_dbs=9, map_size=1 << 28) as env:
        for name, pairs in databases.items():
            db = env.open_db(name.encode(), **options) if name else None
            with env.begin(write=True) as txn:
                for key, value in pairs.items():
                    txn.put(key, value, db=db)
    return path


def test_databases_in_a_file_are_read_by_name(path: Path) -> None:
    large = numbered(3000)
    named(path, {"train": large, "test": {b"a": b"x" * 9000}, "none": {}})
    train = fl.from_lmdb_raw(path, db="train")
    assert train.collect() == list(large.items())
    assert dict(train.shuffle(seed=1).prefetch(threads=1).collect()) == large
    assert fl.from_lmdb_raw(path, db=b"test").collect() == [(b"a", b"x" * 9000)]
    assert fl.from_lmdb_raw(path, db="none").collect() == []
    assert fl.from_lmdb_raw(path, "{:0>8d}", db="train").at(2999) == (
        b"00002999",
        large[b"00002999"],
    )
    assert train.node.title == "from_lmdb_raw('rows.lmdb', db='train')"


def test_two_databases_of_a_file_have_different_fingerprints(path: Path) -> None:
    named(path, {"a": numbered(3), "b": numbered(3)})
    flows = [fl.from_lmdb_raw(path, db=name) for name in "ab"]
    assert flows[0].collect() == flows[1].collect()
    assert flows[0].node.fingerprint != flows[1].node.fingerprint


def test_a_database_is_not_read_as_a_value(path: Path) -> None:
    named(path, {"inner": numbered(2), "": {b"z": b"value"}})
    flow = fl.from_lmdb_raw(path)
    with pytest.raises(ElementError, match=r"read it with from_lmdb_raw\(path, db='inner'\)"):
        flow.collect()
    assert fl.from_lmdb_raw(path, ["z"]).collect() == [(b"z", b"value")]
    for name, message in (
        ("other", "db='other': there is no such database; the file has the databases 'inner'"),
        ("z", "db='z': it is a key, and not a database; the file has the databases 'inner'"),
    ):
        with pytest.raises(SourceError, match=message):
            fl.from_lmdb_raw(path, db=name)


def test_a_file_of_databases_names_them_when_none_is_chosen(path: Path) -> None:
    named(path, {"train": numbered(2), "test": numbered(2)})
    with pytest.raises(SourceError, match="the file has the databases 'test', 'train': choose one"):
        fl.from_lmdb_raw(path)
    store(path.with_name("plain"), numbered(2))
    with pytest.raises(SourceError, match="no such database; the file has no databases"):
        fl.from_lmdb_raw(path.with_name("plain"), db="train")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("dupsort", "db='inner': several values for a key: not supported"),
        ("integerkey", "db='inner': integers for keys: not supported"),
        ("reverse_key", "db='inner': reversed keys: not supported"),
    ],
)
def test_a_database_of_an_unsupported_order_is_refused(path: Path, kind: str, message: str) -> None:
    named(path, {"inner": numbered(2)}, **{kind: True})
    with pytest.raises(SourceError, match=message):
        fl.from_lmdb_raw(path, db="inner")


@pytest.mark.parametrize("db", ["", b"", 3, ["a"]])
def test_the_name_of_a_database_is_text_or_bytes(path: Path, db: Any) -> None:
    named(path, {"a": numbered(2)})
    with pytest.raises(InvalidFlow, match="db must be the name of a database, or None, got"):
        fl.from_lmdb_raw(path, db=db)


@pytest.mark.parametrize("keys", [None, "{:0>8d}"])
def test_resume_detects_another_file(tmp_path: Path, keys: str | None) -> None:
    rows = numbered(300)
    for name, changed in [("a", rows), ("b", {**rows, b"00000299": b"299 " * 19 + b"29! "})]:
        store(tmp_path / name, changed)
    with fl.from_lmdb_raw(tmp_path / "a", keys).epoch(0) as run:
        next(run)
        state = run.state_dict()
    (tmp_path / "moved").mkdir()
    moved = tmp_path / "moved" / "a"
    moved.write_bytes((tmp_path / "a").read_bytes())
    with fl.from_lmdb_raw(moved, keys).resume(state) as run:
        assert next(run) == (b"00000001", rows[b"00000001"])
    moved.write_bytes((tmp_path / "b").read_bytes())
    with pytest.raises(StateMismatch), fl.from_lmdb_raw(moved, keys).resume(state):
        pass


def test_a_file_that_changed_is_refused(path: Path) -> None:
    flow = fl.from_lmdb_raw(store(path, numbered(3)))
    store(path, {b"more": b"1"})
    with pytest.raises(SourceError, match="build a new flow"):
        flow.collect()


def test_a_file_that_is_written_to_while_it_is_read(path: Path) -> None:
    """Pages may be overwritten, and a value does not identify its key."""
    many = numbered(20_000)
    first, *_, last = many.items()
    with fl.from_lmdb_raw(store(path, many)).epoch(0) as run:
        assert next(run) == first
        time.sleep(0.02)  # it is looked at every 0.01 s
        os.utime(path)
        assert next(run) != first
        time.sleep(0.02)
        with lmdb.open(str(path), subdir=False) as env, env.begin(write=True) as txn:
            txn.put(last[0], b"another")
        with pytest.raises(ElementError, match="has changed since it was opened"):
            deque(run, 0)


# -- what tensorpack wrote -------------------------------------------------------------------------


class Sample(NamedTuple):
    image: NDArray[np.uint8]
    label: int


def datapoints(n: int) -> list[list[Any]]:
    return [[np.full((2, 3), i % 256, np.uint8), i] for i in range(n)]


def packed(x: object) -> bytes:
    encode = import_module("msgpack_numpy").encode
    data: bytes = import_module("msgpack").packb(x, default=encode, use_bin_type=True)
    return data


@pytest.fixture(params=["pickle", "msgpack"])
def saved(request: pytest.FixtureRequest, path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a file with tensorpack's own serializer."""
    td = import_module("tensorpack.dataflow")
    serialize = import_module("tensorpack.dataflow.serialize")
    both = import_module("tensorpack.utils.serialize")
    chosen = both.PickleSerializer if request.param == "pickle" else both.MsgpackSerializer
    monkeypatch.setattr(serialize, "dumps", chosen.dumps)
    serialize.LMDBSerializer.save(td.DataFromList(datapoints(2500), shuffle=False), str(path))
    return path


def test_files_written_by_tensorpack_are_read(saved: Path) -> None:
    flow = fl.from_tensorpack_lmdb(saved, tuple[NDArray[np.uint8], int], trusted=True)
    assert len(flow) == 2500
    assert all(
        same(row, tuple(expected)) for row, expected in zip(flow, datapoints(2500), strict=True)
    )
    raw = fl.from_lmdb_raw(saved)
    assert len(raw) == 2500
    assert [key for key, _ in raw][:2] == [b"00000000", b"00000001"]
    assert len(fl.from_lmdb_raw(saved, "{:0>8d}")) == 2500
    first = fl.from_tensorpack_lmdb(saved, Sample, trusted=True).take(1).collect()
    assert isinstance(first[0], Sample)
    with pytest.raises(ElementError, match="declared"):
        fl.from_tensorpack_lmdb(saved, tuple[NDArray[np.uint8], str], trusted=True).collect()


def test_rows_equal_tensorpacks(path: Path) -> None:
    td = import_module("tensorpack.dataflow")
    store(path, rows := numbered(50))
    theirs = td.LMDBData(str(path), shuffle=False)
    theirs.reset_state()
    assert fl.from_lmdb_raw(path).collect() == [tuple(pair) for pair in theirs]
    assert len(rows) == len(theirs)


class Evil:
    """An object whose pickle creates a file when it is read."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def test_pickles_are_read_only_if_trusted(path: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    evil = pickle.dumps(Evil(str(made)))
    store(path, {b"0": evil})
    with pytest.raises(SourceError, match="trusted=True"):
        fl.from_tensorpack_lmdb(path)
    store(path, {b"0": packed([1]), b"1": evil, b"__keys__": packed([b"0", b"1"])})
    with pytest.raises(ElementError, match=r"key b'1': it is a pickle.*trusted=True"):
        fl.from_tensorpack_lmdb(path).collect()
    store(path, {b"__keys__": evil})
    for read in (fl.from_lmdb_raw, fl.from_tensorpack_lmdb):
        with pytest.raises(SourceError, match="is not a list of keys"):
            read(path)
    assert not made.exists()


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_list_of_keys_is_read_without_unpickling(path: Path, protocol: int) -> None:
    rows = numbered(3000, 1)
    keys = sorted(rows, reverse=True)
    if protocol == 2:  # it has no bytes: a function that makes them is called
        store(path, rows, {b"__keys__": pickle.dumps(keys, protocol)})
        with pytest.raises(SourceError, match=r"is not a list of keys.*pass the keys with keys="):
            fl.from_lmdb_raw(path)
        return
    store(path, rows, {b"__keys__": pickle.dumps(keys, protocol)})
    assert [key for key, _ in fl.from_lmdb_raw(path)] == keys


PARTS: list[object] = [
    *(None, True, 3, -(2**63), 2.5, "text", b"bytes", 1 + 2j, np.float32(2.5), np.int64(3)),
    *(np.zeros((2, 0), np.int16), np.array(7), np.array(["ab", "c"]), np.array([True, False])),
    *(
        {"x": np.arange(3), "y": [1, 2]},
        [1, np.arange(4.0)],
    ),
]


def test_msgpack_numpy_values_are_read_back(path: Path) -> None:
    store(path, {b"%02d" % i: packed([part, i]) for i, part in enumerate(PARTS)})
    rows = fl.from_tensorpack_lmdb(path).collect()
    for row, part in zip(rows, PARTS, strict=True):
        assert isinstance(row, tuple)
        assert same(row[0], part), (row[0], part)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\xc1",
        packed([1])[:-1],
        packed([{b"nd": True}]),
        packed(
            [{b"nd": True, b"type": "|O", b"kind": b"O", b"shape": [1], b"data": b"\x80\x04N."}]
        ),
        packed([{b"nd": True, b"type": "<f8", b"kind": b"", b"shape": [2**62, 0], b"data": b"1"}]),
        packed(
            [{b"nd": True, b"type": "<f8", b"kind": b"", b"shape": [-1, -1], b"data": b"8" * 8}]
        ),
        packed(
            [{b"nd": True, b"type": "<f8", b"kind": b"", b"shape": [2**60] * 999, b"data": b""}]
        ),
        packed([{b"nd": True, b"type": "|S0", b"kind": b"", b"shape": [2**60], b"data": b""}]),
        packed([{b"nd": True, b"type": "<f8", b"kind": b"", b"shape": 3, b"data": b""}]),
        packed([{b"nd": False, b"type": "<f8", b"data": b"12"}]),
        packed([{b"nd": False, b"type": "f8," * 9, b"data": b"12"}]),
        packed([{b"complex": True, b"data": "nothing"}]),
        b"\x91" * 100_000,
    ],
)
def test_invalid_datapoint_is_refused(path: Path, bad: bytes) -> None:
    store(path, {b"key": bad})
    with pytest.raises(ElementError, match="key b'key': it is not a datapoint"):
        fl.from_tensorpack_lmdb(path).collect()


# -- damage ----------------------------------------------------------------------------------------


def test_path_that_is_not_a_file_is_named(tmp_path: Path) -> None:
    for content in (None, b"", b"text" * 5000):
        if content is not None:
            (tmp_path / "rows.lmdb").write_bytes(content)
        with pytest.raises(SourceError, match=r"from_lmdb_raw: .*rows\.lmdb"):
            fl.from_lmdb_raw(tmp_path / "rows.lmdb")
    with pytest.raises(SourceError, match=r"data\.mdb"):
        fl.from_lmdb_raw(tmp_path)


@pytest.mark.parametrize("size", [20, 2000])
def test_a_file_that_is_cut_off_is_refused_at_once(path: Path, size: int) -> None:
    whole = store(path, numbered(300, size)).read_bytes()
    for left in (1, 100, PAGE, 2 * PAGE, 3 * PAGE, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:left])
        for keys in (None, "{:0>8d}"):
            with pytest.raises(SourceError, match=r"rows\.lmdb"):
                fl.from_lmdb_raw(path, keys)


def read_all(path: Path, keys: Sequence[bytes] | str | None) -> list[tuple[bytes, bytes]]:
    """Read until the first error, which must name the file."""
    got: list[tuple[bytes, bytes]] = []
    with suppress(FlowError), naming("rows.lmdb"):
        for row in fl.from_lmdb_raw(path, keys):
            got.append(row)  # noqa: PERF402  # what came before an error counts too
    return got


@contextmanager
def naming(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if name not in str(error):
            raise AssertionError(f"{name} is not named") from error
        raise


def mutants(whole: bytes, n: int, seed: int) -> list[bytes]:
    """Return the file with flipped bits, replaced numbers, swapped pages, or a missing end."""
    rng, changed = random.Random(seed), list[bytes]()
    for _ in range(n):
        data, pages = bytearray(whole), len(whole) // PAGE
        # most of a page is values: the numbers are in its head, and before each key
        place = rng.randrange(pages) * PAGE + rng.choice([rng.randrange(150), rng.randrange(PAGE)])
        kind = rng.randrange(5)
        if kind == 0:
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            number = rng.choice([0, 1, 0xFFFF, PAGE, rng.randrange(1 << 16)])
            struct.pack_into("<H", data, min(place & ~1, len(data) - 2), number)
        elif kind == 2:
            number = rng.choice([0, 2**64 - 1, 2**32, 2**48, rng.randrange(pages + 2)])
            struct.pack_into("<Q", data, min(place & ~7, len(data) - 8), number)
        elif kind == 3:
            a, b = (rng.randrange(pages) * PAGE for _ in range(2))
            data[a : a + PAGE] = data[b : b + PAGE]
        else:
            del data[rng.randrange(len(data)) :]
        changed.append(bytes(data))
    return changed


@pytest.mark.parametrize("keys", [None, "{:0>8d}"])
def test_damage_is_an_error_or_a_changed_value(path: Path, keys: str | None) -> None:
    rows = {
        key: bytes(3000) if i % 9 == 0 else key * (i % 30) for i, key in enumerate(numbered(400))
    }
    whole = store(path, rows).read_bytes()
    for changed in mutants(whole, 150, seed=7):
        path.write_bytes(changed)
        assert len(read_all(path, keys)) <= len(rows)


def test_cyclic_pages_do_not_loop_forever(path: Path) -> None:
    whole = bytearray(store(path, numbered(3000, 30)).read_bytes())
    metas = [struct.unpack_from("<QQQ", whole, at + 128) for at in (0, PAGE)]
    root = max(metas, key=lambda meta: meta[2])[0]
    head = root * PAGE
    assert whole[head + 10] == 1  # a branch
    nodes = struct.unpack_from("<8H", whole, head + 16)
    for node in nodes:  # each names its own page, as deep as a tree may be: 8**31 of them
        struct.pack_into("<HHH", whole, head + node, root & 0xFFFF, root >> 16, 0)
    for meta in (0, PAGE):
        struct.pack_into("<H", whole, meta + 94, 32)
    path.write_bytes(whole)
    with pytest.raises(SourceError, match=f"page {root} is damaged: it refers to page"):
        fl.from_lmdb_raw(path, "{:0>8d}")


def test_value_on_another_values_page_is_refused(path: Path) -> None:
    whole = bytearray(store(path, {b"a": b"1" * 5000, b"b": b"2" * 9000}).read_bytes())
    heads = [
        at
        for at in range(2 * PAGE, len(whole), PAGE)
        if struct.unpack_from("<QHH", whole, at) == (at // PAGE, 0, 4)
    ]
    leaf = next(at for at in range(2 * PAGE, len(whole), PAGE) if whole[at + 10] == 2)
    a, b = (struct.pack("<Q", at // PAGE) for at in heads)
    node = whole.rindex(b, leaf, leaf + PAGE)
    whole[node : node + 8] = a
    path.write_bytes(whole)
    assert len(row_of(fl.from_lmdb_raw(path), 0)[1]) == 5000
    with pytest.raises(SourceError, match="not the value of key b'b'"):
        row_of(fl.from_lmdb_raw(path), 1)
