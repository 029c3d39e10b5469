"""An address without keys can be reached from other machines.

It is refused when the flow is built: anyone could read the rows or send others.
"""

from __future__ import annotations

import flowdsl as fl

fl.from_zmq("tcp://*:5555")

# Seen:
# flowdsl.errors.InvalidFlow: from_zmq: 'tcp://*:5555' is open to other machines: whoever reaches it
# could read the elements or send others; pass security=Curve(...) with keys of make_keys(), or
# insecure=True in a network where that does not matter
