"""Cases of other libraries: what their users write, the flow for it, and what comes of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import numpy as np
import pytest

import flowdsl as fl


@attrs.frozen
class Refusal:
    """The outcome is an error of this class, whose message has these words."""

    error: type[Exception]
    words: str


@attrs.frozen
class Case:
    """A behaviour of another library, in a sentence."""

    behaviour: str
    theirs: str
    """What its users write."""
    ours: Callable[..., object]
    outcome: object


def table(*cases: Case) -> pytest.MarkDecorator:
    """Run a test with each case, under the name of its behaviour."""
    return pytest.mark.parametrize("case", cases, ids=[case.behaviour for case in cases])


def check(case: Case, *arguments: object) -> None:
    """The flow has the outcome; arrays are compared as lists."""
    if isinstance(case.outcome, Refusal):
        with pytest.raises(case.outcome.error, match=re.escape(case.outcome.words)):
            plain(case.ours(*arguments))
    else:
        assert plain(case.ours(*arguments)) == case.outcome


def check_resumes(flow: fl.Flow[Any, Any], stops: Iterable[int]) -> None:
    """A run that is saved after so many elements continues with the next case."""
    whole = plain(flow)
    for stop in stops:
        run = iter(flow)
        before = [plain(next(run)) for _ in range(stop)]
        state = run.state_dict()
        run.close()
        assert before + plain(flow.resume(state)) == whole


def plain(value: Any) -> Any:
    """Make lists, tuples, dicts and numbers of a flow, a run, or what they yield."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(plain(part) for part in value)
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return value
    return [plain(part) for part in value]
