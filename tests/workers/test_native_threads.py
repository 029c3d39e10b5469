"""Native threads: the number of threads of numerical libraries in workers."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.workers import processes
from flowdsl.workers.native_threads import share_of


@pytest.fixture(autouse=True)
def six_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 6)
    for name in list(os.environ):
        if name.endswith(("NUM_THREADS", "THREADS_NUM", "THREAD_TIMEOUT")):
            monkeypatch.delenv(name)


def of_numpy(_: object = None) -> int:
    """The threads of NumPy's BLAS in this process."""
    from threadpoolctl import threadpool_info

    blas = (info for info in threadpool_info() if info["internal_api"] == "openblas")
    return int(max(info["num_threads"] for info in blas))


def of_torch(_: int) -> int:
    import torch

    return torch.get_num_threads()


def of_opencv(_: int) -> int:
    import cv2

    return cv2.getNumThreads()


def the_environment(_: int) -> dict[str, str]:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_THREAD_TIMEOUT")
    return {name: os.environ.get(name, "") for name in names}


def seen(flow: fl.Flow[Any, Any]) -> set[Any]:
    return set(flow.take(4).collect())


NUMBERS = fl.from_range(64)


@given(st.integers(1, 512), st.integers(1, 512))
def test_all_workers_together_use_at_most_one_thread_per_core(cores: int, workers: int) -> None:
    threads = share_of(cores, workers)
    assert threads == 1 or threads * workers <= cores
    assert (threads + 1) * workers > cores


@pytest.mark.parametrize(("procs", "threads"), [(1, 6), (2, 3), (4, 1), (8, 1)])
def test_workers_divide_the_cores(procs: int, threads: int) -> None:
    assert seen(NUMBERS.map(of_numpy).prefetch(procs=procs)) == {threads}


def test_tuned_workers_have_one_thread_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flowdsl.resources.cores.cores", lambda: 6)
    assert seen(NUMBERS.map(of_numpy).prefetch(procs="auto")) == {1}


def test_copies_divide_the_cores() -> None:
    stream = fl.from_iterable(lambda: iter(range(3)))
    assert set(stream.map(of_numpy).replicate(procs=3).collect()) == {2}
    assert set(fl.from_range(3).map(of_numpy).replicate(procs=2).collect()) == {3}


def test_two_prefetches_of_a_flow_divide_the_cores() -> None:
    below = NUMBERS.map(of_numpy).prefetch(procs=1).shuffle(buffer=2)
    assert seen(below.map(lambda n: (n, of_numpy())).prefetch(procs=2)) == {(2, 2)}


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"])
def test_a_variable_that_the_user_has_set_wins(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "2")
    assert seen(NUMBERS.map(of_numpy).prefetch(procs=6)) == {min(2, os.cpu_count() or 1)}


def test_a_function_may_set_its_own_number() -> None:
    def limited(i: int) -> int:
        from threadpoolctl import ThreadpoolController

        for library in ThreadpoolController().lib_controllers:
            library.set_num_threads(2)
        return of_numpy(i)

    assert seen(NUMBERS.map(limited).prefetch(procs=6)) == {2}


def test_this_process_keeps_its_threads() -> None:
    before = of_numpy(), dict(os.environ)
    NUMBERS.map(of_numpy).prefetch(procs=2).collect()
    assert (of_numpy(), dict(os.environ)) == before


def test_libraries_loaded_later_read_the_environment() -> None:
    (found,) = NUMBERS.map(the_environment).prefetch(procs=2).take(1)
    assert (found["OMP_NUM_THREADS"], found["MKL_NUM_THREADS"]) == ("3", "3")


@pytest.mark.parametrize(("of_the_user", "of_a_worker"), [(None, "16"), ("20", "20")])
def test_threads_without_work_sleep_soon_unless_the_user_decides(
    of_the_user: str | None, of_a_worker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if of_the_user is not None:
        monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", of_the_user)
    (found,) = NUMBERS.map(the_environment).prefetch(procs=2).take(1)
    assert found["OPENBLAS_THREAD_TIMEOUT"] == of_a_worker


@pytest.mark.long
@pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")
def test_pytorch_has_the_threads_of_a_worker() -> None:
    assert seen(NUMBERS.map(of_torch).prefetch(procs=6)) == {1}


@pytest.mark.skipif(find_spec("cv2") is None, reason="needs OpenCV")
def test_opencv_has_the_threads_of_a_worker() -> None:
    assert seen(NUMBERS.map(of_opencv).prefetch(procs=6)) == {1}
