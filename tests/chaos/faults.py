"""Faults of a pipeline: triggered by the row of an element, in any worker.

A fault travels to a worker by name and by value. How often it has struck is kept in files, so it is
known in every process: a worker that dies can tell nobody.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any, Literal, NoReturn, TypeAlias

import attrs

from flowdsl.testing.elements import ids

Kind: TypeAlias = Literal["exit 0", "exit 3", "kill", "segfault", "stop", "slow", "raise"]

DEADLY: tuple[Kind, ...] = ("exit 0", "exit 3", "kill", "segfault", "stop")


class Died(BaseException):
    """Ends a worker thread; functions of a flow do not catch it.

    A worker that has caught it ends nevertheless, as soon as it prepares to send it.
    """

    def __reduce__(self) -> NoReturn:
        raise self


mortal = threading.local()
"""``mortal.worker`` is the thread-worker that this thread is, if it is one."""


@attrs.frozen
class Fault:
    """A fault at a row, for the first few times that a worker reaches it."""

    row: int
    kind: Kind
    times: int
    """The number of times; unlimited for a poison row."""
    marks: str
    """The prefix of marker files, one for each time."""
    consumer: int
    """The consumer's process; in its own thread only faults that raise happen."""

    def strike(self) -> None:
        if self.kind == "raise":
            raise ValueError(f"row {self.row} is bad")
        if not in_consumer(self.consumer) and not self._spent():
            self.happen()

    def happen(self) -> None:
        worker = getattr(mortal, "worker", None)
        if self.kind == "slow":
            time.sleep(0.002)
        elif worker is not None:
            worker.die(self.kind)
        elif self.kind.startswith("exit"):
            os._exit(int(self.kind[-1]))
        else:
            os.kill(os.getpid(), _SIGNALS[self.kind])

    def _spent(self) -> bool:
        for k in range(self.times):
            try:
                os.close(os.open(f"{self.marks}-{k}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return False
        return True


def in_consumer(process: int) -> bool:
    """Return True if this runs in the consumer, not in a worker."""
    return os.getpid() == process and getattr(mortal, "worker", None) is None


_SIGNALS = {"kill": signal.SIGKILL, "segfault": signal.SIGSEGV, "stop": signal.SIGSTOP}


@attrs.frozen
class Poison(Fault):
    """A row that kills the worker that computes it; in the consumer's own thread it raises.

    So the reference of a flow with ``on_error`` leaves it out, as a run is to do.
    """

    def strike(self) -> None:
        if in_consumer(self.consumer):
            raise ValueError(f"row {self.row} is bad")
        self.happen()


@attrs.frozen
class Faulty:
    """Return the argument, after triggering the faults."""

    faults: tuple[Fault, ...]

    def __call__(self, element: Any) -> Any:
        rows = ids(element)
        for fault in self.faults:
            if fault.row in rows:
                fault.strike()
        return element
