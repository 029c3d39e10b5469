"""A short run of the fuzzers of plans and states; ``make fuzz`` runs all of them."""

from __future__ import annotations

import random

import pytest

from tests.workers.fuzz import alter_plan, alter_state


@pytest.mark.slow
def test_an_altered_plan_is_refused_or_harmless() -> None:
    assert {alter_plan(random.Random(seed)) for seed in range(6)} <= {
        "refused",
        "the same elements",
    }


def test_an_altered_state_is_refused() -> None:
    outcomes = [alter_state(random.Random(seed)) for seed in range(100)]
    assert outcomes.count("refused") > 80
