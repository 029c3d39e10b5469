"""The processes that a process has started and not waited for."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def children_of(pid: int | None = None) -> list[int]:
    """Return the child processes of a process, by default of this one."""
    found = set[int]()
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for task in list(Path(f"/proc/{pid or os.getpid()}/task").iterdir()):
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread of it has
                found |= set(map(int, (task / "children").read_text().split()))
    return sorted(found)


def workers_of(pid: int | None = None) -> list[int]:
    """Return the worker processes of its flows, forked by its fork server or started directly."""
    own = children_of(pid)
    forked = [worker for child in own if is_fork_server(child) for worker in children_of(child)]
    return sorted([*forked, *(child for child in own if is_worker(child))])


def is_worker(pid: int) -> bool:
    return is_fork_server(parent_of(pid)) or any(
        mark in command(pid) for mark in ("flowdsl worker of", "flowdsl.workers.worker")
    )


def is_fork_server(pid: int) -> bool:
    marks = "flowdsl forks:", "flowdsl.workers.forkserver"  # the second until it has started
    return any(mark in command(pid) for mark in marks) and not is_fork_server(parent_of(pid))


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def command(pid: int) -> str:
    """Return the command line of a process; empty if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""
