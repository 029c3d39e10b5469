"""How a worker process comes into being: forked by the fork server, or as a new interpreter.

Either way it has the surroundings of the consumer at that moment. What a process cannot take on
once it runs (its user, the variables that Python reads at its start) it has from the fork server:
if such a thing has changed, a new fork server takes the place of the old one. Where no fork server
can be had, a worker is a new interpreter: slower to start, and otherwise alike.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

import attrs

from flowdsl.workers import forkserver, native_threads, worker
from flowdsl.workers.forkserver import FORK, NOT_KNOWN, NUMBER, UNFIT
from flowdsl.workers.modules import read_the_environment
from flowdsl.workers.process_environment import ProcessEnvironment

SECONDS_TO_ANSWER = 10.0
"""A fork server that has not answered after this time is given up; its workers go on."""

SECONDS_TO_IMPORT = 60.0
"""As ``SECONDS_TO_ANSWER``, for a fork server that imports modules first."""

SECONDS_TO_LEAVE = 0.5

_START = str(Path(__file__).with_name("worker_main.py"))


class Child(Protocol):
    """A process that was started: the part of ``subprocess.Popen`` that a backend needs."""

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the end: the exit status, minus the signal, or None if that cannot be known.

        Raises:
            subprocess.TimeoutExpired: It has not ended after ``timeout`` seconds.
        """
        ...

    def kill(self) -> None:
        """End the process by SIGKILL, if it has not ended."""
        ...


def spawn(link: int) -> subprocess.Popen[bytes]:
    """Start a worker as a new interpreter that runs ``worker_main.py``, not the user's script."""
    return _interpreter(worker.__name__, link)


def _interpreter(module: str, link: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", _START, module, str(link), *sys.path],
        env={**os.environ, **native_threads.variables(1)},  # each worker sets its own number
        stdin=subprocess.DEVNULL,
        pass_fds=[link],
        process_group=0,  # so that Ctrl-C in a terminal reaches the consumer alone
    )


def start(link: int, modules: Collection[str] = ()) -> tuple[Child, int]:
    """Start a worker on its end of a link, in the consumer's folder of this moment.

    ``modules`` are those that it needs and may share with other workers. Gives the process, which
    need not be ready yet, and a descriptor that becomes readable when it has ended. It takes
    milliseconds where there is a fork server that has the modules, and else as long as they take.
    """
    global _failures
    server = fork_server()
    if server is not None:
        try:
            child = server.fork(link, [name for name in modules if name not in _not_shared])
        except OSError:
            if server.gone:  # what was asked for in addition may be the reason
                _not_shared.update(name for name in modules if name not in server.modules)
        else:
            _failures = 0
            return child, os.dup(child.end)
    process = spawn(link)
    return process, os.pidfd_open(process.pid)  # not waited for yet, so the id is not another's


class ForkServer:
    """The fork server, as the consumer's process sees it.

    It ends when nothing refers to it any more, neither this module nor a worker that it forked.
    """

    def __init__(self) -> None:
        """Start one; it is ready later, and may be asked at once."""
        self._environment = ProcessEnvironment()
        self.gone = False
        """Whether it has failed to answer, or is unfit; it is not asked again."""
        self.modules = set[str]()
        """What it was asked to import, with success."""
        self._lock = threading.RLock()
        self._is_asked = False
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = _interpreter(forkserver.__name__, theirs.fileno())
        self._end = weakref.finalize(self, _end, os.getpid(), self._socket, self._process)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def fork(self, link: int, modules: Sequence[str]) -> Forked:
        """Fork a worker on its end of a link, after importing some modules for all workers.

        Raises:
            OSError: The server is gone, does not answer, or cannot fork.
        """
        new = [name for name in modules if name not in self.modules]
        seconds = SECONDS_TO_IMPORT if new else SECONDS_TO_ANSWER
        folder = os.open(".", os.O_PATH)
        try:
            pid, fds = self._ask(FORK, seconds, " ".join(new), [link, folder, 1, 2])
        finally:
            os.close(folder)
        if pid == UNFIT:
            self.gone = True
            raise OSError(errno.ENOTSUP, "the fork server has threads or open files of a module")
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        if not fds:
            raise OSError(errno.EMFILE, "no descriptor is left for that of a worker")
        self.modules.update(new)
        return Forked(self, pid, fds[0])

    def status(self, pid: int) -> int | None:
        """How a worker has ended: its exit status, or minus the signal; None if not known."""
        try:
            status, _ = self._ask(pid, SECONDS_TO_ANSWER)
        except OSError:
            return None
        return None if status == NOT_KNOWN else status

    def suits(self, now: ProcessEnvironment) -> bool:
        """Whether its workers can take on these surroundings."""
        whole = read_the_environment(self.modules)
        return self._environment.lasting(whole) == now.lasting(whole)

    def disown(self) -> None:
        """In a fork of the consumer: let go of a server that is not this process's."""
        self.gone = True
        self._end.detach()
        self._socket.close()
        self._process.returncode = 0  # it is not waited for here

    def _ask(
        self, number: int, seconds: float, text: str = "", fds: Sequence[int] = ()
    ) -> tuple[int, list[int]]:
        with self._lock:
            if self.gone or self._is_asked:  # asked by this thread, which a finalizer interrupts
                raise OSError(errno.EAGAIN, "the fork server cannot be asked")
            self._is_asked = True
            try:
                self._socket.settimeout(seconds)
                socket.send_fds(self._socket, [NUMBER.pack(number), text.encode()], fds)
                told = socket.recv_fds(self._socket, NUMBER.size, 1, socket.MSG_CMSG_CLOEXEC)
                if not told[0]:
                    raise ConnectionResetError(errno.ECONNRESET, "the fork server is gone")
            except BaseException:  # an answer that comes later would be taken for another's
                self.gone = True
                self._process.kill()
                raise
            finally:
                self._is_asked = False
            return NUMBER.unpack(told[0])[0], told[1]


@attrs.define(eq=False)
class Forked:
    """A worker that the fork server forked: a ``Child``."""

    server: ForkServer
    pid: int
    end: int
    """A descriptor that becomes readable when the process has ended; ``wait`` closes it."""
    _status: int | None = attrs.field(default=None, init=False)
    _close: weakref.finalize[[int], Forked] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._close = weakref.finalize(self, os.close, self.end)
        self._close.atexit = False

    def wait(self, timeout: float | None = None) -> int | None:
        """See ``Child.wait``."""
        if self._close.alive:
            end = select.poll()
            end.register(self.end, select.POLLIN)
            if not end.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(f"worker process {self.pid}", timeout or 0.0)
            self._close()
            self._status = self.server.status(self.pid)
        return self._status

    def kill(self) -> None:
        """See ``Child.kill``."""
        if self._close.alive:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.end, signal.SIGKILL)


_current: ForkServer | None = None
_failures = 0
_MOST_FAILURES = 3
"""After this many fork servers in a row that were of no use, workers are new interpreters."""
_not_shared = set[str]()
"""Modules that a fork server did not bear: each worker imports them for itself."""
_lock = threading.Lock()


def fork_server() -> ForkServer | None:
    """The fork server with the surroundings of this moment, if one can be had."""
    global _current, _failures
    with _lock:
        if _current is not None and _current.gone:
            _current, _failures = None, _failures + 1
        if _failures == _MOST_FAILURES:
            return None
        if _current is None or not _current.suits(ProcessEnvironment()):
            _current = ForkServer()
        return _current


def _disown() -> None:
    global _current, _lock
    _lock = threading.Lock()  # another thread may have held it
    if _current is not None:
        _current.disown()
        _current = None


os.register_at_fork(after_in_child=_disown)


def _end(owner: int, link: socket.socket, process: subprocess.Popen[bytes]) -> None:
    if os.getpid() != owner:
        return
    link.close()  # it leaves when this closes
    try:
        process.wait(SECONDS_TO_LEAVE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
