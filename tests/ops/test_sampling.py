"""sample: frequencies, epochs, and what is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import InvalidFlow, Reordered, Resampled
from tests.ops.passes import passes, reference, resolved

N = 100_000


def _frequencies(flow: Any, of: int) -> list[float]:
    found = Counter(flow.batch(N).collect()[0].tolist())
    return [found[x] / len(flow) for x in range(of)]


def test_uniform_draws_are_alike() -> None:
    for n in (1, 3, 4, 5):
        assert _frequencies(fl.from_range(n).sample(N), n) == pytest.approx([1 / n] * n, abs=0.01)


def test_weighted_draws_follow_the_weights() -> None:
    flow = fl.from_range(5).sample(N, weights=[0, 1, 2, 7, 0])
    assert _frequencies(flow, 5) == pytest.approx([0, 0.1, 0.2, 0.7, 0], abs=0.01)


def test_weights_of_any_size_are_relative() -> None:
    flow = fl.from_range(3).sample(N, weights=[1e308, 1e308, 5e-324])
    assert _frequencies(flow, 3) == pytest.approx([0.5, 0.5, 0], abs=0.01)


def test_each_element_comes_at_most_once_without_replacement() -> None:
    for weights in (None, np.arange(1, 51)):
        flow = fl.from_range(50).sample(50, weights, replacement=False)
        assert sorted(flow) == list(range(50))
        assert list(flow) != list(flow.epoch(1))


def test_weighted_draws_without_replacement_are_drawn_one_after_another() -> None:
    weights = [1, 2, 7]
    flow = fl.from_range(3).sample(2, weights, replacement=False)
    found = Counter(tuple(flow.epoch(k)) for k in range(2000))
    for (one, other), times in found.items():
        left = 10 - weights[one]
        chance = weights[one] / 10 * weights[other] / left
        assert times / 2000 == pytest.approx(chance, abs=0.035)


def test_a_tiny_weight_is_drawn_last() -> None:
    flow = fl.from_range(3).sample(3, [5e-324, 1, 1], replacement=False)
    assert list(flow)[-1] == 0


@given(st.integers(1, 9), st.integers(0, 9), st.booleans(), st.booleans())
def test_samples_resolve_to_the_reference(
    length: int, n: int, weighted: bool, replacement: bool
) -> None:
    n = n if replacement else min(n, length)
    weights = list(range(1, length + 1)) if weighted else None
    flow = fl.from_range(length).sample(n, weights, replacement=replacement, seed=3)
    assert resolved(flow) == passes(flow, 3) == reference(flow, 3)
    assert flow.effects == {Reordered, Resampled}
    assert len(flow) == n


def test_a_sample_of_many_rows_is_read_late() -> None:
    flow = fl.from_range(10**12).sample(10**15, seed=1)
    assert flow.at(10**15 - 1) == flow.at(-1) < 10**12
    few = fl.from_range(10**12).sample(3, replacement=False).collect()
    assert len(set(few)) == 3


def test_equal_samples_of_one_chain_draw_differently() -> None:
    once = fl.from_range(50).sample(50)
    assert once.collect() != fl.from_range(50).map(int).sample(50).collect()
    assert once.collect() != fl.from_range(50).sample(50, seed=1).collect()


def test_a_repeated_element_is_read_only() -> None:
    rows = fl.from_iterable([np.zeros(2)] * 2).fixed_size(2).shuffle(2)
    assert not any(x.flags.writeable for x in rows.sample(4))
    assert all(x.flags.writeable for x in fl.from_range(2).map(np.zeros).sample(2))


def test_a_state_distinguishes_weights() -> None:
    flow = fl.from_range(3)
    state = iter(flow.sample(2, [1, 2, 3])).state_dict()
    assert list(flow.sample(2, [1, 2, 3]).resume(state)) == list(flow.sample(2, [1, 2, 3]))
    for other in (flow.sample(2, [3, 2, 1]), flow.sample(2), flow.sample(3, [1, 2, 3])):
        with pytest.raises(fl.StateMismatch, match="sample"):
            other.resume(state)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((-1,), {}, "n must be an int >= 0, got -1"),
        ((2, "abc"), {}, "weights must be a list of numbers.* got 'abc'"),
        ((2, [1, 2]), {}, r"weights must be one number for each of the 3 .*\(3\), got 2"),
        ((2, [1, -2, 3]), {}, r"weights\[1\] is -2\.0; a weight must be a finite number >= 0"),
        ((2, [1, 2, np.nan]), {}, r"weights\[2\] is nan"),
        ((2, [1, 2, np.inf]), {}, r"weights\[2\] is inf"),
        ((2, [0, 0, 0]), {}, r"n is 2, and .* has 0 element\(s\) with a weight above 0"),
        (
            (2, [0, 0, 1]),
            {"replacement": False},
            r".*has 1 element\(s\) with a weight above 0",
        ),
        ((4,), {"replacement": False}, r"n is 4, and from_range\(3\) has 3 element\(s\); replace"),
        ((4,), {"replacement": 1}, "replacement must be True or False, got 1"),
        ((4,), {"seed": -1}, "seed must be an int >= 0"),
        ((), {"num_samples": 4}, r"there is no num_samples=; write sample\(4\)"),
    ],
)
def test_other_arguments_are_refused(
    arguments: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    flow: Any = fl.from_range(3)
    with pytest.raises(InvalidFlow, match=f"^sample: {message}"):
        flow.sample(*arguments, **options)


def test_a_flow_without_elements_has_an_empty_sample() -> None:
    assert fl.from_range(0).sample(0).collect() == []
    assert fl.from_range(0).sample(0, []).collect() == []
    assert fl.from_range(3).sample(0, [0, 0, 0]).collect() == []
    with pytest.raises(InvalidFlow, match=r"n is 1, and from_range\(0\) has 0 element\(s\)"):
        fl.from_range(0).sample(1)
