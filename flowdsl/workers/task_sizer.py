"""The number of elements of a task, from the cost of the tasks before it."""

from __future__ import annotations

SECONDS_PER_TASK = 0.03
"""The target duration of a task: long compared to a message, short compared to a user's wait."""

SECONDS_PER_SMALL_TASK = 0.15
"""The target duration of a task with a small result. For each task, worker and consumer do about a
millisecond of other work on cold caches, 2.4% of 0.03 seconds."""

MANY_BYTES_PER_TASK = 8 << 20
"""The maximum bytes of a result of many elements. The first of them leave the caches while the last
are computed, and have to be read again to be sent."""
BYTES_PER_TASK = 32 << 20
"""The maximum bytes of a result."""
FEW_PER_TASK = 6
"""The maximum number of elements of a task whose result has more than ``MANY_BYTES_PER_TASK``. With
a single batch of 5 MB, its messages take as long as the batch."""
BYTES_PER_SMALL_TASK = 1 << 20
MOST_PER_TASK = 4096
"""The maximum number of elements of a task."""


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
        """A task ends when its rows or its result have this size, whatever its number of elements.
        """
        self._size = 1
        self.share(workers, nbytes)

    def share(self, workers: int, nbytes: int) -> None:
        """Change the number of workers and the maximum bytes of a result."""
        self._workers = workers
        self.most_bytes = nbytes
        timeout = self._timeout
        self._limits = [
            (seconds if timeout is None else min(seconds, timeout / 5), min(nbytes, most), count)
            for seconds, most, count in (
                (SECONDS_PER_TASK, BYTES_PER_TASK, FEW_PER_TASK),
                (SECONDS_PER_TASK, MANY_BYTES_PER_TASK, MOST_PER_TASK),
                (SECONDS_PER_SMALL_TASK, BYTES_PER_SMALL_TASK, MOST_PER_TASK),
            )
        ]
        """Limits in seconds, bytes and elements; a task may be as large as any one row allows."""

    def size(self, remaining: int | None) -> int:
        """Return the number of elements of the next task.

        If ``remaining`` elements are left in the pass, the task has at most half of a worker's
        share of them, so that no worker is left with a long last task.
        """
        if remaining is None:
            return self._size
        return max(1, min(self._size, remaining // (2 * self._workers)))

    @property
    def elements_ahead(self) -> int:
        """The number of elements that a stream is read ahead: two tasks for each worker."""
        return 2 * self._workers * self._size

    def observe(self, count: int, seconds: float, nbytes: int) -> None:
        """Adjust the size to the cost of a finished task."""
        seconds_each, bytes_each = max(seconds, 1e-6) / count, max(nbytes, 1) / count
        allowed = max(
            min(most_seconds / seconds_each, most_bytes / bytes_each, most_elements)
            for most_seconds, most_bytes, most_elements in self._limits
        )
        self._size = int(max(1, min(allowed, 2 * self._size)))
