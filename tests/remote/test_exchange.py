"""A sender and a receiver over a simulated network that loses, delays and repeats messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowdsl.errors import SourceError
from flowdsl.remote.message import (
    Frame,
    Kind,
    MessageHeader,
    Packed,
    Route,
    decode_reason,
    pack,
    unpack,
)
from flowdsl.remote.receive_state import ReceiveState, Tally
from flowdsl.remote.send_buffer import SendBuffer
from tests.sampling import examples

HERE: Route = (0, b"")


def never(_: Route) -> bool:
    return False


def always(_: Route) -> bool:
    return True


@attrs.define
class Network:
    """A sender and its receiver, with the messages in flight in both directions."""

    count: int
    box: SendBuffer
    receive_state: ReceiveState
    up: deque[list[Frame]] = attrs.field(factory=deque[list[Frame]])
    down: deque[list[Frame]] = attrs.field(factory=deque[list[Frame]])
    stale: deque[list[Frame]] = attrs.field(factory=deque[list[Frame]])
    made: int = 0
    got: list[Any] = attrs.field(factory=list[Any])

    def make(self) -> None:
        if self.made < self.count and not self.box.full:
            self.box.put(pack(self.made))
            self.made += 1
        elif self.made == self.count and self.box.count is None:
            self.box.end()

    def send(self) -> None:
        frames = self.box.due()
        if frames is not None:
            self.up.append(frames)
            self.box.sent()

    def say_hello(self) -> None:
        self.up.append(self.box.hello())

    def arrive(self) -> None:
        if self.up:
            self.receive_state.receive(HERE, self.up.popleft())

    def arrive_late(self) -> None:
        if self.stale:
            self.receive_state.receive(HERE, self.stale.popleft())

    def take(self) -> None:
        if self.receive_state.ready:
            item = self.receive_state.hand_on()
            if item.kind is not Kind.END:
                self.got.append(unpack(item.kind, item.frames))

    def answer(self) -> None:
        self.down += [frames for _, frames in self.receive_state.replies()]

    def greet(self) -> None:
        self.down.append(self.receive_state.greeting())

    def remind(self) -> None:
        for inbox in self.receive_state.inboxes.values():
            inbox.owed = True

    def receive(self) -> None:
        if self.down:
            reply = self.box.receive(HERE, self.down.popleft())
            if reply is not None:
                self.up.append(reply)

    def cut(self) -> None:
        """Lose the messages in flight."""
        self.up.clear()
        self.down.clear()

    def cut_with_a_rest(self) -> None:
        """Delay some messages until after messages of the next connection."""
        self.stale += list(self.up)[: len(self.up) // 2 + 1]
        self.cut()

    def repeat(self) -> None:
        if self.up:
            self.up.append(self.up[0])


STEPS: list[Callable[[Network], None]] = [
    *(Network.make, Network.send, Network.arrive, Network.take, Network.answer, Network.receive)
    * 3,
    *(Network.say_hello, Network.greet, Network.remind, Network.arrive_late),
    *(Network.cut, Network.cut_with_a_rest, Network.repeat),
]


def network(count: int, sender_hwm: int, receiver_hwm: int) -> Network:
    box = SendBuffer(sender_hwm, serve=False, gone=never)
    return Network(count, box, ReceiveState(1, receiver_hwm, Tally()))


def settle(net: Network, rounds: int) -> None:
    """Let both ends continue without further losses."""
    for _ in range(rounds):
        if net.box.finished and net.receive_state.ended:
            return
        net.say_hello()
        net.remind()
        for step in (Network.make, Network.send) * 20:
            step(net)
        while net.up or net.stale:
            net.arrive()
            net.arrive_late()
        while net.receive_state.ready:
            net.take()
        net.answer()
        while net.down:
            net.receive()
    pytest.fail("they did not come to an end")


@settings(max_examples=examples(500))
@given(
    st.integers(0, 12),
    st.integers(1, 5),
    st.integers(1, 5),
    st.lists(st.sampled_from(STEPS), max_size=150),
)
def test_each_element_arrives_once_and_in_order_despite_losses(
    count: int, sender_hwm: int, receiver_hwm: int, steps: list[Callable[[Network], None]]
) -> None:
    net = network(count, sender_hwm, receiver_hwm)
    for step in steps:
        step(net)
        assert len(net.box.items) <= sender_hwm + 1
        assert len(net.receive_state.ready) <= min(sender_hwm, receiver_hwm) + 1
        assert net.got == list(range(len(net.got)))
        assert net.box.taken <= len(net.got)
    settle(net, rounds=200)
    assert net.got == list(range(count))
    assert net.box.taken == count
    assert net.receive_state.tally.ended == 1


@given(st.lists(st.sampled_from(STEPS[:18]), max_size=100))
def test_without_losses_elements_are_sent_once(steps: list[Callable[[Network], None]]) -> None:
    net = network(8, 3, 3)
    for step in (Network.say_hello, Network.arrive, Network.answer, Network.receive, *steps):
        step(net)
    settle(net, rounds=100)
    assert net.got == list(range(8))
    assert net.receive_state.tally.duplicates == 0


@settings(max_examples=examples(300))
@given(st.integers(1, 10), st.lists(st.sampled_from(STEPS[:18]), max_size=80), st.booleans())
def test_the_next_receiver_gets_what_the_first_did_not_take(
    count: int, steps: list[Callable[[Network], None]], says_so: bool
) -> None:
    net = network(count, 4, 4)
    net.box.serve, net.box.gone = True, always
    for step in (Network.say_hello, *steps):
        step(net)
    net.cut()
    if says_so:
        net.down += [frames for _, frames in net.receive_state.farewells()]
        while net.down:
            net.receive()
    if net.box.finished:
        return
    taken = net.box.taken
    first, net.got, net.receive_state = net.got, [], ReceiveState(1, 4, Tally())
    settle(net, rounds=100)
    assert net.got == list(range(taken, count))
    assert net.receive_state.tally.earlier == taken
    assert first == list(range(len(first)))
    if says_so:
        assert first + net.got == list(range(count))


LEFT_EARLY = (
    "the receiver left after it had taken 2 elements, before the end; pass serve=True to "
    "continue with the next receiver"
)


def met(serve: bool, gone: bool, taken: int) -> tuple[SendBuffer, ReceiveState]:
    """A sender with a receiver that has taken some elements; and another receiver."""
    net = network(9, 4, 4)
    net.box.serve, net.box.gone = serve, lambda _: gone
    net.say_hello()
    while net.box.taken < taken or not net.receive_state.inboxes:
        for step in STEPS[:6]:
            step(net)
    for step in (Network.answer, Network.receive, Network.receive):
        step(net)
    return net.box, ReceiveState(1, 4, Tally())


@pytest.mark.parametrize(("serve", "taken"), [(False, 0), (True, 2)])
def test_a_new_receiver_replaces_a_dead_one(serve: bool, taken: int) -> None:
    box, other = met(serve, True, taken)
    reply = box.receive((0, b"other"), other.greeting())
    assert reply is not None
    other.receive(HERE, reply)
    assert other.inboxes[box.me].expected == box.cursor == taken


@pytest.mark.parametrize(("serve", "taken"), [(False, 0), (True, 2)])
def test_a_second_receiver_is_refused(serve: bool, taken: int) -> None:
    box, other = met(serve, False, taken)
    reply = box.receive((0, b"other"), other.greeting())
    assert reply is not None
    with pytest.raises(SourceError) as caught:
        other.receive(HERE, reply)
    assert str(caught.value) == (
        f"the sender serves another receiver, which has taken {taken} elements; it takes another "
        f"only when the first has left, and with serve=True"
    )


def test_a_new_receiver_that_would_miss_elements_is_an_error() -> None:
    box, other = met(serve=False, gone=True, taken=2)
    with pytest.raises(SourceError) as caught:
        box.receive((0, b"other"), other.greeting())
    assert str(caught.value) == LEFT_EARLY
    assert box.route == (0, b"other")
    with pytest.raises(SourceError) as caught:  # the new receiver gets the reason
        other.receive(HERE, box.stop(LEFT_EARLY))
    assert str(caught.value) == f"the sender {box.me[:4].hex()} failed: {LEFT_EARLY}"


def test_a_new_receiver_that_accepts_failing_senders() -> None:
    box, _ = met(serve=False, gone=True, taken=2)
    other = ReceiveState(None, 4, Tally())
    with pytest.raises(SourceError):
        box.receive((0, b"other"), other.greeting())
    other.receive(HERE, box.stop("why"))
    assert other.tally.stopped == {box.me[:4].hex(): "why"}


def test_a_new_receiver_after_one_took_all_elements() -> None:
    box = SendBuffer(4, serve=False, gone=lambda _: True)
    box.put(pack("only"))
    box.end()
    first, other = ReceiveState(1, 4, Tally()), ReceiveState(1, 4, Tally())
    box.receive(HERE, first.greeting())
    box.receive(HERE, [MessageHeader(Kind.WANT, box.me, box.receiver, upto=1).encode()])
    assert (box.finished, box.route) == (False, HERE)
    assert box.receive((0, b"other"), other.greeting()) is None
    assert (box.finished, box.taken) == (True, 1)


def test_a_receiver_that_leaves_early_is_an_error() -> None:
    box, _ = met(serve=False, gone=True, taken=2)
    assert box.items
    leave = MessageHeader(Kind.LEAVE, box.me, box.receiver, upto=2)
    with pytest.raises(SourceError) as caught:
        box.receive(HERE, [leave.encode()])
    assert str(caught.value) == LEFT_EARLY


@pytest.mark.parametrize("ended", [True, False])
def test_a_receiver_may_leave_after_the_last_element(ended: bool) -> None:
    box = SendBuffer(4, serve=False, gone=never)
    receive_state = ReceiveState(1, 4, Tally())
    box.put(pack("only"))
    if ended:
        box.end()
    box.receive(HERE, receive_state.greeting())
    box.receive(HERE, [MessageHeader(Kind.LEAVE, box.me, box.receiver, upto=1).encode()])
    if not ended:
        box.end()
    assert box.finished
    assert box.taken == 1


def test_a_receiver_that_leaves_before_more_elements_is_an_error() -> None:
    box = SendBuffer(4, serve=False, gone=never)
    box.put(pack("first"))
    box.receive(HERE, ReceiveState(1, 4, Tally()).greeting())
    box.receive(HERE, [MessageHeader(Kind.LEAVE, box.me, box.receiver, upto=1).encode()])
    with pytest.raises(SourceError, match="the receiver left after it had taken 1 elements"):
        box.put(pack("second"))


def sent(count: int) -> tuple[Network, list[list[Frame]]]:
    """A sender and a receiver that know each other, and the elements in flight."""
    net = network(count, 8, 8)
    net.say_hello()
    for step in (Network.arrive, Network.answer, Network.receive, Network.arrive, Network.answer):
        step(net)
    for _ in range(count):
        net.make()
        net.send()
    while net.down:
        net.receive()
    return net, list(net.up)


def test_a_gap_is_reported_immediately_and_resent_once() -> None:
    net, (_, second, third) = sent(3)
    attempt = net.box.attempt
    answers: list[list[Frame]] = []
    for frames in (second, third):
        net.receive_state.receive(HERE, frames)
        answers += [answer for _, answer in net.receive_state.replies()]
    assert not net.receive_state.ready
    headers = [MessageHeader.decode(answer[0]) for answer in answers]
    assert [(h.kind, h.number, h.attempt) for h in headers] == [(Kind.AGAIN, 0, attempt)] * 2
    net.box.receive(HERE, answers[0])
    assert (net.box.cursor, net.box.attempt) == (0, attempt + 1)
    net.send()
    net.box.receive(HERE, answers[1])
    assert net.box.cursor == 1


def test_taken_elements_are_not_sent_again() -> None:
    net, elements = sent(3)
    net.box.receive(HERE, [header(net, Kind.AGAIN, number=0).encode()])
    for frames in elements:  # they come all the same, by the old connection
        net.receive_state.receive(HERE, frames)
        net.take()
    net.box.receive(HERE, [header(net, Kind.WANT, number=2, upto=2).encode()])
    assert (net.box.base, net.box.cursor) == (2, 2)
    due = net.box.due()
    assert due is not None
    assert MessageHeader.decode(due[0]).number == 2


def header(net: Network, kind: Kind, **numbers: int) -> MessageHeader:
    box = net.box
    return MessageHeader(kind, box.me, box.receiver, box.attempt, **numbers, room=8)


def test_elements_for_another_receiver_are_not_taken() -> None:
    net, (element,) = sent(1)
    stray = attrs.evolve(MessageHeader.decode(element[0]), receiver=b"another receiver")
    net.receive_state.receive(HERE, [stray.encode(), *element[1:]])
    assert not net.receive_state.ready
    net.receive_state.receive(HERE, element)
    assert len(net.receive_state.ready) == 1


def test_a_surplus_sender_is_refused_and_others_continue() -> None:
    receive_state = ReceiveState(1, 4, Tally())
    first, second = (SendBuffer(4, serve=False, gone=never) for _ in range(2))
    for box in (first, second):
        box.receive(HERE, receive_state.greeting())
        receive_state.receive(HERE, box.hello())
    (inbox,) = receive_state.inboxes.values()
    (_, refusal), (_, want) = receive_state.replies()
    assert MessageHeader.decode(want[0]).kind is Kind.WANT
    with pytest.raises(SourceError) as caught:
        second.receive(HERE, refusal)
    assert str(caught.value) == (
        f"the receiver refused: it takes 1 sender and already has {inbox.name}; its from_zmq needs "
        f"senders=n for more"
    )
    assert second.route is None  # there is nobody to take leave of
    assert first.receive(HERE, refusal) is None  # it is not for this one
    assert first.route is not None


def test_a_refused_sender_does_not_end_the_pass() -> None:
    receive_state = ReceiveState(1, 4, Tally())
    first, second = (SendBuffer(4, serve=False, gone=never) for _ in range(2))
    for box in (first, second):
        box.receive(HERE, receive_state.greeting())
        receive_state.receive(HERE, box.hello())
    receive_state.receive(HERE, second.stop("gave up"))
    assert [inbox.stopped for inbox in receive_state.inboxes.values()] == [None]


def test_messages_for_another_receiver_are_ignored() -> None:
    receive_state = ReceiveState(1, 4, Tally())
    box = SendBuffer(4, serve=False, gone=never)
    box.put(pack(1))
    box.receive(HERE, ReceiveState(1, 4, Tally()).greeting())
    element = box.due()
    assert element is not None
    receive_state.receive(HERE, element)
    assert (list(receive_state.ready), receive_state.tally.unclaimed) == ([], 1)


STRAY = [
    [b"GET / HTTP/1.1"],
    [MessageHeader(Kind.WANT, bytes(16)).encode()],
    [b"FLOW\x02" + bytes(63)],
]


@pytest.mark.parametrize("frames", STRAY, ids=["of others", "of a receiver", "of a version"])
def test_an_invalid_message_does_not_end_an_open_receiver(frames: list[Frame]) -> None:
    receive_state, box = ReceiveState(None, 4, Tally()), SendBuffer(4, serve=False, gone=never)
    box.receive(HERE, receive_state.greeting())
    receive_state.receive((0, b"stranger"), frames)
    receive_state.receive(HERE, box.hello())
    receive_state.receive((0, b"stranger"), frames)
    assert receive_state.tally.refused == 2
    with pytest.raises(SourceError):  # of who is known
        receive_state.receive(HERE, frames)
    with pytest.raises(SourceError):  # as many as are to come may not come
        ReceiveState(1, 4, Tally()).receive((0, b"stranger"), frames)


@pytest.mark.parametrize("kind", [Kind.WANT, Kind.AGAIN, Kind.LEAVE])
def test_a_receiver_refuses_messages_of_receivers(kind: Kind) -> None:
    with pytest.raises(SourceError, match=f"of kind {kind.name}, which no sender sends"):
        ReceiveState(1, 4, Tally()).receive(HERE, [MessageHeader(kind, bytes(16)).encode()])


@pytest.mark.parametrize(
    "kind", [Kind.HELLO, Kind.ELEMENT, Kind.PICKLED, Kind.END, Kind.DONE, Kind.REFUSE]
)
def test_a_sender_refuses_messages_of_senders(kind: Kind) -> None:
    with pytest.raises(SourceError, match=f"of kind {kind.name}, which no receiver sends"):
        SendBuffer(4, False, never).receive(HERE, [MessageHeader(kind, bytes(16)).encode()])


def test_a_reason_is_one_printable_line() -> None:
    assert decode_reason([]) == decode_reason([b""]) == "no reason given"
    assert decode_reason([b"a\x1b[2J\nb\xff" + b"c" * 9000])[:12] == "a [2J b\ufffdcccc"
    assert len(decode_reason([b"c" * 9000])) == 2000


def test_the_receiver_limits_the_elements_sent() -> None:
    box = SendBuffer(5, serve=False, gone=never)
    for i in range(5):
        box.put(Packed(Kind.ELEMENT, (bytes([i]),)))
    assert box.due() is None  # nobody is there
    box.receive(HERE, ReceiveState(1, 2, Tally()).greeting())
    sent = 0
    while box.due() is not None:
        box.sent()
        sent += 1
    assert sent == 2
