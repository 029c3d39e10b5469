# Overloads are tried in order: an element that nothing is known of could be any of them.
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false
"""What feeds a framework with the elements of a flow: a method for each."""

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
    """Operators that bring the elements into another framework."""

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
        """The elements as tensors of PyTorch: each ``for`` over what this gives is an epoch.

        Arrays become tensors that view their memory: nothing is copied on the way from a worker to
        the training step, and a step may write into its batch. Memory that must not be written
        to, such as that of a mapped file, is copied; ``copy=True`` copies always, ``copy=False``
        raises instead. The memory goes back to the worker when the last tensor that views it is
        gone. Text, Python's numbers and arrays of objects stay as they are.

        With a ``device`` elements are brought there, at most ``buffer`` ahead; to a GPU through
        pinned memory and beside the computation, unless ``pin_memory=False``.

        Where ``torch.distributed`` is initialized, each rank gets every ``n``-th element, as
        ``shard`` gives them, or ``ranks=(i, n)`` says which. All take equally many: the elements at
        the end of a pass that are too few for all ranks are left out, and the log tells how many;
        ``remainder="keep"`` gives them to the first ranks, for loops in which none waits for
        another.

        ``state_dict`` and ``load_state_dict`` save and restore the epoch and the place in it, and
        ``set_epoch`` begins another one. To pass it to what wants a ``DataLoader``:
        ``DataLoader(flow.to_torch(), batch_size=None)``.

        Errors: ``MissingLibrary``; ``InvalidFlow`` for arguments, for a flow of unknown length
        under several ranks, and in a worker of a ``DataLoader``, which would give all elements
        once more; while it runs, ``SpecMismatch`` for an array that cannot be a tensor, and
        whatever the flow raises, each at the place of its element.

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
        """The elements as arrays of JAX: each ``for`` over what this gives is an epoch.

        Arrays are on their device before they are asked for, at most ``buffer`` elements ahead.
        ``device`` is a device or a sharding, which divides each array among many, by default JAX's
        own first one; on the CPU an array shares the memory that the worker has filled. Text,
        Python's numbers and arrays of objects stay as they are. As everywhere in JAX, 64 bits are
        kept only with ``jax_enable_x64``: floats are rounded to 32, and whole numbers that do not
        fit into 32 are an error.

        Where ``jax.distributed`` is initialized, each process gets every ``n``-th element, as
        ``shard`` gives them, or ``ranks=(i, n)`` says which; a sharding over the devices of all
        makes one array of what they get. All take equally many: the elements at the end of a pass
        that are too few for all are left out, and the log tells how many; ``remainder="keep"``
        gives them to the first.

        ``state_dict``, plain JSON values as Orbax saves them (``args.JsonSave``), and
        ``load_state_dict`` save and restore the epoch and the place in it; ``set_epoch`` begins
        another one.

        Errors: ``MissingLibrary``; ``InvalidFlow`` for arguments, and for a flow of unknown length
        under several processes; while it runs, ``SpecMismatch`` for an array that JAX cannot have,
        or that a sharding does not divide evenly (``batch(n, drop_remainder=True)``), and whatever
        the flow raises, each at the place of its element.

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
        """The elements as batches for ``fit``, ``evaluate`` and ``predict`` of Keras 3.

        It is given in the place of the data: ``model.fit(flow.to_keras(), epochs=3)``, with Keras
        on TensorFlow, JAX or PyTorch. Epoch ``k`` of the training is epoch ``k`` of the flow, in
        its order, each batch once, the small last one too; ``shuffle=`` and ``batch_size=`` of
        Keras have no effect on it. An element is what Keras takes: ``(inputs, targets)``, or with
        weights of the rows as a third component; inputs may be a dict. ``class_weight=`` is not
        heard by Keras here: give weights. With ``steps_per_epoch`` a pass goes on from one epoch of
        Keras to the next, as for a flow without an end.

        ``state_dict(batch + 1)``, in ``on_train_batch_end`` of a callback, is the place after the
        batch that was trained on; after ``load_state_dict`` the next ``fit`` first has the rest of
        that epoch: see docs/keras.md. At most ``buffer`` batches are made ahead.

        Errors: ``MissingLibrary``; ``FlowError`` on TensorFlow for a component of which no dtype
        is known; while it runs, ``SpecMismatch`` for an element that is no batch of Keras, and
        whatever the flow raises, as itself.

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
