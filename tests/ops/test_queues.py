"""from_queue: the elements that a producer puts into a queue, up to the end marker."""

from __future__ import annotations

import asyncio
import multiprocessing
import queue
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import ElementError, Flow, InvalidFlow, SourceError, Unsized


def filled(*elements: Any) -> queue.Queue[Any]:
    q: queue.Queue[Any] = queue.Queue()
    for element in elements:
        q.put(element)
    return q


class Fails:
    """A queue that breaks after two elements."""

    def __init__(self, error: Exception) -> None:
        self.left = [1, 2]
        self.error = error

    def get(self) -> int:
        if not self.left:
            raise self.error
        return self.left.pop(0)


class TestElements:
    @given(st.lists(st.integers() | st.text()))
    def test_elements_before_the_marker_are_yielded(self, elements: list[int | str]) -> None:
        q = filled(*elements, None, "later")
        assert fl.from_queue(q).collect() == elements
        assert q.get() == "later"

    def test_the_queue_is_read_only_on_demand(self) -> None:
        q = filled(1, 2, 3)
        run = iter(fl.from_queue(q))
        assert q.qsize() == 3
        assert [next(run), q.qsize()] == [1, 2]
        assert list(fl.from_queue(q).take(1)) == [2]
        assert q.get() == 3

    def test_elements_of_another_thread_are_yielded(self) -> None:
        q: queue.Queue[int | None] = queue.Queue(2)

        def produce() -> None:
            for i in range(20):
                q.put(i)
            q.put(None)

        thread = threading.Thread(target=produce)
        thread.start()
        flow = fl.from_queue(q, timeout=30)
        assert flow.batch(8).map(lambda batch: int(batch.sum())).collect() == [28, 92, 70]
        thread.join()

    def test_a_marker_copied_through_a_pipe_is_recognized(self) -> None:
        context = multiprocessing.get_context("spawn")
        q: Any = context.SimpleQueue()
        for x in ((0, "image"), (1, "image"), ("the", "end")):
            q.put(x)
        assert fl.from_queue(q, end=("the", "end")).collect() == [(0, "image"), (1, "image")]
        q.close()

    def test_elements_of_a_process_queue_are_yielded(self) -> None:
        q: Any = multiprocessing.get_context("spawn").Queue()
        for x in (1, 2, None):
            q.put(x)
        assert fl.from_queue(q, timeout=30).collect() == [1, 2]
        q.close()
        q.join_thread()

    def test_a_queue_that_is_shut_down_ends_the_pass(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class ShutDown(Exception):
            """The exception of Python 3.13."""

        monkeypatch.setattr(queue, "ShutDown", ShutDown, raising=False)
        assert fl.from_queue(Fails(ShutDown())).collect() == [1, 2]

    @pytest.mark.parametrize("procs", [0, 2])
    def test_elements_of_a_queue_are_sent_to_workers(self, procs: int) -> None:
        flow = fl.from_queue(filled(*range(10), None)).map(str).prefetch(procs=procs)
        assert flow.collect() == [str(i) for i in range(10)]


class TestMarker:
    @pytest.mark.parametrize("end", ["stop", -1, b"", (), (0, "end"), {"end": True}, float("nan")])
    def test_the_marker_is_recognized_by_identity(self, end: Any) -> None:
        assert fl.from_queue(filled(1, end, 2), end=end).collect() == [1]

    @pytest.mark.parametrize(
        ("end", "copy"), [("stop", "".join("stop")), ((0, 500), (0, 499 + 1)), ({"a": 1}, {"a": 1})]
    )
    def test_the_marker_is_recognized_by_type_and_value(self, end: Any, copy: Any) -> None:
        assert fl.from_queue(filled(1, copy, 2), end=end).collect() == [1]

    @pytest.mark.parametrize(
        ("end", "element"),
        [
            (0, False),
            (0, 0.0),
            (1, np.int64(1)),
            ((0,), (0, 0)),
            ((0,), (1,)),
            ((0,), [0]),
            ({"a": 1}, {"a": 2}),
            ({"a": 1}, {"b": 1}),
            (None, ()),
        ],
    )
    def test_similar_elements_are_not_the_marker(self, end: Any, element: Any) -> None:
        assert fl.from_queue(filled(element, end), end=end).collect() == [element]

    @pytest.mark.parametrize("end", [None, (0, None), (None, None), {"x": 0}, {"x": None}, 0])
    def test_the_marker_is_never_compared_to_an_array(self, end: Any) -> None:
        for element in (np.zeros(3), (0, np.zeros(3)), (np.zeros(3), 0), {"x": np.zeros(3)}):
            got = fl.from_queue(filled(element, end), end=end).collect()
            assert len(got) == 1
            assert got[0] is element

    def test_a_marker_with_an_array_is_recognized_by_identity(self) -> None:
        end, copy = ("end", np.zeros(2)), ("end", np.zeros(2))
        assert len(fl.from_queue(filled(copy, end), end=end).collect()) == 1

    def test_an_array_as_marker_is_refused(self) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_queue(filled(), end=np.zeros(3))
        assert str(caught.value) == (
            "from_queue: end must be a marker that no element equals, got an array"
        )


class TestPasses:
    def test_a_queue_allows_only_one_pass(self) -> None:
        flow = fl.from_queue(filled(1, None, 2, None))
        assert flow.effects == {Unsized}
        assert flow.node.length is None
        assert not flow.map(str).node.replayable
        assert str(flow.spec) == "?"  # and asking takes nothing away
        assert flow.collect() == [1]
        for again in (flow.collect, flow.repeat(2).collect, lambda: list(flow.epoch(1))):
            with pytest.raises(SourceError) as caught:
                again()
            assert str(caught.value) == (
                "from_queue: a queue allows only one pass, as reading removes its elements; for "
                "several passes over the same elements put cache() after it"
            )

    def test_a_cache_allows_several_passes(self) -> None:
        flow = fl.from_queue(filled(1, 2, None)).cache()
        assert flow.repeat(2).collect() == [1, 2, 1, 2]

    def test_positions_of_a_queue_count_from_0(self) -> None:
        flow: Flow[Any, Any] = fl.from_queue(filled("a", "b", None))
        assert list(flow.node.reference(0)) == [(0, "a"), (1, "b")]


class TestFailures:
    def test_a_timeout_without_an_element_is_an_error(self) -> None:
        run = iter(fl.from_queue(filled(1, 2), timeout=0.01))
        assert [next(run), next(run)] == [1, 2]
        with pytest.raises(SourceError) as caught:
            next(run)
        assert str(caught.value) == (
            "from_queue: after 2 elements, neither another one nor the end marker None came in "
            "0.01 s; is the queue still being filled?"
        )
        assert isinstance(caught.value.__cause__, queue.Empty)

    @pytest.mark.parametrize("error", [OSError("gone"), queue.Empty()])
    def test_a_failure_of_the_queue_is_raised_at_its_position(self, error: Exception) -> None:
        run = iter(fl.from_queue(Fails(error)))
        assert [next(run), next(run)] == [1, 2]
        with pytest.raises(ElementError) as caught:
            next(run)
        assert (caught.value.operator, caught.value.position) == ("from_queue(Fails)", 2)
        assert caught.value.__cause__ is error

    def test_a_get_without_a_timeout_argument_is_an_error(self) -> None:
        q: Any = Fails(OSError())
        with pytest.raises(ElementError) as caught:
            fl.from_queue(q, timeout=1).collect()
        assert isinstance(caught.value.__cause__, TypeError)

    @pytest.mark.parametrize("q", [[1], {"a": 1}, 3, None, asyncio.Queue()])
    def test_other_objects_than_queues_are_refused(self, q: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_queue(q)
        assert str(caught.value) == (
            f"from_queue: q must be a queue of threads or processes, with a get() that waits, got "
            f"{q!r}"
        )

    @pytest.mark.parametrize("timeout", [0, -1, True, "3", float("inf"), float("nan")])
    def test_invalid_timeouts_are_refused(self, timeout: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_queue(filled(), timeout=timeout)
        assert str(caught.value) == (
            f"from_queue: timeout must be a number of seconds > 0, got {timeout!r}"
        )
