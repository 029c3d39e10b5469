"""A pool: submits the tasks of one stage to its workers, and delivers their results in order.

There is no scheduler thread: the consumer's own thread coordinates. Each time it needs a result, it
submits more tasks and processes the results that have arrived. Only a stream is read ahead, in a
separate thread. Credit limits the work in flight and the rows read ahead, by count and by bytes, so
when the consumer stops reading, the workers and the stream soon stop, too.

Contract: every task is delivered once, in the order of its elements, regardless of which worker
finishes first and which one dies.

Deaths: a worker that dies (by a crash in native code, or for lack of memory) is replaced, and its
tasks are retried. The naive way retries all of them unchanged. This fails if one element kills
every worker that computes it: the pass never ends, and no message names the element. The choice: a
worker notes in shared memory which task it begins, so only that task is blamed for the death. A
blamed task is split into tasks of one element each, and an element that workers died on ``deaths``
times becomes an error that names it. See ``Pool._on_death``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import length_hint
from typing import Any

import attrs

from flowdsl.errors import FlowError, NotShippable, WorkerDied, raise_with_cause, travelling
from flowdsl.executor.costs import Costs, add_costs, costs_of
from flowdsl.executor.execute import ReportSkip, SkippedElement, answerable
from flowdsl.executor.program import InputExhausted, failure_in
from flowdsl.nodes import Failed, PassFactory, Row
from flowdsl.nodes.failures import NOT_KNOWN, Attempt, AttemptToRead, SkipFailed
from flowdsl.plan.plan import Stage
from flowdsl.resources.cancellation import is_cancelled
from flowdsl.statistics.accounting import ElementCounts, Times
from flowdsl.statistics.run import DROPPED_IN_A_ROW
from flowdsl.statistics.stages import StageStatistics, WorkerStatistics
from flowdsl.workers.active_workers import ActiveWorkers
from flowdsl.workers.backend import Delivery, Died, Done, Result, Worker, WorkerBackend
from flowdsl.workers.task_sizer import TaskSizer
from flowdsl.workers.tasks import (
    BYTES_IN_FLIGHT,
    RowUnreadable,
    Task,
    TaskInput,
    TaskSource,
)

TASKS_PER_WORKER = 2
"""Tasks held by each worker: one in progress, and one waiting so that the worker is never idle."""

TASKS_AHEAD = 6
"""Finished tasks for each worker that may wait for delivery behind a slow one."""

MAX_FAILED_STARTS = 3
"""When this many workers in a row end before they are ready, the pass fails."""


@attrs.frozen
class _Arrived:
    """A task that waits for delivery: its result, or why its element cannot be had."""

    task: Task
    nbytes: int
    result: Result | None = None
    delivery: Delivery | None = None
    lost: FlowError | None = None


class Pool:
    """Runs a stage with the workers of a backend, one pass at a time."""

    def __init__(
        self,
        stage: Stage,
        bases: tuple[PassFactory, ...],
        backend: WorkerBackend,
        report_skip: ReportSkip,
        held: int = 0,
        found: int | None = None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare a pool; ``bases`` begin passes over the stage's bases that are streams.

        Such a pass begins with the rows of the element at which the pass over the stage begins. A
        thread reads the streams, and calls ``close`` at the end. ``report_skip`` is called with
        each skipped element. ``held`` is the number of elements that the operators above keep,
        which count as in flight. ``found`` is the number of workers that the tuner found in the
        last pass, if the number is tuned.
        """
        self.stage = stage
        self._report_skip = report_skip
        self.backend = backend
        self._held = held
        self._active = ActiveWorkers.of(backend, stage.workers, found)
        self._memory = stage.workers.memory or BYTES_IN_FLIGHT
        self._pace = TaskSizer(self._active.count, self._bytes_per_task, stage.workers.timeout)
        ahead = self._memory // 4
        self._work = TaskSource(stage, bases, self._pace, backend.pack, close, backend.wake, ahead)
        self.when_sparse: Callable[[], object] = lambda: None
        """Called if filters drop many elements and keep none."""
        self.when_left_out: Callable[[], object] = lambda: None
        """Called after a task of which every element was left out."""
        self._clear()
        self._delivering: tuple[Task, Sequence[int], Iterator[Any]] | None = None
        """The task being delivered, its elements' positions, and the elements left."""
        self._start = 0
        """The position at which the pass began."""
        self._failed_starts = 0
        self._counts = ElementCounts()
        self._costs: Costs = {}
        self._times = Times()
        self._began: float | None = None
        self._ended: float | None = None
        self._deaths = 0
        self._reading = self._waited = self._outside = self._worked = self._filled = 0.0
        self._nbytes = 0
        self._most_bytes = self._most_sent = 0.0
        """The largest recent bytes per element: of a result, and of the rows sent for it."""

    def rows(self, epoch: int, start: int = 0) -> Iterator[Row[Any]]:
        """Iterate over the rows of one pass from position ``start``; ends the previous pass."""
        return self._pass(epoch, start, places=True)

    def elements(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """Iterate over the elements of one pass from position ``start``, without positions."""
        return self._pass(epoch, start, places=False)

    def _pass(self, epoch: int, start: int, places: bool) -> Iterator[Any]:
        """Run one pass.

        Raises:
            ElementError: An operator failed; all elements before the failure were yielded.
            WorkerDied: Workers died repeatedly on an element, or before they were ready.
            FlowError: The counts do not balance, or operators hold more than ``memory``.
        """
        self._began = self._began or time.perf_counter()
        self._ended = None
        # raises in a fork, before the fork could discard the owner's results
        began = time.perf_counter()
        self._active.start(self._waited, self._outside, self._worked)
        self._waited += time.perf_counter() - began
        self._discard()
        self._counts.settle()
        self._next_start, self._delivering, self._start = start, None, start
        work = self._work.task_inputs(epoch, start)
        while True:
            self._submit_tasks(work)
            arrived = self._next()
            if arrived is not None:
                yield from self._deliver(arrived, places)
            elif self._assigned or self._retries or not self._exhausted:
                self._process_events()
            elif self._failed is not None:
                raise self._failed
            else:
                break
        self._ended = time.perf_counter()
        self._counts.check(self.stage.meaning.title)

    @property
    def by_position(self) -> bool:
        """True if a pass can begin at any position, which requires that no base is a stream."""
        return not self._work.streams

    @property
    def place(self) -> int:
        """The number of elements that were yielded or left out: where a later pass can begin."""
        if self._delivering is None:
            return self._next_start
        task, positions, to_come = self._delivering
        delivered = len(positions) - length_hint(to_come)
        return task.start + (task.up_to(positions[delivered - 1]) if delivered else 0)

    @property
    def rows_delivered(self) -> int:
        """The number of a stream's rows, from its first, from which every element was yielded."""
        place = self.place
        if not self.stage.ordered:
            tasks = [*self._assigned.values(), *(retry.task for retry in self._retries)]
            tasks += [arrived.task for arrived in self._arrived.values()]
            tasks += [] if self._delivering is None else [self._delivering[0]]
            place = min((task.start for task in tasks), default=self._submitted)
        return self.stage.rows_per_element * (place - self._start)

    def end_reading(self) -> None:
        """Stop reading a stream and close it."""
        if self._work.reading is not None:
            self._work.reading.stop()

    def end(self) -> None:
        """End the pass, complete or not, so that the workers can be parked."""
        place = self.place
        self._discard()
        self._next_start, self._delivering = place, None

    def close(self) -> None:
        """End the workers; arrays that the consumer has received stay valid."""
        self.end_reading()
        self._ended = self._ended or time.perf_counter()
        self._next_start, self._delivering = self.place, None
        self._arrived.clear()
        self.backend.close()

    def statistics(self) -> StageStatistics:
        """Return the statistics of the stage so far."""
        now = self._ended or time.perf_counter()
        seconds = now - (self._began or now)
        workers = self.backend.workers
        return StageStatistics(
            operators=self.stage.titles,
            kind=self.stage.workers.kind,
            seconds=seconds,
            entered=self._counts.entered,
            delivered=self._counts.delivered,
            filtered=self._counts.filtered,
            skipped=self._counts.skipped,
            retried=self._counts.retried,
            in_flight=self._counts.under_way,
            deaths=self._deaths,
            workers=tuple(WorkerStatistics(w.elements, w.busy, w.cpu) for w in workers),
            dismissed=self._active.dismissed,
            staffed=self._active.seconds(now),
            input_seconds=self._reading,
            waited=self._waited,
            fill=min(1.0, self._filled / seconds / self._credit) if seconds else 0.0,
            nbytes=self._nbytes,
            times=self._times.bins,
            ordered=self.stage.ordered,
            copies=self.stage.copies,
            costs=costs_of(self.stage, self._costs),
        )

    @property
    def outside(self) -> float:
        """The seconds that the consumer spent outside the pool while it had elements."""
        return self._outside

    # -- submitting tasks ----------------------------------------------------------------------

    def _discard(self) -> None:
        """Discard results that arrived and were not delivered."""
        for stale in self._arrived.values():
            if stale.delivery is not None:
                stale.delivery.discard()
        self._clear()

    def _clear(self) -> None:
        self._assigned: dict[int, Task] = {}
        self._expected = 0
        """The number of elements of the assigned tasks."""
        self._retries: list[TaskInput] = []
        """Tasks to submit before others, in order of position: those of workers that died, and the
        rest of those whose elements became too large. The results that wait for them keep their
        credit, so there is always room for them."""
        self._arrived: dict[int, _Arrived] = {}
        """Tasks that wait for delivery, by the position at which they start."""
        self._in_flight = 0
        """Bytes in flight: rows of tasks not finished, and results that wait for delivery."""
        self._exhausted = False
        self._starved = False
        """True if a worker is free and the stream has no further rows yet."""
        self._failed: Exception | None = None
        self._next_start = 0
        self._submitted = 0
        """The end of the last task that was submitted."""

    def _submit_tasks(self, work: Iterator[TaskInput | None]) -> None:
        self._starved = False
        for worker in self._free_workers():
            if not self._has_credit():
                return
            if self._retries:
                task_input = self._retries.pop(0)
            elif self._exhausted:
                return
            else:
                began = time.perf_counter()
                try:
                    next_input = next(work)
                except StopIteration:
                    self._exhausted = True
                    return
                except Exception as error:  # of a base: raised after all elements before it
                    self._exhausted, self._failed = True, error
                    return
                finally:
                    if self.stage.bases:
                        self._reading += time.perf_counter() - began
                if next_input is None:
                    self._starved = True
                    return
                task_input = next_input
                self._counts.entered += 0 if self.stage.end_to_end else task_input.size
            self._assigned[task_input.task.number] = task_input.task
            self._submitted = max(self._submitted, task_input.task.stop)
            self._expected += task_input.size
            self._in_flight += task_input.nbytes
            self.backend.submit(worker, task_input)

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
        return max(1, self._memory // self._credit)

    def _free_workers(self) -> Iterator[Worker]:
        """Yield the workers with room for a task, those with the fewest first.

        A worker that was given a task comes again while it has room. A pass over all workers for
        each task would cost more than the task with some hundred workers.
        """
        for held in range(TASKS_PER_WORKER):
            for worker in self._active.able:
                if worker.ready and len(worker.held) == held:
                    yield worker

    def _has_credit(self) -> bool:
        """Return True if credit allows another task; the task to deliver next is always allowed."""
        if not self._assigned and not self._arrived:
            return True
        if self._retries and self._retries[0].task.start == self._next_start:
            return True
        if self._under_way >= self._credit:
            return False
        if not self._most_bytes:
            return self.stage.workers.memory is None
        held = self._held * self._most_bytes
        if held > self._memory:
            raise FlowError(
                f"prefetch: memory={self._memory} bytes is less than the {self._held} elements of "
                f"about {self._most_bytes:,.0f} bytes that are held above "
                f"{self.stage.meaning.title}; give at least {2 * held:,.0f}, or a smaller buffer"
            )
        next_size, share = self._pace.size(None), self._bytes_per_task
        coming = max(
            (self._expected + next_size) * self._most_bytes, (len(self._assigned) + 1) * share
        )
        if self.stage.bases:
            coming += max(next_size * self._most_sent, share)
        stream = self._work.reading
        ahead = 0 if stream is None else stream.nbytes
        return self._in_flight + held + ahead + coming <= self._memory

    # -- processing events ---------------------------------------------------------------------

    def _process_events(self) -> None:
        """Wait for events from the workers, and process them."""
        began = time.perf_counter()
        self._active.complete()
        events = self.backend.poll()
        waited = time.perf_counter() - began
        if self._starved:  # the stream is the bottleneck: more workers would not help
            self._reading += waited
        else:
            self._waited += waited
        self._filled += waited * len(self._arrived)
        for event in events:
            if isinstance(event, Done):
                self._on_result(event)
            elif isinstance(event, Died):
                self._on_death(event)
            else:
                self._failed_starts = 0
        if is_cancelled():  # not before: the next pass would wait for workers that have answered
            raise FlowError(f"{self.stage.meaning.title}: the pass was cancelled")
        self._active.dismiss_idle()

    def _on_result(self, event: Done) -> None:
        worker, result = event.worker, event.result
        task_input = worker.held.pop(result.number, None)
        task = self._assigned.pop(result.number, None)
        if task is None or task_input is None:  # the result belongs to an abandoned pass
            event.delivery.discard()
            return
        self._expected -= task_input.size
        if result.unsent is not None:
            event.delivery.discard()
            self._in_flight -= task_input.nbytes
            self._counts.retried += task_input.size
            self._on_loss(task_input, result.unsent)
            return
        nbytes = event.delivery.nbytes
        worker.elements += result.count
        worker.busy += result.seconds
        self._worked += result.seconds
        worker.cpu += result.cpu
        add_costs(self._costs, result.costs)
        self._nbytes += nbytes
        self._times.add(result.times)
        if not result.times:
            self._times.add_mean(result.seconds, result.count)
        self._most_bytes = max(nbytes / max(1, result.count), 0.9 * self._most_bytes)
        self._most_sent = max(task_input.nbytes / task_input.size, 0.9 * self._most_sent)
        self._in_flight += nbytes - task_input.nbytes
        is_part = result.failure is None and result.done < task_input.size
        count = result.count if self.stage.end_to_end else result.done
        if result.failure is None and count:
            self._pace.observe(count, result.seconds, max(nbytes, task_input.nbytes))
        if is_part:
            task = task.part(task.number, task.start, task.start + result.done)
            self._retry(self._work.rest(task_input, result.done))
        elif self.stage.end_to_end and result.failure is None and result.count < task_input.size:
            self._exhausted = True
        if result.done or result.failure is not None:
            self._arrived[task.start] = _Arrived(task, nbytes, result, event.delivery)

    def _on_loss(self, task_input: TaskInput, why: Exception) -> None:
        """Find the row of a task that a worker cannot load, or give up a task's first element."""
        task = task_input.task
        if isinstance(why, NotShippable):
            self._counts.retried -= 1
            first = task.part(task.number, task.start, task.start + 1)
            self._arrived[task.start] = _Arrived(first, 0, lost=why)
            self._retry(self._work.rest(task_input, 1))
        elif task_input.by_row:
            raise FlowError(f"a worker process cannot load the rows of a task: {why}")
        else:
            self._retry([self._work.with_rows_alone(task_input)])

    def _on_death(self, event: Died) -> None:
        """Replace a dead worker and decide what happens to the tasks it held.

        Its tasks are retried, except the one that may have caused the death: the task that the
        worker began last. That task is split into single elements, and a single element that has
        caused too many deaths fails. If no begun task is known, the death was probably not caused
        by a task; the oldest one is blamed, but fails only after more deaths.
        """
        worker = event.worker
        self._deaths += 1
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts == MAX_FAILED_STARTS:
                raise WorkerDied(f"{worker.name} ended before it was ready ({event.how})")
        task_inputs = [p for p in worker.held.values() if p.task.number in self._assigned]
        blamed, most = event.begun, self.stage.workers.deaths
        if blamed not in worker.held and task_inputs:  # it is not known that it had begun any
            blamed, most = task_inputs[0].task.number, max(most, MAX_FAILED_STARTS)
        worker.held.clear()
        retries: list[TaskInput] = []
        for task_input in task_inputs:
            del self._assigned[task_input.task.number]
            self._expected -= task_input.size
            self._in_flight -= task_input.nbytes
            self._counts.retried += task_input.size
            if task_input.task.number != blamed:
                retries.append(self._work.renumbered(task_input))
                continue
            task_input = attrs.evolve(task_input, deaths=task_input.deaths + 1)
            if task_input.size > 1:
                retries += self._work.split(task_input)
            elif task_input.deaths < most:
                retries.append(self._work.renumbered(task_input))
            else:
                self._give_up(task_input, event)
        self._retry(retries)
        self.backend.replace(worker)

    def _retry(self, task_inputs: list[TaskInput]) -> None:
        """Submit these tasks before those of later elements."""
        self._retries = sorted(
            [*task_inputs, *self._retries], key=lambda task_input: task_input.task.start
        )

    def _give_up(self, task_input: TaskInput, event: Died) -> None:
        task, meaning = task_input.task, self.stage.meaning
        if isinstance(meaning, SkipFailed):
            meaning = meaning.source  # the operator whose failures it skips
        many = task_input.deaths > 1
        deaths = (
            f"{task_input.deaths} workers died, one after another," if many else "a worker died"
        )
        died = WorkerDied(
            f"{deaths} at work on element {task.first} of {meaning.title} "
            f"({meaning.origin(task.epoch, task.first)}); {'the last of them' if many else 'it'} "
            f"was {event.worker.name} ({event.how})"
        )
        self._arrived[task.start] = _Arrived(task, 0, lost=died)

    # -- delivering ----------------------------------------------------------------------------

    def _next(self) -> _Arrived | None:
        """Return the task to deliver next, if it has arrived."""
        start = self._next_start if self.stage.ordered else next(iter(self._arrived), None)
        return None if start is None else self._arrived.pop(start, None)

    def _deliver(self, arrived: _Arrived, places: bool) -> Iterator[Any]:
        task, result = arrived.task, arrived.result
        self._next_start = task.stop
        if result is None or arrived.delivery is None:
            yield from self._deliver_loss(task, arrived.lost)
            return
        try:
            elements = iter(arrived.delivery.open())
        except Exception as error:
            self._in_flight -= arrived.nbytes
            yield from self._deliver_unreadable(task, error)
            return
        consecutive = range(task.start, task.start + result.count)
        positions = consecutive if result.positions is None else result.positions
        self._delivering = task, positions, elements
        began = time.perf_counter()
        rows = zip(positions, elements, strict=True) if places else elements
        delivered = 0
        for skipped in result.skipped:  # an error of a handler is raised at its element's position
            yield from islice(rows, skipped.before - delivered)
            delivered = skipped.before
            self._skip(skipped)
        yield from rows
        self._delivering = None
        now = time.perf_counter()
        self._outside += now - began
        self._filled += (now - began) * len(self._arrived)
        self._in_flight -= arrived.nbytes
        spent = self._waited, self._outside, self._worked
        if self._active.observe(task.stop - task.start, *spent, self._under_way):
            self._pace.share(self._active.count, self._bytes_per_task)
        counts = self._counts
        counts.delivered += result.count
        counts.entered += result.count if self.stage.end_to_end else 0
        counts.filtered += result.filtered
        if not result.count:
            self.when_left_out()
        if counts.filtered >= DROPPED_IN_A_ROW and not counts.delivered:
            self.when_sparse()
        failure = result.failure
        if failure is None:
            return
        if isinstance(failure.cause, InputExhausted):  # of a base: raised after all elements before
            self._exhausted, self._failed = True, self._work.errors[failure.cause.slot]
            return
        if isinstance(failure.cause, RowUnreadable):
            raise self._work.unreadable(task, failure.cause)
        if failure.path is None:
            raise failure.cause
        where = (failure.path, failure.epoch, failure.position, failure.detail)
        raise_with_cause(failure_in(self.stage, *where), failure.cause)

    def _skip(self, skipped: SkippedElement) -> None:
        self._counts.skipped += 1
        self._counts.entered += self.stage.end_to_end
        self._report_skip(self.stage.top.at(skipped.path), skipped.failed)

    def _deliver_unreadable(self, task: Task, error: Exception) -> Iterator[Row[Any]]:
        """Handle a result that cannot be loaded here: compute its elements again, one by one."""
        if task.stop - task.start > 1 and self.by_position:
            self._next_start = task.start
            self._counts.retried += task.stop - task.start
            self._retry(self._work.split(TaskInput(task)))
            return
        many = task.stop - task.start > 1
        what = f"one of the elements up to {task.stop - 1}" if many else "the element"
        lost = NotShippable(f"{what} cannot be loaded by the consumer's process: {error!r}")
        lost.__cause__ = travelling(error)  # without the frames, which keep the memory of arrays
        yield from self._deliver_loss(task, lost)

    def _deliver_loss(self, task: Task, lost: FlowError | None) -> Iterator[Row[Any]]:
        """Handle an element that cannot be had: raise, skip it, or deliver a placeholder.

        Workers have died on it, or it cannot be sent.
        """
        assert lost is not None
        step, epoch, there = answerable(self.stage.top, task.epoch, task.first)
        if step is None or self.stage.end_to_end or task.stop - task.start > 1:
            if isinstance(lost, WorkerDied):
                raise lost
            raise failure_in(self.stage, (), task.epoch, task.first) from lost
        if isinstance(step.node, SkipFailed):
            self._counts.skipped += 1
            self._report_skip(step, Failed(NOT_KNOWN, epoch, there, lost))
        elif isinstance(step.node, Attempt | AttemptToRead):  # an operator above skips it
            self._counts.delivered += 1
            yield task.first, Failed(step.node.number, epoch, there, lost)
