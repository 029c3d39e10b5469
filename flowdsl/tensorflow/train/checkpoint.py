"""Checkpoints: everything that training needs to continue as if never stopped, in one file.

The input position and the epoch's running means are stored inside TensorFlow's checkpoint, so they
are never older or newer than the weights. TensorFlow first writes the data, then replaces the
small file that names the latest checkpoint: a kill at any moment leaves a complete checkpoint.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from flowdsl.errors import FlowError, SourceError, StateMismatch
from flowdsl.tensorflow.train.compiled import CompiledModel
from flowdsl.tensorflow.train.variables import group, held_by, untracked

if TYPE_CHECKING:
    from flowdsl.tensorflow.train.trainer import Trainer

_BY_THIS_PROCESS = tf.train.CheckpointOptions(experimental_io_device="/cpu:0")
"""Makes this process write all variables; otherwise remote machines write to their own disks."""


class _PythonState(tf.train.experimental.PythonState):
    """The trainer's own state as JSON, inside the checkpoint."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def serialize(self) -> str:
        return json.dumps(self._trainer.state_dict())

    def deserialize(self, string_value: bytes) -> None:
        self._trainer.load_state_dict(json.loads(string_value))


def _tracked(trainer: Trainer) -> tf.train.Checkpoint:
    parts: dict[str, object] = {"model": trainer.model}
    if trainer.optimizer is not None:
        parts["optimizer"] = trainer.optimizer
    state, counts = _PythonState(trainer), trainer.counts
    try:
        root = tf.train.Checkpoint(**parts)
        but = [counts.finished, counts.not_finite, counts.first_not_finite]
        if isinstance(trainer.model, CompiledModel) and not trainer.model.measures:
            but += trainer.model.net.metrics_variables
        others = group(untracked(root, held_by(parts), trainer.used, but))
        return tf.train.Checkpoint(
            **parts, others=others, global_step=counts.finished, trainer=state
        )
    except ValueError as error:
        raise FlowError(
            f"a checkpoint stores only what TensorFlow tracks: derive the model from ModelDesc or "
            f"tf.Module, the optimizer from tf.Module or Keras ({error})"
        ) from error


def directory_in(logdir: Path | None, name: str = "checkpoints") -> Path:
    """Return a folder for checkpoints; raises FlowError without a ``logdir``."""
    if logdir is None:
        raise FlowError("checkpoints need a folder: pass TrainConfig(logdir=...)")
    return logdir / name


class CheckpointWriter:
    """Writes the checkpoints of one training."""

    def __init__(self, trainer: Trainer, max_to_keep: int, directory: Path) -> None:
        self._trainer = trainer
        self._directory = str(directory)
        self._manager = tf.train.CheckpointManager(_tracked(trainer), self._directory, max_to_keep)

    def save(self) -> Path:
        """Wait for running steps, flush the monitors, write a checkpoint, and return its path.

        Raises:
            FlowError: It could not be written, e.g. on a full disk; earlier checkpoints are kept.
        """
        trainer = self._trainer
        trainer.settle()
        trainer.monitors.flush()
        trainer.counts.finished.assign(trainer.global_step)
        before = self._manager.latest_checkpoint
        try:
            path = self._manager.save(trainer.global_step, options=_BY_THIS_PROCESS)
            return Path(path)
        except (OSError, tf.errors.OpError) as error:
            stays = f"the last good one is {before}" if before else "there is no earlier one"
            raise FlowError(
                f"ModelSaver: the checkpoint of step {trainer.global_step} could not be written to "
                f"{self._directory}; {stays} ({error})"
            ) from error


def latest_checkpoint(logdir: Path | None) -> str | None:
    """Return the newest checkpoint in a log directory, if there is one.

    The newest is the one with the highest step that has files. TensorFlow's own search reads a file
    that names only the latest; if that was removed, it finds none.
    """
    if logdir is None:
        return None
    indices = directory_in(logdir).glob("ckpt-*.index")
    steps = [int(path.stem.removeprefix("ckpt-")) for path in indices]
    return str(directory_in(logdir) / f"ckpt-{max(steps)}") if steps else None


def restore(trainer: Trainer, path: str) -> None:
    """Restore a trainer from a checkpoint.

    Raises:
        StateMismatch: The checkpoint belongs to another model or optimizer.
        SourceError: The checkpoint is damaged.
    """
    try:
        _tracked(trainer).restore(path).assert_consumed()
    except (AssertionError, ValueError) as error:
        raise StateMismatch(
            f"{path} does not fit this model and optimizer: use the ones it was saved with, or "
            f"another logdir ({error})"
        ) from error
    except (tf.errors.OpError, OSError, IndexError) as error:  # IndexError: a truncated file
        raise SourceError(
            f"{path} is damaged: remove its files, {path}.*, to continue from the earlier "
            f"checkpoint ({error})"
        ) from error
    trainer.continue_after(int(trainer.counts.finished.numpy()), path)
