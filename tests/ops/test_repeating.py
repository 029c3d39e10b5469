"""repeat, repeat_each, compared with concatenated epochs."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Endless, EndlessFlow, InvalidFlow, Reordered, Resampled, Unsized
from tests.ops.passes import passes, reference, resolved

lengths = st.integers(0, 12)


class TestRepeat:
    @given(lengths, st.integers(1, 4))
    def test_repeat_runs_consecutive_epochs(self, length: int, n: int) -> None:
        flow = fl.from_range(length).shuffle()
        assert flow.repeat(n).collect() == passes(flow, n)
        assert len(flow.repeat(n)) == n * length

    @given(lengths, st.integers(1, 4))
    def test_repeat_of_a_stream(self, length: int, n: int) -> None:
        flow = fl.from_iterable(range(length)).shuffle(4)
        assert flow.repeat(n).collect() == passes(flow, n)
        assert flow.repeat(n).effects == {Reordered, Resampled, Unsized}

    @given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 3))
    def test_repeat_of_a_repeat(self, length: int, n: int, m: int) -> None:
        flow = fl.from_range(length).repeat(n).repeat(m)
        assert flow.collect() == list(range(length)) * n * m

    def test_repeated_passes_have_different_orders(self) -> None:
        flow = fl.from_range(30).shuffle().repeat(3)
        inner = [tuple(islice(run, 30)) for k in range(4) for run in [flow.epoch(k)] for _ in "abc"]
        assert len(set(inner)) == 12

    @pytest.mark.parametrize("epoch", [0, 2])
    def test_repeat_of_an_endless_flow_stays_in_its_first_pass(self, epoch: int) -> None:
        flow = fl.from_range(3).shuffle().repeat().repeat(2)
        expected = [x for _, x in islice(flow.node.reference(epoch), 9)]
        assert list(islice(flow.prefetch(threads=1).epoch(epoch), 9)) == expected

    def test_batches_do_not_reach_into_the_next_pass(self) -> None:
        batches = fl.from_range(3).batch(2).repeat(2).collect()
        assert [b.tolist() for b in batches] == [[0, 1], [2], [0, 1], [2]]
        batches = fl.from_range(3).repeat(2).batch(2).collect()
        assert [b.tolist() for b in batches] == [[0, 1], [2, 0], [1, 2]]

    @pytest.mark.parametrize("n", [-1, 1.5, True, False])
    def test_repeat_refuses_invalid_numbers(self, n: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).repeat(n)
        assert str(caught.value) == f"repeat: n must be an int >= 0, got {n!r}"


class TestRepeatForever:
    @given(st.integers(1, 12), st.integers(0, 60))
    def test_endless_repeat_runs_consecutive_epochs(self, length: int, n: int) -> None:
        flow = fl.from_range(length).shuffle()
        assert list(islice(flow.repeat(), n)) == passes(flow, n // length + 1)[:n]

    def test_endless_repeat_of_a_stream(self) -> None:
        flow = fl.from_iterable([1, 2]).shuffle(2)
        assert list(islice(flow.repeat(), 10)) == passes(flow, 5)
        assert flow.repeat().effects == {Reordered, Resampled, Unsized, Endless}

    def test_a_later_epoch_starts_with_its_own_pass(self) -> None:
        flow = fl.from_range(40).shuffle().repeat()
        first, second = list(islice(flow, 80)), list(islice(flow.epoch(1), 80))
        halves = {tuple(first[:40]), tuple(first[40:]), tuple(second[:40]), tuple(second[40:])}
        assert len(halves) == 4

    def test_endless_repeat_of_an_empty_source_is_refused(self) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(0).repeat()
        assert str(caught.value) == (
            "repeat: its source has no elements, so repeating it without end would never yield "
            "one; write repeat(n), or use a source that has elements"
        )

    @pytest.mark.parametrize("procs", [0, 1])
    def test_endless_repeat_of_empty_passes_is_an_error(self, procs: int) -> None:
        flow = fl.from_range(3).filter(lambda i: i > 5).repeat().prefetch(procs=procs)
        with pytest.raises(EndlessFlow, match="repeat: pass 0 had no elements"):
            next(iter(flow))

    def test_the_error_names_the_empty_pass(self) -> None:
        once = iter([[1], []])
        run = iter(fl.from_iterable(lambda: next(once)).repeat())
        assert next(run) == 1
        with pytest.raises(EndlessFlow, match="pass 1 had no elements"):
            next(run)


class TestRepeatEach:
    @given(lengths, st.integers(1, 4))
    def test_repeat_each_yields_each_element_n_times(self, length: int, n: int) -> None:
        flow = fl.from_range(length).repeat_each(n)
        assert flow.collect() == [i for i in range(length) for _ in range(n)]
        assert len(flow) == n * length
        assert flow.effects == {Resampled}

    @given(lengths, st.integers(1, 4))
    def test_repeat_each_of_a_stream(self, length: int, n: int) -> None:
        flow = fl.from_iterable(range(length)).filter(lambda i: i % 2 == 0).repeat_each(n)
        expected = [i for i in range(0, length, 2) for _ in range(n)]
        assert list(flow.node.reference(0)) == list(enumerate(expected))
        assert flow.collect() == expected
        assert flow.effects == {Unsized, Resampled}
        assert flow.node.length is None

    @given(lengths, st.integers(1, 4))
    def test_repeat_each_resolves_to_the_reference(self, length: int, n: int) -> None:
        flow = fl.from_range(length).shuffle().repeat_each(n)
        assert resolved(flow) == passes(flow, 3) == reference(flow, 3)

    def test_copies_of_repeat_each_share_one_draw(self) -> None:
        flow = fl.from_range(4).random_map(lambda i, rng: rng.random()).repeat_each(3)
        drawn = flow.collect()
        assert drawn[0::3] == drawn[1::3] == drawn[2::3]
        assert len(set(drawn)) == 4

    def test_repeat_each_of_an_endless_flow_is_endless(self) -> None:
        flow = fl.from_range(2).repeat().repeat_each(2)
        assert flow.effects == {Resampled, Endless}
        assert list(islice(flow, 6)) == [0, 0, 1, 1, 0, 0]

    @pytest.mark.parametrize("n", [-1, 1.5, True, False, None])
    def test_repeat_each_refuses_invalid_numbers(self, n: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).repeat_each(n)
        assert str(caught.value) == f"repeat_each: n must be an int >= 0, got {n!r}"
