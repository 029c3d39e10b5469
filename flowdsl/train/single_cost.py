"""Training of a single cost: the gradients of a model's loss, over all towers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import tensorflow as tf

from flowdsl.train.binding import Binding
from flowdsl.train.model import Model, Optimizer, named_scalars
from flowdsl.train.step import Remainder
from flowdsl.train.towers import Computed, Element, Gradients, Scalars, Towers


@attrs.frozen(eq=False)
class SingleCost:
    """What the towers do with their elements for a model with a loss.

    The loss of a tower is divided by their number and the gradients are added up, so a step is that
    of one device on the joined elements, if these have equally many rows.
    """

    model: Model
    binding: Binding
    optimizer: Optimizer
    towers: Towers

    def whole(self, elements: Sequence[Element]) -> Scalars:
        """A step of an element for each tower."""
        share = 1.0 / self.towers.total
        return self.towers.train(lambda *inputs: self.computed(inputs, share), self.apply, elements)

    def few(self, elements: Sequence[Element], present: tf.Tensor, remainder: Remainder) -> Scalars:
        """A step of the first so many elements; those after them have no weight."""
        each = tf.range(len(elements), dtype=tf.int64)
        weights = tf.where(each < present, 1 / tf.cast(present, tf.float32), 0.0)
        computed = self.computed if remainder == "pad" else self._if_any
        return self.towers.train(
            lambda weight, *inputs: computed(inputs, weight),
            self.apply,
            [[weights[k], *element] for k, element in enumerate(elements)],
        )

    def computed(self, inputs: Element, share: tf.Tensor | float) -> Computed:
        """This share of the scalars of an element, and the gradients of that share of its loss."""
        with tf.GradientTape() as tape:
            scalars = named_scalars(self.model, self.binding, inputs)
            loss = scalars["loss"] * share
        gradients = tape.gradient(loss, self.model.trainable_variables)
        return {name: value * share for name, value in scalars.items()}, gradients

    def apply(self, gradients: Gradients) -> None:
        """Take a step of the optimizer."""
        self.optimizer.apply(gradients, self.model.trainable_variables)

    def _if_any(self, inputs: Element, weight: tf.Tensor) -> Computed:
        names: list[str] = []
        trained: list[int] = []
        """The numbers of the variables that have a gradient."""

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
        gradients: list[Any] = [None] * len(variables)  # None: as of a tape
        for k, gradient in zip(trained, dense, strict=True):
            gradients[k] = gradient
        return dict(zip(names, values, strict=True)), gradients
