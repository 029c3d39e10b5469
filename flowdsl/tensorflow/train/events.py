"""Event files for TensorBoard, written and read without TensorBoard.

A file is a sequence of checksummed records (TFRecord), each an ``Event`` proto; the first one names
the format. TensorBoard reads each file whose name contains ``tfevents``.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import Any, cast

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from flowdsl.errors import InvalidArgument
from flowdsl.nodes import checked_path
from flowdsl.tensorflow.train.logdir import writing
from flowdsl.tensorflow.train.monitors import Monitor

_Event = tf.compat.v1.Event
_Summary = tf.compat.v1.Summary
_BINS = 30
_START = tf.compat.v1.SessionLog.START


class TFEventWriter(Monitor):
    """Writes an event file for TensorBoard into ``logdir``.

    The scalars of a step have their own names; the names of an epoch's scalars begin with
    ``epoch/``. When training resumes from a checkpoint, a marker makes readers drop the later steps
    of earlier files, which are recorded again.

    Source: ``TFEventWriter`` in tensorpack.
    """

    needs_logdir = True

    def start(self, logdir: Path | None, step: int) -> None:
        if logdir is None:
            raise InvalidArgument("TFEventWriter needs a place: pass TrainConfig(logdir=...)")
        logdir.mkdir(parents=True, exist_ok=True)
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}"
        paths = (logdir / f"{name}.{i}" for i in count())
        path = next(path for path in paths if not path.exists())
        self._path = path
        with writing("TFEventWriter", path):
            self._writer = tf.io.TFRecordWriter(str(path))
        self._write(_Event(wall_time=now, file_version="brain.Event:2"))
        marker = tf.compat.v1.SessionLog(status=_START)
        self._write(_Event(wall_time=now, step=step + 1, session_log=marker))
        self.flush()

    def process_step(self, step: int, scalars: Mapping[str, float]) -> None:
        values = [_Summary.Value(tag=name, simple_value=v) for name, v in scalars.items()]
        self._write(_Event(wall_time=time.time(), step=step, summary=_Summary(value=values)))

    def process_epoch(self, epoch: int, step: int, scalars: Mapping[str, float]) -> None:
        self.process_step(step, {f"epoch/{name}": value for name, value in scalars.items()})

    def process_histogram(self, step: int, name: str, values: NDArray[Any]) -> None:
        finite = values[np.isfinite(values)].astype(np.float64)
        if not finite.size:
            return
        counts, edges = np.histogram(finite, bins=_BINS)
        histogram = tf.compat.v1.HistogramProto(
            min=finite.min(),
            max=finite.max(),
            num=finite.size,
            sum=finite.sum(),
            sum_squares=(finite**2).sum(),
            bucket_limit=edges[1:],
            bucket=counts,
        )
        value = _Summary.Value(tag=name, histo=histogram)
        self._write(_Event(wall_time=time.time(), step=step, summary=_Summary(value=[value])))

    def flush(self) -> None:
        with writing("TFEventWriter", self._path):
            self._writer.flush()

    def close(self) -> None:
        with writing("TFEventWriter", self._path):
            self._writer.close()

    def _write(self, event: tf.compat.v1.Event) -> None:
        with writing("TFEventWriter", self._path):
            self._writer.write(event.SerializeToString())


def read_events(logdir: Path | str) -> dict[str, dict[int, float]]:
    """Return the scalars in the event files of a directory: for each name, step to value.

    If training was interrupted and resumed, each step appears once, with its final value.
    """
    files = checked_path("read_events: logdir", logdir).glob("*tfevents*")
    runs = sorted((list(_events(path)) for path in files), key=_start_time)
    series: dict[str, dict[int, float]] = {}
    for event in chain.from_iterable(runs):
        if event.HasField("session_log") and event.session_log.status == _START:
            # Training continued before the ends of these series; those steps follow again.
            for name, values in series.items():
                series[name] = {step: v for step, v in values.items() if step < event.step}
        for value in event.summary.value:
            if not value.HasField("simple_value"):
                continue
            series.setdefault(value.tag, {})[event.step] = value.simple_value
    return series


def _events(path: Path) -> Iterator[tf.compat.v1.Event]:
    with suppress(tf.errors.DataLossError):  # the last record of a killed writer is incomplete
        for record in tf.data.TFRecordDataset(str(path), buffer_size=1 << 18):
            yield _Event.FromString(cast("bytes", record.numpy()))


def _start_time(run: list[tf.compat.v1.Event]) -> float:
    return run[0].wall_time if run else 0.0
