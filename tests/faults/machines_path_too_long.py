"""The path of an `ipc` address is longer than the system allows.

The error names the address and the reason.
"""

from __future__ import annotations

import flowdsl as fl

fl.from_zmq("ipc://" + "w" * 120).collect()

# Seen:
# flowdsl.errors.SourceError: from_zmq:
# 'ipc://wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww'
# cannot be bound: File name too long
