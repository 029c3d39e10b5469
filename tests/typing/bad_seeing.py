"""Mistakes in inspecting a flow and its runs, as in ``bad``."""

from __future__ import annotations

import flowdsl as fl
from flowdsl.report.verdict import Limit
from tests.typing.good import Sample, numbers, samples


def train(sample: Sample) -> float:
    return float(sample.label)


# -- a profile -------------------------------------------------------------------------------------
numbers.profile(step=train)  # E: arg-type
samples.profile(step=3)  # E: arg-type
samples.profile("3")  # E: arg-type
samples.profile(steps=train)  # E: call-arg
samples.profile().save(3)  # E: arg-type
samples.profile().verdict.rate = 3.0  # E: misc
limit: Limit = "decode"  # E: assignment

# -- a bar -----------------------------------------------------------------------------------------
words: list[str] = list(numbers.progress())  # E: arg-type
fl.progress([1, 2])  # E: arg-type
samples.progress(3)  # E: arg-type
fl.verdict(samples)  # E: arg-type
