"""Monitors: the destinations of training's scalars."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

from numpy.typing import NDArray

from flowdsl.errors import InvalidArgument, SourceError
from flowdsl.nodes import checked_path, wrong
from flowdsl.tensorflow.train.callbacks.base import Callback
from flowdsl.tensorflow.train.logdir import writing


class Monitor:
    """Receives the recorded scalars; a subclass overrides the methods it needs.

    Source: ``TrainingMonitor`` in tensorpack.
    """

    needs_logdir: bool = False
    """True if it writes to ``TrainConfig.logdir``: a trainer without one refuses it."""

    def start(self, logdir: Path | None, step: int) -> None:
        """Called when training begins after ``step``; later steps will be recorded again."""

    def process_step(self, step: int, scalars: Mapping[str, float]) -> None:
        """Record the scalars of one step."""

    def process_epoch(self, epoch: int, step: int, scalars: Mapping[str, float]) -> None:
        """Record the means of an epoch that ended at ``step``, and the scalars of callbacks."""

    def process_histogram(self, step: int, name: str, values: NDArray[Any]) -> None:
        """Record the values of an array, such as the weights of a layer, after a step."""

    def flush(self) -> None:
        """Write out buffered scalars."""

    def close(self) -> None:
        """Called at the end of training."""


class Monitors(Callback):
    """Passes scalars to all monitors, and computes the means over the current epoch."""

    def __init__(self, monitors: Sequence[Monitor]) -> None:
        self._monitors = tuple(monitors)
        self._started: list[Monitor] = []
        self._sums: dict[str, float] = {}
        """The sums of the trainer's scalars over the recorded steps of this epoch."""
        self._steps = 0
        """The number of these steps."""
        self._of_callbacks: dict[str, float] = {}
        """The scalars that callbacks have recorded in this epoch."""
        self._last_epoch: dict[str, float] = {}
        """The scalars of the epoch that has just ended."""
        self._put_in_this_method: set[str] = set()
        """The scalars that callbacks have recorded during the current method."""
        self._prefixes: dict[str, Callback] = {}

    def put_scalar(self, name: str, value: float) -> None:
        """Record a scalar of this epoch; a later step, or the epoch's end, may replace it.

        Raises:
            InvalidArgument: It was already recorded at this moment of training, with another value.
        """
        before = self._of_callbacks.get(name, value)
        if name in self._put_in_this_method and before != value and not math.isnan(before):
            raise InvalidArgument(
                f"put_scalar: {name!r} is recorded twice after step {self.trainer.global_step}, as "
                f"{before!r} and as {value!r}: use a name or prefix of its own for each"
            )
        self._of_callbacks[name] = value
        self._put_in_this_method.add(name)

    def reserve(self, prefix: str, callback: Callback) -> None:
        """Reserve the names of scalars that begin with ``prefix`` for one callback.

        Raises:
            InvalidArgument: Another callback has reserved them.
        """
        if self._prefixes.setdefault(prefix, callback) is not callback:
            raise InvalidArgument(
                f"{type(callback).__name__}: another one records scalars as {prefix}_... too, and "
                f"they would replace each other: use a different prefix=... for each"
            )

    def latest(self, name: str, *, label: str = "latest") -> float:
        """Return a scalar of the epoch: as it was recorded, or its mean so far.

        At the end of the epoch it is the epoch's value, also after the monitors have received it.

        Raises:
            InvalidArgument: The scalar was not recorded in the epoch; the message begins with
                ``label``.
        """
        record = self._record() or self._last_epoch
        if name not in record:
            raise InvalidArgument(
                f"{label}: no scalar {name!r} was recorded in this epoch, or only later; there are "
                f"{', '.join(sorted(record))}"
            )
        return record[name]

    def put_histogram(self, name: str, values: NDArray[Any]) -> None:
        """Record the distribution of an array's values, after this step."""
        for monitor in self._monitors:
            monitor.process_histogram(self.trainer.global_step, name, values)

    def flush(self) -> None:
        for monitor in self._monitors:
            monitor.flush()

    def state_dict(self) -> Mapping[str, object]:
        return {"sums": self._sums, "steps": self._steps, "put": self._of_callbacks}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        self._sums = cast("dict[str, float]", state["sums"])
        self._steps = cast("int", state["steps"])
        self._of_callbacks = cast("dict[str, float]", state["put"])

    def before_train(self) -> None:
        for monitor in self._monitors:
            monitor.start(self.trainer.config.logdir, self.trainer.global_step)
            self._started.append(monitor)

    def trigger_step(self) -> None:
        self._put_in_this_method.clear()
        if not self.trainer.reached_multiple_of(self.trainer.config.record_every):
            return
        scalars = self.trainer.scalars
        for name, value in scalars.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._steps += 1
        for monitor in self._monitors:
            monitor.process_step(self.trainer.global_step, scalars)

    def trigger_epoch(self) -> None:
        self._last_epoch = record = self._record()
        self._sums, self._steps, self._of_callbacks = {}, 0, {}
        self._put_in_this_method.clear()
        for monitor in self._monitors:
            monitor.process_epoch(self.trainer.epoch_num, self.trainer.global_step, record)
        self.flush()

    def _record(self) -> dict[str, float]:
        return {
            name: total / self._steps for name, total in self._sums.items()
        } | self._of_callbacks

    def after_train(self) -> None:
        for monitor in self._started:
            monitor.close()


class JSONWriter(Monitor):
    """Writes ``logdir/stats.json``: a list with one object per epoch, replaced atomically.

    Each object has ``epoch_num``, ``global_step`` and the epoch's scalars. JSON has no infinities
    and NaN, so these are null. When training resumes from a checkpoint, the list is continued.

    Source: ``JSONWriter`` in tensorpack.
    """

    needs_logdir = True

    def start(self, logdir: Path | None, step: int) -> None:
        if logdir is None:
            raise InvalidArgument("JSONWriter needs a place: pass TrainConfig(logdir=...)")
        logdir.mkdir(parents=True, exist_ok=True)
        self._path = logdir / "stats.json"
        self._entries = [e for e in read_stats(logdir) if cast("int", e["global_step"]) <= step]

    def process_epoch(self, epoch: int, step: int, scalars: Mapping[str, float]) -> None:
        finite = {name: v if math.isfinite(v) else None for name, v in scalars.items()}
        self._entries.append({"epoch_num": epoch, "global_step": step, **finite})
        new = self._path.with_suffix(".new")
        with writing("JSONWriter", self._path):
            new.write_text(json.dumps(self._entries, indent=1, allow_nan=False))
            new.replace(self._path)


def read_stats(logdir: Path | str) -> list[dict[str, float | None]]:
    """Return the epochs that ``JSONWriter`` has written; empty if there are none yet."""
    path = checked_path("read_stats: logdir", logdir) / "stats.json"
    if not path.exists():
        return []
    try:
        entries = json.loads(path.read_text())
        for entry in entries:
            int(entry["global_step"])
    except (ValueError, TypeError, KeyError) as error:
        raise SourceError(
            f"{path} is not a list of epochs: {error!r}; move it away to begin a new one"
        ) from error
    return cast("list[dict[str, float | None]]", entries)


class ScalarPrinter(Monitor):
    """Prints the scalars of each epoch, sorted by name.

    Source: ``ScalarPrinter`` in tensorpack.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        if file is not None and not hasattr(file, "write"):
            raise wrong("ScalarPrinter: file", "a file that is open for writing", file)
        self._file = file

    def process_epoch(self, epoch: int, step: int, scalars: Mapping[str, float]) -> None:
        for name in sorted(scalars):
            print(f"{name}: {scalars[name]:.5g}", file=self._file)


class History(Monitor):
    """Keeps the scalars of every step of this process: ``history["loss"]`` maps step to value.

    For the scalars of earlier processes of the same training, use ``read_events``.
    """

    def __init__(self) -> None:
        self._series: dict[str, dict[int, float]] = {}

    def __getitem__(self, name: str) -> Mapping[int, float]:
        return self._series[name]

    def process_step(self, step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self._series.setdefault(name, {})[step] = value
