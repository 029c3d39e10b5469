# Overloads are tried in order: an item of unknown type matches all of them.
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false
"""from_dataset: a dataset with numbered items, of PyTorch, Hugging Face, Grain or your own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from flowdsl.datasets.arrays import as_arrays
from flowdsl.datasets.foreign import is_a, name_of_class
from flowdsl.datasets.grain import flow_of_grain, is_grain
from flowdsl.datasets.numbered import FromNumbered
from flowdsl.datasets.streams import stream
from flowdsl.effects import Exact, Unsized
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import flow, rejects_keywords
from flowdsl.ops.refused_items import refuse_flow, refuse_labels, refuse_splits

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor
    from torch.utils.data import IterableDataset

    from flowdsl.elements.batch_types import Unknown
    from flowdsl.flow import Flow

A = TypeVar("A")
B = TypeVar("B")
A_co = TypeVar("A_co", covariant=True)


class MapStyle(Protocol[A_co]):
    """A dataset with numbered items. PyTorch's ``Dataset`` does not declare its length."""

    def __getitem__(self, index: int, /) -> A_co: ...


class GrainMap(Protocol[A_co]):
    """A ``grain.MapDataset``; Grain has no annotations that all type checkers read."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> A_co | None: ...
    def to_iter_dataset(self) -> Any: ...


class GrainIter(Protocol[A_co]):
    """A ``grain.IterDataset``."""

    def __iter__(self) -> Iterator[A_co]: ...
    def mp_prefetch(self) -> Any: ...


@overload
def from_dataset(dataset: Unknown) -> Flow[Any, Any]: ...
@overload
def from_dataset(dataset: GrainMap[A]) -> Flow[A, Any]: ...
@overload
def from_dataset(dataset: GrainIter[A]) -> Flow[A, Unsized]: ...
@overload
def from_dataset(dataset: IterableDataset[Unknown]) -> Flow[Any, Unsized]: ...
@overload
def from_dataset(dataset: IterableDataset[Tensor]) -> Flow[NDArray[Any], Unsized]: ...
@overload
def from_dataset(
    dataset: IterableDataset[tuple[Tensor, Tensor]],
) -> Flow[tuple[NDArray[Any], NDArray[Any]], Unsized]: ...
@overload
def from_dataset(
    dataset: IterableDataset[tuple[Tensor, A]],
) -> Flow[tuple[NDArray[Any], A], Unsized]: ...
@overload
def from_dataset(
    dataset: IterableDataset[tuple[Tensor, ...]],
) -> Flow[tuple[NDArray[Any], ...], Unsized]: ...
@overload
def from_dataset(
    dataset: IterableDataset[dict[str, Tensor]],
) -> Flow[dict[str, NDArray[Any]], Unsized]: ...
@overload
def from_dataset(dataset: IterableDataset[A]) -> Flow[A, Unsized]: ...
@overload
def from_dataset(dataset: MapStyle[Unknown]) -> Flow[Any, Exact]: ...
@overload
def from_dataset(dataset: MapStyle[Tensor]) -> Flow[NDArray[Any], Exact]: ...
@overload
def from_dataset(
    dataset: MapStyle[tuple[Unknown, Unknown]],
) -> Flow[tuple[Any, Any], Exact]: ...
@overload
def from_dataset(
    dataset: MapStyle[tuple[Tensor, Tensor]],
) -> Flow[tuple[NDArray[Any], NDArray[Any]], Exact]: ...
@overload
def from_dataset(
    dataset: MapStyle[tuple[Tensor, A]],
) -> Flow[tuple[NDArray[Any], A], Exact]: ...
@overload
def from_dataset(
    dataset: MapStyle[tuple[Tensor, ...]],
) -> Flow[tuple[NDArray[Any], ...], Exact]: ...
@overload
def from_dataset(
    dataset: MapStyle[dict[str, Tensor]],
) -> Flow[dict[str, NDArray[Any]], Exact]: ...
@overload
def from_dataset(dataset: MapStyle[A]) -> Flow[A, Exact]: ...
@rejects_keywords(
    batch_size="write {name}(dataset).batch({n})",
    shuffle="write {name}(dataset).shuffle(seed=7)",
    num_workers="write {name}(dataset).prefetch(procs={n})",
    sampler="choose with .shuffle(), .shard(n, i) or .filter(f) on the flow",
    collate_fn="write {name}(dataset).batch(n, collate=f)",
    drop_last="write {name}(dataset).batch(n, drop_remainder={})",
)
def from_dataset(dataset: Any) -> Flow[Any, Any]:
    """The items of a dataset: of PyTorch, Hugging Face or Grain, or of a class of your own.

    A map-style dataset has a length and items by number (``len(ds)``, ``ds[i]``), which can be read
    in any order. Each worker of ``prefetch(procs=n)`` has a copy of the dataset and reads its items
    there, like the workers of a ``DataLoader``, even if the flow is shuffled or sharded;
    ``fl.from_items(dataset)`` instead reads them in this process and sends them. A dataset with
    ``__getitems__``, as Hugging Face datasets have, returns many items at once where single ones
    would cost more; not with a format or transform, which would convert them differently. Large
    arrays and tensors of the dataset are in memory that the workers share; a dataset stored in
    files is sent as their names. It must not change after the flow is built.

    Tensors become NumPy arrays that share their memory, and PIL images become arrays as by
    ``np.asarray``: ``uint8[height, width, 3]`` for a colour image. This applies within tuples,
    dicts, lists and dataclasses, which keep their type; numbers, text and other values are
    unchanged. The arrays of a map-style dataset are read-only, since they may be the dataset's own
    memory: copy an array to write to it.

    An ``IterableDataset`` of PyTorch or Hugging Face and an ``IterDataset`` of Grain are streams,
    read in order in the consumer's process, once for all workers.

    The entries that a ``filter`` in a Grain ``MapDataset`` leaves out, which Grain returns as None,
    are left out; after its ``repeat()`` the dataset is endless, and still read by index. Each pass
    yields the same elements: use ``.shuffle(seed=7)`` and ``.repeat()`` of the flow for another
    order in each epoch. The effects of a Grain dataset are known only at run time, so type checkers
    allow all operators, and an operator that does not fit is refused when the chain is built.

    A dataset with a random ``transform`` yields other elements in each pass, and other elements
    after a resume; each worker has a separate random generator. For elements that do not depend on
    the number of workers or on a resume, use a dataset without random transforms, followed by
    ``.random_map(f, seed=7)`` or ``.augment(t, seed=7)``.

    Length: the length of the dataset; unknown for a stream, and for a Grain dataset that filters.

    Effects: none; ``Unsized`` where the length is unknown; ``Resampled`` and ``Endless`` for a
    Grain dataset after ``repeat()``.

    Errors: ``InvalidFlow`` for an object without a length or numbered items; an error of the
    dataset for an item is the cause of an ``ElementError`` with its index, and so is a
    ``SpecMismatch`` for a tensor that NumPy cannot read (on another device, sparse, or
    ``bfloat16``), and a ``SourceError`` for a None of a Grain dataset without a ``filter``;
    ``NotShippable`` for a dataset that cannot be sent to workers; ``SourceError`` at
    the beginning of a pass, if the number of items has changed.

    >>> import flowdsl as fl, torch
    >>> from torch.utils.data import TensorDataset
    >>> dataset = TensorDataset(torch.eye(3), torch.arange(3))
    >>> flow = fl.from_dataset(dataset)
    >>> len(flow), str(flow.spec)
    (3, '(float32[3], int64[])')
    >>> [(x.tolist(), int(y)) for x, y in flow.shuffle(seed=1).take(1)]
    [([0.0, 0.0, 1.0], 2)]

    Source: the map-style datasets of PyTorch and its ``DataLoader``; ``MapDataset`` of Grain.

    Elsewhere: tensorpack none; tf.data none; Grain ``MapDataset.source``,
    ``MapDataset.to_iter_dataset``; torchdata ``DataLoader``.
    """
    if is_grain(dataset):
        return flow_of_grain("from_dataset", dataset)
    if is_a(dataset, "tensorflow", "data.Dataset"):
        raise InvalidFlow(
            "from_dataset: dataset is a tf.data.Dataset, which is only read in order; write "
            "from_tfdata(dataset)"
        )
    refuse_flow("from_dataset: dataset", dataset)
    refuse_splits("from_dataset: dataset", dataset)
    refuse_labels("from_dataset: dataset", dataset)
    if is_a(dataset, "torch.utils.data", "IterableDataset"):
        return stream("from_dataset", dataset, _converted)
    if is_a(dataset, "torch.utils.data", "DataLoader"):
        raise InvalidFlow(
            "from_dataset: dataset must be the dataset of the DataLoader, loader.dataset; "
            "the flow batches, shuffles and has workers by itself: .shuffle(seed=7).batch(n)"
            ".prefetch(procs=k)"
        )
    # looked up on the type: False if the user passed a class instead of an instance
    numbered = hasattr(type(dataset), "__getitem__")
    if not numbered or isinstance(dataset, Mapping):
        raise InvalidFlow(
            f"from_dataset: dataset must have numbered items and a length, or be an "
            f"IterableDataset, got {name_of_class(dataset)}; for any other iterable use "
            f"from_iterable"
        )
    return flow(FromNumbered[Any]("from_dataset", dataset, as_arrays))


def _converted(dataset: Any) -> Iterator[Any]:
    for x in dataset:
        yield as_arrays(x)
