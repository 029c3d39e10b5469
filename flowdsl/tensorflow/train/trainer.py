"""The training loop: epochs, steps, callbacks and checkpoints."""

from __future__ import annotations

import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from math import isfinite
from typing import TypedDict

import tensorflow as tf

from flowdsl.errors import EndlessFlow, FlowError, InvalidFlow, UnknownLength
from flowdsl.nodes import checked_int
from flowdsl.tensorflow.inputs import EndOfPass, InputSource
from flowdsl.tensorflow.inputs.source import LeftOver, State
from flowdsl.tensorflow.train.callbacks.base import Callback, StopTraining
from flowdsl.tensorflow.train.callbacks.group import Callbacks
from flowdsl.tensorflow.train.checkpoint import latest_checkpoint, restore
from flowdsl.tensorflow.train.config import TrainConfig
from flowdsl.tensorflow.train.initial_values import begin_with
from flowdsl.tensorflow.train.model import Model, Optimizer, made_model
from flowdsl.tensorflow.train.monitors import Monitors
from flowdsl.tensorflow.train.nan_check import non_finite_loss
from flowdsl.tensorflow.train.predictor import OnlinePredictor, predictor_of
from flowdsl.tensorflow.train.session import configure
from flowdsl.tensorflow.train.settings import (
    Settings,
    differences,
    learning_rate_in,
    set_learning_rate,
    settings_of,
)
from flowdsl.tensorflow.train.step import Counts
from flowdsl.tensorflow.train.towers import SharedVariables, Towers

_log = logging.getLogger(__name__)


class TrainerState(TypedDict):
    """The position of training, without the variables."""

    epoch_num: int
    local_step: int
    left_over: int
    partial_steps: int
    non_finite_steps: int
    settings: Settings
    input: State
    callbacks: Mapping[str, Mapping[str, object]]


class Trainer(ABC):
    """Runs steps over an input, in epochs, with callbacks; a subclass says what a step is.

    ``run_step`` is one iteration. It takes its input by ``next_args``, and leaves in ``scalars``
    what monitors are to record::

        class Mine(Trainer):
            def run_step(self) -> None:
                loss = step(*self.next_args())
                self.scalars = {"loss": float(loss)}

    What a step computes of a model's loss is there already, in ``SimpleTrainer`` and others.

    Source: ``Trainer`` in tensorpack.
    """

    is_chief: bool = True
    """Whether this process is the first of those that train together."""

    local_step: int
    """The number of steps that have finished in the current epoch."""

    scalars: Mapping[str, float]
    """The loss and the model's other scalars, averaged over the towers and the steps of a call.

    With them ``queue_fill``, the elements that wait for a step, and ``input_wait``, the seconds
    that a step has waited for them.
    """

    left_over: int
    """The number of elements not trained on, because a pass ended before they filled a step."""

    partial_steps: int
    """The number of steps that had fewer elements than towers, at the ends of passes."""

    def __init__(self, config: TrainConfig, towers: Towers | None = None) -> None:
        if config.session_config is not None:
            configure(config.session_config)
        self.config = config
        self.devices = towers or _one_tower(type(self).__name__, config)
        self.local_step = self.left_over = self.partial_steps = self._non_finite_before = 0
        self.scalars = {}
        self._finished_epochs = config.starting_epoch - 1
        self._finished_steps = self._last_step = self._running = 0
        self._epoch_is_over = False
        self._told = (0, 0.0)
        self.input = self.make_input()
        self._check_input()
        self.steps_per_epoch = config.steps_per_epoch or self._steps_of_pass()
        self.counts = Counts()
        with self.devices.scope():
            self.model: Model = made_model(config.model, self.devices.total)
            self._optimizer = self.make_optimizer()
        self.used: Sequence[tf.Variable] = ()
        """The variables that steps use, once ``setup`` has traced them."""
        self.settings: Settings = {
            **settings_of(self._optimizer),
            "steps_per_epoch": self.steps_per_epoch,
            "towers": self.devices.total,
        }
        """What the program says of a step, for checkpoints."""
        self._of_model: Sequence[Callback] = ()
        self.monitors = Monitors(config.monitors if self.is_chief else ())
        self._registered: list[Callback] = []
        self._callbacks: Callbacks | None = None
        self._input_state: State | None = None
        self._predictors: dict[tuple[object, ...], OnlinePredictor] = {}

    # -- what a subclass may change ----------------------------------------------------------------

    def make_input(self) -> InputSource:
        """The input source: ``config.data``, or one for ``config.dataflow``."""
        return self.config.source(self.towers)

    def make_optimizer(self) -> Optimizer | None:
        """The optimizer, where the variables of the model are; None if steps bring their own."""
        return None if self.config.optimizer is None else self.config.optimizer()

    @abstractmethod
    def run_step(self) -> None:
        """One iteration."""

    def trace(self) -> Sequence[tf.Variable]:
        """Make ready what steps run, before variables are restored; gives the variables of it."""
        return ()

    def callbacks_of_model(self) -> Sequence[Callback]:
        """What the model needs to have done at the stations, before the other callbacks."""
        return ()

    # -- where training is -------------------------------------------------------------------------

    @property
    def towers(self) -> int:
        """How many devices of this process a step is spread over; it takes an element for each."""
        return len(self.devices.devices)

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer of the configuration; None where steps bring their own."""
        return self._optimizer

    @property
    def epoch_num(self) -> int:
        """The number of epochs that have finished."""
        return self._finished_epochs

    @property
    def global_step(self) -> int:
        """The number of steps that have finished, or, within ``run_step``, that is running."""
        return self._finished_steps + self._running

    @property
    def non_finite_steps(self) -> int:
        """How many steps had a loss that was NaN or infinite, those before a resume too."""
        return self._non_finite_before + int(self.counts.not_finite.numpy())

    def reached(self, every: int) -> bool:
        """Whether the last call came to a step whose number is a multiple of ``every``."""
        return self.global_step // every > self._last_step // every

    # -- training ----------------------------------------------------------------------------------

    def train(self, *, resume: bool = True) -> None:
        """Run all steps up to the end of ``max_epoch``: ``setup``, then ``main_loop``.

        With ``resume``, training goes on from the latest checkpoint in ``logdir``, if there is one:
        at the next step, with the next elements, as if it had not stopped. So a program that was
        killed is run again as it is. (Random operations of TensorFlow that keep their state outside
        of variables are not part of that; Keras's layers keep it in variables.) Where the program
        has other settings than the one that saved the checkpoint, such as a learning rate, they
        hold, and the log says so. With
        ``resume=False`` a ``logdir`` that holds checkpoints is an error: nothing is overwritten.

        Raises:
            FlowError: The input failed; the full steps before it are done. Whatever else the flow
                raised comes as it is, and so do errors of callbacks.
            NonFiniteLoss: The loss of a step was NaN or infinite.
            StateMismatch: The checkpoint belongs to another model, optimizer or flow.
        """
        self.setup(resume=resume)
        self.main_loop()

    def register_callback(self, callback: Callback) -> None:
        """Add a callback, after those of the configuration; before ``setup`` has ended.

        Raises:
            FlowError: ``setup`` has ended: its stations have begun.
        """
        if not isinstance(callback, Callback):
            raise InvalidFlow(f"register_callback: expected a Callback, got {callback!r}")
        if self._callbacks is not None:
            raise FlowError(
                f"register_callback: setup() has ended, so {type(callback).__name__} would miss "
                f"its first stations; register it before, or give TrainConfig(callbacks=...)"
            )
        self._registered.append(callback)

    def setup(self, *, resume: bool = True) -> None:
        """Be ready for ``main_loop``: variables have their first values or those of a checkpoint.

        A second call does nothing.

        Raises:
            InvalidFlow: ``resume`` is False, and ``logdir`` holds a checkpoint.
            StateMismatch: The checkpoint, or ``session_init``, is of another model.
        """
        if self._callbacks is not None:
            return
        checkpoint = latest_checkpoint(self.config.logdir)
        if checkpoint and not resume:
            raise InvalidFlow(
                f"train(resume=False): {checkpoint} exists already; give another logdir, or go on "
                f"from it with resume=True"
            )
        self._of_model = self.callbacks_of_model()
        if self.config.session_init is not None:
            begin_with(self.model, self.config.session_init)
        ready: list[Callback] = []
        while new := [each for each in self._in_turn() if each not in ready]:
            for callback in new:  # whose setup may register another
                callback.setup(self)
            ready += new
        self._callbacks = Callbacks(self._in_turn())
        self.used = self.trace()
        if checkpoint:
            restore(self, checkpoint)

    def main_loop(self) -> None:
        """Run the epochs that are left, after ``setup``.

        Raises:
            FlowError: ``setup`` was not called; for the others see ``train``.
        """
        callbacks = self._callbacks
        if callbacks is None:
            raise FlowError("main_loop: call setup() first, or train(), which calls both")
        with ExitStack() as ends:
            ends.callback(self.input.close)
            ends.callback(self.end_steps)
            if self.epoch_num >= self.config.max_epoch:
                _log.warning(
                    "training is complete: epoch %d is done; to train for longer raise max_epoch, "
                    "to start anew remove %s/checkpoints or give another logdir",
                    *(self.epoch_num, self.config.logdir),
                )
                self.finish()
                return
            if self._input_state is None:
                self.input.reset()
            else:
                self.input.restore(self._input_state)
                self._input_state = None
            try:
                callbacks.before_train(ends)
                self._run_epochs(callbacks)
            except StopTraining as stop:
                _log.info("training was stopped: %s", stop)
            self.finish()

    def _in_turn(self) -> list[Callback]:
        """All callbacks; savers come last, so that checkpoints include the others' state."""
        given = [*self.config.callbacks, *self.config.extra_callbacks, *self._registered]
        if not self.is_chief:
            given = [callback for callback in given if not callback.chief_only]
        savers = [callback for callback in given if callback.saves]
        others = [callback for callback in given if not callback.saves]
        return [*self._of_model, *others, self.monitors, *savers]

    def _run_epochs(self, callbacks: Callbacks) -> None:
        while self.epoch_num < self.config.max_epoch:
            callbacks.visit("before_epoch")
            while self.local_step < self.steps_per_epoch:
                self._run_one(callbacks)
            self._finished_epochs += 1
            self._epoch_is_over = True
            self.settle()
            callbacks.visit("after_epoch")
            callbacks.visit("trigger_epoch")
            self.local_step, self._epoch_is_over = 0, False

    def _run_one(self, callbacks: Callbacks) -> None:
        callbacks.visit("before_run")
        self._last_step, self._running = self._finished_steps, 1
        try:
            self.run_step()
            ran = self._running
        finally:
            self._running = 0
        self._finished_steps += ran
        self.local_step += ran
        self._require_finite()
        callbacks.visit("after_run")
        callbacks.visit("trigger_step")

    def settle(self) -> None:  # noqa: B027  # most trainers have nothing to wait for
        """Wait for steps that are still running, where a trainer has such.

        It comes before each checkpoint and at the end of an epoch.
        """

    def finish(self) -> None:
        """Give variables their final values, after the last step and not after an error."""
        finalize = getattr(self._optimizer, "finalize_variable_values", None)
        if finalize is not None:  # of Keras, e.g. with use_ema=True
            with self.devices.scope():
                finalize(self.model.trainable_variables)

    def end_steps(self) -> None:  # noqa: B027  # as above
        """The end of training, by an error too: steps that are still running are waited for."""

    def _require_finite(self) -> None:
        every, loss = self.config.record_every, self.scalars.get("loss", 0.0)
        read = self.reached(every) or self.local_step >= self.steps_per_epoch
        if not read or (every == 1 and isfinite(loss)):
            return
        first = int(self.counts.first_not_finite.numpy())  # of steps whose loss was not read too
        if first or not isfinite(loss):
            self.refuse_non_finite(loss, first)

    def refuse_non_finite(self, loss: float, step: int) -> None:
        """Raise the error for the loss of a step, 0 if it is the latest; unless it is to count."""
        if self.config.non_finite == "raise":
            step = step or self.global_step
            behind = (self.global_step - step) * self.towers
            epoch = self.epoch_num + 1
            raise non_finite_loss(loss, step, epoch, self.input, self.towers, behind)

    # -- the input ---------------------------------------------------------------------------------

    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        """The arguments of a step that takes so many elements; where a pass has ended, of the next.

        Raises:
            StopTraining: The input has ended, and is not to begin again.
            FlowError: The data failed, or a whole pass has fewer elements.
        """
        wanted = checked_int("next_args: elements", elements, 1)
        try:
            return self.input.next_args(wanted)
        except EndOfPass as end:
            self.begin_next_pass(end.left)
        try:
            return self.input.next_args(wanted)
        except EndOfPass as end:
            raise self.too_few(end.left) from None

    def begin_next_pass(self, left: int) -> None:
        """Go on to the next pass, and count the elements that were too few for a step."""
        if left:
            self.left_over += left
            _warn_of_left_over(left, self.towers)
        if not self.input.infinite:
            raise StopTraining("the pass over its input has ended")
        self.input.reset(self.input.epoch + 1)

    def too_few(self, left: int) -> FlowError:
        """The error for a flow whose whole pass does not fill a step."""
        return FlowError(
            f"a step of {self.towers} tower(s) takes {self.towers} element(s), a complete pass "
            f"of the flow gave {left}"
        )

    def of_input(self) -> dict[str, float]:
        """How full the input is, and the seconds that a step has waited for it since the last."""
        (step, waited), now = self._told, self.input.waited
        self._told = (self.global_step, now)
        a_step = (now - waited) / max(1, self.global_step - step)
        fill = float(self.input.fill)
        return {"queue_fill": fill, "input_wait": a_step, **self.input.scalars()}

    def _check_input(self) -> None:
        name, most = type(self.input).__name__, self.input.most_a_step
        if self.towers > (most or self.towers):
            raise InvalidFlow(
                f"{name} feeds one element a step, and {self.towers} towers take {self.towers}: "
                f"use QueueInput"
            )
        nested = [
            *["steps_per_call"] * (self.config.steps_per_call > 1),
            *["remainder"] * (self.config.remainder != "drop" and self.towers > 1),
        ]
        if nested and not self.input.nests:
            raise InvalidFlow(
                f"TrainConfig: {' and '.join(nested)} cannot be had with {name}, which gives the "
                f"step its elements call by call: use QueueInput"
            )

    def _steps_of_pass(self) -> int:
        towers = self.towers
        try:
            elements = self.input.size()
        except (EndlessFlow, UnknownLength) as error:
            raise InvalidFlow(f"TrainConfig: steps_per_epoch must be given: {error}") from error
        if self.config.remainder != "drop" and elements:
            return -(-elements // towers)
        if elements < towers:
            raise InvalidFlow(
                f"a step of {towers} tower(s) takes {towers} element(s), the flow has {elements}"
            )
        if elements % towers:
            _warn_of_left_over(elements % towers, towers)
        return elements // towers

    # -- predicting --------------------------------------------------------------------------------

    def get_predictor(
        self, input_names: Sequence[str], output_names: Sequence[str], tower: int = 0
    ) -> OnlinePredictor:
        """A function of these inputs, whose outputs are what methods of the model give.

        Each of ``output_names`` is a method of the model; the inputs go to its arguments of these
        names. Of a Keras model ``"output"`` is the model itself. It runs on device ``tower`` of
        ``config.predict_tower``, on the variables as they are when it is called. The same predictor
        is made once.

        Raises:
            InvalidFlow: The model has no such method, or it takes other arguments; or ``tower`` is
                none of the devices.
        """
        key = (*input_names, None, *output_names, None, tower)
        if key not in self._predictors:
            self._predictors[key] = predictor_of(
                self.model, input_names, output_names, self.config.predict_device(tower)
            )
        return self._predictors[key]

    def get_predictors(
        self, input_names: Sequence[str], output_names: Sequence[str], n: int
    ) -> list[OnlinePredictor]:
        """So many predictors, in turn on the devices of ``config.predict_tower``."""
        devices = len(self.config.predict_tower)
        return [
            self.get_predictor(input_names, output_names, k % devices)
            for k in range(checked_int("get_predictors: n", n, 1))
        ]

    # -- checkpoints -------------------------------------------------------------------------------

    def state_dict(self) -> TrainerState:
        """The position of training, without variables; after an epoch, the start of the next."""
        return {
            "epoch_num": self.epoch_num,
            "local_step": 0 if self._epoch_is_over else self.local_step,
            "left_over": self.left_over,
            "partial_steps": self.partial_steps,
            "non_finite_steps": self.non_finite_steps,
            "settings": self.settings,
            "input": self.input.state_dict(),
            "callbacks": {} if self._callbacks is None else self._callbacks.state_dict(),
        }

    def load_state_dict(self, state: TrainerState) -> None:
        """Restore a saved state; the input's state is restored when training begins."""
        self._finished_epochs, self.local_step = state["epoch_num"], state["local_step"]
        self.left_over, self.partial_steps = state["left_over"], state["partial_steps"]
        self._non_finite_before = state["non_finite_steps"]
        self._settings_before = state["settings"]
        if self._callbacks is not None:
            self._callbacks.load_state_dict(state["callbacks"])
        self._input_state = state["input"]

    def go_on_after(self, step: int, checkpoint: str) -> None:
        """Count from this step on, which a checkpoint has, with the settings of this program."""
        self._finished_steps = self._last_step = step
        self._told = (step, 0.0)
        changed = differences(self.settings, self._settings_before)
        rate = learning_rate_in(self.settings)
        if rate is not None and rate[0] in changed:
            set_learning_rate(self._optimizer, rate[1])
        _log.warning(
            "training goes on after step %d, in epoch %d, from %s%s",
            *(step, self.epoch_num + 1, checkpoint),
            f"; this program has other settings: {', '.join(changed.values())}" if changed else "",
        )


def _one_tower(trainer: str, config: TrainConfig) -> Towers:
    devices = config.devices()
    if len(devices) != 1:
        raise InvalidFlow(
            f"{trainer} has one tower, got {', '.join(devices)}; for several use "
            f"SyncMultiGPUTrainerReplicated"
        )
    return SharedVariables(devices, devices)


def _warn_of_left_over(left: int, towers: int) -> None:
    warnings.warn(
        f"the last {left} element(s) of a pass are too few for a step of {towers} towers, and are "
        f"not trained on; give the flow a multiple of {towers} elements, or .repeat() it, so that "
        f"one pass joins the next, or train on them with remainder='pad'",
        LeftOver,
        stacklevel=2,
    )
