"""The host of an address is not found.

A name may be defined later, so the sender keeps trying; with `timeout=` it is an error that says
so.
"""

from __future__ import annotations

import flowdsl as fl

fl.from_range(3).send_zmq("tcp://nowhere.invalid:5555", insecure=True, timeout=0.3)

# Seen:
# flowdsl.errors.SourceError: send_zmq: 'tcp://nowhere.invalid:5555': after 0 acknowledged elements,
# no receiver was there for 0.3 s; is fl.from_zmq running at the other end, with a key that is known
# here?; the host 'nowhere.invalid' is not found: ...
