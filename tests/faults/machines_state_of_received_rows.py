"""A program saves the state of a flow over rows that another machine sends.

This is refused, since the sender goes on by itself: a resumed run would leave out rows that it
never got. The error says where to save a state.
"""

from __future__ import annotations

import flowdsl as fl

iter(fl.from_zmq("ipc://wire", int).batch(2)).state_dict()

# Seen:
# flowdsl.errors.NotResumable: state_dict: from_zmq('ipc://wire') yields each element only once, so
# a resumed run would leave out elements that were never delivered; save and resume the flow at the
# other end, which sends or puts them
