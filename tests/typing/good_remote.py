"""Flows across machines: chains of exactly these types, as in ``good``."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import Endless, Flow, Reordered, Resampled, Unsized
from flowdsl.remote import Curve, Keys, Tally, make_keys
from tests.typing.good import I64, U8, Sample, numbers, samples

AnyArrays = tuple[NDArray[Any], ...]


def stored(folder: Path) -> None:
    def address(name: str, flow: Flow[Any, Any], **options: Any) -> str:
        """A sender in a thread, of three elements, or of batches."""
        flow = flow.take(12 if name == "d" else 3)
        place = f"ipc://{folder}/{name}"
        options |= {"timeout": 60}

        def send() -> None:
            with suppress(fl.SourceError):  # the receiver leaves before the end
                flow.send_zmq(place, **options)

        threading.Thread(target=send, daemon=True).start()
        return place

    four = samples.repeat(4)
    assert_type(fl.from_zmq(address("a", numbers)), Flow[object, Unsized])
    assert_type(fl.from_zmq(address("b", samples), Sample), Flow[Sample, Unsized])
    assert_type(
        fl.from_zmq(address("c", samples), tuple[U8, np.int64], timeout=60, hwm=3),
        Flow[tuple[U8, np.int64], Unsized],
    )
    batches = fl.from_zmq(address("d", four), Sample, timeout=60).batch(4)
    assert_type(batches, Flow[tuple[U8, I64], Unsized])
    several = fl.from_zmq([address("e", four)], Sample, senders=2, timeout=60)
    assert_type(several, Flow[Sample, Unsized | Reordered])
    assert_type(
        fl.from_zmq(address("f", four), senders=2, timeout=60), Flow[object, Unsized | Reordered]
    )
    assert_type(
        fl.from_zmq(address("g", four), senders=None, timeout=60), Flow[object, Endless | Reordered]
    )
    any_number = fl.from_zmq(address("h", four), Sample, senders=None, timeout=60)
    assert_type(any_number, Flow[Sample, Endless | Reordered])
    pushed = fl.from_zmq(address("i", four, format="zmq_ops"), format="zmq_ops", timeout=60)
    assert_type(pushed, Flow[AnyArrays, Endless | Reordered | Resampled])
    named = fl.from_zmq(address("j", four, format="zmq_ops"), AnyArrays, format="zmq_ops")
    assert_type(named, Flow[AnyArrays, Endless | Reordered | Resampled])

    keys = make_keys()
    assert_type(keys, Keys)
    assert_type(Curve(keys.secret, peers=[keys.public]).public, str)
    assert_type(Tally().addresses, dict[str, int])
