"""cache: it keeps the first complete pass, and never an incomplete pass."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import islice
from typing import Any, NamedTuple

import attrs
import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import (
    ElementError,
    Flow,
    InvalidFlow,
    Reordered,
    Resampled,
    SourceError,
    Unsized,
)
from flowdsl.ops.caching import Cache
from flowdsl.testing.elements import FORMS, make, same

lengths = st.integers(0, 12)


def counted(length: int) -> tuple[Flow[int, Any], list[int]]:
    """A flow, and the list of elements that were made for it."""
    made: list[int] = []

    def see(i: int) -> int:
        made.append(i)
        return i

    return fl.from_range(length).map(see), made


class TestKeeping:
    @given(lengths)
    def test_cache_makes_each_element_once(self, length: int) -> None:
        source, made = counted(length)
        flow = source.cache()
        assert [list(flow.epoch(k)) for k in (2, 0, 1)] == [list(range(length))] * 3
        assert made == list(range(length))

    @given(st.integers(1, 12), st.data())
    def test_a_pass_ended_early_is_not_cached(self, length: int, data: st.DataObject) -> None:
        source, made = counted(length)
        flow = source.cache()
        seen = data.draw(st.integers(0, length - 1))
        with iter(flow) as run:
            assert list(islice(run, seen)) == list(range(seen))
        assert flow.collect() == list(range(length))
        assert len(made) == seen + length

    def test_a_pass_that_fails_after_its_last_element_is_not_cached(self) -> None:
        """As for one part of a split flow whose other part has a row that fails."""
        part, other = fl.from_range(2).map(lambda i: 1 // (1 - i)).cache().split(0.5, seed=1)
        assert part.take(1).collect() == [1]
        flow = part.cache()
        for _ in range(3):
            with pytest.raises(ElementError, match="element 1"):
                flow.collect()
        with pytest.raises(ElementError, match="element 1"):
            other.collect()

    def test_a_pass_of_unknown_length_is_complete_at_its_end(self) -> None:
        source, made = counted(3)
        flow = source.filter(lambda i: True).cache()
        assert list(islice(flow, 3)) == [0, 1, 2]
        assert flow.collect() == [0, 1, 2]
        assert made == [0, 1, 2] * 2

    def test_a_failed_pass_is_not_cached(self) -> None:
        failures = [OSError("gone")]

        def read(i: int) -> int:
            if i == 2 and failures:
                raise failures.pop()
            return i

        flow = fl.from_range(4).map(read).cache()
        with pytest.raises(ElementError, match=r"map\(.*read\) failed on element 2"):
            flow.collect()
        assert flow.collect() == [0, 1, 2, 3]

    def test_either_of_two_concurrent_passes_may_end_first(self) -> None:
        source, made = counted(3)
        flow = source.cache()
        first, second = iter(flow), iter(flow)
        assert [next(first), next(second), next(second)] == [0, 0, 1]
        assert list(second) == [2]
        third = iter(flow)
        assert next(third) == 0
        assert list(first) == [1, 2]
        assert list(third) == [1, 2]
        assert made.count(2) == 2

    def test_the_first_complete_pass_is_cached(self) -> None:
        names = iter("ab")

        def stream() -> Iterator[str]:
            name = next(names)
            return iter([f"{name}{i}" for i in range(2)])

        flow = fl.from_iterable(stream).cache()
        a, b = iter(flow), iter(flow)
        assert [next(a), next(b)] == ["a0", "b0"]
        assert [list(b), list(a)] == [["b1"], ["a1"]]
        assert flow.collect() == ["b0", "b1"]

    def test_a_cache_is_shared_by_all_chained_flows(self) -> None:
        source, made = counted(4)
        flow = source.cache()
        assert flow.map(lambda i: -i).collect() == [0, -1, -2, -3]
        assert flow.take(2).collect() == [0, 1]
        assert flow.prefetch(procs=0).batch(4).collect()[0].tolist() == [0, 1, 2, 3]
        assert made == [0, 1, 2, 3]

    def test_separate_caches_are_not_shared(self) -> None:
        source, made = counted(2)
        assert source.cache().collect() == source.cache().collect()
        assert made == [0, 1] * 2

    def test_a_cached_live_iterator_can_be_repeated(self) -> None:
        flow = fl.from_iterable(iter([1, 2])).cache()
        assert flow.collect() == flow.collect() == flow.collect() == [1, 2]
        cut = fl.from_iterable(iter([1, 2])).cache()
        assert next(iter(cut)) == 1
        with pytest.raises(SourceError, match="a second one"):
            cut.collect()

    @given(st.integers(1, 9), st.data())
    def test_a_cached_flow_resumes(self, length: int, data: st.DataObject) -> None:
        source, made = counted(length)
        flow = source.cache()
        done = data.draw(st.integers(0, length))
        run = iter(flow)
        assert list(islice(run, done)) == list(range(done))
        assert list(flow.resume(run.state_dict())) == list(range(done, length))
        assert flow.collect() == list(range(length))
        assert len(made) == (length if done == length else done + length)


class TestRandomness:
    def test_random_operators_below_draw_once(self) -> None:
        source = fl.from_range(20).shuffle().random_map(lambda i, rng: i + rng.random())
        flow = source.cache()
        assert [list(run) for run in flow.epochs(3)] == [source.collect()] * 3
        fresh = source.cache()
        assert list(fresh.epoch(2)) == [x for _, x in fresh.node.reference(1)] == source.collect()

    def test_random_operators_above_draw_in_each_epoch(self) -> None:
        flow = fl.from_range(20).cache().shuffle()
        passes = [list(run) for run in flow.epochs(3)]
        assert len(set(map(tuple, passes))) == 3
        assert [sorted(one) for one in passes] == [list(range(20))] * 3
        assert flow.repeat(3).collect() == [x for one in passes for x in one]

    def test_a_pass_is_complete_with_its_last_element(self) -> None:
        made: list[int] = []

        def note(i: int) -> int:
            made.append(i)
            return i

        flow = fl.from_range(3).map(note).cache()
        assert flow.take(3).collect() == flow.fixed_size(3).collect() == [0, 1, 2]
        assert made == [0, 1, 2]

    def test_a_probe_does_not_fill_the_cache(self) -> None:
        order = fl.from_range(3).shuffle(4).shuffle(seed=1).collect()
        flow = fl.from_range(3).shuffle(4).shuffle(seed=1).cache()
        above = flow.batch(4).map(lambda batch: batch.tolist())
        assert order != [0, 1, 2]
        assert (
            str(above.spec) == "list[int]"
        )  # settled by an element, made of all rows in another order
        assert flow.collect() == order


class TestPromises:
    @given(lengths)
    def test_cache_keeps_positions(self, length: int) -> None:
        source = fl.from_range(length).filter(lambda i: i % 3 > 0)
        flow = source.cache()
        assert (
            list(flow.node.reference(0))
            == list(flow.node.reference(1))
            == list(source.node.reference(0))
        )
        assert not flow.node.positions_are_contiguous
        assert fl.from_range(length).cache().node.positions_are_contiguous

    def test_cache_keeps_length_effects_and_spec(self) -> None:
        assert len(fl.from_range(3).cache()) == 3
        assert str(fl.from_range(3).cache().spec) == "int"
        assert fl.from_range(3).cache().effects == frozenset()
        assert fl.from_range(3).shuffle().repeat(2).cache().effects == {Reordered, Resampled}
        assert fl.from_iterable([1]).cache().effects == {Unsized}
        assert fl.from_iterable([1]).cache().node.length is None

    def test_errors_name_the_row_of_epoch_0(self) -> None:
        node = fl.from_range(9).shuffle().node
        cached = Cache[Any, Any](node)
        assert [cached.origin(3, i) for i in range(9)] == [node.origin(0, i) for i in range(9)]

    @pytest.mark.parametrize(
        ("read", "expected"),
        [
            (lambda rows: [rows.at(5)], [25]),
            (lambda rows: rows[10:13], [100, 121, 144]),
            (lambda rows: rows[-1:], [99 * 99]),
            (lambda rows: rows[::-50], [99 * 99, 49 * 49]),
            (lambda rows: rows[[3, 0]], [9, 0]),
            (lambda rows: sorted(rows.shuffle(seed=1).take(100)), [i * i for i in range(100)]),
            (lambda rows: [int(x**0.5) ** 2 - x for x in rows.sample(3, seed=1)], [0, 0, 0]),
            (lambda rows: rows.shard(2, 1).take(2), [1, 9]),
        ],
    )
    def test_rows_of_a_full_cache_are_read_by_number_and_not_computed_again(
        self, read: Callable[[Any], Iterable[int]], expected: list[int]
    ) -> None:
        computed = list[int]()

        def square(i: int) -> int:
            computed.append(i)
            return i * i

        rows = fl.from_range(100).map(square).cache()
        rows.collect()
        computed.clear()
        assert list(read(rows)) == expected
        assert computed == []

    def test_caches_over_equal_sources_compare_equal(self) -> None:
        flow = fl.from_range(3)
        one, other = flow.cache().node, flow.cache().node
        assert flow.cache().collect() == [0, 1, 2]
        assert one == other
        assert hash(one) == hash(other)
        assert repr(one) == "<Cache cache()>"

    def test_a_cache_is_sent_to_processes_empty(self) -> None:
        source, made = counted(2)
        flow = source.cache()
        assert flow.collect() == [0, 1]
        there = cloudpickle.loads(cloudpickle.dumps(flow.node))
        assert there.kept.rows is None
        assert [x for _, x in there.reference(0)] == [0, 1]
        assert made == [0, 1]
        plain = fl.from_range(2).cache()
        assert plain.collect() == [0, 1]
        assert pickle.loads(pickle.dumps(plain.node)).kept.rows is None

    def test_cache_refuses_an_endless_flow(self) -> None:
        endless: Any = fl.from_range(3).repeat()
        with pytest.raises(InvalidFlow) as caught:
            endless.cache()
        assert str(caught.value) == (
            "cache: its source never ends, so its first pass is never complete; put cache() "
            "before the repeat, or take(n) before cache()"
        )


class Mark(NamedTuple):
    at: NDArray[np.float64]
    name: str


@attrs.frozen
class Open:
    number: int
    at: NDArray[np.float64]


@attrs.frozen
class Sealed:
    at: NDArray[np.float64]
    total: float = attrs.field(init=False, default=0.0)


def kept(element: Any) -> Any:
    """The element that a cache yields, which is the same in every pass."""
    flow: Flow[Any, Any] = fl.from_iterable(lambda: [element]).cache()
    (first,), (again,) = flow.collect(), flow.collect()
    assert same(again, first)
    return first


class TestMemory:
    """A cached array keeps only its own memory alive: a row of a batch would keep the batch."""

    @pytest.mark.parametrize("form", FORMS)
    def test_cached_elements_keep_structure_and_values(self, form: str) -> None:
        element = make(form, 3)
        assert same(kept(element), element)

    def test_views_are_copied_at_any_depth(self) -> None:
        whole = np.arange(12.0).reshape(4, 3)
        row = whole[1]
        cases: list[tuple[Any, Callable[[Any], Any]]] = [
            (row, lambda x: x),
            ((1, row), lambda x: x[1]),
            (Mark(row, "a"), lambda x: x.at),
            ({"at": row}, lambda x: x["at"]),
            ([1, (row, "a")], lambda x: x[1][0]),
            (Open(3, row), lambda x: x.at),
        ]
        for element, find in cases:
            copy = kept(element)
            array = find(copy)
            assert type(copy) is type(element)
            assert array.base.flags.owndata
            assert array.tolist() == row.tolist()
            assert not np.shares_memory(array, whole)

    def test_copies_keep_memory_order_and_dtype(self) -> None:
        view = np.arange(24, dtype=">i4").reshape(2, 3, 4).transpose(2, 0, 1)
        copy = kept(view)
        assert copy.dtype == view.dtype
        assert np.array_equal(copy, view)
        assert copy.strides == view.copy(order="K").strides

    def test_other_values_are_not_copied(self) -> None:
        own = np.arange(3.0)
        assert np.shares_memory(kept(own), own)
        assert np.shares_memory(kept({"at": own})["at"], own)
        for element in ("text", None, 3, Decimal(1)):
            assert kept(element) is element

    def test_records_are_copied_without_their_constructor(self) -> None:
        sealed = kept(Sealed(np.arange(4.0)[1:]))
        assert (sealed.at.tolist(), sealed.total) == ([1.0, 2.0, 3.0], 0.0)
        named = OrderedDict(at=np.arange(4.0)[1:], by="a")
        assert type(kept(named)) is OrderedDict
        assert list(kept(named)) == ["at", "by"]

    @pytest.mark.parametrize("procs", [0, 1])
    def test_cached_arrays_are_read_only(self, procs: int) -> None:
        rows = [np.full(2, float(i)) for i in range(4)]
        flow = fl.from_items(rows).batch(2).map(lambda b: {"x": [b]}).prefetch(procs).cache()
        for run in flow.epochs(2):
            for element in run:
                with pytest.raises(ValueError, match="read-only"):
                    element["x"][0] /= 2
        rows[0] /= 2  # changes of the source's own array must not reach the cache
        assert rows[0].flags.writeable


class TestWorkers:
    """With large arrays, which workers return in shared memory."""

    @pytest.mark.usefixtures("mortals")
    def test_workers_below_and_above_a_cache(self) -> None:
        rows = fl.from_range(12).map(_image)
        expected = [_image(i) + 1 for i in range(12)]
        below = rows.prefetch(procs=2).cache()
        above = rows.cache().map(_brighter).prefetch(procs=2)
        both = below.map(_brighter).prefetch(procs=2)
        for flow in (above, both):
            for run in flow.epochs(2):
                assert all(map(np.array_equal, run, expected))
        assert all(row.base is not None and row.base.flags.owndata for row in below)
        assert len(below.collect()) == 12

    def test_a_shuffle_above_a_cache_of_worker_results(self) -> None:
        flow = fl.from_range(12).map(_image).prefetch(procs=2).cache().shuffle().batch(5)
        first, second = ([int(x) for b in run for x in b[:, 0]] for run in flow.epochs(2))
        assert sorted(first) == sorted(second) == list(range(12))
        assert first != second


def _image(i: int) -> NDArray[np.int64]:
    return np.full(20_000, i)


def _brighter(image: NDArray[np.int64]) -> NDArray[np.int64]:
    return image + 1
