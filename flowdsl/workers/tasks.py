"""Tasks: numbered ranges of the elements of a pass, and their sizes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import count, pairwise
from math import inf
from typing import Any, TypeAlias

import attrs

from flowdsl.elements.nbytes import nbytes_of
from flowdsl.errors import ElementError, NotShippable, ending, travelling
from flowdsl.executor.program import OperatorFailed, Program, TruncatedInput, failure_in, needed
from flowdsl.nodes import (
    AnyNode,
    Failed,
    IndexTransform,
    Indices,
    Merging,
    PassFactory,
    Row,
    describe_element,
)
from flowdsl.nodes.failures import NOT_KNOWN, Attempt, AttemptToRead, SkipFailed
from flowdsl.plan.plan import Base, Lookup, Stage
from flowdsl.plan.supplied import Supplied
from flowdsl.resources.any_depth import any_depth
from flowdsl.resources.read_ahead import ReadAhead
from flowdsl.workers.wire import first_unpackable, packed_alone, unpack

SECONDS_PER_TASK = 0.03
"""The target duration of a task: long compared to a message, short compared to a user's wait."""

SECONDS_PER_SMALL_TASK = 0.15
"""The target duration of a task with a small result. For each task, worker and consumer do about a
millisecond of other work on cold caches, 2.4% of 0.03 seconds. A longer task with a large result
would evict its own first elements from the caches."""

BYTES_PER_TASK = 8 << 20
BYTES_PER_SMALL_TASK = 1 << 20
BYTES_IN_FLIGHT = 1 << 30
"""The bytes that may be in flight unless ``memory`` is set."""

MOST_PER_TASK = 4096


@attrs.frozen
class Task:
    """A unit of work: consecutive elements of a stage's output."""

    number: int
    """Counts from 0 over the life of a pool and is never reused: if the same elements are computed
    before and after a worker's death, the number identifies the stale result."""
    epoch: int
    start: int
    stop: int
    positions: list[int] | None = None
    """The position of each element if the stage's base left gaps; None if they are consecutive."""
    most_bytes: int = BYTES_IN_FLIGHT
    """A worker returns the elements that it has as soon as they have this size."""

    def part(self, number: int, start: int, stop: int) -> Task:
        """Return a task for the elements from ``start`` to ``stop`` of this one."""
        positions = self.positions
        if positions is not None:
            positions = positions[start - self.start : stop - self.start]
        return attrs.evolve(self, number=number, start=start, stop=stop, positions=positions)

    @property
    def first(self) -> int:
        """The position of the task's first element."""
        return self.start if self.positions is None else self.positions[0]

    def up_to(self, position: int) -> int:
        """The number of the task's elements up to a position, including that one."""
        if self.positions is None:
            return position + 1 - self.start
        return bisect_right(self.positions, position)

    def addresses(self) -> Indices:
        """The addresses of the elements to compute."""
        if self.positions is None:
            return Indices.span(self.epoch, self.start, self.stop)
        return Indices.at(self.epoch, self.positions)


InputRows: TypeAlias = Sequence[Sequence[Any] | TruncatedInput]
"""The rows of each base that a task needs, in the order in which they are used."""


class InputUnreadable(Exception):
    """A worker cannot load the rows of a task. This error never leaves the runtime."""


class RowUnreadable(Exception):
    """A worker cannot load a row that a task needs. This error never leaves the runtime."""

    def __init__(self, slot: int, row: int, cause: BaseException) -> None:
        """``row`` is the number of the row among those of the base ``slot`` in the task."""
        super().__init__(slot, row, cause)
        self.slot = slot
        self.row = row
        self.cause = cause


@attrs.frozen
class RowAlone:
    """A row that is packed by itself, so that the others are loaded if it cannot be."""

    content: bytes
    instead: Failed | None
    """What takes its place if operators above skip it; its cause is known in the worker."""


def opened(rows: InputRows) -> tuple[InputRows, dict[int, RowUnreadable]]:
    """Load rows that are packed by themselves.

    Also return the first row of each base that cannot be loaded and that nothing skips: its rows
    end there.
    """
    loaded = list[Any]()
    failed: dict[int, RowUnreadable] = {}
    for slot, part in enumerate(rows):
        is_cut = isinstance(part, TruncatedInput)
        found: list[Any] = []
        for i, row in enumerate(part.rows if isinstance(part, TruncatedInput) else part):
            try:
                found.append(unpack(row.content))
            except Exception as error:
                cause = travelling(_not_loaded("a worker process", error))
                if row.instead is None:
                    failed[slot] = RowUnreadable(slot, i, cause)
                    break
                found.append(attrs.evolve(row.instead, cause=cause))
        loaded.append(TruncatedInput(found, slot) if is_cut or slot in failed else found)
    return loaded, failed


def _not_loaded(where: str, error: Exception) -> NotShippable:
    """The cause of the failure of an element that cannot be loaded where it is sent."""
    failed = NotShippable(f"the element cannot be loaded by {where}: {error!r}")
    failed.__cause__ = error
    return failed


@attrs.frozen
class TaskInput:
    """A task with the rows that the consumer's process sends along."""

    task: Task
    rows: InputRows = attrs.field(factory=list[Any], repr=False)
    """The rows of each base, in the order in which they are used."""
    packed: Any = attrs.field(default=None, repr=False)
    """The rows, packed for a worker."""
    nbytes: int = 0
    """The size of the packed rows in bytes."""
    by_row: bool = False
    """True if each row is packed by itself."""
    deaths: int = 0
    """The number of workers that died on this task, or on the larger task it was split from."""

    @property
    def size(self) -> int:
        """The number of elements of the task."""
        return self.task.stop - self.task.start


Pack: TypeAlias = Callable[[InputRows], tuple[Any, int]]
"""Packs rows for sending; returns them with their size, or raises if they cannot be sent."""


class TaskSizer:
    """Computes the number of elements of the next task from the cost of the last tasks."""

    def __init__(
        self, workers: int, nbytes: int = BYTES_PER_TASK, timeout: float | None = None
    ) -> None:
        """Size tasks for ``workers`` workers and results of at most ``nbytes`` bytes.

        A task should take at most a fifth of ``timeout`` seconds, so that a long task is not
        mistaken for an element that never ends.
        """
        self._timeout = timeout
        self.most_bytes = nbytes
        """The bytes at which a task ends, whatever its size: of its result, and of its rows."""
        self.share(workers, nbytes)
        self._size = 1

    def share(self, workers: int, nbytes: int) -> None:
        """Change the number of workers and the maximum bytes of a result."""
        self._workers = workers
        self.most_bytes = nbytes
        timeout = self._timeout
        self._most = [
            (seconds if timeout is None else min(seconds, timeout / 5), min(nbytes, most))
            for seconds, most in (
                (SECONDS_PER_TASK, BYTES_PER_TASK),
                (SECONDS_PER_SMALL_TASK, BYTES_PER_SMALL_TASK),
            )
        ]
        """Pairs of limits in seconds and bytes; a task may grow as far as any one pair allows."""

    def size(self, remaining: int | None) -> int:
        """Return the size of the next task; near the end of a pass, at most a share of the rest."""
        if remaining is None:
            return self._size
        return max(1, min(self._size, remaining // (2 * self._workers)))

    @property
    def ahead(self) -> int:
        """The number of elements that a stream is read ahead: two tasks for each worker."""
        return 2 * self._workers * self._size

    def observe(self, count: int, seconds: float, nbytes: int) -> None:
        """Adjust the size to the cost of a finished task."""
        each, size = max(seconds, 1e-6) / count, max(nbytes, 1) / count
        allowed = max(min(most / each, large / size) for most, large in self._most)
        self._size = int(max(1, min(allowed, 2 * self._size, MOST_PER_TASK)))


@attrs.define
class TaskSource:
    """Divides a pass over a stage into task inputs: tasks with the rows they need."""

    stage: Stage
    bases: tuple[PassFactory, ...]
    """Functions that begin a pass over a base of the stage; empty unless the base is a stream."""
    pace: TaskSizer
    pack: Pack
    close: Callable[[], None] = lambda: None
    """Closes the sources of the stream; called in the thread that reads it."""
    wake: Callable[[], None] | None = None
    """Called in that thread when rows have arrived that were requested before."""
    memory: int = BYTES_IN_FLIGHT
    """The maximum bytes of the stream that may be read ahead of the workers."""
    reading: ReadAhead[Any] | None = attrs.field(default=None, init=False)
    """The reader of the stream in the pass that is under way."""
    numbers: Iterator[int] = attrs.field(factory=count)
    programs: list[Program] = attrs.field(factory=list[Program])
    """The programs of the bases whose rows are in this process's memory."""
    failures: dict[int, Exception] = attrs.field(factory=dict[int, Exception])
    """The errors of the bases that failed in this pass, by the number of the base."""

    def __attrs_post_init__(self) -> None:
        self.programs.extend(Program(b.top.node) for b in self.stage.bases if isinstance(b, Lookup))

    def task_inputs(self, epoch: int, start: int) -> Iterator[TaskInput | None]:
        """Yield the task inputs of one pass from element ``start``; None if none is available yet.

        A thread reads a stream ahead; after a None, it calls ``wake`` when rows have arrived. If a
        base fails, the last task input contains the rows before the failure, in a
        ``TruncatedInput``; its task ends at the element that cannot be computed.

        Raises:
            ElementError: A base failed; the task inputs of all elements before it were yielded.
        """
        self.failures.clear()
        if self.programs:
            yield from self._looked_up(self._spans(epoch, start))
        elif self.bases:
            yield from self._streamed(epoch, start)
        else:
            yield from map(TaskInput, self._spans(epoch, start))
        if self.failures:
            raise next(iter(self.failures.values()))

    @property
    def streams(self) -> bool:
        """True if rows can only be read sequentially, False if they are read by position."""
        return bool(self.bases)

    def split(self, task_input: TaskInput) -> list[TaskInput]:
        """Split a task input into task inputs of one element each, with new numbers."""
        task = task_input.task
        return self._parts(task_input, range(task.start, task.stop + 1))

    def rest(self, task_input: TaskInput, done: int) -> list[TaskInput]:
        """Return task inputs of the current size for all but the first ``done`` elements of one.

        If nothing is done, there are two: either the worker had no memory for its result, or the
        task was not due (see ``Executor.is_due``).
        """
        task = task_input.task
        size = self.pace.size(None) if done else -(-task_input.size // 2)
        return self._parts(task_input, [*range(task.start + done, task.stop, size), task.stop])

    def _parts(self, task_input: TaskInput, ends: Sequence[int]) -> list[TaskInput]:
        """Divide a task input at these places, from the first to the last."""
        task = task_input.task
        tasks = [task.part(next(self.numbers), a, b) for a, b in pairwise(ends)]
        if self.programs:
            parts = list(self._looked_up(iter(tasks)))
        elif not self.bases:
            parts = list(map(TaskInput, tasks))
        else:
            ratio = self.stage.rows_per_element
            (rows,) = task_input.rows
            assert not isinstance(rows, TruncatedInput), "truncated input of more than one element"
            starts = [(part.start - task.start) * ratio for part in tasks]
            own = [[rows[a:b]] for a, b in pairwise([*starts, len(rows)])]
            parts = [
                TaskInput(part, mine, *self.pack(mine))
                for part, mine in zip(tasks, own, strict=True)
            ]
        return [attrs.evolve(part, deaths=task_input.deaths) for part in parts]

    def renumbered(self, task_input: TaskInput) -> TaskInput:
        """Return the same task input with a new number."""
        return attrs.evolve(
            task_input, task=attrs.evolve(task_input.task, number=next(self.numbers))
        )

    def with_rows_alone(self, task_input: TaskInput) -> TaskInput:
        """Return the same task input with a new number, and with each row packed by itself."""
        addresses = needed(self.stage.program, task_input.task.addresses())
        rows = list[Any]()
        for slot, part in enumerate(task_input.rows):
            is_cut = isinstance(part, TruncatedInput)
            alone = [
                RowAlone(packed_alone(x), self._instead(slot, addresses[slot], i, x))
                for i, x in enumerate(part.rows if isinstance(part, TruncatedInput) else part)
            ]
            rows.append(TruncatedInput(alone, slot) if is_cut else alone)
        packed, nbytes = self.pack(rows)
        return attrs.evolve(self.renumbered(task_input), packed=packed, nbytes=nbytes, by_row=True)

    def unreadable(self, task: Task, error: RowUnreadable) -> ElementError:
        """Create the error for a row that a worker cannot load."""
        addresses = needed(self.stage.program, task.addresses())[error.slot]
        return _failure_of(self.stage.bases[error.slot], addresses, error.row, error.cause)

    def _instead(self, slot: int, addresses: Indices, i: int, x: object) -> Failed | None:
        """Return what takes the place of a row that cannot be sent; None if nothing skips it."""
        if not _is_skipped(self.stage.program, slot):
            return None
        node = self.stage.bases[slot].top.node
        number = node.number if isinstance(node, Attempt | AttemptToRead) else NOT_KNOWN
        place = int(addresses.epoch[i]), int(addresses.position[i])
        return Failed(number, *place, Exception(), describe_element(x))

    def _spans(self, epoch: int, start: int) -> Iterator[Task]:
        end = None if self.stage.end_to_end else self.stage.positions
        while end is None or start < end:
            size = self.pace.size(None if end is None else end - start)
            stop = start + size if end is None else min(start + size, end)
            yield self._task(epoch, start, stop)
            start = stop

    def _task(self, epoch: int, start: int, stop: int, positions: list[int] | None = None) -> Task:
        return Task(next(self.numbers), epoch, start, stop, positions, self.pace.most_bytes)

    def _looked_up(self, tasks: Iterator[Task]) -> Iterator[TaskInput]:
        """Yield task inputs with rows from this process's memory."""
        bases = self.stage.bases
        waiting = list[Task]()
        while (task := waiting.pop() if waiting else next(tasks, None)) is not None:
            addresses = needed(self.stage.program, task.addresses())
            rows: list[list[Any]] = []
            failures: dict[int, Exception] = {}
            room = task.most_bytes if task.stop - task.start > 1 else inf
            for slot, (base, program) in enumerate(zip(bases, self.programs, strict=True)):
                found, failed, room = _look_up(base, program, addresses[slot], room)
                rows.append(found)
                if failed is not None:
                    failures[slot] = failed
            if room < 0:
                middle = (task.start + task.stop) // 2
                waiting += [
                    task.part(next(self.numbers), middle, task.stop),
                    task.part(next(self.numbers), task.start, middle),
                ]
                continue
            packed, bad = self._packed(rows, addresses)
            for slot, (i, cause) in bad.items():
                failures[slot] = _failure_of(
                    bases[slot], addresses[slot], i, cause, describe_element(rows[slot][i])
                )
                del rows[slot][i:]
            if failures:
                self.failures.update(failures)
                yield self._cut_short(task, rows, failures)
                return
            yield TaskInput(task, rows, *packed)

    def _cut_short(self, task: Task, found: list[list[Any]], failed: Container[int]) -> TaskInput:
        rows = [
            TruncatedInput(part, slot) if slot in failed else part
            for slot, part in enumerate(found)
        ]
        return TaskInput(task, rows, *self.pack(rows))

    def _streamed(self, epoch: int, start: int) -> Iterator[TaskInput | None]:
        """Yield task inputs from a stream: each has the available rows, up to the task size."""
        (read,), (base,), ratio = self.bases, self.stage.bases, self.stage.rows_per_element
        pace = self.pace  # the thread must not refer to self, which would keep the backend alive
        stream: ReadAhead[Any] = ReadAhead(
            base.top.node.title,
            lambda: read(epoch),
            self.close,
            lambda: pace.ahead * ratio,
            nbytes_of,
            self.memory,
            self.wake,
        )
        self.reading = stream
        try:
            yield from self._cut(stream, epoch, start)
        finally:
            stream.stop()

    def _cut(self, stream: ReadAhead[Any], epoch: int, start: int) -> Iterator[TaskInput | None]:
        ratio, (base,) = self.stage.rows_per_element, self.stage.bases
        ended = False
        while not ended and not self.failures:
            rows = stream.take(self.pace.size(None) * ratio, ratio, self.pace.most_bytes)
            if rows is None:
                yield None
                continue
            ended = not rows or bool(len(rows) % ratio)
            if ended and stream.error is not None:
                if not isinstance(stream.error, Exception):
                    raise stream.error
                self.failures[0] = stream.error
            at = Indices.at(epoch, [position for position, _ in rows])
            values = [x for _, x in rows]
            packed, bad = self._packed([values], {0: at})
            rows = list(zip(at.position.tolist(), values, strict=True))  # some may be failures now
            if bad:
                i, cause = bad[0]
                self.failures[0] = _failure_of(base, at, i, cause, describe_element(values[i]))
                del rows[i:]
            rest: list[Row[Any]] = []
            if self.failures:  # the available rows of the element that cannot be computed
                whole = len(rows) - len(rows) % ratio
                rows, rest = rows[:whole], rows[whole:]
                packed = self.pack([[x for _, x in rows]])
            if stop := self.stage.elements_of(len(rows)):
                stop += start
                positions = [position for position, _ in rows] if ratio == 1 else None
                if positions == list(range(start, stop)):
                    positions = None
                task = self._task(epoch, start, stop, positions)
                yield TaskInput(task, [[x for _, x in rows]], *packed)
                start = stop
            if rest:
                last = self._task(epoch, start, start + 1)
                yield self._cut_short(last, [[x for _, x in rest]], self.failures)

    def _packed(
        self, rows: list[list[Any]], addresses: dict[int, Indices]
    ) -> tuple[tuple[Any, int], dict[int, tuple[int, Exception]]]:
        """Pack the rows, or return the first row of each base that cannot be sent, and why.

        In ``rows`` a failure takes the place of a row that operators above skip.
        """
        while True:
            try:
                return self.pack(rows), {}
            except Exception:
                bad = [(slot, first_unpackable(found)) for slot, found in enumerate(rows)]
                firsts = {slot: first for slot, first in bad if first is not None}
                if not firsts:
                    raise
            for slot, (i, cause) in list(firsts.items()):
                instead = self._instead(slot, addresses[slot], i, rows[slot][i])
                if instead is not None:
                    rows[slot][i] = attrs.evolve(instead, cause=cause)
                    del firsts[slot]
            if firsts:
                return (None, 0), firsts


def _look_up(
    base: Base, program: Program, addresses: Indices, room: float
) -> tuple[list[Any], Exception | None, float]:
    """Return the rows of a base at these addresses up to the first failure, and its error.

    Also return what is left of ``room``, the bytes that they may have; it is below 0 if they have
    more, and then not all rows are returned.
    """
    rows: list[Any] = []
    try:
        for _, x in program.rows(addresses):
            rows.append(x)  # rows before a failure are used
            room -= nbytes_of(x)
            if room < 0:
                break
    except OperatorFailed as error:
        failed = ending(failure_in(base, *error.args), error.__cause__ or error)
        if not isinstance(failed, Exception):
            raise failed from failed.__cause__
        return rows, failed, room
    return rows, None, room


@any_depth
def _is_skipped(node: AnyNode, slot: int, from_above: bool = False) -> bool:
    """Return True if operators of this program leave out a failure among the rows of a base."""
    if isinstance(node, Supplied):
        return from_above and node.slot == slot
    passes_on = isinstance(node, Attempt | IndexTransform | Merging)
    reached = isinstance(node, SkipFailed) or (from_above and passes_on)
    return any(_is_skipped(source, slot, reached) for source in node.sources)


def _failure_of(
    base: Base, addresses: Indices, i: int, cause: BaseException, detail: str | None = None
) -> ElementError:
    """Create the error for an element of a base that cannot be sent to a worker."""
    error = base.top.node.failure(int(addresses.epoch[i]), int(addresses.position[i]), detail)
    error.__cause__ = cause
    return error
