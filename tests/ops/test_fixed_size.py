"""fixed_size, compared with slices of the source's consecutive passes."""

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
    """The elements of all epochs of a flow, one epoch after another."""
    return (x for k in count() for x in flow.epoch(k))


def sources(length: int) -> list[Flow[int, Any]]:
    """Flows that differ between epochs: random-access, of known and of unknown length."""
    flow = fl.from_range(length)
    return [flow.shuffle(), flow.shuffle(3), fl.from_iterable(range(length)).shuffle(3)]


class TestKeepingState:
    def test_the_example_of_tensorpack_with_state(self) -> None:
        flow = fl.from_items([1, 2, 3, 4, 5]).fixed_size(3, True)
        assert [list(run) for run in flow.epochs(3)] == [[1, 2, 3], [4, 5, 1], [2, 3, 4]]

    @pytest.mark.parametrize("kind", range(3))
    @given(length=lengths, n=sizes, epoch=st.integers(0, 5))
    def test_every_pass_continues_the_pass_before(
        self, kind: int, length: int, n: int, epoch: int
    ) -> None:
        source = sources(length)[kind]
        expected = list(islice(endless(source), epoch * n, epoch * n + n))
        flow = source.fixed_size(n)
        assert list(flow.epoch(epoch)) == expected
        assert list(flow.node.reference(epoch)) == list(enumerate(expected))

    @given(lengths, sizes, st.integers(0, 5))
    def test_fixed_size_continues_in_an_endless_flow(self, length: int, n: int, epoch: int) -> None:
        source = fl.from_range(length).shuffle().repeat()
        expected = list(islice(source, epoch * n, epoch * n + n))
        assert list(source.fixed_size(n).epoch(epoch)) == expected
        assert [x for _, x in source.fixed_size(n).node.reference(epoch)] == expected

    @given(lengths, st.integers(1, 9), st.integers(2, 3))
    def test_repeated_fixed_size_equals_the_repeated_source(
        self, length: int, n: int, m: int
    ) -> None:
        source = fl.from_range(length).shuffle()
        expected = list(islice(endless(source), n * m))
        assert source.fixed_size(n).repeat(m).collect() == expected
        assert list(islice(source.fixed_size(n).repeat(), n * m)) == expected

    def test_fixed_size_of_a_stream_reads_only_n_elements(self) -> None:
        stream = iter(range(10))
        assert fl.from_iterable(stream).fixed_size(3).collect() == [0, 1, 2]
        assert next(stream) == 3

    def test_fixed_size_over_random_access_reads_no_earlier_rows(self) -> None:
        seen: list[int] = []
        source = fl.from_range(10**9).map(lambda i: seen.append(i) or i)  # type: ignore[func-returns-value]  # None or i
        flow = source.fixed_size(10**6).take(2)
        assert list(flow.epoch(2500)) == seen == [500_000_000, 500_000_001]


class TestNotKeepingState:
    @pytest.mark.parametrize(
        ("n", "expected"), [(3, [1, 2, 3]), (6, [1, 2, 3, 4, 5, 1])], ids=["fewer", "more"]
    )
    def test_the_examples_of_tensorpack_without_state(self, n: int, expected: list[int]) -> None:
        flow = fl.from_items([1, 2, 3, 4, 5]).fixed_size(n, keep_state=False)
        assert [list(run) for run in flow.epochs(3)] == [expected] * 3

    @pytest.mark.parametrize("kind", range(3))
    @given(length=lengths, n=sizes, epoch=st.integers(0, 4))
    def test_without_state_every_pass_starts_a_new_repetition(
        self, kind: int, length: int, n: int, epoch: int
    ) -> None:
        source = sources(length)[kind]
        expected = list(islice(source.repeat().epoch(epoch), n))
        flow = source.fixed_size(n, keep_state=False)
        assert list(flow.epoch(epoch)) == expected
        assert list(flow.node.reference(epoch)) == list(enumerate(expected))

    def test_without_state_an_endless_flow_starts_again(self) -> None:
        source = fl.from_range(3).repeat()
        flow = source.fixed_size(4, keep_state=False)
        assert [list(run) for run in flow.epochs(2)] == [[0, 1, 2, 0]] * 2


class TestHugeEpochs:
    """Epoch numbers hashed by an outer repeat: they continue no other, and must not overflow."""

    @pytest.mark.parametrize("keep_state", [True, False])
    @pytest.mark.parametrize("kind", range(3))
    def test_huge_epochs_start_with_a_new_pass(self, kind: int, keep_state: bool) -> None:
        flow = sources(5)[kind].fixed_size(12, keep_state)
        for epoch in (2**40, 2**61 + 12345, 2**62 - 1):
            got = [x for _, x in flow.node.reference(epoch)]
            assert sorted(got[:5]) == sorted(got[5:10]) == list(range(5))
            assert list(flow.epoch(epoch)) == got

    def test_huge_epochs_of_an_endless_flow_start_at_its_beginning(self) -> None:
        flow = fl.from_range(5).repeat().shard(4, 1).fixed_size(3)
        assert list(flow.epoch(2**62 - 1)) == [1, 0, 4]
        assert [x for _, x in flow.node.reference(2**62 - 1)] == [1, 0, 4]

    @pytest.mark.parametrize("kind", range(3))
    def test_later_epochs_of_a_repeat_agree_with_the_reference(self, kind: int) -> None:
        flow = sources(5)[kind].fixed_size(3).repeat(4)
        node = flow.node
        assert (
            list(flow.epoch(7))
            == [x for _, x in node.reference(7)]
            != [x for _, x in node.reference(8)]
        )

    def test_the_last_continuing_epoch(self) -> None:
        flow = fl.from_range(8).fixed_size(6)
        last = 2**40 // 6
        assert [next(flow.epoch(last)), next(flow.epoch(last + 1))] == [last * 6 % 8, 0]
        assert last * 6 % 8 != 0

    @given(
        st.lists(st.tuples(st.integers(0, 2**62 - 1) | st.integers(0, 9), st.integers(0, 11))),
        st.booleans(),
    )
    def test_huge_and_small_epochs_are_resolved_together(
        self, at: list[tuple[int, int]], keep_state: bool
    ) -> None:
        source = fl.from_range(5)
        node = FixedSize[Any, Any](source.node, 12, keep_state)
        epochs, positions = np.array(at, np.int64).reshape(-1, 2).T
        together = node.resolve(Indices(epochs, positions))
        for i, (epoch, position) in enumerate(at):
            alone = node.resolve(Indices.span(epoch, position, position + 1))
            assert (together.epoch[i], together.position[i]) == (alone.epoch[0], alone.position[0])
            assert dict(node.reference(epoch))[position] == alone.position[0]


class TestPromises:
    def test_fixed_size_has_length_effects_and_spec(self) -> None:
        assert len(fl.from_range(3).fixed_size(7)) == 7
        assert str(fl.from_range(3).fixed_size(7).spec) == "int"
        assert fl.from_range(3).fixed_size(7).effects == {Resampled}
        assert fl.from_range(3).fixed_size(3).effects == {Resampled}
        assert fl.from_range(3).shuffle().fixed_size(7).effects == {Reordered, Resampled}

    def test_fixed_size_removes_endless_and_unsized(self) -> None:
        stream = fl.from_iterable([1, 2]).filter(bool)
        assert stream.effects == {Unsized}
        assert stream.fixed_size(5).effects == {Resampled}
        assert stream.fixed_size(5).size() == 5
        assert stream.repeat().effects == {Resampled, Unsized, Endless}
        assert stream.repeat().fixed_size(5).effects == {Resampled}
        assert stream.repeat().fixed_size(5).collect() == [1, 2, 1, 2, 1]

    def test_errors_name_the_row(self) -> None:
        node = fl.from_range(5).fixed_size(3).node
        assert node.origin(1, 2) == "row 0 of from_range(5)"

    def test_a_state_distinguishes_sizes(self) -> None:
        flow = fl.from_range(5)
        prints = [
            flow.fixed_size(n, keep).node.fingerprint for n in (3, 4) for keep in (True, False)
        ]
        assert len(set(prints)) == 4


class TestEmptySources:
    def test_a_source_known_to_be_empty_is_refused(self) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(0).fixed_size(3)
        assert str(caught.value) == (
            "fixed_size: its source has no elements, so it can never yield 3"
        )

    @pytest.mark.parametrize("keep_state", [True, False])
    def test_a_size_of_zero_yields_nothing(self, keep_state: bool) -> None:
        flows: list[Flow[int, Any]] = [fl.from_range(0), fl.from_range(3), fl.from_iterable([])]
        for flow in flows:
            none = flow.fixed_size(0, keep_state)
            assert [*none.epoch(3), *none.node.reference(3)] == []

    @pytest.mark.parametrize("keep_state", [True, False])
    def test_a_source_that_is_empty_is_an_error(self, keep_state: bool) -> None:
        flow = fl.from_range(3).filter(lambda i: i > 5).fixed_size(4, keep_state)
        with pytest.raises(EndlessFlow) as caught:
            flow.collect()
        assert str(caught.value) == (
            "fixed_size: pass 0 of its source had no elements, and continuing might never yield 4; "
            "check what is filtered or left out"
        )

    def test_the_error_names_the_empty_pass(self) -> None:
        once = iter([[1], []])
        run = iter(fl.from_iterable(lambda: next(once)).fixed_size(2))
        assert next(run) == 1
        with pytest.raises(EndlessFlow, match="pass 1 of its source had no elements"):
            next(run)


@pytest.mark.parametrize("n", [-1, 1.5, True, None])
def test_fixed_size_refuses_invalid_sizes(n: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(3).fixed_size(n)
    assert str(caught.value) == f"fixed_size: n must be an int >= 0, got {n!r}"


@pytest.mark.parametrize("keep_state", [1, None, "yes"])
def test_fixed_size_refuses_invalid_flags(keep_state: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(3).fixed_size(3, keep_state)
    assert str(caught.value) == f"fixed_size: keep_state must be True or False, got {keep_state!r}"
