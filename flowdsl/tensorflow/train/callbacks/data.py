"""DataReport: whether the data keep up with the steps, and what to change if not."""

from __future__ import annotations

import time

from rich.console import Console

from flowdsl.report.bottleneck import verdict
from flowdsl.statistics.figures import share
from flowdsl.tensorflow.train.callbacks.base import Callback

_KEEPS_UP = 0.02
"""The share of an epoch that steps may wait for data before it is worth a word."""


class DataReport(Callback):
    """Says in a line, after each epoch, how long the steps waited for data; and why, if they did.

    ::

        data limit: steps waited 4.1 s (38%) of the epoch. from_lmdb('train.lmdb') … map(decode)
        limits at 812 elements/s: its 2 processes are busy 99% of the time. ... prefetch(procs=4)
        would give about 1,300 elements/s.

    The scalar ``data_wait`` is that share. Where the input does not tell, as with ``from_zmq`` in
    TensorFlow's own threads, it only tells the time.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()

    def before_epoch(self) -> None:
        self._began, self._waited = time.monotonic(), self.trainer.input.waited

    def after_epoch(self) -> None:
        seconds = max(time.monotonic() - self._began, 1e-9)
        waited = self.trainer.input.waited - self._waited
        self.trainer.monitors.put_scalar("data_wait", waited / seconds)
        told = f"steps waited {waited:.1f} s ({share(waited / seconds)}) of the epoch"
        self.console.print(self._line(waited / seconds, told), highlight=False, soft_wrap=True)

    def _line(self, part: float, told: str) -> str:
        if part < _KEEPS_UP:
            return f"data keep up: {told}"
        statistics = self.trainer.input.statistics()
        why = "" if statistics is None else f". {verdict(statistics)}"
        return f"data limit: {told}{why}"
