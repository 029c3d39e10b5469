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

HERE: Route = Route(0, b"")


def never(_: Route) -> bool:
    return False


def always(_: Route) -> bool:
    return True


@attrs.define
class Network:
    """A sender and its receiver, with the messages in flight in both directions."""

    count: int
    buffer: SendBuffer
    receive_state: ReceiveState
    up: deque[list[Frame]] = attrs.field(factory=deque[list[Frame]])
    down: deque[list[Frame]] = attrs.field(factory=deque[list[Frame]])
    stale: deque[list[Frame]] = attrs.field(factory=deque[list[Frame]])
    made: int = 0
    got: list[Any] = attrs.field(factory=list[Any])
    delivered: int = 0
    delivers_at_once: bool = True

    def make(self) -> None:
        if self.made < self.count and not self.buffer.full:
            self.buffer.put(pack(self.made))
            self.made += 1
        elif self.made == self.count and self.buffer.count is None:
            self.buffer.end()

    def send(self) -> None:
        frames = self.buffer.next_message()
        if frames is not None:
            self.up.append(frames)
            self.buffer.mark_sent()

    def say_hello(self) -> None:
        self.up.append(self.buffer.hello())

    def arrive(self) -> None:
        if self.up:
            self.receive_state.receive(HERE, self.up.popleft())

    def arrive_late(self) -> None:
        if self.stale:
            self.receive_state.receive(HERE, self.stale.popleft())

    def take(self) -> None:
        if self.receive_state.ready:
            item = self.receive_state.take()
            if item.kind is not Kind.END:
                self.got.append(unpack(item.kind, item.frames))
            if self.delivers_at_once:
                self.deliver()

    def deliver(self) -> None:
        """Deliver what was taken to the consumer."""
        self.delivered = len(self.got)
        self.receive_state.acknowledge((self.delivered,))

    def answer(self) -> None:
        self.down += [frames for _, frames in self.receive_state.replies()]

    def greet(self) -> None:
        self.down.append(self.receive_state.greeting())

    def remind(self) -> None:
        for record in self.receive_state.records.values():
            record.owed = True

    def receive(self) -> None:
        if self.down:
            reply = self.buffer.receive(HERE, self.down.popleft())
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

    def restart(self) -> None:
        """Kill the sender, and start it again from its last state, with the same id."""
        old = self.buffer
        first = min(old.base, self.count)
        self.buffer = SendBuffer(old.hwm, old.serve, old.is_gone, old.me, first=first)
        self.made = first
        self.cut_with_a_rest()

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
    buffer = SendBuffer(sender_hwm, serve=False, is_gone=never)
    return Network(count, buffer, ReceiveState(1, receiver_hwm, Tally()))


def settle(net: Network, rounds: int) -> None:
    """Let both ends continue without further losses."""
    for _ in range(rounds):
        if net.buffer.finished and net.receive_state.ended:
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
        net.deliver()
        net.answer()
        while net.down:
            net.receive()
    pytest.fail("they did not come to an end")


@settings(max_examples=examples(500))
@given(
    st.integers(0, 12),
    st.integers(1, 5),
    st.integers(1, 5),
    st.lists(st.sampled_from([*STEPS, Network.deliver, Network.restart]), max_size=150),
    st.booleans(),
)
def test_each_element_arrives_once_and_in_order_despite_losses(
    count: int,
    sender_hwm: int,
    receiver_hwm: int,
    steps: list[Callable[[Network], None]],
    delivers_at_once: bool,
) -> None:
    net = network(count, sender_hwm, receiver_hwm)
    net.delivers_at_once = delivers_at_once
    for step in steps:
        step(net)
        assert len(net.buffer.items) <= sender_hwm + 1 + len(net.got) - net.buffer.acknowledged
        assert len(net.receive_state.ready) <= min(sender_hwm, receiver_hwm) + 1
        assert net.got == list(range(len(net.got)))
        assert net.buffer.acknowledged <= net.delivered
    settle(net, rounds=200)
    assert net.got == list(range(count))
    assert net.buffer.acknowledged == count
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
    net.buffer.serve, net.buffer.is_gone = True, always
    for step in (Network.say_hello, *steps):
        step(net)
    net.cut()
    if says_so:
        net.down += [frames for _, frames in net.receive_state.farewells()]
        while net.down:
            net.receive()
    if net.buffer.finished:
        return
    taken = net.buffer.acknowledged
    first, net.got, net.receive_state = net.got, [], ReceiveState(1, 4, Tally())
    net.delivered = 0
    settle(net, rounds=100)
    assert net.got == list(range(taken, count))
    assert net.receive_state.tally.earlier == taken
    assert first == list(range(len(first)))
    if says_so:
        assert first + net.got == list(range(count))


def test_elements_lost_after_a_restart_are_sent_again() -> None:
    """A sender that is started again counts its attempts from the beginning."""
    net = network(8, 4, 4)
    net.say_hello()
    for step in (Network.arrive, Network.answer, Network.receive, Network.arrive, Network.answer):
        step(net)
    for _ in range(6):  # each loss makes the sender go back
        for step in (Network.make, Network.send, Network.cut, Network.say_hello, Network.arrive):
            step(net)
        net.answer()
        while net.down:
            net.receive()
    assert net.buffer.attempt > 3
    net.restart()
    net.say_hello()
    for step in (Network.arrive, Network.answer, Network.receive, Network.make, Network.send):
        step(net)
    net.cut()
    settle(net, rounds=100)
    assert net.got == list(range(8))


LEFT_EARLY = (
    "the receiver left after it had acknowledged 2 elements, before the end; pass serve=True to "
    "continue with the next receiver"
)


def met(serve: bool, gone: bool, taken: int) -> tuple[SendBuffer, ReceiveState]:
    """A sender with a receiver that has taken some elements; and another receiver."""
    net = network(9, 4, 4)
    net.buffer.serve, net.buffer.is_gone = serve, lambda _: gone
    net.say_hello()
    while net.buffer.acknowledged < taken or not net.receive_state.records:
        for step in STEPS[:6]:
            step(net)
    for step in (Network.answer, Network.receive, Network.receive):
        step(net)
    return net.buffer, ReceiveState(1, 4, Tally())


@pytest.mark.parametrize(("serve", "taken"), [(False, 0), (True, 2)])
def test_a_new_receiver_replaces_a_dead_one(serve: bool, taken: int) -> None:
    buffer, other = met(serve, True, taken)
    reply = buffer.receive(Route(0, b"other"), other.greeting())
    assert reply is not None
    other.receive(HERE, reply)
    assert other.records[buffer.me].expected == buffer.cursor == taken


@pytest.mark.parametrize(("serve", "taken"), [(False, 0), (True, 2)])
def test_a_second_receiver_is_refused(serve: bool, taken: int) -> None:
    buffer, other = met(serve, False, taken)
    reply = buffer.receive(Route(0, b"other"), other.greeting())
    assert reply is not None
    with pytest.raises(SourceError) as caught:
        other.receive(HERE, reply)
    assert str(caught.value) == (
        f"the sender serves another receiver, which has acknowledged {taken} elements; it takes "
        f"another only when the first has left, and with serve=True"
    )


def test_a_new_receiver_that_would_miss_elements_is_an_error() -> None:
    buffer, other = met(serve=False, gone=True, taken=2)
    with pytest.raises(SourceError) as caught:
        buffer.receive(Route(0, b"other"), other.greeting())
    assert str(caught.value) == LEFT_EARLY
    assert buffer.route == Route(0, b"other")
    with pytest.raises(SourceError) as caught:  # the new receiver gets the reason
        other.receive(HERE, buffer.stop(LEFT_EARLY))
    assert str(caught.value) == f"the sender {buffer.me[:4].hex()} failed: {LEFT_EARLY}"


def test_a_new_receiver_that_accepts_failing_senders() -> None:
    buffer, _ = met(serve=False, gone=True, taken=2)
    other = ReceiveState(None, 4, Tally())
    with pytest.raises(SourceError):
        buffer.receive(Route(0, b"other"), other.greeting())
    other.receive(HERE, buffer.stop("why"))
    assert other.tally.stopped == {buffer.me[:4].hex(): "why"}


def test_a_sender_has_a_name_for_people() -> None:
    state = ReceiveState(None, 4, Tally())
    names = "web-3:17", "web-3:17", "", "a\nb\x1b[2J\N{BLACK STAR}" + "x" * 1000
    for i, name in enumerate(names):
        buffer = SendBuffer(4, False, lambda _: False, bytes([i]) * 16, name=name)
        buffer.receiver = state.me
        state.receive(Route(0, b"%d" % i), buffer.hello())
    *plain, strange = state.tally.senders
    assert plain == ["web-3:17 (00000000)", "web-3:17 (01010101)", "02020202"]
    assert strange.startswith("ab[2J\N{BLACK STAR}xxx")
    assert strange.endswith("x (03030303)")
    assert len(strange) < 120


@settings(max_examples=examples(200))
@given(
    st.lists(st.integers(0, 4), max_size=30),
    st.sampled_from([1, 2, 32]),
    st.data(),
)
def test_each_partition_is_acknowledged_on_its_own(
    order: list[int], partitions: int, data: st.DataObject
) -> None:
    """No sender forgets an element that is not delivered, and all forget those that are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flowdsl.remote.receive_state._MOST_PARTITIONS", partitions)
        state = ReceiveState(None, 100, Tally())
    buffers = [SendBuffer(100, False, never, bytes([i]) * 16) for i in range(5)]
    routes = [Route(0, b"%d" % i) for i in range(5)]
    for buffer, route in zip(buffers, routes, strict=True):
        buffer.receive(route, state.greeting())
        state.receive(route, buffer.hello())
    taken: list[list[int]] = [[] for _ in range(partitions)]
    for i in order:
        buffers[i].put(pack(i))
        frames = buffers[i].next_message()
        assert frames is not None
        state.receive(routes[i], frames)
        buffers[i].mark_sent()
        taken[state.take().record.partition].append(i)
    offsets = [data.draw(st.integers(0, len(each))) for each in taken]
    state.acknowledge((*offsets,))
    for route, frames in state.replies():
        buffers[routes.index(route)].receive(route, frames)
    delivered = [i for each, n in zip(taken, offsets, strict=True) for i in each[:n]]
    assert [buffer.acknowledged for buffer in buffers] == [delivered.count(i) for i in range(5)]
    assert len({record.partition for record in state.records.values()}) == min(5, partitions)


def test_the_partition_of_a_sender_is_used_again_when_all_its_elements_are_delivered() -> None:
    state = ReceiveState(2, 100, Tally())

    def partition_of(name: bytes) -> int:
        buffer = SendBuffer(4, False, never, name * 16)
        buffer.receive(HERE, state.greeting())
        state.receive(HERE, buffer.hello())
        return state.records[buffer.me].partition

    state.senders = None
    assert [partition_of(name) for name in (b"a", b"b")] == [0, 1]
    state.records[b"a" * 16].has_end = state.records[b"b" * 16].has_end = True
    state.records[b"a" * 16].taken = 1
    assert partition_of(b"c") == 1
    state.records[b"c" * 16].stopped = "it failed"
    assert partition_of(b"d") == 1
    state.records[b"a" * 16].delivered = 1
    assert partition_of(b"e") == 0


def test_a_new_receiver_after_one_took_all_elements() -> None:
    buffer = SendBuffer(4, serve=False, is_gone=lambda _: True)
    buffer.put(pack("only"))
    buffer.end()
    first, other = ReceiveState(1, 4, Tally()), ReceiveState(1, 4, Tally())
    buffer.receive(HERE, first.greeting())
    buffer.receive(HERE, [MessageHeader(Kind.WANT, buffer.me, buffer.receiver, upto=1).encode()])
    assert (buffer.finished, buffer.route) == (False, HERE)
    assert buffer.receive(Route(0, b"other"), other.greeting()) is None
    assert (buffer.finished, buffer.acknowledged) == (True, 1)


def test_a_receiver_that_leaves_early_is_an_error() -> None:
    buffer, _ = met(serve=False, gone=True, taken=2)
    assert buffer.items
    leave = MessageHeader(Kind.LEAVE, buffer.me, buffer.receiver, upto=2)
    with pytest.raises(SourceError) as caught:
        buffer.receive(HERE, [leave.encode()])
    assert str(caught.value) == LEFT_EARLY


@pytest.mark.parametrize("ended", [True, False])
def test_a_receiver_may_leave_after_the_last_element(ended: bool) -> None:
    buffer = SendBuffer(4, serve=False, is_gone=never)
    receive_state = ReceiveState(1, 4, Tally())
    buffer.put(pack("only"))
    if ended:
        buffer.end()
    buffer.receive(HERE, receive_state.greeting())
    buffer.receive(HERE, [MessageHeader(Kind.LEAVE, buffer.me, buffer.receiver, upto=1).encode()])
    if not ended:
        buffer.end()
    assert buffer.finished
    assert buffer.acknowledged == 1


def test_a_receiver_that_leaves_before_more_elements_is_an_error() -> None:
    buffer = SendBuffer(4, serve=False, is_gone=never)
    buffer.put(pack("first"))
    buffer.receive(HERE, ReceiveState(1, 4, Tally()).greeting())
    buffer.receive(HERE, [MessageHeader(Kind.LEAVE, buffer.me, buffer.receiver, upto=1).encode()])
    with pytest.raises(SourceError, match="the receiver left after it had acknowledged 1 elements"):
        buffer.put(pack("second"))


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
    attempt = net.buffer.attempt
    answers: list[list[Frame]] = []
    for frames in (second, third):
        net.receive_state.receive(HERE, frames)
        answers += [answer for _, answer in net.receive_state.replies()]
    assert not net.receive_state.ready
    headers = [MessageHeader.decode(answer[0]) for answer in answers]
    assert [(h.kind, h.number, h.attempt) for h in headers] == [(Kind.AGAIN, 0, attempt)] * 2
    net.buffer.receive(HERE, answers[0])
    assert (net.buffer.cursor, net.buffer.attempt) == (0, attempt + 1)
    net.send()
    net.buffer.receive(HERE, answers[1])
    assert net.buffer.cursor == 1


def test_taken_elements_are_not_sent_again() -> None:
    net, elements = sent(3)
    net.buffer.receive(HERE, [header(net, Kind.AGAIN, number=0).encode()])
    for frames in elements:  # they come all the same, by the old connection
        net.receive_state.receive(HERE, frames)
        net.take()
    net.buffer.receive(HERE, [header(net, Kind.WANT, number=2, upto=2).encode()])
    assert (net.buffer.base, net.buffer.cursor) == (2, 2)
    due = net.buffer.next_message()
    assert due is not None
    assert MessageHeader.decode(due[0]).number == 2


def header(net: Network, kind: Kind, **numbers: int) -> MessageHeader:
    buffer = net.buffer
    return MessageHeader(kind, buffer.me, buffer.receiver, buffer.attempt, **numbers, room=8)


def test_elements_for_another_receiver_are_not_taken() -> None:
    net, (element,) = sent(1)
    stray = attrs.evolve(MessageHeader.decode(element[0]), receiver=b"another receiver")
    net.receive_state.receive(HERE, [stray.encode(), *element[1:]])
    assert not net.receive_state.ready
    net.receive_state.receive(HERE, element)
    assert len(net.receive_state.ready) == 1


def test_a_surplus_sender_is_refused_and_others_continue() -> None:
    receive_state = ReceiveState(1, 4, Tally())
    first, second = (SendBuffer(4, serve=False, is_gone=never) for _ in range(2))
    for buffer in (first, second):
        buffer.receive(HERE, receive_state.greeting())
        receive_state.receive(HERE, buffer.hello())
    (record,) = receive_state.records.values()
    (_, refusal), (_, want) = receive_state.replies()
    assert MessageHeader.decode(want[0]).kind is Kind.WANT
    with pytest.raises(SourceError) as caught:
        second.receive(HERE, refusal)
    assert str(caught.value) == (
        f"the receiver refused: it takes 1 sender and already has {record.name}; its from_zmq "
        f"needs senders=n for more"
    )
    assert second.route is None  # there is nobody to take leave of
    assert first.receive(HERE, refusal) is None  # it is not for this one
    assert first.route is not None


def test_a_refused_sender_does_not_end_the_pass() -> None:
    receive_state = ReceiveState(1, 4, Tally())
    first, second = (SendBuffer(4, serve=False, is_gone=never) for _ in range(2))
    for buffer in (first, second):
        buffer.receive(HERE, receive_state.greeting())
        receive_state.receive(HERE, buffer.hello())
    receive_state.receive(HERE, second.stop("gave up"))
    assert [record.stopped for record in receive_state.records.values()] == [None]


def test_messages_for_another_receiver_are_ignored() -> None:
    receive_state = ReceiveState(1, 4, Tally())
    buffer = SendBuffer(4, serve=False, is_gone=never)
    buffer.put(pack(1))
    buffer.receive(HERE, ReceiveState(1, 4, Tally()).greeting())
    element = buffer.next_message()
    assert element is not None
    receive_state.receive(HERE, element)
    assert (list(receive_state.ready), receive_state.tally.unclaimed) == ([], 1)


STRAY = [
    [b"GET / HTTP/1.1"],
    [MessageHeader(Kind.WANT, bytes(16)).encode()],
    [b"FLOW\x01" + bytes(63)],
]


@pytest.mark.parametrize("frames", STRAY, ids=["of others", "of a receiver", "of a version"])
@pytest.mark.parametrize("senders", [1, None])
def test_an_invalid_message_of_a_stranger_ends_no_pass(
    frames: list[Frame], senders: int | None
) -> None:
    receive_state, buffer = ReceiveState(senders, 4, Tally()), SendBuffer(4, False, is_gone=never)
    for route in (STRANGER, HERE):
        buffer.put(pack(1))
        buffer.receive(HERE, receive_state.greeting())
        receive_state.receive(HERE, buffer.hello())
        receive_state.receive(STRANGER, frames)
        assert buffer.receive(STRANGER, [b"GET / HTTP/1.1"]) is not None, route
    assert (receive_state.tally.refused, buffer.refused) == (2, 2)


STRANGER: Route = Route(0, b"stranger")


@pytest.mark.parametrize("frames", STRAY, ids=["of others", "of a receiver", "of a version"])
def test_a_sender_whose_messages_become_malformed_is_refused_by_name(frames: list[Frame]) -> None:
    first, second = (SendBuffer(4, serve=False, is_gone=never) for _ in range(2))
    routes: list[Route] = [Route(0, b"first"), Route(0, b"second")]

    def met(senders: int | None) -> ReceiveState:
        receive_state = ReceiveState(senders, 4, Tally())
        for buffer, route in zip((first, second), routes, strict=True):
            buffer.receive(Route(0, b""), receive_state.greeting())
            receive_state.receive(route, buffer.hello())
        return receive_state

    receive_state = met(senders=None)
    list(receive_state.replies())
    receive_state.receive(routes[0], frames)
    assert list(receive_state.tally.stopped) == [first.me[:4].hex()]
    ((route, refusal),) = receive_state.replies()
    assert route == routes[0]
    with pytest.raises(SourceError, match="the receiver refused: "):
        first.receive(Route(0, b""), refusal)
    with pytest.raises(SourceError, match=f"the sender {first.me[:4].hex()}: "):
        met(senders=2).receive(routes[0], frames)


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
    buffer = SendBuffer(5, serve=False, is_gone=never)
    for i in range(5):
        buffer.put(Packed(Kind.ELEMENT, (bytes([i]),)))
    assert buffer.next_message() is None  # nobody is there
    buffer.receive(HERE, ReceiveState(1, 2, Tally()).greeting())
    sent = 0
    while buffer.next_message() is not None:
        buffer.mark_sent()
        sent += 1
    assert sent == 2
