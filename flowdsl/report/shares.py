"""Shares: the time of each activity in a run, as a share of the run's time."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import attrs

from flowdsl.statistics.run import RunStatistics
from flowdsl.statistics.stages import StageStatistics

Part: TypeAlias = Literal["consumer", "input", "hosted", "handing over"]
"""The activities of the consumer's thread: the consumer's own work, reading rows for workers,
running the operators that it hosts, and moving elements between workers and consumer."""


@attrs.frozen
class Shares:
    """The time of a run, split into shares."""

    run: RunStatistics

    @property
    def pools(self) -> dict[int, StageStatistics]:
        """The stages with workers, by number."""
        return {k: s for k, s in enumerate(self.run.stages) if s.kind is not None}

    @property
    def hosted(self) -> dict[int, StageStatistics]:
        """The stages in the consumer's thread, by number, without stages that supply workers."""
        supplied = max((k for k, pool in self.pools.items() if pool.input_seconds), default=-1)
        stages = enumerate(self.run.stages)
        return {k: s for k, s in stages if k > supplied and s.kind is None}

    @property
    def blocked(self) -> float:
        """The share of the time in which the consumer's thread waits for workers."""
        inside = max(0.0, self.run.seconds - self.run.consumer_seconds)
        return min(inside, sum(s.waited for s in self.pools.values())) / self.run.seconds

    @property
    def thread(self) -> dict[Part, float]:
        """The share of the time that each activity of the consumer's thread takes."""
        seconds = self.run.seconds
        consumer = min(1.0, self.run.consumer_seconds / seconds)
        work = max(0.0, 1 - consumer - self.blocked)
        own = [0.0, *self.inputs.values()]
        total = sum(own)  # right for branches; in a chain, a later reading includes the earlier one
        read = min(work, total if total <= work else max(own))
        if not self.pools:
            inline = work
        elif all(stage.costs for stage in self.hosted.values()):
            spent = sum(cost.seconds for s in self.hosted.values() for cost in s.costs)
            inline = min(work - read, spent / seconds)
        else:
            inline = work - read
        rest = max(0.0, work - read - inline)
        return {"consumer": consumer, "input": read, "hosted": inline, "handing over": rest}

    @property
    def inputs(self) -> dict[int, float]:
        """The share of the time in which the thread read for each stage without waiting."""
        read: dict[int, float] = {}
        waited = 0.0
        for k, stage in self.pools.items():
            read[k] = max(0.0, stage.input_seconds - waited) / self.run.seconds
            waited += stage.waited
        return read

    def greatest_other(self, but: Part | int) -> float:
        """Return the greatest share of a stage or of the consumer's thread, without ``but``."""
        stages = [s.utilisation for k, s in self.pools.items() if k != but]
        parts = sum(part for what, part in self.thread.items() if what != but)
        return max([parts, *stages])

    @property
    def most_utilised(self) -> float:
        """The share of time in which the workers of the busiest stage are busy."""
        return max((stage.utilisation for stage in self.pools.values()), default=0.0)


def inverse(busy: float) -> float:
    """Return how many times the current rate a part could sustain that is ``busy`` this share."""
    return 1 / busy if busy > 0 else math.inf
