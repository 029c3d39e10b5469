"""Deaths of workers: which of their tasks are retried, and which element fails.

A worker that dies (by a crash in native code, or for lack of memory) is replaced, and its tasks are
retried. The naive way retries all of them unchanged. This fails if one element kills every worker
that computes it: the pass never ends, and no message names the element. The choice: a worker notes
in shared memory which task it begins, so only that task is blamed for the death. A blamed task is
split into tasks of one element each, and an element that workers died on ``deaths`` times becomes
an error that names it.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from flowdsl.errors import WorkerDied
from flowdsl.nodes.failures import SkipFailed
from flowdsl.workers.backend import Died
from flowdsl.workers.tasks import Task, TaskInput, TaskSource

MAX_FAILED_STARTS = 3
"""The pass fails when this many workers in a row end before they are ready."""


@attrs.define
class Deaths:
    """Counts the deaths of a stage's workers, and decides what becomes of their tasks."""

    tasks: TaskSource
    count: int = 0
    _failed_starts: int = 0
    """The number of workers that ended before they were ready, one after another."""

    def worker_is_ready(self) -> None:
        """Note that a worker has started."""
        self._failed_starts = 0

    def record(
        self, event: Died, task_inputs: Sequence[TaskInput]
    ) -> tuple[list[TaskInput], tuple[Task, WorkerDied] | None]:
        """Return the tasks to retry; and the task that fails, with its error, if one does.

        All tasks that the dead worker held, ``task_inputs``, are retried, except the one that may
        have caused the death: the task that the worker began last. That task is split into single
        elements, and a single element that has caused too many deaths fails. If no begun task is
        known, the death was probably not caused by a task; the oldest one is blamed, but fails only
        after more deaths.

        Raises:
            WorkerDied: Several workers in a row ended before they were ready.
        """
        self.count += 1
        if not event.worker.ready:
            self._failed_starts += 1
            if self._failed_starts == MAX_FAILED_STARTS:
                raise WorkerDied(f"{event.worker.name} ended before it was ready ({event.how})")
        blamed, most_deaths = event.begun, self.tasks.stage.workers.deaths
        if task_inputs and blamed not in event.worker.held:  # the task that it began is not known
            blamed, most_deaths = task_inputs[0].task.number, max(most_deaths, MAX_FAILED_STARTS)
        retries: list[TaskInput] = []
        failed: tuple[Task, WorkerDied] | None = None
        for task_input in task_inputs:
            if task_input.task.number != blamed:
                retries.append(self.tasks.renumbered(task_input))
                continue
            task_input = attrs.evolve(task_input, deaths=task_input.deaths + 1)
            if task_input.size > 1:
                retries += self.tasks.split(task_input)
            elif task_input.deaths < most_deaths:
                retries.append(self.tasks.renumbered(task_input))
            else:
                failed = task_input.task, self._error(task_input, event)
        return retries, failed

    def _error(self, task_input: TaskInput, last: Died) -> WorkerDied:
        task, meaning = task_input.task, self.tasks.stage.meaning
        if isinstance(meaning, SkipFailed):
            meaning = meaning.source  # the operator whose failures it skips
        several = task_input.deaths > 1
        deaths = f"{task_input.deaths} workers died, one after another," if several else None
        return WorkerDied(
            f"{deaths or 'a worker died'} at work on element {task.first} of {meaning.title} "
            f"({meaning.origin(task.epoch, task.first)}); "
            f"{'the last of them' if several else 'it'} was {last.worker.name} ({last.how})"
        )
