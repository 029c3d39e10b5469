"""Senders in threads, and a relay that breaks connections."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import attrs

import flowdsl as fl
from flowdsl.remote.message import Frame, MessageHeader, seal

AnyFlow: TypeAlias = fl.Flow[Any, Any]
ANY_PORT = "tcp://127.0.0.1:*"
WAIT = 30


@attrs.define
class Task:
    """A function in a thread, and its outcome."""

    run: Callable[[], Any]
    result: Any = None
    error: BaseException | None = None
    thread: threading.Thread = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        try:
            self.result = self.run()
        except BaseException as error:
            self.error = error

    def outcome(self) -> Any:
        """Return the result of the function, or raise its error."""
        self.thread.join(WAIT)
        assert not self.thread.is_alive(), "it does not come to an end"
        if self.error is not None:
            raise self.error
        return self.result


def sending(flow: AnyFlow, address: str, **options: Any) -> Task:
    return Task(lambda: flow.send_zmq(address, **{"timeout": WAIT, **options}))


def receiving(
    address: str, *element: Any, use: Callable[[AnyFlow], Any] = list, **options: Any
) -> Task:
    options = {"timeout": WAIT, **options}
    return Task(lambda: use(fl.from_zmq(address, *element, **options)))


def sealed(header: MessageHeader, *frames: Frame) -> list[Frame]:
    """Return the frames of a message, as a socket of flowdsl sends them."""
    content: list[Frame] = [header.encode(), *frames]
    return [*content, seal(content)]


def bound(task: Callable[..., Task], *args: Any, **options: Any) -> tuple[Task, str]:
    """Start a task that binds a free port; return it with the address."""
    bound: queue.Queue[str] = queue.Queue()
    started = task(*args, on_bound=bound.put, **options)
    return started, bound.get(timeout=WAIT)


class ReceiverClock:
    """The clock of receivers: time passes only while they listen, if a test lets it pass."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.runs: Callable[[bool], bool] = lambda heard: False
        """Return True if time passes; ``heard`` says whether a message has arrived."""

    def monotonic(self) -> float:
        return self.now


@attrs.define
class Relay:
    """Relays bytes between clients and a port, until it is asked to break the connections."""

    target: int
    every: int
    """The number of bytes in one direction after which a connection breaks; 0 for never."""
    server: socket.socket = attrs.field(init=False)
    cuts: int = 0
    closed: bool = False
    pairs: list[tuple[socket.socket, socket.socket]] = attrs.field(factory=list[Any])

    def __attrs_post_init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.server.getsockname()[1]}"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self.server.accept()
                try:
                    there = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    here.close()
                    continue
                self.pairs.append((here, there))
                for pair in ((here, there), (there, here)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        passed = 0
        with suppress(OSError):
            while data := source.recv(4096):
                passed += len(data)
                if self.every and passed > self.every:
                    self.cuts += 1
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def cut(self) -> None:
        self.cuts += 1
        for pair in self.pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.closed = True
        with suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        self.cut()


@contextmanager
def relayed(address: str, every: int = 0) -> Iterator[Relay]:
    relay = Relay(int(address.rpartition(":")[2]), every)
    try:
        yield relay
    finally:
        relay.close()
