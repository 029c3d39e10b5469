# Overloads are tried in order: an element of unknown type matches all of them.
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false
"""The flow's methods for PyTorch: to_torch and as_iterable_dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict, overload

from typing_extensions import Unpack

from flowdsl.elements.structure import Stackable
from flowdsl.nodes import E, FlowBase, T, flow, rejects_keywords
from flowdsl.ops.sharding import Even
from flowdsl.storage.libraries import library

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from flowdsl.elements.batch_types import Unknown
    from flowdsl.torch.dataset import FlowDataset
    from flowdsl.torch.loader import TorchLoader


class LoaderOptions(TypedDict, total=False):
    """The keyword arguments of ``to_torch``."""

    pin_memory: bool | None
    copy: bool | None
    ahead: int
    shard: tuple[int, int] | None
    even: Even | None


class DatasetOptions(TypedDict, total=False):
    """The keyword arguments of ``as_iterable_dataset``."""

    shard: tuple[int, int] | None
    even: Even | None


class ToTorch(FlowBase[T, E]):
    """Methods that convert the elements to PyTorch tensors."""

    @overload
    def to_torch(
        self: FlowBase[Unknown, Any],
        device: str | int | torch.device | None = None,
        **options: Unpack[LoaderOptions],
    ) -> TorchLoader[Any]: ...
    @overload
    def to_torch(
        self: FlowBase[Stackable[Any], Any],
        device: str | int | torch.device | None = None,
        **options: Unpack[LoaderOptions],
    ) -> TorchLoader[Tensor]: ...
    @overload
    def to_torch(
        self: FlowBase[tuple[Unknown, ...], Any],
        device: str | int | torch.device | None = None,
        **options: Unpack[LoaderOptions],
    ) -> TorchLoader[tuple[Any, ...]]: ...
    @overload
    def to_torch(
        self: FlowBase[tuple[Stackable[Any]], Any],
        device: str | int | torch.device | None = None,
        **options: Unpack[LoaderOptions],
    ) -> TorchLoader[tuple[Tensor]]: ...
    @overload
    def to_torch(
        self: FlowBase[tuple[Stackable[Any], Stackable[Any]], Any],
        device: str | int | torch.device | None = None,
        **options: Unpack[LoaderOptions],
    ) -> TorchLoader[tuple[Tensor, Tensor]]: ...
    @overload
    def to_torch(
        self: FlowBase[tuple[Stackable[Any], Stackable[Any], Stackable[Any]], Any],
        device: str | int | torch.device | None = None,
        **options: Unpack[LoaderOptions],
    ) -> TorchLoader[tuple[Tensor, Tensor, Tensor]]: ...
    @overload
    def to_torch(
        self: FlowBase[tuple[Stackable[Any], Stackable[Any], Stackable[Any], Stackable[Any]], Any],
        device: str | int | torch.device | None = None,
        **options: Unpack[LoaderOptions],
    ) -> TorchLoader[tuple[Tensor, Tensor, Tensor, Tensor]]: ...
    @overload
    def to_torch(
        self: FlowBase[tuple[Stackable[Any], ...], Any],
        device: str | int | torch.device | None = None,
        **options: Unpack[LoaderOptions],
    ) -> TorchLoader[tuple[Tensor, ...]]: ...
    @overload
    def to_torch(
        self: FlowBase[Mapping[str, Unknown], Any],
        device: str | int | torch.device | None = None,
        **options: Unpack[LoaderOptions],
    ) -> TorchLoader[dict[str, Any]]: ...
    @overload
    def to_torch(
        self: FlowBase[Mapping[str, Stackable[Any]], Any],
        device: str | int | torch.device | None = None,
        **options: Unpack[LoaderOptions],
    ) -> TorchLoader[dict[str, Tensor]]: ...
    @overload
    def to_torch(
        self, device: str | int | torch.device | None = None, **options: Unpack[LoaderOptions]
    ) -> TorchLoader[Any]: ...
    @rejects_keywords(
        batch_size="write .batch({n}).to_torch()",
        num_workers="write .prefetch(procs={n}).to_torch()",
        shuffle="write .shuffle(seed=...) in the chain",
        ranks="write shard=(n, i)",
        buffer="write ahead={n}",
    )
    def to_torch(
        self,
        device: str | int | torch.device | None = None,
        *,
        pin_memory: bool | None = None,
        copy: bool | None = None,
        ahead: int = 2,
        shard: tuple[int, int] | None = None,
        even: Even | None = "drop",
    ) -> TorchLoader[Any]:
        """Return a loader of the elements as PyTorch tensors; each ``for`` over it is an epoch.

        Arrays become tensors that view their memory: nothing is copied between a worker and the
        training step, and a step may write to its batch. Read-only memory, such as a mapped file,
        is copied, and so is a view of an array that a function still refers to, such as ``x[i]``.
        ``copy=True`` always copies. ``copy=False`` never does: such a view is shared, and read-only
        memory is an error. The memory returns to the worker when the last tensor that views it is
        collected. Text, Python numbers and arrays of objects are unchanged.

        With a ``device``, elements are transferred to it, at most ``ahead`` elements ahead of the
        loop. Transfers to a GPU use pinned memory and overlap with the computation, unless
        ``pin_memory=False``.

        If ``torch.distributed`` is initialized, each rank gets every ``n``-th element, like
        ``shard``; ``shard=(n, i)`` sets their number and the rank explicitly. All ranks get equally
        many, as each waits for the others in every step: with ``even="drop"`` the last elements of
        a pass are left out if they are too few for all ranks, with ``"pad"`` the first ones are
        repeated; a warning says how many. With ``even=None`` the first ranks may get one more, for
        loops in which no rank waits for another.

        ``state_dict``, the state after the last element that the loop received, and
        ``load_state_dict`` save and restore the epoch and the position in it. ``set_epoch`` selects
        the epoch of the next ``for``. For code that wants a ``DataLoader``:
        ``DataLoader(flow.to_torch(), batch_size=None)``, or ``as_iterable_dataset()``.

        Errors: ``MissingLibrary``; ``InvalidFlow`` for arguments; with several ranks for a flow of
        unknown length, or one that contains the ``shard`` of this rank already, unless ``shard=``
        is given; in a worker of a ``DataLoader``, which would yield all elements once more; during
        a pass, ``SpecMismatch`` for an array that cannot be a tensor, and any error of
        the flow, each at the position of its element.

        >>> import numpy as np, flowdsl as fl
        >>> flow = fl.from_range(4).map(lambda i: (np.full(2, i, np.float32), i)).batch(2)
        >>> for x, y in flow.to_torch():
        ...     print(x.dtype, tuple(x.shape), y.tolist())
        torch.float32 (2, 2) [0, 1]
        torch.float32 (2, 2) [2, 3]

        Source: ``DataLoader`` of PyTorch, ``StatefulDataLoader`` of torchdata.

        Elsewhere: tensorpack none; tf.data none; Ray Data ``iter_torch_batches``.
        """
        library("torch", "to_torch", "torch")
        from flowdsl.torch.loader import TorchLoader

        return TorchLoader[Any](
            flow(self.node),
            device,
            pin_memory=pin_memory,
            copy=copy,
            ahead=ahead,
            shard=shard,
            even=even,
        )

    @overload
    def as_iterable_dataset(
        self: FlowBase[Unknown, Any], **options: Unpack[DatasetOptions]
    ) -> FlowDataset[Any]: ...
    @overload
    def as_iterable_dataset(
        self: FlowBase[Stackable[Any], Any], **options: Unpack[DatasetOptions]
    ) -> FlowDataset[Tensor]: ...
    @overload
    def as_iterable_dataset(
        self: FlowBase[tuple[Unknown, ...], Any], **options: Unpack[DatasetOptions]
    ) -> FlowDataset[tuple[Any, ...]]: ...
    @overload
    def as_iterable_dataset(
        self: FlowBase[tuple[Stackable[Any]], Any], **options: Unpack[DatasetOptions]
    ) -> FlowDataset[tuple[Tensor]]: ...
    @overload
    def as_iterable_dataset(
        self: FlowBase[tuple[Stackable[Any], Stackable[Any]], Any],
        **options: Unpack[DatasetOptions],
    ) -> FlowDataset[tuple[Tensor, Tensor]]: ...
    @overload
    def as_iterable_dataset(
        self: FlowBase[tuple[Stackable[Any], Stackable[Any], Stackable[Any]], Any],
        **options: Unpack[DatasetOptions],
    ) -> FlowDataset[tuple[Tensor, Tensor, Tensor]]: ...
    @overload
    def as_iterable_dataset(
        self: FlowBase[tuple[Stackable[Any], Stackable[Any], Stackable[Any], Stackable[Any]], Any],
        **options: Unpack[DatasetOptions],
    ) -> FlowDataset[tuple[Tensor, Tensor, Tensor, Tensor]]: ...
    @overload
    def as_iterable_dataset(
        self: FlowBase[tuple[Stackable[Any], ...], Any], **options: Unpack[DatasetOptions]
    ) -> FlowDataset[tuple[Tensor, ...]]: ...
    @overload
    def as_iterable_dataset(
        self: FlowBase[Mapping[str, Unknown], Any], **options: Unpack[DatasetOptions]
    ) -> FlowDataset[dict[str, Any]]: ...
    @overload
    def as_iterable_dataset(
        self: FlowBase[Mapping[str, Stackable[Any]], Any], **options: Unpack[DatasetOptions]
    ) -> FlowDataset[dict[str, Tensor]]: ...
    @overload
    def as_iterable_dataset(self, **options: Unpack[DatasetOptions]) -> FlowDataset[Any]: ...
    @rejects_keywords(
        batch_size="write .batch({n}).as_iterable_dataset()",
        num_workers="write DataLoader(dataset, batch_size=None, num_workers={n})",
        shuffle="write .shuffle(seed=...) in the chain",
    )
    def as_iterable_dataset(
        self, *, shard: tuple[int, int] | None = None, even: Even | None = "drop"
    ) -> FlowDataset[Any]:
        """Return an ``IterableDataset`` of the elements as tensors, for ``DataLoader``.

        ``DataLoader(dataset, batch_size=None, num_workers=k)`` yields each element once: each
        worker gets every ``k``-th element of the flow, so the order is the flow's. With several
        ranks each gets its shard first, as in ``to_torch``. ``dataset.set_epoch(k)`` selects the
        epoch, also for persistent workers; it never advances by itself. Worker processes of
        ``DataLoader`` send each element through shared memory: ``to_torch()`` with
        ``.prefetch(procs=k)`` is faster.

        Iterators have the ``state_dict`` and ``load_state_dict`` that torchdata's
        ``StatefulDataLoader`` calls.

        Errors: ``MissingLibrary``; ``InvalidFlow`` for arguments, and with several ranks for a flow
        of unknown length, or one that contains the ``shard`` of this rank already, unless
        ``shard=`` is given; ``NotShippable`` for a flow that cannot be sent to workers.

        >>> import flowdsl as fl
        >>> from torch.utils.data import DataLoader
        >>> dataset = fl.from_range(6).batch(2).as_iterable_dataset()
        >>> [batch.tolist() for batch in DataLoader(dataset, batch_size=None, num_workers=2)]
        [[0, 1], [2, 3], [4, 5]]

        Source: ``IterableDataset`` and ``get_worker_info`` of PyTorch.

        Elsewhere: tensorpack none; Grain ``torch_compatibility``.
        """
        library("torch", "as_iterable_dataset", "torch")
        from flowdsl.torch.dataset import FlowDataset

        return FlowDataset[Any](flow(self.node), shard=shard, even=even)
