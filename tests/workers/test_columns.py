"""Columns: elements arrive as pickle would deliver them, in memory of their own."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from itertools import combinations
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as arrays_of

from flowdsl.testing.elements import same
from flowdsl.workers.columns import FEWEST, _Column, _Structures, columns_of
from flowdsl.workers.slabs import WORTH_SHARING
from flowdsl.workers.wire import pack, unpack

LAYOUTS = ["C", "C", "read-only", "scalar", "fortran", "reversed"]
PLAIN = ["?", "i1", "u2", "<i4", "i8", "f2", "f4", "f8", "c8"]
DTYPES = [">i4", "U3", "S2", "M8[s]", "i4,f4"]


class Point(NamedTuple):
    x: Any
    y: Any


class Words(tuple[str, ...]):
    """A tuple with another constructor."""

    __slots__ = ()


def _read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def _changed(array: Any, layout: str) -> Any:
    if layout == "read-only":
        return _read_only(array)
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "reversed" and array.ndim:
        return array[::-1]
    if layout == "scalar" and array.size:
        return array.reshape(-1)[0]
    return array


@st.composite
def columns(draw: st.DrawFn, most_kinds: int = 2) -> st.SearchStrategy[Any]:
    """A strategy of the arrays of one column, of one or more dtypes, layouts and ranks."""
    kinds = st.integers(1, most_kinds)
    dtypes = [draw(st.sampled_from(PLAIN + DTYPES)) for _ in range(draw(kinds))]
    layouts = [draw(st.sampled_from(LAYOUTS)) for _ in range(draw(kinds))]
    entry = draw(arrays_of.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3))
    ragged = st.integers(0, 4).map(lambda n: (n, *entry))
    shapes = [draw(st.sampled_from([ragged, st.just((2, *entry))])), st.just(entry)]
    return st.builds(
        lambda dtype, shape, value, layout: _changed(np.full(shape, value).astype(dtype), layout),
        st.sampled_from(dtypes),
        st.one_of(*shapes[: draw(kinds)]),
        st.integers(0, 9),
        st.sampled_from(layouts),
    )


@st.composite
def structures(draw: st.DrawFn, depth: int = 2) -> st.SearchStrategy[Any]:
    """A strategy of elements of one structure."""
    others = st.sampled_from([1, "a", None, 2.5]), st.lists(st.integers(), max_size=2)
    if not depth or not draw(st.integers(0, 2)):
        return draw(st.one_of(columns(1), columns(1), columns(), st.sampled_from(others)))
    parts = draw(st.lists(structures(depth - 1), min_size=0, max_size=3))
    forms: list[st.SearchStrategy[Any]] = [
        st.tuples(*parts),
        st.fixed_dictionaries({f"key {i}": part for i, part in enumerate(parts)}),
        st.fixed_dictionaries(dict(enumerate(parts))),
        st.tuples(*parts).map(lambda x: Words(map(str, x))),
        st.tuples(*parts).map(lambda x: OrderedDict((str(i), y) for i, y in enumerate(x))),
    ]
    if len(parts) == 2:
        forms.append(st.builds(Point, *parts))
    return draw(st.sampled_from(forms))


def lists_of(kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return kinds.flatmap(lambda kind: st.lists(kind, min_size=FEWEST, max_size=2 * FEWEST))


def by_pickle(value: object) -> Any:
    content, out_of_band = pack(value)
    return unpack(content, list(map(bytearray, out_of_band)))


def received(elements: list[Any]) -> Any:
    return by_pickle(columns_of(elements))


def arrays_in(x: Any) -> list[Any]:
    if isinstance(x, np.ndarray):
        return [x]
    if isinstance(x, dict):
        x = list(x.values())
    return [array for part in x for array in arrays_in(part)] if isinstance(x, list | tuple) else []


def _described(x: Any) -> Any:
    """The types, keys, dtypes, layouts and contents of an element."""
    if isinstance(x, np.ndarray):
        flags = x.flags.writeable, x.flags.c_contiguous, x.flags.f_contiguous
        return type(x), x.dtype, x.shape, flags, x.tolist()
    if isinstance(x, dict):
        return type(x), [(type(key), key, _described(value)) for key, value in x.items()]
    if isinstance(x, list | tuple):
        return type(x), list(map(_described, x))
    return type(x), x


class Reduced(NamedTuple):
    """A class that is pickled as another one."""

    x: Any

    def __reduce__(self) -> Any:
        return tuple, ((self.x,),)


class Derived(Point):
    """A class whose instances may have attributes."""


def _shared(i: int) -> Any:
    array = np.full(3, i)
    return {"image": array, "views": [array]}


def _twice(i: int) -> Any:
    array = np.full(3, i)
    return array, {"again": array}


CORNERS: dict[str, list[Any]] = {
    "read-only": [_read_only(np.full(3, i)) for i in range(9)],
    "read-only of several lengths": [_read_only(np.full(i, i)) for i in range(9)],
    "read-only and writable": [_changed(np.full(3, i), LAYOUTS[i % 3]) for i in range(9)],
    "Fortran's order": [np.asfortranarray(np.full((3, 2), i)) for i in range(9)],
    "reversed": [np.arange(i)[::-1] for i in range(9)],
    "several dtypes": [np.full(3, i, PLAIN[i]) for i in range(9)],
    "the other byte order": [np.full(3, i, ">i4") for i in range(9)],
    "one in the other byte order": [np.full(3, i, "<i4" if i else ">i4") for i in range(9)],
    "several ranks": [np.full((2,) * (i % 3), i) for i in range(9)],
    "entries of several shapes": [np.full((2, i), i) for i in range(9)],
    "empty entries": [np.full((i, 0), i) for i in range(9)],
    "all empty": [np.zeros(0) for _ in range(9)],
    "arrays and numbers": [np.full(3, i) if i % 2 else i for i in range(9)],
    "scalars of several types": [np.dtype(PLAIN[i]).type(i) for i in range(9)],
    "several forms": [[np.full(3, i)] if i % 2 else (np.full(3, i),) for i in range(9)],
    "tuples and named tuples": [
        (np.full(3, i), i) if i else Point(np.zeros(3), 0) for i in (1, 2, 0, 3)
    ],
    "tuples of several lengths": [(np.full(3, i),) * (1 + i % 2) for i in range(9)],
    "pickled as another class": [Reduced(np.full(3, i)) for i in range(9)],
    "derived": [Derived(np.full(3, i), i) for i in range(9)],
    "an array in a list, too": [_shared(i) for i in range(9)],
    "several keys": [{str(i % 2): np.full(3, i)} for i in range(9)],
    "keys in another order": [
        dict(sorted({"a": np.full(3, i), "b": i}.items(), reverse=i > 4)) for i in range(9)
    ],
    "keys of several types": [{k: np.full(3, i)} for i, k in enumerate([1, True] * 4)],
    "keys that are equal texts": [
        {k: np.full(3, i)} for i, k in enumerate([*"aaaa", np.str_("a")])
    ],
}


class TestColumns:
    @given(lists_of(structures()))
    def test_elements_arrive_as_by_pickle(self, elements: list[Any]) -> None:
        found, expected = received(elements), by_pickle(elements)
        assert _described(found) == _described(expected)

    @given(lists_of(columns(1)))
    def test_no_element_shares_memory_with_another(self, elements: list[Any]) -> None:
        arrays = arrays_in(received(elements))
        assert not any(np.shares_memory(a, b) for a, b in combinations(arrays, 2))

    @pytest.mark.parametrize("elements", CORNERS.values(), ids=CORNERS)
    def test_corners_arrive_as_by_pickle(self, elements: list[Any]) -> None:
        assert _described(received(elements)) == _described(by_pickle(elements))

    def test_an_element_keeps_no_other_alive(self) -> None:
        for found in (
            received([np.arange(n) for n in range(9)]),
            received([np.ones(3) for _ in "ab" * 9]),
        ):
            assert all(array.base is None for array in found)

    @pytest.mark.parametrize(
        "element",
        [
            lambda i: np.full(i % 3, i),
            lambda i: np.full((2, 2), i, np.float32),
            lambda i: np.float32(i),
            lambda i: (np.full(3, i), i),
            lambda i: {"x": np.full(3, i), "y": {"z": np.int64(i)}},
            lambda i: Point(np.full(i, i), str(i)),
            lambda i: _read_only(np.full(3, i)),
        ],
    )
    def test_small_arrays_are_joined(self, element: Any) -> None:
        elements = [element(i) for i in range(50)]
        assert isinstance(columns_of(elements), _Column | _Structures)
        assert len(pickle.dumps(columns_of(elements))) < 0.9 * len(pickle.dumps(elements))
        assert same(received(elements), elements)

    def test_large_arrays_are_not_joined(self) -> None:
        elements = [np.full(WORTH_SHARING, i, np.uint8) for i in range(FEWEST)]
        assert columns_of(elements) is elements

    def test_an_array_that_occurs_several_times_is_sent_once(self) -> None:
        elements = [np.zeros(100)] * 100
        assert columns_of(elements) is elements

    @pytest.mark.parametrize("element", [_shared, _twice])
    def test_an_array_is_the_same_wherever_it_occurs(self, element: Any) -> None:
        for x in received([element(i) for i in range(9)]):
            first, second = arrays_in(x)
            assert first is second

    def test_an_array_of_several_elements_is_sent_once(self) -> None:
        arrays = [np.full(3, i) for i in range(40)]
        windows = [tuple(arrays[i : i + 4]) for i in range(36)]
        found = received(windows)
        assert len({id(array) for window in found for array in window}) == 39

    def test_attributes_of_derived_classes_arrive(self) -> None:
        elements = [Derived(np.full(3, i), i) for i in range(9)]
        for i, x in enumerate(elements):
            x.source = i  # type: ignore[attr-defined]  # a class without slots
        assert [x.source for x in received(elements)] == list(range(9))

    def test_elements_without_arrays_are_unchanged(self) -> None:
        elements = [(i, str(i)) for i in range(100)]
        assert columns_of(elements) is elements

    def test_dtypes_keep_their_metadata(self) -> None:
        dtype = np.dtype(np.int32, metadata={"unit": "m"})
        elements = [np.zeros(3, dtype) for _ in range(10)]
        assert columns_of(elements) is elements

    def test_joined_arrays_are_made_in_the_memory_for_results(self) -> None:
        made = list[Any]()

        def allocate(shape: Any, dtype: Any) -> Any:
            made.append(np.empty(shape, dtype))
            return made[-1]

        columns = columns_of([np.full(3, i) for i in range(9)], allocate)
        assert isinstance(columns, _Column)
        assert np.shares_memory(columns.values, made[0])
