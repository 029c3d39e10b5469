# Overloads are tried in order: an element of unknown type matches all of them.
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false
"""The flow's methods that pass its elements to a framework, one for each framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

from flowdsl.elements.structure import Stackable
from flowdsl.nodes import E, FlowBase, T, flow
from flowdsl.storage.libraries import library

if TYPE_CHECKING:
    import torch
    from jax import Array
    from torch import Tensor

    from flowdsl.elements.batch_types import Unknown
    from flowdsl.feeding.jax_loader import JaxLoader, Target
    from flowdsl.feeding.keras_dataset import KerasDataset
    from flowdsl.feeding.loader import Remainder
    from flowdsl.feeding.torch_loader import TorchLoader


class Loading(FlowBase[T, E]):
    """Methods that convert the elements for another framework."""

    @overload
    def to_torch(
        self: FlowBase[Unknown, Any],
        device: str | int | torch.device | None = None,
        pin_memory: bool | None = None,
        *,
        copy: bool | None = None,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> TorchLoader[Any]: ...
    @overload
    def to_torch(
        self: FlowBase[Stackable[Any], Any],
        device: str | int | torch.device | None = None,
        pin_memory: bool | None = None,
        *,
        copy: bool | None = None,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> TorchLoader[Tensor]: ...
    @overload
    def to_torch(
        self: FlowBase[tuple[Unknown, ...], Any],
        device: str | int | torch.device | None = None,
        pin_memory: bool | None = None,
        *,
        copy: bool | None = None,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> TorchLoader[tuple[Any, ...]]: ...
    @overload
    def to_torch(
        self: FlowBase[tuple[Stackable[Any]], Any],
        device: str | int | torch.device | None = None,
        pin_memory: bool | None = None,
        *,
        copy: bool | None = None,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> TorchLoader[tuple[Tensor]]: ...
    @overload
    def to_torch(
        self: FlowBase[tuple[Stackable[Any], Stackable[Any]], Any],
        device: str | int | torch.device | None = None,
        pin_memory: bool | None = None,
        *,
        copy: bool | None = None,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> TorchLoader[tuple[Tensor, Tensor]]: ...
    @overload
    def to_torch(
        self: FlowBase[tuple[Stackable[Any], Stackable[Any], Stackable[Any]], Any],
        device: str | int | torch.device | None = None,
        pin_memory: bool | None = None,
        *,
        copy: bool | None = None,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> TorchLoader[tuple[Tensor, Tensor, Tensor]]: ...
    @overload
    def to_torch(
        self: FlowBase[tuple[Stackable[Any], Stackable[Any], Stackable[Any], Stackable[Any]], Any],
        device: str | int | torch.device | None = None,
        pin_memory: bool | None = None,
        *,
        copy: bool | None = None,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> TorchLoader[tuple[Tensor, Tensor, Tensor, Tensor]]: ...
    @overload
    def to_torch(
        self: FlowBase[tuple[Stackable[Any], ...], Any],
        device: str | int | torch.device | None = None,
        pin_memory: bool | None = None,
        *,
        copy: bool | None = None,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> TorchLoader[tuple[Tensor, ...]]: ...
    @overload
    def to_torch(
        self: FlowBase[Mapping[str, Unknown], Any],
        device: str | int | torch.device | None = None,
        pin_memory: bool | None = None,
        *,
        copy: bool | None = None,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> TorchLoader[dict[str, Any]]: ...
    @overload
    def to_torch(
        self: FlowBase[Mapping[str, Stackable[Any]], Any],
        device: str | int | torch.device | None = None,
        pin_memory: bool | None = None,
        *,
        copy: bool | None = None,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> TorchLoader[dict[str, Tensor]]: ...
    @overload
    def to_torch(
        self,
        device: str | int | torch.device | None = None,
        pin_memory: bool | None = None,
        *,
        copy: bool | None = None,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> TorchLoader[Any]: ...
    def to_torch(
        self,
        device: str | int | torch.device | None = None,
        pin_memory: bool | None = None,
        *,
        copy: bool | None = None,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> TorchLoader[Any]:
        """Return a loader of the elements as PyTorch tensors; each ``for`` over it is an epoch.

        Arrays become tensors that view their memory: nothing is copied between a worker and the
        training step, and a step may write to its batch. Read-only memory, such as a mapped file,
        is copied; ``copy=True`` always copies, ``copy=False`` raises instead. The memory returns to
        the worker when the last tensor that views it is collected. Text, Python numbers and arrays
        of objects are unchanged.

        With a ``device``, elements are transferred to it, at most ``buffer`` ahead. Transfers to a
        GPU use pinned memory and overlap with the computation, unless ``pin_memory=False``.

        If ``torch.distributed`` is initialized, each rank gets every ``n``-th element, like
        ``shard``; ``ranks=(i, n)`` sets rank and number explicitly. All ranks take the same number
        of elements: the last elements of a pass are left out if they are too few for all ranks, and
        a warning is logged. With ``remainder="keep"`` the first ranks get them, for loops in which
        no rank waits for another.

        ``state_dict`` and ``load_state_dict`` save and restore the epoch and the position in it,
        and ``set_epoch`` begins another epoch. For code that expects a ``DataLoader``, use
        ``DataLoader(flow.to_torch(), batch_size=None)``.

        Errors: ``MissingLibrary``; ``InvalidFlow`` for arguments, for a flow of unknown length
        with several ranks, and in a worker of a ``DataLoader``, which would yield all elements once
        more; during a pass, ``SpecMismatch`` for an array that cannot be a tensor, and any error of
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
        from flowdsl.feeding.torch_loader import TorchLoader

        return TorchLoader[Any](
            flow(self.node),
            device,
            pin_memory,
            copy=copy,
            buffer=buffer,
            ranks=ranks,
            remainder=remainder,
        )

    @overload
    def to_jax(
        self: FlowBase[Unknown, Any],
        device: Target = None,
        *,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> JaxLoader[Any]: ...
    @overload
    def to_jax(
        self: FlowBase[Stackable[Any], Any],
        device: Target = None,
        *,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> JaxLoader[Array]: ...
    @overload
    def to_jax(
        self: FlowBase[tuple[Unknown, ...], Any],
        device: Target = None,
        *,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> JaxLoader[tuple[Any, ...]]: ...
    @overload
    def to_jax(
        self: FlowBase[tuple[Stackable[Any]], Any],
        device: Target = None,
        *,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> JaxLoader[tuple[Array]]: ...
    @overload
    def to_jax(
        self: FlowBase[tuple[Stackable[Any], Stackable[Any]], Any],
        device: Target = None,
        *,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> JaxLoader[tuple[Array, Array]]: ...
    @overload
    def to_jax(
        self: FlowBase[tuple[Stackable[Any], Stackable[Any], Stackable[Any]], Any],
        device: Target = None,
        *,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> JaxLoader[tuple[Array, Array, Array]]: ...
    @overload
    def to_jax(
        self: FlowBase[tuple[Stackable[Any], Stackable[Any], Stackable[Any], Stackable[Any]], Any],
        device: Target = None,
        *,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> JaxLoader[tuple[Array, Array, Array, Array]]: ...
    @overload
    def to_jax(
        self: FlowBase[tuple[Stackable[Any], ...], Any],
        device: Target = None,
        *,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> JaxLoader[tuple[Array, ...]]: ...
    @overload
    def to_jax(
        self: FlowBase[Mapping[str, Unknown], Any],
        device: Target = None,
        *,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> JaxLoader[dict[str, Any]]: ...
    @overload
    def to_jax(
        self: FlowBase[Mapping[str, Stackable[Any]], Any],
        device: Target = None,
        *,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> JaxLoader[dict[str, Array]]: ...
    @overload
    def to_jax(
        self,
        device: Target = None,
        *,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> JaxLoader[Any]: ...
    def to_jax(
        self,
        device: Target = None,
        *,
        buffer: int = 2,
        ranks: tuple[int, int] | None = None,
        remainder: Remainder = "drop",
    ) -> JaxLoader[Any]:
        """Return a loader of the elements as JAX arrays; each ``for`` over it is an epoch.

        Arrays are transferred to their device ahead of time, at most ``buffer`` elements ahead.
        ``device`` is a device, or a sharding, which divides each array among several devices; the
        default is the first device of JAX. On the CPU an array shares the memory that the worker
        has filled. Text, Python numbers and arrays of objects are unchanged. As everywhere in JAX,
        64-bit types require ``jax_enable_x64``; without it, floats are rounded to 32 bits, and
        integers that do not fit into 32 bits are an error.

        If ``jax.distributed`` is initialized, each process gets every ``n``-th element, like
        ``shard``; ``ranks=(i, n)`` sets rank and number explicitly. A sharding over the devices of
        all processes combines their elements into one array. All processes take the same number of
        elements: the last elements of a pass are left out if they are too few for all, and a
        warning is logged; with ``remainder="keep"`` the first processes get them.

        ``state_dict``, which returns plain JSON values that Orbax can save (``args.JsonSave``), and
        ``load_state_dict`` save and restore the epoch and the position in it; ``set_epoch`` begins
        another epoch.

        Errors: ``MissingLibrary``; ``InvalidFlow`` for arguments, and for a flow of unknown length
        with several processes; during a pass, ``SpecMismatch`` for an array that JAX cannot
        represent, or that a sharding does not divide evenly (``batch(n, drop_remainder=True)``),
        and any error of the flow, each at the position of its element.

        >>> import numpy as np, flowdsl as fl
        >>> flow = fl.from_range(4).map(lambda i: (np.full(2, i, np.float32), i)).batch(2)
        >>> for x, y in flow.to_jax():
        ...     print(x.dtype, x.shape, y.tolist())
        float32 (2, 2) [0, 1]
        float32 (2, 2) [2, 3]

        Source: ``prefetch_to_device`` of Flax; ``jax.device_put``.

        Elsewhere: tensorpack none; Grain ``device_put``.
        """
        library("jax", "to_jax", "jax")
        from flowdsl.feeding.jax_loader import JaxLoader

        return JaxLoader[Any](
            flow(self.node), device, buffer=buffer, ranks=ranks, remainder=remainder
        )

    def to_keras(self, buffer: int = 2) -> KerasDataset:
        """Return the elements as batches for ``fit``, ``evaluate`` and ``predict`` of Keras 3.

        Pass it to Keras as the data: ``model.fit(flow.to_keras(), epochs=3)``, with TensorFlow, JAX
        or PyTorch as the backend. Epoch ``k`` of the training is epoch ``k`` of the flow, in its
        order, with each batch once, including a small last one; the arguments ``shuffle=`` and
        ``batch_size=`` of Keras have no effect. An element must be what Keras accepts:
        ``(inputs, targets)``, optionally with sample weights as a third component; inputs may be a
        dict. Keras ignores ``class_weight=`` here; use sample weights. With ``steps_per_epoch``, a
        pass continues from one Keras epoch to the next, which is useful for an endless flow.

        ``state_dict(batch + 1)``, in ``on_train_batch_end`` of a callback, is the state after the
        batch that was trained on. After ``load_state_dict``, the next ``fit`` trains on the rest of
        that epoch: see docs/keras.md. At most ``buffer`` batches are computed ahead.

        Errors: ``MissingLibrary``; ``FlowError`` with TensorFlow for a component of unknown dtype;
        during a pass, ``SpecMismatch`` for an element that is not a Keras batch, and any error of
        the flow, unchanged.

        >>> import keras, numpy as np, flowdsl as fl
        >>> flow = fl.from_range(8).map(lambda i: (np.full(3, i, np.float32), i)).batch(4)
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        >>> model.compile(loss="mse")
        >>> history = model.fit(flow.to_keras(), epochs=2, verbose=0)
        >>> len(history.history["loss"]), model.predict(flow.to_keras(), verbose=0).shape
        (2, (8, 1))

        Source: the data adapters of Keras.

        Elsewhere: tensorpack ``KerasModel``; tf.data ``model.fit(dataset)``; Grain
        ``model.fit(dataset)``.
        """
        library("keras", "to_keras", "keras")
        from flowdsl.feeding.keras_dataset import KerasDataset

        return KerasDataset(flow(self.node), buffer)
