"""A short run of the chaos tests; ``make chaos`` runs all of them."""

from __future__ import annotations

import pytest

from tests.chaos.cases import case_of
from tests.chaos.trials import Tally, try_case


def test_random_pipelines_survive_random_faults(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    for number in range(25):
        try:
            try_case(case_of(number), tally)
        except Exception as error:
            pytest.fail(f"seed {number}: {error}\n{case_of(number)}")
    assert tally.deaths > tally.pipelines / 2


@pytest.mark.slow
def test_random_pipelines_with_processes_survive_random_faults(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tally = Tally()
    for number in range(1000, 1002):
        try_case(case_of(number), tally, real=True)
    assert tally.with_processes == 2
