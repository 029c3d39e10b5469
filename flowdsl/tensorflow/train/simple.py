"""Trainers for one device."""

from __future__ import annotations

import tensorflow as tf

from flowdsl.errors import InvalidArgument
from flowdsl.tensorflow.inputs import FeedInput, InputSource, QueueInput
from flowdsl.tensorflow.train.config import TrainConfig, checked_config
from flowdsl.tensorflow.train.feedfree import SingleCostFeedfreeTrainer


class SimpleFeedfreeTrainer(SingleCostFeedfreeTrainer):
    """Trains on one device, the first GPU or the CPU; a flow is fed through a ``QueueInput``.

    Source: ``SimpleFeedfreeTrainer`` in tensorpack.
    """


class SimpleTrainer(SingleCostFeedfreeTrainer):
    """Trains on one device; the training loop computes each element, with ``FeedInput``.

    Errors of the flow therefore have the loop in their traceback, and nothing is read ahead; for
    speed use ``QueueInputTrainer``. An input source is used unchanged. With ``steps_per_call`` a
    queue is used.

    Source: ``SimpleTrainer`` in tensorpack.
    """

    def make_input(self) -> InputSource:
        if self.config.dataflow is None or self.config.steps_per_call > 1:
            return super().make_input()
        return FeedInput(self.config.dataflow)


class QueueInputTrainer(SimpleFeedfreeTrainer):
    """Trains on one device from a flow, which a thread moves into a queue.

    The queue is ``input_queue``, or else created. This is the same as ``SimpleTrainer`` with
    ``data=QueueInput(flow, input_queue)``.

    Raises:
        InvalidArgument: The configuration has no ``dataflow``.

    Source: ``QueueInputTrainer`` in tensorpack.
    """

    def __init__(self, config: TrainConfig, input_queue: tf.queue.QueueBase | None = None) -> None:
        if checked_config(self, config).dataflow is None:
            raise InvalidArgument(
                "QueueInputTrainer: config.dataflow is missing; with data= use SimpleTrainer"
            )
        self._input_queue = input_queue
        super().__init__(config)

    def make_input(self) -> InputSource:
        if self._input_queue is None or self.config.dataflow is None:
            return super().make_input()
        return QueueInput(self.config.dataflow, self._input_queue)
