"""shuffle: a permutation of all elements, or within a window."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import InvalidFlow, Reordered, Resampled, Unsized
from flowdsl.nodes import Indices, generator

lengths = st.integers(0, 60)
seeds = st.integers(0, 2**70)


class TestGlobal:
    @given(lengths, seeds, st.integers(0, 5))
    def test_shuffle_is_a_permutation(self, n: int, seed: int, epoch: int) -> None:
        flow = fl.from_range(n).shuffle(seed=seed)
        assert sorted(flow.epoch(epoch)) == list(range(n))
        assert len(flow) == n
        assert flow.effects == {Reordered}

    @given(st.integers(0, 30), seeds)
    def test_the_permutation_does_not_depend_on_the_source(self, n: int, seed: int) -> None:
        order = fl.from_range(n).shuffle(seed=seed).collect()
        letters = [f"row {i}" for i in range(n)]
        assert fl.from_items(letters).shuffle(seed=seed).collect() == [letters[i] for i in order]
        assert list(fl.from_range(n).shuffle(seed=seed).node.reference(0)) == list(enumerate(order))

    @given(st.integers(1, 30), st.integers(1, 7))
    def test_a_flow_that_is_not_indexable_is_collected(self, n: int, buffer: int) -> None:
        windowed = fl.from_range(n).shuffle(buffer)
        assert sorted(windowed.shuffle().collect()) == list(range(n))

    def test_orders_differ_between_epochs_seeds_and_operators(self) -> None:
        flow = fl.from_range(40)
        orders = [
            tuple(shuffled.epoch(k))
            for shuffled in (flow.shuffle(), flow.shuffle(seed=1), flow.map(int).shuffle())
            for k in range(4)
        ]
        assert len(set(orders)) == 12
        twice = flow.shuffle().shuffle().collect()
        assert twice != list(range(40))
        assert tuple(twice) not in orders

    def test_the_order_is_the_same_in_the_same_epoch(self) -> None:
        flow = fl.from_range(40).shuffle(seed=3)
        assert all(list(flow.epoch(k)) == list(flow.epoch(k)) for k in range(3))

    def test_the_order_is_the_same_in_every_release(self) -> None:
        flow = fl.from_range(8).shuffle(seed=7)
        assert [flow.collect(), list(flow.epoch(1))] == GOLDEN
        large = fl.from_range(5000).shuffle(seed=7).take(8)
        assert [large.collect(), list(large.epoch(1))] == GOLDEN_LARGE

    def test_shuffle_reads_only_requested_rows(self) -> None:
        seen: list[int] = []
        flow = fl.from_range(10**9).shuffle().map(lambda i: seen.append(i) or i)  # type: ignore[func-returns-value]  # None or i
        assert len(list(islice(flow, 3))) == 3
        assert len(seen) <= 3

    def test_errors_name_the_moved_row(self) -> None:
        node = fl.from_range(9).shuffle().node
        assert [node.origin(1, i) for i in range(9)] == [
            f"row {x} of from_range(9)" for _, x in node.reference(1)
        ]

    def test_shuffle_without_a_buffer_needs_a_length(self) -> None:
        stream: Any = fl.from_iterable([1])
        with pytest.raises(InvalidFlow) as caught:
            stream.shuffle()
        assert str(caught.value) == (
            "shuffle: from_iterable(list) has no known length, and a shuffle of all elements needs "
            "to know how many there are. Write shuffle(buffer=n) to shuffle within a window of n "
            "elements; or if they fit in memory, collect them first: "
            "fl.from_items(flow.collect()).shuffle()"
        )
        with pytest.raises(InvalidFlow, match=r"repeat\(\) never ends, .*; or put take"):
            stream.repeat().shuffle()

    def test_the_advice_in_the_error_works(self) -> None:
        flow: Any = fl.from_range(9).filter(lambda i: i != 4)
        with pytest.raises(InvalidFlow) as caught:
            flow.cache().shuffle()
        (typed,) = re.findall(r"fl\.from_items.*shuffle\(\)", str(caught.value))
        assert sorted(eval(typed, {"fl": fl, "flow": flow})) == sorted(flow)
        (typed,) = re.findall(r"Write (shuffle\(.*?\))", str(caught.value))
        assert sorted(eval(f"flow.{typed}", {"flow": flow, "n": 4})) == sorted(flow)
        endless: Any = fl.from_range(3).repeat()
        assert sorted(endless.take(7).shuffle()) == [0, 0, 0, 1, 1, 2, 2]


GOLDEN = [[2, 7, 1, 5, 0, 4, 6, 3], [5, 1, 6, 4, 0, 3, 2, 7]]
GOLDEN_LARGE = [
    [2416, 51, 4497, 3383, 1094, 3558, 3237, 2814],
    [4745, 646, 1236, 4983, 2880, 1093, 1344, 279],
]


class TestBlocks:
    @given(lengths, st.integers(1, 70), seeds, st.integers(0, 3))
    def test_block_shuffle_keeps_neighbours_within_blocks(
        self, n: int, block: int, seed: int, epoch: int
    ) -> None:
        out = list(fl.from_range(n).shuffle(seed=seed, block=block).epoch(epoch))
        assert sorted(out) == list(range(n))
        for i in range(n - 1):
            if (i + 1) % block:
                assert out[i + 1] == (out[i] + 1) % n

    @given(lengths, st.integers(1, 9), seeds)
    def test_any_element_is_found_by_its_position(self, n: int, block: int, seed: int) -> None:
        flow = fl.from_range(n).shuffle(seed=seed, block=block)
        out = flow.collect()
        for i in (0, n // 2, n - 1):
            assert flow.skip(max(i, 0)).take(1).collect() == out[max(i, 0) :][:1]

    def test_a_block_of_one_is_a_shuffle_of_elements(self) -> None:
        flow = fl.from_range(40)
        assert flow.shuffle(seed=3, block=1).collect() == flow.shuffle(seed=3).collect()

    def test_block_orders_differ_between_epochs_and_seeds(self) -> None:
        flow = fl.from_range(2000)
        orders = [
            tuple(flow.shuffle(seed=seed, block=50).epoch(k)) for seed in (0, 1) for k in range(3)
        ]
        assert len(set(orders)) == 6
        assert len({order[0] % 50 for order in orders}) > 1

    def test_block_shuffle_resolves_only_requested_positions(self) -> None:
        node: Any = fl.from_range(10**12).shuffle(block=1000).node
        at = Indices(np.zeros(3, np.int64), np.array([5_000, 5_001, 10**12 - 1]))
        first, second, _ = node.resolve(at).position.tolist()
        assert second == (first + 1) % 10**12

    def test_invalid_blocks_are_refused(self) -> None:
        flow: Any = fl.from_range(9)
        with pytest.raises(InvalidFlow, match="block must be an int >= 1, got 0"):
            flow.shuffle(block=0)
        with pytest.raises(InvalidFlow, match="buffer=4 and block=3 exclude each other"):
            flow.shuffle(4, block=3)


class TestWindow:
    @given(
        st.sampled_from([0, 1, 5, 63, 64, 65, 130, 300]), st.sampled_from([1, 2, 3, 64, 65, 200])
    )
    def test_the_order_is_that_of_one_draw_after_another(self, n: int, buffer: int) -> None:
        """Draws are made in blocks, which must not show at the end of a pass either."""
        flow = fl.from_range(n).shuffle(buffer, seed=3)
        rng, window, expected = generator(3, 1, 0, 0), list[int](), list[int]()
        for i in [*range(n), *[-1] * buffer]:
            window += [i] if i >= 0 else []
            if len(window) == buffer or (i < 0 and window):
                k = int(rng.integers(len(window)))
                window[k], window[-1] = window[-1], window[k]
                expected.append(window.pop())
        assert flow.collect() == expected

    @given(
        st.sampled_from([0, 1, 60, 64, 65, 300]),
        st.sampled_from([1, 2, 3, 63, 64, 65, 66, 200]),
        st.integers(0, 3),
        st.data(),
    )
    def test_a_pass_that_is_resumed_twice_goes_on(
        self, n: int, buffer: int, epoch: int, data: st.DataObject
    ) -> None:
        rows = fl.from_range(n).flat_map(lambda i: [i] * (i % 3))
        flow = rows.shuffle(buffer, seed=1).flat_map(lambda i: [i, -i])
        whole = list(flow.epoch(epoch))
        first = data.draw(st.integers(0, len(whole)))
        second = data.draw(st.integers(first, len(whole)))
        run = flow.epoch(epoch)
        assert list(islice(run, first)) == whole[:first]
        run = flow.resume(json.loads(json.dumps(run.state_dict())))
        assert list(islice(run, second - first)) == whole[first:second]
        assert list(flow.resume(run.state_dict())) == whole[second:]

    def test_a_buffer_larger_than_any_memory_holds_the_elements_that_there_are(self) -> None:
        flow = fl.from_range(100).shuffle(buffer=10**15)
        run, whole = iter(flow), flow.collect()
        assert sorted(whole) == list(range(100))
        assert list(islice(run, 40)) == whole[:40]
        assert list(flow.resume(run.state_dict())) == whole[40:]

    def test_a_resume_over_a_source_that_became_shorter_invents_no_element(self) -> None:
        rows = list(range(1000))
        flow = fl.from_iterable(lambda: rows).shuffle(buffer=200)
        run = iter(flow)
        for _ in range(700):
            next(run)
        state = run.state_dict()
        del rows[750:]
        assert set(flow.resume(state)) <= set(rows)

    @pytest.mark.parametrize("place", [0, 5, 1000, 19_000, 19_999])
    def test_a_resume_reads_no_more_than_since_the_oldest_element(self, place: int) -> None:
        read = list[int]()

        def note(i: int) -> int:
            read.append(i)
            return i

        flow = fl.from_range(20_000).map(note).shuffle(buffer=100, seed=1)
        whole, run = flow.collect(), iter(flow)
        assert list(islice(run, place)) == whole[:place]
        state = run.state_dict()
        run.close()
        read.clear()
        assert next(iter(flow.resume(state))) == whole[place]
        assert len(read) < 2000

    @given(lengths, st.integers(1, 12), seeds)
    def test_an_element_comes_out_at_most_a_window_early(
        self, n: int, buffer: int, seed: int
    ) -> None:
        out = fl.from_iterable(range(n)).shuffle(buffer, seed=seed).collect()
        assert sorted(out) == list(range(n))
        assert all(i - place <= buffer - 1 for place, i in enumerate(out))

    @given(lengths, seeds)
    def test_a_window_of_one_keeps_the_order(self, n: int, seed: int) -> None:
        assert fl.from_range(n).shuffle(1, seed=seed).collect() == list(range(n))

    def test_every_element_of_the_window_is_equally_likely(self) -> None:
        first = Counter(next(iter(fl.from_range(9).shuffle(4, seed=seed))) for seed in range(2000))
        assert sorted(first) == [0, 1, 2, 3]
        chi_square = sum((seen - 500) ** 2 / 500 for seen in first.values())
        assert chi_square < 16.3  # 3 degrees of freedom: one in a thousand is larger

    def test_all_orders_within_the_window_are_equally_likely(self) -> None:
        orders = Counter(
            tuple(fl.from_range(3).shuffle(5, seed=seed).collect()) for seed in range(1200)
        )
        assert len(orders) == 6
        assert sum((seen - 200) ** 2 / 200 for seen in orders.values()) < 20.5

    def test_window_shuffle_reads_only_a_window_ahead(self) -> None:
        stream = iter(range(100))
        next(iter(fl.from_iterable(stream).shuffle(5)))
        assert next(stream) == 5

    def test_window_orders_differ_between_epochs_seeds_and_operators(self) -> None:
        flow = fl.from_range(40)
        orders = [
            tuple(shuffled.epoch(k))
            for shuffled in (flow.shuffle(9), flow.shuffle(9, seed=1), flow.map(int).shuffle(9))
            for k in range(4)
        ]
        assert len(set(orders)) == 12
        again = flow.shuffle(9)
        assert all(list(again.epoch(k)) == list(orders[k]) for k in range(4))

    def test_window_shuffle_keeps_length_and_spec(self) -> None:
        flow = fl.from_range(40).shuffle(9)
        assert len(flow) == 40
        assert str(flow.spec) == "int"
        assert flow.effects == {Reordered}
        assert [i for i, _ in flow.node.reference(0)] == list(range(40))
        assert fl.from_iterable([1]).shuffle(9).effects == {Reordered, Unsized}
        assert fl.from_range(9).shuffle(3).take(2).effects == {Reordered, Resampled}


class TestWithoutReshuffling:
    @pytest.mark.parametrize("buffer", [None, 4])
    def test_every_epoch_has_the_order_of_epoch_0(self, buffer: Any) -> None:
        flow = fl.from_range(50).shuffle(buffer, seed=1, reshuffle=False)
        assert list(flow.epoch(7)) == list(flow) == list(fl.from_range(50).shuffle(buffer, seed=1))
        assert flow.repeat(2).collect() == list(flow) * 2
        assert not flow.node.varies_by_epoch
        assert flow.effects == {Reordered}

    def test_blocks_keep_their_order_too(self) -> None:
        flow = fl.from_range(50).shuffle(seed=1, block=7, reshuffle=False)
        assert list(flow.epoch(7)) == list(flow)

    def test_draws_below_differ_between_epochs(self) -> None:
        noisy = fl.from_range(9).random_map(lambda i, rng: float(rng.random()))
        flow = noisy.shuffle(reshuffle=False)
        assert list(flow.epoch(1)) != list(flow)
        assert flow.node.varies_by_epoch

    def test_a_part_is_the_same_in_every_epoch(self) -> None:
        flow = fl.from_range(50).shuffle(reshuffle=False).take(9)
        assert list(flow.epoch(1)) == list(flow)
        assert "other rows in every epoch" not in flow.explain()

    def test_another_value_is_refused(self) -> None:
        flow: Any = fl.from_range(9)
        with pytest.raises(InvalidFlow, match=r"^shuffle: reshuffle must be True or False, got 0"):
            flow.shuffle(reshuffle=0)
        with pytest.raises(InvalidFlow, match="; write reshuffle=False"):
            flow.shuffle(4, reshuffle_each_iteration=False)


@pytest.mark.parametrize("buffer", [0, -1, 1.5, True])
def test_shuffle_refuses_an_invalid_buffer(buffer: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(3).shuffle(buffer=buffer)
    assert str(caught.value) == f"shuffle: buffer must be an int >= 1, got {buffer!r}"


@pytest.mark.parametrize("buffer", [None, 3])
@pytest.mark.parametrize("seed", [-1, 0.5, None])
def test_shuffle_refuses_an_invalid_seed(buffer: Any, seed: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(3).shuffle(buffer, seed=seed)
    assert str(caught.value) == f"shuffle: seed must be an int >= 0, got {seed!r}"
