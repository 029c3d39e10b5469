"""Training with a single cost: the gradients of a model's loss, over all towers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import tensorflow as tf

from flowdsl.errors import InvalidArgument
from flowdsl.tensorflow.train.binding import Binding
from flowdsl.tensorflow.train.compiled import CompiledModel
from flowdsl.tensorflow.train.model import Model, Optimizer, named_scalars
from flowdsl.tensorflow.train.step import Remainder
from flowdsl.tensorflow.train.towers import Computed, Element, Gradients, Scalars, Towers
from flowdsl.tensorflow.train.variables import Variable, name_of, named_variables, without


class UntrainedVariable(UserWarning):
    """Warns of trainable variables that no step trains."""


@attrs.define(eq=False)
class Untrained:
    """Warns of trainable variables that a loss does not train, once for each."""

    model: Model
    _known: list[Variable] = attrs.field(factory=list[Any])

    def check(
        self,
        watched: Sequence[tf.Variable],
        trained: Sequence[Variable],
        gradients: Sequence[object],
    ) -> None:
        """Check the variables that a loss has used and trained, and their gradients."""
        idle = [v for v, gradient in zip(trained, gradients, strict=True) if gradient is None]
        self._warn(idle, "the loss does not depend on these trainable variables")
        self._warn(
            without(watched, trained),
            "the loss uses these trainable variables, but the model's trainable_variables leave "
            "them out: keep them in attributes of a ModelDesc, or make them trainable=False",
        )

    def _warn(self, variables: Sequence[Variable], why: str) -> None:
        new = without(variables, self._known)
        self._known += new
        if new:
            named = named_variables(self.model)
            names = ", ".join(name_of(variable, named) for variable in new)
            warnings.warn(f"not trained: {names}: {why}", UntrainedVariable, stacklevel=2)


def scaled(optimizer: Optimizer, loss: tf.Tensor) -> tf.Tensor:
    """Multiply the loss by the factor by which the optimizer will divide the gradients.

    Keras's optimizers do so if 16-bit gradients would underflow to zero: ``LossScaleOptimizer``,
    which the policy ``mixed_float16`` adds around another optimizer, or ``loss_scale_factor``.
    """
    scale: Callable[[tf.Tensor], tf.Tensor] | None = getattr(optimizer, "scale_loss", None)
    return loss if scale is None else scale(loss)


@attrs.frozen(eq=False)
class OwnStep:
    """Steps of a compiled model whose class overrides ``train_step``, which does the whole step."""

    model: CompiledModel
    binding: Binding
    towers: Towers

    def whole(self, elements: Sequence[Element]) -> Scalars:
        """Run a step with an element for each tower."""
        sums = self.towers.run(self._tower, elements)
        return {name: value / self.towers.total for name, value in sums.items()}

    def _tower(self, *inputs: tf.Tensor) -> Scalars:
        logs = self.binding.call(self.model.train_step, inputs)
        return {name: tf.cast(value, tf.float32) for name, value in logs.items()}


@attrs.frozen(eq=False)
class SingleCost:
    """The computation of towers on their elements, for a model with a loss.

    The loss of a tower is divided by the number of towers and the gradients are summed, so a step
    equals a step of one device on the joined elements, if these have the same number of rows.
    """

    model: Model
    binding: Binding
    optimizer: Optimizer
    towers: Towers
    untrained: Untrained = attrs.field(
        default=attrs.Factory(lambda cost: Untrained(cost.model), takes_self=True)
    )

    def whole(self, elements: Sequence[Element]) -> Scalars:
        """Run a step with an element for each tower."""
        share = 1.0 / self.towers.total
        return self.towers.train(lambda *inputs: self.computed(inputs, share), self.apply, elements)

    def few(self, elements: Sequence[Element], present: tf.Tensor, remainder: Remainder) -> Scalars:
        """Run a step on the first ``present`` elements; the others have zero weight."""
        each = tf.range(len(elements), dtype=tf.int64)
        weights = tf.where(each < present, 1 / tf.cast(present, tf.float32), 0.0)
        computed = self.computed if remainder == "pad" else self._computed_if_present
        return self.towers.train(
            lambda weight, *inputs: computed(inputs, weight),
            self.apply,
            [[weights[k], *element] for k, element in enumerate(elements)],
        )

    def computed(self, inputs: Element, share: tf.Tensor | float) -> Computed:
        """Return a share of an element's scalars, and the gradients of that share of its loss."""
        with tf.GradientTape() as tape:
            with self.towers.as_if_alone():
                scalars = named_scalars(self.model, self.binding, inputs)
            loss = scaled(self.optimizer, scalars["loss"] * share)
        variables = self.model.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.untrained.check(tape.watched_variables(), variables, gradients)
        return {name: value * share for name, value in scalars.items()}, gradients

    def apply(self, gradients: Gradients) -> None:
        """Run the optimizer on the variables that have a gradient."""
        pairs = zip(gradients, self.model.trainable_variables, strict=True)
        trained = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
        if not trained:
            raise InvalidArgument(
                f"{type(self.model).__name__}.loss depends on none of the model's trainable "
                f"variables, so there is nothing to train"
            )
        gradients, variables = zip(*trained, strict=True)
        if hasattr(self.optimizer, "dynamic_scale"):
            gradients = self.towers.overflow_together(gradients)
        self.optimizer.apply(gradients, variables)

    def _computed_if_present(self, inputs: Element, weight: tf.Tensor) -> Computed:
        """Like ``computed``, but compute nothing if the weight is zero."""
        # Both lists are filled while ``computed`` is traced, before ``nothing`` is.
        names: list[str] = []
        trained: list[int] = []
        """The indices of the variables that have a gradient."""

        def computed() -> tuple[list[tf.Tensor], list[tf.Tensor]]:
            scalars, gradients = self.computed(inputs, weight)
            names[:] = scalars
            trained[:] = [k for k, gradient in enumerate(gradients) if gradient is not None]
            dense = [tf.convert_to_tensor(gradients[k]) for k in trained]
            return [*scalars.values()], dense

        def nothing() -> tuple[list[tf.Tensor], list[tf.Tensor]]:
            none = [tf.zeros_like(variables[k]) for k in trained]
            return [tf.zeros(()) for _ in names], none

        variables = self.model.trainable_variables
        values, dense = tf.cond(weight > 0, computed, nothing)
        gradients: list[Any] = [None] * len(variables)  # None, as from a GradientTape
        for k, gradient in zip(trained, dense, strict=True):
            gradients[k] = gradient
        return dict(zip(names, values, strict=True)), gradients
