"""Each case has the same outcome as in TensorFlow 1, recorded or run in another process."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from flowdsl.tensorflow import queues
from tests.tensorflow.queues.cases import CASES, MAX_EVALUATIONS, Case
from tests.tensorflow.queues.outcome import Outcome, from_json, plain

ROOT = Path(__file__).parents[3]
RECORDED = Path(__file__).with_name("outcomes.json")


class OurApi:
    def __getattr__(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(queues, name)
        return function

    def apply(self, function: Callable[..., Any], *tensors: Any) -> Any:
        return queues.apply(function, *tensors)


def outcome_of(case: Case) -> Outcome:
    """Run a case with our functions, within a TensorFlow function."""
    try:
        made = case.make(OurApi())
    except Exception as error:
        return Outcome(type(error).__name__, str(error))
    if isinstance(made, queues.FilledQueue):
        made = queues.apply(made.dequeue)
    parts = made if isinstance(made, (list, tuple, dict)) else [made]
    shapes = [x.shape.as_list() for x in (parts.values() if isinstance(parts, dict) else parts)]
    step = tf.function(lambda: queues.evaluate(made))
    seen: list[Any] = []
    ended = ""
    with queues.running(made):
        try:
            while len(seen) < MAX_EVALUATIONS:
                seen.append(plain(step()))
        except tf.errors.OpError as error:
            ended = type(error).__name__
    return Outcome(ended, "", shapes, seen)


@pytest.fixture(scope="module", params=["recorded", pytest.param("new", marks=pytest.mark.long)])
def theirs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    if request.param == "recorded":
        return from_json(RECORDED.read_text())
    path = tmp_path_factory.mktemp("v1") / "outcomes.json"
    command = [sys.executable, "-m", "tests.tensorflow.queues.v1", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return from_json(path.read_text())


def sampled() -> list[Any]:
    """Return all cases; ``make long`` runs two of three.

    Of grids, whose names have numbers, it runs eleven of twelve.
    """
    grids = [case for case in CASES if re.search(r"\d", case.name)]
    others = [case for case in CASES if case not in grids]
    later = {case.name for number, case in enumerate(grids) if number % 12}
    later |= {case.name for number, case in enumerate(others) if number % 3}
    return [
        pytest.param(case, marks=pytest.mark.long if case.name in later else [], id=case.name)
        for case in CASES
    ]


def test_queue_cases_are_numerous() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 150


@pytest.mark.parametrize("case", sampled())
def test_queues_behave_as_in_tensorflow_1(case: Case, theirs: dict[str, Outcome]) -> None:
    expected, got = theirs[case.name], outcome_of(case)
    assert got.error == expected.error, (got.message, expected.message)
    assert case.about in got.message
    assert case.about in expected.message
    assert got.shapes == expected.shapes
    if case.order == "same":
        assert got.evaluations == expected.evaluations
        return
    assert sizes(got) == sizes(expected)
    if case.order == "any" and "smaller" not in case.name:  # what is left at the end is dropped
        return
    rows, others = rows_of(got), rows_of(expected)
    assert Counter(rows) == Counter(others)
    if case.order == "epochs":
        n = len({*rows}) if "string" not in case.name else 4
        for k in range(0, len(rows), n):
            assert Counter(rows[k : k + n]) == Counter(others[k : k + n])


def sizes(outcome: Outcome) -> list[list[int]]:
    return [
        [len(part) if isinstance(part, list) else 0 for part in _parts(one)]
        for one in outcome.evaluations
    ]


def rows_of(outcome: Outcome) -> list[str]:
    """Each row of each evaluation, or each evaluation that is no batch."""
    rows: list[str] = []
    for one in outcome.evaluations:
        parts = _parts(one)
        if outcome.shapes[0][:1] == [None] and all(isinstance(part, list) for part in parts):
            rows += [repr(row) for row in zip(*parts, strict=True)]
        else:
            rows.append(repr(one))
    return rows


def _parts(one: Any) -> list[Any]:
    if isinstance(one, dict):
        return list(one.values())
    nested = isinstance(one, list) and all(isinstance(part, list) for part in one)
    return one if nested else [one]
