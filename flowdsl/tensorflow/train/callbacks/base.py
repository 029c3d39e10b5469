"""The base class of callbacks, with a method for each moment of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flowdsl.tensorflow.train.trainer import Trainer


class StopTraining(BaseException):
    """Raised by a callback or by ``run_step`` to end training normally.

    It is not an ``Exception``, so that ``except Exception`` does not swallow it. All callbacks
    still run the method in which it was raised. If that was in the epoch's last step or later, the
    epoch is complete; otherwise ``after_epoch`` and ``trigger_epoch`` are not called.
    ``after_train`` is always called.

    Source: ``StopTraining`` in tensorpack.
    """


class Callback:
    """An action during training; each method is called at one moment, and does nothing by default.

    ::

        setup                       once, with the trainer, before anything is restored
        before_train                after restoring, when the input runs
          before_epoch              again when training resumes in the middle of an epoch
            before_run              before each call of ``run_step``
            after_run               right after it; ``trainer.scalars`` contains the loss
            trigger_step            after each call of ``run_step``: work for every step (or every
                                    ``steps_per_call`` steps)
          after_epoch               right after the last step
          trigger_epoch             for slow work: evaluating, writing, saving
        after_train                 always, after an error too

    ``trigger`` is the callback's action at the end of each epoch, or whenever a ``PeriodicTrigger``
    calls it. Callbacks are called in the order in which they are listed; those that save
    checkpoints are called last, so that a checkpoint includes the whole epoch. The result of
    ``state_dict`` is stored in each checkpoint.

    Source: ``Callback`` and ``Triggerable`` in tensorpack.
    """

    chief_only: bool = True
    """True if only the first of several processes that train together runs this callback."""

    runs_last: bool = False
    """True if it is called after all others, as needed for writing checkpoints."""

    needs_logdir: bool = False
    """True if it writes to ``TrainConfig.logdir``: a trainer without one refuses it."""

    trainer: Trainer

    def setup(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def before_train(self) -> None: ...

    def before_epoch(self) -> None: ...

    def before_run(self) -> None: ...

    def after_run(self) -> None: ...

    def trigger_step(self) -> None: ...

    def after_epoch(self) -> None: ...

    def trigger_epoch(self) -> None:
        self.trigger()

    def trigger(self) -> None: ...

    def after_train(self) -> None: ...

    def state_dict(self) -> Mapping[str, object]:
        """Return the callback's state, as JSON values."""
        return {}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore a state that ``state_dict`` returned."""
