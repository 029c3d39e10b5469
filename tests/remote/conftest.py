"""Fixtures of tests of senders and receivers."""

from __future__ import annotations

import pytest

from flowdsl.remote import receive_state, receiver
from flowdsl.remote.receive_state import ReceiveState
from flowdsl.remote.sockets import Link
from tests.remote.wires import ReceiverClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ReceiverClock:
    clock, listen = ReceiverClock(), receiver._listen

    def listened(link: Link, state: ReceiveState) -> bool:
        heard = listen(link, state)
        if clock.runs(heard):
            clock.now += 0.5  # a longer pause would excuse all senders
        return heard

    monkeypatch.setattr(receiver, "_listen", listened)
    for module in (receiver, receive_state):
        monkeypatch.setattr(module, "monotonic", clock.monotonic)
    return clock
