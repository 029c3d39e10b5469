"""Callbacks that record more about a training than the means of an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from flowdsl.nodes import checked_int, checked_number
from flowdsl.tensorflow.train.callbacks.base import Callback

_OF_INPUT = ("queue_fill", "input_wait")
"""The scalars of a trainer that its input adds, not the model."""


class MovingAverageSummary(Callback):
    """Records a moving average of each of the model's scalars after an epoch: ``moving_loss``.

    At each recorded step, the average moves by ``1 - decay`` of the way to the new value; it begins
    with the first value. So it reflects the last steps, while an epoch's mean reflects all.

    Raises:
        InvalidArgument: ``decay`` is not at least 0 and below 1.

    Source: ``MovingAverageSummary`` in tensorpack.
    """

    def __init__(self, decay: float = 0.95) -> None:
        self.decay = checked_number("MovingAverageSummary: decay", decay, 0, 1)
        self._averages: dict[str, float] = {}

    def after_run(self) -> None:
        if not self.trainer.reached_multiple_of(self.trainer.config.record_every):
            return
        for name, value in self.trainer.scalars.items():
            if name in _OF_INPUT:
                continue
            average = self._averages.get(name, value)
            self._averages[name] = average + (1 - self.decay) * (value - average)

    def trigger(self) -> None:
        for name, average in self._averages.items():
            self.trainer.monitors.put_scalar(f"moving_{name}", average)

    def state_dict(self) -> Mapping[str, object]:
        return self._averages

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        self._averages = {name: cast("float", value) for name, value in state.items()}


class MergeAllSummaries(Callback):
    """Passes the result of the model's method ``summaries`` to the monitors, after each epoch.

    ``summaries()`` has no arguments and returns a dict of names to tensors, such as weights: a
    scalar is recorded as a scalar, a larger tensor as a histogram. With ``period``, it is also
    called every ``period`` steps. Models without the method are ignored.

    Raises:
        InvalidArgument: ``period`` is not an int of at least 0.

    Source: ``MergeAllSummaries`` in tensorpack, which ran the summaries of the graph.
    """

    def __init__(self, period: int = 0) -> None:
        self.period = checked_int("MergeAllSummaries: period", period, 0)

    def trigger_step(self) -> None:
        if self.period and self.trainer.reached_multiple_of(self.period):
            self.trigger()

    def trigger(self) -> None:
        summaries = getattr(self.trainer.model, "summaries", None)
        if summaries is None:
            return
        for name, value in summaries().items():
            array = value.numpy()
            if array.ndim:
                self.trainer.monitors.put_histogram(name, array)
            else:
                self.trainer.monitors.put_scalar(name, float(array))
