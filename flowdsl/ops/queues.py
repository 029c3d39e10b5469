"""from_queue: the elements that a producer puts into a queue."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from inspect import iscoroutinefunction
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

import attrs
import numpy as np

from flowdsl.effects import Unsized
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.elements.structure import components
from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.nodes import OneShot, PassFactory, Row, T, flow
from flowdsl.ops.sources import Once, numbered

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class Gettable(Protocol[A_co]):
    """What ``from_queue`` reads: a queue of ``queue`` or ``multiprocessing``, or a similar one.

    With a ``timeout`` its ``get`` is called with one, and raises ``queue.Empty``.
    """

    def get(self) -> A_co:
        """Take the next element, or wait for it."""
        ...


@attrs.frozen(eq=False)
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


def _taken(get: Callable[..., Any], end: object, timeout: float | None) -> Iterator[Any]:
    shut_down = getattr(queue, "ShutDown", ())  # since Python 3.13
    for taken in count():
        try:
            x = get() if timeout is None else get(timeout=timeout)
        except shut_down:
            return
        except queue.Empty as error:
            if timeout is None:
                raise
            raise SourceError(
                f"from_queue: after {taken} elements, neither another one nor the end marker "
                f"{end!r} came in {timeout} s; is the queue still being filled?"
            ) from error
        if _is_marker(x, end):
            return
        yield x


def _is_marker(x: Any, end: Any) -> bool:
    """Whether an element is the end marker, or its unpickled copy; an array never is."""
    if x is end:
        return True
    if type(x) is not type(end) or isinstance(x, np.ndarray):
        return False
    parts, ends = components(x), components(end)
    if parts is None or ends is None:
        return bool(x == end)
    return len(parts) == len(ends) and all(
        a == b and _is_marker(value, mark)
        for (a, value), (b, mark) in zip(parts, ends, strict=True)
    )


def check_timeout(who: str, timeout: float | None) -> None:
    """Refuse what is no number of seconds; None is for ever."""
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (number and 0 < timeout < float("inf")):
        raise InvalidFlow(f"{who}: timeout must be a number of seconds > 0, got {timeout!r}")


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
    """The elements that others put into a queue of threads or processes, until ``end`` comes.

    ``end`` is told by identity, or by type and value, since a marker from another process is a
    copy; a queue that is shut down (Python 3.13) has ended too. The elements before it are those
    of one pass; the second is a ``SourceError``. The queue is read in the consumer's process, no
    further than the operators above read ahead, as ``prefetch`` and ``shuffle`` do. Give a
    ``timeout``, in seconds, not to wait for ever where whoever fills it may die. No state can be
    taken of a pass over it: the queue goes on where it is, whatever was delivered before.

    Length: unknown until the marker comes.

    Effects: ``Unsized``.

    Errors: ``InvalidFlow`` for what has no ``get`` to wait in, or a timeout that is no number
    above 0; ``SourceError`` for a second pass, and when no element comes in time; what ``get``
    raises besides arrives at its place in the sequence, as the cause of an ``ElementError``.

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
    return flow(FromQueue(type(q).__name__, Once(_taken(get, end, timeout), _TAKEN)))


_TAKEN = (
    "from_queue: a queue gives only one pass, as what was taken from it is gone; for several "
    "passes over the same elements put cache() after it"
)
