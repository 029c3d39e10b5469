"""The training loop."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TypedDict

import tensorflow as tf

from flowdsl.errors import EndlessFlow, FlowError, InvalidFlow, UnknownLength
from flowdsl.graph import EndOfPass, InputSource
from flowdsl.graph.source import State
from flowdsl.train.callbacks.base import Callback, StopTraining
from flowdsl.train.callbacks.saver import ModelSaver
from flowdsl.train.checkpoint import latest_checkpoint, restore
from flowdsl.train.config import TrainConfig
from flowdsl.train.model import binding_of_loss, named_scalars
from flowdsl.train.monitors import Monitors, MonitorsState

_log = logging.getLogger(__name__)


class LeftOver(UserWarning):
    """Warns of elements at the end of a pass that were too few for a step of all towers."""


class TrainerState(TypedDict):
    """The position of training, without the variables."""

    epoch_num: int
    local_step: int
    left_over: int
    input: State
    monitors: MonitorsState


class Trainer:
    """Trains a model over the replicas of a strategy, in steps that take an element a replica.

    The loss of a replica is divided by their number and the gradients are added up, so a step is
    that of one device on the joined batch, if the elements have equally many rows.

    Source: ``Trainer`` in tensorpack.
    """

    epoch_num: int
    """The number of the current epoch."""

    local_step: int
    """The number of finished steps in the current epoch."""

    global_step: int
    """The number of finished steps in all epochs."""

    scalars: Mapping[str, float]
    """The loss and the model's other scalars, averaged over the towers; and ``queue_fill``."""

    left_over: int
    """The number of elements not trained on, because a pass ended before they filled a step."""

    def __init__(self, config: TrainConfig, strategy: tf.distribute.Strategy) -> None:
        self.config = config
        self.strategy = strategy
        self.towers = strategy.num_replicas_in_sync
        self.epoch_num, self.local_step, self.global_step = config.starting_epoch, 0, 0
        self.scalars = {}
        self.left_over = 0
        self.input = config.source()
        if self.towers > (self.input.most_a_step or self.towers):
            raise InvalidFlow(
                f"{type(self.input).__name__} feeds one element a step, and {self.towers} towers "
                f"take {self.towers}: use QueueInput"
            )
        self.steps_per_epoch = config.steps_per_epoch or _steps_of(self.input, self.towers)
        self.step_variable = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
        with strategy.scope():
            self.model = config.model()
            self._binding = binding_of_loss(self.model, self.input)
            self.optimizer = config.optimizer()
            self.optimizer.build(self.model.trainable_variables)
        self.monitors = Monitors(config.monitors)
        self._step = self._build_step()
        self._input_state: State | None = None

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
                self.global_step = int(self.step_variable.numpy())
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
        """One step of all towers."""
        args = self._next_args()
        try:
            scalars = self._step(*args)
        except tf.errors.OutOfRangeError as end:  # of what TensorFlow itself reads in the step
            raise StopTraining(f"its input has ended: {end.message}") from end
        self.global_step += 1
        self.local_step += 1
        if self.global_step % self.config.record_every == 0:
            read = {name: float(value) for name, value in scalars.items()}
            self.scalars = read | {"queue_fill": float(self.input.fill)}

    def state_dict(self) -> TrainerState:
        """The position of training, without variables; after an epoch, the start of the next."""
        finished = self.local_step >= self.steps_per_epoch
        return {
            "epoch_num": self.epoch_num + finished,
            "local_step": 0 if finished else self.local_step,
            "left_over": self.left_over,
            "input": self.input.state_dict(),
            "monitors": self.monitors.state_dict(),
        }

    def load_state_dict(self, state: TrainerState) -> None:
        """Restore a saved state; the input's state is restored when training begins."""
        self.epoch_num, self.local_step = state["epoch_num"], state["local_step"]
        self.left_over = state["left_over"]
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

    def _next_args(self) -> tuple[tf.Tensor, ...]:
        try:
            return self.input.next_args(self.towers)
        except EndOfPass as end:
            self._account(end.left)
            if not self.input.infinite:
                raise StopTraining("the pass over its input has ended") from None
        self.input.reset(self.input.epoch + 1)
        try:
            return self.input.next_args(self.towers)
        except EndOfPass as end:
            raise FlowError(
                f"a step of {self.towers} tower(s) takes {self.towers} element(s), a complete pass "
                f"of the flow gave {end.left}"
            ) from None

    def _account(self, left: int) -> None:
        if left:
            self.left_over += left
            _warn_of_left_over(left, self.towers)

    def _build_step(self) -> Callable[..., Mapping[str, tf.Tensor]]:
        source, model, optimizer = self.input, self.model, self.optimizer
        binding = self._binding
        strategy, towers, count = self.strategy, self.towers, self.step_variable

        def tower(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
            with tf.GradientTape() as tape:
                scalars = named_scalars(model, binding, inputs)
                loss = scalars["loss"] / towers
            variables = model.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)
            return {name: value / towers for name, value in scalars.items()}

        @tf.function(input_signature=source.signature, autograph=False)
        def step(*args: tf.Tensor) -> dict[str, tf.Tensor]:
            # Taken for all towers at once: a step has an element for each, or does not run.
            elements = [source.tensors(*args) for _ in range(towers)]
            inputs = [_spread(strategy, component) for component in zip(*elements, strict=True)]
            scalars = strategy.run(tower, args=inputs)
            count.assign_add(1)
            return {name: strategy.reduce("SUM", v, axis=None) for name, v in scalars.items()}

        return step


def _spread(strategy: tf.distribute.Strategy, values: tuple[tf.Tensor, ...]) -> tf.Tensor:
    """One value for each replica."""

    def of_replica(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
        return values[context.replica_id_in_sync_group]

    return strategy.experimental_distribute_values_from_function(of_replica)


def _steps_of(source: InputSource, towers: int) -> int:
    try:
        elements = source.size()
    except (EndlessFlow, UnknownLength) as error:
        raise InvalidFlow(f"TrainConfig: steps_per_epoch must be given: {error}") from error
    if elements < towers:
        raise InvalidFlow(
            f"a step of {towers} tower(s) takes {towers} element(s), the flow has {elements}"
        )
    if elements % towers:
        _warn_of_left_over(elements % towers, towers)
    return elements // towers


def _warn_of_left_over(left: int, towers: int) -> None:
    warnings.warn(
        f"the last {left} element(s) of a pass are too few for a step of {towers} towers, and are "
        f"not trained on; give the flow a multiple of {towers} elements, or .repeat() it, so that "
        f"one pass joins the next",
        LeftOver,
        stacklevel=2,
    )
