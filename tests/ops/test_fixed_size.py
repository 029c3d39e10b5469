"""fixed_size: against a window that moves over the passes of the source."""

from __future__ import annotations

from itertools import count, islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Endless, EndlessFlow, Flow, InvalidFlow, Reordered, Resampled, Unsized
from flowdsl.nodes import Indices
from flowdsl.ops.sizing import FixedSize

lengths = st.integers(1, 7)
sizes = st.integers(0, 16)


def endless(flow: Flow[int, Any]) -> Any:
    """The elements of all its epochs in turn."""
    return (x for k in count() for x in flow.epoch(k))


def sources(length: int) -> list[Flow[int, Any]]:
    """Flows that differ between epochs: over numbered rows, of known and of unknown length."""
    flow = fl.from_range(length)
    return [flow.shuffle(), flow.shuffle(3), fl.from_iterable(range(length)).shuffle(3)]


class TestKeepingState:
    def test_example_of_the_source_document(self) -> None:
        flow = fl.from_items([1, 2, 3, 4, 5]).fixed_size(3, True)
        assert [list(run) for run in flow.epochs(3)] == [[1, 2, 3], [4, 5, 1], [2, 3, 4]]

    @pytest.mark.parametrize("kind", range(3))
    @given(length=lengths, n=sizes, epoch=st.integers(0, 5))
    def test_every_pass_continues_the_one_before(
        self, kind: int, length: int, n: int, epoch: int
    ) -> None:
        source = sources(length)[kind]
        expected = list(islice(endless(source), epoch * n, epoch * n + n))
        flow = source.fixed_size(n)
        assert list(flow.epoch(epoch)) == expected
        assert list(flow.node.reference(epoch)) == list(enumerate(expected))

    @given(lengths, sizes, st.integers(0, 5))
    def test_of_an_endless_flow_walks_on_in_it(self, length: int, n: int, epoch: int) -> None:
        source = fl.from_range(length).shuffle().repeat()
        expected = list(islice(source, epoch * n, epoch * n + n))
        assert list(source.fixed_size(n).epoch(epoch)) == expected
        assert [x for _, x in source.fixed_size(n).node.reference(epoch)] == expected

    @given(lengths, st.integers(1, 9), st.integers(2, 3))
    def test_repeated_is_the_repeated_source(self, length: int, n: int, m: int) -> None:
        source = fl.from_range(length).shuffle()
        expected = list(islice(endless(source), n * m))
        assert source.fixed_size(n).repeat(m).collect() == expected
        assert list(islice(source.fixed_size(n).repeat(), n * m)) == expected

    def test_of_a_stream_reads_no_further(self) -> None:
        stream = iter(range(10))
        assert fl.from_iterable(stream).fixed_size(3).collect() == [0, 1, 2]
        assert next(stream) == 3

    def test_of_numbered_rows_reads_nothing_of_what_came_before(self) -> None:
        seen: list[int] = []
        source = fl.from_range(10**9).map(lambda i: seen.append(i) or i)  # type: ignore[func-returns-value]  # None or i
        flow = source.fixed_size(10**6).take(2)
        assert list(flow.epoch(2500)) == seen == [500_000_000, 500_000_001]


class TestNotKeepingState:
    @pytest.mark.parametrize(
        ("n", "expected"), [(3, [1, 2, 3]), (6, [1, 2, 3, 4, 5, 1])], ids=["fewer", "more"]
    )
    def test_examples_of_the_source_document(self, n: int, expected: list[int]) -> None:
        flow = fl.from_items([1, 2, 3, 4, 5]).fixed_size(n, keep_state=False)
        assert [list(run) for run in flow.epochs(3)] == [expected] * 3

    @pytest.mark.parametrize("kind", range(3))
    @given(length=lengths, n=sizes, epoch=st.integers(0, 4))
    def test_every_pass_is_a_repetition_cut_short(
        self, kind: int, length: int, n: int, epoch: int
    ) -> None:
        source = sources(length)[kind]
        expected = list(islice(source.repeat().epoch(epoch), n))
        flow = source.fixed_size(n, keep_state=False)
        assert list(flow.epoch(epoch)) == expected
        assert list(flow.node.reference(epoch)) == list(enumerate(expected))

    def test_of_an_endless_flow_begins_anew(self) -> None:
        source = fl.from_range(3).repeat()
        flow = source.fixed_size(4, keep_state=False)
        assert [list(run) for run in flow.epochs(2)] == [[0, 1, 2, 0]] * 2


class TestHugeEpochs:
    """Those that an outer repeat draws: they follow no other, and must not overflow."""

    @pytest.mark.parametrize("keep_state", [True, False])
    @pytest.mark.parametrize("kind", range(3))
    def test_begin_with_a_pass_of_their_own(self, kind: int, keep_state: bool) -> None:
        flow = sources(5)[kind].fixed_size(12, keep_state)
        for epoch in (2**40, 2**61 + 12345, 2**62 - 1):
            got = [x for _, x in flow.node.reference(epoch)]
            assert sorted(got[:5]) == sorted(got[5:10]) == list(range(5))
            assert list(flow.epoch(epoch)) == got

    def test_of_an_endless_flow_begin_at_its_start(self) -> None:
        flow = fl.from_range(5).repeat().shard(4, 1).fixed_size(3)
        assert list(flow.epoch(2**62 - 1)) == [1, 0, 4]
        assert [x for _, x in flow.node.reference(2**62 - 1)] == [1, 0, 4]

    @pytest.mark.parametrize("kind", range(3))
    def test_in_a_later_epoch_of_a_repeat(self, kind: int) -> None:
        flow = sources(5)[kind].fixed_size(3).repeat(4)
        node = flow.node
        assert (
            list(flow.epoch(7))
            == [x for _, x in node.reference(7)]
            != [x for _, x in node.reference(8)]
        )

    def test_the_last_that_continues(self) -> None:
        flow = fl.from_range(8).fixed_size(6)
        last = 2**40 // 6
        assert [next(flow.epoch(last)), next(flow.epoch(last + 1))] == [last * 6 % 8, 0]
        assert last * 6 % 8 != 0

    @given(
        st.lists(st.tuples(st.integers(0, 2**62 - 1) | st.integers(0, 9), st.integers(0, 11))),
        st.booleans(),
    )
    def test_are_resolved_beside_others(self, at: list[tuple[int, int]], keep_state: bool) -> None:
        source = fl.from_range(5)
        node = FixedSize[Any, Any](source.node, 12, keep_state)
        epochs, positions = np.array(at, np.int64).reshape(-1, 2).T
        together = node.resolve(Indices(epochs, positions))
        for i, (epoch, position) in enumerate(at):
            alone = node.resolve(Indices.span(epoch, position, position + 1))
            assert (together.epoch[i], together.position[i]) == (alone.epoch[0], alone.position[0])
            assert dict(node.reference(epoch))[position] == alone.position[0]


class TestPromises:
    def test_length_effects_and_spec(self) -> None:
        assert len(fl.from_range(3).fixed_size(7)) == 7
        assert str(fl.from_range(3).fixed_size(7).spec) == "int"
        assert fl.from_range(3).fixed_size(7).effects == {Resampled}
        assert fl.from_range(3).fixed_size(3).effects == {Resampled}
        assert fl.from_range(3).shuffle().fixed_size(7).effects == {Reordered, Resampled}

    def test_ends_what_is_endless_and_sizes_what_is_not(self) -> None:
        stream = fl.from_iterable([1, 2]).filter(bool)
        assert stream.effects == {Unsized}
        assert stream.fixed_size(5).effects == {Resampled}
        assert stream.fixed_size(5).size() == 5
        assert stream.repeat().effects == {Resampled, Unsized, Endless}
        assert stream.repeat().fixed_size(5).effects == {Resampled}
        assert stream.repeat().fixed_size(5).collect() == [1, 2, 1, 2, 1]

    def test_names_the_row(self) -> None:
        node = fl.from_range(5).fixed_size(3).node
        assert node.origin(1, 2) == "row 0 of from_range(5)"

    def test_a_state_of_another_size_is_of_another_flow(self) -> None:
        flow = fl.from_range(5)
        prints = [
            flow.fixed_size(n, keep).node.fingerprint for n in (3, 4) for keep in (True, False)
        ]
        assert len(set(prints)) == 4


class TestOfNothing:
    def test_is_refused_at_once(self) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(0).fixed_size(3)
        assert str(caught.value) == (
            "fixed_size: its source has no elements, so it can never yield 3"
        )

    @pytest.mark.parametrize("keep_state", [True, False])
    def test_nothing_is_nothing(self, keep_state: bool) -> None:
        flows: list[Flow[int, Any]] = [fl.from_range(0), fl.from_range(3), fl.from_iterable([])]
        for flow in flows:
            none = flow.fixed_size(0, keep_state)
            assert [*none.epoch(3), *none.node.reference(3)] == []

    @pytest.mark.parametrize("keep_state", [True, False])
    def test_that_turns_out_to_be_nothing_is_an_error(self, keep_state: bool) -> None:
        flow = fl.from_range(3).filter(lambda i: i > 5).fixed_size(4, keep_state)
        with pytest.raises(EndlessFlow) as caught:
            flow.collect()
        assert str(caught.value) == (
            "fixed_size: pass 0 of its source had no elements, and continuing might never yield 4; "
            "check what is filtered or left out"
        )

    def test_says_which_pass_was_empty(self) -> None:
        once = iter([[1], []])
        run = iter(fl.from_iterable(lambda: next(once)).fixed_size(2))
        assert next(run) == 1
        with pytest.raises(EndlessFlow, match="pass 1 of its source had no elements"):
            next(run)


@pytest.mark.parametrize("n", [-1, 1.5, True, None])
def test_refuses_a_size(n: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(3).fixed_size(n)
    assert str(caught.value) == f"fixed_size: n must be an int >= 0, got {n!r}"


@pytest.mark.parametrize("keep_state", [1, None, "yes"])
def test_refuses_a_flag(keep_state: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(3).fixed_size(3, keep_state)
    assert str(caught.value) == f"fixed_size: keep_state must be True or False, got {keep_state!r}"
