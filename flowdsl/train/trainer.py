"""The training loop."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from typing import NotRequired, TypedDict

import tensorflow as tf

from flowdsl.errors import EndlessFlow, FlowError, InvalidFlow, UnknownLength
from flowdsl.graph import EndOfPass
from flowdsl.graph.source import LeftOver, State
from flowdsl.train.callbacks.base import Callback, StopTraining
from flowdsl.train.callbacks.saver import ModelSaver
from flowdsl.train.checkpoint import latest_checkpoint, restore
from flowdsl.train.config import TrainConfig
from flowdsl.train.model import binding_of_loss
from flowdsl.train.monitors import Monitors, MonitorsState
from flowdsl.train.step import Step

_log = logging.getLogger(__name__)


class TrainerState(TypedDict):
    """The position of training, without the variables."""

    epoch_num: int
    local_step: int
    left_over: int
    partial_steps: NotRequired[int]
    input: State
    monitors: MonitorsState


class Trainer:
    """Trains a model over the replicas of a strategy, in steps that take an element a replica.

    What a step computes is told by ``Step``.

    Source: ``Trainer`` in tensorpack.
    """

    epoch_num: int
    """The number of the current epoch."""

    local_step: int
    """The number of finished steps in the current epoch."""

    global_step: int
    """The number of finished steps in all epochs."""

    scalars: Mapping[str, float]
    """The loss and the model's other scalars, averaged over the towers and the steps of a call.

    With them ``queue_fill``, the elements that wait for a step, and ``input_wait``, the seconds
    that a step has waited for them.
    """

    left_over: int
    """The number of elements not trained on, because a pass ended before they filled a step."""

    partial_steps: int
    """The number of steps that had fewer elements than towers, at the ends of passes."""

    def __init__(self, config: TrainConfig, strategy: tf.distribute.Strategy) -> None:
        self.config = config
        self.strategy = strategy
        self.towers = strategy.num_replicas_in_sync
        self.epoch_num, self.local_step, self.global_step = config.starting_epoch, 0, 0
        self.scalars = {}
        self.left_over = self.partial_steps = 0
        self._last_step = 0
        self._told = (0, 0.0)
        self.input = config.source(self.towers)
        self._check_input()
        self.steps_per_epoch = config.steps_per_epoch or self._steps_of_pass()
        self.step_variable = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
        with strategy.scope():
            self.model = config.model()
            binding = binding_of_loss(self.model, self.input)
            self.optimizer = config.optimizer()
            self.optimizer.build(self.model.trainable_variables)
        self.monitors = Monitors(config.monitors)
        self._step = Step(
            self.input, self.model, binding, self.optimizer, strategy, self.step_variable
        )
        self._input_state: State | None = None

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

    def train(self, *, resume: bool = True) -> None:
        """Run all steps up to the end of ``max_epoch``.

        With ``resume``, training goes on from the latest checkpoint in ``logdir``, if there is one:
        at the next step, with the next elements, as if it had not stopped. So a program that was
        killed is run again as it is. (Random operations of TensorFlow that keep their state outside
        of variables are not part of that; Keras's layers keep it in variables.) With
        ``resume=False`` a ``logdir`` that holds checkpoints is an error: nothing is overwritten.

        Raises:
            FlowError: The input failed; the full steps before it are done. Whatever else the flow
                raised comes as it is, and so do errors of callbacks.
            StateMismatch: The checkpoint belongs to another model, optimizer or flow.
        """
        checkpoint = latest_checkpoint(self.config.logdir)
        if checkpoint and not resume:
            raise InvalidFlow(
                f"train(resume=False): {checkpoint} exists already; give another logdir, or go on "
                f"from it with resume=True"
            )
        callbacks = self._callbacks()
        with ExitStack() as stack:
            stack.callback(self.input.close)
            for callback in callbacks:
                callback.setup(self)
            if checkpoint:
                restore(self, checkpoint)
                self.global_step = self._last_step = int(self.step_variable.numpy())
                self._told = (self.global_step, 0.0)
            if self.epoch_num > self.config.max_epoch:
                _log.warning(
                    "training is complete: epoch %d is done; to train for longer raise max_epoch, "
                    "to start anew remove %s/checkpoints or give another logdir",
                    *(self.config.max_epoch, self.config.logdir),
                )
                return
            if self._input_state is None:
                self.input.reset()
            else:
                self.input.restore(self._input_state)
            for callback in callbacks:
                stack.callback(callback.after_train)
                callback.before_train()
            try:
                self._run_epochs(callbacks)
            except StopTraining as stop:
                _log.info("training was stopped: %s", stop)

    def run_step(self) -> None:
        """One step of all towers; or several, in one call, where ``steps_per_call`` says so."""
        left = self.steps_per_epoch - self.local_step
        args, elements = self._take(max(1, min(self.config.steps_per_call, left)))
        try:
            scalars = self._run(args, elements)
        except tf.errors.OutOfRangeError as end:  # of what TensorFlow itself reads in the step
            raise StopTraining(f"its input has ended: {end.message}") from end
        self._last_step, steps = self.global_step, -(-elements // self.towers)
        self.global_step += steps
        self.local_step += steps
        if self.reached(self.config.record_every):
            read = {name: float(value) for name, value in scalars.items()}
            self.scalars = read | self._of_input()

    def reached(self, every: int) -> bool:
        """Whether the last call came to a step whose number is a multiple of ``every``."""
        return self.global_step // every > self._last_step // every

    def _of_input(self) -> dict[str, float]:
        """How full the input is, and the seconds that a step has waited for it since the last."""
        (step, waited), now = self._told, self.input.waited
        self._told = (self.global_step, now)
        a_step = (now - waited) / max(1, self.global_step - step)
        return {"queue_fill": float(self.input.fill), "input_wait": a_step}

    def state_dict(self) -> TrainerState:
        """The position of training, without variables; after an epoch, the start of the next."""
        finished = self.local_step >= self.steps_per_epoch
        return {
            "epoch_num": self.epoch_num + finished,
            "local_step": 0 if finished else self.local_step,
            "left_over": self.left_over,
            "partial_steps": self.partial_steps,
            "input": self.input.state_dict(),
            "monitors": self.monitors.state_dict(),
        }

    def load_state_dict(self, state: TrainerState) -> None:
        """Restore a saved state; the input's state is restored when training begins."""
        self.epoch_num, self.local_step = state["epoch_num"], state["local_step"]
        self.left_over, self.partial_steps = state["left_over"], state.get("partial_steps", 0)
        self.monitors.load_state_dict(state["monitors"])
        self._input_state = state["input"]

    def _callbacks(self) -> list[Callback]:
        """All callbacks; savers come last, so that checkpoints include the others' state."""
        given = [*self.config.callbacks, *self.config.extra_callbacks]
        savers = [callback for callback in given if isinstance(callback, ModelSaver)]
        others = [callback for callback in given if not isinstance(callback, ModelSaver)]
        return [*others, self.monitors, *savers]

    def _run_epochs(self, callbacks: list[Callback]) -> None:
        while self.epoch_num <= self.config.max_epoch:
            for callback in callbacks:
                callback.before_epoch()
            while self.local_step < self.steps_per_epoch:
                self.run_step()
                for callback in callbacks:
                    callback.after_step()
            for callback in callbacks:
                callback.after_epoch()
            for callback in callbacks:
                callback.trigger_epoch()
            self.epoch_num += 1
            self.local_step = 0

    def _take(self, steps: int) -> tuple[tuple[tf.Tensor, ...], int]:
        """The arguments for so many steps, or those that are left of a pass, and their elements."""
        try:
            return self._take_of_pass(steps)
        except EndOfPass as end:
            self._account(end.left)
            if not self.input.infinite:
                raise StopTraining("the pass over its input has ended") from None
        self.input.reset(self.input.epoch + 1)
        try:
            return self._take_of_pass(steps)
        except EndOfPass as end:
            raise FlowError(
                f"a step of {self.towers} tower(s) takes {self.towers} element(s), a complete pass "
                f"of the flow gave {end.left}"
            ) from None

    def _take_of_pass(self, steps: int) -> tuple[tuple[tf.Tensor, ...], int]:
        wanted = steps * self.towers
        try:
            return self.input.next_args(wanted), wanted
        except EndOfPass as end:
            some = end.left - end.left % self.towers
            if not some and self.config.remainder != "drop":
                some = end.left
            if not some:
                raise
        return self.input.next_args(some), some

    def _account(self, left: int) -> None:
        if left:
            self.left_over += left
            _warn_of_left_over(left, self.towers)

    def _run(self, args: tuple[tf.Tensor, ...], elements: int) -> Mapping[str, tf.Tensor]:
        if elements < self.towers:
            self.partial_steps += 1
            few = self._step.padded if self.config.remainder == "pad" else self._step.smaller
            return few(tf.constant(elements, tf.int64), *args)
        if self.config.steps_per_call == 1:
            return self._step.one(*args)
        return self._step.several(tf.constant(elements // self.towers, tf.int64), *args)


def _warn_of_left_over(left: int, towers: int) -> None:
    warnings.warn(
        f"the last {left} element(s) of a pass are too few for a step of {towers} towers, and are "
        f"not trained on; give the flow a multiple of {towers} elements, or .repeat() it, so that "
        f"one pass joins the next, or train on them with remainder='pad'",
        LeftOver,
        stacklevel=2,
    )
