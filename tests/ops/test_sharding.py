"""shard, compared with slices; and shards of equal length."""

from __future__ import annotations

from itertools import islice
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Endless, Flow, InvalidFlow, Reordered, Resampled, Unsized
from tests.ops.passes import passes, reference, resolved

lengths = st.integers(0, 12)
shards = st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1)))


class TestShard:
    @given(lengths, shards)
    def test_shard_yields_every_nth_element(self, length: int, shard: tuple[int, int]) -> None:
        n, i = shard
        flow = fl.from_range(length).shard(n, i)
        assert flow.collect() == list(range(length))[i::n]
        assert len(flow) == len(range(length)[i::n])
        assert flow.effects == frozenset()

    @given(lengths, shards)
    def test_shard_of_a_stream(self, length: int, shard: tuple[int, int]) -> None:
        n, i = shard
        flow = fl.from_iterable(range(length)).filter(lambda x: x % 3 > 0).shard(n, i)
        assert flow.collect() == [x for x in range(length) if x % 3 > 0][i::n]
        assert flow.effects == {Unsized}
        assert flow.node.length is None
        assert [position for position, _ in flow.node.reference(0)] == list(
            range(len(flow.collect()))
        )

    @given(lengths, shards)
    def test_shard_resolves_to_the_reference(self, length: int, shard: tuple[int, int]) -> None:
        flow = fl.from_range(length).shuffle().shard(*shard)
        assert resolved(flow) == passes(flow, 3) == reference(flow, 3)

    @given(lengths, st.integers(1, 5), st.booleans())
    def test_all_shards_together_yield_all_elements(
        self, length: int, n: int, stream: bool
    ) -> None:
        flow: Flow[int, Any] = fl.from_range(length)
        flow = flow.shuffle(4) if stream else flow
        rows = [x for i in range(n) for x in flow.shard(n, i)]
        assert sorted(rows) == list(range(length))

    def test_one_shard_is_the_whole_flow(self) -> None:
        assert fl.from_range(7).shard(1, 0).collect() == list(range(7))

    def test_shard_of_an_endless_flow_is_endless(self) -> None:
        flow = fl.from_range(5).repeat().shard(2, 1)
        assert flow.effects == {Resampled, Endless}
        assert list(islice(flow, 6)) == [1, 3, 0, 2, 4, 1]

    def test_shard_over_random_access_reads_only_its_rows(self) -> None:
        seen: list[int] = []
        flow = fl.from_range(10).map(lambda i: seen.append(i) or i).shard(4, 1)  # type: ignore[func-returns-value]  # None or i
        assert flow.collect() == seen == [1, 5, 9]

    def test_shard_after_a_shuffle_resamples(self) -> None:
        assert fl.from_range(9).shard(2, 0).shuffle().effects == {Reordered}
        assert fl.from_range(9).shuffle().shard(2, 0).effects == {Reordered, Resampled}

    def test_shard_before_a_shuffle_keeps_its_rows(self) -> None:
        flow = fl.from_range(9).shard(2, 1).shuffle()
        assert [sorted(run) for run in flow.epochs(3)] == [[1, 3, 5, 7]] * 3

    @pytest.mark.parametrize("n", [0, -1, 1.5, True, None])
    def test_shard_refuses_invalid_numbers_of_shards(self, n: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).shard(n, 0)
        assert str(caught.value) == f"shard: n must be an int >= 1, got {n!r}"

    @pytest.mark.parametrize("i", [-1, 0.0, False, None])
    def test_shard_refuses_an_invalid_index(self, i: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).shard(2, i)
        assert str(caught.value) == f"shard: i must be an int >= 0, got {i!r}"

    def test_shard_refuses_an_index_out_of_range(self) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).shard(3, 3)
        assert str(caught.value) == (
            "shard: i must be below n, got shard(3, 3); the shards of 3 are numbered from 0 to 2"
        )


class TestEvenShards:
    def test_explain_shows_what_is_left_out_or_repeated(self) -> None:
        flow = fl.from_range(7)
        assert "leaves out 1 of 7 elements of each pass" in flow.shard(2, 0, even="drop").explain()
        assert (
            "repeats elements 2 time(s) in each pass of 7" in flow.shard(3, 0, even="pad").explain()
        )
        assert "note" not in fl.from_range(6).shard(2, 0, even="pad").explain()

    @pytest.mark.parametrize("procs", [0, 2])
    def test_shards_of_batches_are_equally_long(self, procs: int) -> None:
        batches = fl.from_range(257).batch(16)
        dropped = [batches.shard(2, i, even="drop").prefetch(procs=procs) for i in range(2)]
        assert [len(flow.collect()) for flow in dropped] == [8, 8] == [len(f) for f in dropped]
        padded = [batches.shard(2, i, even="pad").collect() for i in range(2)]
        assert padded[1][-1].tolist() == batches.collect()[0].tolist()

    @pytest.mark.parametrize("flow", [fl.from_items([1]), fl.from_items([1, 2])])
    def test_more_shards_than_elements(self, flow: fl.Flow[int, fl.Exact]) -> None:
        assert [flow.shard(5, i, even="drop").collect() for i in range(5)] == [[]] * 5
        assert [flow.shard(5, i, even="pad").collect() for i in range(5)] == [
            [flow.collect()[i % len(flow)]] for i in range(5)
        ]

    @pytest.mark.parametrize("even", ["drop", "pad"])
    def test_a_state_resumes_with_another_number_of_shards(
        self, even: Literal["drop", "pad"]
    ) -> None:
        flow = fl.from_range(13).shuffle(seed=1)
        run = iter(flow.shard(2, 0, even=even))
        for _ in range(3):
            next(run)
        state = run.state_dict()
        rest = [list(flow.shard(3, i, even=even).resume(state)) for i in range(3)]
        together = [x for step in zip(*rest, strict=True) for x in step]
        assert together[:6] == list(flow)[6:12]

    def test_unknown_and_endless_lengths_are_refused(self) -> None:
        flow = fl.from_range(7)
        with pytest.raises(fl.InvalidFlow, match="length of its source is unknown, so 2 shards"):
            flow.filter(bool).shard(2, 0, even="drop")
        with pytest.raises(fl.InvalidFlow, match="its source never ends"):
            flow.repeat().shard(2, 0, even="pad")

    def test_other_values_are_refused(self) -> None:
        wrong: Any = "keep"
        with pytest.raises(fl.InvalidFlow, match="even must be None, 'drop' or 'pad', got 'keep'"):
            fl.from_range(7).shard(2, 0, even=wrong)
