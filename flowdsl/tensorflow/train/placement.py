"""Where variables are made, when they are spread over several devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from flowdsl.errors import InvalidFlow


class LeastLoadedDeviceSetter:
    """Puts each new variable on the device that holds the fewest bytes of variables so far.

    ``worker_device`` is where else is computed; ``ps_devices`` are those for variables, of which
    the first is taken where several hold as little. Variables that are made in ``scope`` are placed
    so, those of Keras's layers too. ``loads`` has the bytes of each device.

    >>> import tensorflow as tf
    >>> setter = LeastLoadedDeviceSetter("/cpu:0", ["/cpu:0", "/cpu:1"])
    >>> [setter.place(size) for size in (100, 40, 40, 40)]
    ['/cpu:0', '/cpu:1', '/cpu:1', '/cpu:1']
    >>> setter.loads
    {'/cpu:0': 100, '/cpu:1': 120}

    Raises:
        InvalidFlow: ``ps_devices`` is empty, or names a device twice.

    Source: ``LeastLoadedDeviceSetter`` in tensorpack, which counts elements instead of bytes.
    """

    def __init__(self, worker_device: str, ps_devices: Sequence[str]) -> None:
        if isinstance(ps_devices, str) or not ps_devices or len({*ps_devices}) < len(ps_devices):
            raise InvalidFlow(
                f"LeastLoadedDeviceSetter: ps_devices must list different devices, one or more, "
                f"got {ps_devices!r}"
            )
        self.worker_device = worker_device
        self.loads = dict.fromkeys(ps_devices, 0)

    def place(self, size: int) -> str:
        """The device for a variable of so many bytes, which count from now on."""
        device = min(self.loads, key=self.loads.__getitem__)
        self.loads[device] += size
        return device

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A context whose new variables are spread over ``ps_devices``."""
        with tf.device(self.worker_device), tf.variable_creator_scope(self._made):
            yield

    def _made(self, make: Callable[..., tf.Variable], **settings: Any) -> tf.Variable:
        given = settings["initial_value"]
        value = tf.convert_to_tensor(given() if callable(given) else given, settings.get("dtype"))
        size = math.prod(tuple(value.numpy().shape)) * value.dtype.size
        with tf.device(self.place(size)):
            return make(**settings | {"initial_value": value})
