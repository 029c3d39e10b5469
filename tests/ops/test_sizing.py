"""take and skip, compared with slices; and the length of a flow."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import (
    ElementError,
    Endless,
    EndlessFlow,
    Flow,
    InvalidFlow,
    Reordered,
    Resampled,
    UnknownLength,
    Unsized,
)
from tests.ops.passes import passes, reference, resolved

lengths = st.integers(0, 12)


class TestTake:
    @given(lengths, st.integers(0, 15))
    def test_take_yields_the_first_elements(self, length: int, n: int) -> None:
        flow = fl.from_range(length).take(n)
        assert flow.collect() == list(range(length))[:n]
        assert len(flow) == min(length, n)

    @given(lengths, st.integers(0, 15))
    def test_take_of_a_stream(self, length: int, n: int) -> None:
        flow = fl.from_iterable(range(length)).filter(lambda i: i % 2 == 1).take(n)
        assert flow.collect() == [i for i in range(length) if i % 2 == 1][:n]
        assert flow.effects == {Unsized}
        assert flow.node.length is None

    def test_take_reads_only_n_elements(self) -> None:
        stream = iter(range(10))
        assert fl.from_iterable(stream).take(3).collect() == [0, 1, 2]
        assert next(stream) == 3

    def test_take_keeps_positions(self) -> None:
        flow = fl.from_range(9).filter(lambda i: i > 4).take(2)
        assert list(flow.node.reference(0)) == [(5, 5), (6, 6)]

    def test_take_ends_an_endless_flow(self) -> None:
        flow = fl.from_range(3).repeat().take(7)
        assert flow.effects == {Resampled}
        assert len(flow) == 7
        assert flow.collect() == [0, 1, 2, 0, 1, 2, 0]
        stream: Flow[int, Any] = fl.from_iterable([1, 2]).repeat().take(5)
        assert stream.effects == {Resampled}
        assert stream.size() == 5

    def test_take_after_a_shuffle_resamples(self) -> None:
        assert fl.from_range(9).take(3).shuffle().effects == {Reordered}
        assert fl.from_range(9).shuffle().take(3).effects == {Reordered, Resampled}

    @pytest.mark.parametrize("n", [-1, 1.5, True, None])
    def test_take_refuses_invalid_numbers(self, n: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).take(n)
        assert str(caught.value) == f"take: n must be an int >= 0, got {n!r}"


class TestSkip:
    @given(lengths, st.integers(0, 15))
    def test_skip_yields_the_rest(self, length: int, n: int) -> None:
        flow = fl.from_range(length).skip(n)
        assert flow.collect() == list(range(length))[n:]
        assert len(flow) == max(0, length - n)
        assert flow.effects == frozenset()

    @given(lengths, st.integers(0, 15))
    def test_skip_of_a_stream(self, length: int, n: int) -> None:
        flow = fl.from_iterable(range(length)).filter(lambda i: i % 2 == 1).skip(n)
        assert flow.collect() == [i for i in range(length) if i % 2 == 1][n:]
        assert flow.effects == {Unsized}
        assert flow.node.length is None

    @given(lengths, st.integers(0, 15))
    def test_skip_resolves_to_the_reference(self, length: int, n: int) -> None:
        flow = fl.from_range(length).shuffle().skip(n)
        assert resolved(flow) == passes(flow, 3) == reference(flow, 3)

    @given(lengths, st.integers(0, 15))
    def test_take_and_skip_together_yield_all_elements(self, length: int, n: int) -> None:
        flow = fl.from_range(length)
        assert flow.take(n).collect() + flow.skip(n).collect() == flow.collect()

    @given(st.integers(0, 9), st.integers(0, 9))
    def test_two_skips_add_up(self, n: int, m: int) -> None:
        flow = fl.from_range(12)
        assert flow.skip(n).skip(m).collect() == flow.skip(n + m).collect()

    def test_skip_renumbers_positions(self) -> None:
        flow = fl.from_range(9).filter(lambda i: i > 4).skip(2)
        assert list(flow.node.reference(0)) == [(0, 7), (1, 8)]
        assert flow.node.positions_are_contiguous

    def test_skip_of_an_endless_flow_is_endless(self) -> None:
        flow = fl.from_range(3).repeat().skip(2)
        assert flow.effects == {Resampled, Endless}
        assert flow.node.length is None
        assert list(islice(flow, 4)) == [2, 0, 1, 2]

    def test_skip_over_random_access_reads_no_skipped_rows(self) -> None:
        seen: list[int] = []
        flow = fl.from_range(10**12).map(lambda i: seen.append(i) or i).skip(10**12 - 2)  # type: ignore[func-returns-value]  # None or i
        assert flow.collect() == seen == [10**12 - 2, 10**12 - 1]

    def test_skip_after_a_shuffle_resamples(self) -> None:
        assert fl.from_range(9).skip(3).shuffle().effects == {Reordered}
        assert fl.from_range(9).shuffle().skip(3).effects == {Reordered, Resampled}
        assert fl.from_range(9).shuffle(4).skip(3).effects == {Reordered, Resampled}

    def test_errors_after_a_skip_name_the_row(self) -> None:
        with pytest.raises(ElementError, match=r"element 1 \(row 4 of from_range\(5\)\)"):
            fl.from_range(5).skip(3).map(lambda i: 1 // (i - 4)).collect()

    @pytest.mark.parametrize("n", [-1, 1.5, True, None])
    def test_skip_refuses_invalid_numbers(self, n: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).skip(n)
        assert str(caught.value) == f"skip: n must be an int >= 0, got {n!r}"


class TestLength:
    def test_the_length_of_an_endless_flow_is_an_error(self) -> None:
        flow: Any = fl.from_range(3).repeat()
        message = r"repeat\(\) never ends; put .take\(n\) after it"
        for ask in (list, len, lambda f: f.size()):
            with pytest.raises(EndlessFlow, match=message):
                ask(flow)
        with pytest.raises(EndlessFlow, match=r"collect: repeat\(\) never ends"):
            flow.collect()

    def test_the_length_of_an_unsized_flow_is_an_error(self) -> None:
        flow: Any = fl.from_range(3).filter(bool)
        message = r"known only at the end of a pass, because of filter\(bool\)"
        for ask in (len, lambda f: f.size()):
            with pytest.raises(UnknownLength, match=message):
                ask(flow)
        assert list(flow) == [1, 2]

    @given(lengths)
    def test_known_lengths_are_returned(self, n: int) -> None:
        flow = fl.from_range(n)
        assert len(flow) == flow.size() == n
        assert bool(flow)  # a flow is not a container: an empty flow is true as well


@pytest.mark.parametrize("k", [-1, 0.5, True, "1"])
def test_invalid_epochs_are_refused(k: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(3).epoch(k)
    assert str(caught.value) == f"epoch: k must be an int >= 0 and below 2**62, got {k!r}"


def test_epochs_yields_consecutive_passes() -> None:
    flow = fl.from_range(8).shuffle()
    assert [list(run) for run in flow.epochs(3)] == [list(flow.epoch(k)) for k in range(3)]
    with pytest.raises(InvalidFlow, match="epochs: n must be an int >= 0, got -1"):
        flow.epochs(-1)


@pytest.mark.parametrize("done", [0, 1, 2])
def test_a_state_above_take_and_a_smaller_last_batch(done: int) -> None:
    flow = fl.from_range(10).prefetch(threads=1).batch(2).take(3).batch(2)
    run, whole = flow.epoch(0), [x.tolist() for x in flow]
    for _ in range(done):
        next(run)
    assert [x.tolist() for x in flow.resume(run.state_dict())] == whole[done:]
    ended = flow.epoch(0)
    assert len(list(ended)) == 2
    assert list(flow.resume(ended.state_dict())) == []
