"""DataReport: reports if steps wait for data, and what to change."""

from __future__ import annotations

import time

from rich.console import Console

from flowdsl.nodes import checked
from flowdsl.report.bottleneck import verdict
from flowdsl.statistics.figures import share
from flowdsl.tensorflow.train.callbacks.base import Callback

_LEAST_SHARE_OF_LIMIT = 0.02
"""Data are the limit if steps wait for them in at least this share of an epoch's time."""


class DataReport(Callback):
    """Prints, after each epoch, how long steps waited for data, and the bottleneck if they did.

    ::

        data limit: steps waited 4.1 s (38%) of the epoch. from_lmdb('train.lmdb') … map(decode)
        limits the run to 812 elements/s: its 2 processes are busy 99% of the time. ...
        prefetch(procs=4) would give about 1,300 elements/s.

    The scalar ``data_wait`` is that share. If the input has no statistics, as in TensorFlow's own
    pipelines, only the time is printed.
    """

    def __init__(self, console: Console | None = None) -> None:
        if console is not None:
            checked("DataReport: console", console, Console, "a rich Console")
        self.console = console or Console()

    def before_epoch(self) -> None:
        self._began, self._waited_before = time.monotonic(), self.trainer.input.waited

    def after_epoch(self) -> None:
        seconds = max(time.monotonic() - self._began, 1e-9)
        waited = self.trainer.input.waited - self._waited_before
        self.trainer.monitors.put_scalar("data_wait", waited / seconds)
        message = f"steps waited {waited:.1f} s ({share(waited / seconds)}) of the epoch"
        self.console.print(self._line(waited / seconds, message), highlight=False, soft_wrap=True)

    def _line(self, share_waited: float, message: str) -> str:
        if share_waited < _LEAST_SHARE_OF_LIMIT:
            return f"data keep up: {message}"
        statistics = self.trainer.input.statistics()
        why = "" if statistics is None else f". {verdict(statistics)}"
        return f"data limit: {message}{why}"
