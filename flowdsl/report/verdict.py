"""A verdict: a statement of the part that limits a run."""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from flowdsl.statistics.figures import share

Limit: TypeAlias = Literal[
    "workers", "straggler", "thread", "input", "handing over", "consumer", "balanced", "unclear"
]
"""The part of a run that limits its speed:

``workers``       the workers of a stage, which are all busy
``straggler``     one slow worker, or a few slow elements, for which the others wait
``thread``        operators that run in the consumer's thread
``input``         reading in the consumer's thread, for workers
``handing over``  moving elements between workers and consumer
``consumer``      the program's own work on the elements
``balanced``      workers and the consumer's thread equally
``unclear``       the run was too short, or was not timed
"""


@attrs.frozen
class Verdict:
    """The part that limits a run, and advice how to change it. Printed, it is a few sentences.

    >>> from flowdsl.statistics.run import RunStatistics
    >>> from flowdsl.statistics.stages import StageStatistics, WorkerStatistics
    >>> from flowdsl.report.bottleneck import verdict
    >>> from flowdsl.resources.worker_kinds import PROCESSES
    >>> decode = StageStatistics(
    ...     operators=("from_lmdb('train.lmdb')", "map(decode)"),
    ...     kind=PROCESSES,
    ...     seconds=10.0,
    ...     entered=8120,
    ...     delivered=8120,
    ...     workers=(WorkerStatistics(4060, 9.9), WorkerStatistics(4060, 9.9)),
    ...     waited=3.8,
    ... )
    >>> print(verdict(RunStatistics(8120, 10.0, 4.9, (decode,)), cores=8))
    from_lmdb('train.lmdb') … map(decode) limits the run to 812 elements/s: its 2 processes are \
busy 99% of the time. The consumer waits 51% of the time. prefetch(procs=4) would give about 1,300 \
elements/s.
    """

    limiting: Limit
    stage: int | None
    """The number of the limiting stage in the statistics; None if no stage limits."""
    operator: str | None
    """The title of the limiting stage's most costly operator, if known."""
    rate: float
    """The current rate in elements per second."""
    headroom: float
    """The factor by which the other parts could be faster; infinite if they take no time."""
    waited: float
    """The share of the time in which the consumer waits for elements, from 0 to 1."""
    finding: str
    """A sentence that names the limiting part."""
    advice: str
    """A sentence with the change to make."""
    expected: float | None = None
    """The elements per second expected if the advice is followed; None if unknown."""
    workers: int | None = None
    """The number of workers that the advice suggests; None if it does not suggest a number."""

    def __str__(self) -> str:
        sentences = [self.finding]
        if self.limiting not in ("consumer", "unclear"):
            sentences.append(f"The consumer waits {share(self.waited)} of the time.")
        return " ".join([*sentences, self.advice])
