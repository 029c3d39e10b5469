"""Waiting times of a push, with a simulated clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import zmq

from flowdsl import SourceError
from flowdsl.remote import pushing


@attrs.define
class Clock:
    now: float = 0.0


@attrs.define(eq=False)
class Frame:
    """A message that the system accepts after this many waits."""

    clock: Clock
    left: int
    done: bool = False

    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.left -= 1
        self.done = self.left <= 0
        if not self.done:
            raise zmq.NotDone


@attrs.define
class Link:
    """A simulated link with scripted room for elements."""

    clock: Clock
    has_room: Callable[[], bool]
    waits: int
    refusals: str = ""

    def push(self, frame: object, seconds: float) -> Any:
        if self.has_room():
            return Frame(self.clock, self.waits)
        self.clock.now += seconds
        return None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pushing, "monotonic", lambda: clock.now)
    monkeypatch.setattr(pushing, "BEAT", 0.5)
    return clock


def pushed(link: Link, timeout: float | None, count: int) -> pushing._Pushed:
    here: Any = link
    pushed = pushing._Pushed("send_zmq: 'a'", here, timeout)
    for _ in range(count):
        pushed.put(b"")
    return pushed


@pytest.mark.parametrize("timeout", [1, None])
def test_a_slow_receiver_is_waited_for(clock: Clock, timeout: float | None) -> None:
    sent = pushed(Link(clock, lambda: True, waits=2), timeout, 30)
    sent.wait_until_accepted()
    assert (len(sent.waiting), clock.now) == (0, 30.0)


def test_a_full_socket_is_waited_for_while_elements_leave_it(clock: Clock) -> None:
    def leaves() -> bool:
        frames: Any = sent.waiting
        if len(frames) == 10 and clock.now % 1 == 0.5:
            frames[0].done = True
        return len(frames) < 10

    sent = pushed(Link(clock, leaves, waits=1), 1, 0)
    for _ in range(30):
        sent.put(b"")
    assert sent.count == 30
    assert clock.now > 10


def test_no_timeout_waits_forever(clock: Clock) -> None:
    sent = pushed(Link(clock, lambda: True, waits=100_000), None, 1)
    sent.wait_until_accepted()
    assert clock.now == 50_000


def test_a_timeout_without_progress_is_an_error(clock: Clock) -> None:
    sent = pushed(Link(clock, lambda: True, waits=9), 2, 3)
    frames: Any = sent.waiting
    frames[1].done = True  # by another connection
    with pytest.raises(SourceError) as caught:
        sent.wait_until_accepted()
    assert str(caught.value) == "send_zmq: 'a': after 1 elements, nobody received for 2 s"
    assert clock.now == 3.0  # the first look saw one go


def test_a_timeout_without_room_is_an_error(clock: Clock) -> None:
    sent = pushed(Link(clock, lambda: sent.count < 3, waits=9), 2, 0)
    for _ in range(3):
        sent.put(b"")
    with pytest.raises(SourceError, match="after 0 elements, nobody received for 2 s"):
        sent.put(b"")
    assert clock.now == 2.5
