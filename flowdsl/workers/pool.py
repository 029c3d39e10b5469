"""A pool: hands the work of one stage to its workers, and delivers their results in order.

The consumer's own thread coordinates: each time it needs a result, it hands out more tasks and
takes in the results that have come. Only a stream is read ahead, in a thread of its own. Credit
bounds the work in flight and the rows read ahead, by count and by bytes, so when the consumer stops
reading, the workers and the stream soon stop too.

Contract: every task is delivered once, in the order of its elements, whichever worker finishes
first and whichever dies. A worker that dies is replaced, and the tasks it held are handed out
again. A worker marks each task as begun before it works on it; the task it was working on when it
died is cut into single elements, to find the one that kills workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import length_hint
from typing import Any

import attrs

from flowdsl.errors import FlowError, WorkerDied
from flowdsl.executor.costs import Costs, add_costs, costs_of
from flowdsl.executor.execute import SkippedElement, Tell, answerable
from flowdsl.executor.program import InputExhausted, failure_in
from flowdsl.nodes import Failed, PassFactory, Row
from flowdsl.nodes.failures import NOT_KNOWN, Attempt, AttemptToRead, SkipFailed
from flowdsl.plan.plan import Stage
from flowdsl.resources.cancellation import is_cancelled
from flowdsl.statistics.accounting import ElementCounts, Times
from flowdsl.statistics.run import StageStatistics, WorkerStatistics
from flowdsl.workers.active_workers import ActiveWorkers
from flowdsl.workers.backend import Delivery, Died, Done, Result, Worker, WorkerBackend
from flowdsl.workers.tasks import BYTES_IN_FLIGHT, Task, TaskInput, TaskSizer, TaskSource

TASKS_PER_WORKER = 2
"""Tasks held by each worker: one to work on, and one so that it need not wait for the next."""

TASKS_AHEAD = 6
"""Finished tasks for each worker that may wait for their turn behind a slow one."""

STILLBIRTHS = 3
"""When this many workers in a row have ended before they were ready, the pass fails."""


@attrs.frozen
class _Arrived:
    """A task that waits to be delivered: its result, or the death that it led to."""

    task: Task
    nbytes: int
    result: Result | None = None
    delivery: Delivery | None = None
    death: WorkerDied | None = None


class Pool:
    """Runs a stage by the workers of a backend, one pass at a time."""

    def __init__(
        self,
        stage: Stage,
        bases: tuple[PassFactory, ...],
        backend: WorkerBackend,
        tell: Tell,
        held: int = 0,
        found: int | None = None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare a pool; ``bases`` begin passes over the stage's bases that are streams.

        These are read in a thread, which ``close`` is called in when it has done with them.

        ``tell`` is called with each element that is left out. ``held`` is the number of elements
        kept by the operators above, which count as in flight. ``found`` is the number of workers
        that paid in the last pass, if that is for the run to find.
        """
        self.stage = stage
        self._leave_out = tell
        self.backend = backend
        self._held = held
        self._active = ActiveWorkers.of(backend, stage.workers, found)
        self._memory = stage.workers.memory or BYTES_IN_FLIGHT
        self._pace = TaskSizer(self._active.count, self._bytes_per_task, stage.workers.timeout)
        ahead = self._memory // 4
        self._work = TaskSource(stage, bases, self._pace, backend.pack, close, backend.wake, ahead)
        self._clear()
        self._delivering: tuple[int, Sequence[int], Iterator[Any]] | None = None
        """The task being delivered: its start, its elements' positions, and the elements left."""
        self._stillborn = 0
        self._books = ElementCounts()
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
        """The rows of one pass from the position ``start`` on; ends the pass before it."""
        return self._pass(epoch, start, places=True)

    def elements(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """The elements of one pass from the position ``start`` on, without their positions."""
        return self._pass(epoch, start, places=False)

    def _pass(self, epoch: int, start: int, places: bool) -> Iterator[Any]:
        """One pass.

        Raises:
            ElementError: An operator failed, after every element before it was yielded.
            WorkerDied: Workers ended, again and again, over an element or before they were ready.
            FlowError: The counts do not balance, or operators hold more than ``memory``.
        """
        self._began = self._began or time.perf_counter()
        self._ended = None
        # raises in a fork, before the fork could discard the owner's results
        self._active.start(self._waited, self._outside, self._worked)
        self._discard()
        self._books.settle()
        self._turn, self._delivering = start, None
        work = self._work.task_inputs(epoch, start)
        while True:
            self._hand_out(work)
            arrived = self._next()
            if arrived is not None:
                yield from self._deliver(arrived, places)
            elif self._assigned or self._again or not self._exhausted:
                self._take_in()
            elif self._failed is not None:
                raise self._failed
            else:
                break
        self._ended = time.perf_counter()
        self._books.check(self.stage.meaning.title)

    @property
    def by_position(self) -> bool:
        """Whether a pass can begin at any position: not if its base is a stream."""
        return not self._work.streams

    @property
    def place(self) -> int:
        """The position that comes next, in a pass that can begin at any position."""
        if self._delivering is None:
            return self._turn
        start, positions, to_come = self._delivering
        given = len(positions) - length_hint(to_come)
        return positions[given - 1] + 1 if given else start

    def end_reading(self) -> None:
        """Read no more of a stream; what it reads is closed."""
        if self._work.reading is not None:
            self._work.reading.stop()

    def end(self) -> None:
        """End the pass, however far it came, so that the workers may rest."""
        turn = self.place
        self._discard()
        self._turn, self._delivering = turn, None

    def close(self) -> None:
        """End the workers; arrays that the consumer holds stay valid."""
        self.end_reading()
        self._ended = self._ended or time.perf_counter()
        self._turn, self._delivering = self.place, None
        self._arrived.clear()
        self.backend.close()

    def statistics(self) -> StageStatistics:
        """The statistics of the stage so far."""
        now = self._ended or time.perf_counter()
        seconds = now - (self._began or now)
        workers = self.backend.workers
        return StageStatistics(
            operators=self.stage.titles,
            kind=self.stage.workers.kind,
            seconds=seconds,
            entered=self._books.entered,
            delivered=self._books.delivered,
            filtered=self._books.filtered,
            skipped=self._books.skipped,
            retried=self._books.retried,
            in_flight=self._books.under_way,
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

    # -- handing out ---------------------------------------------------------------------------

    def _discard(self) -> None:
        """Discard results that have come and were not delivered."""
        for stale in self._arrived.values():
            if stale.delivery is not None:
                stale.delivery.discard()
        self._clear()

    def _clear(self) -> None:
        self._assigned: dict[int, Task] = {}
        self._again: list[TaskInput] = []
        """Pieces to retry, in order of position. The results that wait for them keep their credit,
        so there is always room for a retry."""
        self._arrived: dict[int, _Arrived] = {}
        """Tasks that wait to be delivered, by the position at which they start."""
        self._in_flight = 0
        """Bytes in flight: rows sent and not answered, and results that wait to be delivered."""
        self._exhausted = False
        self._starved = False
        """Whether a worker could be given more, and the stream has no more yet."""
        self._failed: Exception | None = None
        self._turn = 0

    def _hand_out(self, work: Iterator[TaskInput | None]) -> None:
        self._starved = False
        while self._may_hand_out():
            worker = self._idle()
            if worker is None:
                return
            if self._again:
                task_input = self._again.pop(0)
            elif self._exhausted:
                return
            else:
                began = time.perf_counter()
                try:
                    found = next(work)
                except StopIteration:
                    self._exhausted = True
                    return
                except Exception as error:  # of the base: raised after all elements before it
                    self._exhausted, self._failed = True, error
                    return
                finally:
                    if self.stage.bases:
                        self._reading += time.perf_counter() - began
                if found is None:
                    self._starved = True
                    return
                task_input = found
                self._books.entered += 0 if self.stage.end_to_end else task_input.size
            self._assigned[task_input.task.number] = task_input.task
            self._in_flight += task_input.nbytes
            self.backend.submit(worker, task_input)

    @property
    def _under_way(self) -> int:
        """The number of tasks that were handed out and are not delivered."""
        return len(self._assigned) + len(self._arrived)

    @property
    def _credit(self) -> int:
        """The most tasks that may be under way."""
        return self._active.count * (TASKS_PER_WORKER + TASKS_AHEAD)

    @property
    def _bytes_per_task(self) -> int:
        return max(1, self._memory // self._credit)

    def _idle(self) -> Worker | None:
        """The worker with the fewest pieces, if any has room for another."""
        roomy = (w for w in self._active.able if w.ready and len(w.held) < TASKS_PER_WORKER)
        return min(roomy, key=lambda worker: len(worker.held), default=None)

    def _may_hand_out(self) -> bool:
        """Whether credit allows another piece; one that all others wait for is always allowed."""
        if not self._assigned and not self._arrived:
            return True
        if self._again and self._again[0].task.start == self._turn:
            return True
        if self._under_way >= self._credit:
            return False
        if not self._most_bytes:
            return self.stage.workers.memory is None
        expected = sum(task.stop - task.start for task in self._assigned.values())
        held = self._held * self._most_bytes
        if held > self._memory:
            raise FlowError(
                f"prefetch: memory={self._memory} bytes is less than the {self._held} elements of "
                f"about {self._most_bytes:,.0f} bytes that are held above "
                f"{self.stage.meaning.title}; give at least {2 * held:,.0f}, or a smaller buffer"
            )
        next_one = self._pace.size(None)
        coming = (expected + next_one) * self._most_bytes + next_one * self._most_sent
        stream = self._work.reading
        ahead = 0 if stream is None else stream.nbytes
        return self._in_flight + held + ahead + coming <= self._memory

    # -- taking in -----------------------------------------------------------------------------

    def _take_in(self) -> None:
        """Wait for events from the workers, and act on them."""
        self._active.complete()
        began = time.perf_counter()
        events = self.backend.poll()
        if is_cancelled():
            raise FlowError(f"{self.stage.meaning.title}: the pass was given up")
        waited = time.perf_counter() - began
        if self._starved:  # more workers would wait for the stream, too
            self._reading += waited
        else:
            self._waited += waited
        self._filled += waited * len(self._arrived)
        for event in events:
            if isinstance(event, Done):
                self._done(event)
            elif isinstance(event, Died):
                self._died(event)
            else:
                self._stillborn = 0
        self._active.dismiss_idle()

    def _done(self, event: Done) -> None:
        worker, result = event.worker, event.result
        task_input = worker.held.pop(result.number, None)
        task = self._assigned.pop(result.number, None)
        if task is None or task_input is None:  # the result belongs to a pass that was abandoned
            event.delivery.discard()
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
        made = result.count if self.stage.end_to_end else task_input.size
        if result.failure is None and made:
            self._pace.observe(made, result.seconds, max(nbytes, task_input.nbytes))
        self._arrived[task.start] = _Arrived(task, nbytes, result, event.delivery)
        if self.stage.end_to_end and result.failure is None and result.count < task_input.size:
            self._exhausted = True

    def _died(self, event: Died) -> None:
        worker = event.worker
        self._deaths += 1
        if not worker.ready:
            self._stillborn += 1
            if self._stillborn == STILLBIRTHS:
                raise WorkerDied(f"{worker.name} ended before it was ready ({event.how})")
        task_inputs = [p for p in worker.held.values() if p.task.number in self._assigned]
        blamed, most = event.begun, self.stage.workers.deaths
        if (
            blamed not in worker.held and task_inputs
        ):  # as far as is known, it had begun none of them
            blamed, most = task_inputs[0].task.number, max(most, STILLBIRTHS)
        worker.held.clear()
        again: list[TaskInput] = []
        for task_input in task_inputs:
            del self._assigned[task_input.task.number]
            self._in_flight -= task_input.nbytes
            self._books.retried += task_input.size
            if task_input.task.number != blamed:
                again.append(self._work.again(task_input))
                continue
            task_input = attrs.evolve(task_input, deaths=task_input.deaths + 1)
            if task_input.size > 1:
                again += self._work.split(task_input)
            elif task_input.deaths < most:
                again.append(self._work.again(task_input))
            else:
                self._give_up(task_input, event)
        self._again = sorted([*again, *self._again], key=lambda task_input: task_input.task.start)
        self.backend.replace(worker)

    def _give_up(self, task_input: TaskInput, event: Died) -> None:
        task, meaning = task_input.task, self.stage.meaning
        if isinstance(meaning, SkipFailed):
            meaning = meaning.source  # the operator whose failures it leaves out
        many = task_input.deaths > 1
        who = f"{task_input.deaths} workers died, one after another," if many else "a worker died"
        died = WorkerDied(
            f"{who} at work on element {task.first} of {meaning.title} "
            f"({meaning.origin(task.epoch, task.first)}); {'the last of them' if many else 'it'} "
            f"was {event.worker.name} ({event.how})"
        )
        self._arrived[task.start] = _Arrived(task, 0, death=died)

    # -- delivering ----------------------------------------------------------------------------

    def _next(self) -> _Arrived | None:
        """The task to deliver now, if it has arrived."""
        turn = self._turn if self.stage.ordered else next(iter(self._arrived), None)
        return None if turn is None else self._arrived.pop(turn, None)

    def _deliver(self, arrived: _Arrived, places: bool) -> Iterator[Any]:
        task, result = arrived.task, arrived.result
        self._turn = task.stop
        if result is None or arrived.delivery is None:
            yield from self._leave(task, arrived.death)
            return
        elements = iter(arrived.delivery.open())
        consecutive = range(task.start, task.start + result.count)
        positions = consecutive if result.positions is None else result.positions
        self._delivering = task.start, positions, elements
        began = time.perf_counter()
        rows = zip(positions, elements, strict=True) if places else elements
        given = 0
        for left in result.left:  # an error of a handler is raised at its element's position
            yield from islice(rows, left.before - given)
            given = left.before
            self._tell(left)
        yield from rows
        self._delivering = None
        now = time.perf_counter()
        self._outside += now - began
        self._filled += (now - began) * len(self._arrived)
        self._in_flight -= arrived.nbytes
        spent = self._waited, self._outside, self._worked
        if self._active.observe(task.stop - task.start, *spent, self._under_way):
            self._pace.share(self._active.count, self._bytes_per_task)
        books = self._books
        books.delivered += result.count
        books.entered += result.count if self.stage.end_to_end else 0
        books.filtered += result.filtered
        failure = result.failure
        if failure is None:
            return
        if isinstance(
            failure.cause, InputExhausted
        ):  # of the base: raised after all elements before it
            self._exhausted, self._failed = True, self._work.failures[failure.cause.slot]
            return
        if failure.path is None:
            raise failure.cause
        where = (failure.path, failure.epoch, failure.position, failure.detail)
        raise failure_in(self.stage, *where) from failure.cause

    def _tell(self, left: SkippedElement) -> None:
        self._books.skipped += 1
        self._books.entered += self.stage.end_to_end
        self._leave_out(self.stage.top.at(left.path), left.failed)

    def _leave(self, task: Task, death: WorkerDied | None) -> Iterator[Row[Any]]:
        """Handle an element that workers died on: raise, leave it out, or deliver a stand-in."""
        assert death is not None
        step, epoch, there = answerable(self.stage.top, task.epoch, task.first)
        if step is None or self.stage.end_to_end:
            raise death
        if isinstance(step.node, SkipFailed):
            self._books.skipped += 1
            self._leave_out(step, Failed(NOT_KNOWN, epoch, there, death))
        elif isinstance(step.node, Attempt | AttemptToRead):  # an operator above leaves it out
            self._books.delivered += 1
            yield task.first, Failed(step.node.number, epoch, there, death)
