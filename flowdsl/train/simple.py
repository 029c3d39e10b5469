"""SimpleTrainer: one device."""

from __future__ import annotations

import tensorflow as tf

from flowdsl.errors import InvalidFlow
from flowdsl.train.config import TrainConfig
from flowdsl.train.trainer import Trainer


class SimpleTrainer(Trainer):
    """Trains on one device: the first GPU, or the CPU.

    Source: ``SimpleTrainer`` in tensorpack, which feeds a dataflow in the training loop; here it
    goes through a ``QueueInput`` all the same.
    """

    def __init__(self, config: TrainConfig) -> None:
        devices = config.devices()
        if len(devices) != 1:
            raise InvalidFlow(
                f"SimpleTrainer has one tower, got {', '.join(devices)}; for several use "
                f"SyncMultiGPUTrainerReplicated"
            )
        super().__init__(config, tf.distribute.OneDeviceStrategy(devices[0]))
