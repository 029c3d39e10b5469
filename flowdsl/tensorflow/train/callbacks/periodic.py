"""PeriodicTrigger: triggers a callback every k steps or epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, overload

from flowdsl.errors import InvalidArgument
from flowdsl.nodes import checked, checked_int
from flowdsl.tensorflow.train.callbacks.base import Callback

if TYPE_CHECKING:
    from flowdsl.tensorflow.train.trainer import Trainer


class PeriodicTrigger(Callback):
    """Triggers a callback every ``every_k_steps`` steps, every ``every_k_epochs`` epochs, or both.

    ``PeriodicTrigger(InferenceRunner(held_out), every_k_epochs=5)`` evaluates at the end of epochs
    5, 10 and so on. The callback's other methods are called as usual.

    Raises:
        InvalidArgument: Both periods are missing, or one is not an int of at least 1.

    Source: ``PeriodicTrigger`` in tensorpack.
    """

    @overload
    def __init__(
        self, callback: Callback, every_k_steps: int, every_k_epochs: int | None = None
    ) -> None: ...
    @overload
    def __init__(
        self, callback: Callback, every_k_steps: int | None = None, *, every_k_epochs: int
    ) -> None: ...
    @overload
    def __init__(self, callback: Callback, every_k_steps: None, every_k_epochs: int) -> None: ...
    def __init__(
        self,
        callback: Callback,
        every_k_steps: int | None = None,
        every_k_epochs: int | None = None,
    ) -> None:
        checked("PeriodicTrigger: callback", callback, Callback, "a callback")
        if every_k_steps is None and every_k_epochs is None:
            raise InvalidArgument(
                "PeriodicTrigger: pass every_k_steps, every_k_epochs, or both, as in "
                f"PeriodicTrigger({type(callback).__name__}(...), every_k_epochs=5)"
            )
        self.callback = callback
        self.every_k_steps = _period("every_k_steps", every_k_steps)
        self.every_k_epochs = _period("every_k_epochs", every_k_epochs)
        self.chief_only, self.runs_last = callback.chief_only, callback.runs_last
        self.needs_logdir = callback.needs_logdir

    def setup(self, trainer: Trainer) -> None:
        super().setup(trainer)
        self.callback.setup(trainer)

    def before_train(self) -> None:
        self.callback.before_train()

    def before_epoch(self) -> None:
        self.callback.before_epoch()

    def before_run(self) -> None:
        self.callback.before_run()

    def after_run(self) -> None:
        self.callback.after_run()

    def trigger_step(self) -> None:
        self.callback.trigger_step()
        if self.every_k_steps is not None and self.trainer.reached_multiple_of(self.every_k_steps):
            self.callback.trigger()

    def after_epoch(self) -> None:
        self.callback.after_epoch()

    def trigger_epoch(self) -> None:
        if self.every_k_epochs is not None and self.trainer.epoch_num % self.every_k_epochs == 0:
            self.callback.trigger()

    def trigger(self) -> None:
        self.callback.trigger()

    def after_train(self) -> None:
        self.callback.after_train()

    def state_dict(self) -> Mapping[str, object]:
        return self.callback.state_dict()

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        self.callback.load_state_dict(state)


def _period(name: str, period: int | None) -> int | None:
    return None if period is None else checked_int(f"PeriodicTrigger: {name}", period, 1)
