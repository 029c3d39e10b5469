"""prefetch and replicate: where operators run, and in how many workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, overload

import attrs

from flowdsl.effects import Reordered, Resampled, Unsized
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import (
    Copying,
    E,
    FlowBase,
    Placement,
    T,
    Unordered,
    flow,
    is_int,
    plain_int,
    rejects_keywords,
    titled,
    unless,
)
from flowdsl.ops.attempting import OnError, check_on_error, leave_out
from flowdsl.resources.cores import cores
from flowdsl.resources.worker_kinds import PROCESSES, THREADS, WorkerKind, Workers

if TYPE_CHECKING:
    from flowdsl.flow import Flow

Number: TypeAlias = int | Literal["auto"]
"""How many workers: ``"auto"`` for as many as are found to pay."""

_MOST = 1024
"""The most workers: a greater number is a typing error, and could bring a machine down."""


def _check_number(operator: str, name: str, value: object, least: int) -> None:
    if not is_int(value, least):
        raise InvalidFlow(f"{operator}: {name} must be an int >= {least}, got {value!r}")


def _check_count(operator: str, kind: WorkerKind, count: int, least: int = 0) -> None:
    _check_number(operator, kind.keyword, count, least)
    if count > _MOST:
        raise InvalidFlow(f"{operator}: {kind.keyword} must be at most {_MOST}, got {count}")


def _asked(kind: WorkerKind, number: Number) -> Workers:
    """The workers of a kind that an argument of ``prefetch`` asks for."""
    if isinstance(number, str) and number == "auto":
        return Workers(kind, cores(), auto=True)
    if not is_int(number, 0):
        raise InvalidFlow(f'prefetch: {kind.keyword} must be an int >= 0 or "auto", got {number!r}')
    return Workers(kind, plain_int(number))


def _are_possible(node: Prefetch[Any, Any], field: object, workers: Workers) -> None:
    """An attrs validator: the numbers are within their bounds."""
    kind, timeout = workers.kind, workers.timeout
    _check_count("prefetch", kind, workers.count)
    _check_number("prefetch", "memory", 1 if workers.memory is None else workers.memory, 1)
    _check_number("prefetch", "deaths", workers.deaths, 1)
    if timeout is not None:
        number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
        if not number or not timeout > 0:
            raise InvalidFlow(
                f"prefetch: timeout must be a number of seconds > 0, or None, got {timeout!r}"
            )
        if not kind.mortal:
            raise InvalidFlow(
                f"prefetch: timeout needs {PROCESSES.keyword}=, as {kind.noun.any} cannot be ended"
            )


@attrs.frozen(repr=False)
class Prefetch(Placement[T, E], Generic[T, E]):
    """Everything below it runs ahead of the consumer, in workers of any kind.

    For kinds without an argument of ``prefetch``: ``flow.apply(Prefetch, Workers(KIND, 4))``.

    Errors: ``InvalidFlow`` for numbers out of their bounds, or a ``timeout`` for workers that
    cannot be ended.

    >>> import flowdsl as fl
    >>> from flowdsl.resources.worker_kinds import THREADS
    >>> fl.from_range(3).map(abs).apply(Prefetch, Workers(THREADS, 2)).collect()
    [0, 1, 2]
    """

    workers: Workers = attrs.field(validator=_are_possible)

    @property
    def title(self) -> str:
        workers, plain = self.workers, Workers()
        limits = ("memory", "deaths", "timeout")
        return titled(
            "prefetch",
            unless(workers.kind.keyword, "auto" if workers.auto else workers.count, None),
            *(unless(name, getattr(workers, name), getattr(plain, name)) for name in limits),
        )


class Replicate(Copying[T, E | Resampled], Generic[T, E]):
    """The elements of several concurrent passes in turn, each with its own epoch and process."""

    @property
    def title(self) -> str:
        return f"replicate(procs={self.n})"


class Placing(FlowBase[T, E]):
    """Operators that say where to run."""

    @overload
    def prefetch(
        self,
        procs: Number | None = None,
        threads: Number | None = None,
        *,
        ordered: Literal[True] = True,
        memory: int | None = None,
        on_error: Literal["raise"] = "raise",
        deaths: int = 3,
        timeout: float | None = None,
    ) -> Flow[T, E]: ...

    @overload
    def prefetch(
        self,
        procs: Number | None = None,
        threads: Number | None = None,
        *,
        ordered: bool,
        memory: int | None = None,
        on_error: Literal["raise"] = "raise",
        deaths: int = 3,
        timeout: float | None = None,
    ) -> Flow[T, E | Reordered]: ...

    @overload
    def prefetch(
        self,
        procs: Number | None = None,
        threads: Number | None = None,
        *,
        ordered: Literal[True] = True,
        memory: int | None = None,
        on_error: OnError,
        deaths: int = 3,
        timeout: float | None = None,
    ) -> Flow[T, E | Resampled | Unsized]: ...

    @overload
    def prefetch(
        self,
        procs: Number | None = None,
        threads: Number | None = None,
        *,
        ordered: bool,
        memory: int | None = None,
        on_error: OnError,
        deaths: int = 3,
        timeout: float | None = None,
    ) -> Flow[T, E | Reordered | Resampled | Unsized]: ...

    @rejects_keywords(
        buffer_size="what is made ahead is limited in bytes, as in prefetch(memory=2**30)",
        num_workers="write prefetch(procs={n})",
        num_proc="write prefetch(procs={n})",
        num_threads="write prefetch(threads={n})",
        deterministic="write ordered={}",
    )
    def prefetch(
        self,
        procs: Number | None = None,
        threads: Number | None = None,
        *,
        ordered: bool = True,
        memory: int | None = None,
        on_error: OnError = "raise",
        deaths: int = 3,
        timeout: float | None = None,
    ) -> Flow[Any, Any]:
        """Run everything up to here ahead of the consumer, in worker processes or in threads.

        The elements and their order are the same for any number of ``procs`` or ``threads``, 0
        included, which runs it in the consumer's own. Without a number it is one thread, or
        a process where ``timeout`` needs one. Threads
        are for functions that release the interpreter lock, as much of NumPy and most decoders do:
        nothing is copied between them. Workers are started by the first ``next`` and hold a few
        tasks of work ahead each; those of a flow that is iterated again are still there. Processes
        need Linux. What must see the whole sequence runs in the consumer's process; the work below
        it and the work above it divide the number, and ``explain`` says how many each has. A single
        worker runs the functions above, and a thread reads those below ahead; with a ``timeout``
        each has a worker. Where several streams come together below, they share their workers, at
        least one for each.

        ``procs="auto"``, or ``threads``, finds as many workers as pay, from one to as many as there
        are cores: more are tried where the consumer waits for elements, and kept if they make it
        faster; where it never waits, some go. Output does not depend on it. ``run.statistics()``
        and ``fl.progress`` show how many there are, and the next pass begins with so many.
        Workers that wait, for a network say, may be more than there are cores: give a number.

        A process is a new interpreter. Functions travel to it with what they refer to in their
        script or notebook; modules are imported there anew, so that what was set in them since,
        such as ``np.seterr`` or the level of a log, is there as it is at their import. It has the
        folder and the environment that this process has when the pass begins.

        Numerical libraries start a thread for each core. In worker processes they use
        ``max(1, cores // processes)`` each, counting all processes of the flow; with
        ``procs="auto"`` one. That holds for OpenBLAS, MKL, BLIS, OpenMP, numexpr, PyTorch, OpenCV
        and TensorFlow, by their variables of the environment (``OMP_NUM_THREADS`` and others); a
        variable that you have set stays, and so does what a function sets by a call such as
        ``torch.set_num_threads``. ``threads`` are threads of this process and use its libraries as
        they are: set ``OMP_NUM_THREADS=1`` before the first import if the functions multiply
        matrices and your own code does not.

        A worker that dies, however it does, is replaced, and what it had in hand is done again. An
        element on which ``deaths`` workers have died is an error that names it. A process that has
        been stopped for five seconds, or works for longer than ``timeout`` seconds on an element,
        or on those that it was given at once, which lately took 0.15 seconds together, or a fifth
        of ``timeout`` if that is less, is ended, and counts as dead. A death over several elements
        counts for each of them.

        ``ordered=False`` gives elements as they are ready, each once. ``memory`` bounds the bytes
        of what is in flight: results, and what is sent to workers, besides what an operator such as
        ``shuffle(buffer=...)`` holds below the consumer, and what the consumer itself holds on to.
        At least one element is let through. As much again, and two results for each process, may
        be kept to be filled anew: shared memory, and in each process up to 64 MB of what functions
        have freed, unless variables of the environment (``MALLOC_*``) say how to allocate.

        ``on_error="skip"`` leaves out the elements that up to here cannot be made: where the
        source cannot read a row, a function raises, or workers die. A function in its place is
        called with each ``ElementError``, and may raise; what it returns is no matter. What is left
        out shows in ``run.statistics()``, and in a line of the log at the end. It is the rows that
        are left out: what chooses or numbers them counts them as if they were there, and a batch is
        made of the others. That those do not stack, or that a ``flat_map``'s function fails, is
        still an error.

        A stream is read ahead in a thread of the consumer's process, two tasks for each worker;
        where there is nothing else to do, that thread is all, and it reads 64 elements ahead. One
        that waits for the consumer's answer to an element needs ``procs=0``. A source that is at
        work on its next element when the run ends is given a second; after that a line in the log
        tells of it, and it is closed when that element has come.

        Length: as many elements as before; with ``on_error``, it is known at the end.

        Effects: none; ``Reordered`` with ``ordered=False``; ``Resampled`` and ``Unsized`` with
        ``on_error`` other than "raise".

        Errors: ``InvalidFlow`` for numbers out of their bounds, both ``procs`` and ``threads``, a
        ``timeout`` for threads, which cannot be ended, or where ``on_error`` would leave rows out
        below a ``batch`` that is shuffled as a whole, or joined with another flow by ``zip``;
        ``NotShippable``, before a worker starts, if a function holds what cannot travel;
        ``WorkerDied``; ``FlowError`` if operators hold more than ``memory``; ``EndlessFlow`` where
        all that a flow without an end gives is left out.

        >>> import flowdsl as fl
        >>> fl.from_range(5).map(lambda i: i * i).prefetch(procs=2).collect()
        [0, 1, 4, 9, 16]
        >>> ratios = fl.from_range(5).map(lambda i: 4 // (i - 2))
        >>> ratios.prefetch(threads=2, on_error="skip").collect()
        [-2, -4, 4, 2]

        Source: ``prefetch`` and ``AUTOTUNE`` in tf.data, ``MultiProcessRunnerZMQ`` and
        ``MultiProcessMapData`` in tensorpack; the retries of MapReduce (Dean and Ghemawat, 2004),
        and its skipped records.

        Elsewhere: tensorpack ``MultiProcessMapData``, ``MultiProcessRunnerZMQ``,
        ``MultiThreadMapData``; tf.data ``prefetch``, ``ignore_errors``; Grain ``mp_prefetch``;
        torchdata ``DataLoader``, ``ParallelMapper``.
        """
        if procs is None and threads is None:
            procs, threads = (None, 1) if timeout is None else (1, None)
        one, other = _asked(PROCESSES, procs or 0), _asked(THREADS, threads or 0)
        if one.count and other.count:
            raise InvalidFlow(
                f"prefetch: give procs or threads, not both; got {procs=}, {threads=}"
            )
        if not isinstance(ordered, bool):
            raise InvalidFlow(f"prefetch: ordered must be True or False, got {ordered!r}")
        check_on_error("prefetch", on_error)
        limits = {"memory": plain_int(memory), "deaths": plain_int(deaths), "timeout": timeout}
        workers = attrs.evolve(other if other.count else one, **limits)
        placed = flow(Prefetch(leave_out(self.node, on_error), workers))
        return placed if ordered else flow(Unordered(placed.node))

    @rejects_keywords(
        num_workers="write replicate(procs={n})", num_proc="write replicate(procs={n})"
    )
    def replicate(self, procs: int) -> Flow[T, E | Resampled]:
        """Run ``procs`` copies of everything up to here, a process each, and take turns among them.

        Copy ``k`` of epoch ``e`` is epoch ``e * procs + k`` of the flow, so shuffles and random
        functions draw differently in each. A stream is read by every process for itself: its
        iterable has to be one that can be made anew there. Which element comes is as certain as
        without workers. One that kills them cannot be left out: that would be another flow. The
        processes divide the cores among them as those of ``prefetch`` do.

        Length: ``procs`` times as many elements.

        Effects: ``Resampled``: each row comes ``procs`` times in a pass.

        Errors: ``InvalidFlow`` for ``procs < 1``, or a source that gives only one pass;
        ``NotShippable``; ``WorkerDied``.

        >>> import flowdsl as fl
        >>> fl.from_range(3).replicate(procs=2).collect()
        [0, 0, 1, 1, 2, 2]

        Source: ``MultiProcessRunner`` in tensorpack, in an order that does not depend on speed.

        Elsewhere: tensorpack ``MultiProcessRunner``, ``MultiProcessRunnerZMQ``,
        ``MultiThreadRunner``; tf.data ``interleave``; Grain none; torchdata ``DataLoader``, over an
        ``IterableDataset``.
        """
        _check_count("replicate", PROCESSES, procs, least=1)
        if not self.node.replayable:
            raise InvalidFlow(
                f"replicate: {self.node.title} gives only one pass, and each copy needs its own"
            )
        copies = Replicate(self.node, plain_int(procs))
        workers = Workers(PROCESSES, copies.n)
        return flow(Prefetch(copies, workers) if copies.indexable else copies)
