"""The generator of an element, and the permutation of a shuffle."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowdsl.nodes import epoch_of_pass, generator, integers, permute, uniform

keys = st.text(max_size=8)


def _order(n: int, key: str) -> list[int]:
    return list(permute(np.arange(n, dtype=np.int64), n, key).tolist())


class TestPermute:
    @given(st.integers(0, 300) | st.integers(1000, 3000), keys)
    def test_permute_is_a_permutation(self, n: int, key: str) -> None:
        assert sorted(_order(n, key)) == list(range(n))

    @given(st.integers(1, 300) | st.integers(1000, 3000), keys, st.data())
    def test_positions_are_permuted_independently_of_others(
        self, n: int, key: str, data: st.DataObject
    ) -> None:
        order = _order(n, key)
        some = data.draw(st.lists(st.integers(0, n - 1)))
        alone = permute(np.array(some, np.int64), n, key)
        assert alone.tolist() == [order[i] for i in some]
        assert alone.dtype == np.int64

    @pytest.mark.parametrize("n", [2**31 + 7, 2**40, 2**60 - 1])
    def test_permute_handles_ranges_larger_than_memory(self, n: int) -> None:
        some = np.arange(1000) * (n // 1000)
        moved = permute(some, n, "key")
        assert len(np.unique(moved)) == 1000
        assert moved.min() >= 0
        assert moved.max() < n

    def test_all_orders_of_five_are_equally_likely(self) -> None:
        trials = 120 * 100
        seen = Counter(tuple(_order(5, f"key {i}")) for i in range(trials))
        assert len(seen) == 120
        chi_square = sum((count - 100) ** 2 / 100 for count in seen.values())
        assert chi_square < 173.6  # 119 degrees of freedom: one in a thousand is larger

    @pytest.mark.parametrize("n", [64, 65, 100, 1025, 1500])
    def test_every_position_is_mapped_uniformly(self, n: int) -> None:
        orders = np.array([_order(n, f"key {i}") for i in range(400)])
        spread = np.sqrt((n**2 - 1) / 12)
        for axis_mean in (orders.mean(axis=0), np.array([o.argsort() for o in orders]).mean(0)):
            assert np.abs(axis_mean - (n - 1) / 2).max() < 4.5 * spread / np.sqrt(400)
        assert abs((orders == np.arange(n)).sum() / 400 - 1) < 0.25  # one fixed point on average

    def test_neighbours_are_separated(self) -> None:
        moved = np.array(_order(10_000, "key"))
        assert abs(np.corrcoef(moved[:-1], moved[1:])[0, 1]) < 0.05


class TestGenerator:
    def test_generator_depends_only_on_its_arguments(self) -> None:
        for place in [(0, 0, 0, 0), (7, 3, 2, 10**12)]:
            assert generator(*place).random() == generator(*place).random()

    def test_generator_differs_for_each_argument(self) -> None:
        places = {
            (a, b, c, d) for a in range(4) for b in range(4) for c in range(4) for d in range(4)
        }
        places |= {(11, 1, 1, 1), (1, 11, 1, 1), (1, 1, 11, 1)}  # and digits do not run together
        assert len({generator(*place).integers(2**62) for place in places}) == len(places)

    def test_generator_accepts_seeds_of_any_size(self) -> None:
        assert generator(2**100, 0, 0, 0).random() != generator(2**100 + 1, 0, 0, 0).random()

    def test_generators_of_neighbours_are_uncorrelated(self) -> None:
        draws = np.array([generator(0, 0, 0, i).random(100) for i in range(200)])
        correlation = np.corrcoef(draws) - np.eye(200)
        assert np.abs(correlation).max() < 0.55  # 5.5 deviations of 1/sqrt(100)
        assert abs(draws.mean() - 0.5) < 0.01


class TestEpochOfPass:
    def test_epoch_of_pass_counts_passes_in_the_first_epoch(self) -> None:
        assert epoch_of_pass(np.zeros(5, np.int64), np.arange(5)).tolist() == [0, 1, 2, 3, 4]

    def test_epoch_of_pass_is_unique_for_every_epoch_and_pass(self) -> None:
        epoch, passes = (axis.ravel() for axis in np.mgrid[0:100, 0:100])
        inner = epoch_of_pass(epoch, passes)
        assert len(np.unique(inner)) == 10_000
        assert inner.dtype == np.int64
        assert inner.min() >= 0

    def test_epoch_of_pass_is_unique_for_nested_repeats(self) -> None:
        epoch, outer, inner = (axis.ravel() for axis in np.mgrid[0:20, 0:20, 0:20])
        nested = epoch_of_pass(epoch_of_pass(epoch, outer), inner)
        late = nested[(epoch > 0)]
        assert len(np.unique(late)) == len(late)


class TestDraws:
    @pytest.mark.parametrize("n", [1, 3, 4, 7])
    def test_ints_below_n_are_equally_likely(self, n: int) -> None:
        drawn = np.bincount(integers(np.arange(50_000), n, "key"), minlength=n)
        assert drawn.sum() == 50_000
        assert drawn / 50_000 == pytest.approx([1 / n] * n, abs=0.01)

    @given(st.integers(1, 2**62), keys, st.integers(0, 2**62))
    def test_an_int_depends_on_its_position_alone(self, n: int, key: str, position: int) -> None:
        several = integers(np.array([position, position // 2]), n, key)
        assert 0 <= several[0] < n
        assert integers(np.array([position]), n, key)[0] == several[0]

    def test_floats_are_uniform_and_below_one(self) -> None:
        drawn = uniform(np.arange(50_000), "key")
        assert 0 <= drawn.min() < drawn.max() < 1
        assert np.histogram(drawn, 10, (0, 1))[0] / 50_000 == pytest.approx([0.1] * 10, abs=0.01)

    def test_draws_of_neighbours_and_keys_are_uncorrelated(self) -> None:
        one, other = uniform(np.arange(10_000), "one"), uniform(np.arange(10_000), "other")
        assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 0.05
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.05


def test_drawing_an_int_below_zero_is_an_error_and_no_endless_loop() -> None:
    assert integers(np.arange(0), 0, "key").tolist() == []
    with pytest.raises(ValueError, match="no int is at least 0 and below 0"):
        integers(np.arange(2), 0, "key")
