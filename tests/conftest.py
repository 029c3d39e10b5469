"""Settings of hypothesis: no deadline on a shared machine, and the same examples in every run.

The examples depend on the tests alone: not on where they run, nor on what an earlier run found.
Drawing at random is asked for, by the profile "explore"; ``make explore`` does.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
from collections.abc import Generator, Iterator
from typing import Any

# Before NumPy is imported: a thread of OpenBLAS without work sleeps at once. By default it spins
# first, for a tenth of a second in each process of the tests.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, Phase, settings
from xdist.scheduler import LoadFileScheduling

from flowdsl.workers import launching
from flowdsl.workers.processes import Processes
from tests.chaos.mortals import Mortals
from tests.threads import spawn_thread

# Thousands of tests create objects that are freed without a collection: rare ones save a tenth of
# the time.
gc.set_threshold(20_000, 10, 10)

_common = settings(
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
# 5 examples in every run; ``make explore`` draws 100, at new seeds, round after round.
settings.register_profile("flowdsl", _common, derandomize=True, max_examples=5)
settings.register_profile(
    "explore",
    _common,
    derandomize=False,
    # At some seed any test draws much that it cannot use: that is no finding.
    suppress_health_check=[*_common.suppress_health_check, HealthCheck.filter_too_much],
)
settings.load_profile("flowdsl")

# What a shell starts in the background ignores Ctrl-C, and so do its children, which these tests
# interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def first_failure() -> Iterator[None]:
    """Do not shrink examples that fail on purpose, which would take most of the time."""
    settings.register_profile("all failures", settings.default)
    settings.register_profile(
        "first failure", settings.default, phases=[Phase.explicit, Phase.generate]
    )
    settings.load_profile("first failure")
    yield
    settings.load_profile("all failures")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run whole files in a process, and in one all that share a run of the type checkers."""
    if config.getvalue("dist") != "loadfile":
        return None
    scheduler: Any = LoadFileScheduling(config, log)
    file_of = scheduler._split_scope

    def scope_of(test: str) -> str:
        file: str = file_of(test)
        return "checked" if file.startswith(("tests/docs/", "tests/typing/")) else file

    scheduler._split_scope = scope_of
    return scheduler


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import the tests without collections, of which a quarter of the time would be.

    Modules stay: a collection while they are imported frees next to nothing.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow files first, so that no process has one left at the end.

    Then those whose tests wait more than they compute: at the end they would leave cores idle.
    """
    items.sort(key=lambda item: item.path.parent.name not in ("remote", "workers"))
    slow = {item.path for item in items if "slow" in item.keywords}
    items.sort(key=lambda item: item.path not in slow)
    # This example makes devices, which TensorFlow does at its first operation and never again.
    items.sort(key=lambda item: item.name != "flowdsl.tensorflow.inputs.devices.logical_cpus")


def pytest_sessionfinish() -> None:
    """Collect garbage once; pytest then collects five times, for errors of what is freed."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def end_what_hangs(pytestconfig: pytest.Config) -> Iterator[None]:
    """End a file that hangs where ``timeout`` cannot interrupt it: in C, or in a teardown.

    pytest has an option for that, which starts a thread in each test and waits for its end.
    """
    seconds = 12 * float(pytestconfig.getoption("timeout") or pytestconfig.getini("timeout"))
    stderr = pytestconfig.stash.get(fault_handler_stderr_fd_key, 2)
    faulthandler.dump_traceback_later(seconds, exit=True, file=stderr)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> None:
    """Exclude the objects of earlier test files, and of all that they import, from collections.

    With TensorFlow, PyTorch, JAX and the examples of thousands of tests in the process, a full
    collection takes seconds, and tests of what is freed need many.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def share_modules() -> None:
    """Import a module once for all workers, as in a program that runs this file of tests alone.

    Of modules that cannot be shared, and of those requested with them, the rest of a program's
    workers each import their own: pytest itself, once an earlier file has used Arrow in workers.
    """
    launching._not_shared.clear()


@pytest.fixture
def mortals(monkeypatch: pytest.MonkeyPatch) -> Mortals:
    """Replace worker processes by threads that can die, to avoid the start time of processes."""
    workers = Mortals()
    monkeypatch.setattr(Processes, "spawn", staticmethod(workers.spawn))
    return workers


@pytest.fixture
def workers_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use worker threads with the same tasks, messages and slabs, which start faster."""
    monkeypatch.setattr(Processes, "spawn", staticmethod(spawn_thread))
