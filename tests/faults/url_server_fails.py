"""A server fails, or closes the connection, while a file is read.

The request is repeated, up to four times for each part of the file: every row is read once.
"""

from __future__ import annotations

import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import flowdsl as fl

faults = ["fail", "cut"]


class Failing(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        match faults.pop(0) if faults else None:
            case "fail":
                self.send_error(500)
            case "cut":
                self.send_response(200)
                self.send_header("Content-Length", "8")
                self.end_headers()
                self.wfile.write(b"one\n")
            case _:
                super().do_GET()

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  # no log


Path("rows.txt").write_text("one\ntwo\n")
server = ThreadingHTTPServer(("127.0.0.1", 0), Failing)
threading.Thread(target=server.serve_forever, daemon=True).start()
rows = fl.from_text(f"http://127.0.0.1:{server.server_port}/rows.txt")
print(rows.collect(), faults)

# Seen:
# ['one', 'two'] []
