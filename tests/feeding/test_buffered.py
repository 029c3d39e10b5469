"""A loader of one page, built on the pump."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import flowdsl as fl
from tests.feeding.buffered import Buffered


def test_iterates_over_the_elements() -> None:
    flow = fl.from_range(50).shuffle(seed=2).batch(4)
    with Buffered(flow) as elements:
        for element, expected in zip(elements, flow.collect(), strict=True):
            np.testing.assert_array_equal(element, expected)


def test_resumes_from_a_state() -> None:
    flow = fl.from_range(50).filter(lambda i: i % 3 == 0).shuffle(buffer=5)
    with Buffered(flow) as elements:
        first = [next(elements) for _ in range(7)]
        state = elements.state_dict()
    with Buffered(flow, state=state) as rest:
        assert [*first, *rest] == flow.collect()


def test_raises_errors_of_the_flow() -> None:
    with Buffered(fl.from_range(9).map(lambda i: 6 // (3 - i))) as elements:
        assert [next(elements) for _ in range(3)] == [2, 3, 6]
        with pytest.raises(fl.ElementError, match="element 3") as failed:
            next(elements)
        assert isinstance(failed.value.__cause__, ZeroDivisionError)


def test_a_collected_loader_ends_its_thread() -> None:
    elements = Buffered(fl.from_range(9).repeat())
    next(elements)
    gone = weakref.ref(elements)
    del elements
    gc.collect()
    assert gone() is None
    assert not [thread for thread in threading.enumerate() if thread.name == "Buffered"]
