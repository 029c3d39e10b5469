"""from_grain: a Grain dataset as a flow."""

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
    """A ``grain.MapDataset``; Grain has no annotations that all type checkers read."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> A_co | None: ...
    def to_iter_dataset(self) -> Any: ...


class IterLike(Protocol[A_co]):
    """A ``grain.IterDataset``."""

    def __iter__(self) -> Iterator[A_co]: ...
    def mp_prefetch(self) -> Any: ...


@attrs.frozen(eq=False, repr=False)
class FromEndlessGrain(IndexedMap[Any, Any, E]):
    """The items of an endlessly repeated dataset, read by position."""

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
        return element if self.sparse else _not_left_out(element)

    def origin(self, epoch: int, position: int) -> Where:
        return Where(f"row {position} of {self.title}")


@overload
def from_grain(dataset: Unknown) -> Flow[Any, Any]: ...
@overload
def from_grain(dataset: MapLike[A]) -> Flow[A, Any]: ...
@overload
def from_grain(dataset: IterLike[A]) -> Flow[A, Unsized]: ...
def from_grain(dataset: Any) -> Flow[Any, Any]:
    """The elements of a Grain dataset, unchanged.

    A ``MapDataset`` is read by index: each worker of ``prefetch(procs=n)`` has a copy of it and
    computes its elements there, and a resume reads nothing again. Entries that a ``filter`` in the
    dataset leaves out, which Grain returns as None, are left out. After ``repeat()`` the dataset is
    endless, and still read by index. Random choices in its ``shuffle`` and ``random_map`` depend
    only on its seed and the index, so each pass yields the same elements; use ``.shuffle(seed=7)``
    and ``.repeat()`` of the flow for another order in each epoch. The effects are known only at
    run time, so type checkers allow all operators, and an operator that does not fit is refused
    when the chain is built.

    An ``IterDataset`` is a stream, read in the consumer's process, with its own threads and
    processes. Each pass iterates over it from the beginning, and a resume reads the delivered
    elements again.

    Length: the length of the dataset; unknown if it filters, and for an ``IterDataset``.

    Effects: none for a ``MapDataset``; ``Unsized`` if it filters, ``Resampled`` and ``Endless``
    after ``repeat()``; ``Unsized`` for an ``IterDataset``.

    Errors: ``InvalidFlow`` for other objects; an error of the dataset is the cause of an
    ``ElementError`` with the index of its element, and so is a ``SourceError`` for a None if the
    dataset has no ``filter``; ``NotShippable`` if it cannot be sent to workers.

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
    if length_of("from_grain", dataset) >= sys.maxsize:  # Grain's length of ``repeat()``
        endless = flow(FromEndlessGrain(from_range(1).repeat().node, dataset, sparse))
        return endless.filter(not_none) if sparse else endless
    if sparse:
        return flow(FromNumbered[Any]("from_grain", dataset, _itself)).filter(not_none)
    return flow(FromNumbered[Any]("from_grain", dataset, _not_left_out))


def _filters(dataset: Any) -> bool:
    """Return True if this dataset, or a dataset that it reads, leaves elements out."""
    waiting: list[Any] = [dataset]
    while waiting:  # not recursive, so that a chain can have any depth
        current = waiting.pop()
        if any(cls.__name__ == "FilterMapDataset" for cls in type(current).__mro__):
            return True
        waiting += current.parents
    return False


def not_none(element: object) -> bool:
    """Return True unless Grain left the element out; errors and ``explain()`` show this name."""
    return element is not None


def _itself(element: A) -> A:
    return element


def _not_left_out(element: A) -> A:
    if element is None:
        raise SourceError(
            "the element is None, which Grain uses for elements that are left out, but the dataset "
            "has no filter; add .filter(lambda x: x is not None) to it"
        )
    return element
