"""bucket_by_length: batches of similar length, with a bound on their size."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import ElementError, InvalidFlow, Reordered, Resampled, SpecMismatch, Unsized

lengths = st.lists(st.integers(1, 12), max_size=24)
edges = st.lists(st.integers(1, 12), max_size=3, unique=True).map(sorted)


def words(sizes: list[int]) -> list[NDArray[np.int64]]:
    """Arrays of these sizes; the ``i``-th is filled with ``i + 1``."""
    return [np.full(size, i + 1) for i, size in enumerate(sizes)]


def numbers(batch: NDArray[Any]) -> list[int]:
    """The numbers of the rows of a batch."""
    return [int(row.max()) - 1 for row in batch]


@given(lengths, edges, st.integers(1, 4))
def test_a_batch_has_rows_of_one_bucket_in_order(
    sizes: list[int], boundaries: list[int], n: int
) -> None:
    flow = fl.from_items(words(sizes)).bucket_by_length(len, boundaries, n)
    batches = [numbers(batch) for batch in flow]
    assert sorted(i for batch in batches for i in batch) == [*range(len(sizes))]
    for batch in batches:
        assert batch == sorted(batch)
        assert len({sum(sizes[i] >= edge for edge in boundaries) for i in batch}) == 1
    assert all(batch.shape[1] == max(sizes[i] for i in numbers(batch)) for batch in flow)
    full = fl.from_items(words(sizes)).bucket_by_length(len, boundaries, n, drop_remainder=True)
    assert [numbers(batch) for batch in full] == [b for b in batches if len(b) == n]


@given(lengths, edges, st.integers(12, 40))
def test_a_batch_has_at_most_max_tokens_with_padding(
    sizes: list[int], boundaries: list[int], most: int
) -> None:
    flow = fl.from_items(words(sizes)).bucket_by_length(len, boundaries, max_tokens=most)
    batches = flow.collect()
    assert sorted(i for batch in batches for i in numbers(batch)) == [*range(len(sizes))]
    assert all(batch.size <= most for batch in batches)
    if not boundaries:  # the next row would not have fitted
        for batch, after in pairwise(batches):
            wide = max(batch.shape[1], sizes[numbers(after)[0]])
            assert (len(batch) + 1) * wide > most


def test_each_component_is_padded() -> None:
    rows: list[dict[str, Any]] = [{"ids": x, "label": i} for i, x in enumerate(words([1, 3, 2]))]
    flow = fl.from_items(rows).bucket_by_length(
        lambda row: len(row["ids"]), [9], 3, padding={"ids": -1, "label": 0}
    )
    (batch,) = flow.collect()
    assert batch["ids"].tolist() == [[1, -1, -1], [2, 2, 2], [3, 3, -1]]
    assert batch["label"].tolist() == [0, 1, 2]


def test_collate_replaces_the_padding() -> None:
    flow = fl.from_items(words([1, 3, 2])).bucket_by_length(len, [3], 2, collate=len)
    assert flow.collect() == [2, 1]


def test_no_batch_reaches_into_the_next_pass() -> None:
    flow = fl.from_items(words([1, 3, 1])).bucket_by_length(len, [2], 2)
    once = [batch.tolist() for batch in flow]
    assert [batch.tolist() for batch in flow.repeat(2)] == once * 2


def test_the_effects() -> None:
    flow = fl.from_items(words([1]))
    assert flow.bucket_by_length(len, [2], 2).effects == {Reordered, Unsized}
    dropping = flow.bucket_by_length(len, [2], 2, drop_remainder=True)
    assert dropping.effects == {Reordered, Resampled, Unsized}


def test_the_spec_leaves_sizes_open() -> None:
    flow = fl.from_items([np.zeros((n, 3), np.uint8) for n in (2, 4)])
    assert str(flow.bucket_by_length(len, [3], 2).spec) == "uint8[?, ?, ?]"
    assert str(flow.bucket_by_length(len, [3], 2, collate=lambda rows: len(rows)).spec) == "int"


def test_workers_do_not_change_the_batches() -> None:
    flow = fl.from_range(9).map(lambda i: np.full(i % 4, i))
    batches = flow.bucket_by_length(len, [2], [2, 3]).map(np.ndarray.tolist)
    assert batches.prefetch(procs=2).collect() == batches.collect()


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (
                (len, [3]),
                "the size of a batch is not bounded; pass batch_sizes, max_tokens, or both",
            ),
            ((len, [3, 3], 2), "boundaries must increase, got [3, 3]"),
            ((len, [0], 2), "boundaries must be a list of ints >= 1, got [0]"),
            ((len, 3, 2), "boundaries must be a list of ints >= 1, got 3"),
            ((len, [3], 0), "batch_sizes must be an int >= 1, or a list of them, got 0"),
            ((len, [3], [2, "3"]), "batch_sizes must be an int >= 1, or a list of them"),
            ((len, [3], [2]), "1 boundaries make 2 buckets, and batch_sizes has 1 sizes"),
            ((3, [3], 2), "length must be callable, got 3"),
        ],
    )
    def test_invalid_arguments_are_refused(self, arguments: Any, said: str) -> None:
        flow: Any = fl.from_items(words([1]))
        with pytest.raises(InvalidFlow) as caught:
            flow.bucket_by_length(*arguments)
        assert str(caught.value).startswith(f"bucket_by_length: {said}")

    @pytest.mark.parametrize("most", [0, 2.5, True, "4"])
    def test_invalid_max_tokens_are_refused(self, most: Any) -> None:
        with pytest.raises(InvalidFlow, match="max_tokens must be an int >= 1 or None"):
            fl.from_items(words([1])).bucket_by_length(len, [3], max_tokens=most)

    def test_padding_and_collate_are_refused(self) -> None:
        flow: Any = fl.from_items(words([1]))
        with pytest.raises(InvalidFlow, match="padding and collate: write one of them"):
            flow.bucket_by_length(len, [3], 2, padding=1, collate=list)

    def test_an_element_above_max_tokens_is_named(self) -> None:
        flow = fl.from_items(words([2, 7])).bucket_by_length(len, [3], max_tokens=6)
        with pytest.raises(ElementError) as caught:
            flow.collect()
        assert caught.value.origin == "row 1 of from_items(2 items)"
        assert "length 7 exceeds max_tokens=6 by itself" in str(caught.value.__cause__)

    @pytest.mark.parametrize("length", [1.5, None, -1, "3"])
    def test_a_function_without_a_length_is_an_error(self, length: Any) -> None:
        flow = fl.from_items(words([2])).bucket_by_length(lambda x: length, [3], 2)
        with pytest.raises(ElementError) as caught:
            flow.collect()
        assert isinstance(caught.value.__cause__, SpecMismatch)
        assert f"<lambda> returned {length!r}" in str(caught.value.__cause__)

    def test_rows_that_do_not_stack_are_an_error(self) -> None:
        flow: Any = fl.from_range(2).map(lambda i: np.zeros(2, (np.int32, np.int64)[i]))
        with pytest.raises(ElementError) as caught:
            flow.bucket_by_length(len, [3], 2).collect()
        assert caught.value.origin == "row 0 of from_range(2) and 1 more of its group"


def test_titles() -> None:
    flow = fl.from_items(words([1]))
    titles = {
        "bucket_by_length(len, [3], [2, 2])": flow.bucket_by_length(len, [3], 2),
        "bucket_by_length(len, [], max_tokens=9, padding=-1)": flow.bucket_by_length(
            len, [], max_tokens=9, padding=-1
        ),
        "bucket_by_length(len, [3], [2, 1], drop_remainder=True, collate=sum)": (
            flow.bucket_by_length(len, (3,), [2, 1], drop_remainder=True, collate=sum)
        ),
    }
    assert {x.node.title for x in titles.values()} == set(titles)


@pytest.mark.parametrize(
    ("element", "advice"), [({"ids": [1, 2]}, "len(x['ids'])"), (([1], 2), "len(x[0])")]
)
def test_len_of_several_components_is_refused(element: Any, advice: str) -> None:
    with pytest.raises(ElementError) as caught:
        fl.from_range(3).map(lambda _: element).bucket_by_length(len, [8], 2).collect()
    assert advice in str(caught.value)
