"""A server no longer answers while a file is read.

After a minute the read is repeated, up to four times in all: every row is read once.
"""

from __future__ import annotations

import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import flowdsl as fl
from flowdsl.storage import urls

urls.SECONDS = 0.3  # not a minute here
stalls = [3600.0]


class Stalling(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if stalls:
            time.sleep(stalls.pop())
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  # no log


Path("rows.txt").write_text("one\ntwo\n")
server = ThreadingHTTPServer(("127.0.0.1", 0), Stalling)
threading.Thread(target=server.serve_forever, daemon=True).start()
rows = fl.from_text(f"http://127.0.0.1:{server.server_port}/rows.txt")
print(rows.collect(), stalls)

# Seen:
# ['one', 'two'] []
