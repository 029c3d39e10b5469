"""A receiver should bind an address that this machine does not have.

The error names the address and the reason.
"""

from __future__ import annotations

import flowdsl as fl

fl.from_zmq("tcp://192.0.2.1:5555", insecure=True).collect()

# Seen:
# flowdsl.errors.SourceError: from_zmq: 'tcp://192.0.2.1:5555' cannot be bound: Cannot assign
# requested address
