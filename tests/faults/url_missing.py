"""A server does not have a file.

An error names it when the flow is built, not at the first row.
"""

from __future__ import annotations

import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import flowdsl as fl


class Files(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  # no log


server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
threading.Thread(target=server.serve_forever, daemon=True).start()
fl.from_text(f"http://127.0.0.1:{server.server_port}/rows.txt")

# Seen:
# flowdsl.errors.SourceError: from_text: 'http://127.0.0.1:.../rows.txt' is missing
