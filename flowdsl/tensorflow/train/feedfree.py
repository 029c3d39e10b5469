"""Trainers whose step reads its input within TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from flowdsl.errors import InvalidArgument
from flowdsl.tensorflow.inputs import EndOfPass
from flowdsl.tensorflow.train.binding import Binding, binding_of
from flowdsl.tensorflow.train.callbacks.base import Callback, StopTraining
from flowdsl.tensorflow.train.callbacks.metrics import KerasMetrics
from flowdsl.tensorflow.train.compiled import CompiledModel
from flowdsl.tensorflow.train.config import TrainConfig
from flowdsl.tensorflow.train.model import Optimizer, binding_of_loss
from flowdsl.tensorflow.train.single_cost import OwnStep, SingleCost
from flowdsl.tensorflow.train.step import Step
from flowdsl.tensorflow.train.towers import Element, Replicas, Scalars, Towers
from flowdsl.tensorflow.train.trainer import Trainer


class FeedfreeTrainerBase(Trainer):
    """Runs one TensorFlow function per step; a subclass defines what a tower computes in it.

    ``build_train_tower`` is called while that function is traced, with the components of an
    element. A model with two optimizers, for example, is trained like this::

        class GANTrainer(FeedfreeTrainerBase):
            def build_train_tower(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
                ...  # the gradients of both, each applied by its own optimizer
                return {"generator": g_loss, "discriminator": d_loss}

    Source: ``FeedfreeTrainerBase`` in tensorpack.
    """

    def __init__(self, config: TrainConfig, towers: Towers | None = None) -> None:
        super().__init__(config, towers)
        self.train_op = self.make_step()

    def build_train_tower(self, *args: Any, **kwargs: Any) -> Scalars:  # for any override
        """Train on one element; return scalars to monitor, which are averaged over the towers."""
        raise InvalidArgument(
            f"{type(self).__name__} does not define what a tower does with its element: define "
            f"build_train_tower, with the components of an element as its arguments"
        )

    def make_step(self) -> Step:
        """Create the step of all towers."""
        if self.config.remainder != "drop":
            raise InvalidArgument(
                f"TrainConfig: remainder={self.config.remainder!r} needs a loss whose elements can "
                f"be weighted, but {type(self).__name__} has a step of its own"
            )
        label = f"{type(self).__name__}.build_train_tower"
        binding = binding_of(self.build_train_tower, label, self.input)

        def full_step(elements: Sequence[Element]) -> Scalars:
            sums = self.devices.run(lambda *inputs: self._tower(binding, inputs), elements)
            return {name: value / self.devices.total for name, value in sums.items()}

        return Step(self.input, self.towers, full_step, self.counts)

    def trace(self) -> Sequence[tf.Variable]:
        return self.train_op.trace(self.config.steps_per_call > 1)

    def _tower(self, binding: Binding, inputs: Element) -> Scalars:
        scalars = binding.call(self.build_train_tower, inputs)
        return {name: tf.cast(value, tf.float32) for name, value in scalars.items()}

    def run_step(self) -> None:
        """Run one step of all towers, or ``steps_per_call`` steps in one call."""
        steps_left = self.steps_per_epoch - self.local_step
        args, elements = self._take(max(1, min(self.config.steps_per_call, steps_left)))
        self._running = -(-elements // self.towers)
        try:
            scalars = self._run(args, elements)
        except tf.errors.OutOfRangeError as end:  # raised by operations that read data in the step
            raise StopTraining(f"its input has ended: {end.message}") from end
        if self.reached_multiple_of(self.config.record_every):
            of_model = {name: float(value) for name, value in scalars.items()}
            self.scalars = of_model | self.of_input()

    def count_interrupted_step(self) -> None:
        done = int(self.counts.finished.numpy()) - self.global_step
        if done > 0:
            not_used = max(0, self.passes.of_step - done * self.towers)
            self.count_steps(done)
            self.passes.of_step = not_used

    def _take(self, steps: int) -> tuple[tuple[tf.Tensor, ...], int]:
        """Return the arguments for ``steps`` steps, or the rest of a pass, and their elements."""
        try:
            return self._take_of_pass(steps)
        except EndOfPass as end:
            self.passes.begin_next(end)
        try:
            return self._take_of_pass(steps)
        except EndOfPass as end:
            raise self.passes.too_few(end.left) from None

    def _take_of_pass(self, steps: int) -> tuple[tuple[tf.Tensor, ...], int]:
        wanted = steps * self.towers
        try:
            return self.passes.take(wanted), wanted
        except EndOfPass as end:
            fewer = end.left - end.left % self.towers  # for full steps
            if not fewer and self.config.remainder != "drop":
                fewer = end.left  # for one step with fewer elements than towers
            if not fewer:
                raise
        return self.passes.take(fewer), fewer

    def _run(self, args: tuple[tf.Tensor, ...], elements: int) -> Mapping[str, tf.Tensor]:
        if elements < self.towers:
            few = self.train_op.padded if self.config.remainder == "pad" else self.train_op.smaller
            scalars = few(tf.constant(elements, tf.int64), *args)
            self.partial_steps += 1
            return scalars
        if self.config.steps_per_call == 1:
            return self.train_op.one(*args)
        return self.train_op.several(tf.constant(elements // self.towers, tf.int64), *args)


class SingleCostFeedfreeTrainer(FeedfreeTrainerBase):
    """Trains a model with a loss: each step applies its gradients.

    Source: ``SingleCostFeedfreeTrainer`` in tensorpack.
    """

    @property
    def optimizer(self) -> Optimizer:
        assert self._optimizer is not None
        return self._optimizer

    def make_optimizer(self) -> Optimizer:
        make = self.config.optimizer
        if make is not None:
            optimizer = make()
        elif isinstance(self.model, CompiledModel):
            optimizer = self.model.net.optimizer
        else:
            raise InvalidArgument(
                "TrainConfig: optimizer is missing: pass optimizer=lambda: "
                "tf.keras.optimizers.Adam(1e-3), or a compiled Keras model, which has its own"
            )
        self._binding = binding_of_loss(self.model, self.input)
        if isinstance(self.model, CompiledModel):
            self.model.build(self._binding, self.input.specs)
        optimizer.build(self.model.trainable_variables)
        return optimizer

    def make_step(self) -> Step:
        if isinstance(self.model, CompiledModel):
            self.require_can_train(self.model)
            if self.model.has_its_own_step:
                own = OwnStep(self.model, self._binding, self.devices)
                return Step(self.input, self.towers, own.whole, self.counts)
        cost = SingleCost(self.model, self._binding, self.optimizer, self.devices)
        return Step(self.input, self.towers, cost.whole, self.counts, cost.few)

    def require_can_train(self, model: CompiledModel) -> None:
        """Refuse what this trainer would do differently from ``fit``.

        Raises:
            InvalidArgument: The model has a step or metrics of its own that it cannot train with.
        """
        several = self.towers > 1
        if model.has_its_own_step and several and not isinstance(self.devices, Replicas):
            raise InvalidArgument(
                f"{type(self).__name__}: {type(model.net).__name__} overrides train_step, which "
                f"applies the gradients of one tower separately; for several towers use "
                f"SyncMultiGPUTrainerReplicated"
            )
        if self.config.remainder != "drop" and several:
            what = "overrides train_step" if model.has_its_own_step else None
            if what is None and self.config.remainder == "pad" and model.has_metrics:
                what = "has metrics, which would count an element twice"
            if what is not None:
                raise InvalidArgument(
                    f"TrainConfig: remainder={self.config.remainder!r} cannot be used with a model "
                    f"that {what}"
                )

    def callbacks_of_model(self) -> Sequence[Callback]:
        if isinstance(self.model, CompiledModel) and self.model.measures:
            return [KerasMetrics(self.model)]
        return ()
