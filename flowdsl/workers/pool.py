"""A pool: submits the tasks of one stage to its workers, and delivers their results in order.

There is no scheduler thread: the consumer's own thread coordinates. Each time it needs a result, it
submits more tasks and processes the results that have arrived. Only a stream is read ahead, in a
separate thread. Credit limits the work in flight and the rows read ahead, by count and by bytes, so
when the consumer stops reading, the workers and the stream soon stop, too.

Contract: every task is delivered once, in the order of its elements, regardless of which worker
finishes first and which one dies (see ``deaths.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import length_hint
from typing import Any, NamedTuple

import attrs

from flowdsl.errors import FlowError, NotShippable, WorkerDied, raise_with_cause, travelling
from flowdsl.executor.execute import ReportSkip, SkippedElement, TaskFailure, handling_step
from flowdsl.executor.program import InputExhausted, element_error
from flowdsl.nodes import Failed, PassFactory, Row
from flowdsl.nodes.failures import NOT_KNOWN, Attempt, AttemptToRead, SkipFailed
from flowdsl.plan.plan import Stage
from flowdsl.resources.cancellation import is_cancelled
from flowdsl.statistics.run import DROPPED_IN_A_ROW
from flowdsl.statistics.stages import StageStatistics
from flowdsl.workers.active_workers import ActiveWorkers
from flowdsl.workers.backend import Delivery, Died, Done, Ready, Result, Worker, WorkerBackend
from flowdsl.workers.deaths import Deaths
from flowdsl.workers.memory_budget import MemoryBudget
from flowdsl.workers.pool_figures import PoolFigures
from flowdsl.workers.task_sizer import TaskSizer
from flowdsl.workers.tasks import RowUnreadable, Task, TaskInput, TaskSource

TASKS_PER_WORKER = 2
"""Tasks held by each worker: one in progress, and one waiting so that the worker is never idle."""

TASKS_AHEAD = 6
"""Finished tasks for each worker that may wait for delivery behind a slow one."""


@attrs.frozen
class _Arrived:
    """A task that waits for delivery, with its result, or with the error of its only element."""

    task: Task
    nbytes: int = 0
    result: Result | None = None
    delivery: Delivery | None = None
    error: FlowError | None = None


class _Delivering(NamedTuple):
    """The task whose elements the consumer is receiving."""

    task: Task
    positions: Sequence[int]
    elements: Iterator[Any]
    """The elements that the consumer has not received."""

    @property
    def next_position(self) -> int:
        """The position after the last element that the consumer has received."""
        delivered = len(self.positions) - length_hint(self.elements)
        if not delivered:
            return self.task.start
        return self.task.start + self.task.up_to(self.positions[delivered - 1])


class Pool:
    """Runs a stage with the workers of a backend, one pass at a time."""

    def __init__(
        self,
        stage: Stage,
        bases: tuple[PassFactory, ...],
        backend: WorkerBackend,
        report_skip: ReportSkip,
        held_above: int = 0,
        tuned_workers: int | None = None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare a pool; ``bases`` begin passes over the stage's bases that are streams.

        The runtime has already advanced these streams: their first row belongs to the first element
        that the stage will compute. A thread reads the streams, and calls ``close`` at the end.
        ``report_skip`` is called with each skipped element. ``held_above`` is the number of
        elements that the operators above keep, which count as in flight. ``tuned_workers`` is the
        number of workers that the tuner found in the last pass, if the number is tuned.
        """
        self.stage = stage
        self._report_skip = report_skip
        self.backend = backend
        self._active = ActiveWorkers.of(backend, stage.workers, tuned_workers)
        self._budget = MemoryBudget(stage, held_above)
        self._sizer = TaskSizer(self._active.count, self._bytes_per_task, stage.workers.timeout)
        self._tasks = TaskSource(
            stage, bases, self._sizer, backend.pack, close, backend.wake, self._budget.limit // 4
        )
        self._deaths = Deaths(self._tasks)
        self._figures = PoolFigures()
        self.when_sparse: Callable[[], object] = lambda: None
        """Called if filters drop many elements and keep none."""
        self.when_left_out: Callable[[], object] = lambda: None
        """Called after a task whose elements were all left out."""
        self._delivering: _Delivering | None = None
        self._start = 0
        """The position at which the pass began."""
        self._clear()

    def rows(self, epoch: int, start: int = 0) -> Iterator[Row[Any]]:
        """Iterate over the rows of one pass from position ``start``; ends the previous pass."""
        return self._pass(epoch, start, with_positions=True)

    def elements(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """Iterate over the elements of one pass from position ``start``, without positions."""
        return self._pass(epoch, start, with_positions=False)

    def _pass(self, epoch: int, start: int, with_positions: bool) -> Iterator[Any]:
        """Run one pass.

        Raises:
            ElementError: An operator failed; all elements before the failure were yielded.
            WorkerDied: Workers died repeatedly on an element, or before they were ready.
            FlowError: The counts do not balance, or operators hold more than ``memory``.
        """
        self._figures.begin_pass()
        began = time.perf_counter()
        # Before `_discard`: in a fork this raises, and the results of the owning process are kept.
        self._active.start(self._figures.totals)
        self._figures.waited += time.perf_counter() - began
        self._discard()
        self._figures.counts.forget_under_way()
        self._next_start, self._delivering, self._start = start, None, start
        task_inputs = self._tasks.task_inputs(epoch, start)
        while True:
            self._submit_tasks(task_inputs)
            arrived = self._next()
            if arrived is not None:
                yield from self._deliver(arrived, with_positions)
            elif self._assigned or self._retries or not self._exhausted:
                self._process_events()
            elif self._error is not None:
                raise self._error
            else:
                break
        self._figures.end_pass()
        self._figures.counts.check(self.stage.meaning.title)

    @property
    def by_position(self) -> bool:
        """True if a pass can begin at any position, which requires that no base is a stream."""
        return not self._tasks.streams

    @property
    def next_position(self) -> int:
        """The position at which a later pass continues: all before were yielded or left out."""
        delivering = self._delivering  # another thread may set it to None meanwhile
        return self._next_start if delivering is None else delivering.next_position

    @property
    def rows_delivered(self) -> int:
        """The number of rows at the beginning of the stream that are finished.

        A row is finished if every element made from it was yielded or left out.
        """
        position = self.next_position
        if not self.stage.ordered:
            tasks = [*self._assigned.values(), *(retry.task for retry in self._retries)]
            tasks += [arrived.task for arrived in [*self._arrived.values()]]
            tasks += [] if (delivering := self._delivering) is None else [delivering.task]
            # All rows before the first unfinished task are finished.
            position = min((task.start for task in tasks), default=self._submitted)
        return self.stage.rows_per_element * (position - self._start)

    def end_reading(self) -> None:
        """Stop reading a stream and close it."""
        if self._tasks.reading is not None:
            self._tasks.reading.stop()

    def end(self) -> None:
        """End the pass, complete or not, so that the workers can be parked."""
        self.end_reading()
        self._figures.end_pass()
        position = self.next_position
        self._discard()
        self._next_start, self._delivering = position, None

    def close(self) -> None:
        """End the workers; arrays that the consumer has received stay valid."""
        self.end_reading()
        self._figures.end_pass()
        self._next_start, self._delivering = self.next_position, None
        self._arrived.clear()
        self.backend.close()

    def statistics(self) -> StageStatistics:
        """Return the statistics of the stage so far."""
        return self._figures.statistics(
            self.stage,
            self.backend.workers,
            self._active,
            deaths=self._deaths.count,
            credit=self._credit,
        )

    @property
    def outside(self) -> float:
        """Seconds of the consumer's own work between the elements that it took."""
        return self._figures.outside

    # -- submitting tasks ----------------------------------------------------------------------

    def _discard(self) -> None:
        """Discard results that arrived and were not delivered."""
        for stale in self._arrived.values():
            if stale.delivery is not None:
                stale.delivery.discard()
        self._clear()

    def _clear(self) -> None:
        self._assigned: dict[int, Task] = {}
        """The tasks that workers hold, by number."""
        self._retries: list[TaskInput] = []
        """Tasks to submit before others, in order of position: those of workers that died, and the
        rest of those whose elements became too large. ``_has_credit`` always allows the next one to
        deliver, so the results that wait for it do not block it."""
        self._arrived: dict[int, _Arrived] = {}
        """Tasks that wait for delivery, by the position at which they start."""
        self._budget.begin_pass()
        self._exhausted = False
        """True if the pass has no further tasks, except retries."""
        self._starved = False
        """True if a worker is free and the stream has no further rows yet."""
        self._error: Exception | None = None
        """The error of a base, to be raised after the elements before it."""
        self._next_start = 0
        """The position at which the task to deliver next starts."""
        self._submitted = 0
        """The end of the last task that was submitted."""

    def _submit_tasks(self, task_inputs: Iterator[TaskInput | None]) -> None:
        """Give tasks to the free workers, as far as credit allows."""
        self._starved = False
        for worker in self._free_workers():
            if not self._has_credit():
                return
            task_input = self._retries.pop(0) if self._retries else self._next_input(task_inputs)
            if task_input is None:
                return
            self._assigned[task_input.task.number] = task_input.task
            self._submitted = max(self._submitted, task_input.task.stop)
            self._budget.assign(task_input)
            self.backend.submit(worker, task_input)

    def _next_input(self, task_inputs: Iterator[TaskInput | None]) -> TaskInput | None:
        """Return the next task that was not submitted before; None if there is none now."""
        if self._exhausted:
            return None
        began = time.perf_counter()
        try:
            task_input = next(task_inputs)
        except StopIteration:
            self._exhausted = True
            return None
        except Exception as error:  # of a base, after the tasks of all elements before it
            self._exhausted, self._error = True, error
            return None
        finally:
            if self.stage.bases:
                self._figures.reading += time.perf_counter() - began
        if task_input is None:
            self._starved = True
        elif not self.stage.end_to_end:  # else the number of elements is known from the results
            self._figures.counts.entered += task_input.size
        return task_input

    @property
    def _under_way(self) -> int:
        """The number of tasks that were submitted and are not delivered."""
        return len(self._assigned) + len(self._arrived)

    @property
    def _credit(self) -> int:
        """The maximum number of tasks under way."""
        return self._active.count * (TASKS_PER_WORKER + TASKS_AHEAD)

    @property
    def _bytes_per_task(self) -> int:
        return max(1, self._budget.limit // self._credit)

    def _free_workers(self) -> Iterator[Worker]:
        """Yield each worker once for each task that it can take, those with the fewest first.

        With some hundred workers, a search for a free one before each task would cost more than the
        task.
        """
        for held in range(TASKS_PER_WORKER):
            for worker in self._active.members:
                if worker.ready and len(worker.held) == held:
                    yield worker

    def _has_credit(self) -> bool:
        """Return True if credit allows another task; the task to deliver next is always allowed."""
        if not self._under_way:
            return True
        if self._retries and self._retries[0].task.start == self._next_start:
            return True
        stream = self._tasks.reading
        return self._under_way < self._credit and self._budget.allows(
            size=self._sizer.size(None),
            tasks=len(self._assigned),
            bytes_per_task=self._bytes_per_task,
            bytes_ahead=0 if stream is None else stream.nbytes,
        )

    # -- processing events ---------------------------------------------------------------------

    def _process_events(self) -> None:
        """Wait for events from the workers, and process them."""
        began = time.perf_counter()
        self._active.start_missing()
        events = self.backend.poll()
        waited = time.perf_counter() - began
        if self._starved:  # the stream is the bottleneck: more workers would not help
            self._figures.reading += waited
        else:
            self._figures.waited += waited
        self._figures.results_waiting += waited * len(self._arrived)
        for event in events:
            match event:
                case Done():
                    self._on_result(event)
                case Died():
                    self._on_death(event)
                case Ready():
                    self._deaths.worker_is_ready()
        # After the events, which `poll` returns only once: a worker whose result was dropped would
        # seem busy, and the next pass would wait for it.
        if is_cancelled():
            raise FlowError(f"{self.stage.meaning.title}: the pass was cancelled")
        self._active.dismiss_idle()

    def _on_result(self, event: Done) -> None:
        worker, result = event.worker, event.result
        task_input = worker.held.pop(result.number, None)
        task = self._assigned.pop(result.number, None)
        if task is None or task_input is None:  # the result belongs to an abandoned pass
            event.delivery.discard()
            return
        self._budget.unassign(task_input)
        if result.unsent is not None:
            event.delivery.discard()
            self._on_unsent(task_input, result.unsent)
            return
        nbytes = event.delivery.nbytes
        worker.elements += result.returned
        worker.busy += result.seconds
        worker.cpu += result.cpu
        worker.waited_for_core += result.waited_for_core
        self._figures.add_result(result, nbytes)
        self._budget.add_result(task_input, nbytes, result.returned)
        if result.failure is None:
            end_to_end = self.stage.end_to_end
            computed = result.returned if end_to_end else result.settled
            if computed:
                self._sizer.observe(computed, result.seconds, max(nbytes, task_input.nbytes))
            if result.settled < task_input.size:
                task = task.part(task.number, task.start, task.start + result.settled)
                self._retry(self._tasks.rest(task_input, result.settled))
            elif end_to_end and result.returned < task_input.size:  # the flow has ended
                self._exhausted = True
        if result.settled or result.failure is not None:
            self._arrived[task.start] = _Arrived(task, nbytes, result, event.delivery)

    def _on_unsent(self, task_input: TaskInput, why: Exception) -> None:
        """Send each row of a task by itself, or give up the task's first element."""
        task, counts = task_input.task, self._figures.counts
        if isinstance(why, NotShippable):
            # The worker has returned the elements before the one that it cannot send in an earlier
            # result: that one is the first.
            first = task.part(task.number, task.start, task.start + 1)
            self._arrived[task.start] = _Arrived(first, error=why)
            counts.retried += task_input.size - 1
            self._retry(self._tasks.rest(task_input, 1))
            return
        counts.retried += task_input.size
        if task_input.by_row:
            raise FlowError(f"a worker process cannot load the rows of a task: {why}")
        self._retry([self._tasks.with_rows_alone(task_input)])

    def _on_death(self, event: Died) -> None:
        """Replace a dead worker; retry the tasks it held, or give up the element it died on."""
        worker = event.worker
        held = [x for x in worker.held.values() if x.task.number in self._assigned]
        retries, failed = self._deaths.record(event, held)
        worker.held.clear()
        for task_input in held:
            del self._assigned[task_input.task.number]
            self._budget.unassign(task_input)
            self._figures.counts.retried += task_input.size
        if failed is not None:
            task, error = failed
            self._arrived[task.start] = _Arrived(task, error=error)
        self._retry(retries)
        self.backend.replace(worker)

    def _retry(self, task_inputs: list[TaskInput]) -> None:
        """Submit these tasks before those of later elements."""
        self._retries = sorted(
            [*task_inputs, *self._retries], key=lambda task_input: task_input.task.start
        )

    # -- delivering ----------------------------------------------------------------------------

    def _next(self) -> _Arrived | None:
        """Return the task to deliver next, if it has arrived."""
        start = self._next_start if self.stage.ordered else next(iter(self._arrived), None)
        return None if start is None else self._arrived.pop(start, None)

    def _deliver(self, arrived: _Arrived, with_positions: bool) -> Iterator[Any]:
        task, result = arrived.task, arrived.result
        self._next_start = task.stop
        if result is None or arrived.delivery is None:
            assert arrived.error is not None
            yield from self._deliver_error(task, arrived.error)
            return
        try:
            elements = iter(arrived.delivery.open())
        except Exception as error:
            self._budget.release(arrived.nbytes)
            yield from self._deliver_unreadable(task, error)
            return
        consecutive = range(task.start, task.start + result.returned)
        positions = consecutive if result.positions is None else result.positions
        self._delivering = _Delivering(task, positions, elements)
        began = time.perf_counter()
        rows = zip(positions, elements, strict=True) if with_positions else elements
        delivered = 0
        for skipped in result.skipped:  # reported at its position: a handler may raise an error
            yield from islice(rows, skipped.before - delivered)
            delivered = skipped.before
            self._skip(skipped)
        yield from rows
        self._delivering = None
        self._budget.release(arrived.nbytes)
        self._count_delivered(task, result, time.perf_counter() - began)
        if result.failure is not None:
            self._fail(task, result.failure)

    def _count_delivered(self, task: Task, result: Result, outside: float) -> None:
        """Count the elements of a task; ``outside`` is what the consumer's own work took."""
        figures, counts = self._figures, self._figures.counts
        figures.outside += outside
        figures.results_waiting += outside * len(self._arrived)
        if self._active.observe(task.stop - task.start, figures.totals, self._under_way):
            self._sizer.share(self._active.count, self._bytes_per_task)
        counts.delivered += result.returned
        if self.stage.end_to_end:
            counts.entered += result.returned
        counts.filtered += result.filtered
        if not result.returned:
            self.when_left_out()
        if counts.filtered >= DROPPED_IN_A_ROW and not counts.delivered:
            self.when_sparse()

    def _fail(self, task: Task, failure: TaskFailure) -> None:
        """Raise the failure that stopped a task; if a base failed, end the pass after this task."""
        cause = failure.cause
        if isinstance(cause, InputExhausted):
            self._exhausted, self._error = True, self._tasks.errors[cause.slot]
        elif isinstance(cause, RowUnreadable):
            raise self._tasks.unreadable(task, cause)
        elif failure.path is None:
            raise cause
        else:
            where = (failure.path, failure.epoch, failure.position, failure.detail)
            raise_with_cause(element_error(self.stage, *where), cause)

    def _skip(self, skipped: SkippedElement) -> None:
        self._figures.counts.skipped += 1
        if self.stage.end_to_end:
            self._figures.counts.entered += 1
        self._report_skip(self.stage.top.at(skipped.path), skipped.failed)

    def _deliver_unreadable(self, task: Task, error: Exception) -> Iterator[Row[Any]]:
        """Handle a result that cannot be loaded here: compute its elements again, one by one."""
        many = task.stop - task.start > 1
        if many and self.by_position:
            self._next_start = task.start
            self._figures.counts.retried += task.stop - task.start
            self._retry(self._tasks.split(TaskInput(task)))
            return
        what = f"one of the elements up to {task.stop - 1}" if many else "the element"
        not_loaded = NotShippable(f"{what} cannot be loaded by the consumer's process: {error!r}")
        not_loaded.__cause__ = travelling(error)  # without the frames, which keep arrays alive
        yield from self._deliver_error(task, not_loaded)

    def _deliver_error(self, task: Task, error: FlowError) -> Iterator[Row[Any]]:
        """Handle an element that workers died on or that cannot be sent.

        Raise the error; or skip the element, or deliver a failure for an operator above to skip.
        """
        handling = handling_step(self.stage.top, task.epoch, task.first)
        if handling is None or self.stage.end_to_end or task.stop - task.start > 1:
            if isinstance(error, WorkerDied):
                raise error
            raise element_error(self.stage, (), task.epoch, task.first) from error
        step, epoch, position = handling
        node = step.node
        if isinstance(node, SkipFailed):
            self._figures.counts.skipped += 1
            self._report_skip(step, Failed(NOT_KNOWN, epoch, position, error))
        elif isinstance(node, Attempt | AttemptToRead):  # an operator above skips it
            self._figures.counts.delivered += 1
            yield task.first, Failed(node.number, epoch, position, error)
