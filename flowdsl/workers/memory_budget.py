"""The memory budget of a pool: whether another task may be submitted."""

from __future__ import annotations

import attrs

from flowdsl.errors import FlowError
from flowdsl.plan.plan import Stage
from flowdsl.workers.tasks import BYTES_IN_FLIGHT, TaskInput


@attrs.define
class MemoryBudget:
    """Limits the bytes in flight.

    The size of an element is unknown until its result arrives. Until then it counts as the largest
    of the recent elements.
    """

    stage: Stage
    held_above: int
    """The number of elements that the operators above the stage keep, which count as in flight."""
    in_flight: int = attrs.field(default=0, init=False)
    """Bytes in flight: rows of tasks not finished, and results that wait for delivery."""
    _elements_assigned: int = attrs.field(default=0, init=False)
    """The number of elements of the tasks that workers hold."""
    _bytes_per_element: float = attrs.field(default=0.0, init=False)
    """The largest recent bytes per element of a result; 0 before the first result."""
    _bytes_per_input: float = attrs.field(default=0.0, init=False)
    """The largest recent bytes of the rows sent for an element."""

    @property
    def limit(self) -> int:
        """The maximum bytes in flight."""
        return self.stage.workers.memory or BYTES_IN_FLIGHT

    def begin_pass(self) -> None:
        """Forget the tasks of the last pass; their elements' sizes are remembered."""
        self.in_flight = self._elements_assigned = 0

    def assign(self, task_input: TaskInput) -> None:
        """Count a task that was submitted."""
        self._elements_assigned += task_input.size
        self.in_flight += task_input.nbytes

    def unassign(self, task_input: TaskInput) -> None:
        """Count a task no more: its result has arrived, or its worker has died."""
        self._elements_assigned -= task_input.size
        self.in_flight -= task_input.nbytes

    def add_result(self, task_input: TaskInput, nbytes: int, elements: int) -> None:
        """Count a result that waits for delivery: ``nbytes`` bytes of ``elements`` elements."""
        self.in_flight += nbytes
        each, input_each = nbytes / max(1, elements), task_input.nbytes / task_input.size
        self._bytes_per_element = max(each, 0.9 * self._bytes_per_element)
        self._bytes_per_input = max(input_each, 0.9 * self._bytes_per_input)

    def release(self, nbytes: int) -> None:
        """Count a result no more: the consumer has received it."""
        self.in_flight -= nbytes

    def allows(self, *, size: int, tasks: int, bytes_per_task: int, bytes_ahead: int) -> bool:
        """Return True if a task of ``size`` elements may be submitted besides ``tasks`` others.

        Each task, and the rows sent for it, count with at least ``bytes_per_task`` bytes. A stream
        has been read ahead by ``bytes_ahead`` bytes.

        Raises:
            FlowError: The elements that operators above the stage keep exceed the limit.
        """
        if not self._bytes_per_element:  # sizes are unknown: with ``memory``, wait for a result
            return self.stage.workers.memory is None
        held = self.held_above * self._bytes_per_element
        if held > self.limit:
            raise FlowError(
                f"prefetch: memory={self.limit} bytes is less than the {self.held_above} elements "
                f"of about {self._bytes_per_element:,.0f} bytes that are held above "
                f"{self.stage.meaning.title}; give at least {2 * held:,.0f}, or a smaller buffer"
            )
        # What may still arrive: the results of the assigned tasks and of this one, and its rows.
        results = (self._elements_assigned + size) * self._bytes_per_element
        expected = max(results, (tasks + 1) * bytes_per_task)
        if self.stage.bases:
            expected += max(size * self._bytes_per_input, bytes_per_task)
        return self.in_flight + held + bytes_ahead + expected <= self.limit
