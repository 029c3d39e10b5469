"""Consumers cannot change elements that a source keeps, or that an operator yields repeatedly."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import msgspec
import numpy as np
import pytest

import flowdsl as fl
from flowdsl.elements.read_only import read_only
from flowdsl.elements.structure import leaves
from flowdsl.testing.elements import same
from tests import functions

Chain = Callable[[Any], Any]


class Named(NamedTuple):
    x: Any
    y: int


@attrs.define
class Open:
    x: Any
    y: int


@dataclass(frozen=True)
class Sealed:
    x: Any
    y: int


class Packed(msgspec.Struct):
    x: Any
    y: int


class SealedPacked(msgspec.Struct, frozen=True):
    x: Any
    y: int


FORMS: dict[str, Callable[[Any], Any]] = {
    "an array": lambda a: a,
    "a structured array": lambda a: a.view([("u", float), ("v", float)])[:, 0],
    "an array of objects": lambda a: np.array([*a, None], object)[:-1],
    "columns by name": lambda a: {"x": a, "y": {"z": a}},
    "columns by place": lambda a: (np.arange(len(a)), a),
    "a list of arrays": list,
    "tuples": lambda a: [(row, 1) for row in a],
    "NamedTuples": lambda a: [Named(row, 1) for row in a],
    "dicts": lambda a: [{"x": row, "y": 1} for row in a],
    "attrs records": lambda a: [Open(row, 1) for row in a],
    "frozen dataclasses": lambda a: [Sealed(row, 1) for row in a],
    "Structs": lambda a: [Packed(row, 1) for row in a],
    "frozen Structs": lambda a: [SealedPacked(row, 1) for row in a],
    "nested": lambda a: [{"x": [(row, [1, 2])], "y": Named(row, 1)} for row in a],
}
CHAINS: dict[str, Chain] = {
    "alone": lambda flow: flow,
    "after a map": lambda flow: flow.map(functions.itself),
    "in threads": lambda flow: flow.map(functions.itself).prefetch(threads=2),
    "repeated": lambda flow: flow.repeat_each(2),
    "in windows": lambda flow: flow.window(2),
    "cached": lambda flow: flow.cache(),
}


def write_to(element: Any) -> None:
    """Check that writing to any array raises NumPy's own error."""
    for leaf in leaves(element):
        for one in leaf if isinstance(leaf, list) else [leaf]:
            if isinstance(one, np.ndarray | np.void):
                key: Any = "u" if isinstance(one, np.void) else ...
                with pytest.raises(ValueError, match="assignment destination is read-only"):
                    one[key] = 7
            elif isinstance(one, tuple):
                write_to(one)


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_arrays_of_from_items_are_read_only(form: Chain, chain: Chain) -> None:
    mine = np.arange(6.0).reshape(3, 2)
    flow = chain(fl.from_items(form(mine)))
    elements = flow.collect()
    for element in elements:
        write_to(element)
    assert mine.flags.writeable
    assert same(flow.collect(), elements)


@pytest.mark.usefixtures("mortals")
def test_arrays_of_from_items_are_read_only_in_a_worker() -> None:
    def write(row: Any) -> Any:
        row["x"][:] = 7
        return row

    for shape in ((3,), (1 << 16,)):  # within the message, and beside it
        flow = fl.from_items({"x": np.zeros((2, *shape))}).map(write).prefetch(procs=1)
        with pytest.raises(fl.ElementError, match="assignment destination is read-only"):
            flow.collect()


@pytest.mark.parametrize(
    "given", [list, tuple, deque, lambda a: a, lambda a: dict(enumerate(a)).values()]
)
def test_arrays_of_a_collection_in_from_iterable_are_read_only(given: Chain) -> None:
    for row in fl.from_iterable(given(np.zeros((3, 2)))):
        write_to(row)


def test_arrays_made_by_a_function_for_from_iterable_are_writable() -> None:
    for row in fl.from_iterable(lambda: (np.zeros(2) for _ in range(3))):
        row[:] = 7


def test_arrays_of_a_dataset_are_read_only() -> None:
    class Dataset:
        rows = np.zeros((3, 2))

        def __len__(self) -> int:
            return 3

        def __getitem__(self, i: int) -> Any:
            return {"x": self.rows[i]}

    for flow in (fl.from_items(Dataset()), fl.from_dataset(Dataset())):
        for row in flow:
            write_to(row)


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_a_changed_dict_or_list_is_the_consumers_copy(chain: Chain) -> None:
    def changed(row: Any) -> Any:
        for one in row if isinstance(row, tuple) else [row]:
            one["n"] += 1
            one["words"].append("more")
            one["record"].y = 7
        return row

    items = [{"n": i, "words": ["a"], "record": Open(None, 0)} for i in range(3)]
    flow = chain(fl.from_items(items)).map(changed)
    first = repr(flow.collect())
    assert repr(flow.collect()) == first
    assert items[0] == {"n": 0, "words": ["a"], "record": Open(None, 0)}


def test_immutable_values_are_not_copied() -> None:
    rows = [3, "text", None, (1, ("a", 2.0)), Sealed(1, 2), np.float32(1), {1, 2}.__contains__]
    for row in rows:
        assert read_only(row) is row
    array = read_only(np.zeros(3))
    assert read_only(array) is array
    assert read_only((array, 1))[0] is array


@dataclass
class Unpicklable:
    x: Any

    def __getstate__(self) -> Any:
        raise TypeError("this is never pickled")


class Slotted(Unpicklable):
    __slots__ = ("z",)

    z: Any


class Tagged(tuple[Any, ...]):
    """A tuple with attributes."""


class Tags(OrderedDict[str, Any]):
    """A dict with attributes."""


def test_a_record_that_refuses_to_be_pickled_is_copied() -> None:
    kinds: tuple[Any, ...] = (Unpicklable, Slotted)
    for kind in kinds:
        mine = kind(np.zeros(2))
        mine.z = 3
        (row,) = fl.from_items([mine])
        assert type(row) is kind
        assert row is not mine
        assert row.z == 3
        write_to(row)


@pytest.mark.parametrize("base", [dict, OrderedDict, Counter, Tags])
def test_a_subclass_of_dict_is_copied_with_its_class(base: Any) -> None:
    mine = base(x=np.zeros(2), y=1)
    row = read_only(mine)
    assert type(row) is base
    assert list(row) == ["x", "y"]
    row["y"] = 2
    assert mine["y"] == 1
    write_to(row)


def test_a_defaultdict_keeps_its_default() -> None:
    row = read_only(defaultdict(list, x=np.zeros(2)))
    assert row["more"] == []
    write_to(row)


def test_a_tuple_with_attributes_keeps_them() -> None:
    mine = Tagged([np.zeros(2), 1])
    vars(mine)["name"] = "first"
    row = read_only(mine)
    assert vars(row) == {"name": "first"}
    assert type(row) is Tagged
    write_to(row)
    plain = Tagged([1, 2])
    assert read_only(plain) is plain


def test_recursive_containers_are_copied_recursively() -> None:
    items: list[Any] = [np.zeros(2)]
    items.append(items)
    row = read_only(items)
    assert row is not items
    assert row[1] is row
    assert not row[0].flags.writeable
    named: dict[str, Any] = {"x": np.zeros(2)}
    named["all"] = (named,)
    assert not read_only(named)["all"][0]["x"].flags.writeable
    record = Open(np.zeros(2), 1)
    record.x = [record]
    twin = read_only(record)
    assert twin is not record
    assert twin.x[0] is twin


def test_a_masked_array_does_not_share_its_mask() -> None:
    mine: Any = np.ma.masked_array([1.0, 2.0], mask=[True, False])
    for flow in (fl.from_items([mine]), fl.from_items([mine]).cache()):
        for _ in range(2):
            row: Any = next(iter(flow))
            assert row.mask.tolist() == [True, False]
            assert not row.flags.writeable
            row.mask[1] = True
    assert mine.mask.tolist() == [True, False]


def test_a_memory_map_is_not_copied(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "x", np.uint8, "w+", shape=(4,))
    row = read_only(mapped)
    assert np.shares_memory(row, mapped)
    write_to(row)


def test_lists_of_lists_are_copied_at_each_depth() -> None:
    for mine in ([[1.0, 2.0], [3.0]], [[1], (2,)], [[], [1]], [[[1]], [[2]]]):
        row = read_only(mine)
        assert row == mine
        assert [type(x) for x in row] == [type(x) for x in mine]
        assert all(x is not y for x, y in zip(row, mine, strict=True) if isinstance(x, list))
    write_to(read_only([None, np.zeros(2)]))
    write_to(read_only([[], [np.zeros(2)]])[1])


def test_the_items_of_a_long_list_are_all_looked_at() -> None:
    late: list[Any] = [*range(512), [1]]
    assert read_only(late)[-1] is not late[-1]


def made(i: int) -> Any:
    return {"x": np.full(2, i)}


@pytest.mark.parametrize("chain", [lambda flow: flow, lambda flow: flow.prefetch(threads=1)])
def test_only_overlapping_windows_have_read_only_rows(chain: Chain) -> None:
    rows = fl.from_range(8).map(made)
    for stride in (2, 3):
        for window in chain(rows.window(2, stride)):
            for row in window:
                row["x"][:] = 7
    for window in chain(rows.window(2, 1)):
        write_to(window)


def test_a_row_is_made_read_only_once_for_all_its_windows() -> None:
    _, first, second = fl.from_range(4).map(made).window(2).collect()
    assert first[1]["x"] is second[0]["x"]
