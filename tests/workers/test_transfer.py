"""Elements that cannot be sent, or not be loaded where they arrive: an error that names them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from io import BytesIO, TextIOWrapper
from itertools import islice
from typing import Any

import pytest

import flowdsl as fl
from flowdsl import ElementError
from flowdsl.executor.execute import EndToEnd
from flowdsl.workers import worker
from flowdsl.workers.slabs import Slabs
from flowdsl.workers.tasks import Task
from flowdsl.workers.wire import unpack

pytestmark = pytest.mark.usefixtures("mortals")

COUNT = 12
BAD = 7


class Loaded:
    """An object; the one of the number ``BAD`` cannot be loaded."""

    def __init__(self, i: int) -> None:
        self.i = i

    def __reduce__(self) -> Any:
        return _loaded, (self.i,)


class Sent(Loaded):
    """An object; the one of the number ``BAD`` cannot be sent."""

    def __reduce__(self) -> Any:
        if self.i == BAD:
            raise ValueError("this is never sent")
        return super().__reduce__()


class Opened(Loaded):
    """An object; the one of the number ``BAD`` has an open file."""

    def __reduce__(self) -> Any:
        file = TextIOWrapper(BytesIO())
        return (_loaded, (self.i,)) if self.i != BAD else (_nothing, (file,))


class Viewed(Loaded):
    """An object; the one of the number ``BAD`` has a view of memory."""

    def __reduce__(self) -> Any:
        return (_loaded, (self.i,)) if self.i != BAD else (_nothing, (memoryview(b"x"),))


def _loaded(i: int) -> Loaded:
    if i == BAD:
        raise ValueError("this is never loaded")
    return Loaded(i)


def _nothing(_: object) -> None:
    raise AssertionError("never loaded")


def number(x: Loaded) -> int:
    return x.i


def is_even(i: int) -> bool:
    return i % 2 == 0 or i == BAD


class Rows:
    def __init__(self, kind: Callable[[int], Any]) -> None:
        self.kind = kind

    def __call__(self) -> Iterator[Any]:
        return map(self.kind, range(COUNT))


Chain = Callable[[Any], Any]
TO_WORKERS: dict[str, Chain] = {
    "items": lambda kind: fl.from_items([kind(i) for i in range(COUNT)]).map(number),
    "items in batches": lambda kind: (
        fl.from_items([kind(i) for i in range(COUNT)]).map(number).batch(4).unbatch()
    ),
    "a stream": lambda kind: fl.from_iterable(Rows(kind)).map(number),
    "two sources": lambda kind: (
        fl.from_items([kind(i) for i in range(5)])
        .concat(fl.from_items([kind(i) for i in range(5, COUNT)]))
        .map(number)
    ),
}
FROM_WORKERS: dict[str, Chain] = {
    "a range": lambda kind: fl.from_range(COUNT).map(kind),
    "a filter": lambda kind: fl.from_range(COUNT).filter(is_even).map(kind),
    "a stream": lambda kind: fl.from_iterable(Rows(int)).map(kind),
}
WAYS = [
    pytest.param(chain, kind, id=f"{'to' if to else 'from'} workers, {name}, {kind.__name__}")
    for to, chains in ((True, TO_WORKERS), (False, FROM_WORKERS))
    for name, chain in chains.items()
    for kind in (Loaded, Sent, Opened, Viewed)
    if to or name != "a stream" or kind is not Loaded
]


class Whole(Loaded):
    """An object that arrives."""

    def __reduce__(self) -> Any:
        return Whole, (self.i,)


def numbers(elements: Any) -> list[int]:
    return [getattr(x, "i", x) for x in elements]


@pytest.mark.parametrize(("chain", "kind"), WAYS)
def test_the_error_of_an_element_that_does_not_arrive_names_it(chain: Chain, kind: Any) -> None:
    expected = numbers(chain(Whole))
    before = expected.index(BAD) // 4 * 4  # of whole batches
    place = rf"\((row|element) ({BAD}|{BAD - 5}) of from_"
    with pytest.raises(ElementError, match=place) as caught:
        chain(kind).prefetch(procs=1).collect()
    assert caught.value.__cause__ is not None
    run = iter(chain(kind).prefetch(procs=1))
    assert numbers(islice(run, before)) == expected[:before]


@pytest.mark.parametrize(("chain", "kind"), WAYS)
def test_the_other_elements_are_delivered_if_failures_are_skipped(chain: Chain, kind: Any) -> None:
    expected = numbers(chain(Whole))
    expected.remove(BAD)
    errors = list[ElementError]()
    flow = chain(kind).prefetch(procs=2, on_error=errors.append)
    assert numbers(flow) == expected
    (error,) = errors
    assert error.__cause__ is not None


def test_a_result_of_a_stream_that_cannot_be_loaded_is_an_error() -> None:
    flow = fl.from_iterable(Rows(int)).map(Loaded).prefetch(procs=1)
    with pytest.raises(ElementError, match="cannot be loaded by the consumer's process"):
        flow.collect()


def test_each_of_many_rows_that_cannot_be_loaded_is_skipped() -> None:
    rows = [Loaded(BAD if i % 2 else 0) for i in range(200)]
    errors = list[ElementError]()
    flow = fl.from_items(rows).map(number).prefetch(procs=2, on_error=errors.append)
    assert flow.collect() == [0] * 100
    assert [error.position for error in errors] == list(range(1, 200, 2))


def test_of_two_rows_that_cannot_be_loaded_the_first_is_named() -> None:
    rows = [Loaded(BAD if i in (150, 190) else 0) for i in range(200)]
    flow = fl.from_items(rows).map(number).prefetch(procs=2)
    with pytest.raises(ElementError, match=r"row 150 of"):
        flow.collect()


def test_rows_are_unsent_only_if_the_worker_says_so() -> None:
    """A function may raise what a worker raises for an element that it cannot send."""

    def no(i: int) -> object:
        raise fl.NotShippable("mine")

    def unsent(func: Callable[[int], object]) -> tuple[Exception | None, bool]:
        executor = EndToEnd(fl.from_range(3).map(func).node)
        frames = worker.run(executor, Slabs(lambda *_: None), Task(0, 0, 0, 3), [], frozenset())
        result = unpack(frames[0])[0]
        return result.unsent, result.failure is not None

    assert unsent(no) == (None, True)
    lost, failed = unsent(lambda _: threading.Lock())
    assert isinstance(lost, fl.NotShippable)
    assert not failed
