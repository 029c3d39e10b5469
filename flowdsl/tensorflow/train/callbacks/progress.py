"""ProgressBar: shows the progress of an epoch."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from flowdsl.nodes import checked
from flowdsl.tensorflow.train.callbacks.base import Callback

_SECONDS_BETWEEN_DRAWINGS = 0.1
"""The least time between two drawings; a bar with its own thread would slow down steps."""


class ProgressBar(Callback):
    """A progress bar for each epoch, with the scalars of the last step.

    The scalars include the number of elements waiting in the input (``queue_fill``).

    If the output is not a terminal, one plain line per epoch is printed instead.
    """

    def __init__(self, console: Console | None = None) -> None:
        if console is not None:
            checked("ProgressBar: console", console, Console, "a rich Console")
        self.console = console or Console()
        self._bar: Progress | None = None
        self._began = self._drawn = 0.0

    def before_epoch(self) -> None:
        self._epoch = self.trainer.epoch_num + 1
        self._began = time.monotonic()
        if not self.console.is_terminal:
            return
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[status]}"),
            console=self.console,
            auto_refresh=False,
        )
        self._bar.add_task(
            self._title(),
            total=self.trainer.steps_per_epoch,
            completed=self.trainer.local_step,
            status="",
        )
        self._bar.start()

    def trigger_step(self) -> None:
        if self._bar and time.monotonic() - self._drawn > _SECONDS_BETWEEN_DRAWINGS:
            self._draw(self._bar)

    def after_epoch(self) -> None:
        if self._bar:
            self._draw(self._bar)
            self._stop()
            return
        seconds = time.monotonic() - self._began
        self.console.print(
            f"{self._title()}: {self.trainer.local_step} steps, {seconds:.1f} s, {self._status()}",
            highlight=False,
            soft_wrap=True,
        )

    def after_train(self) -> None:
        self._stop()

    def _draw(self, bar: Progress) -> None:
        bar.update(TaskID(0), completed=self.trainer.local_step, status=self._status())
        bar.refresh()
        self._drawn = time.monotonic()

    def _stop(self) -> None:
        if self._bar:
            self._bar.stop()
            self._bar = None

    def _title(self) -> str:
        return f"epoch {self._epoch}/{self.trainer.config.max_epoch}"

    def _status(self) -> str:
        return ", ".join(f"{name} {value:.4g}" for name, value in self.trainer.scalars.items())
