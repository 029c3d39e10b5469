"""Workers in threads of this process, with everything of a worker except the process."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any, cast

import attrs

from flowdsl.workers.processes import Process
from flowdsl.workers.worker import Setup, serve


@attrs.define
class _Thread:
    """The interface of a worker process, for a thread."""

    thread: threading.Thread
    pid: int = 0

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the current task is done, since a thread cannot be killed."""
        self.thread.join(None if timeout is None else max(timeout, 60))
        assert not self.thread.is_alive(), "a worker did not end when its link closed"
        return 0


def spawn_thread(setup: Setup) -> Process:
    """Serve tasks in a thread."""
    ours, theirs = socket.socketpair()

    def work() -> None:
        with theirs:
            serve(theirs, setup)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    ours.setblocking(False)
    return Process(
        "worker thread",
        identity=setup.identity,
        process=cast("Any", _Thread(thread)),
        link=ours,
        end=os.pidfd_open(os.getpid()),
    )
