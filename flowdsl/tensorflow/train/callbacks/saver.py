"""ModelSaver: saves checkpoints from which training can continue."""

from __future__ import annotations

from flowdsl.nodes import checked_int
from flowdsl.tensorflow.train.callbacks.base import Callback
from flowdsl.tensorflow.train.checkpoint import CheckpointWriter, directory_in


class ModelSaver(Callback):
    """Saves model, optimizer, step, monitors and input position together, after each epoch.

    ``every_steps`` also saves within an epoch. The last ``max_to_keep`` checkpoints are kept, in
    ``logdir/checkpoints``. Each is complete or absent, whenever the process is killed.

    Raises:
        InvalidArgument: One of the numbers is not an int of at least 1; or when the trainer is
            created, if ``TrainConfig`` has no ``logdir``.

    Source: ``ModelSaver`` in tensorpack, which saves variables only.
    """

    runs_last = True
    needs_logdir = True

    def __init__(self, *, every_steps: int | None = None, max_to_keep: int = 3) -> None:
        if every_steps is not None:
            every_steps = checked_int("ModelSaver: every_steps", every_steps, 1)
        self.every_steps = every_steps
        self.max_to_keep = checked_int("ModelSaver: max_to_keep", max_to_keep, 1)

    def before_train(self) -> None:
        self._writer = CheckpointWriter(
            self.trainer, self.max_to_keep, directory_in(self.trainer.config.logdir)
        )

    def trigger_step(self) -> None:
        within = self.trainer.local_step < self.trainer.steps_per_epoch  # the end is saved anyway
        if self.every_steps and within and self.trainer.reached_multiple_of(self.every_steps):
            self._writer.save()

    def trigger(self) -> None:
        self._writer.save()
