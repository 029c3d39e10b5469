"""The address of a receiver is in use.

The error names the address and the reason; the first receiver is not disturbed.
"""

from __future__ import annotations

import socket

import flowdsl as fl

with socket.create_server(("127.0.0.1", 0)) as other:
    port = other.getsockname()[1]
    try:
        fl.from_zmq(f"tcp://127.0.0.1:{port}").collect()
    except fl.SourceError as error:
        print(str(error).replace(str(port), "PORT"))

# Seen:
# from_zmq: 'tcp://127.0.0.1:PORT' cannot be bound: Address already in use
