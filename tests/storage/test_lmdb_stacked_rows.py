"""Batches of small arrays, which are taken from the pages of many rows at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypedDict
from unittest import mock

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.elements.specs import ArraySpec, Spec, StructSpec, ValueSpec
from flowdsl.storage.lmdb.reading import FromLmdb
from flowdsl.storage.lmdb.stacked_rows import StackedRows, row_form
from flowdsl.testing.elements import same
from tests.sampling import examples

Outcome: TypeAlias = "tuple[list[Any], str]"

FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "array": lambda x, y: x,
    "tuple": lambda x, y: (x, y),
    "scalar in a tuple": lambda x, y: (x, y.ravel()[:1].sum()),
    "dict": lambda x, y: {"x": x, "y": y},
    "one in a dict": lambda x, y: {"x": x},
}


class Pair(NamedTuple):
    x: NDArray[np.float32]
    y: NDArray[np.float32]


def pair(i: int) -> Pair:
    return Pair(array(i, "f4", (9,)), array(i, "f4", (2, 3)))


@attrs.frozen
class Counted:
    calls: ClassVar[int] = 0
    x: NDArray[np.float32]

    def __attrs_post_init__(self) -> None:
        Counted.calls += 1


def array(seed: int, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    return np.random.default_rng(seed).integers(0, 99, shape).astype(dtype)


def one_by_one(flow: fl.Flow[Any, Any]) -> Outcome:
    """The outcome of the flow if its rows are read one by one."""
    with mock.patch.object(FromLmdb, "open_spans", return_value=None):
        return outcome(flow)


def outcome(flow: fl.Flow[Any, Any]) -> Outcome:
    """The elements before an error, and its text."""
    elements = list[Any]()
    try:
        elements.extend(flow.epoch(0))
    except fl.FlowError as error:
        return elements, f"{error} {error.__cause__}"
    return elements, ""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.lmdb"


@pytest.fixture
def stacked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A flag for each group of rows that was read: True if it was stacked at once."""
    outcomes = list[bool]()
    call = StackedRows.__call__

    def noted(self: StackedRows, first: int, end: int) -> Any:
        parts = call(self, first, end)
        outcomes.append(parts is not None)
        return parts

    monkeypatch.setattr(StackedRows, "__call__", noted)
    return outcomes


def written(path: Path, rows: list[Any], parts: int = 1) -> fl.Flow[Any, fl.Exact]:
    """Rows of a file that was written in so many parts."""
    path.unlink(missing_ok=True)
    for k in range(parts):
        some = rows[k * len(rows) // parts : (k + 1) * len(rows) // parts]
        fl.from_items(some).write_lmdb(path, append=True)
    return fl.from_lmdb(path)


@settings(max_examples=examples(60))
@given(
    st.sampled_from(list(FORMS)),
    st.sampled_from(["f4", "f8", "u1", "i2", "M8[s]", "c8"]),
    st.sampled_from([(1,), (8,), (3, 5), (300,), (700,), (1, 1000)]),
    st.integers(1, 700),
    st.sampled_from([1, 3, 32, 200]),
    st.integers(1, 3),
)
def test_batches_equal_those_of_rows_read_one_by_one(
    tmp_path: Path,
    form: str,
    dtype: str,
    shape: tuple[int, ...],
    count: int,
    n: int,
    parts: int,
) -> None:
    made = [FORMS[form](array(i, dtype, shape), array(-i % 97, "i4", (2,))) for i in range(count)]
    rows = written(tmp_path / "rows.lmdb", made, parts)
    for flow in (rows.batch(n), rows.shuffle(seed=1, block=64).batch(150)):
        assert same(outcome(flow), one_by_one(flow))
    assert same(rows.batch(n).collect(), fl.from_items(made).batch(n).collect())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [3, 250, 2_500])
def test_rows_of_equal_arrays_are_stacked_at_once(
    path: Path, form: str, size: int, stacked: list[bool]
) -> None:
    made = [FORMS[form](array(i, "f4", (size,)), array(i, "i8", (2,))) for i in range(500)]
    batches = written(path, made, parts=2).batch(32)
    assert same(batches.collect(), fl.from_items(made).batch(32).collect())
    assert stacked == [True] * 16
    assert same(batches.prefetch(procs=2).collect(), batches.collect())
    assert same(batches.prefetch(threads=2).collect(), batches.collect())


def test_namedtuples_are_stacked_at_once(path: Path, stacked: list[bool]) -> None:
    made = list(map(pair, range(100)))
    written(path, made)
    batches = fl.from_lmdb(path, Pair).batch(40).collect()
    assert stacked == [True] * 3
    assert [type(batch) for batch in batches] == [Pair] * 3
    assert same(batches, fl.from_items(made).batch(40).collect())


@pytest.mark.parametrize("make", [lambda i: (array(i, "f4", (9,)), np.int64(i)), pair])
def test_cached_rows_are_stacked_at_once(
    path: Path, make: Callable[[int], Any], stacked: list[bool]
) -> None:
    flow = fl.from_range(100).map(make)
    cached = flow.cache(path).batch(40)
    for _ in range(2):
        assert same(cached.collect(), flow.batch(40).collect())
    assert stacked == [True] * 6
    assert same(cached.prefetch(procs=1).collect(), flow.batch(40).collect())


def test_a_constructor_is_called_for_each_row(path: Path, stacked: list[bool]) -> None:
    made = [Counted(array(i, "f4", (9,))) for i in range(10)]
    written(path, made)
    flow = fl.from_lmdb(path, Counted).batch(4)
    Counted.calls = 0
    assert len(flow.collect()) == 3
    assert Counted.calls >= 10
    assert stacked == []


UNEQUAL: dict[str, list[Any]] = {
    "shapes": [np.zeros(3), np.zeros(4)] * 5,
    "numbers": [(np.zeros(3), k) for k in range(10)],
    "a list": [[np.zeros(3)]] * 10,
    "the order of keys": [{"x": np.zeros(3), "y": np.ones(3)}, {"y": np.ones(3), "x": np.zeros(3)}]
    * 5,
    "arrays of no axes": [(np.zeros(3), np.array(k)) for k in range(10)],
    "the order of bytes": [np.arange(3, dtype=">i4")] * 10,
    "flags": [np.array([True, False])] * 10,
    "text": [np.array(["a", "b"])] * 10,
    "no entries": [np.zeros((0, 3))] * 10,
}


@pytest.mark.parametrize("rows", UNEQUAL.values(), ids=UNEQUAL)
def test_rows_that_may_differ_in_other_bytes_are_read_one_by_one(
    path: Path, rows: list[Any], stacked: list[bool]
) -> None:
    flow = written(path, rows).batch(4)
    assert same(outcome(flow), one_by_one(flow))
    assert True not in stacked


@pytest.mark.parametrize("size", [5, 250, 2_500])
def test_damage_has_the_outcome_that_it_has_if_rows_are_read_one_by_one(
    path: Path, size: int
) -> None:
    rows = written(path, [(array(i, "f4", (size,)), array(i, "u1", (7,))) for i in range(150)])
    flows = [rows.batch(32), rows.skip(9).batch(32), rows.shuffle(seed=2, block=40).batch(130)]
    intact = [outcome(flow) for flow in flows]
    whole = path.read_bytes()
    used = [i for i, byte in enumerate(whole) if byte]
    draw, failed = random.Random(size), 0
    for _ in range(40):
        damaged = bytearray(whole)
        for _ in range(draw.choice([1, 2])):
            damaged[draw.choice(used)] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        for flow, right in zip(flows, intact, strict=True):
            found = outcome(flow)
            # A damaged key of a branch page may go unnoticed: rows have keys of their own.
            assert same(found, one_by_one(flow)) or same(found, right)
            failed += found[1] != ""
    assert failed > 20


@pytest.mark.parametrize("size", [5, 250, 2_500])
def test_a_damaged_page_is_an_error(path: Path, size: int) -> None:
    flow = written(path, [array(i, "f4", (size,)) for i in range(2_000)]).batch(32)
    data = bytearray(path.read_bytes())
    row = data.index(array(1_500, "f4", (size,)).tobytes())
    data[row // 4096 * 4096] ^= 0x40  # the page's own number
    path.write_bytes(data)
    found = outcome(flow)
    assert "is damaged" in found[1]
    assert same(found, one_by_one(flow))


def test_damaged_rows_are_left_out_if_that_is_asked_for(path: Path) -> None:
    made = [array(i, "f4", (100,)) for i in range(64)]
    written(path, made)
    path.write_bytes(path.read_bytes().replace(made[40].tobytes(), bytes(400)))
    rows = fl.from_lmdb(path, NDArray[np.float32]).prefetch(procs=0, on_error="skip").batch(9)
    assert same(rows.collect(), fl.from_items([*made[:40], *made[41:]]).batch(9).collect())


CHAINS: dict[str, Callable[[fl.Flow[Any, Any]], fl.Flow[Any, Any]]] = {
    "batch": lambda rows: rows.batch(40),
    "shuffle": lambda rows: rows.shuffle(seed=0, block=50).batch(150),  # the last is of single rows
    "skip": lambda rows: rows.skip(90).batch(40),
}


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("size", [5, 250, 2_500])
@pytest.mark.parametrize("change", ["grows", "is removed"])
def test_a_file_is_read_to_its_end_if_it(
    path: Path, change: str, size: int, chain: Callable[[fl.Flow[Any, Any]], fl.Flow[Any, Any]]
) -> None:
    made = [array(i, "f4", (size,)) for i in range(1_000)]
    run = iter(chain(written(path, made)))
    first = next(run)
    if change == "grows":
        fl.from_items(made[:10]).write_lmdb(path, append=True)
    else:
        path.unlink()
    assert same([first, *run], chain(fl.from_items(made)).collect())


def test_a_replaced_file_is_an_error(path: Path) -> None:
    flow = written(path, [array(i, "f4", (2_500,)) for i in range(400)]).batch(10)
    run = iter(flow)
    next(run)
    other = path.with_name("other.lmdb")
    fl.from_items([array(i + 1, "f4", (2_500,)) for i in range(400)]).write_lmdb(other)
    path.write_bytes(other.read_bytes())
    with pytest.raises(fl.FlowError, match=r"element 10 .* has changed since it was opened"):
        list(run)


class Reordered(TypedDict):
    y: NDArray[np.float32]
    x: NDArray[np.float32]


def test_keys_have_the_order_of_the_file(path: Path, stacked: list[bool]) -> None:
    made = [{"x": array(i, "f4", (3,)), "y": array(i, "f4", (2,))} for i in range(200)]
    written(path, made)
    rows = fl.from_lmdb(path, Reordered)
    for flow in (rows.batch(150), rows.shuffle(seed=0, block=50).batch(150), rows.take(2)):
        assert [list(x) for x in flow.collect()] == [["x", "y"]] * 2
    assert True in stacked


@pytest.mark.parametrize(
    "chain",
    [
        lambda rows: rows.window(8, stack=True),
        lambda rows: rows.window(8, stack=True).batch(32),
        lambda rows: rows.shard(2, 0).batch(128),
        lambda rows: rows.shuffle(seed=0).batch(512),
    ],
)
def test_rows_are_read_once_and_no_others(
    path: Path, chain: Callable[[fl.Flow[Any, Any]], fl.Flow[Any, Any]], stacked: list[bool]
) -> None:
    made = [array(i, "f4", (250,)) for i in range(1_000)]
    assert same(chain(written(path, made)).collect(), chain(fl.from_items(made)).collect())
    assert stacked == []


def test_rows_that_were_chosen_in_order_are_stacked_at_once(
    path: Path, stacked: list[bool]
) -> None:
    made = [array(i, "f4", (250,)) for i in range(1_000)]
    batches = written(path, made).skip(100).take(320).batch(32)
    assert same(batches.collect(), fl.from_items(made[100:420]).batch(32).collect())
    assert stacked == [True] * 10


@pytest.mark.parametrize(
    "spec",
    [
        ArraySpec(np.dtype("f4"), (4,)),
        StructSpec(dict, (("x", ArraySpec(np.dtype("i8"), ())),)),
        StructSpec(tuple, (("0", ArraySpec(np.dtype("M8[s]"), (2, 3))),) * 2),
    ],
)
def test_the_form_has_all_bytes_of_a_row_but_those_of_its_arrays(spec: Spec) -> None:
    form = row_form(spec)
    assert form is not None
    around = sum(len(known) for _, known in form.gaps)
    inside = sum(part.end - part.start for part in form.parts)
    assert around + inside == len(form.content) == form.size - 8


@pytest.mark.parametrize(
    "spec",
    [
        ValueSpec(int),
        ArraySpec(None, (4,)),
        ArraySpec(np.dtype("f4"), None),
        ArraySpec(np.dtype("f4"), (None,)),
        ArraySpec(np.dtype("f4"), (1 << 20,)),
        StructSpec(tuple, ()),
        StructSpec(tuple, (("0", ArraySpec(np.dtype("f4"), (2,))), ("1", ValueSpec(str)))),
    ],
)
def test_rows_of_unknown_bytes_have_no_form(spec: Spec) -> None:
    assert row_form(spec) is None
