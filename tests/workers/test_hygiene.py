"""Unusual ends and contexts of runs: they work or raise an error, and never hang."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl import FlowError
from flowdsl.workers import processes
from tests.children import is_worker, workers_of
from tests.paces import paced
from tests.waiting import eventually, soonest, state_of, waits

_started: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """End the processes that a failing test has started."""
    yield
    while _started:
        process = _started.pop()
        with process:  # closes its pipes, and does not read what a worker may still hold open
            process.kill()


def start(script: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _started.append(process)
    return process


def says(script: str, seconds: float = 60, quiet: bool = True) -> str:
    """Return the output of a script, which must end in time and without errors."""
    process = start(script)
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, err
    assert not (quiet and err), err
    return out.strip()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


BUSY = {
    "in C code": "sum(range(10**12))",
    "asleep": "time.sleep(600)",
    "in a loop": "[None for _ in iter(int, 1)]",
}
"""A function that takes longer than a test may."""


class TestKilledConsumer:
    def test_takes_all_processes_along(self) -> None:
        """With views, waiting results, busy workers and an idle iterator, nothing is left."""
        before = set(os.listdir("/dev/shm"))
        assert soonest(self._seconds_to_the_end_of_all, 1) < 1
        # a slab has no name: nobody is left who could hold one
        assert not [name for name in set(os.listdir("/dev/shm")) - before if "flowdsl" in name]

    def _seconds_to_the_end_of_all(self) -> float:
        parent = start("""
            import flowdsl as fl, numpy as np, time
            big = lambda i: np.full(100_000, i)
            rested = fl.from_range(20).map(big).prefetch(procs=1)
            kept = list(rested)
            run = iter(fl.from_range(10**6).map(big).prefetch(procs=2))
            kept += [next(run) for _ in range(20)]
            busy = iter(fl.from_range(10).map(lambda i: time.sleep(600 * i)).prefetch(procs=2))
            next(busy)
            print("ready", flush=True)
            input()
        """)
        assert first_line(parent) == "ready"
        workers = workers_of(parent.pid)
        assert len(workers) == 5
        os.kill(parent.pid, signal.SIGKILL)
        killed = time.monotonic()
        assert eventually(lambda: not any(map(is_worker, workers)))
        seconds = time.monotonic() - killed
        parent.communicate()
        return seconds

    def test_ends_stopped_workers(self) -> None:
        parent = start("""
            import flowdsl as fl, time
            run = iter(fl.from_range(9).map(lambda i: time.sleep(600 * i)).prefetch(procs=2))
            next(run)
            print("ready", flush=True)
            input()
        """)
        assert first_line(parent) == "ready"
        workers = workers_of(parent.pid)
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        assert eventually(lambda: all(state_of(pid) == "T" for pid in workers))
        parent.kill()
        parent.wait(timeout=60)
        # A stopped process runs nothing: it leaves when it goes on. The system may have hung up on
        # it already, as it does with what is stopped in a group that nobody leads any more.
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        assert eventually(lambda: not any(map(is_worker, workers)))


def interrupted(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Python itself drops an interrupt within a callback of an import, and reports it."""
    for _ in range(6):
        os.killpg(process.pid, signal.SIGINT)
        try:
            return process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("no interrupt ends it")


class TestInterrupts:
    @pytest.mark.parametrize("busy", BUSY)
    def test_wait_for_no_function(self, busy: str) -> None:
        process = start(f"""
            import flowdsl as fl, time
            from tests.children import workers_of
            def work(i):
                if i:
                    {BUSY[busy]}
                return i
            run = iter(fl.from_range(1000).map(work).prefetch(procs=3))
            next(run)
            print("ready", flush=True)
            try:
                list(run)
            except KeyboardInterrupt:
                print("left", workers_of(), flush=True)
        """)
        assert first_line(process) == "ready"
        assert eventually(lambda: waits(process.pid))  # in the list
        os.killpg(process.pid, signal.SIGINT)
        assert first_line(process) == "left []"
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "", "")

    def test_wait_half_a_second_for_all_workers_together(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = iter(fl.from_range(9).map(lambda i: time.sleep(600 * i)).prefetch(procs=4))
        next(run)
        backend: Any = run._execution.pools[0].backend
        kind: Any = type(backend.workers[0].process)
        now, wait = [0.0], kind.wait

        def waited(child: Any, timeout: float | None = None) -> Any:
            if timeout is None:
                return wait(child)
            now[0] += timeout
            raise subprocess.TimeoutExpired("a worker", timeout)

        monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: now[0]))
        monkeypatch.setattr(kind, "wait", waited)
        run.close()
        assert now == [0.5]
        assert workers_of() == []

    def test_work_while_workers_start(self) -> None:
        process = start("""
            import flowdsl as fl
            # imports what is needed: Python turns an interrupt in some imports into other errors
            list(fl.from_range(9).map(abs).prefetch(procs=1))
            try:
                print("ready", flush=True)
                for _ in fl.from_range(10**9).map(abs).prefetch(procs=4): pass
            except KeyboardInterrupt:
                print("interrupted")
        """)
        assert first_line(process) == "ready"
        time.sleep(0.05)
        out, err = interrupted(process)
        assert (process.returncode, out.strip(), err) == (0, "interrupted", "")

    def test_work_repeatedly(self) -> None:
        process = start("""
            import flowdsl as fl, time
            run = iter(fl.from_range(9).map(lambda i: time.sleep(600 * i)).prefetch(procs=2))
            next(run)
            print("ready", flush=True)
            list(run)
        """)
        assert first_line(process) == "ready"
        workers = workers_of(process.pid)
        for _ in range(5):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.02)
        process.communicate(timeout=60)
        assert process.returncode in (1, -signal.SIGINT)
        assert eventually(lambda: not any(map(is_worker, workers)))


class TestAbandonedRuns:
    def test_end_with_the_interpreter(self) -> None:
        out = says("""
            import flowdsl as fl, time
            runs = [
                iter(fl.from_range(10**6).map(lambda i: i).prefetch(procs=2)),
                iter(fl.from_range(9).map(lambda i: time.sleep(600 * i)).prefetch(procs=1)),
                iter(fl.from_range(9).map(lambda i: time.sleep(2 * i)).prefetch(threads=1)),
            ]
            rested = fl.from_range(9).map(abs).prefetch(procs=1)
            print(*[next(run) for run in runs], len(list(rested)))
        """)
        assert out == "0 None None 9"

    def test_end_with_an_exit_from_a_function(self) -> None:
        out = says("""
            import flowdsl as fl, sys
            for i in fl.from_range(10**6).map(lambda i: i).prefetch(procs=2):
                if i == 5:
                    print("leaving")
                    sys.exit(0)
        """)
        assert out == "leaving"

    def test_many_leave_nothing_behind(self) -> None:
        flow = fl.from_range(10**6).map(lambda i: np.full(5000, i)).prefetch(procs=1)
        next(iter(flow))  # the fork server is there to stay
        gc.collect()
        before = len(os.listdir("/proc/self/fd")), len(workers_of())
        for _ in range(4):
            next(iter(flow))
        gc.collect()
        after = len(os.listdir("/proc/self/fd")), len(workers_of())
        assert after <= before

    def test_in_a_reference_cycle_are_collected(self) -> None:
        flow: Any = fl.from_range(100).map(lambda i: i).prefetch(procs=1)
        run = iter(flow)
        cycle: list[Any] = [run, flow]
        cycle.append(cycle)
        next(run)
        pids = workers_of()
        del flow, run, cycle
        gc.collect()
        assert not set(pids) & set(workers_of())


class TestNestedRuns:
    def test_in_a_function_in_a_worker_work(self) -> None:
        def inner(i: int) -> list[int]:
            return fl.from_range(3).map(lambda k: 10 * i + k).prefetch(procs=1).collect()

        flow = fl.from_range(4).map(inner).prefetch(procs=2)
        assert flow.collect() == [[10 * i + k for k in range(3)] for i in range(4)]

    def test_end_with_their_killed_worker(self) -> None:
        """The workers of a worker end with it."""
        pids: list[int] = []

        def inner(i: int) -> int:
            run = iter(fl.from_range(10**6).map(lambda k: os.getpid()).prefetch(procs=1))
            pid = next(run)
            if i:
                time.sleep(600)
            return pid

        run = iter(fl.from_range(2).map(inner).prefetch(procs=1))
        pids.append(next(run))
        assert eventually(lambda: bool(grandchildren()))
        grown = grandchildren()
        run.close()
        assert eventually(lambda: not any(map(is_worker, [*pids, *grown])))

    def test_over_another_flow_work(self) -> None:
        flow = fl.from_range(60).map(abs).prefetch(procs=2).map(str).shuffle(5).map(len)
        assert flow.prefetch(procs=2).prefetch(procs=1).collect() == flow.collect()

    def test_in_a_thread_of_another_run_work(self) -> None:
        def inner(i: int) -> int:
            return sum(fl.from_range(5).map(lambda k: k * i).prefetch(procs=1))

        flow = fl.from_range(3).map(inner).prefetch(threads=3)
        assert flow.collect() == [0, 10, 20]


def grandchildren() -> list[int]:
    return [pid for child in workers_of() for pid in workers_of(child)]


class TestConcurrentRuns:
    def test_two_iterators_of_one_flow(self) -> None:
        flow = fl.from_range(60).shuffle().map(lambda i: i).prefetch(procs=2)
        expected = fl.from_range(60).shuffle().collect()
        list(flow)  # its workers are there for one of them
        first, second = iter(flow), iter(flow)
        got = [(next(first), next(second)) for _ in range(30)]
        assert [*(a for a, _ in got), *first] == expected
        assert [*(b for _, b in got), *second] == expected
        assert list(flow) == expected
        assert len(workers_of()) >= 2

    def test_two_threads_of_one_flow(self) -> None:
        flow = fl.from_range(300).map(lambda i: i).prefetch(procs=1)
        list(flow)
        passes: list[list[int]] = []
        threads = [
            threading.Thread(target=lambda: passes.extend(list(run) for run in flow.epochs(2)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert passes == [list(range(300))] * 6

    def test_an_iterator_handed_to_another_thread(self) -> None:
        run = iter(fl.from_range(200).map(lambda i: i).prefetch(procs=2))
        got = list(islice(run, 20))
        thread = threading.Thread(target=lambda: got.extend(islice(run, 100)))
        thread.start()
        thread.join()
        assert [*got, *run] == list(range(200))

    def test_workers_of_an_ended_thread_are_reused(self) -> None:
        """Workers must not end with the thread that started them."""
        flow = fl.from_range(50).map(lambda i: (i, os.getpid())).prefetch(procs=1)
        got: list[list[Any]] = []
        for _ in range(2):
            thread = threading.Thread(target=lambda: got.append(list(flow)))
            thread.start()
            thread.join()
        got.append(list(flow))
        assert [[i for i, _ in one] for one in got] == [list(range(50))] * 3
        assert len({pid for one in got for _, pid in one}) == 1


class TestFork:
    def test_can_iterate_the_flow_but_not_the_run(self) -> None:
        flow = fl.from_range(50).map(lambda i: i * i).prefetch(procs=2)
        with paced([20]):  # so that some of what comes next is here already
            run = iter(flow)
            got = [next(run)]

        def child() -> None:
            with pytest.raises(FlowError, match="belongs to the process that began it"):
                next(run)
            assert flow.collect() == [i * i for i in range(50)]
            run.close()

        in_fork(child)
        assert [*got, *run] == [i * i for i in range(50)]

    def test_cannot_use_parked_workers(self) -> None:
        flow = fl.from_range(50).map(lambda i: (i, os.getpid())).prefetch(procs=1)
        before = {pid for _, pid in flow}

        def child() -> None:
            assert not {pid for _, pid in flow} & before

        in_fork(child)
        assert {pid for _, pid in flow} == before

    @pytest.mark.long
    def test_works_after_tensorflow_is_imported(self) -> None:
        out = says("""
            import os
            os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
            import multiprocessing, warnings
            warnings.simplefilter("ignore")
            import tensorflow as tf
            import flowdsl as fl

            print(int(tf.reduce_sum(tf.range(5))), flush=True)
            flow = fl.from_range(20).map(lambda i: i + 1).batch(4).prefetch(procs=2)
            run = iter(flow)
            next(run)

            def child():
                try:
                    next(run)
                except fl.FlowError as error:
                    print("is a fork" in str(error), flush=True)
                print(len(list(flow)), flush=True)

            if not (pid := os.fork()):
                child()
                os._exit(0)
            os.waitpid(pid, 0)
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            process.join()
            print(1 + len(list(run)), int(tf.reduce_sum(tf.range(5))))
        """, seconds=200, quiet=False)  # fmt: skip
        assert out.split() == ["10", "True", "5", "True", "5", "5", "10"]


def in_fork(child: Callable[[], None]) -> None:
    """Run a function in a fork of this process; raise if the fork fails or takes too long."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            child()
            status = 0
        except BaseException as error:
            os.write(2, f"in the fork: {error!r}\n".encode())
        finally:
            os._exit(status)
    ended: list[int] = []

    def waited() -> bool:
        found, status = os.waitpid(pid, os.WNOHANG)
        ended.extend([status] if found else [])
        return bool(found)

    if not eventually(waited, 60):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        pytest.fail("the fork hangs")
    assert os.waitstatus_to_exitcode(ended[0]) == 0


def test_workers_do_not_import_what_the_script_imports(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
            import sys
            import PIL.Image
            import flowdsl as fl

            def loaded(i):
                return "PIL" in sys.modules

            print(fl.from_range(4).map(loaded).prefetch(procs=2).collect(), loaded(0))
        """)
    )
    out = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=200, check=True
    ).stdout
    assert out == "[False, False, False, False] True\n"


def test_a_worker_whose_program_ends_before_it_has_begun_prints_nothing() -> None:
    ours, theirs = socket.socketpair()
    theirs.send(b"never read")  # so the program's end resets the connection
    ours.close()
    with theirs:
        code = f"from flowdsl.workers.worker import main; main({theirs.fileno()})"
        done = subprocess.run(
            [sys.executable, "-c", code],
            pass_fds=[theirs.fileno()],
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")
