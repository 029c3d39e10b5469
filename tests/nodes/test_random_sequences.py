"""Random sequences of parts: counts, order, random access and distribution."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowdsl.nodes import Positions
from flowdsl.nodes.random_sequences import LEAF, MAX_ROWS_TO_MIX, Draws, Independent, Mixed

seeds = st.integers(0, 5)
# Small ones, and some that take several leaves of the tree.
rows = st.lists(st.one_of(st.integers(0, 9), st.integers(0, 3 * LEAF)), min_size=1, max_size=4).map(
    tuple
)
weights = st.lists(st.floats(0.05, 1), min_size=1, max_size=4).map(
    lambda some: tuple(w / sum(some) for w in some)
)


def sequence(draws: Draws, n: int) -> list[int]:
    return list(islice(draws.parts(), n))


@settings(deadline=None)
@given(rows, seeds)
def test_mixed_sequence_has_the_counts_of_each_part(counts: tuple[int, ...], seed: int) -> None:
    parts = sequence(Mixed(seed, "1", 0, counts), sum(counts)) if sum(counts) else []
    assert tuple(np.bincount(parts, minlength=len(counts)).tolist()) == counts


@settings(deadline=None)
@given(rows, seeds, st.randoms(use_true_random=False))
def test_any_position_of_a_mixed_sequence_is_computed_alone(
    counts: tuple[int, ...], seed: int, random: object
) -> None:
    total = sum(counts)
    if not total:
        return
    draws = Mixed(seed, "1", 0, counts)
    check_places(draws, sequence(draws, total), np.random.default_rng(seed).permutation(total))


@settings(deadline=None)
@given(weights, seeds)
def test_any_position_of_an_independent_sequence_is_computed_alone(
    chances: tuple[float, ...], seed: int
) -> None:
    draws = Independent(seed, "1", 0, chances)
    total = 2 * LEAF + 7
    check_places(draws, sequence(draws, total), np.random.default_rng(seed).permutation(total))


def check_places(draws: Draws, whole: list[int], places: Positions) -> None:
    seen = [0] * 4
    ranks: list[int] = []
    for k in whole:
        ranks.append(seen[k])
        seen[k] += 1
    part, rank = draws.locate(places)
    assert part.tolist() == [whole[i] for i in places]
    assert rank.tolist() == [ranks[i] for i in places]
    if isinstance(draws, Mixed):
        for k in range(len(draws.rows)):
            assert draws.positions_of(k, rank[part == k]).tolist() == places[part == k].tolist()
    for i in places[:20].tolist():
        assert draws.position_of(whole[i], ranks[i]) == i
        before = np.bincount(whole[:i], minlength=len(draws.counts(0)))
        assert draws.counts_before(i).tolist() == before.tolist()


def test_locating_no_positions_returns_empty_arrays() -> None:
    none = np.empty(0, np.int64)
    part, rank = Mixed(0, "1", 0, (0, 0)).locate(none)
    assert (len(part), len(rank)) == (0, 0)
    assert len(Mixed(0, "1", 0, (0, 0)).positions_of(1, none)) == 0


@pytest.mark.parametrize("size", [40 * LEAF + 3, 10**7, MAX_ROWS_TO_MIX - 1])
def test_positions_of_agrees_with_position_of(size: int) -> None:
    draws = Mixed(2, "1", 0, (size // 10, size - size // 10))
    rank = np.random.default_rng(0).integers(0, size // 10, 60)
    found = draws.positions_of(0, rank)
    assert found.tolist() == [draws.position_of(0, i) for i in rank.tolist()]
    part, again = draws.locate(found)
    assert (part == 0).all()
    assert again.tolist() == rank.tolist()


@pytest.mark.parametrize("size", [4, LEAF, LEAF + 1, 2 * LEAF + 3])
def test_all_mixed_orders_are_equally_likely(size: int) -> None:
    """The frequency of the first part at a position, and at two neighbours, over many seeds."""
    counts = (size // 4, size - size // 4)
    places = np.array([0, 1, size // 2, size - 2, size - 1])
    trials = 4000 if size == 4 else 600
    got = np.array([Mixed(seed, "1", 0, counts).locate(places)[0] for seed in range(trials)])
    share = counts[0] / size
    error = 4.5 * np.sqrt(share * (1 - share) / trials)
    assert np.all(np.abs((got == 0).mean(axis=0) - share) < error)
    pair = share * (counts[0] - 1) / (size - 1)
    both = ((got[:, 0] == 0) & (got[:, 1] == 0)).mean()
    assert abs(both - pair) < 4.5 * np.sqrt(max(pair, 1e-3) / trials)


def test_neighbouring_draws_are_independent() -> None:
    """Counts of pairs of neighbours, also across the borders of leaves."""
    draws = Independent(3, "1", 0, (0.5, 0.3, 0.2))
    parts = np.array(sequence(draws, 40 * LEAF))
    pairs = np.bincount(3 * parts[:-1] + parts[1:], minlength=9)
    expected = np.outer((0.5, 0.3, 0.2), (0.5, 0.3, 0.2)).ravel() * len(parts)
    assert float(((pairs - expected) ** 2 / expected).sum()) < 30  # chi-squared, 8 degrees
    of_leaves = parts.reshape(-1, LEAF)[:, 0]  # the first of each: no leaf repeats another
    assert len({tuple(leaf) for leaf in parts.reshape(-1, LEAF).tolist()}) == 40
    assert len(set(of_leaves.tolist())) == 3


@pytest.mark.parametrize(
    "other",
    [
        Independent(1, "1", 0, (0.5, 0.5)),
        Independent(0, "2", 0, (0.5, 0.5)),
        Independent(0, "1", 1, (0.5, 0.5)),
    ],
)
def test_seed_salt_and_epoch_change_the_sequence(other: Draws) -> None:
    assert sequence(Independent(0, "1", 0, (0.5, 0.5)), 99) != sequence(other, 99)


def test_blocks_cover_all_positions_once() -> None:
    draws = Independent(0, "1", 0, (1.0,))
    end = 0
    for block in range(40):
        low, size = draws.span(block)
        assert low == end
        assert draws.block_at(low) == draws.block_at(low + size - 1) == block
        assert sum(draws.counts(block)) == size < MAX_ROWS_TO_MIX
        end = low + size


def test_far_positions_are_located_like_near_ones() -> None:
    """Beyond the first block, whose end leaves no gap."""
    draws = Independent(0, "1", 0, (0.9, 0.1))
    end = 2**29
    part, rank = draws.locate(np.arange(3 * end - 40, 3 * end + 40))
    for k in range(2):
        held = rank[part == k]
        assert held.tolist() == list(range(held[0], held[0] + len(held)))
    assert draws.counts_before(3 * end).sum() == 3 * end
    assert abs(draws.counts_before(3 * end)[1] / (3 * end) - 0.1) < 1e-4
    assert draws.position_of(1, int(draws.counts_before(3 * end)[1])) >= 3 * end
