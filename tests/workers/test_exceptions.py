"""What a function raises arrives alike from this process, threads and worker processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

import pytest

import flowdsl as fl

KINDS: list[dict[str, Any]] = [{}, {"threads": 2}, {"procs": 2}]


class KeywordOnly(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class HoldsALock(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text, threading.Lock())
        self.lock = threading.Lock()
        self.kept = [1, 2]

    def __str__(self) -> str:
        return str(self.args[0])


class OwnReduce(Exception):
    def __reduce__(self) -> NoReturn:
        raise TypeError("not to be pickled")


class WithoutText(Exception):
    def __str__(self) -> NoReturn:
        raise ValueError("no text")


class TextOfTheLock(Exception):
    """Its text cannot be the same in another process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __str__(self) -> str:
        return f"locked: {self.lock.locked()}"


class OwnBase(BaseException):
    pass


class ShyArgument:
    def __repr__(self) -> NoReturn:
        raise ValueError("no text")

    def __reduce__(self) -> NoReturn:
        raise TypeError("not to be pickled")

    __str__ = __repr__


def _noted(notes: object) -> ValueError:
    error = ValueError("noted")
    vars(error)["__notes__"] = notes
    return error


def _of_itself() -> ValueError:
    error = ValueError()
    error.args = (error,)
    return error


ODD: dict[str, Callable[[], BaseException]] = {
    "keyword only": lambda: KeywordOnly(code=3),
    "a lock": lambda: HoldsALock("held"),
    "own reduce": lambda: OwnReduce("reduced"),
    "no text": WithoutText,
    "OSError": lambda: FileNotFoundError(2, "gone", "x.png"),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    "a group": lambda: ExceptionGroup("several", [KeywordOnly(code=1), ValueError("two")]),
}
ENDING: dict[str, Callable[[], BaseException]] = {
    "SystemExit": lambda: SystemExit(7),
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": lambda: asyncio.CancelledError("stop"),
    "own": lambda: OwnBase("mine"),
}


def raising(make: Callable[[], BaseException], i: int) -> int:
    if i == 3:
        raise make()
    return i


HOSTILE: dict[str, Callable[[], BaseException]] = {
    "an argument that cannot be shown": lambda: ValueError(ShyArgument()),
    "itself as an argument": _of_itself,
    "notes that are a number": lambda: _noted(5),
    "notes that are locks": lambda: _noted([threading.Lock()]),
}


@pytest.mark.parametrize("workers", KINDS, ids=str)
@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_an_exception_that_cannot_be_shown_ends_no_worker(
    make: Callable[[], BaseException], workers: dict[str, Any]
) -> None:
    errors = list[fl.ElementError]()
    flow = fl.from_range(10).map(partial(raising, make)).prefetch(on_error=errors.append)
    assert of(flow, workers).collect() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    (error,) = errors
    assert "failed on element 3 (row 3" in str(error)
    assert "ValueError" in str(error)


def in_a_stream(make: Callable[[], BaseException]) -> Iterator[int]:
    for i in range(10):
        yield raising(make, i)


def of(flow: fl.Flow[Any, Any], workers: dict[str, Any]) -> fl.Flow[Any, Any]:
    return flow.prefetch(**workers) if workers else flow


@pytest.mark.parametrize("workers", KINDS, ids=str)
@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_an_exception_keeps_its_class_text_and_line(
    make: Callable[[], BaseException], workers: dict[str, Any]
) -> None:
    with pytest.raises(fl.ElementError, match=r"^map\(<lambda>\) failed on element 3 \(row 3") as e:
        of(fl.from_range(10).map(lambda i: raising(make, i)), workers).collect()
    cause, given = e.value.__cause__, make()
    assert type(cause) is type(given)
    if not isinstance(given, WithoutText):
        assert str(cause) == str(given)
    assert cause is not None
    notes = "".join(getattr(cause, "__notes__", []))
    assert "procs" not in workers or "raise make()" in notes


def test_attributes_that_can_be_sent_arrive() -> None:
    flow = fl.from_range(10).map(lambda i: raising(ODD["a lock"], i)).prefetch(procs=1)
    with pytest.raises(fl.ElementError) as caught:
        flow.collect()
    cause = caught.value.__cause__
    assert isinstance(cause, HoldsALock)
    assert cause.kept == [1, 2]
    assert not hasattr(cause, "lock")


def test_an_exception_whose_text_would_change_is_named() -> None:
    flow = fl.from_range(10).map(lambda i: raising(TextOfTheLock, i)).prefetch(procs=1)
    with pytest.raises(fl.ElementError, match="TextOfTheLock: locked: False") as caught:
        flow.collect()
    assert type(caught.value.__cause__) is RuntimeError


@pytest.mark.parametrize("workers", KINDS, ids=str)
def test_a_skipping_run_survives_every_exception(workers: dict[str, Any]) -> None:
    flow: Any = fl.from_range(10)
    for make in ODD.values():
        flow = flow.map(partial(raising, make)).prefetch(on_error="skip")
    assert of(flow, workers).collect() == [0, 1, 2, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("workers", KINDS, ids=str)
@pytest.mark.parametrize("make", ENDING.values(), ids=ENDING)
def test_what_is_no_error_ends_the_run_as_itself(
    make: Callable[[], BaseException], workers: dict[str, Any], skips: bool
) -> None:
    flow = fl.from_range(10).map(lambda i: raising(make, i))
    given = make()
    with pytest.raises(type(given)) as caught:
        of(flow, workers | ({"on_error": "skip"} if skips else {})).collect()
    assert type(caught.value) is type(given)
    assert caught.value.args == given.args
    (place, *_) = [note for note in caught.value.__notes__ if note.startswith("raised by")]
    assert place == "raised by map(<lambda>) on element 3 (row 3 of from_range(10))"


@pytest.mark.parametrize("workers", KINDS, ids=str)
def test_exits_are_logged(workers: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    flow = fl.from_range(10).map(lambda i: raising(ENDING["SystemExit"], i))
    with pytest.raises(SystemExit):
        of(flow, workers).collect()
    assert caplog.messages == [
        "map(<lambda>) raised SystemExit(7) on element 3 (row 3 of from_range(10))"
    ]


@pytest.mark.parametrize("make", ENDING.values(), ids=ENDING)
@pytest.mark.parametrize(
    "flow",
    [
        lambda make: fl.from_iterable(partial(in_a_stream, make)),
        lambda make: fl.from_range(10).flat_map(lambda i: [raising(make, i)]),
        lambda make: fl.from_range(10).batch(1, collate=lambda xs: raising(make, xs[0])),
        lambda make: fl.from_iterable(range(10)).map(lambda i: raising(make, i)),
        lambda make: fl.from_iterable(range(10)).batch(1, collate=lambda xs: raising(make, xs[0])),
    ],
    ids=["stream", "flat_map", "collate", "map of a stream", "collate of a stream"],
)
def test_the_element_is_named_wherever_the_function_runs(
    flow: Callable[[Callable[[], BaseException]], fl.Flow[Any, Any]],
    make: Callable[[], BaseException],
) -> None:
    with pytest.raises(type(make())) as caught:
        flow(make).collect()
    assert any("on element 3 (" in note for note in caught.value.__notes__)
