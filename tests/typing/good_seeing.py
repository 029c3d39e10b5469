"""Inspecting a flow and its runs: exactly these types, as in ``good``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_type

import flowdsl as fl
from flowdsl import Profile, Verdict
from flowdsl.report.verdict import Limit
from flowdsl.statistics.run import RunStatistics
from flowdsl.statistics.stages import StageStatistics
from tests.typing.good import Sample, numbers, samples, stream

# -- a profile -------------------------------------------------------------------------------------


def train(sample: Sample) -> float:
    return float(sample.label)


def show(thing: object) -> None:
    del thing


def relieve(limit: Limit) -> None:
    del limit


profile = samples.profile(0.01)
assert_type(profile, Profile)
assert_type(samples.profile(seconds=0.01, step=train), Profile)
assert_type(numbers.repeat().profile(0.01, show), Profile)
assert_type(profile.statistics, RunStatistics)
assert_type(profile.verdict, Verdict)
assert_type(profile.verdict.operator, str | None)
assert_type(profile.verdict.workers, int | None)
assert_type(profile.svg(), str)
assert_type(profile.html(), str)
relieve(profile.verdict.limiting)

# -- a run -----------------------------------------------------------------------------------------

run = iter(numbers)
assert_type(run.statistics(), RunStatistics)
assert_type(run.statistics().stages, tuple[StageStatistics, ...])
assert_type(fl.verdict(run.statistics()), Verdict)
assert_type(fl.verdict(run.statistics(), cores=4).rate, float)

# -- a bar -----------------------------------------------------------------------------------------

assert_type(samples.progress(), Iterable[Sample])
assert_type(fl.progress(numbers.epoch(1), "epoch 1"), Iterable[int])
assert_type(fl.progress(stream), Iterable[str])
assert_type(list(numbers.shuffle().progress()), list[int])
