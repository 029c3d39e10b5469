"""The base class of callbacks, with a method for each station of training."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flowdsl.train.trainer import Trainer


class StopTraining(Exception):
    """Raised by a callback to end training normally."""


class Callback:
    """Something to do while training; each method is a station, and does nothing by itself.

    ::

        setup                       once, with the trainer, before anything is restored
        before_train                what was saved is restored, the input runs
          before_epoch              again when training goes on in the middle of an epoch
            after_step              ``trainer.scalars`` holds the loss; after each call, where
                                    ``steps_per_call`` has it do several steps
          after_epoch               right after the last step
          trigger_epoch             for what takes long: evaluating, writing, saving
        after_train                 always, after an error too

    Callbacks take their turns in the order given; those that save come last of all, so that a
    checkpoint holds the whole epoch. Source: ``Callback`` in tensorpack.
    """

    trainer: Trainer

    def setup(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def before_train(self) -> None: ...

    def before_epoch(self) -> None: ...

    def after_step(self) -> None: ...

    def after_epoch(self) -> None: ...

    def trigger_epoch(self) -> None: ...

    def after_train(self) -> None: ...
