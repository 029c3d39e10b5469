"""A receiver leaves before the end, and no other may follow.

The sender does not return as if all rows had arrived: it is an error that says how many were
delivered.
"""

from __future__ import annotations

import threading

import flowdsl as fl

errors = list[fl.SourceError]()


def send() -> None:
    try:
        fl.from_range(100).send_zmq("ipc://wire")
    except fl.SourceError as error:
        errors.append(error)


thread = threading.Thread(target=send)
thread.start()
print(fl.from_zmq("ipc://wire", int).take(3).collect())
thread.join()
print(*errors)

# Seen:
# [0, 1, 2]
# send_zmq: 'ipc://wire': the receiver left after it had acknowledged 3 elements, before the end;
# pass serve=True to continue with the next receiver
