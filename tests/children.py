"""The processes that a process has started and not waited for."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def children_of(pid: int | None = None) -> list[int]:
    """Those of one process, by default of this one."""
    found = set[int]()
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for task in list(Path(f"/proc/{pid or os.getpid()}/task").iterdir()):
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread of it has
                found |= set(map(int, (task / "children").read_text().split()))
    return sorted(found)


def workers_of(pid: int | None = None) -> list[int]:
    """Those of them that work for a flow."""
    return [child for child in children_of(pid) if is_worker(child)]


def is_worker(pid: int) -> bool:
    return "flowdsl.workers.worker" in command(pid)


def command(pid: int) -> str:
    """The command line of a process; nothing where it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""
