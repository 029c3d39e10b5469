# Overloads are tried in order: an element of unknown type matches all of them.
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false
"""The flow's method for JAX: to_jax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict, overload

from typing_extensions import Unpack

from flowdsl.elements.structure import Stackable
from flowdsl.nodes import E, FlowBase, T, flow, rejects_keywords
from flowdsl.ops.sharding import Even
from flowdsl.storage.libraries import library

if TYPE_CHECKING:
    from jax import Array

    from flowdsl.elements.batch_types import Unknown
    from flowdsl.jax.loader import JaxLoader, Target


class LoaderOptions(TypedDict, total=False):
    """The keyword arguments of ``to_jax``."""

    ahead: int
    shard: tuple[int, int] | None
    even: Even | None


class ToJax(FlowBase[T, E]):
    """A method that converts the elements to JAX arrays."""

    @overload
    def to_jax(
        self: FlowBase[Unknown, Any], sharding: Target = None, **options: Unpack[LoaderOptions]
    ) -> JaxLoader[Any]: ...
    @overload
    def to_jax(
        self: FlowBase[Stackable[Any], Any],
        sharding: Target = None,
        **options: Unpack[LoaderOptions],
    ) -> JaxLoader[Array]: ...
    @overload
    def to_jax(
        self: FlowBase[tuple[Unknown, ...], Any],
        sharding: Target = None,
        **options: Unpack[LoaderOptions],
    ) -> JaxLoader[tuple[Any, ...]]: ...
    @overload
    def to_jax(
        self: FlowBase[tuple[Stackable[Any]], Any],
        sharding: Target = None,
        **options: Unpack[LoaderOptions],
    ) -> JaxLoader[tuple[Array]]: ...
    @overload
    def to_jax(
        self: FlowBase[tuple[Stackable[Any], Stackable[Any]], Any],
        sharding: Target = None,
        **options: Unpack[LoaderOptions],
    ) -> JaxLoader[tuple[Array, Array]]: ...
    @overload
    def to_jax(
        self: FlowBase[tuple[Stackable[Any], Stackable[Any], Stackable[Any]], Any],
        sharding: Target = None,
        **options: Unpack[LoaderOptions],
    ) -> JaxLoader[tuple[Array, Array, Array]]: ...
    @overload
    def to_jax(
        self: FlowBase[tuple[Stackable[Any], Stackable[Any], Stackable[Any], Stackable[Any]], Any],
        sharding: Target = None,
        **options: Unpack[LoaderOptions],
    ) -> JaxLoader[tuple[Array, Array, Array, Array]]: ...
    @overload
    def to_jax(
        self: FlowBase[tuple[Stackable[Any], ...], Any],
        sharding: Target = None,
        **options: Unpack[LoaderOptions],
    ) -> JaxLoader[tuple[Array, ...]]: ...
    @overload
    def to_jax(
        self: FlowBase[Mapping[str, Unknown], Any],
        sharding: Target = None,
        **options: Unpack[LoaderOptions],
    ) -> JaxLoader[dict[str, Any]]: ...
    @overload
    def to_jax(
        self: FlowBase[Mapping[str, Stackable[Any]], Any],
        sharding: Target = None,
        **options: Unpack[LoaderOptions],
    ) -> JaxLoader[dict[str, Array]]: ...
    @overload
    def to_jax(
        self, sharding: Target = None, **options: Unpack[LoaderOptions]
    ) -> JaxLoader[Any]: ...
    @rejects_keywords(
        batch_size="write .batch({n}).to_jax()",
        num_workers="write .prefetch(procs={n}).to_jax()",
        shuffle="write .shuffle(seed=...) in the chain",
        device="write to_jax(device)",
        ranks="write shard=(n, i)",
        buffer="write ahead={n}",
    )
    def to_jax(
        self,
        sharding: Target = None,
        *,
        ahead: int = 2,
        shard: tuple[int, int] | None = None,
        even: Even | None = "drop",
    ) -> JaxLoader[Any]:
        """Return a loader of the elements as JAX arrays; each ``for`` over it is an epoch.

        Arrays are transferred to their device ahead of time, at most ``ahead`` elements ahead.
        ``sharding`` divides each array among several devices, or is a single device; the default is
        the first device of JAX. On the CPU an array shares the memory that the worker has filled,
        so it must not be written to. attrs classes and dataclasses are registered as pytrees,
        unless they already are; if you register one yourself, do so before the first element. Text,
        Python numbers and arrays of objects are unchanged. As everywhere in JAX, 64-bit types
        require ``jax_enable_x64``; without it, floats are rounded to 32 bits, and integers that do
        not fit into 32 bits are an error.

        If ``jax.distributed`` is initialized, each process gets every ``n``-th element, like
        ``shard``; ``shard=(n, i)`` sets their number and the process explicitly. A sharding over
        the devices of all processes combines their elements into one array. All processes get the
        same number of elements: with ``even="drop"`` the last elements of a pass are left out if
        they are too few for all, with ``"pad"`` the first ones are repeated; a warning says how
        many. With ``even=None`` the first processes may get one more.

        ``state_dict``, which returns plain JSON values that Orbax can save (``args.JsonSave``), and
        ``load_state_dict`` save and restore the epoch and the position in it; ``set_epoch`` selects
        the epoch of the next ``for``.

        Errors: ``MissingLibrary``; ``InvalidFlow`` for arguments, and with several processes for a
        flow of unknown length, or one that contains the ``shard`` of this process already, unless
        ``shard=`` is given; during a pass, ``SpecMismatch`` for an array that JAX cannot represent,
        or that a sharding does not divide evenly (``batch(n, drop_remainder=True)``),
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
        from flowdsl.jax.loader import JaxLoader

        return JaxLoader[Any](flow(self.node), sharding, ahead=ahead, shard=shard, even=even)
