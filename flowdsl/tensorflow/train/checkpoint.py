"""Checkpoints: everything that training needs to continue as if never stopped, in one file.

The input position and the epoch's running means are stored inside TensorFlow's checkpoint, so they
are never older or newer than the weights. TensorFlow first writes the data, then replaces the
small file that names the latest checkpoint: a kill at any moment leaves a complete checkpoint.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from flowdsl.errors import FlowError, InvalidArgument, SourceError, StateMismatch
from flowdsl.resources.logs import logger
from flowdsl.tensorflow.train.callbacks.group import not_json
from flowdsl.tensorflow.train.compiled import CompiledModel
from flowdsl.tensorflow.train.variables import group, held_by, untracked

if TYPE_CHECKING:
    from flowdsl.tensorflow.train.trainer import Trainer

_log = logger(__name__)

_BY_THIS_PROCESS = tf.train.CheckpointOptions(experimental_io_device="/cpu:0")
"""Makes this process write all variables; otherwise remote machines write to their own disks."""


class _PythonState(tf.train.experimental.PythonState):
    """The trainer's own state as JSON, inside the checkpoint."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def serialize(self) -> str:
        state = self._trainer.state_dict()
        if (found := not_json(state)) is not None:
            raise InvalidArgument(f"ModelSaver: a state of training cannot be saved: {found}")
        return json.dumps(state)

    def deserialize(self, string_value: bytes) -> None:
        self._trainer.load_state_dict(json.loads(string_value))


def _tracked(trainer: Trainer) -> tf.train.Checkpoint:
    parts: dict[str, object] = {"model": trainer.model}
    if trainer.optimizer is not None:
        parts["optimizer"] = trainer.optimizer
    state, counts = _PythonState(trainer), trainer.counts
    try:
        root = tf.train.Checkpoint(**parts)
        excluded = [counts.finished, counts.not_finite, counts.first_not_finite]
        if isinstance(trainer.model, CompiledModel) and not trainer.model.measures:
            excluded += trainer.model.net.metrics_variables
        # variables in attributes that TensorFlow does not follow, and those that steps have used
        others = group(untracked(root, held_by(parts), trainer.used, excluded))
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
        _repair_list(directory)
        self._manager = tf.train.CheckpointManager(_tracked(trainer), self._directory, max_to_keep)

    def save(self) -> Path:
        """Wait for running steps, flush the monitors, write a checkpoint, and return its path.

        Raises:
            NonFiniteLoss: The loss of a step was NaN or infinite, so the weights may be, too.
            FlowError: It could not be written, e.g. on a full disk; earlier checkpoints are kept.
        """
        trainer = self._trainer
        trainer.settle()
        trainer.require_finite()
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
    steps = _steps_in(directory_in(logdir))
    return str(directory_in(logdir) / f"ckpt-{steps[-1]}") if steps else None


def _steps_in(directory: Path) -> list[int]:
    """Return the steps of the checkpoints in a folder, in order; other files are ignored."""
    names = (path.stem.removeprefix("ckpt-") for path in directory.glob("ckpt-*.index"))
    return sorted(int(name) for name in names if name.isdecimal())


def _repair_list(directory: Path) -> None:
    """Write TensorFlow's list of checkpoints again, if it is missing, damaged or empty.

    The checkpoints are complete without it, but TensorFlow refuses to write others beside a damaged
    list, and never removes those that are not listed.
    """
    steps = _steps_in(directory)
    if not steps or _is_listed(directory):
        return
    lines = [f'model_checkpoint_path: "ckpt-{steps[-1]}"']
    lines += [f'all_model_checkpoint_paths: "ckpt-{step}"' for step in steps]
    with suppress(OSError):  # the next checkpoint reports it
        times = [(directory / f"ckpt-{step}.index").stat().st_mtime for step in steps]
        lines += [f"all_model_checkpoint_timestamps: {time}" for time in times]
        (directory / "checkpoint").write_text("\n".join(lines) + "\n")
        _log.warning("%s: the list of checkpoints was missing or damaged", directory)


def _is_listed(directory: Path) -> bool:
    try:
        return tf.train.latest_checkpoint(str(directory)) is not None
    except ValueError:  # an empty file, or one that is not text
        return False


def restore(trainer: Trainer, path: str) -> None:
    """Restore a trainer from a checkpoint.

    Raises:
        StateMismatch: The checkpoint belongs to another model or optimizer.
        SourceError: The checkpoint is damaged.
    """
    try:
        _tracked(trainer).restore(path).assert_consumed()
    except StateMismatch as error:  # raised by the load_state_dict of a callback
        raise StateMismatch(f"{path}: {error}") from error
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
