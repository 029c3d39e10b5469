"""The wording of verdicts: names of the parts of a run, and comparisons of them."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from flowdsl.report.shares import Shares
from flowdsl.resources.worker_kinds import PROCESSES
from flowdsl.statistics.figures import about, name, number, share
from flowdsl.statistics.run import RunStatistics
from flowdsl.statistics.stages import StageStatistics

MAX_WORKERS = 64
"""The limit on the number of workers that a verdict advises: it is only a forecast."""

_FULL = 0.75
"""Workers that want at least this share of the free cores are limited by the cores."""

_NOTICEABLE = 0.1
"""Waiting for a core for at least this share of the busy time shows that all cores are in use."""


@attrs.frozen
class Phrasing:
    """Names and figures of a run for its verdict, on a machine with ``cores`` cores."""

    shares: Shares
    cores: int

    @property
    def run(self) -> RunStatistics:
        return self.shares.run

    def operator(self, stage: StageStatistics) -> tuple[str | None, str]:
        """Return the title of a stage's costliest operator, if known, and the name to show."""
        if not stage.costs:
            only = stage.operators[0] if len(stage.operators) == 1 else None
            return only, only or name(stage)
        worst = max(stage.costs, key=lambda cost: cost.seconds)
        total = sum(cost.seconds for cost in stage.costs)
        if stage.workers and total < stage.busy / 2:
            return None, f"Packing the results of {name(stage)}"
        return worst.title, worst.title

    def calls(self, stage: StageStatistics, operator: str | None) -> str:
        """Return the rate of an operator's calls; empty if it is called about once per element."""
        cost = next((c for c in stage.costs if c.title == operator), None)
        if cost is None or not self.run.seconds:
            return ""
        calls = cost.calls / self.run.seconds
        return "" if 0.8 < calls / self.run.rate < 1.25 else f" ({number(calls)} calls/s)"

    def rate_of_rest(self, headroom: float) -> str:
        """Return a phrase with the rate that the other parts could reach."""
        if headroom > 100:
            return "the rest could go more than 100 times as fast"
        return f"the rest could go up to about {about(self.run.rate * headroom)} elements/s"

    def keyword(self, k: int) -> str:
        """Return the ``prefetch`` keyword of a stage's workers; ``procs`` if it has none."""
        return (self.run.stages[k].kind or PROCESSES).keyword

    def prefetch(self, k: int, workers: int) -> str:
        """Return the call of ``prefetch`` that sets the stage's number of workers."""
        stage = self.run.stages[k]
        call = f"prefetch({self.keyword(k)}={workers})"
        plain = len(self.shares.pools) == 1 and not stage.copies
        return call if plain else f"{call} after {stage.operators[-1]}"

    def waits_in_turn(self, stage: StageStatistics) -> bool:
        """Return True if the workers wait for each other only to keep the order."""
        return stage.ordered and stage.copies != "passes"

    def bound(self) -> str:
        """Return the number of cores as a phrase."""
        return f"{self.cores} core{'s' if self.cores > 1 else ''}"

    def all_cores(self) -> str:
        """Return a phrase for all cores, with its verb."""
        return "the only core is" if self.cores == 1 else f"all {self.cores} cores are"

    def fixed_operators(self, hosted: Mapping[int, StageStatistics]) -> set[str]:
        """Return the operators of these stages that workers cannot run."""
        return {title for stage in hosted.values() for title in stage.stays}

    def fixed_share(self, hosted: Mapping[int, StageStatistics]) -> float:
        """Return the known share of these stages' cost that cannot be moved to workers."""
        fixed = self.fixed_operators(hosted)
        if fixed and all(set(s.operators) <= fixed for s in hosted.values()):
            return 1.0
        costs = [cost for stage in hosted.values() for cost in stage.costs]
        total = sum(cost.seconds for cost in costs)
        return sum(c.seconds for c in costs if c.title in fixed) / total if total else 0.0

    def most_busy_workers(self, k: int) -> float:
        """Return the number of workers of a stage that the machine can keep busy.

        A worker that waits for a core wants one, as one that computes; one that waits for a file
        does not.
        """
        stage = self.run.stages[k]
        wanting = _wanting(stage)
        if wanting is not None and wanting < 0.1:
            return MAX_WORKERS
        others = [s for j, s in self.shares.pools.items() if j != k]
        taken = sum(_wanted_cores(s, if_unknown=1.0) for s in others)
        free = max(1.0, self.cores - round(taken))
        if len(stage.workers) >= free and _wanted_cores(stage, if_unknown=0.0) >= _FULL * free:
            return len(stage.workers)  # more workers would wait for cores
        return free if wanting is None else free / wanting

    def speedup(self, k: int, more_work: float) -> float:
        """Return how many times as fast a stage would be if its workers had more time to work.

        ``more_work`` is the factor by which their busy time together would grow, and their speed
        too if cores were free. The system shares the cores among all threads that want one. If each
        receives a share ``g`` of a core, ``cores / g`` threads want one: the workers and those of
        other programs. Workers with more to do make this number greater, and each share smaller.
        """
        stage = self.run.stages[k]
        wanting = _wanting(stage)
        if not self.waits_for_cores(stage) or not stage.computing or not wanting:
            return more_work
        threads = self.cores * wanting / stage.computing
        added = (more_work - 1) * _wanted_cores(stage, if_unknown=0.0)
        return more_work * threads / (threads + added)

    def waits_for_cores(self, stage: StageStatistics) -> bool:
        """Return True if the workers wait for cores, which other threads use too."""
        return stage.waiting_for_core >= _NOTICEABLE

    @property
    def thread_waits_for_cores(self) -> float:
        """The share of its time in which the consumer's thread waits for a core; 0 if little."""
        active = (1 - self.shares.blocked) * self.run.seconds
        waited = min(0.99, self.run.waited_for_core / active) if active > 0 else 0.0
        return waited if waited >= _NOTICEABLE else 0.0

    def slowdown(self, added: float) -> float:
        """Return the factor by which the consumer's thread slows down beside additional threads.

        It is 1 if the thread hardly waits for cores. See ``speedup``.
        """
        if not (waiting := self.thread_waits_for_cores):
            return 1.0
        threads = self.cores / (1 - waiting)
        return threads / (threads + max(0.0, added))

    def waits_of_thread(self) -> str:
        """Return a sentence on the consumer's thread, like ``waits``."""
        if not (waiting := self.thread_waits_for_cores):
            return ""
        return (
            f" The thread waited {share(waiting)} of its time for a core: other programs, or other "
            "threads of this one, use the cores too."
        )

    @property
    def crowded(self) -> bool:
        """True if the run has more workers than the machine has cores."""
        return sum(len(stage.workers) for stage in self.shares.pools.values()) > self.cores

    def waits(self, stage: StageStatistics) -> str:
        """Return a sentence on the workers' waiting for cores, after a space; empty if little."""
        if not self.waits_for_cores(stage):
            return ""
        why = "other programs, or other threads of this one, use the cores too"
        if self.crowded:
            why = "more workers than cores run, or other programs use this machine"
        one = len(stage.workers) == 1
        who, whose = ("worker", "its") if one else ("workers", "their")
        waited = share(stage.waiting_for_core)
        return f" The {who} waited {waited} of {whose} time for a core: {why}."

    def costliest(self, hosted: Mapping[int, StageStatistics], spent: float) -> int | None:
        """Return the stage that takes most of ``spent``; untimed stages share the rest equally."""
        known = {k: sum(cost.seconds for cost in s.costs) for k, s in hosted.items() if s.costs}
        rest = spent * self.run.seconds - sum(known.values())
        untimed = len(hosted) - len(known)
        return max(hosted, key=lambda k: known.get(k, rest / max(1, untimed)), default=None)


def _wanting(stage: StageStatistics) -> float | None:
    """Return the share of the busy time on a core or waiting for one; None if unknown."""
    if stage.computing is None:
        return None
    return min(1.0, stage.computing + stage.waiting_for_core)


def _wanted_cores(stage: StageStatistics, if_unknown: float) -> float:
    """Return the average number of the stage's workers that compute or wait for a core."""
    wanting = _wanting(stage)
    return stage.utilisation * len(stage.workers) * (if_unknown if wanting is None else wanting)
