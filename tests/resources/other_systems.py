"""Everyday operations on a Python without what Windows, or macOS, does not have.

``python -m tests.resources.other_systems windows``
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import TypedDict

NOT_IN_MACOS = (
    "os:memfd_create os:pidfd_open os:eventfd os:sched_getaffinity os:sched_setaffinity os:O_PATH "
    "signal:pidfd_send_signal socket:SOCK_SEQPACKET"
)
NOT_IN_WINDOWS = (
    "os:O_CLOEXEC os:O_NONBLOCK os:O_NOFOLLOW os:pread os:getuid os:geteuid os:fork os:fchmod "
    "os:register_at_fork os:statvfs os:mkfifo signal:SIGKILL signal:SIGCHLD signal:pthread_kill "
    "signal:pthread_sigmask socket:AF_UNIX"
)
MODULES_NOT_IN_WINDOWS = "fcntl", "resource", "pwd", "grp", "termios"


class Row(TypedDict):
    key: int
    value: float


def become(system: str) -> None:
    """Take away what a system lacks."""
    for name in f"{NOT_IN_MACOS} {NOT_IN_WINDOWS if system == 'windows' else ''}".split():
        module, _, attribute = name.partition(":")
        vars(importlib.import_module(module)).pop(attribute, None)
    if system == "windows":
        nothing: dict[str, None] = dict.fromkeys(MODULES_NOT_IN_WINDOWS)
        sys.modules.update(nothing)  # type: ignore[arg-type]  # None: import raises an error
        os.supports_dir_fd.clear()
        importlib.reload(shutil)  # which notices


def in_threads() -> None:
    import flowdsl as fl

    flow = fl.from_range(20).map(abs).shuffle(seed=1).batch(4)
    expected = [batch.tolist() for batch in flow]
    for ahead in (flow.prefetch(), flow.prefetch(threads=2), flow.prefetch(procs="auto")):
        assert [batch.tolist() for batch in ahead] == expected
    run = iter(flow.prefetch(threads=2))
    next(run)
    assert [batch.tolist() for batch in flow.resume(run.state_dict())] == expected[1:]


def in_files() -> None:
    import flowdsl as fl

    rows = fl.from_range(20).map(lambda i: {"key": i, "value": i / 4})
    with tempfile.TemporaryDirectory() as folder:
        for form in ("lmdb", "csv", "npz"):
            getattr(rows, f"write_{form}")(f"{folder}/rows.{form}")
            flow = getattr(fl, f"from_{form}")(f"{folder}/rows.{form}", Row)
            assert flow.prefetch(threads=2).collect() == rows.collect()
            assert flow.shuffle(seed=1).at(3) in rows.collect()
        lines = fl.from_items(["a", "b", "c"])
        lines.write_text(f"{folder}/rows.txt")
        assert fl.from_text(f"{folder}/rows.txt").at(2) == "c"
        fl.from_items([{"__key__": "a", "txt": "b"}]).write_webdataset(f"{folder}/rows.tar")
        assert fl.from_webdataset(f"{folder}/rows.tar").at(0)["txt"] == b"b"
        assert rows.write_lmdb(f"{folder}/rows.lmdb", append=True) == 20
        assert len(fl.from_lmdb(f"{folder}/rows.lmdb")) == 40
        assert not list(Path(folder).glob(".flowdsl-*"))


def over_sockets() -> None:
    import flowdsl as fl

    address: list[str] = []
    bound = threading.Event()

    def receive(at: str) -> None:
        address.append(at)
        bound.set()

    received: list[int] = []
    flow = fl.from_zmq("tcp://127.0.0.1:*", int, timeout=30, on_bound=receive)
    receiver = threading.Thread(target=lambda: received.extend(flow))
    receiver.start()
    assert bound.wait(30)
    fl.from_range(4).send_zmq(address[0])
    receiver.join()
    assert received == [0, 1, 2, 3]


def refused() -> None:
    import flowdsl as fl

    flow = fl.from_range(3).map(abs)
    for build in (
        lambda: flow.prefetch(procs=2),
        lambda: flow.replicate(procs=2),
        lambda: fl.from_zmq("ipc:///tmp/rows"),
    ):
        try:
            build()
        except fl.InvalidFlow as error:
            print(error)


if __name__ == "__main__":
    become(sys.argv[1])
    in_threads()
    in_files()
    over_sockets()
    refused()
