"""KerasMetrics: the metrics of a compiled model, measured over an epoch."""

from __future__ import annotations

from flowdsl.tensorflow.train.callbacks.base import Callback
from flowdsl.tensorflow.train.compiled import CompiledModel


class KerasMetrics(Callback):
    """Records the metrics of a compiled model at the end of an epoch, over its rows, like ``fit``.

    Trainers of a compiled model add it automatically. Metrics are reset at the start of each epoch;
    within an epoch they are part of checkpoints.
    """

    def __init__(self, model: CompiledModel) -> None:
        self.model = model

    def before_epoch(self) -> None:
        if self.trainer.local_step == 0:
            self.model.reset_metrics()

    def trigger_epoch(self) -> None:
        for name, value in self.model.measured().items():
            self.trainer.monitors.put_scalar(name, value)
