"""The flow of a sender fails on a row.

Both ends get the error: the receiver at the position of the row, after all rows before it.
"""

from __future__ import annotations

import threading

import flowdsl as fl


def send() -> None:
    try:
        fl.from_range(4).map(lambda i: 6 / (2 - i)).send_zmq("ipc://wire")
    except fl.ElementError as error:
        print("at the sender:", error)


thread = threading.Thread(target=send)
thread.start()
try:
    for row in fl.from_zmq("ipc://wire", float):
        print(row)
finally:
    thread.join()

# Seen:
# 3.0
# 6.0
# at the sender: map(<lambda>) failed on element 2 (row 2 of from_range(4)):
# ZeroDivisionError('division by zero'); the element was 2
# flowdsl.errors.SourceError: from_zmq: the sender ... failed after 2 elements: ElementError:
# map(<lambda>) failed on element 2 (row 2 of from_range(4)): ZeroDivisionError('division by
# zero'); the element was 2
