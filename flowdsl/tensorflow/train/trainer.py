"""The training loop: epochs, steps, callbacks and checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from math import isfinite
from typing import TypedDict

import tensorflow as tf

from flowdsl.errors import EndlessFlow, FlowError, InvalidArgument, UnknownLength
from flowdsl.nodes import ListOf, checked, checked_int, checked_names
from flowdsl.resources.logs import logger
from flowdsl.tensorflow.inputs import EndOfPass, InputSource
from flowdsl.tensorflow.inputs.source import State
from flowdsl.tensorflow.interrupts import raising_hidden_interrupts
from flowdsl.tensorflow.train.callbacks.base import Callback, StopTraining
from flowdsl.tensorflow.train.callbacks.group import Callbacks, Method
from flowdsl.tensorflow.train.callbacks.periodic import PeriodicTrigger
from flowdsl.tensorflow.train.checkpoint import latest_checkpoint, restore
from flowdsl.tensorflow.train.config import TrainConfig, checked_config
from flowdsl.tensorflow.train.initial_values import begin_with
from flowdsl.tensorflow.train.logdir import locked
from flowdsl.tensorflow.train.model import Model, Optimizer, create_model
from flowdsl.tensorflow.train.monitors import Monitor, Monitors
from flowdsl.tensorflow.train.nan_check import non_finite_loss
from flowdsl.tensorflow.train.passes import Passes, warn_of_left_over
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

_log = logger(__name__)


class TrainerState(TypedDict):
    """The position of training, without the variables."""

    epoch_num: int
    local_step: int
    left_over: int
    left_over_rows: int
    partial_steps: int
    non_finite_steps: int
    settings: Settings
    input: State
    callbacks: Mapping[str, Mapping[str, object]]


class Trainer(ABC):
    """Runs steps over an input, in epochs, with callbacks; a subclass defines a step.

    ``run_step`` is one iteration. It takes its input with ``next_args``, and sets ``scalars`` to
    the values that monitors record::

        class Mine(Trainer):
            def run_step(self) -> None:
                loss = step(*self.next_args())
                self.scalars = {"loss": float(loss)}

    For models with a loss, use ``SimpleTrainer`` and the other trainers.

    Source: ``Trainer`` in tensorpack.
    """

    is_chief: bool = True
    """True if this process is the first of the processes that train together."""

    local_step: int
    """The number of steps that have finished in the current epoch."""

    scalars: Mapping[str, float]
    """The loss and the model's other scalars, averaged over the towers and the steps of a call.

    They include ``queue_fill``, the number of elements that wait for a step, and ``input_wait``,
    the seconds that a step has waited for elements.
    """

    partial_steps: int
    """The number of steps with fewer elements than towers, at the ends of passes."""

    def __init__(self, config: TrainConfig, towers: Towers | None = None) -> None:
        checked_config(self, config)
        if config.session_config is not None:
            configure(config.session_config)
        self.config = config
        self._require_logdir(*config.callbacks, *config.extra_callbacks)
        if self.is_chief:
            self._require_logdir(*config.monitors)
        if towers is not None:
            checked(f"{type(self).__name__}: towers", towers, Towers, "the devices of a step")  # type: ignore[type-abstract]  # any of its kinds
        self.devices = towers or _one_tower(type(self).__name__, config)
        self.local_step = self.partial_steps = self._non_finite_before = 0
        self.scalars = {}
        self._finished_epochs = config.starting_epoch - 1
        self._finished_steps = self._last_step = 0
        """The steps that have finished, now and before the last call of ``run_step``."""
        self._running = 0
        """The number of steps of the current call of ``run_step``; 0 between calls."""
        self._epoch_is_over = False
        self._to_call: list[Method] = []
        """The methods of callbacks that are still to be called at the end of the epoch."""
        self._last_reported = (0, 0.0)
        """The step of the last ``of_input``, and the seconds that steps had waited until then."""
        self.input = self.make_input()
        self._check_input()
        self.passes = Passes(self.input, self.towers)
        self.steps_per_epoch = config.steps_per_epoch or self._steps_of_pass()
        self.counts = Counts()
        with self.devices.scope():
            self.model: Model = create_model(config.model, self.devices.total)
            self._optimizer = self.make_optimizer()
        self.used: Sequence[tf.Variable] = ()
        """The variables that steps use; set when ``setup`` traces them."""
        self.settings: Settings = {
            **settings_of(self._optimizer),
            "steps_per_epoch": self.steps_per_epoch,
            "towers": self.devices.total,
        }
        """The program's settings of a step, for checkpoints."""
        self._callbacks_of_model: Sequence[Callback] = ()
        self.monitors = Monitors(config.monitors if self.is_chief else ())
        self._registered: list[Callback] = []
        self._callbacks: Callbacks | None = None
        self._predictors: dict[tuple[object, ...], OnlinePredictor] = {}

    # -- overridden by subclasses ------------------------------------------------------------------

    def make_input(self) -> InputSource:
        """Create the input source: ``config.data``, or one for ``config.dataflow``."""
        return self.config.source(self.towers)

    def make_optimizer(self) -> Optimizer | None:
        """Create the optimizer, in the scope of the model; None if steps have their own."""
        return None if self.config.optimizer is None else self.config.optimizer()

    @abstractmethod
    def run_step(self) -> None:
        """Run one iteration."""

    def trace(self) -> Sequence[tf.Variable]:
        """Prepare the steps, before variables are restored; return the variables that they use."""
        return ()

    def callbacks_of_model(self) -> Sequence[Callback]:
        """Return callbacks that the model needs; they are called before the others."""
        return ()

    # -- the position of training ------------------------------------------------------------------

    @property
    def towers(self) -> int:
        """The number of devices of this process over which a step is spread, one element each."""
        return len(self.devices.devices)

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer of the configuration; None if steps have their own."""
        return self._optimizer

    @property
    def epoch_num(self) -> int:
        """The number of epochs that have finished."""
        return self._finished_epochs

    @property
    def global_step(self) -> int:
        """The number of steps that have finished, or, within ``run_step``, of the running step."""
        return self._finished_steps + self._running

    @property
    def non_finite_steps(self) -> int:
        """The number of steps with a loss that was NaN or infinite, including before a resume."""
        return self._non_finite_before + int(self.counts.not_finite.numpy())

    @property
    def left_over(self) -> int:
        """The number of elements not trained on: a pass ended before they filled a step."""
        return self.passes.left_over

    @property
    def left_over_rows(self) -> int:
        """The number of rows not trained on: a pass ended before they filled a batch.

        Only ``BatchQueueInput`` leaves out rows; elements of other inputs are batches already.
        """
        return self.passes.left_over_rows

    def reached_multiple_of(self, every: int) -> bool:
        """Return True if the last call reached a step whose number is a multiple of ``every``."""
        return self.global_step // every > self._last_step // every

    # -- training ----------------------------------------------------------------------------------

    def train(self, *, resume: bool = True) -> None:
        """Run all steps up to the end of ``max_epoch``: ``setup``, then ``main_loop``.

        With ``resume``, training continues from the latest checkpoint in ``logdir``, if there is
        one: at the next step, with the next elements, as if it had not stopped. So a program that
        was killed can simply be run again. (This excludes random TensorFlow operations that keep
        their state outside of variables; Keras layers keep it in variables.) If the program's
        settings differ from those of the program that saved the checkpoint, such as a learning
        rate, the new settings apply, and are logged. With ``resume=False``, a ``logdir`` that
        contains checkpoints is an error: nothing is overwritten.

        A second call, after Ctrl-C or an error, continues after the last finished step, with the
        next elements, and needs no checkpoint.

        Raises:
            FlowError: The input failed; all full steps before it are done. Other errors of the flow
                and errors of callbacks are raised unchanged.
            NonFiniteLoss: The loss of a step was NaN or infinite.
            StateMismatch: The checkpoint belongs to another model, optimizer or flow.
        """
        self.setup(resume=resume)
        self.main_loop()

    def register_callback(self, callback: Callback) -> None:
        """Add a callback after the callbacks of the configuration; call it before ``setup`` ends.

        Raises:
            FlowError: ``setup`` has ended: the callback would miss calls.
            InvalidArgument: It writes to ``logdir``, and the configuration has none.
        """
        checked("register_callback: callback", callback, Callback, "a callback")
        if self._callbacks is not None:
            raise FlowError(
                f"register_callback: setup() has ended, so {type(callback).__name__} would miss "
                f"its first calls; register it before, or pass TrainConfig(callbacks=...)"
            )
        self._require_logdir(callback)
        self._registered.append(callback)

    def setup(self, *, resume: bool = True) -> None:
        """Prepare ``main_loop``: set variables to their first values or restore a checkpoint.

        A second call does nothing.

        Raises:
            InvalidArgument: ``resume`` is False, and ``logdir`` contains a checkpoint.
            StateMismatch: The checkpoint, or ``session_init``, is of another model.
        """
        if self._callbacks is not None:
            return
        registered = [*self._registered]
        try:
            self._set_up(resume)
        except BaseException:  # another call repeats all of it
            self._callbacks, self._registered = None, registered
            raise

    def _set_up(self, resume: bool) -> None:
        checkpoint = latest_checkpoint(self.config.logdir)
        if checkpoint and not resume:
            raise InvalidArgument(
                f"train(resume=False): {checkpoint} exists already; use another logdir, or "
                f"continue from it with resume=True"
            )
        self._callbacks_of_model = self.callbacks_of_model()
        if self.config.session_init is not None:
            begin_with(self.model, self.config.session_init)
        ready: list[Callback] = []
        while new := [each for each in self._in_order() if each not in ready]:
            for callback in new:  # setup may register further callbacks
                callback.setup(self)
            ready += new
        self._callbacks = Callbacks(self._in_order())
        self.used = self.trace()
        if checkpoint:
            restore(self, checkpoint)

    def main_loop(self) -> None:
        """Run the remaining epochs, after ``setup``.

        A call after an interruption or an error continues after the last finished step, with the
        next elements.

        Raises:
            FlowError: ``setup`` was not called; or an earlier call was interrupted while the flow
                took long to compute an element; see ``train`` for other errors.
        """
        callbacks = self._callbacks
        if callbacks is None:
            raise FlowError("main_loop: call setup() first, or train(), which calls both")
        with raising_hidden_interrupts(), ExitStack() as ends:
            if self.is_chief:
                ends.enter_context(locked(self.config.logdir))
            ends.callback(self.passes.await_position)
            ends.callback(self.input.close)
            if self.epoch_num >= self.config.max_epoch and not self._epoch_is_over:
                _log.warning(
                    "training is complete: epoch %d is done; to train for longer raise max_epoch, "
                    "to start again %s",
                    *(self.epoch_num, self._how_to_start_again()),
                )
                self.finish()
                return
            self.passes.begin()
            ends.callback(self._keep_position)
            ends.callback(self.end_steps)
            try:
                callbacks.before_train(ends)
                callbacks.check_states()
                self._run_epochs(callbacks)
            except StopTraining as stop:
                _log.info("training was stopped: %s", stop)
            self.finish()

    def _how_to_start_again(self) -> str:
        if self.config.logdir is None:
            return "create a new trainer"
        return f"remove {self.config.logdir}/checkpoints or use another logdir"

    def _keep_position(self) -> None:
        with suppress(tf.errors.OpError):  # another process of the cluster may have died
            self.count_interrupted_step()
        if self.epoch_num < self.config.max_epoch or self._epoch_is_over:
            self.passes.keep_position()

    def count_interrupted_step(self) -> None:  # noqa: B027  # most trainers cannot know
        """Count the steps that were done when ``run_step`` was interrupted, if this is known."""

    def _require_logdir(self, *parts: Callback | Monitor) -> None:
        """Check, before anything is started, that callbacks and monitors have a place to write."""
        if self.config.logdir is not None:
            return
        for part in parts:
            runs = self.is_chief or not (isinstance(part, Callback) and part.chief_only)
            if runs and part.needs_logdir:
                while isinstance(part, PeriodicTrigger):
                    part = part.callback
                name = type(part).__name__
                raise InvalidArgument(f"{name} needs a place: pass TrainConfig(logdir=...)")

    def _in_order(self) -> list[Callback]:
        """Return all callbacks; savers are last, so that checkpoints include the others' state."""
        listed = [*self.config.callbacks, *self.config.extra_callbacks, *self._registered]
        if not self.is_chief:
            listed = [callback for callback in listed if not callback.chief_only]
        last = [callback for callback in listed if callback.runs_last]
        others = [callback for callback in listed if not callback.runs_last]
        return [*self._callbacks_of_model, *others, self.monitors, *last]

    def _run_epochs(self, callbacks: Callbacks) -> None:
        if self._epoch_is_over:  # an earlier call was interrupted there
            self._end_epoch(callbacks)
        while self.epoch_num < self.config.max_epoch:
            callbacks.call("before_epoch")
            while self.local_step < self.steps_per_epoch:
                self._run_one(callbacks)
            self._finished_epochs += 1
            self._epoch_is_over = True
            self._to_call = ["after_epoch", "trigger_epoch"]
            self._end_epoch(callbacks)

    def _end_epoch(self, callbacks: Callbacks) -> None:
        """Call callbacks at the end of an epoch; after an interruption, those that remain."""
        self.settle()
        while self._to_call:
            try:
                callbacks.call_rest(self._to_call[0])
            except StopTraining:
                self._to_call = []
                raise
            del self._to_call[0]
        self.local_step, self._epoch_is_over = 0, False

    def _run_one(self, callbacks: Callbacks) -> None:
        callbacks.call("before_run")
        self._last_step, self._running = self._finished_steps, 1
        try:
            self.run_step()
            ran = self._running
        finally:
            self._running = 0
        self.count_steps(ran)
        self._require_finite()
        callbacks.call("after_run")
        callbacks.call("trigger_step")

    def count_steps(self, steps: int) -> None:
        """Count finished steps."""
        self._finished_steps += steps
        self.local_step += steps
        self.passes.of_step = 0

    def settle(self) -> None:  # noqa: B027  # most trainers have nothing to wait for
        """Wait for steps that are still running, in trainers that have such steps.

        Called before each checkpoint and at the end of an epoch.
        """

    def finish(self) -> None:
        """Set the final values of variables, after the last step; not called after an error."""
        finalize = getattr(self._optimizer, "finalize_variable_values", None)
        if finalize is not None:  # Keras, e.g. with use_ema=True
            with self.devices.scope():
                finalize(self.model.trainable_variables)

    def end_steps(self) -> None:  # noqa: B027  # as above
        """Wait for running steps at the end of training, also after an error."""

    def _require_finite(self) -> None:
        every, loss = self.config.record_every, self.scalars.get("loss", 0.0)
        read = self.reached_multiple_of(every) or self.local_step >= self.steps_per_epoch
        if read and not (every == 1 and isfinite(loss)):
            self.require_finite()

    def require_finite(self) -> None:
        """Raise the error for a loss that was not finite in any step so far, unless counted."""
        loss = self.scalars.get("loss", 0.0)
        first = int(self.counts.first_not_finite.numpy())  # includes steps whose loss was not read
        if first or not isfinite(loss):
            self.refuse_non_finite(loss, first)

    def refuse_non_finite(self, loss: float, step: int) -> None:
        """Raise the error for a loss that is not finite, unless these are counted.

        ``step`` is the step of the loss; 0 is the latest.
        """
        if self.config.non_finite == "raise":
            self.counts.first_not_finite.assign(0)  # it is reported once
            step = step or self.global_step
            behind = (self.global_step - step) * self.towers
            epoch = self.epoch_num + (0 if self._epoch_is_over else 1)
            raise non_finite_loss(loss, step, epoch, self.input, self.towers, behind)

    # -- the input ---------------------------------------------------------------------------------

    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        """Return the arguments of a step that takes ``elements`` elements; starts the next pass.

        Raises:
            StopTraining: The input has ended, and must not begin again.
            FlowError: The data failed, or a complete pass has fewer elements.
        """
        wanted = checked_int("next_args: elements", elements, 1)
        try:
            return self.passes.take(wanted)
        except EndOfPass as end:
            self.passes.begin_next(end)
        try:
            return self.passes.take(wanted)
        except EndOfPass as end:
            raise self.passes.too_few(end.left) from None

    def of_input(self) -> dict[str, float]:
        """Return the fill of the input, and the seconds that a step waited since the last call."""
        (step, waited), now = self._last_reported, self.input.waited
        self._last_reported = (self.global_step, now)
        wait_of_step = (now - waited) / max(1, self.global_step - step)
        fill = float(self.input.fill)
        return {"queue_fill": fill, "input_wait": wait_of_step, **self.input.scalars()}

    def _check_input(self) -> None:
        name, most = type(self.input).__name__, self.input.most_a_step
        if most is not None and self.towers > most:
            raise InvalidArgument(
                f"{name} feeds one element a step, and {self.towers} towers take {self.towers}: "
                f"use QueueInput"
            )
        nested = [
            *["steps_per_call"] * (self.config.steps_per_call > 1),
            *["remainder"] * (self.config.remainder != "drop" and self.towers > 1),
        ]
        if nested and not self.input.allows_loops:
            raise InvalidArgument(
                f"TrainConfig: {' and '.join(nested)} cannot be had with {name}, which passes the "
                f"step its elements call by call: use QueueInput"
            )

    def _steps_of_pass(self) -> int:
        towers = self.towers
        try:
            elements = self.input.size()
        except (EndlessFlow, UnknownLength) as error:
            raise InvalidArgument(f"TrainConfig: steps_per_epoch must be given: {error}") from error
        if self.config.remainder != "drop" and elements:
            return -(-elements // towers)
        if elements < towers:
            raise InvalidArgument(
                f"TrainConfig: a step of {towers} tower(s) takes {towers} element(s), and the flow "
                f"has {elements}: give it more rows, or smaller batches"
            )
        if elements % towers:
            warn_of_left_over(elements % towers, towers)
        return elements // towers

    # -- predicting --------------------------------------------------------------------------------

    def get_predictor(
        self, input_names: ListOf[str], output_names: ListOf[str], tower: int = 0
    ) -> OnlinePredictor:
        """Return a function of these inputs, whose outputs are results of the model's methods.

        Each of ``output_names`` is a method of the model; the inputs are passed to its arguments of
        these names. For a Keras model, ``"output"`` is the model itself. The predictor runs on
        device ``tower`` of ``config.predict_tower``, on the variables at the time of the call.
        Predictors are cached.

        Raises:
            InvalidArgument: The model has no such method, or it takes other arguments; or ``tower``
            is not a position in ``config.predict_tower``.
        """
        inputs = checked_names("get_predictor: input_names", input_names)
        outputs = checked_names("get_predictor: output_names", output_names)
        device = self.config.predict_device(tower)
        key = (inputs, outputs, tower)
        if key not in self._predictors:
            self._predictors[key] = predictor_of(self.model, inputs, outputs, device)
        return self._predictors[key]

    def get_predictors(
        self, input_names: ListOf[str], output_names: ListOf[str], n: int
    ) -> list[OnlinePredictor]:
        """Return ``n`` predictors, on the devices of ``config.predict_tower`` in rotation."""
        devices = len(self.config.predict_tower)
        return [
            self.get_predictor(input_names, output_names, k % devices)
            for k in range(checked_int("get_predictors: n", n, 1))
        ]

    # -- checkpoints -------------------------------------------------------------------------------

    def state_dict(self) -> TrainerState:
        """Return the position of training, without variables; after an epoch, the next start."""
        return {
            "epoch_num": self.epoch_num,
            "local_step": 0 if self._epoch_is_over else self.local_step,
            "left_over": self.left_over,
            "left_over_rows": self.left_over_rows,
            "partial_steps": self.partial_steps,
            "non_finite_steps": self.non_finite_steps,
            "settings": self.settings,
            "input": self.input.state_dict(),
            "callbacks": {} if self._callbacks is None else self._callbacks.state_dict(),
        }

    def load_state_dict(self, state: TrainerState) -> None:
        """Restore a saved state; the input's state is restored when training begins."""
        self._finished_epochs, self.local_step = state["epoch_num"], state["local_step"]
        self.passes.left_over = state["left_over"]
        self.passes.left_over_rows = state["left_over_rows"]
        self.partial_steps = state["partial_steps"]
        self._non_finite_before = state["non_finite_steps"]
        self._settings_before = state["settings"]
        if self._callbacks is not None:
            self._callbacks.load_state_dict(state["callbacks"])
        self.passes.next = state["input"]

    def continue_after(self, step: int, checkpoint: str) -> None:
        """Continue after the step of a checkpoint, with the settings of this program."""
        self._finished_steps = self._last_step = step
        self._last_reported = (step, 0.0)
        changed = differences(self.settings, self._settings_before)
        rate = learning_rate_in(self.settings)
        if rate is not None and rate[0] in changed:
            set_learning_rate(self._optimizer, rate[1])
        _log.warning(
            "training continues after step %d, in epoch %d, from %s%s",
            *(step, self.epoch_num + 1, checkpoint),
            f"; this program has other settings: {', '.join(changed.values())}" if changed else "",
        )


def _one_tower(trainer: str, config: TrainConfig) -> Towers:
    devices = config.devices()
    if len(devices) != 1:
        raise InvalidArgument(
            f"{trainer} has one tower, got {', '.join(devices)}; for several use "
            f"SyncMultiGPUTrainerReplicated"
        )
    return SharedVariables(devices, devices)
