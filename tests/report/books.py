"""Statistics of runs of ten seconds with a known bottleneck, made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowdsl.resources.worker_kinds import PROCESSES, WorkerKind
from flowdsl.statistics.accounting import Bins, Times
from flowdsl.statistics.run import RunStatistics
from flowdsl.statistics.stages import OperatorCost, StageStatistics, WorkerStatistics

SECONDS = 10.0
ELEMENTS = 1000


def stage(
    *operators: str,
    busy: tuple[float, ...] = (),
    kind: WorkerKind = PROCESSES,
    costs: Mapping[str, float] | None = None,
    calls: Mapping[str, int] | None = None,
    computing: float | None = None,
    waiting_for_core: float = 0.0,
    **fields: Any,
) -> StageStatistics:
    """A stage; ``busy`` has the seconds of each worker, ``costs`` the seconds by operator."""
    return StageStatistics(
        operators=operators,
        kind=kind if busy else None,
        seconds=SECONDS,
        entered=ELEMENTS,
        delivered=ELEMENTS,
        workers=tuple(
            WorkerStatistics(
                ELEMENTS // len(busy),
                each,
                None if computing is None else computing * each,
                waiting_for_core * each,
            )
            for each in busy
        ),
        costs=tuple(
            OperatorCost(title, (calls or {}).get(title, ELEMENTS), seconds)
            for title, seconds in (costs or {}).items()
        ),
        **{"times": times({0.001: 90, 0.002: 10}), **fields},
    )


def times(counts: Mapping[float, int]) -> Bins:
    """A histogram with these counts of elements by seconds."""
    made = Times()
    for seconds, count in counts.items():
        made.add_mean(seconds * count, count)
    return made.bins


def run(*stages: StageStatistics, consumer: float = 0.0, **fields: Any) -> RunStatistics:
    """A run over these stages; ``consumer`` is the consumer's own time in seconds."""
    return RunStatistics(ELEMENTS, SECONDS, consumer, stages, **{"profiled": True, **fields})
