"""Launching of workers: the fork server, the inherited environment, and the fallback."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import random
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import flowdsl as fl
from flowdsl.testing.endings import is_interrupted
from flowdsl.workers import launching, modules
from flowdsl.workers.launching import fork_server
from tests.children import children_of, is_fork_server, is_worker, workers_of
from tests.waiting import eventually, meet


def first(function: Callable[[int], Any]) -> Any:
    """Return the result of a function in a new worker."""
    return fl.from_range(1).map(function).prefetch(procs=1).collect()[0]


def server_of(pid: int) -> int:
    (server,) = filter(is_fork_server, children_of(pid))
    return server


@pytest.fixture
def server() -> int:
    """The process id of the fork server."""
    server = fork_server()
    assert server is not None
    return server.pid


def parent(_: int) -> int:
    return os.getppid()


class TestForkedWorkers:
    def test_share_one_fork_server(self, server: int) -> None:
        assert {first(parent) for _ in range(3)} == {server}

    def test_the_fork_server_has_one_thread(self, server: int) -> None:
        first(parent)
        assert len(os.listdir(f"/proc/{server}/task")) == 1

    def test_no_descriptors_are_inherited(self) -> None:
        def opened(_: int) -> set[str]:
            paths = Path("/proc/self/fd").iterdir()
            return {os.readlink(path) for path in paths if path.exists()}

        flow = fl.from_range(64).map(opened).prefetch(procs=4)
        pidfds = [sum("pidfd" in name for name in names) for names in flow]
        assert set(pidfds) == {1}  # of the consumer

    def test_exit_statuses_are_known(self) -> None:
        with pytest.raises(fl.WorkerDied, match=r"\(exit status 7\)"):
            fl.from_range(3).map(lambda i: os._exit(7)).prefetch(procs=1, deaths=1).collect()

    def test_random_numbers_differ_between_workers(self, tmp_path: Path) -> None:
        """Forks of one process begin with the same random state, unless it is reseeded."""

        def draw(i: int) -> tuple[int, float, float]:
            meet(tmp_path, 4)
            return os.getpid(), random.random(), np.random.random()  # noqa: NPY002  # what users do

        got = fl.from_range(100).map(draw).prefetch(procs=4).collect()
        assert len({pid for pid, _, _ in got}) == 4
        assert len({one for _, one, _ in got}) == len({other for _, _, other in got}) == 100


class TestProcessEnvironment:
    """A worker has the environment of the consumer at the time of its start."""

    @pytest.fixture(autouse=True)
    def one_is_there(self, server: int) -> None:
        """Start a fork server with another environment."""

    def test_environment_variables_are_applied(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HERE", "this")
        assert first(lambda _: os.environ["HERE"]) == "this"
        command = "echo $HERE"
        assert first(lambda _: subprocess.check_output(command, shell=True)) == b"this\n"
        monkeypatch.delenv("HERE")
        assert first(lambda _: "HERE" in os.environ) is False

    def test_variables_read_at_the_start_are_inherited(
        self, monkeypatch: pytest.MonkeyPatch, server: int
    ) -> None:
        monkeypatch.setenv("PYTHONHASHSEED", "1")
        ours = first(lambda _: (os.getppid(), hash("a")))
        monkeypatch.setenv("PYTHONHASHSEED", "2")
        theirs = first(lambda _: (os.getppid(), hash("a")))
        assert len({server, ours[0], theirs[0]}) == 3
        assert ours[1] != theirs[1]

    def test_the_working_folder_is_applied(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert first(lambda _: os.getcwd()) == str(tmp_path)

    def test_the_module_path_is_applied(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "a_module_of_its_own.py").write_text("X = 5")

        def imported(_: int) -> int:
            import a_module_of_its_own  # type: ignore[import-not-found]

            return int(a_module_of_its_own.X)

        monkeypatch.syspath_prepend(tmp_path)
        assert first(imported) == 5

    def test_the_umask_is_applied(self) -> None:
        before = os.umask(0o31)
        try:
            assert first(lambda _: os.umask(0)) == 0o31
        finally:
            os.umask(before)

    def test_resource_limits_are_applied(self) -> None:
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
        try:
            got = first(lambda _: resource.getrlimit(resource.RLIMIT_NOFILE))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert got == (before[0] - 1, before[1])

    def test_cpu_affinity_is_applied(self) -> None:
        before = os.sched_getaffinity(0)
        one = {min(before)}
        os.sched_setaffinity(0, one)
        try:
            assert first(lambda _: os.sched_getaffinity(0)) == one
        finally:
            os.sched_setaffinity(0, before)

    def test_standard_output_is_the_consumers(self, capfd: pytest.CaptureFixture[str]) -> None:
        def says(_: int) -> None:
            print("out", flush=True)
            print("err", file=sys.stderr, flush=True)

        first(lambda i: (says(i), 0))  # type: ignore[func-returns-value]  # for its effect
        assert tuple(capfd.readouterr()) == ("out\n", "err\n")

    def test_standard_input_is_empty(self) -> None:
        assert first(lambda _: sys.stdin.read()) == ""

    def test_workers_have_a_separate_process_group(self) -> None:
        pid, group = first(lambda _: (os.getpid(), os.getpgid(0)))
        assert pid == group != os.getpgid(0)


class TestForkServerFailures:
    def test_kill_is_survived(self, server: int) -> None:
        run = iter(fl.from_range(500).map(lambda i: i).prefetch(procs=2))
        got = [next(run)]
        os.kill(server, signal.SIGKILL)
        assert [*got, *run] == list(range(500))  # its workers go on
        assert first(parent) not in (server, 1)
        assert first(parent) != os.getpid()  # there is another

    def test_kill_during_the_start_is_survived(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYTHONHASHSEED", "3")
        new = fork_server()
        assert new is not None
        os.kill(new.pid, signal.SIGKILL)
        assert first(lambda _: 5) == 5

    def test_kill_followed_by_a_worker_death_is_survived(self, server: int) -> None:
        run = iter(fl.from_range(9).map(lambda i: i and os._exit(3)).prefetch(procs=1, deaths=1))
        next(run)
        os.kill(server, signal.SIGKILL)
        with pytest.raises(fl.WorkerDied, match=r"element [1-8] "):
            list(run)

    def test_a_stopped_server_is_replaced(
        self, server: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        current = fork_server()
        assert current is not None
        os.kill(server, signal.SIGSTOP)
        with monkeypatch.context() as soon:
            soon.setattr(launching, "SECONDS_TO_ANSWER", 0.2)
            assert first(parent) == os.getpid()  # a new interpreter
        assert first(parent) not in (server, os.getpid())  # another fork server
        assert eventually(lambda: not is_fork_server(server))

    def test_repeated_failures_disable_the_fork_server(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(launching, "_current", None)
        monkeypatch.setattr(launching, "_failures", 0)
        for _ in range(3):
            server = fork_server()
            assert server is not None
            os.kill(server.pid, signal.SIGKILL)
            server._process.wait()
            assert first(lambda _: 5) == 5
        assert fork_server() is None
        assert first(parent) == os.getpid()

    def test_an_interrupted_request_is_survived(self, server: int) -> None:
        current = fork_server()
        assert current is not None
        os.kill(server, signal.SIGSTOP)
        assert is_interrupted(lambda: first(parent))
        assert first(parent) not in (server, os.getpid())

    def test_lack_of_descriptors_is_survived(self, server: int) -> None:
        taken = list[int]()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 30, limits[1])
        )
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.dup(0))
            with pytest.raises(OSError, match="Too many open files"):
                first(parent)
        finally:
            for fd in taken:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert first(lambda _: 5) == 5


SCRIPT = """
    import flowdsl as fl, os, sys, time
    run = iter(fl.from_range(10**9).map(lambda i: os.getppid()).prefetch(procs=2))
    print(next(run), flush=True)
"""


@contextlib.contextmanager
def program(more: str) -> Iterator[subprocess.Popen[str]]:
    code = textwrap.dedent(SCRIPT) + textwrap.dedent(more)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


class TestConsumerEnds:
    def test_kill_is_survived(self) -> None:
        with program("time.sleep(600)") as process:
            server = int(line(process))
            workers = workers_of(process.pid)
            assert server == server_of(process.pid)
            assert len(workers) == 2
            process.kill()
            assert eventually(lambda: not any(map(is_worker, workers)))
            assert eventually(lambda: not is_fork_server(server))

    def test_kill_is_noticed_although_a_fork_is_alive(self) -> None:
        more = """
            if os.fork() == 0:
                time.sleep(600)
            print(os.getpid(), flush=True)
            time.sleep(600)
        """
        with program(more) as process:
            server = int(line(process))
            line(process)
            (fork,) = (p for p in children_of(process.pid) if not is_fork_server(p))
            try:
                process.kill()
                assert eventually(lambda: not is_fork_server(server))
            finally:
                os.kill(fork, signal.SIGKILL)

    def test_the_end_of_the_consumer_ends_the_server(self) -> None:
        with program("") as process:
            server = int(line(process))
            assert process.wait(60) == 0
            assert not is_fork_server(server)

    def test_two_consumers_have_separate_servers(self) -> None:
        with program("time.sleep(600)") as one, program("time.sleep(600)") as other:
            assert int(line(one)) != int(line(other))
            one.kill()
            one.wait()
            assert len(workers_of(other.pid)) == 2

    def test_a_fork_has_a_separate_server(self) -> None:
        more = """
            sys.stdout.flush()
            if os.fork() == 0:
                flow = fl.from_range(3).map(lambda i: os.getppid()).prefetch(procs=1)
                print(flow.collect()[0], flush=True)
                os._exit(0)
            os.wait()
            print(next(run), flush=True)
        """
        with program(more) as process:
            ours, theirs, again = (int(line(process)) for _ in range(3))
            assert ours == again != theirs
            assert process.wait(60) == 0
            assert eventually(lambda: not is_fork_server(theirs))

    def test_a_fork_does_not_wait_for_a_locked_server(self) -> None:
        """A fork is not blocked if another thread had locked the server at the fork."""
        more = """
            from flowdsl.workers import launching, modules
            launching._lock.acquire()
            child = os.fork()
            if child == 0:
                print(fl.from_range(3).map(abs).prefetch(procs=1).collect(), flush=True)
                os._exit(0)
            os.waitpid(child, 0)
            launching._lock.release()
        """
        with program(more) as process:
            line(process)
            assert line(process) == "[0, 1, 2]"
            assert process.wait(60) == 0


class TestModules:
    """Installed modules of a program are imported once for all workers."""

    @pytest.fixture
    def package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
        """Create a package that counts its imports, and is treated as installed."""

        def make(code: str) -> Any:
            name = f"package_{tmp_path.name}"
            (tmp_path / f"{name}.py").write_text(
                f"import os\n"
                f"with open({str(tmp_path / 'log')!r}, 'a') as log:\n"
                f"    log.write('.')\n"
                f"{code}\n"
                f"def double(i): return 2 * i\n"
            )
            monkeypatch.syspath_prepend(tmp_path)
            monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # another fork server
            monkeypatch.setattr(modules, "is_installed", lambda name: True)
            monkeypatch.setattr(launching, "_not_shared", set())
            monkeypatch.setattr(launching, "_failures", 0)
            return importlib.import_module(name)

        return make

    def imports(self, folder: Path) -> int:
        return (folder / "log").stat().st_size

    def test_installed_modules_are_imported_once(
        self, package: Callable[[str], Any], tmp_path: Path
    ) -> None:
        double = package("").double
        assert self.imports(tmp_path) == 1
        flow = fl.from_range(100).map(double)
        assert flow.prefetch(procs=4).collect() == flow.collect()
        assert flow.prefetch(procs=4).collect() == flow.collect()
        assert self.imports(tmp_path) == 2

    UNFIT: ClassVar[dict[str, str]] = {
        "threads": "import threading, time; threading.Thread(target=time.sleep, args=(9,), "
        "daemon=True).start()",
        "open files": "f = open('/dev/null')",
    }

    @pytest.mark.filterwarnings("ignore:unclosed file")
    @pytest.mark.parametrize("why", UNFIT)
    def test_modules_with_threads_or_files_are_imported_by_each_worker(
        self, why: str, package: Callable[[str], Any]
    ) -> None:
        double = package(self.UNFIT[why]).double
        flow = fl.from_range(100).map(math.isqrt).map(double)
        assert flow.prefetch(procs=2).collect() == flow.collect()
        assert flow.prefetch(procs=2).collect() == flow.collect()
        server = fork_server()
        assert server is not None
        assert double.__module__ not in server.modules
        assert "math" in server.modules  # requested together, and imported before

    def test_modules_that_kill_the_server_are_survived(self, package: Callable[[str], Any]) -> None:
        double = package(f"if os.getpid() != {os.getpid()}: os._exit(1)").double
        with pytest.raises(fl.WorkerDied, match="before it was ready"):
            fl.from_range(100).map(double).prefetch(procs=2).collect()
        assert first(abs) == 0
        assert fork_server() is not None

    def test_import_errors_are_reported(self, package: Callable[[str], Any]) -> None:
        double = package(f"if os.getpid() != {os.getpid()}: 1 / 0").double
        with pytest.raises(fl.NotShippable, match="ZeroDivisionError"):
            fl.from_range(100).map(double).prefetch(procs=2).collect()

    def test_project_modules_are_searched_for_installed_ones(self) -> None:
        """Project modules are imported by each worker, their installed dependencies only once."""
        found = modules.installed([__name__, "__main__", "no such module"])
        assert {"numpy", "subprocess", "flowdsl.workers.launching"} <= found
        assert __name__ not in found

    def test_installed_packages_are_recognised_by_their_path(self) -> None:
        assert modules.installed(["pytest", "numpy.linalg", "json"]) == {
            *("pytest", "numpy.linalg", "json")
        }
