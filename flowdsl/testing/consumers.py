"""The laws of consumers: a framework gets exactly the elements of the flow, epoch by epoch."""

from __future__ import annotations

import gc
import json
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any, Protocol, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.errors import ElementError, StateMismatch
from flowdsl.ops.iterables import from_iterable
from flowdsl.ops.sources import from_range
from flowdsl.storage.arrays.npy import from_npy
from flowdsl.testing.endings import error_of, is_interrupted, no_thread_is_left
from flowdsl.testing.outcomes import naming, require, require_equal_arrays
from flowdsl.testing.recipes import AnyFlow

_N = 11
"""The number of rows; the last batch is smaller."""
_BATCH = 2
_BAD = 3
"""The batch that fails, in flows that fail."""
_WIDTH = 20_000
"""The numbers of a row: enough for a slab of shared memory."""
_ALIGNMENT = 64
"""The alignment that a framework needs to share memory, as in the slabs of workers."""


class Consumer(Protocol):
    """A loader that feeds a framework from a flow: each ``iter`` is the next epoch."""

    def __iter__(self) -> Iterator[Any]: ...

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last element taken, as JSON values."""
        ...

    def load_state_dict(self, state: Mapping[str, object], /) -> None:
        """Resume from a state at the next ``iter``."""
        ...

    def close(self) -> None:
        """End the current pass."""
        ...


@attrs.frozen
class ConsumerKind:
    """A kind of consumer, and its optional guarantees."""

    make: Callable[[AnyFlow], Consumer]
    """Creates a consumer from a flow whose elements are pairs of arrays, int32 and float32."""
    address: Callable[[Any], int] | None = None
    """Returns the memory address of a delivered array; None if memory is not shared."""
    use: Callable[[Any], object] | None = None
    """Uses an element as programs do, such as writing into it; must not affect other elements."""
    ahead: int | None = None
    """The maximum number of elements computed ahead; None if it is not guaranteed."""
    shard: Callable[[AnyFlow, int, int], Consumer] | None = None
    """Creates the consumer of rank ``i`` of ``n``, from (flow, n, i); None without ranks."""


ConsumerLaw: TypeAlias = Callable[[ConsumerKind], None]


def _row(i: int) -> tuple[np.int32, NDArray[np.float32]]:
    return np.int32(i), np.full(_WIDTH, i / 2, np.float32)


def _fails(i: int) -> tuple[np.int32, NDArray[np.float32]]:
    if i == _BAD * _BATCH:
        raise ValueError("the disk is on fire")
    return _row(i)


def _rows(n: int = _N, procs: int = 0) -> AnyFlow:
    flow: AnyFlow = from_range(n).map(_row).batch(_BATCH)
    return flow.prefetch(procs=procs) if procs else flow


def _procs() -> tuple[int, ...]:
    return (0, 2) if hasattr(os, "memfd_create") else (0,)


# -- elements --------------------------------------------------------------------------------------


def elements_come_once_and_in_order(kind: ConsumerKind) -> None:
    """A pass is the elements of the flow: each once, in order, unchanged, the small last one too.

    This holds with and without workers, and for flows of unknown length.
    """
    for n in (0, 1, _N):
        for procs in _procs():
            for flow in (_rows(n, procs), _rows(n, procs).filter(_keeps_all)):
                consumer = kind.make(flow)
                require_equal_arrays(f"a pass of {n} rows, procs={procs}", [*consumer], flow)
                consumer.close()


def each_pass_is_the_next_epoch(kind: ConsumerKind) -> None:
    """The first pass is epoch 0 of the flow and the next one epoch 1, even after a partial pass."""
    flow = _shuffled()
    consumer = kind.make(flow)
    for epoch, most in enumerate((None, 2, 1, None, None)):
        got = [*islice(iter(consumer), most)]
        require_equal_arrays(f"epoch {epoch}", got, islice(flow.epoch(epoch), most))
    consumer.close()


def a_pass_without_elements_does_not_count(kind: ConsumerKind) -> None:
    """If no element of a pass was taken, the pass does not count as an epoch.

    Wrappers of a consumer, such as torchdata, may begin a pass without reading from it.
    """
    flow = _shuffled()
    consumer = kind.make(flow)
    iter(consumer)
    require_equal_arrays("the pass after one without elements", [*consumer], flow)
    iter(consumer)
    require_equal_arrays("the second", [*consumer], flow.epoch(1))
    consumer.close()


def an_endless_flow_never_stops(kind: ConsumerKind) -> None:
    """A pass over an endless flow yields any number of elements."""
    flow = _shuffled().repeat()
    consumer = kind.make(flow)
    require_equal_arrays(
        "an endless pass", [*islice(iter(consumer), 2 * _N)], islice(iter(flow), 2 * _N)
    )
    consumer.close()


def an_error_is_raised_at_its_position(kind: ConsumerKind) -> None:
    """The elements before an error come first; then the error is raised unchanged, at every call.

    It never ends the pass, which would look like a complete pass.
    """
    for procs in _procs():
        flow: AnyFlow = from_range(_N).map(_fails).batch(_BATCH)
        consumer = kind.make(flow.prefetch(procs=procs))
        elements = iter(consumer)
        require_equal_arrays(
            "before the error", [*islice(elements, _BAD)], islice(iter(_rows()), _BAD)
        )
        for _ in range(2):
            error = error_of(partial(next, elements))
            is_unchanged = isinstance(error, ElementError) and isinstance(
                error.__cause__, ValueError
            )
            require(is_unchanged, f"a flow that fails raised {error!r}")
        consumer.close()


def kept_elements_stay_valid(kind: ConsumerKind) -> None:
    """Elements that are kept until the end of the pass, and after ``close``, do not change."""
    for procs in _procs():
        flow = _rows(procs=procs)
        consumer = kind.make(flow)
        held = [*consumer]
        require_equal_arrays("held to the end", held, flow)
        consumer.close()
        require_equal_arrays("held after close", held, flow)


def few_elements_are_computed_ahead(kind: ConsumerKind) -> None:
    """The number of elements computed ahead of the consumer is limited as guaranteed."""
    if kind.ahead is None:
        return
    made: list[int] = []

    def row(i: int) -> tuple[np.int32, NDArray[np.float32]]:
        made.append(i)
        return _row(i)

    consumer = kind.make(from_range(100).map(row).batch(1))
    next(iter(consumer))
    before = -1
    while before != len(made):  # until it computes no further elements
        before = len(made)
        sleep(0.1)
    most = 1 + kind.ahead + 1  # one taken, some ready, and one being added
    require(len(made) <= most, f"{len(made)} elements were computed for one that was taken")
    consumer.close()


# -- memory ----------------------------------------------------------------------------------------


def no_memory_is_copied(kind: ConsumerKind) -> None:
    """If sharing is guaranteed, arrays are not copied on the way from the flow to the consumer.

    They keep their address in this process, or are in the shared memory that a worker has filled.
    """
    if kind.address is None:
        return
    made: list[NDArray[Any]] = []

    def row(i: int) -> tuple[NDArray[Any], NDArray[Any]]:
        made.extend((_aligned(_BATCH, np.int32), _aligned(_WIDTH, np.float32)))
        return made[-2], made[-1]

    consumer = kind.make(from_range(_N).map(row))
    addresses = [kind.address(part) for element in consumer for part in element]
    require(
        addresses == [array.ctypes.data for array in made], "arrays of this process were copied"
    )
    consumer.close()
    if 2 not in _procs():
        return
    consumer = kind.make(_rows(procs=2))
    for _, array in consumer:
        require(_is_shared(kind.address(array)), "an array that a worker made was copied")
    consumer.close()


def no_use_of_an_element_shows_in_another(kind: ConsumerKind) -> None:
    """Using an element does not change other elements or files.

    Other elements are the earlier and later elements of the pass, and all elements of the next one.
    """
    if kind.use is None:
        return
    with TemporaryDirectory() as folder:
        stored = Path(folder, "rows.npy")
        np.save(stored, np.arange(4 * _WIDTH, dtype=np.float32).reshape(4, _WIDTH))
        before = stored.read_bytes()
        mapped: AnyFlow = from_npy(stored).map(_as_pair)
        for flow in (*(_rows(procs=procs) for procs in _procs()), mapped):
            consumer = kind.make(flow)
            for _ in range(2):
                held: list[tuple[Any, ...]] = []
                for i, element in enumerate(consumer):
                    if i % 2:
                        kind.use(element)
                    else:
                        held.append((i, element))
                numbers, elements = [i for i, _ in held], [element for _, element in held]
                require_equal_arrays(
                    "held", elements, [x for i, x in enumerate(flow) if i in numbers]
                )
            consumer.close()
        require(stored.read_bytes() == before, "the file has changed")


# -- position --------------------------------------------------------------------------------------


def resuming_gives_the_rest(kind: ConsumerKind) -> None:
    """A state is the position after the last element taken, and any other consumer resumes from it.

    Elements computed ahead count as not taken, and the following epochs continue normally.
    """
    for flow in (_shuffled(), _rows().filter(_keeps_all)):
        for epoch, taken in ((0, 0), (0, 1), (1, 3), (2, 6)):
            consumer = kind.make(flow)
            for _ in range(epoch):
                for _ in consumer:
                    pass
            first = [*islice(iter(consumer), taken)]
            state = json.loads(json.dumps(consumer.state_dict()))
            consumer.close()
            other = kind.make(flow)
            other.load_state_dict(state)
            where = f"{taken} elements of epoch {epoch} and the rest"
            require_equal_arrays(where, [*first, *other], flow.epoch(epoch))
            require_equal_arrays(f"the epoch after {where}", [*other], flow.epoch(epoch + 1))
            other.close()


def a_state_at_the_end_begins_the_next_epoch(kind: ConsumerKind) -> None:
    """After the end of a pass, the state is the beginning of the next one."""
    flow = _shuffled()
    consumer, other = kind.make(flow), kind.make(flow)
    for _ in consumer:
        pass
    other.load_state_dict(consumer.state_dict())
    require_equal_arrays("from the end of epoch 0", [*other], flow.epoch(1))
    consumer.close()
    other.close()


def ranks_divide_the_elements_and_end_together(kind: ConsumerKind) -> None:
    """All ranks take the same number of elements; together these are the flow's, in its order.

    A state of one rank resumes all of them, and another number of ranks.
    """
    if kind.shard is None:
        return
    flow = _shuffled()
    for n in (2, 4):
        consumers = [kind.shard(flow, n, i) for i in range(n)]
        for epoch in range(2):
            passes = [list(consumer) for consumer in consumers]
            lengths = {len(elements) for elements in passes}
            require(len(lengths) == 1, f"{n} ranks took {lengths} elements in epoch {epoch}")
            together = [x for step in zip(*passes, strict=True) for x in step]
            expected = list(flow.epoch(epoch))[: len(together)]
            require_equal_arrays(f"epoch {epoch} of {n} ranks", together, expected)
            left_out = len(flow) - len(together)
            require(left_out < n, f"{left_out} elements are left out, and there are {n} ranks")
        running = [iter(consumer) for consumer in consumers]
        for elements in running:
            next(elements)
        states = [consumer.state_dict() for consumer in consumers]
        require(all(state == states[0] for state in states), "the ranks have different states")
        resumed = kind.make(flow)
        resumed.load_state_dict(states[-1])
        require_equal_arrays("the rest after all ranks", list(resumed), list(flow.epoch(2))[n:])
        for consumer in (resumed, *consumers):
            consumer.close()


def a_state_of_another_flow_is_refused(kind: ConsumerKind) -> None:
    """A state of another flow is a ``StateMismatch``, and the consumer does not change."""
    flow = _shuffled()
    consumer, other = kind.make(flow), kind.make(_rows(2 * _N))
    elements = iter(consumer)
    next(elements)
    for wrong in (other.state_dict(), {}, {"epoch": 1}):
        error = error_of(partial(consumer.load_state_dict, wrong))
        require(isinstance(error, StateMismatch), f"a wrong state raised {error!r}")
    require_equal_arrays("after wrong states", [*elements], islice(iter(flow), 1, None))
    consumer.close()
    other.close()


# -- what is left behind ---------------------------------------------------------------------------


def closing_leaves_nothing(kind: ConsumerKind) -> None:
    """After ``close`` no thread and no worker is left, and the sources of the flow are closed.

    This holds before a pass, during it, at its end and after an error; ``close`` may be called
    twice, and another pass may follow.
    """
    opened: list[int] = []

    def rows() -> Iterator[Any]:
        opened.append(1)
        try:
            yield from map(_row, range(_N))
        finally:
            opened.pop()

    failing: AnyFlow = from_range(_N).map(_fails).batch(_BATCH)
    streamed: AnyFlow = from_iterable(rows).batch(_BATCH)
    for flow, taken in (
        *((_rows(procs=procs), taken) for procs in _procs() for taken in (0, 2, _N)),
        (failing, _BAD),
        (streamed, 2),
    ):
        with no_thread_is_left():
            consumer = kind.make(flow)
            consumer.close()
            elements = iter(consumer)
            for _ in islice(elements, taken):
                pass
            if flow is failing:
                error_of(partial(next, elements))
            consumer.close()
            consumer.close()
        require(not opened, "after close, a source of the flow is still open")
        if flow is not failing:
            require(next(iter(consumer), None) is not None, "after close there is no other pass")
        consumer.close()


def an_abandoned_consumer_is_collected(kind: ConsumerKind) -> None:
    """A consumer that is abandoned in the middle of a pass is collected, and ends the pass."""
    for procs in _procs():
        with no_thread_is_left():
            consumer = kind.make(_rows(procs=procs).repeat())
            elements = iter(consumer)
            next(elements)
            gone = weakref.ref(consumer)
            del consumer, elements
            gc.collect()
            require(gone() is None, "an abandoned consumer is still referenced")


def an_interrupt_is_immediate(kind: ConsumerKind) -> None:
    """Ctrl-C while waiting for an element raises KeyboardInterrupt; then another pass may begin.

    The signal is sent to this process, so this is checked only in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    gate = threading.Event()

    def stuck(i: int) -> Any:
        if i == _BAD:
            gate.wait()
        return _row(i)

    consumer = kind.make(from_range(_N).map(stuck).batch(1))
    try:
        with no_thread_is_left():
            elements = iter(consumer)
            next(elements)
            interrupted = is_interrupted(lambda: [*islice(elements, _BAD)])
            require(interrupted, "the wait for an element was not interrupted")
            gate.set()
            expected = [*from_range(_N).map(_row).batch(1)]
            require_equal_arrays("the pass after an interrupt", [*iter(consumer)], expected)
            consumer.close()
    finally:
        gate.set()


def _keeps_all(element: Any) -> bool:
    """Keep every element; the length of a filtered flow is unknown."""
    return len(element) > 0


def _shuffled() -> AnyFlow:
    flow: AnyFlow = from_range(_N).shuffle(seed=3).map(_row).batch(_BATCH)
    return flow


def _as_pair(row: NDArray[np.float32]) -> tuple[np.int32, NDArray[np.float32]]:
    return np.int32(0), row


def _aligned(n: int, dtype: type[np.generic]) -> NDArray[Any]:
    size = n * np.dtype(dtype).itemsize
    memory = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype)


def _is_shared(address: int) -> bool:
    """Return True if the memory at this address is shared with other processes."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access, _ = line.split(" ", 2)
        begin, end = (int(part, 16) for part in span.split("-"))
        if begin <= address < end:
            return access.endswith("s")
    return False


CONSUMER_LAWS: tuple[ConsumerLaw, ...] = (
    elements_come_once_and_in_order,
    each_pass_is_the_next_epoch,
    a_pass_without_elements_does_not_count,
    an_endless_flow_never_stops,
    an_error_is_raised_at_its_position,
    kept_elements_stay_valid,
    few_elements_are_computed_ahead,
    no_memory_is_copied,
    no_use_of_an_element_shows_in_another,
    resuming_gives_the_rest,
    a_state_at_the_end_begins_the_next_epoch,
    ranks_divide_the_elements_and_end_together,
    a_state_of_another_flow_is_refused,
    closing_leaves_nothing,
    an_abandoned_consumer_is_collected,
    an_interrupt_is_immediate,
)


def check_consumer(
    make: Callable[[AnyFlow], Consumer],
    *,
    address: Callable[[Any], int] | None = None,
    use: Callable[[Any], object] | None = None,
    ahead: int | None = None,
    shard: Callable[[AnyFlow, int, int], Consumer] | None = None,
) -> None:
    """Check a loader for a framework against all laws; ``make`` creates a loader from a flow.

    The elements of the flows are pairs of int32 and float32 arrays; ``np.asarray`` must convert the
    delivered arrays back. ``address`` returns the memory address of a delivered array, if memory is
    shared. ``use`` uses an element as programs do. ``ahead`` is the maximum number of elements
    computed ahead. ``shard(flow, n, i)`` creates the loader of one of ``n`` ranks that train
    together.

    >>> from flowdsl.feeding.loader import Loader
    >>> from flowdsl.testing import check_consumer
    >>> check_consumer(lambda flow: Loader(flow, lambda element, position: element), ahead=2)

    Raises:
        AssertionError: A law is broken; a note names the law.
    """
    kind = ConsumerKind(make, address, use, ahead, shard)
    for law in CONSUMER_LAWS:
        with naming(law):
            law(kind)
