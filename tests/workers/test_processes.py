"""Worker processes: their results, errors and deaths; they leave nothing behind."""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import flowdsl as fl
from flowdsl import ElementError, Flow, FlowError, NotShippable, WorkerDied
from flowdsl.elements.specs import Spec, ValueSpec
from flowdsl.nodes import IndexedSource
from flowdsl.plan.lower import plan_of
from flowdsl.plan.plan import Stage
from flowdsl.runtime.run import Run
from flowdsl.workers.processes import Process, Processes, processes
from flowdsl.workers.slabs import Window
from flowdsl.workers.worker import Setup
from tests.children import is_worker, workers_of
from tests.paces import paced
from tests.waiting import eventually, waits


def slabs_mapped() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:flowdsl")


def big(i: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.full((64, 64), i, np.float64)


def test_elements_come_from_other_processes() -> None:
    pids = set(fl.from_range(2000).map(lambda _: os.getpid()).prefetch(procs=2).collect())
    assert os.getpid() not in pids
    assert len(pids) <= 2


def test_workers_stay_for_the_next_pass_and_end_with_the_flow() -> None:
    flow: Any = fl.from_range(100).shuffle().map(lambda i: (i, os.getpid())).prefetch(procs=2)
    passes = [list(flow.epoch(k)) for k in range(3)]
    assert [[i for i, _ in one] for one in passes] == [
        list(fl.from_range(100).shuffle().epoch(k)) for k in range(3)
    ]
    assert set(workers_of()) >= {pid for one in passes for _, pid in one}
    assert len(workers_of()) == 2
    del flow
    gc.collect()
    assert workers_of() == []


@pytest.mark.parametrize("leave", ["close", "with", "del", "error"])
def test_workers_end_with_the_run(leave: str) -> None:
    run: Run[int] | None = iter(fl.from_range(10**6).map(lambda i: i).prefetch(procs=2))
    assert run is not None
    next(run)
    if leave == "close":
        run.close()
        run.close()
    elif leave == "with":
        with run:
            next(run)
    elif leave == "error":
        with pytest.raises(ZeroDivisionError), run:
            raise ZeroDivisionError
    else:
        run = None
        gc.collect()
    assert workers_of() == []


def test_nothing_starts_before_the_first_element() -> None:
    run = iter(fl.from_range(5).map(lambda i: i).prefetch(procs=2))
    assert workers_of() == []
    run.close()


def test_busy_workers_end_with_the_run() -> None:
    def slow(i: int) -> int:
        if i:
            time.sleep(600)
        return i

    run = iter(fl.from_range(10).map(slow).prefetch(procs=2))
    assert next(run) == 0
    run.close()
    assert workers_of() == []


def test_runs_leave_no_descriptor_open() -> None:
    flow = fl.from_range(40).map(big).batch(4).prefetch(procs=2)
    flow.collect()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    closed: list[Run[Any]] = []
    for _ in range(5):
        flow.collect()
        with iter(flow) as run:
            next(run)
        closed.append(run)  # a closed run holds nothing, though it is held itself
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_more_results_are_held_than_files_may_be_open() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, limits[1]))
    try:
        held = fl.from_range(200).map(big).prefetch(procs=1).collect()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert [x[-1, -1] for x in held] == list(range(200))


def test_a_result_that_cannot_be_mapped_is_an_error_with_the_reason_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def attach(self: Window, number: int, fd: int) -> None:
        os.close(fd)
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(Window, "attach", attach)
    with pytest.raises(FlowError, match=r"cannot map the memory .* Cannot allocate memory"):
        fl.from_range(3).map(big).prefetch(procs=1).collect()


def test_two_concurrent_runs_of_one_flow() -> None:
    flow = fl.from_range(50).shuffle().map(lambda i: i).prefetch(procs=1)
    pairs = list(zip(flow, flow, strict=True))
    assert all(a == b for a, b in pairs)
    assert len(pairs) == 50


def test_a_run_in_a_thread() -> None:
    got: list[int] = []
    flow = fl.from_range(50).map(lambda i: i * i).prefetch(procs=2)
    thread = threading.Thread(target=lambda: got.extend(flow))
    thread.start()
    thread.join()
    assert got == [i * i for i in range(50)]


def test_dismissed_workers_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a new interpreter, which is this process's own child, and would else be a zombie."""
    monkeypatch.setattr("flowdsl.workers.launching.fork_server", lambda: None)
    stage = plan_of(fl.from_range(9).map(abs).prefetch(procs=2).node).root
    assert isinstance(stage, Stage)
    backend = processes(stage)
    backend.start(2)
    goes, stays = backend.workers
    assert isinstance(goes, Process)
    backend.dismiss(goes)
    assert backend.workers == [stays]
    backend.close()
    with pytest.raises(ChildProcessError):
        os.waitpid(goes.process.pid, 0)


class TestDeath:
    @pytest.mark.parametrize(
        ("end", "how"),
        [
            (lambda: os._exit(0), "exit status 0"),
            (lambda: os._exit(3), "exit status 3"),
            (lambda: os.kill(os.getpid(), signal.SIGKILL), "signal SIGKILL"),
            (lambda: os.kill(os.getpid(), signal.SIGSEGV), "signal SIGSEGV"),
        ],
    )
    def test_is_an_error_with_the_exit_status(self, end: Callable[[], None], how: str) -> None:
        def die(i: int) -> int:
            if i == 7:
                end()
            return i

        with pytest.raises(WorkerDied, match=how) as caught:
            fl.from_range(50).map(die).prefetch(procs=2).collect()
        assert "of map(" in str(caught.value)
        assert "from_range(50)" in str(caught.value)
        assert workers_of() == []

    def test_is_noticed_although_a_child_program_is_alive(self) -> None:
        def leave_a_child(i: int) -> int:
            if i == 3:
                subprocess.Popen(["sleep", "30"])
                os.kill(os.getpid(), signal.SIGKILL)
            return i

        began = time.monotonic()
        with pytest.raises(WorkerDied, match="SIGKILL"):
            fl.from_range(9).map(leave_a_child).prefetch(procs=2).collect()
        assert time.monotonic() - began < 20

    def test_before_the_first_task_is_an_error(self) -> None:
        class Poison:
            def __reduce__(self) -> tuple[Any, ...]:
                return os._exit, (4,)

        poison = Poison()
        with pytest.raises(WorkerDied, match="exit status 4"):
            fl.from_range(5).map(lambda i: (i, poison)).prefetch(procs=2).collect()
        assert workers_of() == []

    def test_of_the_parent_ends_the_workers(self) -> None:
        script = """
            import flowdsl as fl, time
            run = iter(fl.from_range(10**9).map(lambda i: time.sleep(600) if i > 3 else i)
                       .prefetch(procs=2))
            print(next(run), flush=True)
            input()
        """
        parent = _python(script)
        assert parent.stdout is not None
        assert parent.stdout.readline().strip() == "0"
        workers = workers_of(parent.pid)
        assert len(workers) == 2
        parent.kill()
        parent.communicate()
        assert eventually(lambda: not any(map(is_worker, workers)))


def test_ctrl_c_interrupts_and_leaves_no_processes() -> None:
    script = """
        import flowdsl as fl, time
        from tests.children import workers_of
        run = iter(fl.from_range(10).map(lambda i: time.sleep(600) if i > 3 else i)
                   .prefetch(procs=2))
        try:
            print(next(run), flush=True)
            list(run)
        except KeyboardInterrupt:
            print("interrupted", *workers_of())
    """
    process = _python(script, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "0"
    assert eventually(lambda: waits(process.pid))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers as well
    out, _ = process.communicate(timeout=60)
    assert out.split() == ["interrupted"]
    assert process.returncode == 0


def _python(script: str, **kwargs: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **kwargs,
    )


class TestErrors:
    def test_have_position_cause_traceback_and_row(self) -> None:
        def reciprocal(i: int) -> float:
            return 1 / (i - 40)

        flow = fl.from_range(100).shuffle(seed=5).map(reciprocal).prefetch(procs=2)
        with pytest.raises(ElementError) as caught:
            flow.collect()
        error = caught.value
        assert isinstance(error.__cause__, ZeroDivisionError)
        assert "return 1 / (i - 40)" in "".join(error.__cause__.__notes__)
        assert error.operator.startswith("map(")
        assert error.origin == "row 40 of from_range(100)"
        order = fl.from_range(100).shuffle(seed=5).collect()
        assert order[error.position] == 40
        assert workers_of() == []

    def test_of_an_unpicklable_type_are_replaced(self) -> None:
        class Odd(Exception):
            def __init__(self, a: int, b: int) -> None:
                super().__init__(f"odd {a}")
                self.lock = threading.Lock()

        def fail(i: int) -> int:
            raise Odd(i, i)

        with pytest.raises(ElementError) as caught:
            fl.from_range(3).map(fail).prefetch(procs=1).collect()
        assert "odd 0" in str(caught.value.__cause__)

    def test_of_a_stream_come_after_the_elements_before(self) -> None:
        def stream() -> Any:
            yield from range(10)
            raise OSError("disk on fire")

        run = iter(fl.from_iterable(stream).map(lambda i: i).prefetch(procs=2))
        assert list(islice(run, 10)) == list(range(10))
        with pytest.raises(ElementError, match="from_iterable") as caught:
            next(run)
        assert isinstance(caught.value.__cause__, OSError)

    def test_a_lock_is_refused_before_a_worker_starts(self) -> None:
        lock = threading.Lock()
        flow = fl.from_range(3).map(lambda i: (i, lock.locked())).prefetch(procs=1)
        with pytest.raises(NotShippable, match=r"map\(<lambda>\): func .*lock"):
            flow.collect()
        assert workers_of() == []

    def test_a_lock_below_a_second_pool_is_refused_before_a_worker_starts(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lock = threading.Lock()
        flow = fl.from_range(9).map(lambda i: (i, lock.locked())).shuffle(3).map(str)
        started: list[Setup] = []
        monkeypatch.setattr(Processes, "spawn", staticmethod(started.append))
        with pytest.raises(NotShippable, match="lock"):
            flow.prefetch(procs=2).collect()
        assert started == []

    def test_an_unpicklable_element_is_an_error(self) -> None:
        def sometimes(i: int) -> Any:
            return threading.Lock() if i == 7 else i

        run = iter(fl.from_range(20).map(sometimes).prefetch(procs=1))
        assert list(islice(run, 7)) == list(range(7))
        with pytest.raises(ElementError, match=r"element 7 \(row 7") as caught:
            next(run)
        assert "pickle" in str(caught.value.__cause__)

    def test_of_a_class_of_the_script_keep_their_class(self) -> None:
        script = """
            import flowdsl as fl

            class Mine(Exception):
                pass

            def fail(i):
                if i == 5:
                    raise Mine("no five")
                return i

            try:
                fl.from_range(9).map(fail).prefetch(procs=2).collect()
            except fl.ElementError as error:
                print(type(error.__cause__) is Mine, error.position)
        """
        out, _ = _python(script).communicate(timeout=60)
        assert out.split() == ["True", "5"]

    def test_are_not_mistaken_for_a_complete_run(self) -> None:
        run = iter(fl.from_range(9).map(lambda i: 1 // (i - 2)).prefetch(procs=1))
        with pytest.raises(ElementError):
            list(run)
        with pytest.raises(FlowError, match="before the end of its pass"):
            next(run)

    def test_lack_of_memory_in_a_worker_is_an_error(self) -> None:
        def huge(i: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            return np.zeros(1 << 22, np.uint8)

        with pytest.raises(ElementError, match=r"element 0 .* no memory for the element"):
            fl.from_range(2).map(huge).prefetch(procs=1).collect()

    def test_the_elements_before_one_without_memory_are_delivered(self) -> None:
        def grow(i: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
            return np.zeros(1 << 14 if i < 40 else 1 << 22, np.uint8)

        with paced([16]):
            run = iter(fl.from_range(60).map(grow).prefetch(procs=1))
            assert [len(x) for x in islice(run, 40)] == [1 << 14] * 40
            with pytest.raises(ElementError, match=r"element 40 .* File too large: ulimit -f"):
                next(run)


class TestPrograms:
    """Programs whose own state is unusual."""

    @pytest.mark.parametrize(
        "closed", [*(pytest.param(x, marks=pytest.mark.long) for x in ((0,), (1, 2))), (0, 1, 2)]
    )
    def test_standard_descriptors_are_closed(self, closed: tuple[int, ...]) -> None:
        script = f"""
            import os, sys
            import flowdsl as fl

            def say(i):
                os.write(1, b"printed")
                return i

            out = os.dup(1)
            for standard in {closed}:
                os.close(standard)
            made = fl.from_range(4).map(say).prefetch(procs=1).collect()
            os.write(out, repr(made).encode())
        """
        out, _ = _python(script).communicate(timeout=60)
        assert out.replace("printed", "") == "[0, 1, 2, 3]"

    def test_there_is_no_shared_memory(self) -> None:
        script = """
            import resource
            import flowdsl as fl
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
            try:
                fl.from_range(3).map(abs).prefetch(procs=1).collect()
            except fl.FlowError as error:
                print(type(error).__name__, error)
        """
        out, _ = _python(script).communicate(timeout=60)
        assert out.startswith(
            "FlowError prefetch: worker processes cannot share memory: File too large: ulimit -f"
        )

    def test_ends_of_children_are_ignored(self) -> None:
        script = """
            import os, signal
            import flowdsl as fl
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            try:
                fl.from_range(1).map(lambda i: os._exit(7)).prefetch(procs=1).collect()
            except fl.WorkerDied as error:
                print("exit status 7" in str(error))
        """
        out, _ = _python(script).communicate(timeout=60)
        assert out.split() == ["True"]

    def test_the_folder_is_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing() -> str:
            raise FileNotFoundError

        flow = fl.from_range(3).map(abs).prefetch(procs=1)
        monkeypatch.setattr(os, "getcwd", missing)
        with pytest.raises(FlowError, match=r"the working folder .* has been removed"):
            flow.collect()

    @pytest.mark.parametrize("source", ["fl.from_range(10**6)", "fl.from_iterable(count())"])
    def test_a_daemon_thread_that_iterates_ends_silently_with_the_program(
        self, source: str
    ) -> None:
        script = f"""
            import sys, threading, time
            from itertools import count
            import flowdsl as fl

            begun = threading.Event()

            def slowly(i):
                time.sleep(0.01)
                return i

            def iterate():
                for _ in {source}.map(slowly).prefetch(procs=2):
                    begun.set()

            sys.stderr = sys.stdout
            threading.Thread(target=iterate, daemon=True).start()
            begun.wait()
            print("the end")
        """
        out, _ = _python(script).communicate(timeout=60)
        assert out.split() == ["the", "end"]


class TestViews:
    def test_dropping_a_view_in_a_fork_frees_nothing(self) -> None:
        run = iter(fl.from_range(200).map(big).prefetch(procs=1))
        held = next(run)
        child = os.fork()
        if not child:
            del held
            os._exit(0)
        os.waitpid(child, 0)
        assert len(list(islice(run, 100))) == 100
        assert (held == 0).all()
        run.close()

    def test_are_not_overwritten_while_they_are_held(self) -> None:
        flow = fl.from_range(400).map(big).batch(2).prefetch(procs=2)
        kept = [(i, batch) for i, batch in enumerate(flow) if i % 3 == 0]
        for i, batch in kept:
            assert (batch == np.array([2 * i, 2 * i + 1])[:, None, None]).all()

    def test_a_list_of_all_elements_is_correct(self) -> None:
        batches = fl.from_range(100).map(big).batch(3).prefetch(procs=2).collect()
        assert [float(b[0, 0, 0]) for b in batches] == [3.0 * i for i in range(len(batches))]

    def test_outlive_the_run_and_are_freed_after(self) -> None:
        gc.collect()
        before = slabs_mapped()
        batches = fl.from_range(40).map(big).batch(8).prefetch(procs=1).collect()
        assert slabs_mapped() > before
        part = batches[3][1, 2]
        del batches
        gc.collect()
        assert (part == 25).all()
        assert slabs_mapped() == before + 1
        del part
        gc.collect()
        assert slabs_mapped() == before

    def test_are_aligned_and_writable(self) -> None:
        for batch in fl.from_range(40).map(big).batch(8).prefetch(procs=1):
            assert batch.ctypes.data % 64 == 0
            batch += 1

    def test_slabs_are_reused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        attached = list[int]()
        attach = Window.attach

        def noted(window: Window, number: int, fd: int) -> None:
            attached.append(number)
            attach(window, number, fd)

        monkeypatch.setattr(Window, "attach", noted)
        batches = fl.from_range(16_000).map(big).batch(8).prefetch(procs=1, memory=8 << 20)
        assert sum(1 for _ in batches) == 2_000
        assert 0 < len(attached) < 200  # 2,000 if none were

    def test_dev_shm_is_not_used(self) -> None:
        before = set(os.listdir("/dev/shm"))
        with iter(fl.from_range(400).map(big).batch(8).prefetch(procs=2)) as run:
            next(run)
            new = set(os.listdir("/dev/shm")) - before  # by whatever runs on this machine
            ours = [Path(f"/proc/{pid}/maps").read_text() for pid in (os.getpid(), *workers_of())]
            assert not [name for name in new if f"/dev/shm/{name}" in "".join(ours)]


def test_a_consumer_that_stops_reading_stops_the_workers(tmp_path: Path) -> None:
    def note(i: int) -> int:
        with open(tmp_path / "made", "a") as file:
            file.write("x")
        time.sleep(0.005)
        return i

    run = iter(fl.from_range(10**6).map(note).prefetch(procs=2))
    next(run)
    made = tmp_path / "made"

    def at_rest() -> bool:
        before = made.stat().st_size
        time.sleep(0.25)
        return made.stat().st_size == before

    assert eventually(at_rest)
    run.close()


def test_elements_of_script_classes_keep_their_class() -> None:
    script = """
        import flowdsl as fl, numpy as np, attrs
        from typing import NamedTuple

        class Pair(NamedTuple):
            a: np.int64
            b: np.ndarray

        @attrs.frozen
        class RowBatch:
            a: np.ndarray
            b: np.ndarray

        @attrs.frozen
        class Row(fl.Record[RowBatch]):
            a: np.int64
            b: np.ndarray

        rows = fl.from_range(20).map(lambda i: Row(np.int64(i), np.full(3000, i)))
        batches = rows.batch(4).prefetch(procs=2).collect()
        assert all(type(b) is RowBatch for b in batches), batches
        items = [Pair(np.int64(i), np.zeros(3000)) for i in range(3)]
        sent = fl.from_items(items).map(lambda p: p).prefetch(procs=1)
        assert all(type(p) is Pair for p in sent)
        pairs = fl.from_range(3).map(lambda i: Pair(np.int64(i), np.zeros(2))).prefetch(procs=1)
        assert all(type(p) is Pair for p in pairs)

        def local():
            class Local(NamedTuple):
                a: int
            return Local
        Local = local()
        assert all(type(x) is Local for x in fl.from_range(3).map(Local).prefetch(procs=1))
        print("ok")
    """
    out, _ = _python(script).communicate(timeout=60)
    assert out.strip() == "ok"


def test_workers_do_not_import_the_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
            import sys
            print("main runs", flush=True)
            import flowdsl as fl

            def loaded(i):
                return "sqlite3" in sys.modules

            import sqlite3
            print(fl.from_range(3).map(loaded).prefetch(procs=2).collect())
        """)
    )
    out = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert out == "main runs\n[False, False, False]\n"


def test_a_function_in_a_worker_may_build_a_flow(tmp_path: Path) -> None:
    script = tmp_path / "nested.py"
    script.write_text(
        "from flowdsl import from_range\n"
        "def total(i): return sum(from_range(i).map(abs))\n"
        "print(from_range(4).map(total).prefetch(procs=1).collect())\n"
    )
    out = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert out.stdout == "[0, 0, 1, 3]\n", out.stderr


def test_spawning_by_hand_needs_no_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(
        "import flowdsl as fl\n"
        "print(fl.from_range(4).map(lambda i: i + 1).batch(2).prefetch(procs=2).collect())\n"
    )
    out = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert out.returncode == 0, out.stderr
    assert out.stdout.startswith("[array([1, 2]), array([3, 4])]")


@attrs.frozen
class Gone(IndexedSource[int]):
    """A source whose files are not there when it is opened."""

    @property
    def title(self) -> str:
        return "gone()"

    @property
    def length(self) -> int:
        return 5

    def spec(self, probe: bool) -> Spec:
        return ValueSpec(int)

    def open(self) -> Callable[[int], int]:
        raise OSError("no such share")


@pytest.mark.parametrize("workers", [{}, {"procs": 2}, {"threads": 2}], ids=str)
def test_a_source_that_cannot_be_opened_raises_its_own_error(workers: dict[str, Any]) -> None:
    flow: Flow[int, Any] = Flow(Gone())
    run = iter(flow.map(abs).prefetch(**workers))
    with pytest.raises(OSError, match="no such share"):
        next(run)
    assert all(stage.deaths == 0 for stage in run.statistics().stages)


def test_operator_costs_in_dead_workers_are_counted() -> None:
    def die(i: int) -> int:
        if i == 30:
            os._exit(1)
        return i

    flow = fl.from_range(40).map(abs).map(die).prefetch(procs=1, deaths=1, on_error="skip")
    run = Run(flow.node, profile=True)
    assert len(list(run)) == 39
    calls = {cost.title: cost.calls for cost in run.statistics().stages[-1].costs}
    assert calls["map(abs)"] >= 39
