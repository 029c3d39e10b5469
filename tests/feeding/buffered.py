"""A minimal consumer without a framework, built on a pump."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from queue import SimpleQueue
from typing import Generic, Self, TypeVar

from flowdsl import Flow
from flowdsl.feeding.pump import EndOfPass, Pump, Sink

T = TypeVar("T")


class Queued(Sink[T]):
    """A Python queue filled by a pump; elements would be converted in ``put``."""

    def __init__(self) -> None:
        self.queue = SimpleQueue[T]()

    def put(self, element: T, position: int) -> None:
        self.queue.put(element)


class Buffered(Iterator[T], Generic[T]):
    """The elements of a flow, computed ahead in a thread."""

    def __init__(
        self, flow: Flow[T], capacity: int = 4, state: Mapping[str, object] | None = None
    ) -> None:
        run = iter(flow) if state is None else flow.resume(state)
        self._sink = Queued[T]()
        self._pump = Pump(run, self._sink, capacity, name="Buffered")

    def __next__(self) -> T:
        try:
            self._pump.take()
        except EndOfPass:
            raise StopIteration from None
        return self._sink.queue.get()

    def state_dict(self) -> Mapping[str, object]:
        return self._pump.state_dict()

    def close(self) -> None:
        self._pump.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
