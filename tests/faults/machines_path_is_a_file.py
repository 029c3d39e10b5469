"""The path of an `ipc` address is the path of a file.

The file is not replaced; the error names the path.
"""

from __future__ import annotations

from pathlib import Path

import flowdsl as fl

Path("notes").write_text("mine")
try:
    fl.from_zmq("ipc://notes").collect()
except fl.SourceError as error:
    print(error)
print(Path("notes").read_text())

# Seen:
# from_zmq: 'ipc://notes' cannot be bound: File exists
# mine
