"""MinSaver and MaxSaver: the checkpoint of the best epoch so far."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from pathlib import Path
from typing import cast

from flowdsl.nodes import checked
from flowdsl.tensorflow.train.callbacks.base import Callback
from flowdsl.tensorflow.train.checkpoint import CheckpointWriter, directory_in


class MinSaver(Callback):
    """Keeps the checkpoint of the epoch with the smallest value of a recorded scalar so far.

    It is in the folder ``logdir/min-<monitor_stat>``, or ``filename`` there, separate from the
    checkpoints of ``ModelSaver``. To begin another training with it, pass
    ``TrainConfig(session_init=folder)``. NaN is never the smallest value.

    Raises:
        InvalidArgument: When the trainer is created, if ``TrainConfig`` has no ``logdir``; at the
            end of an epoch, if the scalar was not recorded in it.

    Source: ``MinSaver`` in tensorpack.
    """

    runs_last = True
    needs_logdir = True
    reverse = False
    """True if the greatest value is the best."""

    def __init__(self, monitor_stat: str, *, filename: str | None = None) -> None:
        kind = "max" if self.reverse else "min"
        name = type(self).__name__
        self.monitor_stat = checked(
            f"{name}: monitor_stat", monitor_stat, str, "the name of a scalar"
        )
        if filename is not None:
            checked(f"{name}: filename", filename, str, "the name of a folder")
        self.filename = filename or f"{kind}-{monitor_stat.replace('/', '-')}"
        self._best: float | None = None

    def before_train(self) -> None:
        self._writer = CheckpointWriter(self.trainer, 1, self._folder())

    def trigger(self) -> None:
        value = self.trainer.monitors.latest(self.monitor_stat, label=type(self).__name__)
        if isnan(value):
            return
        if self._best is None or (value > self._best if self.reverse else value < self._best):
            self._best = value
            self._writer.save()

    def state_dict(self) -> Mapping[str, object]:
        return {"best": self._best}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        self._best = cast("float | None", state["best"])

    def _folder(self) -> Path:
        return directory_in(self.trainer.config.logdir, self.filename)


class MaxSaver(MinSaver):
    """Keeps the checkpoint of the epoch with the greatest value of a recorded scalar so far.

    Like ``MinSaver``, in ``logdir/max-<monitor_stat>``.

    Source: ``MaxSaver`` in tensorpack.
    """

    reverse = True
