"""Tasks: numbered ranges of the elements of a pass, with the rows that they need."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import count, pairwise
from math import inf
from typing import Any, NamedTuple, TypeAlias

import attrs

from flowdsl.elements.nbytes import nbytes_of
from flowdsl.errors import ElementError, NotShippable, travelling, with_cause
from flowdsl.executor.program import (
    OperatorFailed,
    Program,
    TruncatedInput,
    element_error,
    rows_needed,
)
from flowdsl.nodes import (
    AnyNode,
    Failed,
    IndexTransform,
    Indices,
    Merging,
    PassFactory,
    describe_element,
)
from flowdsl.nodes.failures import NOT_KNOWN, Attempt, AttemptToRead, SkipFailed
from flowdsl.plan.plan import Base, Lookup, Stage
from flowdsl.plan.supplied import Supplied
from flowdsl.resources.any_depth import any_depth
from flowdsl.resources.read_ahead import ReadAhead
from flowdsl.workers.task_sizer import TaskSizer
from flowdsl.workers.wire import first_unpackable, packed_alone, unpack

BYTES_IN_FLIGHT = 1 << 30
"""The bytes that may be in flight unless ``memory`` is set."""


@attrs.frozen
class Task:
    """A unit of work: consecutive elements of a stage's output."""

    number: int
    """Counts from 0 over the life of a pool and is never reused: if the same elements are computed
    again after a worker's death, the number tells the stale result from the new one."""
    epoch: int
    start: int
    stop: int
    positions: list[int] | None = None
    """The position of each element if the stage's base left gaps; None if they are consecutive."""
    most_bytes: int = BYTES_IN_FLIGHT
    """A worker returns the elements that it has as soon as they reach this size."""

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
"""The rows that a task needs: one sequence for each base, in the order in which they are used."""


class InputUnreadable(Exception):
    """A worker cannot load the rows of a task, which were packed together.

    The task is sent again, with each row packed by itself. This error never leaves the runtime.
    """


class RowUnreadable(Exception):
    """A worker cannot load a row that was packed by itself. This error never leaves the runtime."""

    def __init__(self, slot: int, row: int, cause: BaseException) -> None:
        """``slot`` is the index of the base in the stage, ``row`` that of the row in the task."""
        super().__init__(slot, row, cause)
        self.slot = slot
        self.row = row
        self.cause = cause


@attrs.frozen
class RowAlone:
    """A row that is packed by itself, so that a worker can load the other rows without it."""

    content: bytes
    skipped_as: Failed | None
    """The row's replacement if the worker cannot load it: a failure, whose cause the worker
    sets. None if no operator above skips failures, so that the pass ends."""


def load_rows_alone(rows: InputRows) -> tuple[InputRows, dict[int, RowUnreadable]]:
    """Load rows that are packed by themselves.

    The rows of a base end before the first one that cannot be loaded and that no operator skips.
    Also return the errors of these rows, by the number of the base.
    """
    loaded = list[Any]()
    errors: dict[int, RowUnreadable] = {}
    for slot, base_rows in enumerate(rows):
        is_cut = isinstance(base_rows, TruncatedInput)
        found: list[Any] = []
        for i, row in enumerate(_available(base_rows)):
            try:
                found.append(unpack(row.content))
            except Exception as error:
                reason = f"the element cannot be loaded by a worker process: {error!r}"
                not_loaded = NotShippable(reason)
                not_loaded.__cause__ = error
                cause = travelling(not_loaded)
                if row.skipped_as is None:
                    errors[slot] = RowUnreadable(slot, i, cause)
                    break
                found.append(attrs.evolve(row.skipped_as, cause=cause))
        loaded.append(TruncatedInput(found, slot) if is_cut or slot in errors else found)
    return loaded, errors


def _available(base_rows: Sequence[Any] | TruncatedInput) -> Sequence[Any]:
    """Return the rows of a base; those before the failed row if they are truncated."""
    return base_rows.rows if isinstance(base_rows, TruncatedInput) else base_rows


@attrs.frozen
class TaskInput:
    """A task with the rows that the consumer's process sends along."""

    task: Task
    rows: InputRows = attrs.field(factory=list[Any], repr=False)
    """The rows as this process has them, for workers that share its memory."""
    packed: Any = attrs.field(default=None, repr=False)
    """The rows as a message to a worker, as the backend packed them."""
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
"""Packs rows into a message; returns it with its size, or raises if a row cannot be sent."""


@attrs.define
class TaskSource:
    """Divides a pass over a stage into task inputs: tasks with the rows they need."""

    stage: Stage
    bases: tuple[PassFactory, ...]
    """Functions that begin a pass over a stream of the stage; empty if it reads no stream."""
    sizer: TaskSizer
    pack: Pack
    close: Callable[[], None] = lambda: None
    """Closes the sources of the stream; called in the thread that reads it."""
    wake: Callable[[], None] | None = None
    """Called in that thread when rows have arrived after ``task_inputs`` yielded None."""
    memory: int = BYTES_IN_FLIGHT
    """The maximum bytes of the stream that may be read ahead of the workers."""
    reading: ReadAhead[Any] | None = attrs.field(default=None, init=False)
    """The reader of the stream in the pass that is under way."""
    numbers: Iterator[int] = attrs.field(factory=count)
    """The numbers of the next tasks."""
    programs: list[Program] = attrs.field(factory=list[Program])
    """The programs of the bases whose rows are in this process's memory."""
    errors: dict[int, Exception] = attrs.field(factory=dict[int, Exception])
    """The errors of the bases that failed in this pass, by its slot."""

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
        self.errors.clear()
        if self.programs:
            yield from self._looked_up(self._spans(epoch, start))
        elif self.bases:
            yield from self._streamed(epoch, start)
        else:
            yield from map(TaskInput, self._spans(epoch, start))
        if self.errors:
            raise next(iter(self.errors.values()))

    @property
    def streams(self) -> bool:
        """True if rows can only be read sequentially, False if they are read by position."""
        return bool(self.bases)

    def split(self, task_input: TaskInput) -> list[TaskInput]:
        """Split a task input into task inputs of one element each, with new numbers."""
        task = task_input.task
        return self._divided(task_input, range(task.start, task.stop + 1))

    def rest(self, task_input: TaskInput, settled: int) -> list[TaskInput]:
        """Return task inputs of the current size for all but the first ``settled`` elements.

        If none are settled, return two halves: the worker had no memory for the result, or it
        returned the task unstarted, since the rest of an earlier task has to run first (see
        ``Executor.is_due``).
        """
        task = task_input.task
        size = self.sizer.size(None) if settled else -(-task_input.size // 2)
        starts = range(task.start + settled, task.stop, size)
        return self._divided(task_input, [*starts, task.stop])

    def _divided(self, task_input: TaskInput, bounds: Sequence[int]) -> list[TaskInput]:
        """Return a task input for the elements between each two neighbouring bounds."""
        task = task_input.task
        tasks = [task.part(next(self.numbers), a, b) for a, b in pairwise(bounds)]
        if self.programs:
            parts = list(self._looked_up(iter(tasks)))
        elif not self.bases:
            parts = list(map(TaskInput, tasks))
        else:
            ratio = self.stage.rows_per_element
            (rows,) = task_input.rows
            assert not isinstance(rows, TruncatedInput), "truncated input of more than one element"
            starts = [(part.start - task.start) * ratio for part in tasks]
            # The last element of a pass may have fewer rows.
            own_rows = [[rows[a:b]] for a, b in pairwise([*starts, len(rows)])]
            parts = [
                TaskInput(part, own, *self.pack(own))
                for part, own in zip(tasks, own_rows, strict=True)
            ]
        return [attrs.evolve(part, deaths=task_input.deaths) for part in parts]

    def renumbered(self, task_input: TaskInput) -> TaskInput:
        """Return the same task input with a new number."""
        return attrs.evolve(
            task_input, task=attrs.evolve(task_input.task, number=next(self.numbers))
        )

    def with_rows_alone(self, task_input: TaskInput) -> TaskInput:
        """Return the same task input with a new number, and with each row packed by itself."""
        addresses = rows_needed(self.stage.program, task_input.task.addresses())
        not_known_yet = Exception()
        rows = list[Any]()
        for slot, base_rows in enumerate(task_input.rows):
            alone = [
                RowAlone(
                    packed_alone(x), self._skipped_as(slot, addresses[slot], i, x, not_known_yet)
                )
                for i, x in enumerate(_available(base_rows))
            ]
            is_cut = isinstance(base_rows, TruncatedInput)
            rows.append(TruncatedInput(alone, slot) if is_cut else alone)
        packed, nbytes = self.pack(rows)
        return attrs.evolve(self.renumbered(task_input), packed=packed, nbytes=nbytes, by_row=True)

    def unreadable(self, task: Task, error: RowUnreadable) -> ElementError:
        """Create the error for a row that a worker cannot load."""
        addresses = rows_needed(self.stage.program, task.addresses())[error.slot]
        return _row_error(self.stage.bases[error.slot], addresses, error.row, error.cause)

    def _skipped_as(
        self, slot: int, addresses: Indices, i: int, x: object, cause: Exception
    ) -> Failed | None:
        """Return the failure for row ``i`` of a base, ``x``, which cannot be sent or loaded.

        None if no operator skips it.
        """
        if not _is_skipped(self.stage.program, slot):
            return None
        node = self.stage.bases[slot].top.node
        number = node.number if isinstance(node, Attempt | AttemptToRead) else NOT_KNOWN
        epoch, position = int(addresses.epoch[i]), int(addresses.position[i])
        return Failed(number, epoch, position, cause, describe_element(x))

    def _spans(self, epoch: int, start: int) -> Iterator[Task]:
        """Yield the tasks of a pass whose elements are computed by position."""
        end = None if self.stage.end_to_end else self.stage.positions
        while end is None or start < end:
            size = self.sizer.size(None if end is None else end - start)
            stop = start + size if end is None else min(start + size, end)
            yield self._task(epoch, start, stop)
            start = stop

    def _task(self, epoch: int, start: int, stop: int, positions: list[int] | None = None) -> Task:
        return Task(next(self.numbers), epoch, start, stop, positions, self.sizer.most_bytes)

    def _looked_up(self, tasks: Iterator[Task]) -> Iterator[TaskInput]:
        """Yield task inputs with rows from this process's memory."""
        bases = self.stage.bases
        halves = list[Task]()
        while (task := halves.pop() if halves else next(tasks, None)) is not None:
            addresses = rows_needed(self.stage.program, task.addresses())
            rows: list[list[Any]] = []
            errors: dict[int, Exception] = {}
            bytes_left = task.most_bytes if task.stop - task.start > 1 else inf
            for slot, (base, program) in enumerate(zip(bases, self.programs, strict=True)):
                found = _look_up(base, program, addresses[slot], bytes_left)
                rows.append(found.rows)
                bytes_left = found.bytes_left
                if found.error is not None:
                    errors[slot] = found.error
            if bytes_left < 0:
                middle = (task.start + task.stop) // 2
                halves += [
                    task.part(next(self.numbers), middle, task.stop),
                    task.part(next(self.numbers), task.start, middle),
                ]
                continue
            message, unsendable = self._packed(rows, addresses)
            for slot, (i, cause) in unsendable.items():
                errors[slot] = _row_error(
                    bases[slot], addresses[slot], i, cause, describe_element(rows[slot][i])
                )
                del rows[slot][i:]
            if errors:
                self.errors.update(errors)
                yield self._cut_short(task, rows, errors)
                return
            yield TaskInput(task, rows, *message)

    def _cut_short(self, task: Task, found: list[list[Any]], failed: Container[int]) -> TaskInput:
        """Return the task input that contains the rows of each base before its failure."""
        rows = [
            TruncatedInput(base_rows, slot) if slot in failed else base_rows
            for slot, base_rows in enumerate(found)
        ]
        return TaskInput(task, rows, *self.pack(rows))

    def _streamed(self, epoch: int, start: int) -> Iterator[TaskInput | None]:
        """Yield task inputs from a stream: each has the available rows, up to the task size."""
        (read,), (base,), ratio = self.bases, self.stage.bases, self.stage.rows_per_element
        sizer = self.sizer  # the thread must not refer to self, which would keep the backend alive
        stream: ReadAhead[Any] = ReadAhead(
            base.top.node.title,
            begin=lambda: read(epoch),
            close=self.close,
            max_rows=lambda: sizer.elements_ahead * ratio,
            size=nbytes_of,
            nbytes=self.memory,
            wake=self.wake,
        )
        self.reading = stream
        try:
            yield from self._cut(stream, epoch, start)
        finally:
            stream.stop()

    def _cut(self, stream: ReadAhead[Any], epoch: int, start: int) -> Iterator[TaskInput | None]:
        """Cut the rows of a stream into task inputs."""
        ratio, (base,) = self.stage.rows_per_element, self.stage.bases
        ended = False
        while not ended and not self.errors:
            rows = stream.take(self.sizer.size(None) * ratio, ratio, self.sizer.most_bytes)
            if rows is None:
                yield None
                continue
            # Only at the end of the stream does `take` return an incomplete group, or no rows.
            ended = not rows or len(rows) % ratio != 0
            if ended and stream.error is not None:
                if not isinstance(stream.error, Exception):
                    raise stream.error
                self.errors[0] = stream.error
            positions, values = [position for position, _ in rows], [x for _, x in rows]
            addresses = Indices.at(epoch, positions)
            message, unsendable = self._packed([values], {0: addresses})
            if unsendable:
                i, cause = unsendable[0]
                self.errors[0] = _row_error(base, addresses, i, cause, describe_element(values[i]))
                del values[i:]
            complete = len(values)  # the last element of a pass may have fewer rows than the others
            if self.errors:  # the element at the error has a task of its own, with the rows before
                complete -= complete % ratio
                message = self.pack([values[:complete]])
            if count := self.stage.elements_of(complete):
                task = self._task(epoch, start, start + count)
                if ratio == 1 and positions[:complete] != list(range(task.start, task.stop)):
                    task = attrs.evolve(task, positions=positions[:complete])
                yield TaskInput(task, [values[:complete]], *message)
                start = task.stop
            if len(values) > complete:
                last = self._task(epoch, start, start + 1)
                yield self._cut_short(last, [values[complete:]], self.errors)

    def _packed(
        self, rows: list[list[Any]], addresses: dict[int, Indices]
    ) -> tuple[tuple[Any, int], dict[int, tuple[int, Exception]]]:
        """Pack the rows; return the message with its size.

        A failure takes the place, in ``rows`` too, of each row that cannot be sent and that
        operators skip. If there are others, no message is made: return the index and the error of
        the first one of each base, by the slot of the base.
        """
        while True:
            try:
                return self.pack(rows), {}
            except Exception:
                unsendable = {
                    slot: first
                    for slot, found in enumerate(rows)
                    if (first := first_unpackable(found)) is not None
                }
                if not unsendable:
                    raise
            for slot, (i, cause) in list(unsendable.items()):
                failed = self._skipped_as(slot, addresses[slot], i, rows[slot][i], cause)
                if failed is not None:
                    rows[slot][i] = failed
                    del unsendable[slot]
            if unsendable:
                return (None, 0), unsendable


class _LookedUp(NamedTuple):
    """Rows of a base that are in this process's memory."""

    rows: list[Any]
    """The rows up to the first failure, or up to the row that exceeds the limit."""
    error: Exception | None
    """The error of the row at which they end."""
    bytes_left: float
    """The rest of the limit; below 0 if the rows exceed it."""


def _look_up(base: Base, program: Program, addresses: Indices, most_bytes: float) -> _LookedUp:
    """Read the rows of a base at these addresses, up to a limit in bytes."""
    rows: list[Any] = []
    bytes_left = most_bytes
    try:
        for _, x in program.rows(addresses):
            rows.append(x)  # not a comprehension: the rows before a failure are used
            bytes_left -= nbytes_of(x)
            if bytes_left < 0:
                break
    except OperatorFailed as failed:
        error = with_cause(element_error(base, *failed.args), failed.__cause__ or failed)
        if not isinstance(error, Exception):
            raise error from error.__cause__
        return _LookedUp(rows, error, bytes_left)
    return _LookedUp(rows, None, bytes_left)


@any_depth
def _is_skipped(node: AnyNode, slot: int, below_skip: bool = False) -> bool:
    """Return True if a ``SkipFailed`` above the base ``slot`` would receive its failures.

    Only attempts, and operators that do not look at elements, may be between the two.
    """
    if isinstance(node, Supplied):  # the leaf of a program that stands for a base
        return below_skip and node.slot == slot
    moves_failures = isinstance(node, Attempt | IndexTransform | Merging)
    reached = isinstance(node, SkipFailed) or (below_skip and moves_failures)
    return any(_is_skipped(source, slot, reached) for source in node.sources)


def _row_error(
    base: Base, addresses: Indices, i: int, cause: BaseException, detail: str | None = None
) -> ElementError:
    """Create the error for row ``i`` of a base, which cannot be sent or loaded."""
    error = base.top.node.error_at(int(addresses.epoch[i]), int(addresses.position[i]), detail)
    error.__cause__ = cause
    return error
