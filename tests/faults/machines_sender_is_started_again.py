"""A sender is killed, and started again while its receiver waits.

The sender continues from its last state. The receiver recognizes the sender, and the rows that it
has already: each row is delivered once.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import flowdsl as fl

flow = fl.from_range(200)


def save(state: dict[str, Any]) -> None:
    Path("new").write_text(json.dumps(state))
    os.replace("new", "state")


if (child := os.fork()) == 0:
    flow.send_zmq("ipc://wire", on_state=save)
run = iter(fl.from_zmq("ipc://wire", int, timeout=20))
rows = [next(run) for _ in range(100)]
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
saved = json.loads(Path("state").read_text())
again = threading.Thread(target=flow.send_zmq, args=["ipc://wire"], kwargs={"state": saved})
again.start()
rows += run
again.join()
print(rows == list(range(200)))

# Seen:
# True
