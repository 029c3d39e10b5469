"""from_grain: a dataset of Grain as a flow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

import attrs

from flowdsl.datasets.foreign import is_a, name_of_class
from flowdsl.datasets.numbered import FromNumbered, length_of
from flowdsl.datasets.streams import stream
from flowdsl.effects import Unsized
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.errors import InvalidFlow, SourceError, Where
from flowdsl.nodes import E, IndexedMap, cached_per_node, flow, with_inferred
from flowdsl.ops.sources import from_range

if TYPE_CHECKING:
    from flowdsl.elements.batch_types import Unknown
    from flowdsl.flow import Flow

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class MapLike(Protocol[A_co]):
    """A ``grain.MapDataset``: Grain has no types that all checkers read."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> A_co | None: ...
    def to_iter_dataset(self) -> Any: ...


class IterLike(Protocol[A_co]):
    """A ``grain.IterDataset``."""

    def __iter__(self) -> Iterator[A_co]: ...
    def mp_prefetch(self) -> Any: ...


@attrs.frozen(eq=False, repr=False)
class FromEndlessGrain(IndexedMap[Any, Any, E]):
    """The items of a dataset that repeats without end, for as many positions as there are."""

    dataset: Any
    sparse: bool

    @property
    def title(self) -> str:
        return f"from_grain({type(self.dataset).__name__}, without end)"

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return UNKNOWN if self.sparse else with_inferred(self, UNKNOWN, probe)

    def apply(self, x: Any, epoch: int, position: int) -> Any:
        element = self.dataset[position]
        return element if self.sparse else _there(element)

    def origin(self, epoch: int, position: int) -> Where:
        return Where(f"row {position} of {self.title}")


@overload
def from_grain(dataset: Unknown) -> Flow[Any, Any]: ...
@overload
def from_grain(dataset: MapLike[A]) -> Flow[A, Any]: ...
@overload
def from_grain(dataset: IterLike[A]) -> Flow[A, Unsized]: ...
def from_grain(dataset: Any) -> Flow[Any, Any]:
    """The elements of a dataset of Grain, as they are.

    A ``MapDataset`` is read by number: workers of ``prefetch(procs=n)`` each have a copy of it and
    make its elements there, and a resume reads nothing again. The entries that a ``filter`` in it
    leaves out, which Grain gives as None, are left out. After ``repeat()`` it has no end, and is
    still read by number. What it draws, in ``shuffle`` and ``random_map``, is a function of its
    seed and the number, so each pass gives the same elements: ``.shuffle(seed=7)`` and
    ``.repeat()`` of the flow give each epoch an order of its own. The row of effects is what the
    dataset says of itself, so checkers allow all operators, and one that does not fit is refused
    when the chain is built.

    An ``IterDataset`` is a stream, read in the consumer's process, by the threads and processes
    that it has of its own; each pass begins it anew, and a resume reads again what was delivered.

    Length: that of the dataset; unknown where it filters, and of an ``IterDataset``.

    Effects: none of a ``MapDataset``; ``Unsized`` where it filters, ``Resampled`` and ``Endless``
    after ``repeat()``; ``Unsized`` of an ``IterDataset``.

    Errors: ``InvalidFlow`` for what is neither; what the dataset raises is the cause of an
    ``ElementError`` with the number of its element, and so is a ``SourceError`` for a None where no
    ``filter`` is seen in the dataset; ``NotShippable`` for one that cannot be sent to workers.

    >>> import flowdsl as fl, grain
    >>> squares = grain.MapDataset.range(6).map(lambda i: i * i)
    >>> fl.from_grain(squares).shuffle(seed=1).batch(4).collect()[0]
    array([ 4,  1,  9, 16])
    >>> fl.from_grain(squares.filter(lambda i: i % 2 == 0)).collect()
    [0, 4, 16]

    Source: ``MapDataset`` and ``IterDataset`` of Grain.

    Elsewhere: tensorpack none; tf.data none; Grain ``MapDataset.to_iter_dataset``; torchdata none.
    """
    if is_a(dataset, "grain", "IterDataset"):
        return stream("from_grain", dataset, iter)
    if not is_a(dataset, "grain", "MapDataset"):
        raise InvalidFlow(
            f"from_grain: dataset must be a grain.MapDataset or a grain.IterDataset, got "
            f"{name_of_class(dataset)}; for any other iterable use from_iterable"
        )
    sparse = _filters(dataset)
    if length_of("from_grain", dataset) >= sys.maxsize:  # what Grain says of ``repeat()``
        endless = flow(FromEndlessGrain(from_range(1).repeat().node, dataset, sparse))
        return endless.filter(not_none) if sparse else endless
    if sparse:
        return flow(FromNumbered[Any]("from_grain", dataset, _itself)).filter(not_none)
    return flow(FromNumbered[Any]("from_grain", dataset, _there))


def _filters(dataset: Any) -> bool:
    """Whether some dataset that this one is made of leaves elements out."""
    waiting: list[Any] = [dataset]
    while waiting:  # not recursive, so that a chain can have any depth
        one = waiting.pop()
        if any(cls.__name__ == "FilterMapDataset" for cls in type(one).__mro__):
            return True
        waiting += one.parents
    return False


def not_none(element: object) -> bool:
    """Whether Grain has an element there; errors and ``explain()`` name this function."""
    return element is not None


def _itself(element: A) -> A:
    return element


def _there(element: A) -> A:
    if element is None:
        raise SourceError(
            "the element is None, which to Grain is one that is left out, and the dataset does not "
            "say that it leaves any out; add .filter(lambda x: x is not None) to it"
        )
    return element
