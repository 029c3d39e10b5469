"""A sender connects to a port where nobody listens.

The receiver may start later, so the sender waits; with `timeout=` it is an error that names the
address.
"""

from __future__ import annotations

import flowdsl as fl

fl.from_range(3).send_zmq("tcp://127.0.0.1:9", timeout=0.3)

# Seen:
# flowdsl.errors.SourceError: send_zmq: 'tcp://127.0.0.1:9': after 0 acknowledged elements, no
# receiver was there for 0.3 s; is fl.from_zmq running at the other end, with a key that is known
# here?
