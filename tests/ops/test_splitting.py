"""split: disjoint parts of all rows, in order, the same in every epoch and at any position."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import comb
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Flow, InvalidFlow
from flowdsl.nodes.random_sequences import LEAF, MAX_ROWS_TO_MIX
from flowdsl.plan.reference import interpret
from tests.states import changed
from tests.waiting import soonest

AnyFlow = Flow[Any, Any]

seeds = st.integers(0, 5)
sizes = st.one_of(st.integers(4, 40), st.integers(LEAF - 2, 3 * LEAF))
shares = st.lists(st.floats(0.05, 0.3), min_size=1, max_size=3)


@settings(deadline=None)
@given(st.one_of(st.integers(60, 90), st.integers(LEAF - 2, 40 * LEAF)), shares, seeds)
def test_parts_are_disjoint_complete_and_in_order(n: int, shares: list[float], seed: int) -> None:
    parts = fl.from_range(n).split(*shares, seed=seed)
    rows = [part.collect() for part in parts]
    assert sorted(i for part in rows for i in part) == list(range(n))
    assert all(part == sorted(part) for part in rows)
    assert [len(part) for part in parts] == [len(part) for part in rows]
    assert all(part.effects == frozenset() for part in parts)
    for size, share in zip(map(len, rows), shares, strict=False):
        assert abs(size - share * n) <= 1
    assert [list(interpret(part.node, 0)) for part in parts] == rows


@given(st.integers(2, 30), st.data(), seeds)
def test_parts_have_the_requested_numbers_of_rows(n: int, data: st.DataObject, seed: int) -> None:
    first = data.draw(st.integers(1, n - 1))
    one, rest = fl.from_range(n).split(first, seed=seed)
    assert (len(one), len(rest)) == (first, n - first)


@pytest.mark.parametrize(
    ("n", "shares", "counts"),
    [
        (10, (0.8,), (8, 2)),
        (10, (0.7, 0.1), (7, 1, 2)),
        (359, (0.8,), (287, 72)),
        (9, (0.3, 0.3, 0.3), (3, 2, 3, 1)),  # the ends are at 2.7, 5.4 and 8.1
        (10, (3, 0.5), (3, 5, 2)),
        (10, (0.25, 3, 0.25), (2, 3, 3, 2)),
        (2, (1,), (1, 1)),
        (2, (0.5,), (1, 1)),
    ],
)
def test_shares_are_rounded_at_their_ends(
    n: int, shares: tuple[float, ...], counts: tuple[int, ...]
) -> None:
    assert tuple(map(len, fl.from_range(n).split(*shares))) == counts


def test_every_epoch_has_the_same_rows_in_a_part() -> None:
    train, held_out = fl.from_range(1797).split(0.8, seed=1)
    seen = {i for run in train.shuffle(seed=3).repeat(2).epochs(3) for i in run}
    checked = {i for run in held_out.shuffle(seed=4).epochs(3) for i in run}
    assert len(seen) == 1438
    assert len(checked) == 359
    assert seen | checked == set(range(1797))


def test_operators_below_run_in_the_current_epoch() -> None:
    noisy = fl.from_range(9).random_map(lambda i, rng: (i, rng.random()))
    part, _ = noisy.split(5)
    for k in range(2):
        assert list(part.epoch(k)) == [x for x in noisy.epoch(k) if x[0] in part.map(fl.c0)]
    assert list(part.epoch(0)) != list(part.epoch(1))


@settings(deadline=None)
@given(sizes, st.floats(0.2, 0.8), seeds)
def test_the_choice_depends_only_on_seed_and_length(n: int, share: float, seed: int) -> None:
    plain = fl.from_range(n)
    deep = plain.map(lambda i: -i).map(lambda i: -i).prefetch().skip(0)
    cached = fl.from_items(range(n)).cache()
    for one, other, kept in zip(
        *(flow.split(share, seed=seed) for flow in (plain, deep, cached)), strict=True
    ):
        assert one.collect() == other.collect() == kept.collect()
        assert one.node.indexable
        assert not kept.node.indexable


def test_images_and_labels_correspond() -> None:
    images, labels = fl.from_range(50).map(lambda i: i * i), fl.from_range(50).map(str)
    for some, theirs in zip(images.split(0.3, seed=4), labels.split(0.3, seed=4), strict=True):
        assert [int(label) ** 2 for label in theirs] == some.collect()
        assert len(some.zip(theirs)) == len(some)


def test_different_seeds_choose_different_rows() -> None:
    chosen = {tuple(fl.from_range(30).split(15, seed=seed)[0]) for seed in range(20)}
    assert len(chosen) == 20


def test_all_choices_are_equally_likely() -> None:
    """Choices of four among eight rows, over many seeds: chi-squared, 69 degrees of freedom."""
    trials = 3500
    seen = Counter(tuple(fl.from_range(8).split(4, seed=seed)[0]) for seed in range(trials))
    choices = list(combinations(range(8), 4))
    expected = trials / comb(8, 4)
    chi = sum((seen[choice] - expected) ** 2 / expected for choice in choices)
    assert sum(seen[choice] for choice in choices) == trials
    assert 35 < chi < 115  # values outside have a probability below one in a thousand


def test_every_row_is_equally_likely_in_each_part() -> None:
    """Also across the borders of leaves."""
    n, trials = 2 * LEAF + 100, 300
    counts = np.zeros((3, n))
    for seed in range(trials):
        for k, part in enumerate(fl.from_range(n).split(0.5, 0.2, seed=seed)):
            counts[k, part.collect()] += 1
    for row, share in zip(counts, (0.5, 0.2, 0.3), strict=True):
        chi = ((row - share * trials) ** 2).sum() / (trials * share * (1 - share))
        assert abs(chi - n) < 4.5 * np.sqrt(2 * n)


def test_the_rows_are_the_same_in_every_release() -> None:
    """Held-out rows must stay held out: another NumPy version must not draw other rows."""
    _, held_out = fl.from_range(10).split(0.8, seed=1)
    assert held_out.collect() == [2, 7]
    _, some, _ = fl.from_range(5000).split(0.5, 5, seed=3)
    assert some.collect() == [170, 225, 2575, 3065, 3862]
    part, _ = fl.from_range(MAX_ROWS_TO_MIX - 1).split(0.5, seed=3)
    assert part.skip(3 * 10**8).take(3).collect() == [599999693, 599999694, 599999698]


def test_split_reads_late_at_a_thousand_million_rows() -> None:
    flow = fl.from_range(MAX_ROWS_TO_MIX - 1)
    train, held_out = flow.split(0.8, seed=5)
    assert (len(train), len(held_out)) == (799_999_999, 200_000_000)
    state = changed(iter(train).state_dict(), position=600_000_000)
    at = next(train.resume(state))
    assert abs(at / 750_000_000 - 1) < 1e-3
    near = train.skip(600_000_000).take(2000).collect()
    far = held_out.skip(at - 600_000_000 - 1000).take(2000).collect()
    assert near == sorted(near)
    assert not set(near) & set(far)
    inside = range(max(near[0], far[0]), min(near[-1], far[-1]))
    assert len(inside) > 500
    assert set(inside) <= {*near, *far}


def test_split_resumes_at_once() -> None:
    train, _ = fl.from_range(MAX_ROWS_TO_MIX - 1).split(0.8, seed=6)
    places = iter(range(7, 799_999_999, 10_000_000))  # nothing was looked up there before

    def attempt() -> float:
        began = perf_counter()
        train.node.origin(0, next(places))
        return perf_counter() - began

    assert soonest(attempt, 0.05) < 0.05  # walking there takes minutes


def test_split_below_a_shuffle_reads_only_requested_rows() -> None:
    read: list[int] = []

    def note(i: int) -> int:
        read.append(i)
        return i

    train, _ = fl.from_range(10**6).map(note).split(0.9)
    got = train.shuffle(seed=2).take(3).collect()
    assert read == got


def test_split_of_a_stream_leaves_other_rows_out() -> None:
    class Counted:
        passes = 0

        def __call__(self, i: int) -> int:
            Counted.passes += 1
            return i

    flow = fl.from_range(20).map(Counted()).cache()
    train, held_out = flow.split(15)
    assert sorted([*train, *held_out]) == list(range(20))
    assert Counted.passes == 20  # one pass filled the cache for both
    assert train.prefetch(procs=2).collect() == train.collect()


def test_workers_read_only_the_rows_of_the_part() -> None:
    train, held_out = fl.from_range(3000).map(abs).split(0.8, seed=3)
    for part in (train, held_out):
        assert part.batch(7, collate=list).prefetch(procs=2).collect() == (
            part.batch(7, collate=list).collect()
        )


def test_a_state_distinguishes_the_parts() -> None:
    train, held_out = fl.from_range(10).split(0.5)
    with pytest.raises(fl.StateMismatch):
        held_out.resume(iter(train).state_dict())
    again, _ = fl.from_range(10).split(0.5)
    run = iter(train)
    first = next(run)
    assert [first, *again.resume(run.state_dict())] == train.collect()


def test_errors_name_the_row() -> None:
    part, _ = fl.from_range(10).split(0.8, seed=1)
    row = part.collect()[5]
    with pytest.raises(fl.ElementError) as caught:
        part.map(lambda i: 1 // (i - row)).collect()
    assert caught.value.origin == f"row {row} of from_range(10)"


def test_split_title() -> None:
    shares: Any = (np.float64(0.5), np.int64(3))
    seed: Any = np.int64(1)
    parts = fl.from_range(10).split(*shares, seed=seed)
    assert repr(parts[1]) == "from_range(10).split(0.5, 3, seed=1)[1]"
    assert eval(repr(parts[1]), {**vars(fl)}).collect() == parts[1].collect()


@pytest.mark.parametrize(
    "bad", [0, 0.0, 1.0, -0.5, -3, 80.0, True, "0.8", None, float("nan"), [0.5]]
)
def test_split_refuses_invalid_parts(bad: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(10).split(0.1, bad)
    assert str(caught.value) == (
        f"split: a part must be a share above 0 and below 1, or a number of rows >= 1, got {bad!r}"
    )


@pytest.mark.parametrize(
    ("shares", "counts"),
    [((8, 5), "8, 5 and -3"), ((10,), "10 and 0"), ((0.01,), "0 and 10"), ((0.99,), "10 and 0")],
)
def test_split_refuses_empty_parts(shares: tuple[float, ...], counts: str) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(10).split(*shares)
    assert str(caught.value) == (
        f"split: from_range(10) has 10 rows, and {', '.join(map(str, shares))} would make parts "
        f"of {counts}; each needs at least one row"
    )


def test_split_says_that_the_last_number_of_rows_is_left_out() -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(10).split(7, 3)
    assert str(caught.value) == (
        "split: from_range(10) has 10 rows, and 7, 3 would make parts of 7, 3 and 0; each needs at "
        "least one row; leave the last out, which gets the remaining rows"
    )


def test_split_refuses_shares_that_leave_no_rows() -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(10).split(0.8, 0.2)
    assert str(caught.value) == (
        "split: the shares 0.8 and 0.2 leave no rows for the last part, which gets the "
        "remaining rows; leave the last share out"
    )
    none: Any = ()
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(10).split(*none)
    assert str(caught.value) == (
        "split: pass every part but the last: shares such as split(0.8), or numbers of rows"
    )


def test_split_refuses_too_many_rows_and_invalid_seeds() -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(MAX_ROWS_TO_MIX).split(0.5)
    assert str(caught.value) == (
        "split: the flow may have at most 999,999,999 rows, got 1,000,000,000"
    )
    with pytest.raises(InvalidFlow, match="split: seed must be an int >= 0, got -1"):
        fl.from_range(9).split(0.5, seed=-1)


_CHANCE = "reorders the rows, so each epoch would have different rows in a part"
_TWICE = "may repeat rows or leave some out, so two parts could have a row in common"
_SIZE = "and a part is a share of all rows"


@pytest.mark.parametrize(
    ("flow", "named", "reason"),
    [
        (fl.from_range(9).shuffle(seed=3).map(abs), "shuffle(seed=3)", _CHANCE),
        (fl.from_range(9).shuffle().take(5), "shuffle()", _CHANCE),  # what came first
        (fl.from_range(9).repeat(2), "repeat(2)", _TWICE),
        (
            fl.from_range(9).batch(2, drop_remainder=True),
            "batch(2, drop_remainder=True)",
            _TWICE,
        ),
        (fl.from_range(9).repeat(), "repeat()", f"never ends, {_SIZE}"),
        (fl.from_range(9).filter(bool).map(abs), "filter(bool)", f"has no known length, {_SIZE}"),
        (
            fl.from_range(9).map(abs).prefetch(on_error="skip"),
            'on_error="skip"',
            f"has no known length, {_SIZE}",
        ),
    ],
    ids=str,
)
def test_split_refuses_flows_that_are_not_exact(flow: AnyFlow, named: str, reason: str) -> None:
    with pytest.raises(InvalidFlow) as caught:
        flow.split(0.5)
    assert str(caught.value) == (
        f"split: {named} {reason}; split first, then shuffle, repeat or filter each part"
    )
