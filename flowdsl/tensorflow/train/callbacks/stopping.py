"""EarlyStopping: ends training when a scalar no longer improves."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Literal, cast

from flowdsl.nodes import checked, checked_choice, checked_int, checked_number
from flowdsl.tensorflow.train.callbacks.base import Callback, StopTraining


class EarlyStopping(Callback):
    """Ends training when a recorded scalar has not improved for ``patience`` epochs.

    With ``mode="min"``, less is better. An improvement is a change of more than ``min_delta``. List
    it after the callback that records the scalar, such as ``InferenceRunner``. A stopped training
    stays stopped when its program runs again.

    Raises:
        InvalidArgument: An argument is out of bounds; or at the end of an epoch, the scalar was not
            recorded in it.

    Source: ``EarlyStopping`` in Keras.
    """

    def __init__(
        self,
        monitor: str,
        patience: int = 0,
        *,
        min_delta: float = 0.0,
        mode: Literal["min", "max"] = "min",
    ) -> None:
        self.monitor = checked("EarlyStopping: monitor", monitor, str, "the name of a scalar")
        self.patience = checked_int("EarlyStopping: patience", patience, 0)
        self.min_delta = checked_number("EarlyStopping: min_delta", min_delta, 0)
        self.mode = checked_choice("EarlyStopping: mode", mode, "min", "max")
        self._best: float | None = None
        self._epochs_since_best = 0

    def before_train(self) -> None:
        self._stop_if_enough()

    def trigger(self) -> None:
        value = self.trainer.monitors.latest(self.monitor, label="EarlyStopping")
        if self._improves(value):
            self._best, self._epochs_since_best = value, 0
        else:
            self._epochs_since_best += 1
        self._stop_if_enough()

    def _improves(self, value: float) -> bool:
        if self._best is None:
            return not isnan(value)
        gain = self._best - value if self.mode == "min" else value - self._best
        return gain > self.min_delta

    def _stop_if_enough(self) -> None:
        if self._epochs_since_best and self._epochs_since_best >= self.patience:
            raise StopTraining(
                f"{self.monitor} has not improved on {self._best} for "
                f"{self._epochs_since_best} epoch(s)"
            )

    def state_dict(self) -> Mapping[str, object]:
        return {"best": self._best, "since": self._epochs_since_best}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        self._best = cast("float | None", state["best"])
        self._epochs_since_best = cast("int", state["since"])
