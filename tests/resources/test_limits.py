"""Limits of the system become errors before libzmq aborts the process."""

from __future__ import annotations

import errno
import os
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import flowdsl as fl
from flowdsl import FlowError
from flowdsl.resources.limits import check_room, explained, start_thread

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits are of Linux")


@contextmanager
def room_for(files: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    top = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (top + 20, limits[1]))
    opened = list[int]()
    try:
        with suppress(OSError):
            while True:
                opened.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(files):
            os.close(opened.pop())
        yield
    finally:
        for fd in opened:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


class TestCheckRoom:
    def test_leaves_neither_a_thread_nor_a_descriptor(self) -> None:
        folders = "/proc/self/fd", "/proc/self/task"
        before = [{*os.listdir(folder)} for folder in folders]
        check_room("who", threads=3, descriptors=20)
        after = [{*os.listdir(folder)} for folder in folders]
        assert [one - other for one, other in zip(after, before, strict=True)] == [set(), set()]

    @pytest.mark.parametrize("needed", [0, 1, 5, 8])
    @pytest.mark.parametrize("there", [0, 1, 5, 8])
    def test_raises_if_too_few_files_may_be_open(self, needed: int, there: int) -> None:
        with room_for(there):
            if needed <= there:
                check_room("who", 0, needed)
            else:
                with pytest.raises(FlowError, match=r"^who: .* more descriptors .*: .*ulimit -n$"):
                    check_room("who", 0, needed)

    @pytest.mark.usefixtures("no_thread")
    def test_raises_if_no_thread_can_be_started(self) -> None:
        with pytest.raises(FlowError, match=r"^who: a thread cannot be started: ulimit -u"):
            check_room("who", threads=1, descriptors=0)


def test_other_reasons_are_those_of_the_system() -> None:
    assert explained(OSError(errno.EIO, "Input/output error")) == "Input/output error"
    assert explained(OSError("no number")) == "no number"


@pytest.mark.usefixtures("no_thread")
@pytest.mark.parametrize(
    ("flow", "who"),
    [
        (fl.from_range(9).map(abs).prefetch(threads=2), r"prefetch\(threads=2\)"),
        (fl.from_range(9).map(abs).prefetch(procs=2), "prefetch, for worker processes"),
        (fl.from_iterable(range(9)).prefetch(threads=1), "from_iterable.*, which a thread"),
        (fl.from_zmq("ipc://@flowdsl-nobody", int), "from_zmq"),
    ],
    ids=["threads", "processes", "stream", "sockets"],
)
def test_an_error_names_what_needs_a_thread(flow: Any, who: str) -> None:
    with pytest.raises(FlowError, match=f"^{who}.*: a thread cannot be started: "):
        flow.collect()


def test_a_thread_is_started() -> None:
    ran = threading.Event()
    start_thread(threading.Thread(target=ran.set), "who")
    assert ran.wait(60)
