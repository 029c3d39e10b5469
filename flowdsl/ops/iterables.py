"""from_iterable: the elements of an iterable; and classes that read streams of every kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from sys import getrefcount
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    TypeVar,
)

import attrs

from flowdsl.effects import Effect, Unsized
from flowdsl.elements.read_only import read_only
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.errors import FlowError, InvalidFlow, SourceError, raise_with_cause
from flowdsl.nodes import (
    Node,
    PassFactory,
    Row,
    T,
    cached_per_node,
    flow,
    frozen_node,
    name_of,
    rejects_keywords,
    with_inferred,
)
from flowdsl.ops.refused_items import refuse_splits, refuse_tables

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")


@attrs.define(eq=False, repr=False)
class Opened(Generic[T]):
    """The iterator that a pass reads from, and releases when it ends."""

    elements: Iterator[T]
    owned: bool
    """True if the iterator was made for this pass, and is closed at its end."""

    def __enter__(self) -> Opened[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        close = getattr(self.elements, "close", None) if self.owned else None
        try:
            if close is not None:
                close()
        except Exception as failed:
            if error is None or isinstance(error, GeneratorExit):
                raise
            error.add_note(f"closing the iterator failed as well: {failed!r}")
        finally:
            del close  # a bound method keeps its object alive
            # Release the iterator, unless something else refers to it.
            if getrefcount(self.elements) <= getrefcount(_with_one_reference.elements):
                self.elements = iter(())


_with_one_reference = Opened(iter([None]), owned=False)


@attrs.define(eq=False, repr=False)
class Once:
    """Opens an iterator for one pass, and refuses a second pass."""

    iterator: Iterator[Any] | None
    refusal: str
    owned: bool = False
    """True if only this object uses the iterator, so that it is closed at the end of the pass."""

    def __call__(self) -> Opened[Any]:
        if self.iterator is None:
            raise SourceError(self.refusal)
        opened, self.iterator = Opened(self.iterator, self.owned), None
        return opened


@attrs.define(eq=False, repr=False)
class Reopening(Generic[T]):
    """Opens a new iterator for every pass, and refuses the iterator of the last pass."""

    make: Callable[[], Iterable[T]]
    _last: Opened[T] | None = attrs.field(default=None, init=False)

    def __call__(self) -> Opened[T]:
        opened = Opened(iter(self.make()), owned=True)
        if self._last is not None and self._last.elements is opened.elements:
            raise SourceError(
                f"from_iterable: {name_of(self.make)} returned the same iterator as for the last "
                f"pass, which used its elements up; make a new one in the function"
            )
        self._last = opened
        return opened

    def __reduce__(self) -> tuple[type[Reopening[T]], tuple[object, ...]]:
        return Reopening, (self.make,)  # the last iterator belongs to this process


@frozen_node
class FromIterable(Node[T, Unsized], Generic[T]):
    """The elements of an iterable, or of a new iterable for every pass."""

    make: Callable[[], Opened[T]]
    """Opens the iterator of a pass."""
    replays: bool
    """True if a second pass is possible."""
    label: str
    """The argument, as the title shows it."""

    @property
    def title(self) -> str:
        return f"from_iterable({self.label})"

    @property
    def length(self) -> int | None:
        return None

    @property
    def replayable(self) -> bool:
        return self.replays

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return with_inferred(self, UNKNOWN, probe)

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return numbered(self, partial(self._open, epoch), epoch)

    def _open(self, epoch: int) -> Opened[T]:
        try:
            return self.make()
        except FlowError:
            raise
        except Exception as error:
            raise SourceError(
                f"{self.title}: the function failed to make an iterator for epoch {epoch}: "
                f"{error!r}"
            ) from error


def numbered(node: Node[T, Effect], make: Callable[[], Opened[T]], epoch: int) -> Iterator[Row[T]]:
    """Yield the elements of a stream with their positions; errors are raised at their position.

    The stream is opened for the first element, and released when the rows end or are closed.
    """
    with make() as opened:
        for position in count():
            try:
                # not through a local variable for the iterator: a traceback would keep it alive
                x = next(opened.elements)
            except StopIteration:
                return
            except FlowError:
                raise
            except BaseException as error:
                raise_with_cause(node.error_at(epoch, position), error)
            yield position, x


_SPECS = "the spec is read from the first element, or from the annotations of functions"


@rejects_keywords(
    generator="write from_iterable(f)",
    output_signature=_SPECS,
    output_types=_SPECS,
)
def from_iterable(iterable: Iterable[A] | Callable[[], Iterable[A]]) -> Flow[A, Unsized]:
    """Yield the elements of an iterable, or of the iterable that a function makes for each pass.

    A function without arguments makes an iterator for every pass, so the flow can be repeated and
    resumed. A live iterator, such as a generator, allows one pass; a second pass raises
    ``SourceError``. The iterable is read in the consumer's process. The arrays of a collection,
    such as a list, are read-only, as with ``from_items``; elements from a function or an iterator
    are yielded unchanged.

    If the iterator that the function made has a ``close``, as generators and files have, it is
    closed at the end of its pass, also if the pass is ended early. A live iterator is released, and
    stays open if it is referenced elsewhere.

    Length: unknown, for any iterable.

    Effects: ``Unsized``.

    Errors: ``InvalidFlow`` for other objects, for a set, which has no order, for a table, whose
    iterator yields names or columns, and for an array of Arrow, whose iterator yields Arrow's
    scalars; an exception of the iterable is raised at its place in the sequence, as the cause of an
    ``ElementError``; ``SourceError`` if the function fails; ``FlowError`` at the end of the pass if
    closing the iterator fails.

    >>> import flowdsl as fl
    >>> squares = fl.from_iterable(lambda: (i * i for i in range(3)))
    >>> squares.repeat(2).collect()
    [0, 1, 4, 0, 1, 4]

    Source: ``DataFromGenerator`` and ``DataFromIterable`` of tensorpack.

    Elsewhere: tensorpack ``DataFromIterable``, ``DataFromGenerator``; tf.data ``from_generator``;
    Grain none; torchdata ``IterableWrapper``.
    """
    refuse_splits("from_iterable: iterable", iterable)
    refuse_tables("from_iterable: iterable", iterable)
    if isinstance(iterable, (set, frozenset)):
        raise InvalidFlow(
            "from_iterable: a set has another order in each program, in which no pass could be "
            "repeated or resumed; pass a list, e.g. sorted(iterable)"
        )
    if isinstance(iterable, Iterator):
        once = Once(iterable, refusal=_SECOND_PASS)
        return flow(FromIterable(once, replays=False, label=name_of(iterable)))
    if isinstance(iterable, Collection):
        return flow(_reopening(iterable, partial(map, read_only, iterable)))
    if isinstance(iterable, Iterable):
        return flow(_reopening(iterable, iterable.__iter__))
    if callable(iterable):
        return flow(_reopening(iterable, iterable))
    raise InvalidFlow(
        f"from_iterable: expected an iterable or a function that makes one, got {iterable!r}"
    )


def _reopening(argument: object, make: Callable[[], Iterable[A]]) -> FromIterable[A]:
    return FromIterable(Reopening(make), replays=True, label=name_of(argument))


_SECOND_PASS = (
    "from_iterable: an iterator allows only one pass, and this is a second one; pass a function "
    "that makes a new iterator, e.g. from_iterable(lambda: open_stream())"
)
