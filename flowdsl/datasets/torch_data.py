# Overloads are tried in order: an item that nothing is known of could be any of them.
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false
"""from_torch_dataset: a dataset of PyTorch, or one like it, as a flow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from flowdsl.datasets.arrays import as_arrays
from flowdsl.datasets.foreign import is_a, name_of_class
from flowdsl.datasets.numbered import FromNumbered
from flowdsl.datasets.streams import stream
from flowdsl.effects import Exact, Unsized
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import flow, rejects_keywords
from flowdsl.ops.sources import refuse_labels, refuse_splits

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
    """Numbered items. PyTorch's class of datasets does not declare the length that they need."""

    def __getitem__(self, index: int, /) -> A_co: ...


@overload
def from_torch_dataset(dataset: Unknown) -> Flow[Any, Any]: ...
@overload
def from_torch_dataset(dataset: IterableDataset[Unknown]) -> Flow[Any, Unsized]: ...
@overload
def from_torch_dataset(dataset: IterableDataset[Tensor]) -> Flow[NDArray[Any], Unsized]: ...
@overload
def from_torch_dataset(
    dataset: IterableDataset[tuple[Tensor, Tensor]],
) -> Flow[tuple[NDArray[Any], NDArray[Any]], Unsized]: ...
@overload
def from_torch_dataset(
    dataset: IterableDataset[tuple[Tensor, A]],
) -> Flow[tuple[NDArray[Any], A], Unsized]: ...
@overload
def from_torch_dataset(
    dataset: IterableDataset[tuple[Tensor, ...]],
) -> Flow[tuple[NDArray[Any], ...], Unsized]: ...
@overload
def from_torch_dataset(
    dataset: IterableDataset[dict[str, Tensor]],
) -> Flow[dict[str, NDArray[Any]], Unsized]: ...
@overload
def from_torch_dataset(dataset: IterableDataset[A]) -> Flow[A, Unsized]: ...
@overload
def from_torch_dataset(dataset: MapStyle[Unknown]) -> Flow[Any, Exact]: ...
@overload
def from_torch_dataset(dataset: MapStyle[Tensor]) -> Flow[NDArray[Any], Exact]: ...
@overload
def from_torch_dataset(
    dataset: MapStyle[tuple[Unknown, Unknown]],
) -> Flow[tuple[Any, Any], Exact]: ...
@overload
def from_torch_dataset(
    dataset: MapStyle[tuple[Tensor, Tensor]],
) -> Flow[tuple[NDArray[Any], NDArray[Any]], Exact]: ...
@overload
def from_torch_dataset(
    dataset: MapStyle[tuple[Tensor, A]],
) -> Flow[tuple[NDArray[Any], A], Exact]: ...
@overload
def from_torch_dataset(
    dataset: MapStyle[tuple[Tensor, ...]],
) -> Flow[tuple[NDArray[Any], ...], Exact]: ...
@overload
def from_torch_dataset(
    dataset: MapStyle[dict[str, Tensor]],
) -> Flow[dict[str, NDArray[Any]], Exact]: ...
@overload
def from_torch_dataset(dataset: MapStyle[A]) -> Flow[A, Exact]: ...
@rejects_keywords(
    batch_size="write {name}(dataset).batch({n})",
    shuffle="write {name}(dataset).shuffle(seed=7)",
    num_workers="write {name}(dataset).prefetch(procs={n})",
    sampler="choose with .shuffle(), .shard(n, i) or .filter(f) on the flow",
    collate_fn="write {name}(dataset).batch(n, collate=f)",
    drop_last="write {name}(dataset).batch(n, drop_remainder={})",
)
def from_torch_dataset(dataset: Any) -> Flow[Any, Any]:
    """The items of a dataset of PyTorch, or of anything else that a ``DataLoader`` takes.

    Tensors become arrays of NumPy that share their memory, and PIL images become arrays as
    ``np.asarray`` makes them, ``uint8[height, width, 3]`` of a colour image: in tuples, dicts,
    lists, dataclasses, which stay what they are. So do numbers, text and all else. The arrays of a
    map-style dataset are read-only, since they may be its own memory: copy one to write to it.

    A map-style dataset has a length and numbered items, which are read in any order. Workers of
    ``prefetch(procs=n)`` each have a copy of the dataset and read its items there, as those of a
    ``DataLoader`` do, whatever shuffles or shards the flow; ``fl.from_items(dataset)`` reads them
    in this process and sends them. Its large arrays and tensors are in memory that the workers
    share. It must not change after the flow is built. A dataset of Hugging Face is one, too: that
    of files travels as their names.

    An ``IterableDataset`` is a stream, read in order in the consumer's process, once for all
    workers: ``torch.utils.data.get_worker_info()`` is None there.

    A dataset whose items are drawn anew each time, by a random ``transform``, gives other elements
    in each pass, and a resumed pass goes on with other ones; each worker draws from a generator of
    its own. For elements that are the same on any number of workers, and after a resume, give it
    no such transform, and write ``.random_map(f, seed=7)`` or ``.augment(t, seed=7)`` after it.

    Length: that of the dataset; unknown of an ``IterableDataset``.

    Effects: none; of an ``IterableDataset`` ``Unsized``.

    Errors: ``InvalidFlow`` for what has no length or no numbered items; what the dataset raises for
    an item is the cause of an ``ElementError`` with its number, and so is a ``SpecMismatch`` for a
    tensor that NumPy cannot read (on another device, sparse, of ``bfloat16``); ``NotShippable`` for
    a dataset that cannot be sent to workers; ``SourceError`` when a pass begins, if there are more
    or fewer items than there were.

    >>> import flowdsl as fl, torch
    >>> from torch.utils.data import TensorDataset
    >>> dataset = TensorDataset(torch.eye(3), torch.arange(3))
    >>> flow = fl.from_torch_dataset(dataset)
    >>> len(flow), str(flow.spec)
    (3, '(float32[3], int64[])')
    >>> [(x.tolist(), int(y)) for x, y in flow.shuffle(seed=1).take(1)]
    [([0.0, 0.0, 1.0], 2)]

    Source: the map-style datasets of PyTorch, and its ``DataLoader``.

    Elsewhere: tensorpack none; tf.data none; Grain ``MapDataset.source``; torchdata
    ``DataLoader``.
    """
    refuse_splits("from_torch_dataset: dataset", dataset)
    refuse_labels("from_torch_dataset: dataset", dataset)
    if is_a(dataset, "torch.utils.data", "IterableDataset"):
        return stream("from_torch_dataset", dataset, _converted)
    if is_a(dataset, "torch.utils.data", "DataLoader"):
        raise InvalidFlow(
            "from_torch_dataset: dataset must be the dataset of the DataLoader, loader.dataset; "
            "the flow batches, shuffles and has workers by itself: .shuffle(seed=7).batch(n)"
            ".prefetch(procs=k)"
        )
    numbered = hasattr(type(dataset), "__getitem__")  # of a class that was not called, it is type
    if not numbered or isinstance(dataset, Mapping):
        raise InvalidFlow(
            f"from_torch_dataset: dataset must have numbered items and a length, or be an "
            f"IterableDataset, got {name_of_class(dataset)}; for any other iterable use "
            f"from_iterable"
        )
    return flow(FromNumbered[Any]("from_torch_dataset", dataset, as_arrays))


def _converted(dataset: Any) -> Iterator[Any]:
    for x in dataset:
        yield as_arrays(x)
