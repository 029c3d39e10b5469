"""A local web server with the failures of real servers: errors, truncated answers, stalls."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Server:
    """Files by name, and the failures of the next requests for parts of them."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.times: dict[str, str] = {}
        """The time of the last change, as servers report it; some servers do not."""
        self.etags: dict[str, str] = {}
        self.has_conditions = True
        """False for a server that ignores conditions in requests."""
        self.answers_of_parts = True
        """False for a server that says the version of a file in answers to HEAD only."""
        self.sent = 0
        """The bytes of answers to GET."""
        self.endless = False
        """True if answers never end, whatever they say."""
        self.faults: list[str] = []
        """Of the next reads: "error", "cut", "stall", "pause", "forbid", "unmet"; "" for none."""
        self.ranges = True
        self.reads: Counter[str] = Counter()
        self.address = ""
        self.over = threading.Event()
        """Set to end stalled answers."""
        self.most_at_once = 0
        self.at_once = 0
        self._lock = threading.Lock()

    def url(self, name: str) -> str:
        return f"{self.address}/{name}"

    @contextmanager
    def reading(self, name: str) -> Iterator[str | None]:
        with self._lock:
            self.reads[name] += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            fault = self.faults.pop(0) if self.faults else None
        try:
            yield fault
        finally:
            with self._lock:
                self.at_once -= 1


@contextmanager
def served() -> Iterator[Server]:
    """Run a server until the end of the block."""
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            data = server.files.get(self.path[1:])
            self.send_response(404 if data is None else 200)
            self.send_header("Content-Length", str(len(data or b"")))
            self.send_version()
            if server.ranges:
                self.send_header("Accept-Ranges", "bytes")
            self.end_headers()

        def send_version(self) -> None:
            name = self.path[1:]
            if name in server.times:
                self.send_header("Last-Modified", server.times[name])
            if name in server.etags:
                self.send_header("ETag", server.etags[name])

        def do_GET(self) -> None:
            name = self.path[1:]
            data = server.files.get(name)
            if data is None:
                self.send_error(404)
                return
            since = self.headers.get("If-Unmodified-Since") if server.has_conditions else None
            if since is not None and since != server.times.get(name):
                self.send_error(412)
                return
            with server.reading(name) as fault:
                self.answer(data, fault)

        def answer(self, data: bytes, fault: str | None) -> None:
            if fault in ("error", "forbid", "unmet"):
                self.send_error({"error": 503, "forbid": 403, "unmet": 412}[fault])
                return
            if fault == "stall":
                server.over.wait()
                self.close_connection = True
                return
            asked = self.headers.get("Range") if server.ranges else None
            if asked is None:
                self.send_response(200)
            else:
                first, _, last = asked.removeprefix("bytes=").partition("-")
                start, end = int(first), min(int(last), len(data) - 1)
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{end}/{len(data)}")
                data = data[start : end + 1]
            if server.answers_of_parts:
                self.send_version()
            if server.endless:
                self.close_connection = True
            else:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if fault == "cut":
                data = data[: len(data) // 2]
                self.close_connection = True
            with suppress(ConnectionError):  # the client has read enough
                if fault == "pause":
                    self.wfile.write(data[: len(data) // 2])
                    server.over.wait()
                    data = data[len(data) // 2 :]
                self.wfile.write(data)
                server.sent += len(data)
                while server.endless and server.sent < 1 << 32:
                    self.wfile.write(bytes(1 << 16))
                    server.sent += 1 << 16

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name there
            return

    class Web(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Do nothing: a client closes connections as it likes."""

    with Web(("127.0.0.1", 0), Handler) as web:
        server.address = f"http://127.0.0.1:{web.server_address[1]}"
        thread = threading.Thread(target=web.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            web.shutdown()
            thread.join()
