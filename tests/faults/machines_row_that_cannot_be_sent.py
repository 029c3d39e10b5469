"""A row has a value that cannot be sent.

The error names the row and the component, at both ends; the rows before it are delivered.
"""

from __future__ import annotations

import threading

import flowdsl as fl


def send() -> None:
    try:
        fl.from_items([(1, "a"), (2, {3})]).send_zmq("ipc://wire")
    except fl.SpecMismatch as error:
        print("at the sender:", error)


thread = threading.Thread(target=send)
thread.start()
try:
    for row in fl.from_zmq("ipc://wire"):
        print(row)
finally:
    thread.join()

# Seen:
# (1, 'a')
# at the sender: send_zmq: element 1: element.1: set cannot be written; arrays, bool, int, float,
# complex, text, bytes, None, lists, dicts, tuples and records can
# flowdsl.errors.SourceError: from_zmq: the sender ... failed after 1 elements: SpecMismatch:
# send_zmq: element 1: element.1: set cannot be written; arrays, bool, int, float, complex, text,
# bytes, None, lists, dicts, tuples and records can
