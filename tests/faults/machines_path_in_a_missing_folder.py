"""The path of an `ipc` address is in a folder that does not exist.

The error names the address and the reason.
"""

from __future__ import annotations

import flowdsl as fl

fl.from_zmq("ipc://nowhere/wire").collect()

# Seen:
# flowdsl.errors.SourceError: from_zmq: 'ipc://nowhere/wire' cannot be bound: No such file or
# directory
