"""SyncMultiGPUTrainerReplicated: a copy of the model on every device, updated in step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import tensorflow as tf

from flowdsl.errors import InvalidFlow
from flowdsl.train.config import TrainConfig
from flowdsl.train.trainer import Trainer

_CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")
"""The settings of a Keras optimizer that act on one tower's gradients."""


class SyncMultiGPUTrainerReplicated(Trainer):
    """Data-parallel training: each device holds a copy of the model and takes an element a step.

    Gradients are added up over the devices and applied to every copy, so the copies stay equal.
    ``devices`` are those of the configuration, unless given here: GPUs, or logical CPUs
    (``flowdsl.graph.logical_cpus``).

    Source: ``SyncMultiGPUTrainerReplicated`` in tensorpack; here on ``tf.distribute``.
    """

    def __init__(self, config: TrainConfig, devices: Sequence[str] | None = None) -> None:
        devices = tuple(devices) if devices is not None else config.devices()
        if config.nr_tower not in (None, len(devices)):
            raise InvalidFlow(
                f"SyncMultiGPUTrainerReplicated: nr_tower={config.nr_tower}, but "
                f"{len(devices)} devices are given: {', '.join(devices)}"
            )
        super().__init__(config, _mirrored(devices))
        clipping = [name for name in _CLIPPING if getattr(self.optimizer, name, None) is not None]
        if clipping and self.towers > 1:
            raise InvalidFlow(
                f"SyncMultiGPUTrainerReplicated: {clipping[0]} of the optimizer clips each "
                f"tower's gradient before they are added up, which is not what one device would do"
            )


@cache  # TensorFlow confuses the collectives of two strategies (tensorflow #62790)
def _mirrored(devices: tuple[str, ...]) -> tf.distribute.Strategy:
    on_cpu = all("cpu" in device.lower() for device in devices)
    reduction = tf.distribute.ReductionToOneDevice() if on_cpu else None  # None: the GPUs' default
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)
