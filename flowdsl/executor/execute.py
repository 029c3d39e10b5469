"""Compute the elements of a task and report its outcome, in workers of every kind."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from math import inf
from typing import Any, NamedTuple, Protocol, TypeAlias

import attrs
import numpy as np

from flowdsl.elements.nbytes import PLAIN_NUMBERS, nbytes_of
from flowdsl.elements.preallocated import Allocate
from flowdsl.executor.codegen import Path
from flowdsl.executor.program import OperatorFailed, Program
from flowdsl.nodes import AnyNode, Dropped, Failed, Identity, IndexTransform, Indices, Merging, Row
from flowdsl.nodes.failures import Attempt, AttemptToRead, SkipFailed
from flowdsl.plan.tree import Step
from flowdsl.resources.core_waits import waited_for_core

MAX_TIMED = 256
"""In tasks of at most this number of elements, each is timed; in larger tasks it costs too much."""


@attrs.frozen
class TaskFailure:
    """The exception that stopped a task, and where it was raised."""

    path: Path | None
    """The path of the operator that failed, ``()`` for the last one of the program; None if
    ``cause`` is the whole error."""
    epoch: int
    position: int
    cause: BaseException
    detail: str | None = None
    """A description of the element or group on which the operator failed."""


@attrs.frozen
class SkippedElement:
    """An element that was left out because it failed."""

    path: Path
    """The path of the operator that left it out."""
    failed: Failed
    before: int = 0
    """The number of the task's elements that come before it."""


@attrs.define
class TaskOutcome:
    """The results of a task, up to its end or to a failure."""

    positions: list[int]
    elements: list[Any]
    filtered: int = 0
    skipped: list[SkippedElement] = attrs.field(factory=list[SkippedElement])
    failure: TaskFailure | None = None
    seconds: float = 0.0
    cpu: float = 0.0
    """The seconds of CPU time that the thread used."""
    waited_for_core: float = 0.0
    """The seconds for which the thread was ready to run and waited for a core; 0 if unknown."""
    times: list[float] = attrs.field(factory=list[float])
    """The seconds of each element, if there are at most ``MAX_TIMED``."""
    costs: dict[Path, tuple[int, float]] = attrs.field(factory=dict[Path, tuple[int, float]])
    """The calls and seconds of each operator, if operators are timed."""
    settled: int = 0
    """The number of addresses from which the elements were returned, filtered or skipped: fewer
    than requested if the elements became too large, 0 if the task was not due, and all of them if
    it failed."""
    nbytes: int = 0
    """The approximate bytes of the elements."""


class Executor(Protocol):
    """Computes elements in a worker: runs a program, or a whole flow."""

    filtered: int
    """The number of elements of the current task that filters have left out."""
    skipped: list[SkippedElement]
    """The elements of the current task that were left out because they failed."""
    elements_of_task: list[Any]
    """The list that receives the elements of the current task."""

    @property
    def drops(self) -> bool:
        """True if it may leave elements out."""
        ...

    def is_due(self, addresses: Indices) -> bool:
        """False if the elements before these addresses are to be computed first.

        It is False once: a task that is not due settles nothing, and is due when it is sent again,
        since another worker may have computed the elements before it.
        """
        ...

    def rows(
        self, addresses: Indices, supplied: Sequence[Iterable[Any]] = ()
    ) -> Iterator[Row[Any]]:
        """Yield the elements at these addresses, with their positions."""
        ...

    def elements(self, addresses: Indices, supplied: Sequence[Iterable[Any]] = ()) -> Iterator[Any]:
        """Yield the elements at these addresses, without their positions."""
        ...

    @property
    def costs(self) -> dict[Path, tuple[int, float]]:
        """The calls and seconds of each operator so far, if operators are timed."""
        ...

    def park(self) -> None:
        """Close the resources of the pass, which has probably ended."""
        ...


@attrs.define
class EndToEnd:
    """A flow that one process runs from end to end, by its reference.

    To reach an element it computes all earlier elements; a task that starts where the last task
    ended computes only its own.
    """

    root: AnyNode
    filtered: int = 0
    skipped: list[SkippedElement] = attrs.field(factory=list[SkippedElement])
    elements_of_task: list[Any] = attrs.field(factory=list[Any])
    _rows: Iterator[Any] = attrs.field(factory=lambda: iter(()), init=False)
    """The elements of the current pass that are still to be computed."""
    _next: tuple[int, int] = (-1, -1)
    """The epoch and the position of the first of them."""
    _end: tuple[int, int] = (-1, -1)
    """The end of the last task, which is greater than ``_next`` if the task was cut short."""

    @property
    def drops(self) -> bool:
        return True  # as far as is known

    def is_due(self, addresses: Indices) -> bool:
        # If the last task was cut short, the task after it may have been sent before its rest.
        start = int(addresses.epoch[0]), int(addresses.position[0])
        early = self._next < self._end == start
        self._end = (-1, -1)  # so that the task is due when it is sent again
        return not early

    def rows(
        self, addresses: Indices, supplied: Sequence[Iterable[Any]] = ()
    ) -> Iterator[Row[Any]]:
        return zip(addresses.position.tolist(), self.elements(addresses), strict=False)

    def elements(self, addresses: Indices, supplied: Sequence[Iterable[Any]] = ()) -> Iterator[Any]:
        epoch, start = int(addresses.epoch[0]), int(addresses.position[0])
        if (epoch, start) != self._next:
            self._rows = (x for _, x in self._pass(self.root, (), epoch))
            deque(islice(self._rows, start), maxlen=0)
            self.skipped.clear()  # another worker reported the failures before the start
        self._end = epoch, start + len(addresses.position)
        return self._counted(epoch, start, len(addresses.position))

    @property
    def costs(self) -> dict[Path, tuple[int, float]]:
        return {}

    def park(self) -> None:
        self._rows, self._next = iter(()), (-1, -1)

    def _counted(self, epoch: int, start: int, count: int) -> Iterator[Any]:
        """Yield ``count`` elements from position ``start``, and keep ``_next`` up to date."""
        self._next = self._end
        for position, x in enumerate(islice(self._rows, count), start + 1):
            self._next = epoch, position  # if the task is cut short here
            yield x
            self._next = self._end

    def _pass(self, node: AnyNode, path: Path, epoch: int) -> Iterator[Row[Any]]:
        """The reference, which also records the elements that are left out."""
        sources = [partial(self._pass, s, (*path, k)) for k, s in enumerate(node.sources)]
        if isinstance(node, SkipFailed):
            return node.rows_reporting(epoch, sources, partial(self._leave, path))
        return node.rows(epoch, sources)

    def _leave(self, path: Path, failed: Failed) -> None:
        self.skipped.append(SkippedElement(path, failed, len(self.elements_of_task)))


@attrs.define
class _CountingProgram(Program):
    """A program that records failed elements separately from filtered elements."""

    skipped: list[SkippedElement] = attrs.field(factory=list[SkippedElement], init=False)
    elements_of_task: list[Any] = attrs.field(factory=list[Any], init=False)

    def is_due(self, addresses: Indices) -> bool:
        return True

    def park(self) -> None:
        """Keep readers open for the next pass, as they read by number."""

    def left_out(self, x: Dropped | Failed, path: Path) -> None:
        if isinstance(x, Failed):
            self.skipped.append(SkippedElement(path, x, len(self.elements_of_task)))
        else:
            self.filtered += 1


def executor_of(
    root: AnyNode, end_to_end: bool, allocate: Allocate | None = None, time_operators: bool = False
) -> Executor:
    """The executor that runs ``root`` in one worker."""
    return EndToEnd(root) if end_to_end else _CountingProgram(root, allocate, time_operators)


ReportSkip: TypeAlias = Callable[[Step, Failed], None]
"""Called with a ``SkipFailed`` step and the failure that it leaves out."""


class HandlingStep(NamedTuple):
    """The step that handles the failure of an element."""

    step: Step
    epoch: int
    position: int
    """The element's position in the output of the step: steps above it may choose or reorder."""


def handling_step(step: Step, epoch: int, position: int) -> HandlingStep | None:
    """Return the step that handles the failure of an element on which workers die.

    The element is at this epoch and position in the output of ``step``. None if no step handles
    its failure.
    """
    while not isinstance(node := step.node, SkipFailed | Attempt | AttemptToRead):
        at = Indices.at(epoch, [position])
        if isinstance(node, Merging):
            (part,), at = node.resolve(at)
            step = step.sources[part]
        elif isinstance(node, IndexTransform):
            at, step = node.resolve(at), step.sources[0]
        elif isinstance(node, Identity):
            step = step.sources[0]
        else:  # the worker may have died on this step or below it
            return None
        epoch, position = int(at.epoch[0]), int(at.position[0])
    return HandlingStep(step, epoch, position)


def execute(
    executor: Executor,
    addresses: Indices,
    supplied: Sequence[Iterable[Any]],
    most_bytes: float = inf,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> TaskOutcome:
    """Compute the elements at these addresses, up to the one with which they reach ``most_bytes``.

    Each element is measured as soon as it is computed: the number of elements of a task follows
    from the sizes of earlier ones, and the next element may be a million times as large. If
    ``is_cancelled()``, no further element is computed; a task of many short elements may end later.
    """
    outcome = TaskOutcome([], [])
    if is_cancelled() or not executor.is_due(addresses):
        return outcome
    positions, elements, times = outcome.positions, outcome.elements, outcome.times
    nbytes, is_full = 0, False
    executor.elements_of_task = elements
    clock = time.perf_counter
    began = last = clock()
    cpu_before, waited_before = time.thread_time(), waited_for_core()
    is_timed = len(addresses.position) <= MAX_TIMED
    try:
        if executor.drops or is_timed:
            for position, element in executor.rows(addresses, supplied):
                positions.append(position)
                elements.append(element)
                if is_timed:
                    now = clock()
                    times.append(now - last)
                    last = now
                nbytes += nbytes_of(element)
                if nbytes >= most_bytes or (is_timed and is_cancelled()):
                    is_full = True
                    break
        else:
            append = elements.append
            for element in executor.elements(addresses, supplied):
                append(element)
                if type(element) not in PLAIN_NUMBERS:
                    nbytes += nbytes_of(element)
                    if nbytes >= most_bytes:
                        is_full = True
                        break
    except OperatorFailed as error:
        outcome.failure = TaskFailure(
            error.path, error.epoch, error.position, error.__cause__ or error, error.detail
        )
    except Exception as error:  # of a source that cannot be opened
        epoch, position = int(addresses.epoch[0]), int(addresses.position[0])
        outcome.failure = TaskFailure(None, epoch, position, error)
    outcome.waited_for_core = max(0.0, waited_for_core() - waited_before)
    outcome.seconds = clock() - began
    if not positions:  # the loop without positions ran: it leaves no element out
        positions.extend(addresses.position[: len(elements)].tolist())
    outcome.nbytes, outcome.settled = nbytes, len(addresses.position)
    if is_full:  # the positions after the last element, filtered or not, are for another task
        outcome.settled = int(np.searchsorted(addresses.position, positions[-1])) + 1
    outcome.filtered, executor.filtered = executor.filtered, 0
    outcome.skipped, executor.skipped = executor.skipped, []
    outcome.cpu = time.thread_time() - cpu_before
    outcome.costs = dict(executor.costs)
    executor.costs.clear()
    return outcome
