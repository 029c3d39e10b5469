"""Faults of a pipeline: triggered by the row of an element, in any worker.

A fault travels to a worker by name and by value. How often it has struck is kept in files, so it is
known in every process: a worker that dies can tell nobody.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, Literal, NoReturn, TypeAlias, get_args

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.testing.elements import ids, leaves

Deadly: TypeAlias = Literal[
    "exit 0", "exit 3", "kill", "segfault", "terminate", "signal 40", "stop"
]
Harmless: TypeAlias = Literal["slow", "raise", "raise odd", "write", "leave"]
Kind: TypeAlias = Deadly | Harmless

DEADLY: tuple[Deadly, ...] = get_args(Deadly)
HARMLESS: tuple[Harmless, ...] = get_args(Harmless)
"""Slow rows; rows that raise an error, some of an odd class; rows into which a function writes; and
rows at which it leaves with ``SystemExit``."""


class _NeedsNames(Exception):
    def __init__(self, *, row: int) -> None:
        super().__init__(f"row {row}, in a class with arguments of its own")


class _HoldsLock(Exception):
    def __init__(self, row: int) -> None:
        super().__init__(f"row {row}")
        self.lock = threading.Lock()


class _WithoutText(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def _grouped(row: int) -> Exception:
    return ExceptionGroup(f"row {row}", [KeyError(row), _HoldsLock(row)])


_ODD: tuple[Callable[[int], Exception], ...] = (
    lambda row: _NeedsNames(row=row),
    _HoldsLock,
    _WithoutText,
    _grouped,
    lambda row: UnicodeDecodeError("utf-8", b"\xff", 0, 1, f"row {row}"),
    lambda row: StopIteration(row),
    lambda row: FileNotFoundError(2, "No such file", f"row-{row}"),
)


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

    def strike(self, element: object) -> None:
        if self.kind == "raise":
            raise ValueError(f"row {self.row} is bad")
        if self.kind == "raise odd":
            raise _ODD[self.row % len(_ODD)](self.row)
        if self.kind == "leave":
            raise SystemExit(self.row)
        if self.kind == "write":
            _write_into(element)
        elif not in_consumer(self.consumer) and not self._spent():
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


def _write_into(element: object) -> None:
    """Write the elements of arrays to where they are, which is an error for shared ones."""
    for leaf in leaves(element):
        if isinstance(leaf, np.ndarray):
            leaf[...] = leaf


_SIGNALS = {
    "kill": signal.SIGKILL,
    "segfault": signal.SIGSEGV,
    "terminate": signal.SIGTERM,
    "signal 40": 40,
    "stop": signal.SIGSTOP,
}


@attrs.frozen
class Poison(Fault):
    """A row that kills the worker that computes it; in the consumer's own thread it raises.

    So the reference of a flow with ``on_error`` leaves it out, as a run is to do.
    """

    def strike(self, element: object) -> None:
        if in_consumer(self.consumer):
            raise ValueError(f"row {self.row} is bad")
        self.happen()


@attrs.frozen
class Grow:
    """Put memory beside some elements, so that sizes jump from bytes to hundreds of kilobytes."""

    every: int

    def __call__(self, element: Any) -> tuple[Any, NDArray[np.uint8]]:
        large = sum(ids(element)) % self.every == 0
        return element, np.zeros(300_000 if large else 1, np.uint8)


@attrs.frozen
class Faulty:
    """Return the argument, after triggering the faults."""

    faults: tuple[Fault, ...]

    def __call__(self, element: Any) -> Any:
        rows = ids(element)
        for fault in self.faults:
            if fault.row in rows:
                fault.strike(element)
        return element
