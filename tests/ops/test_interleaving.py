"""interleave_map: several results of a function in turn, and only these open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import ElementError, InvalidFlow, Reordered, Unsized

sizes = st.lists(st.integers(0, 6), max_size=8)
small = st.integers(1, 4)


def shards(sizes: list[int]) -> list[list[int]]:
    return [list(range(100 * k, 100 * k + n)) for k, n in enumerate(sizes)]


def same(shard: list[int]) -> list[int]:
    return shard


@given(sizes, small, small)
def test_every_element_comes_once_and_in_order_within_its_result(
    sizes: list[int], cycle: int, block: int
) -> None:
    got = fl.from_items(shards(sizes)).interleave_map(same, cycle=cycle, block=block).collect()
    for shard in shards(sizes):
        assert [x for x in got if x in shard] == shard
    assert len(got) == sum(sizes)


@given(sizes)
def test_a_cycle_of_one_is_flat_map(sizes: list[int]) -> None:
    flow = fl.from_items(shards(sizes))
    assert flow.interleave_map(same, cycle=1).collect() == flow.flat_map(same).collect()


@given(sizes, small)
def test_a_cycle_of_all_is_interleave(sizes: list[int], block: int) -> None:
    rows = shards(sizes) or [[]]
    expected = fl.interleave([fl.from_iterable(shard) for shard in rows]).collect()
    assert fl.from_items(rows).interleave_map(same, cycle=len(rows)).collect() == expected


def test_blocks_and_the_next_result_in_the_place_of_one_that_ended() -> None:
    flow = fl.from_items(["aaaa", "b", "ccc"]).interleave_map(list, cycle=2, block=2)
    assert "".join(flow) == "aabaaccc"
    assert flow.effects == {Reordered, Unsized}


@pytest.mark.long
@given(sizes, small, small)
def test_the_order_is_the_order_of_tf_data(sizes: list[int], cycle: int, block: int) -> None:
    tf: Any = pytest.importorskip("tensorflow")
    starts = [100 * k for k in range(len(sizes))]
    dataset = tf.data.Dataset.from_tensor_slices((tf.constant(starts), tf.constant(sizes)))
    theirs = dataset.interleave(
        lambda start, n: tf.data.Dataset.range(
            tf.cast(start, tf.int64), tf.cast(start + n, tf.int64)
        ),
        cycle_length=cycle,
        block_length=block,
    )
    ours = fl.from_items(shards(sizes)).interleave_map(same, cycle=cycle, block=block)
    assert ours.collect() == [int(x) for x in theirs]


class Opened:
    """Counts the generators that are open."""

    def __init__(self) -> None:
        self.now = self.most = self.all = 0

    def read(self, n: int) -> Iterator[int]:
        self.now, self.all = self.now + 1, self.all + 1
        self.most = max(self.most, self.now)
        try:
            yield from range(n)
        finally:
            self.now -= 1


def test_only_a_cycle_of_results_is_open() -> None:
    opened = Opened()
    flow = fl.from_items([3] * 40).interleave_map(opened.read, cycle=5)
    assert len(flow.collect()) == 120
    assert (opened.now, opened.most, opened.all) == (0, 5, 40)


def test_results_are_opened_at_their_turn_and_closed_at_the_end() -> None:
    opened = Opened()
    run = iter(fl.from_items([3] * 40).interleave_map(opened.read, cycle=5))
    assert list(islice(run, 2)) == [0, 0]
    assert opened.all <= 3
    run.close()
    assert opened.now == 0


def test_an_error_names_the_element_and_how_far_it_came() -> None:
    def read(name: str) -> Iterator[int]:
        yield 1
        if name == "b":
            raise OSError("unplugged")
        yield 2

    run, got = iter(fl.from_items("abc").interleave_map(read, cycle=2)), list[int]()
    with pytest.raises(ElementError) as caught:
        got.extend(run)
    assert got == [1, 1, 2]
    assert str(caught.value) == (
        "interleave_map(read, cycle=2) failed on element 1 (row 1 of from_items(3 items)): "
        "OSError('unplugged'); the element was 'b', after 1 of its elements"
    )


def test_a_result_that_is_no_iterable_is_refused() -> None:
    func: Any = abs
    with pytest.raises(ElementError, match="the function of interleave_map must return an iter"):
        fl.from_range(2).interleave_map(func).collect()


@pytest.mark.parametrize("argument", ["cycle", "block"])
def test_cycle_and_block_are_at_least_one(argument: str) -> None:
    with pytest.raises(InvalidFlow, match=f"^interleave_map: {argument} must be an int >= 1"):
        fl.from_range(2).interleave_map(range, **{argument: 0})


def test_flows_are_interleaved_and_origins_are_found() -> None:
    flow = fl.from_range(4).map(lambda i: i + 1).interleave_map(fl.from_range, cycle=2)
    assert flow.collect() == [0, 0, 1, 0, 1, 0, 2, 1, 2, 3]
    (origin,) = flow.origins(9)
    assert (origin.source, origin.row) == ("from_range(4)", 3)


def test_a_resumed_pass_goes_on() -> None:
    flow = fl.from_items(shards([3, 5, 2, 4])).shuffle(seed=1).interleave_map(same, cycle=2)
    whole = flow.collect()
    for n in range(len(whole)):
        run = iter(flow)
        assert list(islice(run, n)) == whole[:n]
        assert list(flow.resume(run.state_dict())) == whole[n:]


@given(
    st.lists(st.sampled_from([0, 1, 5, 150, 400]), max_size=8),
    small,
    st.integers(1, 60),
    st.data(),
)
def test_a_pass_that_is_resumed_twice_goes_on(
    sizes: list[int], cycle: int, block: int, data: st.DataObject
) -> None:
    shuffled = fl.from_items(shards(sizes)).filter(bool)
    flow = shuffled.interleave_map(same, cycle=cycle, block=block)
    whole = flow.collect()
    first = data.draw(st.integers(0, len(whole)))
    second = data.draw(st.integers(first, len(whole)))
    run = iter(flow)
    assert list(islice(run, first)) == whole[:first]
    run = iter(flow.resume(json.loads(json.dumps(run.state_dict()))))
    assert list(islice(run, second - first)) == whole[first:second]
    assert list(flow.resume(run.state_dict())) == whole[second:]


@pytest.mark.parametrize("resumed_at", [0, 100, 1000, 19_999])
def test_a_resume_reads_only_the_open_results_again(resumed_at: int) -> None:
    read = list[int]()

    def rows_of(k: int) -> fl.Flow[int, Any]:
        read.append(k)
        return fl.from_range(1000).map(lambda i: 1000 * k + i)

    flow = fl.from_range(20).interleave_map(rows_of, cycle=4)
    whole, run = flow.collect(), iter(flow)
    assert list(islice(run, resumed_at)) == whole[:resumed_at]
    state = run.state_dict()
    run.close()
    read.clear()
    assert next(iter(flow.resume(state))) == whole[resumed_at]
    assert len(read) <= 4


def test_flows_with_numbered_rows_skip_what_they_have_yielded() -> None:
    computed = list[int]()

    def compute(i: int) -> int:
        computed.append(i)
        return i

    rows = fl.from_range(10_000).map(compute)
    flow = fl.from_range(3).interleave_map(lambda _: rows, cycle=3)
    run = iter(flow)
    for _ in range(20_000):
        next(run)
    state = run.state_dict()
    run.close()
    computed.clear()
    assert next(iter(flow.resume(state))) == 20_000 // 3
    assert len(computed) <= 128 + 64


def test_a_state_of_many_open_results_resumes_from_the_last_one_that_it_can_hold() -> None:
    flow = fl.from_range(300).interleave_map(lambda k: [k] * 50, cycle=300)
    whole, run = flow.collect(), iter(flow)
    assert list(islice(run, 14_000)) == whole[:14_000]
    state = run.state_dict()
    assert len(json.dumps(state)) < 1400
    assert list(flow.resume(state)) == whole[14_000:]


def test_a_cycle_may_be_larger_than_the_source() -> None:
    flow = fl.from_range(3).interleave_map(lambda i: [i] * 2, cycle=10**15)
    assert flow.collect() == [0, 1, 2, 0, 1, 2]
