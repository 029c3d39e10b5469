"""Mistakes with flows across machines, as in ``bad``."""

from __future__ import annotations

import flowdsl as fl
from flowdsl.remote import Curve
from tests.typing.good import Sample, numbers

one = fl.from_zmq("ipc://a", Sample)
several = fl.from_zmq("ipc://a", Sample, senders=2)
endless = fl.from_zmq("ipc://a", Sample, senders=None)

# -- sources ---------------------------------------------------------------------------------------
fl.from_zmq(3)  # E: call-overload
fl.from_zmq("ipc://a", 3)  # E: call-overload
fl.from_zmq("ipc://a", senders="2")  # E: call-overload
fl.from_zmq("ipc://a", format="pickle")  # E: call-overload
fl.from_zmq("ipc://a", format="zmq_ops", senders=2)  # E: call-overload
fl.from_zmq("ipc://a", security="secret")  # E: call-overload
fl.from_zmq("ipc://a", timeout="60")  # E: call-overload
one.size()  # E: misc
one.map(lambda s: s.lable)  # E: attr-defined
several.zip(numbers)  # E: misc
endless.collect()  # E: misc
fl.from_zmq("ipc://a", format="zmq_ops").collect()  # E: misc
fl.from_zmq("ipc://a").batch(32)  # E: call-overload

# -- sending ---------------------------------------------------------------------------------------
numbers.send_zmq(3)  # E: arg-type
numbers.send_zmq("ipc://a", True)  # E: call-arg
numbers.send_zmq("ipc://a", format="pickle")  # E: arg-type
numbers.send_zmq("ipc://a", timeout="60")  # E: arg-type
Curve("secret", peers=3)  # E: arg-type
