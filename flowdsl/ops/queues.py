"""from_queue: the elements that a producer puts into a queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import iscoroutinefunction
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

import numpy as np

from flowdsl.effects import Unsized
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.elements.structure import components
from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.nodes import OneShot, PassFactory, Row, T, flow, frozen_node
from flowdsl.ops.iterables import Once, numbered

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class Gettable(Protocol[A_co]):
    """A queue that ``from_queue`` can read: of ``queue`` or ``multiprocessing``, or a similar one.

    With a ``timeout``, ``get(timeout=)`` is called, which raises ``queue.Empty``.
    """

    def get(self) -> A_co:
        """Remove and return the next element, or wait for it."""
        ...


@frozen_node
class FromQueue(OneShot[T, Unsized], Generic[T]):
    """The elements put into a queue, up to an end marker."""

    label: str
    once: Once

    @property
    def title(self) -> str:
        return f"from_queue({self.label})"

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return numbered(self, self.once, epoch)


def _elements(get: Callable[..., Any], end: object, timeout: float | None) -> Iterator[Any]:
    """Yield what ``get`` returns until it is the end marker, or the queue is shut down."""
    import queue  # here: not needed at import

    shut_down = getattr(queue, "ShutDown", ())  # since Python 3.13
    for number in count():
        try:
            x = get() if timeout is None else get(timeout=timeout)
        except shut_down:
            return
        except queue.Empty as error:
            if timeout is None:
                raise
            raise SourceError(
                f"from_queue: after {number} elements, neither another one nor the end marker "
                f"{end!r} came in {timeout} s; is the queue still being filled?"
            ) from error
        if _is_marker(x, end):
            return
        yield x


def _is_marker(x: Any, end: Any) -> bool:
    """Return True if an element is the end marker or its unpickled copy; an array never is."""
    if x is end:
        return True
    if type(x) is not type(end) or isinstance(x, np.ndarray):
        return False
    x_parts, end_parts = components(x), components(end)
    if x_parts is None or end_parts is None:
        return bool(x == end)
    return len(x_parts) == len(end_parts) and all(
        x_name == end_name and _is_marker(x_part, end_part)
        for (x_name, x_part), (end_name, end_part) in zip(x_parts, end_parts, strict=True)
    )


def check_timeout(who: str, timeout: float | None, name: str = "timeout") -> None:
    """Refuse a timeout that is not a number of seconds above 0; None means to wait forever."""
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and 0 < timeout < float("inf")):
        raise InvalidFlow(f"{who}: {name} must be a number of seconds > 0, got {timeout!r}")


@overload
def from_queue(
    q: Gettable[A | None], *, end: None = None, timeout: float | None = None
) -> Flow[A, Unsized]: ...
@overload
def from_queue(
    q: Gettable[A], *, end: object, timeout: float | None = None
) -> Flow[A, Unsized]: ...
def from_queue(
    q: Gettable[Any], *, end: object = None, timeout: float | None = None
) -> Flow[Any, Unsized]:
    """Yield the elements that a producer puts into a queue, up to the marker ``end``.

    ``end`` is recognized by identity, or by type and value, since a marker from another process is
    a copy. The pass also ends when the queue is shut down (Python 3.13). The elements before the
    marker form one pass; a second pass raises ``SourceError``. The queue is read in the consumer's
    process, only as far as the operators above read ahead, as ``prefetch`` and ``shuffle`` do. Set
    a ``timeout``, in seconds, to avoid waiting forever if the producer may die. A pass over a queue
    has no state to resume from: delivered elements have been removed from the queue.

    Length: unknown until the marker is read.

    Effects: ``Unsized``.

    Errors: ``InvalidFlow`` for an object without a blocking ``get``, or a timeout that is not a
    number above 0; ``SourceError`` for a second pass, and when no element comes in time; any other
    exception of ``get`` is raised at its place in the sequence, as the cause of an
    ``ElementError``.

    >>> import queue, flowdsl as fl
    >>> q = queue.Queue()
    >>> for x in (1, 2, None):
    ...     q.put(x)
    >>> fl.from_queue(q).collect()
    [1, 2]

    Source: ``DataFromQueue`` of tensorpack.

    Elsewhere: tensorpack ``DataFromQueue``; tf.data none; Grain none; torchdata none.
    """
    get: Any = getattr(q, "get", None)
    if not callable(get) or hasattr(q, "keys") or iscoroutinefunction(get):
        raise InvalidFlow(
            f"from_queue: q must be a queue of threads or processes, with a get() that waits, got "
            f"{q!r}"
        )
    check_timeout("from_queue", timeout)
    if isinstance(end, np.ndarray):
        raise InvalidFlow("from_queue: end must be a marker that no element equals, got an array")
    once = Once(_elements(get, end, timeout), refusal=_SECOND_PASS)
    return flow(FromQueue(label=type(q).__name__, once=once))


_SECOND_PASS = (
    "from_queue: a queue allows only one pass, as reading removes its elements; for several "
    "passes over the same elements put cache() after it"
)
