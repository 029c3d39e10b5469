"""Curves: a picture of the scalars of training."""

from __future__ import annotations

import os
import time

from flowdsl.errors import InvalidArgument
from flowdsl.nodes import ListOf, checked_names, checked_path
from flowdsl.tensorflow.train.callbacks.base import Callback
from flowdsl.tensorflow.train.plots import draw_curves

_SECONDS_BETWEEN_DRAWINGS = 5.0
"""The least time between two drawings; drawing takes about half a second."""


class Curves(Callback):
    """Draws the scalars of training after each epoch and at its end, with ``draw_curves``.

    ``path`` is the picture's file, in ``logdir`` unless it is absolute; it is replaced atomically.
    ``names`` lists the scalars. Epochs within a few seconds of each other share a picture. Needs
    matplotlib, a ``logdir``, and ``TFEventWriter`` among the monitors.

    Raises:
        InvalidArgument: When the trainer is created, if ``TrainConfig`` has no ``logdir``; when
            training begins, if matplotlib is missing.
    """

    runs_last = True  # called after the monitors have written
    needs_logdir = True

    def __init__(
        self, path: str | os.PathLike[str] = "training.svg", names: ListOf[str] = ("loss",)
    ) -> None:
        self.path = checked_path("Curves: path", path)
        self.names = checked_names("Curves: names", names)
        self._drawn = 0.0

    def before_train(self) -> None:
        logdir = self.trainer.config.logdir
        assert logdir is not None  # checked by the trainer
        try:
            import matplotlib  # noqa: F401  # an optional dependency
        except ModuleNotFoundError as error:
            raise InvalidArgument("Curves needs matplotlib: pip install matplotlib") from error
        self._logdir = logdir
        self._first_step = self.trainer.global_step

    def trigger(self) -> None:
        if time.monotonic() - self._drawn > _SECONDS_BETWEEN_DRAWINGS:
            self._draw()

    def after_train(self) -> None:
        if self.trainer.global_step > self._first_step:
            self.trainer.monitors.flush()
            self._draw()

    def _draw(self) -> None:
        path = self._logdir / self.path
        new = path.with_name(f".{path.stem}.new{path.suffix}")
        draw_curves(self._logdir, new, self.names)
        new.replace(path)
        self._drawn = time.monotonic()
