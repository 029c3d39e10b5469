"""send_zmq and from_zmq over real sockets: each element arrives once, despite failures."""

from __future__ import annotations

import logging
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from socket import gethostname
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import SourceError, SpecMismatch
from flowdsl.remote import Curve, Tally, make_keys
from flowdsl.remote.message import Kind, MessageHeader, Route
from flowdsl.remote.sockets import Endpoint, Link
from flowdsl.remote.zmq_ops import decode
from flowdsl.workers.launching import fork_server
from tests.remote.wires import (
    ANY_PORT,
    WAIT,
    AnyFlow,
    ReceiverClock,
    Task,
    bound,
    receiving,
    relayed,
    sealed,
    sending,
)
from tests.sampling import examples
from tests.storage.elements import ELEMENTS, identical
from tests.waiting import eventually


def sockets_of_this_process() -> int:
    found = 0
    for fd in Path("/proc/self/fd").iterdir():
        try:
            found += os.readlink(fd).startswith(("socket:", "anon_inode:[event"))
        except FileNotFoundError:
            continue
    return found


@pytest.fixture(autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    sockets, threads = sockets_of_this_process(), threading.active_count()
    yield
    until = time.monotonic() + WAIT
    while sockets_of_this_process() > sockets or threading.active_count() > threads:
        assert time.monotonic() < until, "a socket or a thread was left"
        threading.Event().wait(0.01)


class Sample(NamedTuple):
    image: NDArray[np.uint8]
    label: np.int64


@pytest.fixture(scope="module", autouse=True)
def what_stays_is_there() -> None:
    zmq.Frame(b"", track=True, copy=False, copy_threshold=0)  # the thread that counts its holders
    fork_server()  # its socket


@attrs.frozen
class PointBatch:
    x: NDArray[np.float64]


@attrs.frozen
class Point(fl.Record[PointBatch]):
    x: float


def sample(i: int) -> Sample:
    return Sample(np.full((200, 100), i % 256, np.uint8), np.int64(i))


@pytest.fixture
def ipc(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/wire"


def _name(row: tuple[str, object]) -> str:
    return row[0]


def _same(row: tuple[str, bytes]) -> tuple[str, bytes]:
    return row


class TestElements:
    @settings(max_examples=examples(200))
    @given(
        elements=st.lists(ELEMENTS, max_size=4),
        sender_binds=st.booleans(),
        hwm=st.integers(1, 3),
    )
    def test_arrive_unchanged(
        self,
        elements: list[object],
        sender_binds: bool,
        hwm: int,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> None:
        address = f"ipc://{tmp_path_factory.mktemp('wire')}/wire"
        sender = sending(fl.from_items(elements), address, bind=sender_binds, hwm=hwm)
        received: AnyFlow = fl.from_zmq(address, bind=not sender_binds, timeout=WAIT, hwm=hwm)
        got = received.collect()
        assert len(got) == len(elements)
        assert all(map(identical, got, elements))
        assert sender.outcome() == len(elements)

    @pytest.mark.parametrize("sender_binds", [False, True])
    def test_arrive_over_tcp(self, sender_binds: bool) -> None:
        flow = fl.from_range(300).map(sample)
        if sender_binds:
            sender, address = bound(sending, flow, ANY_PORT, bind=True, hwm=20)
            receiver = receiving(address, Sample, bind=False)
        else:
            receiver, address = bound(receiving, ANY_PORT, Sample)
            sender = sending(flow, address, hwm=20)
        got = receiver.outcome()
        assert [type(x) for x in got] == [Sample] * 300
        assert [(int(x.label), int(x.image.max()), x.image.shape) for x in got] == [
            (i, i % 256, (200, 100)) for i in range(300)
        ]
        assert not got[0].image.flags.writeable
        assert sender.outcome() == 300

    @pytest.mark.parametrize(
        ("elements", "element"),
        [
            ([Point(1.5)], Point),
            ([(Point(1.5), 2)], tuple[Point, int]),
            ([Sample(np.zeros(3, np.uint8), np.int64(1))], Sample),
            ([{"a": 1}], dict[str, int]),
            ([[1, 2]], list[int]),
            ([np.zeros((2, 3))], NDArray[np.float64]),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("trusted", [False, True])
    def test_have_their_declared_classes(
        self, elements: list[Any], element: Any, trusted: bool, ipc: str
    ) -> None:
        sender = sending(fl.from_items(elements), ipc, trusted=trusted)
        got: list[Any] = fl.from_zmq(ipc, element, trusted=trusted, timeout=WAIT).collect()
        assert [type(x) for x in got] == [type(x) for x in elements]
        assert repr(got) == repr(elements)
        assert sender.outcome() == 1

    def test_that_do_not_match_the_declaration_are_an_error(self, ipc: str) -> None:
        sender = sending(fl.from_items([(1, 2), (1, "2")]), ipc)
        run = iter(fl.from_zmq(ipc, tuple[int, int], timeout=WAIT))
        assert next(run) == (1, 2)
        with pytest.raises(SpecMismatch) as caught:
            next(run)
        said = str(caught.value).replace(_name_in(caught.value), "ID")
        assert said == (
            "from_zmq: element 1 of the sender ID: element.1: declared int, got str; declared "
            "(int, int), received (int, str)"
        )
        with pytest.raises(SourceError, match="the receiver refused: from_zmq: element 1 of the"):
            sender.outcome()

    def test_that_cannot_be_sent_are_an_error(self, ipc: str) -> None:
        receiver = receiving(ipc, bind=True)
        with pytest.raises(SpecMismatch) as caught:
            fl.from_items([1, {2}]).send_zmq(ipc, timeout=WAIT)
        assert str(caught.value) == (
            "send_zmq: element 1: element: set cannot be written; arrays, bool, int, float, "
            "complex, text, bytes, None, lists, dicts, tuples and records can"
        )
        with pytest.raises(SourceError, match=r"failed after \d elements: SpecMismatch: send_zmq"):
            receiver.outcome()

    def test_can_be_processed_by_workers(self, ipc: str) -> None:
        sender = sending(fl.from_range(20), ipc)
        received = fl.from_zmq(ipc, int, timeout=WAIT).map(str).prefetch(procs=2)
        assert received.collect() == [str(i) for i in range(20)]
        assert sender.outcome() == 20

    def test_can_be_computed_by_workers(self, ipc: str) -> None:
        sender = sending(fl.from_range(40).map(sample).prefetch(procs=2), ipc, hwm=4)
        got = fl.from_zmq(ipc, Sample, timeout=WAIT).map(lambda s: int(s.image[0, 0])).collect()
        assert got == list(range(40))
        assert sender.outcome() == 40

    def test_are_computed_ahead_up_to_hwm(self, ipc: str) -> None:
        made: list[int] = []

        def make(i: int) -> int:
            made.append(i)
            return i

        sender = sending(fl.from_range(100).map(make), ipc, hwm=5)
        run = iter(fl.from_zmq(ipc, timeout=WAIT, hwm=3))
        for i in range(50):
            assert next(run) == i
            assert len(made) <= i + 1 + 5 + 3 + 1
        assert list(run) == list(range(50, 100))
        assert sender.outcome() == 100


def _name_in(error: object) -> str:
    return str(error).partition("of the sender ")[2].partition(": ")[0]


class TestBrokenConnections:
    @pytest.mark.parametrize("sender_binds", [False, True])
    @pytest.mark.parametrize("every", [30_000, 150_000])
    def test_lose_and_repeat_nothing(self, sender_binds: bool, every: int) -> None:
        flow = fl.from_range(600).map(lambda i: (i, "x" * (i % 1000)))
        tally = Tally()
        if sender_binds:
            sender, address = bound(sending, flow, ANY_PORT, bind=True, hwm=10)
            with relayed(address, every) as relay:
                received = fl.from_zmq(
                    relay.address, tuple[int, str], bind=False, timeout=WAIT, tally=tally
                )
                got = received.collect()
                count = sender.outcome()
        else:
            receiver, address = bound(receiving, ANY_PORT, tuple[int, str], tally=tally)
            with relayed(address, every) as relay:
                count = flow.send_zmq(relay.address, hwm=10, timeout=WAIT)
                got = receiver.outcome()
        assert got == [(i, "x" * (i % 1000)) for i in range(600)]
        assert count == 600
        assert relay.cuts > 1
        assert list(tally.senders.values()) == [600]
        (name,) = tally.senders
        assert re.fullmatch(rf"{re.escape(gethostname())}:\d+ \([0-9a-f]{{8}}\)", name)

    def test_have_the_name_that_they_say(self, ipc: str) -> None:
        tally = Tally()
        sender = sending(fl.from_range(3), ipc, name="lidar")
        assert list(fl.from_zmq(ipc, int, timeout=WAIT, tally=tally)) == [0, 1, 2]
        assert sender.outcome() == 3
        (name,) = tally.senders
        assert re.fullmatch(r"lidar \([0-9a-f]{8}\)", name)

    @pytest.mark.parametrize("name", ["", "a\nb", 3])
    def test_refuse_a_name_that_cannot_be_printed(self, ipc: str, name: Any) -> None:
        with pytest.raises(fl.InvalidFlow, match="send_zmq: name must be printable text, got"):
            fl.from_range(3).send_zmq(ipc, name=name)

    def test_during_large_arrays_lose_nothing(self) -> None:
        receiver, address = bound(receiving, ANY_PORT, Sample, hwm=4)
        with relayed(address, every=700_000) as relay:
            assert fl.from_range(200).map(sample).send_zmq(relay.address, timeout=WAIT) == 200
            assert [int(x.image[0, 0]) for x in receiver.outcome()] == [i % 256 for i in range(200)]
            assert relay.cuts > 2

    def test_while_the_consumer_works_lose_nothing(self) -> None:
        sender, address = bound(sending, fl.from_range(60), ANY_PORT, bind=True, hwm=5)
        with relayed(address) as relay:
            got = []
            for x in fl.from_zmq(relay.address, int, bind=False, timeout=WAIT):
                got.append(x)
                if x % 20 == 10:
                    relay.cut()
            assert got == list(range(60))
            assert sender.outcome() == 60

    def test_during_the_last_message_are_repaired(
        self, ipc: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        send = Link.send
        lost: list[MessageHeader] = []

        def losing(link: Link, route: Route, frames: Any) -> bool:
            header = MessageHeader.decode(frames[0])
            if not lost and header.kind is Kind.WANT and header.upto == 4:
                lost.append(header)  # that all three were taken, and the end
                return True
            return send(link, route, frames)

        monkeypatch.setattr(Link, "send", losing)
        sender = sending(fl.from_range(3), ipc)
        assert fl.from_zmq(ipc, int, timeout=WAIT).collect() == [0, 1, 2]
        assert sender.outcome() == 3
        assert len(lost) == 1


class TestSeveralSenders:
    @pytest.mark.parametrize("count", [2, 5])
    def test_elements_of_each_sender_are_in_order(self, count: int, ipc: str) -> None:
        tally = Tally()
        numbers = fl.from_range(100).map(lambda i: (i % count, i))
        senders = [sending(numbers.filter(_is_of(k)), ipc, hwm=3) for k in range(count)]
        received = fl.from_zmq(ipc, tuple[int, int], senders=count, timeout=WAIT, tally=tally)
        got = received.collect()
        assert sorted(i for _, i in got) == list(range(100))
        for k in range(count):
            mine = [i for j, i in got if j == k]
            assert mine == sorted(mine)
        assert [sender.outcome() for sender in senders] == [100 // count] * count
        assert (tally.ended, tally.addresses) == (count, {ipc: 100})
        assert list(tally.senders.values()) == [100 // count] * count

    def test_two_addresses_are_read(self, tmp_path: Path) -> None:
        for bind in (True, False):
            here, there = (f"ipc://{tmp_path}/{name}{bind}" for name in "ab")
            first = sending(fl.from_range(5), here, bind=not bind)
            second = sending(fl.from_range(10).skip(5), there, bind=not bind)
            tally = Tally()
            received = fl.from_zmq(
                (here, there), int, bind=bind, senders=2, timeout=WAIT, tally=tally
            )
            assert sorted(received) == list(range(10))
            assert (first.outcome(), second.outcome()) == (5, 5)
            assert tally.addresses == {here: 5, there: 5}

    def test_any_number_of_senders_may_come_and_go(self, ipc: str) -> None:
        tally = Tally()
        run = iter(fl.from_zmq(ipc, int, senders=None, timeout=WAIT, tally=tally))
        failing = fl.from_items([1, 0]).map(lambda x: 4 // x)
        for flow in (fl.from_range(3), failing, fl.from_range(2)):
            sender = sending(flow, ipc)
            assert [next(run) for _ in range(flow.size() - (flow is failing))]
            if flow is failing:
                with pytest.raises(fl.ElementError):
                    sender.outcome()
        run.close()
        assert sum(tally.senders.values()) == 6
        assert len(tally.senders) == 3


def _is_of(k: int) -> Any:
    return lambda pair: pair[0] == k


class TestReceivers:
    def test_may_follow_one_another(self, ipc: str) -> None:
        sender = sending(fl.from_range(30), ipc, bind=True, serve=True, hwm=4)
        got: list[int] = []
        tally = Tally()
        for count in (7, 1, 30):
            received = fl.from_zmq(ipc, int, bind=False, timeout=WAIT, tally=tally)
            got += received.take(count)
        assert got == list(range(30))
        assert tally.earlier == 7 + 8
        assert sender.outcome() == 30

    def test_that_leave_early_are_an_error(self, ipc: str) -> None:
        sender = sending(fl.from_range(30), ipc)
        assert list(fl.from_zmq(ipc, int, timeout=WAIT).take(3)) == [0, 1, 2]
        with pytest.raises(SourceError) as caught:
            sender.outcome()
        assert str(caught.value) == (
            f"send_zmq: {ipc!r}: the receiver left after it had acknowledged 3 elements, before "
            f"the end; pass serve=True to continue with the next receiver"
        )

    def test_may_leave_before_the_end_message(self, ipc: str) -> None:
        sender = sending(fl.from_range(3), ipc)
        run = iter(fl.from_zmq(ipc, int, timeout=WAIT))
        assert [next(run), next(run), next(run)] == [0, 1, 2]
        sender.thread.join(0.3)  # until the end is sent, which makes no difference to what follows
        run.commit()
        run.close()
        assert sender.outcome() == 3

    def test_a_second_one_is_refused(self, ipc: str) -> None:
        sender = sending(fl.from_range(30), ipc, bind=True, hwm=4)
        first = iter(fl.from_zmq(ipc, int, bind=False, timeout=WAIT))
        assert next(first) == 0
        with pytest.raises(SourceError, match="the sender serves another receiver, which"):
            fl.from_zmq(ipc, int, bind=False, timeout=WAIT).collect()
        assert list(first) == list(range(1, 30))
        assert sender.outcome() == 30

    def test_one_that_died_after_some_elements_is_an_error(self, ipc: str) -> None:
        """Its last message is lost, and the next receiver would miss its elements."""
        states: list[dict[str, Any]] = []
        sender = sending(fl.from_range(3), ipc, on_state=states.append)
        context = zmq.Context[zmq.Socket[bytes]]()
        socket = context.socket(zmq.ROUTER)
        socket.bind(ipc)
        name, first, *_ = socket.recv_multipart()
        me, other = MessageHeader.decode(first).sender, b"r" * 16
        socket.send_multipart([name, *sealed(MessageHeader(Kind.WANT, me, other, room=9))])
        while MessageHeader.decode(socket.recv_multipart()[1]).kind is not Kind.END:
            pass
        socket.send_multipart([name, *sealed(MessageHeader(Kind.WANT, me, other, 1, 2, 2, 9))])
        assert eventually(lambda: bool(states) and states[-1]["position"] == 2)
        context.destroy(0)
        with pytest.raises(SourceError, match=r"the sender .* failed: SourceError: "):
            fl.from_zmq(ipc, int, timeout=WAIT).collect()
        with pytest.raises(SourceError, match="left after it had acknowledged 2 elements"):
            sender.outcome()

    def test_one_that_died_is_replaced(self, ipc: str) -> None:
        sender = sending(fl.from_range(3), ipc, bind=True)
        context = zmq.Context[zmq.Socket[bytes]]()
        socket = context.socket(zmq.DEALER)
        socket.connect(ipc)
        socket.send_multipart(sealed(MessageHeader(Kind.WANT, b"s" * 16, b"r" * 16, room=9)))
        socket.recv_multipart()  # it has met the sender
        context.destroy(0)
        until = time.monotonic() + WAIT
        while True:
            try:
                got = fl.from_zmq(ipc, int, bind=False, timeout=WAIT).collect()
                break
            except SourceError as error:  # the sender may not know yet
                if "is still there" not in str(error) or time.monotonic() > until:
                    raise
        assert got == [0, 1, 2]
        assert sender.outcome() == 3

    def test_surplus_senders_are_refused(self, ipc: str) -> None:
        endless = sending(fl.from_range(3).repeat(), ipc, hwm=4)
        run = iter(fl.from_zmq(ipc, int, timeout=WAIT))
        assert next(run) == 0
        second = sending(fl.from_range(3), ipc)
        while second.thread.is_alive():
            next(run)
        with pytest.raises(SourceError, match="refused: it takes 1 sender and already has "):
            second.outcome()
        run.close()
        with pytest.raises(SourceError, match="the receiver left"):
            endless.outcome()


CHAINS: dict[str, tuple[int, Callable[[AnyFlow], AnyFlow]]] = {
    "plain": (1, lambda flow: flow),
    "filter and map": (1, lambda flow: flow.filter(lambda i: i >= 0).map(abs)),
    "a batch larger than hwm": (20, lambda flow: flow.map(abs).batch(20)),
    "read ahead": (1, lambda flow: flow.prefetch(threads=2)),
    "threads": (1, lambda flow: flow.map(abs).prefetch(threads=2)),
    "processes and batches": (4, lambda flow: flow.map(abs).batch(4).prefetch(procs=2)),
}


class TestStops:
    @pytest.mark.parametrize("name", CHAINS)
    def test_lose_and_repeat_no_rows(self, name: str, ipc: str) -> None:
        """However far a stopped consumer has read ahead, the next one gets the next row."""
        size, chain = CHAINS[name]
        sender = sending(fl.from_range(400), ipc, serve=True, hwm=5)
        got: list[int] = []
        for rows in (60, 100, 220, 1000):
            with iter(chain(fl.from_zmq(ipc, int, timeout=WAIT, hwm=5))) as run:
                for x in run:
                    got += [x] if size == 1 else list(x)
                    if len(got) >= rows:
                        break
        assert sender.outcome() == 400
        assert got == list(range(400))

    def test_lose_no_rows_above_a_shuffle(self, ipc: str) -> None:
        sender = sending(fl.from_range(400), ipc, serve=True, hwm=5)
        got, ended = set[int](), False
        while len(got) < 400:
            with iter(fl.from_zmq(ipc, int, timeout=WAIT).shuffle(10)) as run:
                got.update(islice(run, 150))
                ended = run.position < 150
        if not ended:
            fl.from_zmq(ipc, int, timeout=WAIT).collect()
        assert sender.outcome() == 400

    def test_with_an_error_repeat_the_row_that_failed(self, ipc: str) -> None:
        sender = sending(fl.from_range(9), ipc, serve=True)
        with pytest.raises(ZeroDivisionError), iter(fl.from_zmq(ipc, int, timeout=WAIT)) as run:
            assert [1 // (4 - x) for x in run]
        assert fl.from_zmq(ipc, int, timeout=WAIT).collect() == list(range(4, 9))
        sender.outcome()

    def test_are_logged_at_both_ends(self, ipc: str, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "flowdsl")
        sender = sending(fl.from_range(90), ipc, serve=True, hwm=4)
        with iter(fl.from_zmq(ipc, int, timeout=WAIT).shuffle(3)) as run:
            next(run)
        fl.from_zmq(ipc, int, timeout=WAIT).collect()
        sender.outcome()
        assert re.search(
            r"of the sender \S+ \(\w+\), \d elements were delivered, and the \d more that had been "
            r"read ahead stay with the sender",
            caplog.text,
        )
        assert "send_zmq: the receiver left; the next one continues with element" in caplog.text

    def test_leave_rows_that_are_not_committed_to_the_next(self, ipc: str) -> None:
        sender = sending(fl.from_range(9), ipc, serve=True)
        received = fl.from_zmq(ipc, int, timeout=WAIT, auto_commit=False)
        with iter(received) as run:
            _ = next(run), next(run)
            run.commit()
            next(run)
        tally = Tally()
        with iter(fl.from_zmq(ipc, int, timeout=WAIT, auto_commit=False, tally=tally)) as run:
            assert list(run) == list(range(2, 9))
            assert list(tally.acknowledged.values()) == [0]
            run.commit()
        assert tally.earlier == 2
        assert sender.outcome() == 9

    def test_of_a_consumer_that_never_commits_are_noticed(
        self, ipc: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("flowdsl.remote.send_buffer.MAX_HELD_BYTES", 10_000)
        sender = sending(fl.from_range(90).map(lambda _: bytes(1000)), ipc, hwm=4)
        run = iter(fl.from_zmq(ipc, timeout=WAIT, auto_commit=False))
        with pytest.raises(
            SourceError, match=r"failed after .* auto_commit=False, commit more often"
        ):
            list(run)
        with pytest.raises(SourceError, match="and delivered none of them to its consumer"):
            sender.outcome()

    @pytest.mark.parametrize(
        "held",
        [
            lambda f: f.window(2, stride=2, key=_name),
            lambda f: f.batch_by_key(2, key=_name),
            lambda f: f.filter(_name).map(_same).prefetch(threads=1).window(2, 2, key=_name),
        ],
    )
    def test_are_not_held_up_by_a_key_of_another_sender(
        self, ipc: str, held: Callable[[AnyFlow], AnyFlow], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("flowdsl.remote.send_buffer.MAX_HELD_BYTES", 200_000)
        silent = sending(fl.from_range(3).map(lambda _: ("short", bytes(1000))), ipc)
        tally = Tally()
        live = fl.from_zmq(ipc, tuple[str, bytes], senders=None, timeout=2, tally=tally)
        run = iter(held(live))
        next(run)
        other = sending(fl.from_range(400).map(lambda _: ("long", bytes(1000))), ipc, hwm=4)
        with pytest.raises(SourceError, match="2 s"):
            deque(run, maxlen=0)
        assert other.outcome() == 400
        with pytest.raises(SourceError, match="left after it had acknowledged 2 elements"):
            silent.outcome()
        assert sorted(tally.acknowledged.values()) == [2, 400]

    @pytest.mark.parametrize("threads", [0, 1])
    @pytest.mark.parametrize("windows", [1, 3, 5])
    def test_leave_the_rows_of_incomplete_windows_to_the_next(
        self, ipc: str, windows: int, threads: int
    ) -> None:
        """Of each sender, the row that was held and those after it, and no others."""
        sent = [[(name, number) for number in range(12)] for name in "abc"]
        senders = [sending(fl.from_items(rows), ipc, serve=True, hwm=2) for rows in sent]
        rows = fl.from_zmq(ipc, tuple[str, int], senders=3, timeout=WAIT)
        read = rows.prefetch(threads=threads) if threads else rows
        with iter(read.window(2, 2, key=_name)) as run:
            got = [row for _ in range(windows) for row in next(run)]
        got += fl.from_zmq(ipc, tuple[str, int], senders=3, timeout=WAIT)
        assert sorted(got) == [row for rows in sent for row in rows]
        for task in senders:
            task.outcome()

    def test_held_up_by_a_key_are_noticed_at_both_ends(
        self, ipc: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr("flowdsl.remote.send_buffer.MAX_HELD_BYTES", 10_000)
        rows = fl.from_range(90).map(lambda i: ("long" if i else "short", bytes(1000)))
        sender = sending(rows, ipc, hwm=4)
        live = fl.from_zmq(ipc, tuple[str, bytes], senders=None, timeout=3)
        with pytest.raises(SourceError, match="3 s"):
            deque(live.window(2, key=_name), maxlen=0)
        with pytest.raises(SourceError, match="a key whose window or batch is not complete"):
            sender.outcome()
        assert "send_zmq: half of the limit is reached" in caplog.text
        assert re.search(r"the sender .* failed after .*; others may continue", caplog.text)


class TestStates:
    def test_a_sender_continues_after_the_last_acknowledged_element(self, ipc: str) -> None:
        states: list[dict[str, Any]] = []
        flow = fl.from_range(90).filter(lambda i: i % 3 > 0).map(abs).enumerate()
        sender = sending(flow, ipc, on_state=states.append, hwm=4)
        got: list[Any] = []
        with iter(fl.from_zmq(ipc, timeout=WAIT)) as run:
            got += [next(run) for _ in range(25)]
        with pytest.raises(SourceError, match="left after it had acknowledged 25 elements"):
            sender.outcome()
        assert states[-1]["position"] == 25
        sender = sending(flow, ipc, state=states[-1], on_state=states.append)
        got += fl.from_zmq(ipc, timeout=WAIT)
        assert got == list(flow)
        assert sender.outcome() == 60 - 25
        assert states[-1]["position"] == 60
        assert list(flow.resume(states[-1])) == []

    def test_each_state_belongs_to_acknowledged_elements(
        self, ipc: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("flowdsl.remote.sender._SECONDS_BETWEEN_STATES", 0)
        states: list[dict[str, Any]] = []
        got: list[int] = []
        behind: list[int] = []

        def save(state: dict[str, Any]) -> None:
            states.append(state)
            behind.append(len(got) - state["position"])

        sender = sending(fl.from_range(100), ipc, on_state=save, hwm=8)
        for x in fl.from_zmq(ipc, int, timeout=WAIT, hwm=4):
            got += [x]
        sender.outcome()
        assert len(states) > 5
        assert min(behind) >= 0

    def test_on_state_needs_a_flow_that_has_states(self, ipc: str) -> None:
        with pytest.raises(fl.NotResumable, match="from_queue"):
            fl.from_queue(queue.Queue()).send_zmq(ipc, on_state=print)
        flow = fl.from_range(3)
        with pytest.raises(fl.StateMismatch, match="sender='xyz', which is not the id of a sender"):
            flow.send_zmq(ipc, state={**iter(flow).state_dict(), "sender": "xyz"})
        with pytest.raises(fl.StateMismatch):
            fl.from_range(3).send_zmq(ipc, state=iter(fl.from_range(4)).state_dict())
        with pytest.raises(fl.InvalidFlow, match="on_state must be a function or None, got 3"):
            fl.from_range(3).send_zmq(ipc, on_state=3)  # type: ignore[arg-type]


class TestFailures:
    def test_of_the_flow_are_reported_to_the_receiver(self, ipc: str) -> None:
        sender = sending(fl.from_items([4, 2, 0]).map(lambda x: 8 / x), ipc)
        run = iter(fl.from_zmq(ipc, timeout=WAIT, hwm=1))
        assert [next(run), next(run)] == [2, 4]
        with pytest.raises(SourceError) as caught:
            next(run)
        assert str(caught.value).partition(" failed ")[2] == (
            "after 2 elements: ElementError: map(<lambda>) failed on element 2 (row 2 of "
            "from_items(3 items)): ZeroDivisionError('division by zero'); "
            "the element was 0"
        )
        with pytest.raises(fl.ElementError):
            sender.outcome()

    def test_pickles_are_refused_without_trusted(self, ipc: str) -> None:
        sender = sending(fl.from_items([Bomb()]), ipc, trusted=True)
        with pytest.raises(SourceError) as caught:
            fl.from_zmq(ipc, timeout=WAIT).collect()
        assert str(caught.value).replace(_name_in(caught.value), "ID") == (
            "from_zmq: element 0 of the sender ID: the sender pickles its elements, and opening a "
            "pickle can run any code; pass trusted=True here too if you trust all who can reach "
            "this address, or remove trusted=True from the sender"
        )
        assert not Bomb.went_off
        with pytest.raises(SourceError, match="the receiver refused: from_zmq: element 0"):
            sender.outcome()

    def test_malformed_elements_of_one_sender_do_not_end_the_pass_of_others(self, ipc: str) -> None:
        tally = Tally()
        run = iter(fl.from_zmq(ipc, senders=None, timeout=WAIT, tally=tally))
        first = sending(fl.from_items([1, 2]), ipc)
        got = [next(run)]
        bad = sending(fl.from_items([Bomb(), 7]), ipc, trusted=True)
        got.append(next(run))
        third = Task(partial(send_after, bad, ipc))
        assert [*got, next(run)] == [1, 2, 3]
        with pytest.raises(SourceError, match=r"the receiver refused: .*pickle"):
            bad.outcome()
        run.commit()
        run.close()
        first.outcome()
        third.outcome()
        assert len(tally.stopped) == 1
        assert sorted(tally.senders.values()) == [0, 1, 2]

    def test_a_trusting_receiver_reads_unpickled_elements(self, ipc: str) -> None:
        sender = sending(fl.from_range(3), ipc)
        assert fl.from_zmq(ipc, trusted=True, timeout=WAIT).collect() == [0, 1, 2]
        sender.outcome()

    def test_a_timeout_without_a_sender_is_an_error(self, ipc: str) -> None:
        with pytest.raises(SourceError) as caught:
            fl.from_zmq(ipc, timeout=0.01).collect()
        assert str(caught.value) == (
            f"from_zmq: after 0 elements, none came in 0.01 s at {ipc!r}, waiting for 1 to end; of "
            f"the senders, none has been heard; is flow.send_zmq running at the other end, with a "
            f"key that is known here?"
        )

    def test_a_silent_sender_is_an_error(self, ipc: str, clock: ReceiverClock) -> None:
        more = threading.Event()

        def rows() -> Iterator[int]:
            yield from range(5)
            more.wait(WAIT)

        sender = sending(fl.from_iterable(rows), ipc)
        run = iter(fl.from_zmq(ipc, timeout=5))
        assert [next(run) for _ in range(5)] == list(range(5))
        clock.runs = lambda heard: True
        with pytest.raises(SourceError) as caught:
            next(run)
        assert str(caught.value).startswith("from_zmq: after 5 elements, none came in 5 s at ")
        assert ", waiting for 1 to end; of the senders, " in str(caught.value)
        assert ": 5 elements, no end, last heard 5." in str(caught.value)
        more.set()
        assert sender.outcome() == 5

    def test_a_killed_sender_loses_at_most_its_computed_elements(self, ipc: str) -> None:
        program = f"""
import flowdsl as fl
fl.from_range(100).repeat().send_zmq({ipc!r}, hwm=5)
"""
        run = iter(fl.from_zmq(ipc, senders=None, timeout=WAIT))
        got: list[object] = []
        for _ in range(2):
            process = subprocess.Popen([sys.executable, "-c", program])
            got += [next(run) for _ in range(20)]
            process.kill()
            process.wait()
        run.close()
        assert got[:20] == list(range(20))
        second = got.index(0, 20)
        assert got[20:second] == list(range(20, second))
        assert second - 20 <= 5
        assert got[second:] == list(range(40 - second))

    def test_a_timeout_without_a_receiver_is_an_error(self, ipc: str) -> None:
        for bind in (False, True):
            with pytest.raises(SourceError) as caught:
                fl.from_range(3).send_zmq(ipc, timeout=0.01, bind=bind)
            assert str(caught.value) == (
                f"send_zmq: {ipc!r}: after 0 acknowledged elements, no receiver was there for "
                f"0.01 s; is fl.from_zmq running at the other end, with a key that is known here?"
            )

    def test_a_host_without_an_address_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def look_up(host: str, port: object) -> list[object]:
            if host == "far":
                raise socket.gaierror(-2, "Name or service not known")
            return []

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        for address, unknown in (("tcp://far:5", True), ("tcp://127.0.0.1:9", False)):
            with pytest.raises(SourceError) as caught:
                fl.from_range(3).send_zmq(address, insecure=True, timeout=0.01)
            said = "; the host 'far' is not found: Name or service not known"
            assert str(caught.value).endswith(said) == unknown

    def test_a_receiver_that_takes_no_elements_is_an_error(
        self, ipc: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hours = iter(range(10**6, 10**9))
        sender = sending(fl.from_range(30), ipc, timeout=WAIT, hwm=2)
        run = iter(fl.from_zmq(ipc, int, timeout=WAIT))
        assert next(run) == 0
        # from here on, each look at its clock is an hour later
        monkeypatch.setattr("flowdsl.remote.sender.monotonic", lambda: 3600.0 * next(hours))
        with pytest.raises(
            SourceError, match=r"\d acknowledged elements, the receiver took nothing"
        ):
            sender.outcome()
        run.close()

    @pytest.mark.long
    @pytest.mark.parametrize(
        ("above", "count"),
        [
            (lambda f: f.batch(99).unbatch(), 15),  # no row is delivered before all of them
            (lambda f: f, 100),  # the receiver reports each fourth of hwm
        ],
    )
    def test_a_receiver_that_is_heard_and_holds_elements_is_none(
        self, ipc: str, above: Callable[[AnyFlow], AnyFlow], count: int
    ) -> None:
        sender = sending(fl.from_range(count), ipc, timeout=2, hwm=64)
        got = list[int]()
        for x in above(fl.from_zmq(ipc, int, timeout=WAIT)):
            got.append(x)
            if len(got) < 15:
                time.sleep(0.2)
        assert got == list(range(count))
        assert sender.outcome() == count

    def test_an_address_in_use_is_an_error(self) -> None:
        receiver, address = bound(receiving, ANY_PORT)
        with pytest.raises(SourceError) as caught:
            fl.from_zmq(address).collect()
        assert str(caught.value) == (
            f"from_zmq: {address!r} cannot be bound: Address already in use"
        )
        fl.from_range(1).send_zmq(address, timeout=WAIT)
        receiver.outcome()

    def test_a_path_in_use_is_an_error(self, ipc: str) -> None:
        receiver, _ = bound(receiving, ipc)
        with pytest.raises(SourceError, match="cannot be bound: Address already in use"):
            fl.from_zmq(ipc).collect()
        fl.from_range(1).send_zmq(ipc, timeout=WAIT)
        receiver.outcome()

    def test_a_file_is_not_overwritten(self, tmp_path: Path) -> None:
        notes = tmp_path / "notes"
        notes.write_text("mine")
        with pytest.raises(SourceError, match="cannot be bound: File exists"):
            fl.from_zmq(f"ipc://{notes}").collect()
        assert notes.read_text() == "mine"

    def test_the_socket_file_of_a_dead_process_is_replaced(self, tmp_path: Path) -> None:
        path = tmp_path / "left"
        with socket.socket(socket.AF_UNIX) as gone:
            gone.bind(str(path))
        receiver, address = bound(receiving, f"ipc://{path}")
        fl.from_range(1).send_zmq(address, timeout=WAIT)
        receiver.outcome()

    @pytest.mark.parametrize("sender_binds", [False, True])
    def test_messages_of_strangers_end_no_pass(
        self, sender_binds: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        task = partial(sending, fl.from_range(5)) if sender_binds else receiving
        tally = Tally()
        here, address = bound(
            task, ANY_PORT, **({"bind": True} if sender_binds else {"tally": tally})
        )
        context = zmq.Context[zmq.Socket[bytes]]()
        socket = context.socket(zmq.DEALER)
        socket.connect(address)
        for frames in ([b"hello"], [b"", b"x"], [b"FLOW\x01" + bytes(70)], [b"FLOW\x02"]):
            socket.send_multipart(frames)
        reply = socket.recv_multipart()  # it has read them
        assert MessageHeader.decode(reply[0]).kind is Kind.STOP
        if sender_binds:
            assert fl.from_zmq(address, bind=False, timeout=WAIT).collect() == list(range(5))
        else:
            assert fl.from_range(5).send_zmq(address, timeout=WAIT) == 5
        here.outcome()
        context.destroy(0)
        assert caplog.text.count("ignored a message of a stranger") == 1
        assert sender_binds or (tally.refused, tally.damaged) == (3, 1)

    def test_a_connection_to_something_else_is_an_error(self) -> None:
        context = zmq.Context[zmq.Socket[bytes]]()
        socket = context.socket(zmq.ROUTER)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        sender = sending(fl.from_range(3), f"tcp://127.0.0.1:{port}")
        name, *_ = socket.recv_multipart()
        socket.send_multipart([name, b"FLOW\x01" + bytes(63)])
        with pytest.raises(SourceError, match="a message of version 1, this flowdsl reads version"):
            sender.outcome()
        context.destroy(0)

    def test_bytes_that_are_not_zmq_are_ignored(self) -> None:
        import socket as plain

        receiver, address = bound(receiving, ANY_PORT)
        port = int(address.rpartition(":")[2])
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\xff" * 1000):
            with plain.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(garbage)
        assert fl.from_range(5).send_zmq(address, timeout=WAIT) == 5
        assert receiver.outcome() == list(range(5))

    @pytest.mark.filterwarnings("ignore::ResourceWarning")
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    def test_an_interrupt_while_a_socket_is_created_leaves_none(
        self, ipc: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make = zmq.Socket.__init__

        def interrupted(socket: Any, *args: Any, **options: Any) -> None:
            make(socket, *args, **options)
            raise KeyboardInterrupt

        monkeypatch.setattr(zmq.Socket, "__init__", interrupted)
        for run in (fl.from_zmq(ipc).collect, lambda: fl.from_range(3).send_zmq(ipc)):
            with pytest.raises(KeyboardInterrupt):
                run()

    def test_the_end_of_one_process_does_not_block_the_other(
        self, ipc: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lingered: list[float] = []
        close = Link.close

        def noted(link: Link, linger: float = 0) -> None:
            lingered.append(linger)
            close(link, linger)

        def interrupted(i: int) -> int:
            if i == 1:
                raise KeyboardInterrupt
            return i

        monkeypatch.setattr(Link, "close", noted)
        sender = sending(fl.from_range(9), ipc, bind=True, serve=True)
        with pytest.raises(KeyboardInterrupt):
            fl.from_zmq(ipc, int, bind=False, timeout=WAIT).map(interrupted).collect()
        here, lingered[:] = lingered[:], []
        assert len(fl.from_zmq(ipc, int, bind=False, timeout=WAIT).collect()) >= 7
        sender.outcome()
        assert max(lingered) == 1.0
        assert max(here) == 0.2

        receiver = receiving(ipc)
        lingered.clear()
        with pytest.raises(KeyboardInterrupt):
            fl.from_range(9).map(interrupted).send_zmq(ipc, timeout=WAIT)
        with pytest.raises(SourceError, match="KeyboardInterrupt"):
            receiver.outcome()
        assert max(lingered) == 0.2

    def test_a_sender_that_fills_a_receiver_and_leaves_is_harmless(self, ipc: str) -> None:
        """The consumer is busy for seconds, in which ZMQ checks its connections."""
        program = f"""
import threading, time, zmq
import flowdsl as fl
from flowdsl.remote.message import MessageHeader, Kind, seal

def send(*elements):
    sender = fl.from_items(elements)
    threading.Thread(target=sender.send_zmq, args=[{ipc!r}], daemon=True).start()

run = iter(fl.from_zmq({ipc!r}, int, senders=None, hwm=1))
send(1)
assert next(run) == 1
with zmq.Context() as context, context.socket(zmq.DEALER) as leaves:
    leaves.setsockopt(zmq.LINGER, 0)
    leaves.connect({ipc!r})
    for _ in range(1000):
        hello = MessageHeader(Kind.HELLO, b"l" * 16).encode()
        leaves.send_multipart([hello, seal([hello])])
    time.sleep(0.5)
time.sleep(3)
send(2)
assert next(run) == 2
run.close()
print("goes on")
"""
        ended = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT
        )
        assert (ended.stdout, ended.returncode) == ("goes on\n", 0), ended.stderr

    def test_ctrl_c_interrupts_immediately(self, ipc: str) -> None:
        for side in ("fl.from_zmq({0!r}).collect()", "fl.from_range(3).send_zmq({0!r})"):
            # Who was started in the background by a shell would ignore the signal.
            program = f"""
import signal, flowdsl as fl
signal.signal(signal.SIGINT, signal.default_int_handler)
print('go', flush=True)
{side.format(ipc)}
"""
            process = subprocess.Popen(
                [sys.executable, "-c", program],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            assert process.stdout is not None
            assert process.stdout.readline() == b"go\n"
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=WAIT)  # it would wait for ever
            assert b"KeyboardInterrupt" in said


def send_after(other: Task, address: str) -> None:
    other.thread.join(WAIT)
    fl.from_items([3]).send_zmq(address, timeout=WAIT)


class Bomb:
    went_off = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _explode, ()


def _explode() -> None:
    Bomb.went_off = True


def run_again(run: Any) -> None:
    list(fl.Run(run._execution.node))


class TestPasses:
    def test_a_flow_supports_one_pass(self, ipc: str) -> None:
        flow = fl.from_zmq(ipc, int, timeout=WAIT)
        assert flow.effects == {fl.Unsized}
        assert flow.node.length is None
        assert not flow.map(str).node.replayable
        assert str(flow.spec) == "int"
        assert repr(flow) == f"from_zmq({ipc!r})"
        sender = sending(fl.from_range(2), ipc)
        assert flow.collect() == [0, 1]
        assert sender.outcome() == 2
        with pytest.raises(SourceError) as caught:
            flow.collect()
        assert str(caught.value) == (
            "from_zmq: what is sent comes only once, and this is a second pass; for several passes "
            "over the same elements put cache() after it; for other elements build the flow again"
        )

    def test_share_a_tally(self, ipc: str) -> None:
        tally = Tally()
        first = fl.from_zmq(ipc, int, timeout=WAIT, tally=tally)
        sender = sending(fl.from_range(3), ipc)
        assert first.collect() == [0, 1, 2]
        sender.outcome()
        fl.from_zmq([ipc, "ipc://other"], int, senders=2, tally=tally)
        assert tally.addresses == {ipc: 3, "ipc://other": 0}

    def test_a_cache_supports_several_passes(self, ipc: str) -> None:
        sender = sending(fl.from_range(2), ipc)
        assert fl.from_zmq(ipc, timeout=WAIT).cache().repeat(2).collect() == [0, 1, 0, 1]
        sender.outcome()

    def test_effects_depend_on_the_senders(self, ipc: str) -> None:
        flows: list[AnyFlow] = [
            fl.from_zmq(ipc, senders=2),
            fl.from_zmq(ipc, senders=None),
            fl.from_zmq(ipc, format="zmq_ops"),
        ]
        assert [flow.effects for flow in flows] == [
            {fl.Unsized, fl.Reordered},
            {fl.Endless, fl.Reordered},
            {fl.Endless, fl.Reordered, fl.Resampled},
        ]


class TestZmqOps:
    def test_elements_are_exchanged(self, ipc: str) -> None:
        flow = fl.from_range(40).map(lambda i: (np.full((2, 3), i, np.uint8), i))
        sender = sending(flow, ipc, format="zmq_ops")
        received = fl.from_zmq(ipc, Sample, format="zmq_ops", timeout=WAIT).take(40)
        got = received.collect()
        assert [type(x) for x in got] == [Sample] * 40
        assert [(int(x.image[0, 0]), int(x.label)) for x in got] == [(i, i) for i in range(40)]
        assert sender.outcome() == 40

    def test_two_addresses_are_read(self, tmp_path: Path) -> None:
        here, there = f"ipc://{tmp_path}/a", f"ipc://{tmp_path}/b"
        tasks = [sending(fl.from_range(4), a, format="zmq_ops", bind=True) for a in (here, there)]
        tally = Tally()
        received = fl.from_zmq(
            (here, there), bind=False, format="zmq_ops", timeout=WAIT, tally=tally
        )
        assert sorted(int(x) for (x,) in received.take(8)) == [0, 0, 1, 1, 2, 2, 3, 3]
        assert [task.outcome() for task in tasks] == [4, 4]
        assert tally.addresses == {here: 4, there: 4}

    def test_a_timeout_is_an_error(self, ipc: str) -> None:
        with pytest.raises(SourceError) as caught:
            fl.from_zmq(ipc, format="zmq_ops", timeout=0.01).take(1).collect()
        assert str(caught.value) == (
            f"from_zmq: after 0 elements, none came in 0.01 s at {ipc!r}; is the sender running, "
            f"with a PUSH socket?"
        )
        with pytest.raises(SourceError) as caught:
            fl.from_range(3).send_zmq(ipc, format="zmq_ops", timeout=0.01)
        assert str(caught.value) == (
            f"send_zmq: {ipc!r}: after 0 elements, nobody received for 0.01 s"
        )

    @pytest.mark.parametrize(("kind", "other"), [(zmq.PULL, zmq.DEALER), (zmq.ROUTER, zmq.PUSH)])
    def test_a_format_mismatch_is_reported_at_both_ends(
        self, kind: int, other: int, ipc: str
    ) -> None:
        def link(bind: bool) -> Link:
            endpoint = Endpoint("here" if bind else "there", (ipc,), bind, 9, None, False, None)
            return Link(endpoint, kind if bind else other)

        with link(True) as here, link(False) as there:
            until = time.monotonic() + WAIT
            while not all("another format=" in one.refusals for one in (here, there)):
                assert time.monotonic() < until, (here.refusals, there.refusals)
                assert here.receive(0.01) == there.receive(0) == []

    def test_a_peer_that_leaves_is_not_a_format_mismatch(self, ipc: str) -> None:
        def link(bind: bool) -> Link:
            endpoint = Endpoint("here" if bind else "there", (ipc,), bind, 9, None, False, None)
            return Link(endpoint, zmq.ROUTER if bind else zmq.DEALER)

        with link(True) as here:
            with link(False) as one, link(False) as two, link(False) as three:
                routes = set[Route]()
                for there in (one, two, three):
                    assert there.send(Route(0, b""), [b"here I am"])
                while len(routes) < 3:
                    routes |= {route for route, _ in here.receive(WAIT)}
            assert eventually(lambda: not any(here.send(route, [b"?"]) for route in routes))
            assert here.refusals == ""

    def test_invalid_elements_are_an_error(self, ipc: str) -> None:
        task = receiving(ipc, format="zmq_ops", use=lambda flow: flow.take(1).collect())
        context = zmq.Context[zmq.Socket[bytes]]()
        socket = context.socket(zmq.PUSH)
        socket.connect(ipc)
        socket.send_multipart([b"\x01", b""])
        with pytest.raises(SourceError, match=r"^from_zmq: element 0 at .*an element: 2 frames"):
            task.outcome()
        context.destroy(0)

    def test_an_unsupported_element_is_an_error(self, ipc: str) -> None:
        receiver = receiving(ipc, format="zmq_ops", use=lambda flow: flow.take(1).collect())
        with pytest.raises(SpecMismatch, match=r"^send_zmq: element 1: element\.1: str is not in"):
            fl.from_items([(1, 2), (1, "2")]).send_zmq(ipc, format="zmq_ops", timeout=WAIT)
        assert receiver.outcome() == [(1, 2)]

    def test_elements_are_computed_ahead_within_limits(self, ipc: str) -> None:
        made: list[int] = []

        def make(i: int) -> NDArray[np.uint8]:
            made.append(i)
            return np.full(500_000, i, np.uint8)

        sender = sending(fl.from_range(60).map(make), ipc, hwm=2, format="zmq_ops")
        received = fl.from_zmq(ipc, hwm=2, format="zmq_ops", timeout=WAIT)
        run = iter(received.map(lambda pushed: int(pushed[0].max())))
        for i in range(60):
            assert next(run) == i
            if i in (0, 5):
                sender.thread.join(0.3)  # until it makes no more
            # Two that wait at each end, and those that are made, packed, carried and read.
            assert len(made) <= i + 1 + 2 + 2 + 4
        assert sender.outcome() == 60
        run.close()

    def test_one_element_per_address_is_read_at_a_time(
        self, ipc: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        receive = Link.receive
        most = 0

        def noted(link: Link, *args: Any, **options: Any) -> Any:
            nonlocal most
            messages = receive(link, *args, **options)
            most = max(most, len(messages))
            return messages

        monkeypatch.setattr(Link, "receive", noted)
        numbers = fl.from_zmq(ipc, format="zmq_ops", timeout=WAIT)
        run = iter(numbers.take(40))
        senders = [sending(fl.from_range(20), ipc, format="zmq_ops") for _ in range(2)]
        next(run)
        for sender in senders:  # now all are on their way
            sender.outcome()
        assert len(list(run)) == 39
        assert most == 1

    def test_elements_of_one_address_do_not_block_another(self, tmp_path: Path) -> None:
        addresses = f"ipc://{tmp_path}/a", f"ipc://{tmp_path}/b"
        endpoint = Endpoint("from_zmq", addresses, True, 9, None, False, None)
        context = zmq.Context[zmq.Socket[bytes]]()
        with Link(endpoint, zmq.PULL) as link:
            sockets = [context.socket(zmq.PUSH) for _ in addresses]
            for socket, address in zip(sockets, addresses, strict=True):
                socket.connect(address)
                for _ in range(3):
                    socket.send(b"")
            for waiting in link._sockets:
                assert waiting.poll(1000 * WAIT)
            assert [route for route, _ in link.receive(0, most=1)] == [(0, b""), (1, b"")]
        context.destroy(0)

    def test_elements_wait_for_a_busy_consumer(
        self, ipc: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("flowdsl.remote.sockets._SECOND", 10)  # a second is short
        sender = sending(fl.from_range(30).map(megabyte), ipc, hwm=2, format="zmq_ops")
        received = fl.from_zmq(ipc, hwm=2, format="zmq_ops", timeout=WAIT).take(30)
        got = []
        for (x,) in received:
            got.append(int(x[0]))
            if len(got) == 3:
                sender.thread.join(0.5)  # so long that it might be taken for dead
        assert got == list(range(30))
        assert sender.outcome() == 30

    def test_elements_that_are_not_received_are_an_error(self, ipc: str) -> None:
        with pulling(ipc), pytest.raises(SourceError) as caught:
            fl.from_range(30).map(megabyte).send_zmq(ipc, format="zmq_ops", timeout=0.2)
        said = re.sub(r"after \d ", "after N ", str(caught.value))
        assert said == f"send_zmq: {ipc!r}: after N elements, nobody received for 0.2 s"

    def test_elements_before_a_failure_arrive(self, ipc: str) -> None:
        failing = threading.Event()

        def make(i: int) -> NDArray[np.uint8]:
            if i == 20:
                failing.set()
                raise ValueError("no more")
            return megabyte(i)

        flow = fl.from_range(30).map(make)
        with pulling(ipc) as socket:
            sender = sending(flow, ipc, format="zmq_ops")
            assert failing.wait(WAIT)
            got: list[int] = []
            while len(got) < 20 and socket.poll(1000 * WAIT):
                got.append(int(decode(socket.recv())[0][0]))
            with pytest.raises(fl.ElementError, match="element 20"):
                sender.outcome()
        assert got == list(range(20))
        with pulling(ipc), pytest.raises(fl.ElementError) as caught:
            flow.send_zmq(ipc, format="zmq_ops", timeout=0.2)
        (note,) = caught.value.__notes__
        assert note.startswith(f"send_zmq: {ipc!r}: after ")
        assert note.endswith(" elements, nobody received for 0.2 s")


def megabyte(i: int) -> NDArray[np.uint8]:
    return np.full(1_000_000, i, np.uint8)


@contextmanager
def pulling(address: str) -> Iterator[zmq.Socket[bytes]]:
    """A simulated socket."""
    context = zmq.Context[zmq.Socket[bytes]]()
    socket = context.socket(zmq.PULL)
    socket.setsockopt(zmq.RCVHWM, 1)
    socket.bind(address)
    try:
        yield socket
    finally:
        context.destroy(0)


class TestCurve:
    def test_known_keys_are_accepted(self) -> None:
        trainer, reader = make_keys(), make_keys()
        here, there = Curve(trainer.secret, [reader.public]), Curve(reader.secret, [trainer.public])
        receiver, address = bound(receiving, ANY_PORT, int, security=here)
        assert fl.from_range(30).send_zmq(address, security=there, timeout=WAIT) == 30
        assert receiver.outcome() == list(range(30))

    def test_the_sender_may_bind(self) -> None:
        trainer, reader = make_keys(), make_keys()
        here, there = Curve(trainer.secret, [reader.public]), Curve(reader.secret, [trainer.public])
        flow = fl.from_range(3)
        sender, address = bound(sending, flow, ANY_PORT, bind=True, security=there)
        received = fl.from_zmq(address, int, bind=False, security=here, timeout=WAIT)
        assert received.collect() == [0, 1, 2]
        assert sender.outcome() == 3

    def test_unknown_keys_are_refused(self, caplog: pytest.LogCaptureFixture) -> None:
        """Both ends log the reason once."""
        caplog.set_level(logging.INFO, "flowdsl")

        def logged(who: str, what: str) -> int:
            lines = [record.getMessage() for record in caplog.records]
            return sum(who in line and what in line for line in lines)

        trainer, reader, stranger = make_keys(), make_keys(), make_keys()
        here = Curve(trainer.secret, [reader.public])
        task, address = bound(receiving, ANY_PORT, int, security=here)
        for security, here_said, there_said in (
            (
                Curve(stranger.secret, [trainer.public]),  # not among the peers
                "its public key is not among those known here",
                "the public key of this end is not among those known there",
            ),
            (
                Curve(reader.secret, [stranger.public]),  # takes the receiver for somebody else
                "it was given a wrong public key for this end",
                "as it does if the public key given for it is wrong",
            ),
            (
                None,
                "only one of the two ends has security",
                "only one of the two ends has security",
            ),
        ):
            for seconds in (1, 8, WAIT):  # as many as a handshake takes
                with pytest.raises(SourceError, match="no receiver was there for") as caught:
                    fl.from_range(3).send_zmq(address, security=security, timeout=seconds)
                if there_said in str(caught.value):
                    break
            assert there_said in str(caught.value)
            # of two ends that do not agree either may see the other go before it has seen why
            assert eventually(lambda said=here_said: bool(logged("from_zmq", said)))  # type: ignore[misc]  # bound now
            assert logged("from_zmq", here_said) <= 2
            assert logged("send_zmq", there_said) in (1, 2)
        there = Curve(reader.secret, [trainer.public])
        assert fl.from_range(3).send_zmq(address, security=there, timeout=WAIT) == 3
        assert task.outcome() == [0, 1, 2]


def test_a_receiver_collected_in_a_cycle_closes_its_sockets(ipc: str) -> None:
    """The context has lost its sockets by then, and must not wait for them."""
    script = f"""
        import gc, threading
        import flowdsl as fl
        gc.disable()
        run = iter(fl.from_zmq({ipc!r}, timeout=60))
        sends = fl.from_range(9).send_zmq
        threading.Thread(target=sends, args=[{ipc!r}], daemon=True).start()
        cycle = [run, next(run)]
        cycle.append(cycle)
        del run, cycle
        gc.collect()
        print("collected", flush=True)
    """
    code = textwrap.dedent(script)
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30
    )
    assert result.stdout == "collected\n"
