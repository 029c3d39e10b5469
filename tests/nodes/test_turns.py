"""Fixed sequences of turns: any position is computed alone, and each part has its share."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flowdsl.nodes.turns import LONGEST_CYCLE, Cycle, Halved, RoundRobin, Turns, proportional

shares = st.lists(
    st.one_of(st.integers(1, 30), st.floats(1e-3, 1)).map(lambda w: Fraction(str(w))),
    min_size=1,
    max_size=12,
).map(tuple)
cycles = st.lists(st.integers(1, 100), min_size=2, max_size=8).map(tuple)
sequences = st.one_of(
    shares.map(Halved),
    cycles.map(Cycle),
    st.builds(RoundRobin, st.integers(1, 5), st.integers(1, 4)),
)
SIZE = 300


@given(sequences, st.integers(0, SIZE - 1))
def test_any_position_of_a_sequence_is_computed_alone(turns: Turns, i: int) -> None:
    whole = list(islice(turns.parts(), SIZE))
    part, rank = turns.locate(np.array([i, 0]))
    assert part.tolist() == [whole[i], whole[0]]
    assert rank.tolist() == [whole[:i].count(whole[i]), 0]
    counts = turns.counts_before(i).tolist()
    assert counts == [whole[:i].count(k) for k in range(len(counts))]


@given(sequences, st.integers(1, SIZE))
def test_the_first_prefix_with_a_property_is_found(turns: Turns, n: int) -> None:
    assert turns.first(lambda counts: int(counts.sum()) >= n) == n


@given(shares, st.integers(0, 2**60))
def test_each_part_has_its_share_of_any_prefix(weights: tuple[Fraction, ...], n: int) -> None:
    counts = Halved(weights).counts_before(n)
    total, most = sum(weights), 1 if len(weights) <= 3 else 2
    for count, weight in zip(counts.tolist(), weights, strict=True):
        assert abs(count - n * weight / total) <= most + n / 10**18 * len(weights)


@given(cycles, st.integers(0, 2**40))
def test_each_part_of_a_cycle_is_within_one_of_its_share(weights: tuple[int, ...], n: int) -> None:
    turns = proportional(tuple(map(Fraction, weights)))
    assert isinstance(turns, Cycle)
    start = n - n % sum(turns.weights)
    total, most = sum(weights), 1 - Fraction(1, 2 * len(weights) - 2)
    counts = turns.counts_before(start)
    for k, part in enumerate(islice(turns.parts(), sum(turns.weights)), start + 1):
        counts[part] += 1
        for count, weight in zip(counts.tolist(), weights, strict=True):
            assert abs(count - Fraction(k * weight, total)) <= most


def test_weights_of_a_long_cycle_are_arithmetic() -> None:
    assert isinstance(proportional((Fraction(1, 3), Fraction(2, 3))), Cycle)
    assert isinstance(proportional((Fraction(1), Fraction(LONGEST_CYCLE - 1))), Cycle)
    assert isinstance(proportional((Fraction(1), Fraction(LONGEST_CYCLE))), Halved)


def test_whole_numbers_of_turns_are_exact_after_each_cycle() -> None:
    turns = proportional((Fraction(5), Fraction(3), Fraction(2)))
    assert list(islice(turns.parts(), 10)) == [0, 1, 0, 2, 0, 1, 0, 2, 0, 1]
    assert turns.counts_before(10**17).tolist() == [5 * 10**16, 3 * 10**16, 2 * 10**16]


def test_equal_shares_take_turns_from_the_first_part() -> None:
    for n in (2, 4, 8):
        turns = Halved((Fraction(1),) * n)
        assert {*islice(turns.parts(), n)} == {*range(n)}
        assert next(turns.parts()) == 0
