"""The loader of to_jax: elements as JAX arrays, transferred to their devices ahead of time."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar
from weakref import WeakSet

import attrs
import jax
import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.structure import arguments_of, components, in_native_order, refuse_masked
from flowdsl.errors import InvalidFlow, SpecMismatch
from flowdsl.feeding.converting import convert_arrays, describe_component
from flowdsl.feeding.loader import Loader, Ranks, refuse_second_shard
from flowdsl.ops.sharding import Even

if TYPE_CHECKING:
    from flowdsl.flow import Flow

X = TypeVar("X")


class Device(Protocol):
    """A JAX device, one of ``jax.devices()``, whose class is unknown to type checkers."""

    id: int
    platform: str


Target: TypeAlias = Device | jax.sharding.Sharding | None
"""The target of a transfer: None for the first device of JAX."""


class JaxLoader(Loader[X]):
    """The passes of a flow as JAX arrays, as documented in ``flow.to_jax``."""

    def __init__(
        self,
        flow: Flow[Any, Any],
        sharding: Target = None,
        *,
        ahead: int = 2,
        shard: tuple[int, int] | None = None,
        even: Even | None = "drop",
    ) -> None:
        if sharding is not None and not isinstance(sharding, jax.Device | jax.sharding.Sharding):
            raise InvalidFlow(
                f"to_jax: sharding must be None, a sharding, or a device such as jax.devices()[0], "
                f"got {sharding!r}"
            )
        if shard is None:
            shard = jax.process_count(), jax.process_index()
            refuse_second_shard("to_jax", flow.node, shard)
        super().__init__(
            flow,
            _DevicePlacer(sharding),
            ahead=ahead,
            ranks=Ranks.of_arguments("to_jax", shard, even),
            name="to_jax",
        )


@attrs.frozen
class _DevicePlacer:
    """Transfers the arrays of an element to their devices, in the thread of a pump."""

    device: Target

    def __call__(self, element: Any, position: int) -> Any:
        def place(array: NDArray[Any], component: str) -> jax.Array:
            try:
                refuse_masked(array)
                array = in_native_order(array)
                _refuse_overflow(array)
                return self._placed(array)
            except (SpecMismatch, TypeError, ValueError, IndexError, AssertionError) as error:
                raise SpecMismatch(
                    f"to_jax: {describe_component(component, position)}, an array of {array.dtype} "
                    f"of shape {array.shape}, cannot be placed: {self._why(array, error)}"
                ) from error

        placed = convert_arrays(element, place)
        register_records(placed)
        return placed

    def _why(self, array: NDArray[Any], error: Exception) -> str:
        # If the sharding has more axes than the array, JAX fails with an index or an assertion
        spec = getattr(self.device, "spec", ())
        axes = max((k for k, name in enumerate(spec, 1) if name is not None), default=0)
        if axes > array.ndim:
            return (
                f"its sharding is for {axes} {'axis' if axes == 1 else 'axes'} or more, and it has "
                f"{array.ndim}; leave such components out with .select, or pass a sharding that "
                f"fits all of them"
            )
        if isinstance(self.device, jax.sharding.Sharding):
            try:
                self.device.shard_shape(array.shape)
            except ValueError:
                return (
                    "its sharding does not divide it evenly; give all batches as many rows, which "
                    "the number of devices divides: .batch(n, drop_remainder=True)"
                )
        return str(error)

    def _placed(self, array: NDArray[Any]) -> jax.Array:
        device = self.device
        if isinstance(device, jax.sharding.Sharding) and not device.is_fully_addressable:
            placed = jax.make_array_from_process_local_data(device, array)
        else:
            if isinstance(device, jax.sharding.Sharding):
                device.shard_shape(array.shape)  # fails without a line that JAX 0.12 prints
            placed = jax.device_put(array, device)
        assert isinstance(placed, jax.Array)
        return placed


def register_records(element: object) -> None:
    """Register the attrs classes and dataclasses of an element as pytrees, if nobody has.

    JAX would treat a record as one leaf, which ``jax.jit`` refuses as an argument.

    >>> import attrs, jax, numpy as np
    >>> @attrs.frozen
    ... class Point:
    ...     x: object
    ...     y: object
    >>> register_records([Point(np.zeros(2), np.ones(2))])
    >>> jax.jit(lambda point: point.x + point.y)(Point(np.zeros(2), np.ones(2))).tolist()
    [1.0, 1.0]
    """
    kind = type(element)
    if isinstance(element, list):
        parts = [("", item) for item in element]
    else:
        parts = components(element) or []
    for _, part in parts:
        register_records(part)
    names = arguments_of(kind)
    if names is None or kind in _registered:
        return
    with _registering:  # several loaders may convert elements of one class
        if kind not in _registered and jax.tree_util.all_leaves([element]):
            _register(kind, tuple(names))
        _registered.add(kind)


def _register(kind: type, names: tuple[str, ...]) -> None:
    keys = [jax.tree_util.GetAttrKey(name) for name in names]
    jax.tree_util.register_pytree_with_keys(
        kind,
        lambda record: ([(key, getattr(record, key.name)) for key in keys], None),
        partial(_record_of, kind, names),
    )


_registering = Lock()
_registered = WeakSet[type]()
"""The classes that were registered here, or were pytrees already."""


def _record_of(kind: type, names: tuple[str, ...], _: None, values: Iterable[object]) -> object:
    """Return a record with these values, which may be tracers that its constructor would refuse."""
    if hasattr(kind, "__struct_fields__"):  # a Struct checks nothing
        return kind(**dict(zip(names, values, strict=True)))
    record: object = object.__new__(kind)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(record, name, value)
    return record


def _refuse_overflow(array: NDArray[Any]) -> None:
    """Refuse integers that JAX would truncate: without ``jax_enable_x64`` it has 32 bits."""
    dtype = array.dtype
    if dtype.kind not in "iu" or not array.size:
        return
    kept = np.iinfo(jax.dtypes.canonicalize_dtype(dtype))
    if kept.bits < 8 * dtype.itemsize and not kept.min <= array.min() <= array.max() <= kept.max:
        raise SpecMismatch(
            f"it has numbers from {array.min()} to {array.max()}, and JAX keeps {kept.bits} bits; "
            f'call jax.config.update("jax_enable_x64", True) first, or map them to smaller ones'
        )
