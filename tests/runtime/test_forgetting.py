"""A flow and the objects of its functions are freed as soon as the flow is unreferenced."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import flowdsl as fl

Flow = fl.Flow[Any, Any]


class Table(np.ndarray[Any, Any]):
    """A large array that a function refers to; unlike NumPy's own it can be watched."""


@pytest.fixture(autouse=True)
def without_the_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def some(flow: Flow) -> None:
    with iter(flow) as run:
        next(run)


def begun(flow: Flow) -> None:
    next(iter(flow))


def resumed(flow: Flow) -> None:
    run = iter(flow)
    next(run)
    next(flow.resume(run.state_dict()))


USES: dict[str, Callable[[Flow], object]] = {
    "never used": lambda flow: None,
    "a pass": lambda flow: flow.collect(),
    "a pass in threads": lambda flow: flow.prefetch(threads=2).collect(),
    "a pass in processes": lambda flow: flow.prefetch(procs=2).collect(),
    "two passes in processes": lambda flow: [*(f := flow.prefetch(procs=1)), *f],
    "a stream that goes to processes": lambda flow: (
        flow.shuffle(buffer=2).map(float).prefetch(procs=1).collect()
    ),
    "copies in processes": lambda flow: flow.shuffle(buffer=2).replicate(procs=1).collect(),
    "a pass that was closed": lambda flow: some(flow.prefetch(procs=1)),
    "a pass that was forgotten": begun,
    "a pass in processes that was forgotten": lambda flow: begun(flow.prefetch(procs=1)),
    "a pass that was resumed": resumed,
    "a pass that leaves out": lambda flow: flow.prefetch(procs=1, on_error="skip").collect(),
    "batches": lambda flow: flow.batch(2).unbatch().window(2).collect(),
    "random order": lambda flow: flow.shuffle().repeat(2).take(3).shuffle(buffer=2).collect(),
    "several flows": lambda flow: flow.zip(flow).concat(flow.zip(flow)).collect(),
    "cache": lambda flow: [*(f := flow.cache()), *f],
    "a profile": lambda flow: flow.profile(seconds=0.01),
    "a picture": lambda flow: flow._repr_html_(),
    "statistics": lambda flow: iter(flow).statistics(),
    "explain": lambda flow: flow.prefetch(procs=1).explain(),
    "at": lambda flow: flow.at(2),
    "origins": lambda flow: flow.origins(2),
    "spec": lambda flow: flow.spec,
}


def table_of(use: Callable[[Flow], object]) -> weakref.ref[Table]:
    """Return a reference to the table of a flow that is unreferenced."""
    table = np.zeros(200_000).view(Table)
    use(fl.from_range(6).map(lambda i: table[i]))
    return weakref.ref(table)


@pytest.mark.parametrize("use", USES)
def test_objects_of_functions_are_freed_with_the_flow(use: str) -> None:
    assert table_of(USES[use])() is None
