"""A program that stores rows of another machine is stopped between storing and committing.

With `auto_commit=False`, rows are acknowledged by `run.commit()`, and the sender sends the others
again. Their numbers, given at the sender, tell the store which of them it has.
"""

from __future__ import annotations

import threading

import flowdsl as fl

sender = fl.from_items("abcde").enumerate()
thread = threading.Thread(target=sender.send_zmq, args=["ipc://wire"], kwargs={"serve": True})
thread.start()
stored = dict[int, str]()


def store(until: int) -> None:
    rows = fl.from_zmq("ipc://wire", tuple[int, str], auto_commit=False)
    with iter(rows) as run:
        for number, row in run:
            print("again" if number in stored else "new", number, row)
            stored[number] = row
            if number == until:
                return  # it is not committed
            run.commit()
        run.commit()


store(until=2)
store(until=9)
thread.join()

# Seen:
# new 0 a
# new 1 b
# new 2 c
# again 2 c
# new 3 d
# new 4 e
