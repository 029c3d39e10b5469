"""from_items, from_range, from_iterable: where elements come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from sys import getrefcount
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.arguments import at_least, elsewhere, name_of, plain_int
from flowdsl.effects import Effect, Exact, Unsized
from flowdsl.errors import FlowError, InvalidFlow, SourceError
from flowdsl.kinds import IndexedSource
from flowdsl.node import Node, Row, T, flow
from flowdsl.probing import probed
from flowdsl.specs import UNKNOWN, Spec, ValueSpec, spec_of, with_sizes

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")
D = TypeVar("D", bound=np.generic)


@attrs.frozen(eq=False)
class FromItems(IndexedSource[T], Generic[T]):
    """The items of a sequence in memory."""

    portable: ClassVar[bool] = False
    items: Sequence[T]

    @property
    def title(self) -> str:
        return f"from_items({len(self.items)} items)"

    @property
    def length(self) -> int:
        return len(self.items)

    @property
    def line(self) -> str:
        return "x = {items}[x]"

    def open(self) -> Callable[[int], T]:
        return self.items.__getitem__

    def spec(self, probe: bool) -> Spec:
        if not len(self.items):
            return UNKNOWN
        first = spec_of(self.items[0])
        # One item tells no size of the others, but where they are the rows of an array.
        alike = isinstance(self.items, np.ndarray)
        return first if probe or alike else with_sizes(first, UNKNOWN)


@overload
def from_items(items: NDArray[D]) -> Flow[NDArray[D] | D, Exact]: ...
@overload
def from_items(items: Sequence[A]) -> Flow[A, Exact]: ...
@elsewhere(tensors="write from_items(items)")
def from_items(items: Sequence[Any] | NDArray[Any]) -> Flow[Any, Exact]:
    """The items of a sequence, in order; the rows of an array.

    The sequence stays in this process; what workers need of it travels to them. It must not change
    while a pass runs.

    Length: that of the sequence.

    Effects: none.

    Errors: ``InvalidFlow`` for what has no length or no numbered items.

    >>> import flowdsl as fl
    >>> fl.from_items(["a", "b"]).collect()
    ['a', 'b']

    Source: ``DataFromList`` of tensorpack.

    Elsewhere: tensorpack ``DataFromList``; tf.data ``from_tensor_slices``; Grain
    ``MapDataset.source``; torchdata ``SequenceWrapper``.
    """
    numbered = hasattr(items, "__len__") and hasattr(items, "__getitem__")
    if not numbered or isinstance(items, Mapping) or getattr(items, "shape", None) == ():
        raise InvalidFlow(
            f"from_items: items must be a sequence (list, tuple, array), got "
            f"{type(items).__name__}; for any other iterable use from_iterable"
        )
    return flow(FromItems[Any](items))  # type: ignore[arg-type]  # an array of rows will do


@attrs.frozen
class FromRange(IndexedSource[int]):
    """The integers below ``n``."""

    n: int = attrs.field(converter=plain_int, validator=at_least(0))

    @property
    def title(self) -> str:
        return f"from_range({self.n})"

    @property
    def length(self) -> int:
        return self.n

    @property
    def line(self) -> str:
        return "pass"

    def open(self) -> Callable[[int], int]:
        return int

    def spec(self, probe: bool) -> Spec:
        return ValueSpec(int)


def from_range(n: int) -> Flow[int, Exact]:
    """The integers 0 to ``n - 1``.

    Length: ``n``.

    Effects: none.

    Errors: ``InvalidFlow`` for ``n < 0``.

    >>> import flowdsl as fl
    >>> fl.from_range(3).collect()
    [0, 1, 2]

    Source: ``range_input_producer`` of tf.train.

    Elsewhere: tensorpack none; tf.data ``range``; Grain ``MapDataset.range``; torchdata none.
    """
    return flow(FromRange(n))


@attrs.define(eq=False)
class Opened(Generic[T]):
    """What a pass reads from, and lets go of at its end, however it ends."""

    elements: Iterator[T]
    ours: bool
    """It was made for this pass, and is closed with it."""

    def __enter__(self) -> Opened[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        close = getattr(self.elements, "close", None) if self.ours else None
        try:
            if close is not None:
                close()
        except Exception as failed:
            if error is None or isinstance(error, GeneratorExit):
                raise
            error.add_note(f"and it failed as it was closed: {failed!r}")
        finally:
            del close  # a method holds what it is of
            if getrefcount(self.elements) <= getrefcount(_held_by_one.elements):
                self.elements = iter(())  # nobody else holds it: not even its name is needed


_held_by_one = Opened(iter([None]), False)


@attrs.define
class Once:
    """An iterator that gives one pass."""

    iterator: Iterator[Any] | None
    refusal: str
    ours: bool = False
    """Nobody else has it, so that it is closed with the pass."""

    def __call__(self) -> Opened[Any]:
        if self.iterator is None:
            raise SourceError(self.refusal)
        opened, self.iterator = Opened(self.iterator, self.ours), None
        return opened


@attrs.define
class Anew(Generic[T]):
    """A maker of iterators that is held to make a new one every time."""

    make: Callable[[], Iterable[T]]
    _last: Opened[T] | None = attrs.field(default=None, init=False)

    def __call__(self) -> Opened[T]:
        opened = Opened(iter(self.make()), True)
        if self._last is not None and self._last.elements is opened.elements:
            raise SourceError(
                f"from_iterable: {name_of(self.make)} gave the same iterator as for the last pass, "
                f"which took its elements; make a new one in the function"
            )
        self._last = opened
        return opened

    def __reduce__(self) -> tuple[type[Anew[T]], tuple[object, ...]]:
        return Anew, (self.make,)  # what it made last is of this process


@attrs.frozen(eq=False)
class FromIterable(Node[T, Unsized], Generic[T]):
    """The elements of an iterable, or of a new one for every pass."""

    make: Callable[[], Opened[T]]
    replays: bool
    label: str

    @property
    def title(self) -> str:
        return f"from_iterable({self.label})"

    @property
    def length(self) -> int | None:
        return None

    @property
    def replayable(self) -> bool:
        return self.replays

    def spec(self, probe: bool) -> Spec:
        return probed(self, UNKNOWN) if probe else UNKNOWN

    def rows(self, epoch: int) -> Iterator[Row[T]]:
        return numbered(self, partial(self._open, epoch), epoch)

    def _open(self, epoch: int) -> Opened[T]:
        try:
            return self.make()
        except FlowError:
            raise
        except Exception as error:
            raise SourceError(f"{self.title}: no iterator for epoch {epoch}: {error}") from error


def numbered(node: Node[T, Effect], make: Callable[[], Opened[T]], epoch: int) -> Iterator[Row[T]]:
    """The elements of a stream with their positions; what it raises, at its place.

    It is opened for the first of them, and let go of when these rows end, or are closed.
    """
    with make() as opened:
        for position in count():
            try:
                x = next(opened.elements)  # by no name of its own, which a traceback would keep
            except StopIteration:
                return
            except FlowError:
                raise
            except Exception as error:
                raise node.failure(epoch, position) from error
            yield position, x


@elsewhere(
    generator="write from_iterable(f)",
    output_signature="what the elements are is seen from one, or said by the types of functions",
    output_types="what the elements are is seen from one, or said by the types of functions",
)
def from_iterable(iterable: Iterable[A] | Callable[[], Iterable[A]]) -> Flow[A, Unsized]:
    """The elements of an iterable, or of what a function without arguments makes for each pass.

    A function gives every pass its own iterator, so the flow can be repeated and resumed. A live
    iterator (a generator, say) gives one pass; the second is a ``SourceError``. The iterable is
    read in the consumer's process.

    What the function made is closed at the end of its pass, however that ends, if it has a
    ``close``, as generators and files have. A live iterator is let go of, and stays open where
    somebody else holds it.

    Length: unknown, whatever the iterable is.

    Effects: ``Unsized``.

    Errors: ``InvalidFlow`` for what is neither; an exception that the iterable raises arrives at
    its place in the sequence, as the cause of an ``ElementError``; ``SourceError`` if the function
    fails; ``FlowError`` at the end of the pass for one that fails as it is closed.

    >>> import flowdsl as fl
    >>> squares = fl.from_iterable(lambda: (i * i for i in range(3)))
    >>> squares.repeat(2).collect()
    [0, 1, 4, 0, 1, 4]

    Source: ``DataFromGenerator`` and ``DataFromIterable`` of tensorpack.

    Elsewhere: tensorpack ``DataFromIterable``, ``DataFromGenerator``; tf.data ``from_generator``;
    Grain none; torchdata ``IterableWrapper``.
    """
    if isinstance(iterable, Iterator):
        return flow(FromIterable(Once(iterable, _LIVE), False, name_of(iterable)))
    if isinstance(iterable, Iterable):
        return flow(FromIterable(Anew(iterable.__iter__), True, name_of(iterable)))
    if callable(iterable):
        return flow(FromIterable(Anew(iterable), True, name_of(iterable)))
    raise InvalidFlow(
        f"from_iterable: expected an iterable or a function that makes one, got {iterable!r}"
    )


_LIVE = (
    "from_iterable: a second pass over a live iterator, which gives only one; pass a function that "
    "makes a new iterator, e.g. from_iterable(lambda: open_stream())"
)
