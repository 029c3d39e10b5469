"""The laws of worker backends, which a pool requires of workers of any kind.

A law is a test function whose argument is a ``Trial``: a kind of worker, and a function that kills
one. It raises an ``AssertionError`` if the kind breaks the law. In a test file:

    TRIAL = Trial(ACTORS, die=os.abort)

    @pytest.mark.parametrize("law", laws(TRIAL))
    def test_actors(law: Law) -> None:
        law(TRIAL)

A law starts a few workers, which must be able to import this module and to access the files of a
temporary folder. It waits up to ``PATIENCE`` seconds for an event; only a broken law takes so long.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl import (
    ElementError,
    Flow,
    FlowError,
    Run,
    WorkerDied,
    from_items,
    from_iterable,
    from_range,
)
from flowdsl.nodes import Unordered
from flowdsl.ops.placement import Prefetch
from flowdsl.plan.lower import plan_of
from flowdsl.plan.plan import Stage
from flowdsl.report.bottleneck import verdict
from flowdsl.report.diagram import diagram_of
from flowdsl.report.picture import picture
from flowdsl.resources.worker_kinds import WorkerKind, Workers
from flowdsl.statistics.run import RunStatistics
from flowdsl.statistics.stages import StageStatistics, WorkerStatistics
from flowdsl.workers.backend import (
    POLL_SECONDS,
    Died,
    Done,
    Event,
    Worker,
    WorkerBackend,
    create_backend,
)
from flowdsl.workers.tasks import Task, TaskInput

AnyFlow: TypeAlias = Flow[Any, Any]
Error = TypeVar("Error", bound=Exception)

PATIENCE = 60.0
"""Seconds to wait for an event that must come, even on a busy machine."""

SOON = 20 * POLL_SECONDS
"""The time limit in seconds of operations that do not wait for workers."""


@attrs.frozen
class Trial:
    """A kind of worker under test."""

    kind: WorkerKind
    die: Callable[[], object] | None = None
    """Kills the worker that calls it; must be picklable, such as ``os.abort``."""
    living: Callable[[], Iterable[object]] = tuple
    """Lists the workers that are alive, if they are not threads or children of this process."""
    repeats: int = 1
    """The repetitions of laws of deaths: messages that are lost with a worker are rare."""

    def __attrs_post_init__(self) -> None:
        if self.kind.mortal and self.die is None:
            raise TypeError(f"Trial: say how {self.kind.noun.any} dies; or the kind is not mortal")

    def over(self, flow: AnyFlow, n: int = 2, **limits: Any) -> AnyFlow:
        """Return the flow, run by ``n`` workers of this kind."""
        return flow.apply(Prefetch, Workers(self.kind, n, **limits))


Law: TypeAlias = Callable[[Trial], None]


def laws(trial: Trial) -> tuple[Law, ...]:
    """Return the laws that the trial's kind of worker must obey."""
    if not trial.kind.mortal:
        return LAWS
    return (*LAWS, *(_repeated(law, trial.repeats) for law in LAWS_OF_MORTALS))


def _repeated(law: Law, times: int) -> Law:
    @wraps(law)
    def repeated(trial: Trial) -> None:
        for _ in range(times):
            law(trial)

    return repeated


# -- functions that workers run --------------------------------------------------------------------


def _negative(i: int) -> int:
    return -i


def _is_odd(i: int) -> bool:
    return i % 2 == 1


def _itself(x: object) -> object:
    return x


def _large(i: int) -> NDArray[np.int64]:
    return np.full(30_000, i)


def _drawn(i: int, rng: np.random.Generator) -> tuple[int, float]:
    return i, float(rng.random())


def _fails_at(row: int, i: int) -> int:
    if i == row:
        raise ZeroDivisionError(f"row {row} is bad")
    return i


def _dies_at(row: int, die: Callable[[], object], i: int) -> int:
    if i == row:
        die()
    return i


def _dies_once(row: int, die: Callable[[], object], folder: str, i: int) -> int:
    if i == row:
        with suppress(FileExistsError):
            Path(folder, "died").touch(exist_ok=False)
            die()
    return i


def _waits(folder: str, i: int) -> int:
    """Return row 0 immediately, and any other row only when the gate is open."""
    if i:
        Path(folder, f"begun {i}").touch()
        while not Path(folder, "go").exists():
            time.sleep(0.01)
    return i


@attrs.frozen
class _Gate:
    """A file that releases the functions that wait for it."""

    folder: str

    @property
    def flow(self) -> AnyFlow:
        return from_range(100).map(partial(_waits, self.folder))

    def has_begun(self, row: int) -> bool:
        return Path(self.folder, f"begun {row}").exists()

    @property
    def is_open(self) -> bool:
        return Path(self.folder, "go").exists()

    def open(self) -> None:
        Path(self.folder, "go").touch()


@contextmanager
def _gate() -> Iterator[_Gate]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        gate = _Gate(folder)
        try:
            yield gate
        finally:  # a thread cannot be killed and would wait forever
            gate.open()


# -- a running backend, with a minimal pool to observe it ------------------------------------------


@attrs.define
class _RunningBackend:
    """A started backend, with the events it has reported so far."""

    backend: WorkerBackend
    stage: Stage
    events: list[Event] = attrs.field(factory=list[Event])
    numbers: Iterator[int] = attrs.field(factory=count)

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Collect events until ``true()`` holds."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < deadline, f"{what}: not within {PATIENCE:g} seconds"
            self.events += self.backend.poll()

    def all_ready(self) -> list[Worker]:
        self.until(lambda: all(w.ready for w in self.backend.workers), "not all workers are ready")
        return self.backend.workers

    def submit(self, worker: Worker, start: int, stop: int, epoch: int = 0) -> TaskInput:
        return self.hand(worker, TaskInput(Task(next(self.numbers), epoch, start, stop)))

    def hand(self, worker: Worker, task_input: TaskInput) -> TaskInput:
        self.backend.submit(worker, task_input)
        assert task_input.task.number in worker.held, "a submitted task is not in worker.held"
        return task_input

    def done(self, task_input: TaskInput) -> Done:
        """Wait until a task is done, and remove it from its worker."""
        number = task_input.task.number

        def results() -> list[Done]:
            return [e for e in self.events if isinstance(e, Done) and e.result.number == number]

        self.until(lambda: bool(results()), f"task {number} is not done")
        (event,) = results()  # reported exactly once
        assert event.worker.held.pop(number, None) is task_input, (
            "a task is done that its worker did not hold"
        )
        return event

    def elements(self, task_input: TaskInput) -> list[Any]:
        """Return the elements of a task, which must not fail."""
        event = self.done(task_input)
        assert event.result.failure is None, event.result.failure
        elements = list(event.delivery.open())
        assert event.result.returned == len(elements)
        return elements

    def deaths(self) -> list[Died]:
        return [event for event in self.events if isinstance(event, Died)]

    def death_of(self, worker: Worker) -> Died:
        self.until(lambda: bool(self.deaths()), f"the death of {worker.name} is not reported")
        (died,) = self.deaths()
        assert died.worker is worker, "the death of another worker is reported"
        return died


def _stage(trial: Trial, flow: AnyFlow, n: int = 2, **limits: Any) -> Stage:
    stage = plan_of(trial.over(flow, n, **limits).node).root
    assert isinstance(stage, Stage)
    return stage


@contextmanager
def _running(
    trial: Trial, flow: AnyFlow, n: int = 2, time_operators: bool = False, **limits: Any
) -> Iterator[_RunningBackend]:
    stage = _stage(trial, flow, n, **limits)
    backend = create_backend(stage, time_operators)
    try:
        backend.start(n)
        yield _RunningBackend(backend, stage)
    finally:
        backend.close()


def _alive(trial: Trial) -> set[object]:
    """Return the threads, the child processes that the system shows, and workers elsewhere."""
    found: set[object] = {*threading.enumerate(), *trial.living()}
    with suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            with suppress(OSError):  # it has ended
                found |= set((task / "children").read_text().split())
    return found


def _alive_without(trial: Trial) -> set[object]:
    """Return what is alive without a backend, such as a fork server that the first one starts."""
    with _running(trial, from_range(9).map(_negative)) as running:
        running.all_ready()
    return _alive(trial)


def _ends_all_but(trial: Trial, kept: set[object]) -> bool:
    """Wait until only ``kept`` is alive; return False if that takes longer than ``PATIENCE``."""
    deadline = time.monotonic() + PATIENCE
    while not _alive(trial) <= kept and time.monotonic() < deadline:
        time.sleep(0.01)
    return _alive(trial) <= kept


def _require_quick(action: Callable[[], object], what: str) -> None:
    """Run an action that must be quick; an action that never ends is abandoned."""
    failures: list[BaseException] = []

    def act() -> None:
        try:
            action()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(SOON)
    assert not thread.is_alive(), f"{what} takes longer than {SOON:g} seconds"
    for failure in failures:
        raise failure


def _raised(kind: type[Error], action: Callable[[], object]) -> Error:
    """Return the error that the action raises, which must be of this kind."""
    try:
        action()
    except kind as error:
        return error
    raise AssertionError(f"there is no {kind.__name__}")


# -- start, pack, submit and poll ------------------------------------------------------------------


def start_adds_missing_workers(trial: Trial) -> None:
    """All workers become ready, each with its own name; ``start`` adds missing workers."""
    backend = create_backend(_stage(trial, from_range(9).map(_negative), 3))
    assert backend.workers == [], "there are workers before the start"
    backend.close()
    with _running(trial, from_range(9).map(_negative), 3) as running:
        workers = running.all_ready()
        assert len(workers) == 3
        assert len({worker.name for worker in workers}) == 3
        assert not any(worker.held for worker in workers)
        running.backend.start(3)
        assert running.backend.workers == workers
        running.backend.start(4)
        assert len(running.all_ready()) == 4
        assert running.backend.workers[:3] == workers


def a_task_yields_its_elements(trial: Trial) -> None:
    """A task yields the elements of its epoch and positions, in any worker."""
    flow = from_range(60).shuffle(seed=1).random_map(_drawn, seed=2)
    with _running(trial, flow) as running:
        task_inputs = [
            (epoch, start, running.submit(worker, start, start + 7, epoch))
            for epoch in (3, 0)
            for start, worker in zip((0, 20), running.all_ready(), strict=True)
        ]
        for epoch, start, task_input in task_inputs:
            expected = list(flow.epoch(epoch))[start : start + 7]
            assert running.elements(task_input) == expected


def rows_are_sent_to_workers(trial: Trial) -> None:
    """Rows of any class and size can be sent to workers."""
    rows: list[Any] = [np.arange(20_000.0), "text", {"a": [1, (2, None)]}, b"", np.float32(1.5)]
    with _running(trial, from_iterable(rows).map(_itself), 1) as running:
        (worker,) = running.all_ready()
        packed, nbytes = running.backend.pack([rows])
        assert nbytes >= 0
        task = Task(next(running.numbers), 0, 0, len(rows))
        task_input = running.hand(worker, TaskInput(task, [rows], packed, nbytes))
        np.testing.assert_equal(running.elements(task_input), rows)


def delivered_elements_stay_valid(trial: Trial) -> None:
    """Delivered elements stay valid while the worker computes more, and after it has ended."""
    with _running(trial, from_range(60).map(_large), 1) as running:
        (worker,) = running.all_ready()
        first = running.done(running.submit(worker, 0, 3))
        assert first.delivery.nbytes > 0
        kept = list(first.delivery.open())
        for start in range(3, 60, 3):
            running.done(running.submit(worker, start, start + 3)).delivery.discard()
    np.testing.assert_equal(kept, [_large(i) for i in range(3)])


def a_function_that_fails_does_not_end_its_worker(trial: Trial) -> None:
    """Elements before the failure are delivered, and the worker continues."""
    with _running(trial, from_range(60).map(partial(_fails_at, 5)), 1) as running:
        (worker,) = running.all_ready()
        done = running.done(running.submit(worker, 3, 9))
        assert list(done.delivery.open()) == [3, 4]
        failure = done.result.failure
        assert failure is not None
        assert (failure.epoch, failure.position) == (0, 5)
        assert isinstance(failure.cause, ZeroDivisionError)
        assert running.elements(running.submit(worker, 6, 9)) == [6, 7, 8]
        assert running.backend.workers == [worker]
        assert not running.deaths()


def results_have_the_positions_after_a_filter(trial: Trial) -> None:
    """If a filter leaves elements out, the result contains the positions of the others."""
    with _running(trial, from_range(60).filter(_is_odd), 1) as running:
        (worker,) = running.all_ready()
        done = running.done(running.submit(worker, 10, 16))
        assert list(done.delivery.open()) == [11, 13, 15]
        assert (done.result.positions, done.result.filtered) == ([11, 13, 15], 3)


def poll_returns_without_events(trial: Trial) -> None:
    """``poll`` returns even if no worker has a task, or if all tasks take a long time."""
    with _gate() as gate, _running(trial, gate.flow, 1) as running:
        (worker,) = running.all_ready()
        _require_quick(running.backend.poll, "poll, while no worker has a task,")
        task_input = running.submit(worker, 1, 2)
        _require_quick(running.backend.poll, "poll, while a worker is running a task,")
        gate.open()
        assert running.elements(task_input) == [1]


def wake_ends_the_wait_of_poll(trial: Trial) -> None:
    """``wake`` ends the wait of the current or next ``poll``, without losing events."""
    with _gate() as gate, _running(trial, gate.flow, 1) as running:
        (worker,) = running.all_ready()
        took = list[float]()
        for k in range(6):
            timer = threading.Timer(POLL_SECONDS / 10 * (k % 2), running.backend.wake)
            timer.start()
            if k % 2 == 0:  # before the wait, and not within it
                timer.join()
            began = time.monotonic()
            assert running.backend.poll() == []
            took.append(time.monotonic() - began)
            timer.join()
        assert min(took) < POLL_SECONDS, f"poll waited for {took} seconds after wake"
        task_input = running.submit(worker, 1, 2)
        running.backend.wake()
        gate.open()
        assert running.elements(task_input) == [1]


def a_dismissed_worker_ends(trial: Trial) -> None:
    """It ends without an event, and its elements stay valid; the other workers continue."""
    before = _alive_without(trial)
    with _running(trial, from_range(60).map(_large), 1) as running:
        running.all_ready()
        alone = _alive(trial)
        running.backend.start(2)
        stays, leaving = running.all_ready()
        result = running.done(running.submit(leaving, 0, 3))
        running.backend.dismiss(leaving)
        assert running.backend.workers == [stays]
        assert _ends_all_but(trial, alone), (
            f"{_alive(trial) - alone} are left of a worker that was dismissed"
        )
        assert running.elements(running.submit(stays, 3, 5))[0][0] == 3
        assert not running.deaths()
        np.testing.assert_equal(list(result.delivery.open()), [_large(i) for i in range(3)])
    assert _ends_all_but(trial, before), f"{_alive(trial) - before} are left"


def operators_are_timed_if_asked(trial: Trial) -> None:
    """A result contains each operator's calls and seconds only with ``time_operators``."""
    flow = from_range(60).map(_negative)
    for time_operators in (True, False):
        with _running(trial, flow, 1, time_operators) as running:
            (worker,) = running.all_ready()
            result = running.done(running.submit(worker, 0, 9)).result
            assert bool(result.costs) == time_operators
            assert result.seconds > 0


# -- park, reuse and close ------------------------------------------------------------------------


def a_backend_with_an_unfinished_task_does_not_park(trial: Trial) -> None:
    """Workers are not parked while one holds a task, whose result would arrive in another pass."""
    with _gate() as gate, _running(trial, gate.flow, 1) as running:
        (worker,) = running.all_ready()
        task_input = running.submit(worker, 1, 2)
        assert not running.backend.park(), "a backend was parked while a worker holds a task"
        gate.open()
        assert running.elements(task_input) == [1]


def parked_workers_are_reused(trial: Trial) -> None:
    """Parked workers, ready or not, work like new ones: counts and task numbers begin at 0."""
    flow = from_range(60).map(_negative)
    for ready in (True, False):
        with _running(trial, flow) as running:
            if ready:
                worker, _ = running.all_ready()
                worker.elements, worker.busy, worker.cpu = 3, 1.0, 1.0
                worker.waited_for_core = 1.0
                running.elements(running.submit(worker, 0, 3))
            if not running.backend.park():
                return  # the kind does not park workers
            workers = running.backend.workers
            counts = [(w.elements, w.busy, w.cpu, w.waited_for_core) for w in workers]
            assert counts == [(0, 0.0, 0.0, 0.0)] * 2
            assert running.backend.can_reuse(running.stage, False), (
                "a parked backend cannot be reused"
            )
            reused = _RunningBackend(running.backend, running.stage)
            for worker in reused.all_ready():
                assert reused.elements(reused.submit(worker, 9, 12, epoch=4)) == [-9, -10, -11]


def parked_workers_refuse_another_stage(trial: Trial) -> None:
    """Parked workers refuse another function, number of workers, or ``time_operators``."""
    flow = from_range(60).map(_negative)
    with _running(trial, flow) as running:
        running.all_ready()
        running.backend.park()
        others = {
            "another function": (_stage(trial, from_range(60).map(_itself)), False),
            "another number of workers": (_stage(trial, flow, 3), False),
            "time_operators": (_stage(trial, flow), True),
        }
        for what, (stage, time_operators) in others.items():
            assert not running.backend.can_reuse(stage, time_operators), (
                f"a backend was reused for a stage with {what}"
            )


def close_leaves_no_threads_or_processes(trial: Trial) -> None:
    """No thread or process is left, even with undelivered results; closing twice is harmless."""
    before = _alive_without(trial)
    with _running(trial, from_range(60).map(_large)) as running:
        for worker in running.all_ready():
            running.submit(worker, 0, 3)
        running.backend.close()
        assert _ends_all_but(trial, before), (
            f"{_alive(trial) - before} are left when the backend is closed"
        )


def close_waits_for_no_function(trial: Trial) -> None:
    """A worker that can be killed is killed; any other ends by itself as soon as it can."""
    before = _alive_without(trial)
    with _gate() as gate, _running(trial, gate.flow, 1) as running:
        (worker,) = running.all_ready()
        running.submit(worker, 1, 2)
        running.until(lambda: gate.has_begun(1), "a submitted task has not begun")
        late = threading.Timer(SOON, gate.open)
        late.start()
        running.backend.close()
        assert not gate.is_open, f"close waits for a function, for {SOON:g} seconds or more"
        late.cancel()
        gate.open()
        assert _ends_all_but(trial, before), (
            f"{_alive(trial) - before} are left though they can end"
        )


def an_unreferenced_backend_ends(trial: Trial) -> None:
    """A backend that is garbage-collected ends as if it were closed."""
    before = _alive_without(trial)
    stage = _stage(trial, from_range(60).map(_negative))
    backend = create_backend(stage)
    backend.start(2)
    running = _RunningBackend(backend, stage)
    running.elements(running.submit(running.all_ready()[0], 0, 3))
    del backend, running
    gc.collect()
    assert _ends_all_but(trial, before), (
        f"{_alive(trial) - before} are left of an unreferenced backend"
    )


def a_fork_is_refused(trial: Trial) -> None:
    """A fork that uses the backend gets an error; it does not end the workers of its parent."""
    if not hasattr(os, "fork"):
        return
    with _gate() as gate, _running(trial, gate.flow, 1) as running:
        (worker,) = running.all_ready()
        task_input = running.submit(worker, 1, 2)
        backend, stage = running.backend, running.stage

        def uses_the_backend() -> None:
            another = TaskInput(Task(next(running.numbers), 0, 0, 1))
            for action in (
                partial(backend.start, 1),
                partial(backend.submit, worker, another),
                backend.poll,
            ):
                assert "fork" in str(_raised(FlowError, action))
            reuses_and_closes()

        def reuses_and_closes() -> None:
            assert not backend.can_reuse(stage, False), "a backend was reused in a fork"
            backend.close()

        _in_fork(uses_the_backend)
        gate.open()
        assert running.elements(task_input) == [1]
        if backend.park():
            _in_fork(reuses_and_closes)
            assert backend.can_reuse(stage, False)
            assert running.elements(running.submit(worker, 2, 3)) == [2]


def _in_fork(child: Callable[[], None]) -> None:
    """Run ``child`` in a fork of this process; raise if the fork fails or takes too long."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # this process has threads
        pid = os.fork()
    if not pid:
        status = 1
        try:
            child()
            status = 0
        except BaseException:
            os.write(2, f"in the fork: {traceback.format_exc()}".encode())
        finally:
            os._exit(status)
    deadline = time.monotonic() + PATIENCE
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError("a fork that uses the backend hangs")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 0, "a fork failed, see standard error"


# -- whole flows -----------------------------------------------------------------------------------


def _flows() -> dict[str, AnyFlow]:
    """Return flows with different task inputs: positions, elements of a stream, rows in memory."""
    return {
        "numbered": from_range(50).shuffle(seed=1).random_map(_drawn, seed=2),
        "batches of arrays": from_range(20).map(_large).batch(3),
        "filtered": from_range(50).map(_negative).filter(_is_odd),
        "a stream": from_iterable(range(50)).map(_negative).batch(4),
        "a stream, shuffled between two maps": (
            from_iterable(range(50)).map(_negative).shuffle(5, seed=3).map(_itself)
        ),
        "in memory": from_items([f"row {i}" for i in range(50)]).shuffle(seed=4).map(_itself),
        "two in memory": from_items(range(20)).zip(from_items(np.eye(20))).map(_itself),
        "nothing": from_range(0).map(_negative),
    }


def a_flow_yields_its_reference(trial: Trial) -> None:
    """A flow yields its elements in order, in any epoch, with one or several workers."""
    for n, (name, flow) in zip(cycle([1, 2, 3]), _flows().items(), strict=False):
        ahead = trial.over(flow, n)
        for epoch in (0, 2):
            got = list(ahead.epoch(epoch))
            np.testing.assert_equal(got, list(flow.epoch(epoch)), err_msg=name)


def an_error_is_raised_at_its_position(trial: Trial) -> None:
    """An error is raised after all elements before it, with its cause and the row."""
    run = iter(trial.over(from_range(50).map(partial(_fails_at, 20))))
    assert list(islice(run, 20)) == list(range(20))
    error = _raised(ElementError, partial(next, run))
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert (error.position, error.origin) == (20, "row 20 of from_range(50)")


def a_run_resumes_from_its_state(trial: Trial) -> None:
    """A run resumes from its state with other workers or without workers."""
    flow = from_range(50).shuffle(seed=1).map(_negative)
    with iter(trial.over(flow)) as run:
        first = list(islice(run, 20))
        state = run.state_dict()
    assert first + list(trial.over(flow, 3).resume(state)) == flow.collect()
    assert first + list(flow.resume(state)) == flow.collect()


def unordered_elements_are_delivered_once(trial: Trial) -> None:
    """Without order, each element is still delivered exactly once."""
    ahead = trial.over(from_range(50).map(_negative)).apply(Unordered)
    assert sorted(ahead.collect()) == sorted(-i for i in range(50))


def failed_elements_are_skipped(trial: Trial) -> None:
    """With ``on_error``, failed elements are skipped and reported, and the counts balance."""
    reported: list[str] = []
    flow = from_range(50).map(partial(_fails_at, 20))
    run = iter(trial.over(flow.prefetch(on_error=lambda error: reported.append(error.origin))))
    assert list(run) == [i for i in range(50) if i != 20]
    assert reported == ["row 20 of from_range(50)"]
    (stage,) = run.statistics().stages
    assert (stage.entered, stage.delivered, stage.skipped, stage.in_flight) == (50, 49, 1, 0)


def the_next_pass_uses_current_values(trial: Trial) -> None:
    """Workers may stay for the next pass, but not old values that functions refer to."""
    step = 1
    ahead = trial.over(from_range(20).map(lambda i: i + step))
    assert ahead.collect() == ahead.collect() == list(range(1, 21))
    step = 100
    assert ahead.collect() == list(range(100, 120))


def runs_have_separate_workers(trial: Trial) -> None:
    """Two concurrent runs over one flow, and a third, abandoned one, share no workers."""
    ahead = trial.over(from_range(200).map(_negative))
    with iter(ahead) as left:
        next(left)
        pairs = list(zip(ahead, ahead, strict=True))
    assert pairs == [(-i, -i) for i in range(200)]
    assert ahead.collect() == [-i for i in range(200)]


def messages_name_the_kind(trial: Trial) -> None:
    """Titles, plans, pictures, statistics and verdicts use the names of the kind."""
    kind = trial.kind
    flow = from_range(50).map(_negative)
    ahead = trial.over(flow)
    assert ahead.node.title == f"prefetch({kind.keyword}=2)"
    assert f"\nin 2 {kind.noun.many}: positions go there" in ahead.explain()
    assert f"\nin 1 {kind.noun.one}: " in trial.over(flow, 1).explain()
    assert f">2 {kind.noun.many}<" in picture(diagram_of(plan_of(ahead.node))).svg()
    with iter(ahead) as run:
        list(run)
        statistics = run.statistics()
    assert f" 2 {kind.short.many} " in str(statistics)
    assert statistics.stages[0].kind == kind
    assert pickle.loads(pickle.dumps(statistics)) == statistics
    busy = (WorkerStatistics(50, 9.9), WorkerStatistics(50, 9.9))
    stage = StageStatistics(("map(f)",), 10.0, 100, 100, kind=kind, workers=busy, waited=5.0)
    bottleneck = verdict(RunStatistics(100, 10.0, 4.9, (stage,)), cores=8)
    assert f"its 2 {kind.short.many} are busy" in bottleneck.finding
    assert bottleneck.advice.startswith(f"prefetch({kind.keyword}=4) would give")


def a_profile_times_its_operators(trial: Trial) -> None:
    """A profile times every operator that workers run."""
    run = Run(trial.over(from_range(50).map(_negative).map(_itself)).node, profile=True)
    list(run)
    (stage,) = run.statistics().stages
    calls = {cost.title: cost.calls for cost in stage.costs}
    assert calls == {"from_range(50)": 50, "map(_negative)": 50, "map(_itself)": 50}
    assert sum(worker.elements for worker in stage.workers) == 50


LAWS: tuple[Law, ...] = (
    start_adds_missing_workers,
    a_dismissed_worker_ends,
    a_task_yields_its_elements,
    rows_are_sent_to_workers,
    delivered_elements_stay_valid,
    a_function_that_fails_does_not_end_its_worker,
    results_have_the_positions_after_a_filter,
    poll_returns_without_events,
    wake_ends_the_wait_of_poll,
    operators_are_timed_if_asked,
    a_backend_with_an_unfinished_task_does_not_park,
    parked_workers_are_reused,
    parked_workers_refuse_another_stage,
    close_leaves_no_threads_or_processes,
    close_waits_for_no_function,
    an_unreferenced_backend_ends,
    a_fork_is_refused,
    a_flow_yields_its_reference,
    an_error_is_raised_at_its_position,
    a_run_resumes_from_its_state,
    unordered_elements_are_delivered_once,
    failed_elements_are_skipped,
    the_next_pass_uses_current_values,
    runs_have_separate_workers,
    messages_name_the_kind,
    a_profile_times_its_operators,
)
"""The laws for workers of every kind."""


# -- workers that die ------------------------------------------------------------------------------


def _dying(trial: Trial, row: int) -> AnyFlow:
    assert trial.die is not None
    return from_range(50).map(partial(_dies_at, row, trial.die))


def a_death_is_reported_once(trial: Trial) -> None:
    """A death is reported once, with its cause and the last task begun; ``held`` is unchanged."""
    with _running(trial, _dying(trial, 4), 1) as running:
        (worker,) = running.all_ready()
        task_inputs = [running.submit(worker, start, start + 3) for start in (0, 3, 6)]
        died = running.death_of(worker)
        assert died.how
        assert died.begun == task_inputs[1].task.number
        done = [event.result.number for event in running.events if isinstance(event, Done)]
        assert done in ([], [task_inputs[0].task.number])
        assert list(worker.held) == [task_input.task.number for task_input in task_inputs]
        worker.held.clear()
        running.backend.replace(worker)
        (another,) = running.all_ready()
        assert running.elements(running.submit(another, 6, 9)) == [6, 7, 8]
        assert len(running.deaths()) == 1


def a_dead_worker_is_replaced(trial: Trial) -> None:
    """A new worker without tasks replaces a dead one; the others keep their tasks."""
    assert trial.die is not None
    with _gate() as gate:
        flow = gate.flow.map(partial(_dies_at, 0, trial.die))
        with _running(trial, flow, 3) as running:
            worker, *others = running.all_ready()
            held = [running.submit(other, i, i + 1) for i, other in enumerate(others, 1)]
            running.submit(worker, 0, 1)
            running.death_of(worker)
            worker.held.clear()
            running.backend.replace(worker)
            workers = running.all_ready()
            assert len(workers) == 3
            assert worker not in workers
            (another,) = (w for w in workers if w not in others)
            assert not another.held
            gate.open()
            assert [running.elements(task_input) for task_input in held] == [[1], [2]]
            assert running.elements(running.submit(another, 3, 5)) == [3, 4]


def a_worker_over_its_timeout_is_ended(trial: Trial) -> None:
    """A worker over its timeout is killed; a worker in time, or without a task, is not."""
    with _gate() as gate, _running(trial, gate.flow, 1, timeout=PATIENCE) as running:
        (worker,) = running.all_ready()
        task_input = running.submit(worker, 1, 2)
        running.events += running.backend.poll()
        gate.open()
        assert running.elements(task_input) == [1]
        assert not running.deaths()
    with _gate() as gate, _running(trial, gate.flow, 2, timeout=1.0) as running:
        worker, other = running.all_ready()
        task_input = running.submit(worker, 1, 2)
        died = running.death_of(worker)
        assert died.how
        assert died.begun == task_input.task.number
        worker.held.clear()
        running.backend.replace(worker)
        assert other in running.all_ready()


def a_death_changes_no_element(trial: Trial) -> None:
    """Tasks of a dead worker are repeated, and the statistics count them."""
    assert trial.die is not None
    with tempfile.TemporaryDirectory() as folder:
        flow = from_range(50).map(partial(_dies_once, 20, trial.die, folder))
        run = iter(trial.over(flow))
        assert list(run) == list(range(50))
        (stage,) = run.statistics().stages
        assert stage.deaths == 1
        assert stage.retried >= 1
        assert (stage.entered, stage.delivered, stage.in_flight) == (50, 50, 0)


def an_element_that_kills_workers_is_named(trial: Trial) -> None:
    """An element that kills workers is an error after the elements before it, or is skipped."""
    run = iter(trial.over(_dying(trial, 20), deaths=2))
    assert list(islice(run, 20)) == list(range(20))
    error = _raised(WorkerDied, partial(next, run))
    assert "at work on element 20 of map(" in str(error)
    left_out = trial.over(_dying(trial, 20).prefetch(on_error="skip"), deaths=2)
    assert left_out.collect() == [i for i in range(50) if i != 20]


LAWS_OF_MORTALS: tuple[Law, ...] = (
    a_death_is_reported_once,
    a_dead_worker_is_replaced,
    a_worker_over_its_timeout_is_ended,
    a_death_changes_no_element,
    an_element_that_kills_workers_is_named,
)
"""The additional laws for kinds of worker that can die."""
