"""prefetch and replicate: the workers on which operators run, and their number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, Never, TypeAlias, overload

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
    format_call,
    frozen_node,
    is_int,
    keyword_unless_default,
    plain_int,
    rejects_keywords,
)
from flowdsl.ops.attempting import OnError, check_on_error, leave_out
from flowdsl.resources.worker_kinds import ACTORS, PROCESSES, THREADS, WorkerKind, Workers

if TYPE_CHECKING:
    from flowdsl.flow import Flow

Number: TypeAlias = int | Literal["auto"]
"""A number of workers; ``"auto"`` adjusts it to the consumer at run time."""

_MAX_WORKERS = 1024
"""A larger number is a typing error, and could bring a machine down."""


def _check_number(operator: str, name: str, value: object, least: int) -> None:
    if not is_int(value, least):
        raise InvalidFlow(f"{operator}: {name} must be an int >= {least}, got {value!r}")


def _check_count(operator: str, kind: WorkerKind, count: int | None, least: int = 0) -> None:
    _check_number(operator, kind.keyword, count, least)
    if count is not None and count > _MAX_WORKERS:
        raise InvalidFlow(f"{operator}: {kind.keyword} must be at most {_MAX_WORKERS}, got {count}")


def _check_system(operator: str, kind: WorkerKind, count: int, remedy: str) -> None:
    """Refuse workers of a kind that the operating system does not have."""
    if count and not kind.exists_here:
        raise InvalidFlow(
            f"{operator}: {kind.keyword}={count}: {kind.noun.many} need Linux; {remedy}"
        )


def _workers(kind: WorkerKind, number: Number) -> Workers:
    """The workers of a kind that an argument of ``prefetch`` requests."""
    if isinstance(number, str) and number == "auto":
        return Workers(kind, min(_MAX_WORKERS, kind.most_workers), auto=True)
    if not is_int(number, 0):
        raise InvalidFlow(f'prefetch: {kind.keyword} must be an int >= 0 or "auto", got {number!r}')
    return Workers(kind, plain_int(number))


def _validate_workers(node: Prefetch[Any, Any], field: object, workers: Workers) -> None:
    """An attrs validator: the numbers must be within their bounds."""
    kind, timeout = workers.kind, workers.timeout
    _check_count("prefetch", kind, workers.count)
    _check_system(
        "prefetch",
        kind,
        workers.count,
        f'write threads={workers.count}, or {kind.keyword}="auto", which needs no workers here',
    )
    if workers.memory is not None:
        _check_number("prefetch", "memory", workers.memory, least=1)
    _check_number("prefetch", "deaths", workers.deaths, least=1)
    if timeout is not None:
        is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
        if not is_number or not timeout > 0:  # also for NaN
            raise InvalidFlow(
                f"prefetch: timeout must be a number of seconds > 0, or None, got {timeout!r}"
            )
        if not kind.mortal:
            raise InvalidFlow(
                f"prefetch: timeout needs {PROCESSES.keyword}=, as {kind.noun.any} cannot be ended"
            )


@frozen_node
class Prefetch(Placement[T, E], Generic[T, E]):
    """Runs all operators below it ahead of the consumer, in workers of any kind.

    For kinds without an argument of ``prefetch``: ``flow.apply(Prefetch, Workers(KIND, 4))``.

    Errors: ``InvalidFlow`` for numbers out of their bounds, or a ``timeout`` for workers that
    cannot be ended.

    >>> import flowdsl as fl
    >>> from flowdsl.resources.worker_kinds import THREADS
    >>> fl.from_range(3).map(abs).apply(Prefetch, Workers(THREADS, 2)).collect()
    [0, 1, 2]
    """

    workers: Workers = attrs.field(validator=_validate_workers)

    @property
    def title(self) -> str:
        workers, default = self.workers, Workers()
        number = "auto" if workers.auto else workers.count
        return format_call(
            "prefetch",
            f"{workers.kind.keyword}={number!r}",
            keyword_unless_default("memory", workers.memory, default.memory),
            keyword_unless_default("deaths", workers.deaths, default.deaths),
            keyword_unless_default("timeout", workers.timeout, default.timeout),
        )


class Replicate(Copying[T, E | Resampled], Generic[T, E]):
    """Several concurrent passes, each with its own epoch and process, interleaved."""

    @property
    def title(self) -> str:
        return f"replicate({self.kind.keyword}={self.n})"

    @property
    def fingerprint(self) -> str:
        return f"replicate(procs={self.n})"  # a state may be resumed by workers of another kind


class Placing(FlowBase[T, E]):
    """Operators that choose the workers to run on."""

    @overload  # for ``**options`` of unknown types; ``Never`` keeps other calls away
    def prefetch(
        self,
        procs: Number | None = None,
        threads: Number | None = None,
        *,
        actors: Number | None = None,
        ordered: Never,
        memory: int | None = None,
        on_error: OnError = "raise",
        deaths: int = 3,
        timeout: float | None = None,
    ) -> Flow[T, Any]: ...
    @overload
    def prefetch(
        self,
        procs: Number | None = None,
        threads: Number | None = None,
        *,
        actors: Number | None = None,
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
        actors: Number | None = None,
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
        actors: Number | None = None,
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
        actors: Number | None = None,
        ordered: bool,
        memory: int | None = None,
        on_error: OnError,
        deaths: int = 3,
        timeout: float | None = None,
    ) -> Flow[T, E | Reordered | Resampled | Unsized]: ...

    @rejects_keywords(
        buffer_size="elements made ahead are limited in bytes, as in prefetch(memory=2**30)",
        num_workers="write prefetch(procs={n})",
        num_proc="write prefetch(procs={n})",
        nr_proc="write prefetch(procs={n})",
        num_prefetch="elements made ahead are limited in bytes, as in prefetch(memory=2**30)",
        workers="write prefetch(procs={n})",
        n_jobs="write prefetch(procs={n})",
        max_workers="write prefetch(procs={n})",
        processes="write prefetch(procs={n})",
        num_threads="write prefetch(threads={n})",
        deterministic="write ordered={}",
    )
    def prefetch(
        self,
        procs: Number | None = None,
        threads: Number | None = None,
        *,
        actors: Number | None = None,
        ordered: bool = True,
        memory: int | None = None,
        on_error: OnError = "raise",
        deaths: int = 3,
        timeout: float | None = None,
    ) -> Flow[Any, Any]:
        """Run all operators up to here ahead of the consumer, in worker processes or in threads.

        The elements and their order are the same for any number of ``procs`` or ``threads``; with 0
        the operators run in the consumer's thread. The default is one thread, or one process if
        there is a ``timeout``. Use threads for functions that release the interpreter lock, as much
        of NumPy and most decoders do: elements are not copied between threads. Workers are started
        by the first ``next``, and each keeps a few tasks of work ahead; if a flow is iterated
        again, its workers are reused. Processes need Linux: elsewhere ``procs=2`` is refused, and
        ``procs="auto"`` runs in the consumer's thread. An operator that must see the whole
        sequence runs in the consumer's process; the operators below it and above it share the
        workers, and ``explain`` shows how many each part has. A single worker runs the functions
        above such an operator, while a thread reads ahead below it; with a ``timeout`` each part
        has a worker. If several streams are merged below, they share the workers, at least one for
        each stream.

        ``procs="auto"``, or ``threads="auto"``, adjusts the number of workers, from one to the
        number of cores: if the consumer waits for elements, more workers are tried, and kept if
        they make the flow faster; if it never waits, some workers are stopped. The output does not
        depend on it. ``run.statistics()`` and ``fl.progress`` show the number, and the next pass
        starts with it. Workers that wait, for example for a network, may outnumber the cores: set
        a number.

        A process is a new interpreter. Functions are sent to it with the objects of their script or
        notebook that they refer to. Modules are imported again there, so changes to them since
        their import, such as a log level, are not in effect. The process has the working directory
        and the environment that this process has when the pass begins.

        Numerical libraries start a thread for each core. In worker processes each library uses
        ``max(1, cores // processes)`` threads, counting all processes of the flow; with
        ``procs="auto"`` one thread. This applies to OpenBLAS, MKL, BLIS, OpenMP, numexpr, PyTorch,
        OpenCV and TensorFlow, through their environment variables (``OMP_NUM_THREADS`` and others);
        variables that you have set are kept, and so are calls in functions, such as
        ``torch.set_num_threads``. ``threads`` are threads of this process and use its libraries
        unchanged: set ``OMP_NUM_THREADS=1`` before the first import if the functions multiply
        matrices and your own code does not.

        ``actors=n`` runs the operators in ``n`` worker processes on the machines of a Ray cluster:
        first where CPUs are free on this machine, then on the others. Each worker reserves one CPU.
        This process must be connected to the cluster, by ``ray.init()`` or ``RAY_ADDRESS``; flowdsl
        never starts one. ``actors="auto"`` uses up to all CPUs of the cluster. Everything else is
        as with ``procs``: the elements, their order, errors, limits, states and statistics. If a
        machine dies or does not answer for 20 seconds, its unfinished work is done again on others,
        and machines that join replace it. Files must have the same paths on all machines. See
        docs/more-than-one-machine.md.

        A worker that dies for any reason is replaced, and its unfinished work is done again. If
        ``deaths`` workers have died on an element, an error that names it is raised. A process is
        ended, and counts as dead, if it has been stopped for five seconds, or works for longer than
        ``timeout`` seconds on one task. A task is an element, or a group of elements that is
        expected to take 0.15 seconds, or a fifth of ``timeout`` if that is less. A death on several
        elements counts for each of them.

        ``ordered=False`` yields elements as they are ready, each once. ``memory`` limits the bytes
        in flight, by default to 1 GiB: results, rows that are sent to workers or read ahead for
        them, and elements that an operator such as ``shuffle(buffer=...)`` keeps. A worker returns
        what it has as soon as it reaches its share, an eighth of ``memory / procs``, so each of its
        two tasks exceeds the share by one element at most. Let ``e`` be the bytes of the largest
        element together with the rows that it is made from: then at most ``memory + 2 * procs * e``
        bytes are in flight, even if the first million elements have a byte each and the next one
        has a gigabyte. A worker process computes an element in its own memory before it copies it
        into memory that it shares with this process, unless ``batch`` stacks it there; and it keeps
        as much memory again for reuse: shared memory, and up to 64 MB that functions have freed,
        unless environment variables (``MALLOC_*``) configure the allocator. So the workers and this
        process use at most ``2 * memory + 4 * procs * e`` bytes for the flow. Not counted are
        elements that the consumer keeps, interpreters with their modules, what functions keep or
        need while they run, and objects that are neither arrays, text, numbers nor containers of
        them, unless they have ``nbytes``.

        ``on_error="skip"`` leaves out elements that fail up to here: the source cannot read a row,
        a function raises, or workers die. ``on_error`` may also be a function, which is called with
        each ``ElementError``, and may raise; its result is ignored. The number of skipped elements
        is in ``run.statistics()``, and in a log message at the end. Rows are left out, not batches:
        operators that choose or number elements count skipped rows, and a batch is made of the
        other rows. It is still an error if the other rows do not stack, or if the function of a
        ``flat_map`` fails.

        A thread of the consumer's process reads a stream ahead, two tasks for each worker; if there
        is no other work, there are no workers, and that thread reads 64 elements ahead. A stream
        that waits for the consumer's response to an element needs ``procs=0``. If a source is still
        producing an element when the run ends, the run waits for a second. After that, a log
        message names the source, which is closed when it has produced the element.

        Length: the source's; with ``on_error``, known only at the end of a pass.

        Effects: none; ``Reordered`` with ``ordered=False``; ``Resampled`` and ``Unsized`` with
        ``on_error`` other than "raise".

        Errors: ``InvalidFlow`` for numbers out of their bounds, more than one kind of worker, a
        ``timeout`` for threads, which cannot be ended, or where ``on_error`` would leave rows out
        below a ``batch`` that is shuffled as a whole, or joined with another flow by ``zip``;
        ``NotShippable``, before a worker starts, if a function refers to an object that cannot be
        sent; ``WorkerDied``; ``FlowError`` if operators keep more than ``memory``; ``EndlessFlow``
        if all elements of an endless flow are left out.

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
        if procs is None and threads is None and actors is None:
            procs, threads = (None, 1) if timeout is None else (1, None)
        numbers: dict[WorkerKind, Number | None]
        numbers = {PROCESSES: procs, THREADS: threads, ACTORS: actors}
        requested = [_workers(kind, number or 0) for kind, number in numbers.items()]
        chosen = [workers for workers in requested if workers.count]
        if len(chosen) > 1:
            raise InvalidFlow(
                "prefetch: set one of procs, threads and actors; got "
                + ", ".join(f"{kind.keyword}={n!r}" for kind, n in numbers.items() if n)
            )
        if not isinstance(ordered, bool):
            raise InvalidFlow(f"prefetch: ordered must be True or False, got {ordered!r}")
        check_on_error("prefetch", on_error)
        limits = {"memory": plain_int(memory), "deaths": plain_int(deaths), "timeout": timeout}
        workers = attrs.evolve(chosen[0] if chosen else Workers(), **limits)
        placed = flow(Prefetch(leave_out(self.node, on_error), workers))
        return placed if ordered else flow(Unordered(placed.node))

    @overload
    def replicate(self, procs: int) -> Flow[T, E | Resampled]: ...

    @overload
    def replicate(self, *, actors: int) -> Flow[T, E | Resampled]: ...

    @rejects_keywords(
        num_workers="write replicate(procs={n})", num_proc="write replicate(procs={n})"
    )
    def replicate(self, procs: int | None = None, *, actors: int | None = None) -> Flow[Any, Any]:
        """Run ``procs`` copies of the flow up to here, one per process, and interleave them.

        ``actors=n`` instead runs ``n`` copies in workers of a Ray cluster, as with ``prefetch``.
        Copy ``k`` of epoch ``e`` is epoch ``e * procs + k`` of the flow, so shuffles and random
        functions draw differently in each. Every process reads a stream itself: it must be possible
        to create its iterable there. The order of elements is deterministic, as without workers. An
        element that kills workers cannot be left out, as that would change the flow. The processes
        share the cores, as with ``prefetch``.

        Length: ``procs`` times the source's.

        Effects: ``Resampled``: each row comes ``procs`` times in a pass.

        Errors: ``InvalidFlow`` for ``procs < 1``, or a source that allows only one pass;
        ``NotShippable``; ``WorkerDied``.

        >>> import flowdsl as fl
        >>> fl.from_range(3).replicate(procs=2).collect()
        [0, 0, 1, 1, 2, 2]

        Source: ``MultiProcessRunner`` in tensorpack, in an order that does not depend on speed.

        Elsewhere: tensorpack ``MultiProcessRunner``, ``MultiProcessRunnerZMQ``,
        ``MultiThreadRunner``; tf.data ``interleave``; Grain none; torchdata ``DataLoader``, over an
        ``IterableDataset``.
        """
        if (procs is None) == (actors is None):
            raise InvalidFlow(f"replicate: set procs or actors, got {procs=}, {actors=}")
        kind, n = (ACTORS, actors) if procs is None else (PROCESSES, procs)
        _check_count("replicate", kind, n, least=1)
        _check_system("replicate", kind, plain_int(n), f"write .repeat({n}), which needs none")
        if not self.node.replayable:
            raise InvalidFlow(
                f"replicate: {self.node.title} allows only one pass, and each copy needs its own"
            )
        copies = Replicate(self.node, plain_int(n), kind)
        workers = Workers(kind, copies.n)
        return flow(Prefetch(copies, workers) if copies.indexable else copies)
