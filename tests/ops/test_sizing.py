"""take and repeat: against slices and concatenated epochs."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import (
    Endless,
    EndlessFlow,
    Flow,
    InvalidFlow,
    Reordered,
    Resampled,
    UnknownLength,
    Unsized,
)

lengths = st.integers(0, 12)


def passes(flow: Flow[int, Any], n: int) -> list[int]:
    return [x for k in range(n) for x in flow.epoch(k)]


class TestTake:
    @given(lengths, st.integers(0, 15))
    def test_gives_the_first(self, length: int, n: int) -> None:
        flow = fl.from_range(length).take(n)
        assert flow.collect() == list(range(length))[:n]
        assert len(flow) == min(length, n)

    @given(lengths, st.integers(0, 15))
    def test_of_a_stream(self, length: int, n: int) -> None:
        flow = fl.from_iterable(range(length)).filter(lambda i: i % 2 == 1).take(n)
        assert flow.collect() == [i for i in range(length) if i % 2 == 1][:n]
        assert flow.effects == {Unsized}
        assert flow.node.length is None

    def test_reads_no_more(self) -> None:
        stream = iter(range(10))
        assert fl.from_iterable(stream).take(3).collect() == [0, 1, 2]
        assert next(stream) == 3

    def test_keeps_positions(self) -> None:
        flow = fl.from_range(9).filter(lambda i: i > 4).take(2)
        assert list(flow.node.rows(0)) == [(5, 5), (6, 6)]

    def test_ends_an_endless_flow(self) -> None:
        flow = fl.from_range(3).repeat().take(7)
        assert flow.effects == {Resampled}
        assert len(flow) == 7
        assert flow.collect() == [0, 1, 2, 0, 1, 2, 0]
        stream: Flow[int, Any] = fl.from_iterable([1, 2]).repeat().take(5)
        assert stream.effects == {Resampled}
        assert stream.size() == 5

    def test_after_a_shuffle_is_a_sample(self) -> None:
        assert fl.from_range(9).take(3).shuffle().effects == {Reordered}
        assert fl.from_range(9).shuffle().take(3).effects == {Reordered, Resampled}

    @pytest.mark.parametrize("n", [-1, 1.5, True, None])
    def test_refuses(self, n: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).take(n)
        assert str(caught.value) == f"take: n must be an int >= 0, got {n!r}"


class TestRepeat:
    @given(lengths, st.integers(1, 4))
    def test_walks_through_the_epochs(self, length: int, n: int) -> None:
        flow = fl.from_range(length).shuffle()
        assert flow.repeat(n).collect() == passes(flow, n)
        assert len(flow.repeat(n)) == n * length

    @given(lengths, st.integers(1, 4))
    def test_of_a_stream(self, length: int, n: int) -> None:
        flow = fl.from_iterable(range(length)).shuffle(4)
        assert flow.repeat(n).collect() == passes(flow, n)
        assert flow.repeat(n).effects == {Reordered, Resampled, Unsized}

    @given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 3))
    def test_of_a_repeat(self, length: int, n: int, m: int) -> None:
        flow = fl.from_range(length).repeat(n).repeat(m)
        assert flow.collect() == list(range(length)) * n * m

    def test_repeated_passes_share_no_order(self) -> None:
        flow = fl.from_range(30).shuffle().repeat(3)
        inner = [tuple(islice(run, 30)) for k in range(4) for run in [flow.epoch(k)] for _ in "abc"]
        assert len(set(inner)) == 12

    def test_batches_do_not_reach_into_the_next_pass(self) -> None:
        batches = fl.from_range(3).batch(2).repeat(2).collect()
        assert [b.tolist() for b in batches] == [[0, 1], [2], [0, 1], [2]]
        batches = fl.from_range(3).repeat(2).batch(2).collect()
        assert [b.tolist() for b in batches] == [[0, 1], [2, 0], [1, 2]]

    @pytest.mark.parametrize("n", [0, -1, 1.5, True])
    def test_refuses(self, n: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).repeat(n)
        assert str(caught.value) == f"repeat: n must be an int >= 1, got {n!r}"


class TestRepeatForever:
    @given(st.integers(1, 12), st.integers(0, 60))
    def test_walks_through_the_epochs(self, length: int, n: int) -> None:
        flow = fl.from_range(length).shuffle()
        assert list(islice(flow.repeat(), n)) == passes(flow, n // length + 1)[:n]

    def test_of_a_stream(self) -> None:
        flow = fl.from_iterable([1, 2]).shuffle(2)
        assert list(islice(flow.repeat(), 10)) == passes(flow, 5)
        assert flow.repeat().effects == {Reordered, Resampled, Unsized, Endless}

    def test_a_later_epoch_starts_with_a_pass_of_its_own(self) -> None:
        flow = fl.from_range(40).shuffle().repeat()
        first, second = list(islice(flow, 80)), list(islice(flow.epoch(1), 80))
        halves = {tuple(first[:40]), tuple(first[40:]), tuple(second[:40]), tuple(second[40:])}
        assert len(halves) == 4

    def test_of_nothing_is_refused_at_once(self) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(0).repeat()
        assert str(caught.value) == (
            "repeat: its source has no elements, and without n it never ends"
        )

    @pytest.mark.parametrize("procs", [0, 1])
    def test_of_what_turns_out_to_be_nothing_is_an_error(self, procs: int) -> None:
        flow = fl.from_range(3).filter(lambda i: i > 5).repeat().prefetch(procs=procs)
        with pytest.raises(EndlessFlow, match="repeat: pass 0 had no elements"):
            next(iter(flow))

    def test_says_which_pass_was_empty(self) -> None:
        once = iter([[1], []])
        run = iter(fl.from_iterable(lambda: next(once)).repeat())
        assert next(run) == 1
        with pytest.raises(EndlessFlow, match="pass 1 had no elements"):
            next(run)


class TestAskingForALength:
    def test_of_an_endless_flow_raises_at_once(self) -> None:
        flow: Any = fl.from_range(3).repeat()
        message = r"repeat\(\) never ends; put .take\(n\) after it"
        for ask in (list, len, lambda f: f.size()):
            with pytest.raises(EndlessFlow, match=message):
                ask(flow)
        with pytest.raises(EndlessFlow, match=r"collect: repeat\(\) never ends"):
            flow.collect()

    def test_of_a_flow_that_learns_it_at_its_end(self) -> None:
        flow: Any = fl.from_range(3).filter(bool)
        message = r"known only at the end of a pass, since there is filter\(bool\)"
        for ask in (len, lambda f: f.size()):
            with pytest.raises(UnknownLength, match=message):
                ask(flow)
        assert list(flow) == [1, 2]

    @given(lengths)
    def test_that_is_known(self, n: int) -> None:
        flow = fl.from_range(n)
        assert len(flow) == flow.size() == n
        assert bool(flow)  # a flow is no container: an empty one is true as well


@pytest.mark.parametrize("k", [-1, 0.5, True, "1"])
def test_an_epoch_is_a_number(k: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(3).epoch(k)
    assert str(caught.value) == f"epoch: k must be an int >= 0, got {k!r}"


def test_epochs_are_passes_in_turn() -> None:
    flow = fl.from_range(8).shuffle()
    assert [list(run) for run in flow.epochs(3)] == [list(flow.epoch(k)) for k in range(3)]
    with pytest.raises(InvalidFlow, match="epochs: n must be an int >= 0, got -1"):
        flow.epochs(-1)
