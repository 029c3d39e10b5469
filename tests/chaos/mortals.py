"""Worker threads of this process that can die like processes, at a lower cost.

They speak the whole protocol over the same sockets and slabs. What dies drops its link, loses the
messages that it has not sent yet, and its end is seen by a descriptor, as a process's is.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from itertools import count
from typing import Any, cast

import attrs

from flowdsl.workers.processes import Process
from flowdsl.workers.worker import Setup, serve
from tests.chaos.faults import Died, mortal

_STATUS = {
    "exit 0": 0,
    "exit 3": 3,
    "kill": -9,
    "segfault": -11,
    "terminate": -15,
    "signal 40": -40,
    "stop": -9,
}
_pids = count(-2, -1)  # of no process


@attrs.define(eq=False)
class Mortal:
    """The interface of a worker process, for a thread that can die."""

    link: socket.socket
    end: int
    """A descriptor that is written to when the thread has ended."""
    pid: int = attrs.field(factory=lambda: next(_pids))
    is_stopped: bool = False
    _status: int = 0
    _killed: threading.Event = attrs.field(factory=threading.Event)
    _thread: threading.Thread | None = None

    def live(self, setup: Setup, stillborn: bool) -> None:
        """Start to serve tasks, or end before that."""

        def life() -> None:
            mortal.worker = self
            try:
                if stillborn:
                    self.die("exit 3")
                serve(self.link, setup)
            except Died:
                pass
            except BaseException:
                self._status = 1
                raise
            finally:
                self.link.close()
                os.eventfd_write(self.end, 1)
                os.close(self.end)

        self._thread = threading.Thread(target=life, name=NAME, daemon=True)
        self._thread.start()

    def die(self, kind: str) -> None:
        """End immediately, within the function that calls this."""
        if kind == "stop":
            self.is_stopped = True
            self._killed.wait()
        self._status = _STATUS[kind]
        raise Died

    def leave(self) -> None:
        """End the worker between two tasks: its link closes, and the consumer notices its end."""
        with contextlib.suppress(OSError):
            self.link.shutdown(socket.SHUT_RD)

    def kill(self) -> None:
        self._killed.set()

    def wait(self, timeout: float | None = None) -> int:
        if self.is_stopped and timeout is None:  # nothing else would end it
            self._killed.set()
        assert self._thread is not None
        if self._thread is threading.current_thread():  # it collects the garbage
            return self._status
        self._thread.join(timeout)
        if self._thread.is_alive():  # at work on a task
            raise subprocess.TimeoutExpired(NAME, timeout or 0)
        return self._status


NAME = "flowdsl-mortal"


@attrs.define
class Mortals:
    """The worker threads of a pipeline."""

    stillborn: frozenset[int] = frozenset()
    """For each worker in the order of their start, True if it ends before it is ready."""
    born: list[Mortal] = attrs.field(factory=list[Mortal])

    def spawn(self, setup: Setup) -> Process:
        """Start a worker; replaces ``Processes.spawn``."""
        ours, theirs = socket.socketpair()
        end = os.eventfd(0)
        one = Mortal(theirs, os.dup(end))
        one.live(setup, len(self.born) in self.stillborn)
        self.born.append(one)
        ours.setblocking(False)
        return Process(
            f"worker thread {-one.pid}",
            identity=setup.identity,
            process=cast("Any", one),
            link=ours,
            end=end,
        )

    def end_one(self, number: int) -> None:
        """End one of the most recent workers from outside."""
        if self.born:
            self.born[-1 - number % min(4, len(self.born))].leave()

    def is_stopped(self, pid: int) -> bool:
        """Replaces ``processes._is_stopped``."""
        return any(one.pid == pid and one.is_stopped for one in self.born)


def alive() -> int:
    """Return the number of worker threads in this process."""
    return sum(thread.name == NAME for thread in threading.enumerate())
