"""check_flow: correct chains keep all laws, and each broken law is found and named."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl import Flow, InvalidArgument
from flowdsl.testing import FLOW_LAWS, check_flow
from flowdsl.testing.flows import alike


class Point:
    """An element whose class defines no equality."""

    def __init__(self, x: int) -> None:
        self.x = x


def broken(flow: Flow[Any, Any] | Callable[[], Flow[Any, Any]], **options: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        check_flow(flow, **{"procs": (), "threads": 0, **options})
    return "\n".join(
        line for line in str(caught.value).splitlines() if line.startswith(("BROKEN", " "))
    )


@pytest.mark.parametrize(
    "flow",
    [
        fl.from_range(30).shuffle(seed=2).map(np.sqrt).batch(4),
        fl.from_range(10**9).shuffle().random_map(lambda i, g: i + g.random()).repeat(),
        fl.from_range(50).filter(lambda i: i % 3 == 0).flat_map(lambda i: [i, i]).window(2),
        fl.from_items(["a", "b"]).take(0),
        fl.from_range(20).map(lambda i: Point(i)),
        fl.from_range(20).prefetch(threads=2, ordered=False),
        fl.from_range(20).map(float).prefetch(procs=8).batch(3),
    ],
)
def test_correct_flows_keep_all_laws(flow: Flow[Any, Any]) -> None:
    report = check_flow(flow, size=40, procs=(1,), threads=2, resumes=3)
    assert report.ok
    assert len(report.findings) == len(FLOW_LAWS)


def test_a_function_makes_flows_that_allow_one_pass() -> None:
    report = check_flow(lambda: fl.from_iterable(iter(range(9))).map(float), procs=(), resumes=3)
    assert "-       Two passes" in str(report)
    with pytest.raises(InvalidArgument, match=r"allows only one pass.*pass a function"):
        check_flow(fl.from_iterable(iter(range(9))))


class TestBrokenLaws:
    def test_a_function_with_random_numbers_of_its_own(self) -> None:
        text = broken(fl.from_range(9).map(lambda i: i + random.random()))
        assert "BROKEN  Two passes" in text
        assert "element 0 is" in text
        assert "must take its generator from random_map" in text

    def test_a_source_that_changes(self) -> None:
        starts = iter(range(100))
        text = broken(fl.from_iterable(lambda: [next(starts)]))
        assert "BROKEN  Two passes" in text

    def test_a_function_that_cannot_be_sent(self) -> None:
        lock = threading.Lock()
        text = broken(fl.from_range(9).map(lambda i: (lock, i)[1]), procs=(1,))
        assert "BROKEN  Worker processes" in text
        assert "lock" in text

    def test_a_function_that_depends_on_its_thread(self) -> None:
        main = threading.get_ident()
        text = broken(fl.from_range(9).map(lambda i: threading.get_ident() == main), threads=1)
        assert "with threads=1: element 0 is False, and not True" in text

    def test_an_error(self) -> None:
        text = broken(fl.from_range(9).map(lambda i: 1 // (i - 4)))
        assert text.startswith("BROKEN  A pass ends without an error.\n        after 4 elements: ")
        assert "row 4 of from_range(9)" in text

    def test_elements_of_another_type_than_the_function_declares(self) -> None:
        def text_of(i: int) -> str:
            return i if i == 3 else str(i)  # type: ignore[return-value]  # the mistake to find

        text = broken(fl.from_range(9).map(text_of))
        assert "BROKEN  Every element has the types" in text
        assert "element 3" in text

    def test_a_file_that_is_left_open(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.txt"
        path.write_text("1\n2\n3\n")
        kept = list[int]()

        def lines() -> Iterator[str]:
            kept.append(os.open(path, os.O_RDONLY))
            yield from path.read_text().splitlines()

        text = broken(fl.from_iterable(lines))
        for descriptor in kept:
            os.close(descriptor)
        assert "BROKEN  A pass that is closed early" in text
        assert str(path) in text


def test_the_report_says_why_a_law_does_not_apply() -> None:
    report = check_flow(fl.from_range(5).repeat(2), procs=(), threads=0)
    assert "-       Without the effect Resampled, no row of a source comes twice." in str(report)
    assert "rows may repeat or be missing" in str(report)


@pytest.mark.parametrize(
    ("flow", "options", "message"),
    [
        (7, {}, "flow must be a flow, or a function that returns one, got int"),
        (lambda: 7, {}, "got function that returns int"),
        (fl.from_range(3), {"size": 0}, "size must be an int >= 1, got 0"),
        (fl.from_range(3), {"procs": 2}, r"procs must be a tuple of ints >= 1, got 2"),
        (fl.from_range(3), {"threads": -1}, "threads must be an int >= 0, got -1"),
    ],
    ids=["not a flow", "function", "size", "procs", "threads"],
)
def test_wrong_arguments_are_refused(flow: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        check_flow(flow, **options)


def test_elements_without_equality_are_compared_by_their_content() -> None:
    assert alike(Point(1), Point(1))
    assert not alike(Point(1), Point(2))
    assert not alike(1, 1.0)


def test_elements_that_cannot_be_compared_differ() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ValueError("no single truth value")

        __hash__ = None  # type: ignore[assignment]  # as in arrays

    assert not alike(Odd(), Odd())  # a local class cannot be pickled either
    assert not alike(lambda: 1, lambda: 1)
