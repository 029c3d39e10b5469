"""Launching: starts a worker process, forked by the fork server or as a new interpreter.

Either way the worker gets the consumer's environment at its start. Some settings cannot be
changed in a running process (the user, the variables that Python reads at its start); a forked
worker inherits them from the fork server. If such a setting has changed, a new fork server replaces
the old one. If no fork server is available, a worker is a new interpreter, which starts slower and
is otherwise equivalent.
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
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Protocol

import attrs

from flowdsl.resources.streams import fill_standard_descriptors
from flowdsl.workers import native_threads
from flowdsl.workers.fork_requests import FORK, NOT_KNOWN, NUMBER, UNFIT
from flowdsl.workers.modules import may_have_read_environment
from flowdsl.workers.process_environment import HASH_SEED, ProcessEnvironment, hash_seed

SECONDS_TO_ANSWER = 10.0
"""A fork server that has not answered after this time is abandoned; its workers continue."""

SECONDS_TO_IMPORT = 60.0
"""Like ``SECONDS_TO_ANSWER``, for a fork server that imports modules first."""

SECONDS_TO_LEAVE = 0.5

_flags: Callable[[], list[str]] = vars(subprocess)["_args_from_interpreter_flags"]
"""Returns the options of this interpreter, such as ``-O``, for starting another one with them, as
multiprocessing does."""

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_START = os.path.join(_FOLDER, "worker_main.py")
_WORKER, _FORK_SERVER = "flowdsl.workers.worker", "flowdsl.workers.forkserver"
"""The modules that the new processes run. This process does not need them, and importing them here
would delay the start."""


class Child(Protocol):
    """A started process: the part of ``subprocess.Popen`` that a backend needs."""

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the end; return the exit status as in ``subprocess.Popen``, or None if unknown.

        Raises:
            subprocess.TimeoutExpired: The process has not ended after ``timeout`` seconds.
        """
        ...

    def kill(self) -> None:
        """Kill the process by SIGKILL, if it has not ended."""
        ...


def spawn(link: int) -> subprocess.Popen[bytes]:
    """Start a worker as a new interpreter that runs ``worker_main.py``, not the user's script."""
    return _interpreter(_WORKER, link)


def _interpreter(module: str, link: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *_flags(), "-P", _START, module, str(link), *sys.path],
        env={  # until the worker takes on the consumer's environment
            **os.environ,
            **native_threads.variables(native_threads.AT_FIRST),
            HASH_SEED: hash_seed(),
        },
        stdin=subprocess.DEVNULL,
        pass_fds=[link],
        process_group=0,  # so that Ctrl-C in a terminal reaches the consumer alone
    )


def start(link: int, modules: Collection[str] = ()) -> tuple[Child, int]:
    """Start a worker in the consumer's current folder; ``link`` is the worker's end of a socket.

    ``modules`` are the modules that the worker needs and may share with other workers. Return the
    process, which need not be ready yet, and a descriptor that becomes readable when it has ended.
    Starting takes milliseconds if a fork server has imported the modules already, and otherwise as
    long as importing them.
    """
    global _failures
    server = fork_server()
    if server is not None:
        try:
            child = server.fork(link, [name for name in modules if name not in _not_shared])
        except OSError:
            if server.gone:  # a module that was requested for the first time may be the reason
                _not_shared.update(name for name in modules if name not in server.modules)
        else:
            _failures = 0
            return child, os.dup(child.end)
    process = spawn(link)
    return process, os.pidfd_open(process.pid)  # not waited for yet, so the id is not reused


class ForkServer:
    """A handle to the fork server, in the consumer's process.

    It ends when neither this module nor a worker that it forked refers to it any more.
    """

    def __init__(self) -> None:
        """Start a fork server; requests may be sent before it is ready."""
        self._environment = ProcessEnvironment()
        self.gone = False
        """True if it failed to answer or is unfit; no further requests are sent."""
        self.modules = set[str]()
        """The modules that it has imported on request, and that left it fit to be forked."""
        self._lock = threading.RLock()
        self._is_busy = False
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = _interpreter(_FORK_SERVER, theirs.fileno())
        self._end = weakref.finalize(self, _end, os.getpid(), self._socket, self._process)

    @property
    def pid(self) -> int:
        """The process id of the fork server."""
        return self._process.pid

    def fork(self, link: int, modules: Sequence[str]) -> Forked:
        """Fork a worker on its end of a link, after importing some modules for all workers.

        Raises:
            OSError: The server has ended, does not answer, or cannot fork.
        """
        new = sorted(name for name in modules if name not in self.modules)
        seconds = SECONDS_TO_IMPORT if new else SECONDS_TO_ANSWER
        folder = os.open(".", os.O_PATH)
        try:
            pid, fds = self._ask(FORK, seconds, " ".join(new), [link, folder, 1, 2])
        finally:
            os.close(folder)
        if pid <= UNFIT:
            self.gone = True
            self.modules.update(new[: UNFIT - pid])
            raise OSError(errno.ENOTSUP, "a module has threads or open files in the fork server")
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        if not fds:
            raise OSError(errno.EMFILE, "no descriptor is left for a worker")
        self.modules.update(new)
        return Forked(self, pid, fds[0])

    def status(self, pid: int) -> int | None:
        """Return the exit status of a worker, or the negated signal number; None if unknown."""
        try:
            status, _ = self._ask(pid, SECONDS_TO_ANSWER)
        except OSError:
            return None
        return None if status == NOT_KNOWN else status

    def suits(self, now: ProcessEnvironment) -> bool:
        """Return True if its workers can adopt this environment."""
        every_variable = may_have_read_environment(self.modules)
        return self._environment.inherited(every_variable) == now.inherited(every_variable)

    def disown(self) -> None:
        """In a fork of the consumer: release the server, which belongs to the parent."""
        self.gone = True
        self._end.detach()
        self._socket.close()
        self._process.returncode = 0  # so that Popen does not wait for a child of the parent

    def _ask(
        self, number: int, seconds: float, text: str = "", fds: Sequence[int] = ()
    ) -> tuple[int, list[int]]:
        """Send a request, and return the number and the descriptors of the answer."""
        with self._lock:
            if self.gone or self._is_busy:  # busy: a finalizer interrupted a request of this thread
                raise OSError(errno.EAGAIN, "the fork server cannot take a request")
            self._is_busy = True
            try:
                self._socket.settimeout(seconds)
                socket.send_fds(self._socket, [NUMBER.pack(number), text.encode()], fds)
                answer, sent_fds, _, _ = socket.recv_fds(
                    self._socket, NUMBER.size, 1, socket.MSG_CMSG_CLOEXEC
                )
                if not answer:
                    raise ConnectionResetError(errno.ECONNRESET, "the fork server is gone")
            except BaseException:  # a late answer would be taken for the answer to a later request
                self.gone = True
                self._process.kill()
                raise
            finally:
                self._is_busy = False
            return NUMBER.unpack(answer)[0], sent_fds


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
"""The number of the last fork servers that became unusable, one after another."""
_MOST_FAILURES = 3
"""After this many unusable fork servers in a row, workers are new interpreters."""
_not_shared = set[str]()
"""Modules that each worker imports itself: those that made a fork server unfit, and those that were
requested together with them and come after them."""
_lock = threading.Lock()


def fork_server() -> ForkServer | None:
    """Return a fork server with the current environment, or None if none is available."""
    global _current, _failures
    with _lock:
        if _current is not None and _current.gone:
            _current, _failures = None, _failures + 1
        if _failures == _MOST_FAILURES:
            return None
        if _current is None or not _current.suits(ProcessEnvironment()):
            _current = ForkServer()
        return _current


@cache
def begin() -> None:
    """Start a fork server, once in a process, before a run has imported what it needs.

    To import the modules of runs and to plan a flow takes about as long as the start of the fork
    server, which does not wait for them.
    """
    fill_standard_descriptors()
    with contextlib.suppress(OSError):  # the start of the first worker tries again, and reports it
        fork_server()


def _disown() -> None:
    global _current, _lock
    begin.cache_clear()
    _lock = threading.Lock()  # another thread may have held it
    if _current is not None:
        _current.disown()
        _current = None


os.register_at_fork(after_in_child=_disown)


def _end(owner: int, link: socket.socket, process: subprocess.Popen[bytes]) -> None:
    if os.getpid() != owner:
        return
    link.close()  # the fork server ends when this closes
    try:
        process.wait(SECONDS_TO_LEAVE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
