"""Checks received flows against the laws of flows.

This file does not choose the laws. Each law asks the nodes whether it applies, and they answer that
they support one pass, have no length and cannot be resumed. Each sender is a thread, which starts
when the receiver's pass starts. If there are two, the second one starts to send when the receiver
has all elements of the first, so that the order is known.
"""

from __future__ import annotations

import gc
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count, cycle, islice
from pathlib import Path
from time import monotonic
from typing import Any

import attrs
import numpy as np
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.effects import Endless, Reordered, Resampled, Tag, Unsized
from flowdsl.elements.specs import ValueSpec
from flowdsl.nodes import Node, flow
from flowdsl.remote import from_zmq, zmq_ops
from flowdsl.remote.receive_state import Tally
from flowdsl.remote.receiver import Receiver
from flowdsl.testing import LAWS, Draw, Model, Recipe, Source, models, standard
from flowdsl.testing.checks import check_law
from flowdsl.testing.elements import Listed, Named, Row, parts_of
from flowdsl.testing.functions import make_rows
from flowdsl.testing.laws import (
    Law,
    length_is_true,
    passes_are_pure,
    promises_match_the_model,
    reference_is_the_model,
    rows_keep_the_effects,
    running_gives_the_reference,
    spec_is_true,
)
from tests.sampling import examples

WAIT = 60  # for what comes at once, on a machine that is busy
DECLARED: dict[str, Any] = {"named": Named, "record": Row, "listed": Listed}


@pytest.fixture(autouse=True)
def no_garbage_is_collected() -> Iterator[None]:
    """Close the sources of a pass at its end, not when they are collected."""
    gc.disable()
    yield
    gc.enable()


@attrs.define
class Senders:
    """The threads that send, and their addresses."""

    folder: Path
    context: zmq.Context[zmq.Socket[bytes]] = attrs.field(factory=lambda: zmq.Context[Any]())
    over: threading.Event = attrs.field(factory=threading.Event)
    threads: list[tuple[threading.Thread, str]] = attrs.field(factory=list[Any])
    """The threads, each with its address."""
    numbers: Iterator[int] = attrs.field(factory=count)

    def receive(self, *send: Callable[[str], object], element: Any = object, **options: Any) -> Any:
        """Create a flow of the elements of some threads, which start with a pass over it."""

        def begin(address: str) -> None:
            for one in send:
                thread = threading.Thread(target=one, args=[address], daemon=True)
                self.threads.append((thread, address))
                thread.start()

        # An address of its own, to which no sender of another pass comes back; but two flows of one
        # recipe have one title, as their errors are compared.
        address = f"ipc://{self.folder}/{next(self.numbers)}"
        sent = fl.from_zmq(address, element, timeout=WAIT, on_bound=begin, **options)
        node: Any = sent.node
        return flow(attrs.evolve(node, addresses="an address"))

    def pushed(self, items: list[Any]) -> Callable[[str], None]:
        """Push the elements repeatedly until the test ends: receivers do not report their end."""

        def send(address: str) -> None:
            with self.context.socket(zmq.PUSH) as socket:
                socket.setsockopt(zmq.LINGER, 0)
                socket.connect(address)
                for item in cycle(items):
                    while not socket.poll(20, zmq.POLLOUT):
                        if self.over.is_set():
                            return
                    socket.send(zmq_ops.encode(item))
                    if self.over.is_set():
                        return

        return send

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, or the test ends."""
        until = monotonic() + WAIT
        while not condition() and not self.over.wait(0.002):
            assert monotonic() < until, "a sender waits for another that does not come"

    def end(self) -> None:
        """Provide a receiver for each sender from which no element was taken."""
        self.over.set()
        until = monotonic() + WAIT
        while alive := self._alive():
            assert monotonic() < until, "a sender does not end, though its receiver has"
            # All at once: one that has looked in vain for long looks only once in a second.
            others = [threading.Thread(target=_take, args=[address]) for address in alive]
            for other in others:
                other.start()
            for other in others:
                other.join()
        self.threads.clear()
        self.over.clear()

    def _alive(self) -> set[str]:
        """Return the addresses of the senders that do not end by themselves."""
        for thread, _ in self.threads:
            thread.join(0.02)
        return {address for thread, address in self.threads if thread.is_alive()}


def _take(address: str) -> None:
    with suppress(fl.SourceError):  # nobody sends any more
        fl.from_zmq(address, timeout=2).take(1).collect()


_folder = tempfile.TemporaryDirectory()
SENDERS = Senders(Path(_folder.name))


def sending(elements: Any) -> Callable[[str], None]:
    """Send a flow, until it or its receiver ends."""

    def send(address: str) -> None:
        with suppress(fl.SourceError):  # the receiver has left
            elements.send_zmq(address, timeout=WAIT)

    return send


def one_by_one(first: list[Any], second: list[Any], tally: Tally) -> list[Callable[[str], None]]:
    """Two senders that connect before the first one begins; the second follows its last element.

    The second does not wait for the end of the first, which comes when all its elements are
    delivered: the receiver's flow may hold some until it gets elements of the second.
    """
    is_there = threading.Event()

    def rows() -> Iterator[Any]:
        SENDERS.wait_for(is_there.is_set)
        yield from first

    def further() -> Iterator[Any]:
        is_there.set()
        SENDERS.wait_for(lambda: sum(tally.senders.values()) >= len(first))
        yield from second

    return [sending(fl.from_iterable(rows)), sending(fl.from_iterable(further))]


@contextmanager
def senders() -> Iterator[None]:
    """End all senders at the end of the block."""
    try:
        yield
    finally:
        SENDERS.end()


def once(items: Any, *tags: Tag) -> Model:
    """Create the model of a source that supports one pass."""
    return attrs.evolve(models.one_pass(items), tags=frozenset(tags))


def for_ever(items: list[Any], *tags: Tag) -> Model:
    spent = models.one_pass(items)
    return attrs.evolve(
        spent,
        rows=lambda epoch: enumerate(cycle([x for _, x in spent.rows(epoch)])),
        tags=frozenset(tags),
    )


def from_sender(draw: Draw, form: str, first: int, n: int) -> Source:
    items, element = list(make_rows(form, first, n)), DECLARED.get(form, object)
    sent = sending(fl.from_items(items))
    return Source(lambda: SENDERS.receive(sent, element=element), lambda: once(items, Unsized))


def from_senders(draw: Draw, form: str, first: int, n: int) -> Source:
    items, element = list(make_rows(form, first, n)), DECLARED.get(form, object)
    k = draw(st.integers(0, n))

    def receive() -> Any:
        tally = Tally()
        sent = one_by_one(items[:k], items[k:], tally)
        return SENDERS.receive(*sent, element=element, senders=2, tally=tally)

    return Source(receive, lambda: once(items, Unsized, Reordered))


def from_any_senders(draw: Draw, form: str, first: int, n: int) -> Source:
    items, element = list(make_rows(form, first, max(n, 1))), DECLARED.get(form, object)
    sent = sending(fl.from_items(items).repeat())
    return Source(
        lambda: SENDERS.receive(sent, element=element, senders=None),
        lambda: for_ever(items, Endless, Reordered),
        tuple(range(first, first + len(items))),
    )


def from_zmq_ops(draw: Draw, form: str, first: int, n: int) -> Source:
    items = [_arrays(x) for x in make_rows("dict", first, max(n, 1))]
    return Source(
        lambda: SENDERS.receive(SENDERS.pushed(items), format="zmq_ops"),
        lambda: for_ever(items, Endless, Reordered, Resampled),
        tuple(range(first, first + len(items))),
    )


def _arrays(element: Any) -> tuple[Any, ...]:
    """Convert an element to the zmq_ops format: arrays without names."""
    return tuple(np.asarray(part) for _, part in parts_of(element) or ())


REMOTE = {
    "FromAnySenders": from_any_senders,
    "FromSender": from_sender,
    "FromSenders": from_senders,
    "FromPushers": from_zmq_ops,
}
CATALOGUE = attrs.evolve(
    standard.CATALOGUE,
    sources={**standard.SOURCES, **REMOTE},
    one_pass=standard.ONE_PASS | REMOTE.keys(),
    sizes=st.integers(0, 8),
)


def test_every_remote_node_is_checked_against_the_laws() -> None:
    found = {
        name
        for name, cls in vars(from_zmq).items()
        if isinstance(cls, type) and issubclass(cls, Node) and not cls.__subclasses__()
    }
    assert found - {"Node"} == set(REMOTE)


@pytest.mark.hypothesis
@pytest.mark.parametrize("source", REMOTE)
def test_sent_flows_obey_the_laws(source: str) -> None:
    @settings(max_examples=examples(120))
    @given(CATALOGUE.chains(most=2, source=source), st.integers(0, 3))
    def check(recipe: Recipe, place: int) -> None:
        with senders():
            for law in LAWS:
                check_law(law, recipe)
            check_law(running_gives_the_reference, recipe.with_prefetch(place, threads=True), 2)

    check()


class TestBrokenReceiversAreDetected:
    """Broken elements, and broken properties of nodes."""

    @pytest.fixture
    def recipe(self) -> Iterator[Recipe]:
        items = list(make_rows("tuple", 0, 5))
        sent = sending(fl.from_items(items))
        with senders():
            yield Recipe.of("sent", lambda: SENDERS.receive(sent), lambda: once(items, Unsized))

    def test_an_unbroken_receiver_passes(self, recipe: Recipe) -> None:
        assert not broken_by(recipe)

    @pytest.mark.parametrize(
        ("change", "law"),
        [
            (lambda rows: islice(rows, 1, None), reference_is_the_model),
            (lambda rows: islice(rows, 4), reference_is_the_model),
            (lambda rows: (x for x in rows for _ in range(2)), reference_is_the_model),
            (lambda rows: (x for x in rows for _ in range(2)), rows_keep_the_effects),
            (lambda rows: reversed([*rows]), rows_keep_the_effects),
        ],
    )
    def test_wrong_elements_are_detected(
        self, recipe: Recipe, change: Any, law: Law, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = Receiver.elements
        monkeypatch.setattr(Receiver, "elements", lambda self: iter(change(whole(self))))
        assert law in broken_by(recipe)

    @pytest.mark.parametrize(
        ("name", "value", "law"),
        [
            ("adds", frozenset[Tag](), promises_match_the_model),
            ("length", 4, length_is_true),
            ("replayable", True, passes_are_pure),
            ("spec", lambda self, probe: ValueSpec(int), spec_is_true),
        ],
    )
    def test_wrong_node_properties_are_detected(
        self, recipe: Recipe, name: str, value: Any, law: Law, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(from_zmq.FromSender, name, value)
        assert law in broken_by(recipe)


def broken_by(recipe: Recipe) -> set[Law]:
    broken: set[Law] = set()
    for law in LAWS:
        try:
            law(recipe)
        except (AssertionError, fl.FlowError):
            broken.add(law)
    return broken
