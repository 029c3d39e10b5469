"""A third kind of worker, defined in this file: threads that exchange only bytes.

They simulate the actors of a distributed engine: inputs and results are pickled, workers are not
ready immediately, they die, they are ended after a timeout, and they stay for the next pass. No
module outside this file knows this kind.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, NoReturn, TypeAlias, assert_type

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Exact, Flow, InvalidFlow, NotShippable, WorkerDied
from flowdsl.errors import travelling
from flowdsl.executor.execute import execute, executor_of
from flowdsl.nodes import AnyNode, Placement, with_sources
from flowdsl.ops.placement import Prefetch
from flowdsl.plan.lower import plan_of
from flowdsl.plan.plan import Stage
from flowdsl.resources.worker_kinds import Label, WorkerKind, Workers
from flowdsl.testing import laws as laws_of_flows
from flowdsl.testing.catalogue import MAX_ROWS
from flowdsl.testing.recipes import AnyFlow, Recipe
from flowdsl.testing.worker_backends import Law, Trial, laws
from flowdsl.workers.backend import (
    POLL_SECONDS,
    Died,
    Done,
    Event,
    Owner,
    Ready,
    Result,
    Worker,
    create_backend,
    result_of,
)
from flowdsl.workers.processes import Processes
from flowdsl.workers.tasks import InputRows, Task, TaskInput
from flowdsl.workers.wire import load, pickled, ship, unpack
from tests.paces import paced, whims
from tests.sampling import examples
from tests.strategies import chains
from tests.threads import spawn_thread

# -- the kind --------------------------------------------------------------------------------------

KIND = WorkerKind(
    "wires", Label("wired thread", "wired threads"), f"{__name__}:Wired", shares_lock=True
)

SECONDS_TO_LEAVE = 0.5
READY, PARK = b"ready", b"park"
NOBODY = 0
"""A number that no worker has; its messages only end a wait."""
_numbers = count(1)

Said: TypeAlias = bytes | str
"""A message of a worker: ready, a result, or, as text, the reason of its end."""


@attrs.define(eq=False)
class Wire(Worker):
    """The backend's record of a worker."""

    number: int = 0
    inbox: SimpleQueue[bytes | None] = attrs.field(factory=SimpleQueue)
    begun: list[int] = attrs.field(factory=list[int])
    """The number of the last task begun, which survives the worker's death."""
    thread: threading.Thread | None = None
    since: float = 0.0
    """The time when the worker began its oldest task."""
    dead: bool = False


@attrs.frozen
class Pickled:
    """Elements as received."""

    content: bytes

    @property
    def nbytes(self) -> int:
        return len(self.content)

    def open(self) -> Sequence[Any]:
        elements: list[Any] = unpack(self.content)
        return elements

    def discard(self) -> None:
        """Do nothing: the elements need no release."""


class Wired:
    """The wired threads of a stage."""

    def __init__(self, stage: Stage, time_operators: bool = False) -> None:
        self._program = ship(stage.program, stage.workers.kind).content
        self._asked, self._end_to_end, self._time_operators = (
            stage.workers,
            stage.end_to_end,
            time_operators,
        )
        self._members: dict[int, Wire] = {}
        self._outbox: SimpleQueue[tuple[int, Said]] = SimpleQueue()
        self._owner = Owner()
        self._end = weakref.finalize(self, _end, self._owner, self._members)

    @property
    def workers(self) -> list[Worker]:
        return list[Worker](self._members.values())

    def start(self, count: int) -> None:
        self._owner.check()
        while len(self._members) < count:
            self._add()

    def pack(self, rows: InputRows) -> tuple[bytes, int]:
        packed = pickled(rows)
        return packed, len(packed)

    def submit(self, worker: Worker, task_input: TaskInput) -> None:
        assert isinstance(worker, Wire)
        self._owner.check()
        if not worker.held:
            worker.since = time.monotonic()
        worker.held[task_input.task.number] = task_input
        worker.inbox.put(pickled((task_input.task, task_input.packed)))

    def poll(self) -> list[Event]:
        self._owner.check()
        heard: list[Event] = []
        with suppress(Empty):
            said = self._outbox.get(timeout=POLL_SECONDS)
            while True:
                heard += self._received(*said)
                said = self._outbox.get_nowait()
        limit = self._asked.timeout
        for worker in self._members.values():
            late = limit is not None and worker.held and time.monotonic() - worker.since > limit
            if late and not worker.dead:
                heard.append(_died(worker, f"at work for more than {limit:g} seconds"))
        return heard

    def wake(self) -> None:
        self._outbox.put((NOBODY, READY))

    def replace(self, worker: Worker) -> None:
        assert isinstance(worker, Wire)
        del self._members[worker.number]
        worker.inbox.put(None)  # it was cut off, and leaves when it can
        self._add()

    def dismiss(self, worker: Worker) -> None:
        assert isinstance(worker, Wire)
        del self._members[worker.number]
        worker.inbox.put(None)

    def park(self) -> bool:
        if any(worker.held for worker in self._members.values()):
            return False
        for worker in self._members.values():
            worker.clear_figures()
            worker.begun.clear()
            worker.inbox.put(PARK)
        return True

    def can_reuse(self, stage: Stage, time_operators: bool) -> bool:
        threads = [worker.thread for worker in self._members.values()]
        return (
            (stage.workers, time_operators) == (self._asked, self._time_operators)
            and self._owner.is_here
            and ship(stage.program, stage.workers.kind).content == self._program
            and all(thread is not None and thread.is_alive() for thread in threads)
        )

    def close(self) -> None:
        self._end()

    def _add(self) -> None:
        number = next(_numbers)
        worker = self._members[number] = Wire(f"wired thread {number}", number=number)
        arguments = (worker.inbox, self._outbox, number, worker.begun)
        program = (self._program, self._end_to_end, self._time_operators)
        worker.thread = threading.Thread(target=_live, args=(*arguments, *program), daemon=True)
        worker.thread.start()

    def _received(self, number: int, said: Said) -> list[Event]:
        worker = self._members.get(number)
        if worker is None or worker.dead:
            return []
        if isinstance(said, str):
            return [_died(worker, said)]
        if said == READY:
            worker.ready = True
            return [Ready(worker)]
        result: Result
        result, content = unpack(said)
        worker.since = time.monotonic()
        return [Done(worker, result, Pickled(content))]


def _died(worker: Wire, how: str) -> Died:
    worker.dead = True
    return Died(worker, how, next(iter(worker.begun), None))


class Ended(BaseException):
    """Ends a worker; functions of a flow do not catch it.

    A worker that has caught it ends nevertheless, as soon as it prepares to send it.
    """

    def __reduce__(self) -> NoReturn:
        raise self


def die() -> NoReturn:
    """End the worker that calls this."""
    raise Ended("a sudden end")


def _live(
    inbox: SimpleQueue[bytes | None],
    outbox: SimpleQueue[tuple[int, Said]],
    number: int,
    begun: list[int],
    program: bytes,
    end_to_end: bool,
    time_operators: bool,
) -> None:
    """Run a worker, which shares only its queues with the backend."""
    try:
        making = executor_of(load(program), end_to_end, time_operators=time_operators)
        outbox.put((number, READY))
        while (message := inbox.get()) is not None:
            if message == PARK:
                making.park()
                continue
            task: Task
            task, packed = unpack(message)
            begun[:] = [task.number]
            made = execute(making, task.addresses(), [] if packed is None else unpack(packed))
            if made.failure is not None:
                cause = travelling(made.failure.cause)
                made.failure = attrs.evolve(made.failure, cause=cause)
            outbox.put((number, pickled((result_of(made, task), pickled(made.elements)))))
        outbox.put((number, "it left"))
    except BaseException as error:
        outbox.put((number, str(error)))


def _end(owner: Owner, members: dict[int, Wire]) -> None:
    if not owner.is_here:
        return
    for worker in members.values():
        worker.inbox.put(None)
    deadline = time.monotonic() + SECONDS_TO_LEAVE
    for worker in members.values():
        if worker.thread is not None:
            worker.thread.join(max(0.0, deadline - time.monotonic()))


# -- its tests -------------------------------------------------------------------------------------

TRIAL = Trial(KIND, die)


@pytest.mark.parametrize("law", laws(TRIAL))
def test_the_kind_obeys_each_law(law: Law) -> None:
    law(TRIAL)


def wired(recipe: Recipe) -> Recipe:
    """Replace processes by wired threads."""

    def chain(flow: AnyFlow, procs: int) -> AnyFlow:
        return Flow(_wired(flow.node))

    return recipe.then("wired", chain, lambda model: model)


def _wired(node: AnyNode) -> AnyNode:
    node = with_sources(node, tuple(map(_wired, node.sources)))
    if not isinstance(node, Placement):
        return node
    return attrs.evolve(node, workers=attrs.evolve(node.workers, kind=KIND))


few, epochs = st.integers(1, 3), st.integers(0, 2)


@pytest.fixture
def copies_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """``replicate`` over a stream uses separate processes."""
    monkeypatch.setattr(Processes, "spawn", staticmethod(spawn_thread))


@pytest.mark.usefixtures("copies_are_quick")
class TestRandomChains:
    @settings(max_examples=examples(150))
    @given(chains(most=6, prefetched=True, one_pass=True), few, epochs, whims)
    def test_yield_the_reference(
        self, recipe: Recipe, n: int, epoch: int, sizes: list[int]
    ) -> None:
        with paced(sizes):
            laws_of_flows.running_gives_the_reference(wired(recipe), n, epoch)

    @settings(max_examples=examples(100))
    @given(chains(most=4), st.integers(0, 4), few, epochs, whims)
    def test_allow_a_prefetch_anywhere(
        self, recipe: Recipe, place: int, n: int, epoch: int, sizes: list[int]
    ) -> None:
        with paced(sizes):
            recipe = wired(recipe.with_prefetch(place))
            laws_of_flows.running_gives_the_reference(recipe, n, epoch)

    @settings(max_examples=examples(100))
    @given(chains(most=5, prefetched=True), few, few, st.integers(0, 2 * MAX_ROWS), epochs, whims)
    def test_resume_from_a_state(
        self, recipe: Recipe, n: int, then: int, position: int, epoch: int, sizes: list[int]
    ) -> None:
        with paced(sizes):
            laws_of_flows.resuming_gives_the_rest(wired(recipe), position, n, then, epoch)


def test_flows_with_the_kind_are_typed() -> None:
    flow = fl.from_range(9).map(str).apply(Prefetch, Workers(KIND, 2))
    assert_type(flow, Flow[str, Exact])
    assert flow.effects == frozenset()


def test_workers_share_no_objects_with_the_consumer() -> None:
    """Objects arrive as copies."""
    rows = [[i] for i in range(9)]
    got = fl.from_iterable(rows).map(list).apply(Prefetch, Workers(KIND, 2)).collect()
    assert got == rows
    seen = fl.from_items(rows).map(id).apply(Prefetch, Workers(KIND, 2)).collect()
    assert set(seen).isdisjoint(map(id, rows))


def test_errors_of_unpicklable_programs_name_the_kind() -> None:
    lock = threading.Lock()
    flow = fl.from_range(9).map(lambda i: (i, lock.locked())).apply(Prefetch, Workers(KIND, 2))
    with pytest.raises(NotShippable) as caught:
        flow.collect()
    said = str(caught.value)
    assert said.startswith("map(<lambda>): func cannot be sent to a wired thread: ")
    assert said.endswith("inside the function, or run without prefetch(wires=...)")


class Poison:
    def __reduce__(self) -> tuple[Any, ...]:
        return die, ()


def test_a_worker_that_ends_before_it_is_ready_is_an_error() -> None:
    poison = Poison()
    flow = fl.from_range(5).map(lambda i: (i, poison)).apply(Prefetch, Workers(KIND, 2))
    with pytest.raises(
        WorkerDied, match=r"wired thread \d+ ended before it was ready \(.*a sudden"
    ):
        flow.collect()


def test_a_backend_with_an_ended_parked_worker_is_not_reused() -> None:
    stage = plan_of(fl.from_range(5).map(abs).apply(Prefetch, Workers(KIND, 2)).node).root
    assert isinstance(stage, Stage)
    backend = create_backend(stage)
    backend.start(2)
    assert backend.park()
    worker = backend.workers[1]
    assert isinstance(worker, Wire)
    assert worker.thread is not None
    worker.inbox.put(None)
    worker.thread.join()
    assert not backend.can_reuse(stage, False)
    backend.close()


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        (Workers(KIND, -1), "prefetch: wires must be an int >= 0, got -1"),
        (Workers(KIND, 2000), "prefetch: wires must be at most 1024, got 2000"),
        (Workers(KIND, 2, deaths=0), "prefetch: deaths must be an int >= 1, got 0"),
        (
            Workers(attrs.evolve(KIND, mortal=False), 2, timeout=1.0),
            "prefetch: timeout needs procs=, as a wired thread cannot be ended",
        ),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(workers: Workers, message: str) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(3).apply(Prefetch, workers)
    assert str(caught.value) == message


def test_titles_show_the_arguments() -> None:
    workers = Workers(KIND, 2, memory=9, deaths=1, timeout=0.5)
    title = fl.from_range(3).apply(Prefetch, workers).node.title
    assert title == "prefetch(wires=2, memory=9, deaths=1, timeout=0.5)"


def test_missing_backend_is_named_in_the_error() -> None:
    lost = attrs.evolve(KIND, backend="flowdsl_nowhere.actors:Actors")
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(3).map(abs).apply(Prefetch, Workers(lost, 1)).collect()
    assert str(caught.value) == (
        "prefetch: wires needs flowdsl_nowhere.actors:Actors: No module named 'flowdsl_nowhere'"
    )
