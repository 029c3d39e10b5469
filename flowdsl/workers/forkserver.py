"""The fork server: a small process that has imported what workers need, and forks them on request.

The problem: a worker as a new interpreter takes a quarter of a second to import NumPy. Forking the
user's process takes milliseconds, but copies its threads' locks in an arbitrary state, so the fork
may deadlock. The choice: fork a separate process, which has one thread, no ZMQ context and no
objects of the user, so its forks are in a consistent state. ``multiprocessing`` has a start method
of the same name and idea.

``fork_requests`` has the requests and the answers.

A process that forks must not import a module that starts a thread or opens a file: the thread is
missing in the workers, and they would share the file. The answer is then ``UNFIT``, minus the
number of modules before that one, and the consumer does not use this fork server any more.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import os
import select
import signal
import socket
import sys

from flowdsl.workers import worker
from flowdsl.workers.fork_requests import FDS, FORK, LARGEST, NOT_KNOWN, NUMBER, UNFIT
from flowdsl.workers.titles import set_title


def main(fd: int) -> None:
    """Fork workers until the consumer closes the socket or is gone; in a fork, run the worker."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, exit statuses are lost
    set_title("flowdsl forks", f": starts the workers of process {os.getppid()}")
    gc.freeze()  # so that a collection in a worker does not write to pages that all share
    worker.main(_fork_on_request(fd, os.getppid()))


def _fork_on_request(control: int, consumer: int) -> int:
    """Serve requests; returns only in a worker, with the descriptor of its link."""
    server = socket.socket(fileno=control)
    alive: dict[int, int] = {}
    """The process ids of the workers, by the descriptors that become readable at their end."""
    ended: dict[int, int] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    try:
        gone = os.pidfd_open(consumer)  # watched, since a fork of it may hold the socket open
    except ProcessLookupError:
        os._exit(0)
    poll.register(gone, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        for end in ready & alive.keys():
            poll.unregister(end)
            pid = alive.pop(end)
            ended[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.close(end)
        if gone in ready:
            os._exit(0)
        if control not in ready:
            continue
        request, fds, _, _ = socket.recv_fds(server, LARGEST, FDS)
        if not request:
            os._exit(0)
        (request_number,) = NUMBER.unpack_from(request)
        if request_number != FORK:
            _answer(server, ended.pop(request_number, NOT_KNOWN))
            continue
        names = request[NUMBER.size :].decode().split()
        if len(fds) < FDS:
            pid_or_error = -errno.EMFILE
        elif (fit := _import(names)) < len(names):
            pid_or_error = UNFIT - fit
        else:
            pid_or_error = _fork()
        if pid_or_error == 0:  # in the fork
            server.detach()  # its descriptor number will be reused
            return _begin(fds)
        for fd in fds:
            os.close(fd)
        if pid_or_error < 0:
            _answer(server, pid_or_error)
            continue
        pid = pid_or_error
        end = os.pidfd_open(pid)  # not waited for yet, so the id cannot have been reused
        alive[end] = pid
        poll.register(end, select.POLLIN)
        _answer(server, pid, end)


def _import(names: list[str]) -> int:
    """Import modules up to the first that makes this process unfit to be forked.

    Return the number of modules before that one.
    """
    if all(name in sys.modules for name in names):
        return len(names)
    try:
        opened = set(os.listdir("/proc/self/fd"))
    except FileNotFoundError:  # without /proc, no module is known to leave it fit
        return 0
    for fit, name in enumerate(names):
        if name not in sys.modules:
            with contextlib.suppress(Exception):  # the workers will raise it
                importlib.import_module(name)
            if not _can_be_forked(opened):
                return fit
    gc.freeze()
    return len(names)


def _can_be_forked(opened: set[str]) -> bool:
    if not _has_one_thread():
        child = os.fork()  # threads with fork handlers, such as OpenBLAS threads, end before a fork
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
    return _has_one_thread() and set(os.listdir("/proc/self/fd")) <= opened


def _has_one_thread() -> bool:
    return len(os.listdir("/proc/self/task")) == 1


def _fork() -> int:
    """Return what ``os.fork`` returns, or a negated error number."""
    try:
        return os.fork()
    except OSError as error:
        return -(error.errno or errno.EAGAIN)


def _answer(server: socket.socket, number: int, *fds: int) -> None:
    try:
        socket.send_fds(server, [NUMBER.pack(number)], fds)
    except ConnectionError:
        os._exit(0)


def _begin(fds: list[int]) -> int:
    """Become a worker, like a new interpreter: close all descriptors except those sent."""
    os.setpgid(0, 0)  # so that Ctrl-C in a terminal reaches the consumer alone
    link, folder, out, err = fds
    os.fchdir(folder)
    os.dup2(out, 1)
    os.dup2(err, 2)
    link = os.dup2(link, 3) if link != 3 else link
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    if random := sys.modules.get("numpy.random"):
        random.seed()  # else all workers draw the same numbers; Python reseeds its own generator
    return link
