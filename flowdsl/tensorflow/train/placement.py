"""Placement of variables that are spread over several devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from flowdsl.nodes import ListOf, checked, checked_names


class LeastLoadedDeviceSetter:
    """Places each new variable on the device with the fewest bytes of variables so far.

    ``worker_device`` is the device of other operations. ``ps_devices`` lists the devices for
    variables; the first of equally loaded ones is used. Variables that are created in ``scope`` are
    placed by this rule, including those of Keras layers. ``loads`` has the bytes on each device.

    >>> import tensorflow as tf
    >>> setter = LeastLoadedDeviceSetter("/cpu:0", ["/cpu:0", "/cpu:1"])
    >>> [setter.place(size) for size in (100, 40, 40, 40)]
    ['/cpu:0', '/cpu:1', '/cpu:1', '/cpu:1']
    >>> setter.loads
    {'/cpu:0': 100, '/cpu:1': 120}

    Raises:
        InvalidArgument: ``ps_devices`` is empty, or lists a device twice.

    Source: ``LeastLoadedDeviceSetter`` in tensorpack, which counts elements instead of bytes.
    """

    def __init__(self, worker_device: str, ps_devices: ListOf[str]) -> None:
        name = "LeastLoadedDeviceSetter"
        self.worker_device = checked(f"{name}: worker_device", worker_device, str, "a device")
        self.loads = dict.fromkeys(checked_names(f"{name}: ps_devices", ps_devices), 0)

    def place(self, size: int) -> str:
        """Choose the device for a variable of ``size`` bytes, and add them to its load."""
        device = min(self.loads, key=self.loads.__getitem__)
        self.loads[device] += size
        return device

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A context whose new variables are spread over ``ps_devices``."""
        with tf.device(self.worker_device), tf.variable_creator_scope(self._create):
            yield

    def _create(self, make: Callable[..., tf.Variable], **settings: Any) -> tf.Variable:
        init = settings["initial_value"]
        value = tf.convert_to_tensor(init() if callable(init) else init, settings.get("dtype"))
        size = math.prod(tuple(value.numpy().shape)) * value.dtype.size
        with tf.device(self.place(size)):
            return make(**settings | {"initial_value": value})
