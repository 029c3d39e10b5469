"""pack: tokens are neither lost nor moved, and rows are as full as the strategy allows."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import ElementError, InvalidFlow, Packed, Reordered, Resampled, SpecMismatch, Unsized
from flowdsl.testing.elements import same
from tests.operators.packing import fitted

Strategy: TypeAlias = Literal["concat", "first_fit", "best_fit"]
Tokens: TypeAlias = NDArray[np.int32]

STRATEGIES: list[Strategy] = ["concat", "first_fit", "best_fit"]
FITS: list[Any] = STRATEGIES[1:]
sizes = st.lists(st.integers(0, 6), max_size=20)


def sequences(lengths: list[int]) -> list[Tokens]:
    """Sequences of different tokens: 1, 2, 3, ..."""
    ends = np.cumsum(lengths)
    return [np.arange(b - n + 1, b + 1, dtype=np.int32) for b, n in zip(ends, lengths, strict=True)]


def parts(row: Packed[Tokens]) -> list[list[int]]:
    """The sequences of a row, read from its segment ids."""
    numbers = range(1, int(row.segment_ids.max(initial=0)) + 1)
    return [row.tokens[row.segment_ids == k].tolist() for k in numbers]


def pack(flow: fl.Flow[Tokens, Any], n: int, strategy: Strategy, **options: Any) -> Any:
    packing: Any = flow.pack
    return packing(n, strategy, **options)


@given(sizes, st.integers(1, 9))
def test_concat_is_the_joined_sequences_cut_every_n_tokens(lengths: list[int], n: int) -> None:
    items = sequences(lengths)
    rows = fl.from_items(items).pack(n).collect()
    whole = np.concatenate([np.zeros(0, np.int32), *items])
    padded = np.pad(whole, (0, -len(whole) % n))
    assert [row.tokens.tolist() for row in rows] == padded.reshape(-1, n).tolist()
    full = fl.from_items(items).pack(n, drop_remainder=True).collect()
    assert same(full, rows[: len(whole) // n])


@given(sizes, st.integers(6, 12), st.integers(1, 4), st.sampled_from(FITS))
def test_a_fit_keeps_each_sequence_whole_and_once(
    lengths: list[int], n: int, bins: int, fit: Strategy
) -> None:
    items = sequences(lengths)
    rows = pack(fl.from_items(items), n, fit, bins=bins).collect()
    found = [part for row in rows for part in parts(row)]
    assert sorted(found) == [x.tolist() for x in items if len(x)]


@given(sizes, st.integers(1, 5), st.sampled_from(STRATEGIES))
def test_no_token_is_lost_and_each_sequence_stays_in_order(
    lengths: list[int], n: int, strategy: Strategy
) -> None:
    options = {} if strategy == "concat" else {"too_long": "split"}
    rows = pack(fl.from_items(sequences(lengths)), n, strategy, **options).collect()
    found = [part for row in rows for part in parts(row)]
    assert sorted(token for part in found for token in part) == [*range(1, sum(lengths) + 1)]
    assert all(part == [*range(part[0], part[0] + len(part))] for part in found)
    for row in rows:
        assert row.tokens[row.segment_ids == 0].tolist() == [0] * (row.segment_ids == 0).sum()
        used = int((row.segment_ids > 0).sum())
        assert used > 0
        assert row.segment_ids[:used].all()
        for k in range(1, row.segment_ids.max() + 1):
            positions = row.positions[row.segment_ids == k]
            assert positions.tolist() == [*range(len(positions))]


def test_first_fit_takes_the_oldest_row_and_best_fit_the_fullest() -> None:
    flow = fl.from_items(sequences([2, 3, 1, 4]))
    first = [list(map(len, parts(row))) for row in flow.pack(4, "first_fit")]
    best = [list(map(len, parts(row))) for row in flow.pack(4, "best_fit")]
    assert first == [[4], [2, 1], [3]]
    assert best == [[3, 1], [4], [2]]


def test_the_fullest_row_makes_room_for_a_new_one() -> None:
    rows = fl.from_items(sequences([2, 3, 4, 2])).pack(5, "first_fit", bins=2).collect()
    assert [list(map(len, parts(row))) for row in rows] == [[2, 3], [4], [2]]


def test_a_row_is_yielded_as_soon_as_it_is_full() -> None:
    stream = iter(sequences([3, 1, 2, 5]))
    run = iter(fl.from_iterable(stream).pack(4))
    assert next(run).tokens.tolist() == [1, 2, 3, 4]
    assert next(stream).tolist() == [5, 6]


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("bins", [1, 3])
def test_all_open_rows_are_yielded_from_time_to_time_and_a_run_resumes_there(
    fit: Strategy, bins: int
) -> None:
    lengths = [int(k) for k in np.random.default_rng(0).integers(1, 7, 900)]
    items = sequences(lengths)
    read = list[int]()

    def reading(i: int) -> Tokens:
        read.append(i)
        return items[i]

    flow = pack(fl.from_range(900).filter(lambda i: True).map(reading), 8, fit, bins=bins)
    expected = [parts(row) for row in flow]
    assert expected == list(fitted([x.tolist() for x in items], 8, fit, bins, drop=False))
    for position in (63 * bins, 66 * bins, 2 * 66 * bins):
        run = iter(flow)
        for _ in range(position):
            next(run)
        del read[:]
        assert [parts(row) for row in flow.resume(run.state_dict())] == expected[position:]
        earlier = expected[max(0, position - 66 * bins)] if position > 64 * bins else [[1]]
        assert items[min(read)][0] >= min(part[0] for part in earlier)


def test_no_row_reaches_into_the_next_pass() -> None:
    flow = fl.from_items(sequences([3, 3]))
    for strategy in STRATEGIES:
        packed = pack(flow, 4, strategy)
        once = packed.collect()
        assert same(list(packed.repeat(2)), once * 2)
        assert same(list(packed.epoch(3)), once)


class Text(NamedTuple):
    tokens: NDArray[np.int32]
    weights: list[float]


@attrs.frozen
class Sample:
    tokens: list[int]
    frames: NDArray[np.float32]


class TestElements:
    def test_aligned_components_are_packed_alike(self) -> None:
        texts = [Text(x, [0.5] * len(x)) for x in sequences([2, 3])]
        (row,) = fl.from_items(texts).pack(8, padding=(-1, 0)).collect()
        both: Any = row.tokens
        assert type(both) is Text
        assert both.tokens.tolist() == [1, 2, 3, 4, 5, -1, -1, -1]
        assert list(both[1]) == [0.5] * 5 + [0.0] * 3
        dicts = fl.from_items([{"ids": x, "mask": x > 1} for x in sequences([2, 3])])
        (packed,) = dicts.pack(6, padding={"ids": 9, "mask": False}).collect()
        assert packed.tokens["mask"].tolist() == [False, True, True, True, True, False]
        assert packed.tokens["ids"].tolist() == [1, 2, 3, 4, 5, 9]

    def test_entries_may_be_arrays(self) -> None:
        samples = [Sample([1, 2], np.ones((2, 3), np.float32)), Sample([3], np.zeros((1, 3), "f"))]
        flow = fl.from_items(samples).pack(4, "best_fit")
        (row,) = flow.collect()
        assert row.tokens[0].tolist() == [1, 2, 3, 0]
        assert row.tokens[1].shape == (4, 3)
        assert row.tokens[1].dtype == np.float32

    def test_rows_stack(self) -> None:
        batch = fl.from_items(sequences([3, 2, 4])).pack(4).batch(2).collect()[0]
        assert isinstance(batch, Packed)
        assert batch.tokens.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
        assert batch.segment_ids.shape == batch.positions.shape == (2, 4)

    def test_the_dtype_is_kept(self) -> None:
        rows = fl.from_items([np.arange(3, dtype=np.uint16)]).pack(4).collect()
        assert rows[0].tokens.dtype == np.uint16
        assert rows[0].segment_ids.dtype == rows[0].positions.dtype == np.int32

    def test_the_spec_has_the_size_of_every_row(self) -> None:
        lists = fl.from_items([[1, 2], [3]]).pack(4)
        ids = "segment_ids: int32[4], positions: int32[4]"
        assert str(lists.spec) == f"Packed(tokens: int64[4], {ids})"
        dicts = fl.from_items([{"a": np.zeros((2, 3))}]).pack(4, "first_fit")
        assert str(dicts.spec) == f"Packed(tokens: {{a: float64[4, 3]}}, {ids})"


class TestEffects:
    @pytest.mark.parametrize("strategy", STRATEGIES)
    @pytest.mark.parametrize("drop", [False, True])
    def test_the_effects_are_those_of_the_strategy(self, strategy: Strategy, drop: bool) -> None:
        flow = pack(fl.from_items(sequences([1])), 4, strategy, drop_remainder=drop)
        reorders = set() if strategy == "concat" else {Reordered}
        assert flow.effects == {Unsized} | reorders | ({Resampled} if drop else set())


class TestStatistics:
    @pytest.mark.parametrize("procs", [0, 1])
    def test_the_statistics_have_the_share_of_padding(self, procs: int) -> None:
        flow = fl.from_items(sequences([3, 3])).map(_same).pack(4).prefetch(procs=procs)
        run = iter(flow)
        list(run)
        (one,) = run.statistics().occupancy
        assert (one.title, one.occupied, one.entries, one.share) == ("pack(4)", 6, 8, 0.75)
        assert one.step == 3
        assert "pack(4): 75% of 8 entries are not padding" in str(run.statistics())

    def test_an_operator_without_padding_is_not_in_them(self) -> None:
        run = iter(fl.from_range(3).flat_map(fl.from_range))
        list(run)
        assert run.statistics().occupancy == ()


def _same(x: Any) -> Any:
    return x


class TestWorkers:
    def test_functions_below_run_in_workers(self) -> None:
        flow = fl.from_items(sequences([3, 3])).map(_same).pack(4).prefetch(procs=2)
        run = iter(flow)
        list(run)
        (stage,) = run.statistics().stages
        assert stage.operators == ("map(_same)",)
        assert len(stage.workers) == 2

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_workers_do_not_change_the_rows(self, strategy: Strategy) -> None:
        flow = fl.from_items(sequences([3, 1, 2, 4, 4, 1])).map(_same)
        packed = pack(flow, 5, strategy).map(_same)
        assert same(packed.prefetch(procs=2).collect(), packed.collect())


class TestRefusals:
    @pytest.mark.parametrize("n", [0, -1, 2.5, True, None])
    def test_invalid_n_is_refused(self, n: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_items(sequences([1])).pack(n)
        assert str(caught.value) == f"pack: n must be an int >= 1, got {n!r}"

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (
                {"strategy": "worst_fit"},
                "strategy must be 'concat', 'first_fit' or 'best_fit', got 'worst_fit'",
            ),
            (
                {"strategy": "best_fit", "too_long": "cut"},
                "too_long must be 'error' or 'split', got 'cut'",
            ),
            ({"strategy": "best_fit", "bins": 0}, "bins must be an int >= 1, got 0"),
            ({"bins": 3}, "bins and too_long are for 'first_fit' and 'best_fit'"),
            ({"too_long": "split"}, "bins and too_long are for 'first_fit' and 'best_fit'"),
            ({"padding": None}, "padding must be a value, as rows may need some"),
            ({"padding": [0]}, "padding must be a number"),
            ({"drop_remainder": 1}, "drop_remainder must be True or False, got 1"),
        ],
    )
    def test_invalid_arguments_are_refused(self, options: Any, said: str) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_items(sequences([1])).pack(4, **options)
        assert str(caught.value).startswith(f"pack: {said}")

    @pytest.mark.parametrize(
        ("item", "said"),
        [
            (3, "element: a single number is not a sequence that can be packed"),
            ("text", "element: text is not a sequence that can be packed"),
            (["a", "b"], "element: text is not a sequence that can be packed"),
            ({"x": np.zeros(2), "y": 1}, "element.y: a single number is not a sequence"),
            (np.zeros(2, np.uint8), "element: padding must be a value that uint8 has, got -1"),
        ],
    )
    def test_elements_known_not_to_be_sequences_are_refused(self, item: Any, said: str) -> None:
        flow: Any = fl.from_items([item])
        with pytest.raises(InvalidFlow, match=said):
            flow.pack(4, padding=-1 if isinstance(item, np.ndarray) else 0)

    @pytest.mark.parametrize("fit", FITS)
    def test_a_sequence_that_is_too_long_is_named(self, fit: Any) -> None:
        flow = fl.from_items(sequences([2, 5])).map(_same)
        with pytest.raises(ElementError) as caught:
            flow.pack(4, fit).collect()
        assert caught.value.origin == "row 1 of from_items(2 items)"
        assert "a sequence of 5 entries is longer than a row of 4" in str(caught.value.__cause__)
        rows = flow.pack(4, fit, too_long="split").collect()
        assert [parts(row) for row in rows] == [[[3, 4, 5, 6]], [[1, 2], [7]]]

    @pytest.mark.parametrize("item", [None, 7, "text", (), {1}, np.float32(2)])
    def test_an_element_that_is_no_sequence_is_named(self, item: Any) -> None:
        flow: Any = fl.from_range(3).map(lambda i: item if i == 1 else np.arange(2))
        with pytest.raises(ElementError) as caught:
            flow.pack(4).collect()
        assert caught.value.origin == "row 1 of from_range(3)"
        assert isinstance(caught.value.__cause__, SpecMismatch)

    def test_components_of_different_length_are_an_error(self) -> None:
        flow = fl.from_range(2).map(lambda i: {"ids": np.arange(3), "mask": np.ones(3 + i)})
        with pytest.raises(ElementError) as caught:
            flow.pack(4).collect()
        assert caught.value.origin == "row 1 of from_range(2)"
        assert str(caught.value.__cause__) == (
            "element.ids has 3 entries, element.mask has 4: the components of a sequence must be "
            "equally long"
        )

    def test_dtypes_are_never_cast(self) -> None:
        flow: Any = fl.from_range(2).map(lambda i: np.zeros(2, (np.int32, np.int64)[i]))
        with pytest.raises(ElementError) as caught:
            flow.pack(4).collect()
        assert caught.value.origin == "row 0 of from_range(2) and 1 more of its row"
        assert "int64" in str(caught.value.__cause__)


def test_titles() -> None:
    flow = fl.from_items(sequences([1]))
    titles = {
        "pack(4)": flow.pack(4),
        "pack(4, padding=-1, drop_remainder=True)": flow.pack(4, padding=-1, drop_remainder=True),
        "pack(4, 'best_fit')": flow.pack(4, "best_fit", bins=64),
        "pack(4, 'first_fit', bins=2, too_long='split')": flow.pack(
            4, "first_fit", bins=2, too_long="split"
        ),
    }
    assert {x.node.title for x in titles.values()} == set(titles)


def test_many_and_few_sequences_in_a_row_are_numbered_alike() -> None:
    for count in (3, 40):
        (row,) = fl.from_items(sequences([2] * count)).pack(2 * count).collect()
        assert row.segment_ids.tolist() == [1 + k // 2 for k in range(2 * count)]
        assert row.positions.tolist() == [0, 1] * count
