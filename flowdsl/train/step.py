"""The step: what all towers do with an element each, as functions of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

import attrs
import tensorflow as tf

from flowdsl.graph import InputSource
from flowdsl.train.binding import Binding
from flowdsl.train.model import Model, Optimizer, named_scalars

Remainder: TypeAlias = Literal["drop", "pad", "smaller"]
"""What becomes of the elements at the end of a pass that are too few for all towers."""

_COUNT = tf.TensorSpec((), tf.int64)

Element: TypeAlias = Sequence[tf.Tensor]
Scalars: TypeAlias = dict[str, tf.Tensor]


@attrs.frozen(eq=False)
class Step:
    """The step of a model on the towers of a strategy.

    The loss of a tower is divided by their number and the gradients are added up, so a step is that
    of one device on the joined elements, if these have equally many rows.
    """

    source: InputSource
    model: Model
    binding: Binding
    optimizer: Optimizer
    strategy: tf.distribute.Strategy
    count: tf.Variable
    """The number of finished steps."""

    @property
    def towers(self) -> int:
        """How many elements a step takes."""
        return int(self.strategy.num_replicas_in_sync)

    @cached_property
    def one(self) -> Callable[..., Scalars]:
        """One step; called with the arguments of the source."""

        @tf.function(input_signature=self.source.signature, autograph=False)
        def one(*args: tf.Tensor) -> Scalars:
            return self._step(args)

        return one

    @cached_property
    def several(self) -> Callable[..., Scalars]:
        """So many steps, then the arguments of the source; gives the means of the scalars."""

        @tf.function(input_signature=[_COUNT, *self.source.signature], autograph=False)
        def several(steps: tf.Tensor, *args: tf.Tensor) -> Scalars:
            names: list[str] = []

            def turn(k: tf.Tensor, sums: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                scalars = self._step(args)
                names[:] = scalars
                values = tf.stack([*scalars.values()])
                return k + 1, tf.cond(tf.equal(k, 0), lambda: values, lambda: sums + values)

            _, sums = tf.while_loop(
                lambda k, _: k < steps,
                turn,
                (tf.constant(0, tf.int64), tf.zeros((0,))),
                shape_invariants=(tf.TensorShape(()), tf.TensorShape((None,))),
                parallel_iterations=1,
            )
            means = sums / tf.cast(steps, tf.float32)
            return {name: means[k] for k, name in enumerate(names)}

        return several

    @cached_property
    def padded(self) -> Callable[..., Scalars]:
        """A step of so many elements, fewer than towers, then the arguments of the source.

        The towers beyond them take the first element again, with no weight.
        """
        return self._of_few(self._weighted)

    @cached_property
    def smaller(self) -> Callable[..., Scalars]:
        """A step of so many elements, fewer than towers; the towers beyond them compute nothing."""
        return self._of_few(self._if_any)

    def _step(self, args: Sequence[tf.Tensor]) -> Scalars:
        # Taken for all towers at once: a step has an element for each, or does not run.
        elements = [self.source.tensors(*args) for _ in range(self.towers)]

        def tower(*inputs: tf.Tensor) -> Scalars:
            scalars, gradients = self._computed(inputs, lambda loss: loss / self.towers)
            self.optimizer.apply(gradients, self.model.trainable_variables)
            return {name: value / self.towers for name, value in scalars.items()}

        return self._on_towers(tower, elements)

    def _of_few(self, computed: Callable[..., tuple[Scalars, Element]]) -> Callable[..., Scalars]:
        @tf.function(input_signature=[_COUNT, *self.source.signature], autograph=False)
        def step(present: tf.Tensor, *args: tf.Tensor) -> Scalars:
            first = self.source.tensors(*args)
            each = tf.range(self.towers, dtype=tf.int64)
            weights = tf.where(each < present, 1 / tf.cast(present, tf.float32), 0.0)
            elements = [[weights[0], *first]]
            for k in range(1, self.towers):
                element = tf.cond(k < present, lambda: self.source.tensors(*args), lambda: [*first])
                elements.append([weights[k], *element])

            def tower(weight: tf.Tensor, *inputs: tf.Tensor) -> Scalars:
                scalars, gradients = computed(weight, inputs)
                self.optimizer.apply(gradients, self.model.trainable_variables)
                return {name: value * weight for name, value in scalars.items()}

            return self._on_towers(tower, elements)

        return step

    def _weighted(self, weight: tf.Tensor, inputs: Element) -> tuple[Scalars, Element]:
        return self._computed(inputs, lambda loss: loss * weight)

    def _if_any(self, weight: tf.Tensor, inputs: Element) -> tuple[Scalars, Element]:
        names: list[str] = []
        trained: list[int] = []
        """The numbers of the variables that have a gradient."""

        def computed() -> tuple[list[tf.Tensor], list[tf.Tensor]]:
            scalars, gradients = self._weighted(weight, inputs)
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

    def _computed(
        self, inputs: Element, share: Callable[[tf.Tensor], tf.Tensor]
    ) -> tuple[Scalars, Element]:
        """The scalars of an element, and the gradients of this share of its loss."""
        with tf.GradientTape() as tape:
            scalars = named_scalars(self.model, self.binding, inputs)
            loss = share(scalars["loss"])
        return scalars, tape.gradient(loss, self.model.trainable_variables)

    def _on_towers(self, tower: Callable[..., Scalars], elements: Sequence[Element]) -> Scalars:
        inputs = [_spread(self.strategy, component) for component in zip(*elements, strict=True)]
        scalars: Mapping[str, tf.Tensor] = self.strategy.run(tower, args=inputs)
        self.count.assign_add(1)
        return {name: self.strategy.reduce("SUM", v, axis=None) for name, v in scalars.items()}


def _spread(strategy: tf.distribute.Strategy, values: tuple[tf.Tensor, ...]) -> tf.Tensor:
    """One value for each replica."""

    def of_replica(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
        return values[context.replica_id_in_sync_group]

    return strategy.experimental_distribute_values_from_function(of_replica)
