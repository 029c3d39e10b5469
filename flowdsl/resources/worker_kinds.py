"""The kinds of worker: their names, their properties, and the factories of their backends.

All other code of a kind is in the module of its backend, so that one module, of flowdsl or of a
user, adds a kind of worker: docs/adding-a-worker-kind.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import attrs


@attrs.frozen
class Label:
    """A noun in the singular and the plural."""

    one: str
    many: str

    @property
    def any(self) -> str:
        """The singular with its indefinite article.

        >>> Label("thread", "threads").any, Label("actor", "actors").any
        ('a thread', 'an actor')
        """
        return f"{'an' if self.one[0] in 'aeiou' else 'a'} {self.one}"

    def counted(self, n: int, one: str = "1") -> str:
        """The number with its noun; ``one`` is the spelling of 1.

        >>> Label("thread", "threads").counted(1, "one"), Label("thread", "threads").counted(2)
        ('one thread', '2 threads')
        """
        return f"{one} {self.one}" if n == 1 else f"{n} {self.many}"


@attrs.frozen
class WorkerKind:
    """A kind of worker. It is plain data, which is pickled with a plan and kept in statistics."""

    keyword: str
    """The argument for the number of workers, such as ``procs``."""
    noun: Label
    """The noun for the workers."""
    backend: str
    """The factory of the backends, a ``flowdsl.workers.backend.BackendFactory``, such as
    ``flowdsl.workers.threads:Threads``. It is imported when the first backend is needed."""
    short: Label = attrs.field(
        default=attrs.Factory(lambda kind: kind.noun, takes_self=True), kw_only=True
    )
    """The short noun, where it is clear that workers are meant, as in a table of stages."""
    mortal: bool = attrs.field(default=True, kw_only=True)
    """True if a worker may die before its work is done, and is ended after ``timeout``."""
    shares_lock: bool = attrs.field(default=False, kw_only=True)
    """True if the workers run under the consumer's interpreter lock."""
    capacity: str = attrs.field(default="flowdsl.resources.cores:cores", kw_only=True)
    """A function that returns the maximum number of workers that ``"auto"`` starts."""
    prelude: str | None = attrs.field(default=None, kw_only=True)
    """A function that is called as a run begins, before the modules of runs are imported. It may
    start what takes long and the workers will need. None if there is nothing to start."""
    needs: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    """The names in ``os`` that the workers need and that some systems lack."""

    @property
    def exists_here(self) -> bool:
        """True if this system can run such workers."""
        return all(hasattr(os, name) for name in self.needs)

    def begin(self) -> None:
        """Call the ``prelude``, if there is one."""
        if self.prelude is not None:
            _function_of(self.prelude)()

    @property
    def most_workers(self) -> int:
        """The maximum number of workers that ``"auto"`` starts; 0 if they cannot run here."""
        most: int = _function_of(self.capacity)() if self.exists_here else 0
        return most


def _function_of(name: str) -> Any:
    from pkgutil import resolve_name  # here: ``import flowdsl`` does not need it

    return resolve_name(name)


_LINUX = "memfd_create", "pidfd_open"

PROCESSES = WorkerKind(
    "procs",
    Label("worker process", "worker processes"),
    "flowdsl.workers.processes:processes",
    short=Label("process", "processes"),
    prelude="flowdsl.workers.launching:begin",
    needs=_LINUX,
)

THREADS = WorkerKind(
    "threads",
    Label("thread", "threads"),
    "flowdsl.workers.threads:Threads",
    mortal=False,
    shares_lock=True,
)

ACTORS = WorkerKind(
    "actors",
    Label("worker of the cluster", "workers of the cluster"),
    "flowdsl.ray:actors",
    short=Label("cluster worker", "cluster workers"),
    capacity="flowdsl.ray.cluster:cpus",
    needs=_LINUX,
)


@attrs.frozen
class Workers:
    """The workers of a stage: a number of workers of one kind, or only the consumer.

    >>> str(Workers(PROCESSES, 2)), str(Workers(THREADS, 1))
    ('2 worker processes', '1 thread')
    >>> str(Workers(PROCESSES, 8, auto=True))
    'up to 8 worker processes'
    """

    kind: WorkerKind = PROCESSES
    count: int = 0
    """The number of workers; 0 if the consumer runs the stage itself."""
    auto: bool = attrs.field(default=False, kw_only=True)
    """True if ``count`` is a maximum, and a run adjusts the number of workers."""
    memory: int | None = None
    """The bytes that may be in flight; None for the runtime's default limit."""
    deaths: int = 3
    """The number of workers that may die on one element before it raises an error."""
    timeout: float | None = None
    """The seconds that a worker may take for one element before the worker is ended."""

    def within(self, others: Iterable[Workers]) -> Workers:
        """These workers with the strictest limits of all, as far as their kind supports them."""
        every = [self, *others]
        memory = [workers.memory for workers in every if workers.memory is not None]
        timeout = [workers.timeout for workers in every if workers.timeout is not None]
        return attrs.evolve(
            self,
            memory=min(memory, default=None),
            deaths=min(workers.deaths for workers in every),
            timeout=min(timeout, default=None) if self.kind.mortal else None,
        )

    def share(self, k: int) -> Workers:
        """The workers for one of ``k`` flows that share these: at least one, if there are any."""
        count = max(1, self.count // max(1, k)) if self.count else 0
        return attrs.evolve(self.part_of_memory(k), count=count)

    def part_of_memory(self, k: int) -> Workers:
        """These workers with one of ``k`` equal parts of the memory, of at least a byte."""
        memory = None if self.memory is None else max(1, self.memory // max(1, k))
        return attrs.evolve(self, memory=memory)

    def __str__(self) -> str:
        counted = self.kind.noun.counted(self.count)
        return f"up to {counted}" if self.auto else counted
