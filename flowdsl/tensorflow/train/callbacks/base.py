"""The base class of callbacks, with a method for each station of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flowdsl.tensorflow.train.trainer import Trainer


class StopTraining(BaseException):
    """Raised to end training normally, by a callback or by ``run_step``.

    It is no ``Exception``, so that ``except Exception`` does not swallow it. The station at which
    it was raised is completed for all callbacks. The epoch is over if that was its last step or a
    later station; otherwise ``after_epoch`` and ``trigger_epoch`` do not come. ``after_train``
    always comes.

    Source: ``StopTraining`` in tensorpack.
    """


class Callback:
    """Something to do while training; each method is a station, and does nothing by itself.

    ::

        setup                       once, with the trainer, before anything is restored
        before_train                what was saved is restored, the input runs
          before_epoch              again when training goes on in the middle of an epoch
            before_run              before each call of ``run_step``
            after_run               right after it; ``trainer.scalars`` holds the loss
            trigger_step            then, for what is done each step (or ``steps_per_call`` steps)
          after_epoch               right after the last step
          trigger_epoch             for what takes long: evaluating, writing, saving
        after_train                 always, after an error too

    ``trigger`` is what the callback does at the end of each epoch, or whenever a
    ``PeriodicTrigger`` says. Callbacks take their turns in the order given; those that save come
    last of all, so that a checkpoint holds the whole epoch. What ``state_dict`` gives is in each
    checkpoint.

    Source: ``Callback`` and ``Triggerable`` in tensorpack.
    """

    chief_only: bool = True
    """Whether it runs in the first process alone, where several train together."""

    saves: bool = False
    """Whether it comes after all others, as what writes checkpoints has to."""

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
        """What the callback has to remember, as JSON values."""
        return {}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Go on from what ``state_dict`` gave."""
