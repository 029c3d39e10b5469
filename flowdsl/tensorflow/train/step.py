"""The step: the computation of all towers on one element each, as TensorFlow functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

import attrs
import tensorflow as tf

from flowdsl.tensorflow.inputs import InputSource
from flowdsl.tensorflow.train.towers import Element, Scalars

Remainder: TypeAlias = Literal["drop", "pad", "smaller"]
"""The treatment of elements at the end of a pass that are too few for all towers."""

_COUNT = tf.TensorSpec((), tf.int64)


@attrs.frozen(eq=False)
class Counts:
    """Counters that steps update in TensorFlow, since Python does not read every step."""

    finished: tf.Variable = attrs.field(factory=lambda: _count("global_step"))
    not_finite: tf.Variable = attrs.field(factory=lambda: _count("not_finite"))
    """The number of steps with a loss that was not finite."""
    first_not_finite: tf.Variable = attrs.field(factory=lambda: _count("first_not_finite"))
    """The number of the first such step that was not reported, from 1; 0 if there is none."""

    def add(self, scalars: Scalars) -> None:
        """Count a step; one whose computation fails is not counted."""
        with tf.control_dependencies([*scalars.values()]):
            number = self.finished.assign_add(1)
        if "loss" not in scalars:
            return
        bad = tf.cast(tf.logical_not(tf.math.is_finite(scalars["loss"])), tf.int64)  # 0 or 1
        self.not_finite.assign_add(bad)
        first = tf.convert_to_tensor(self.first_not_finite)
        self.first_not_finite.assign(tf.where(first > 0, first, bad * number))


def variables_of(function: Any) -> list[tf.Variable]:
    """Return the variables that a function with a signature uses, in the order it reads them."""
    graph = function.get_concrete_function().graph
    by_handle = {id(variable.handle): variable for variable in graph.variables}
    used = [by_handle.get(id(tensor)) for tensor in graph.external_captures]
    return [variable for variable in used if variable is not None]


def _count(name: str) -> tf.Variable:
    return tf.Variable(0, dtype=tf.int64, trainable=False, name=name)


@attrs.frozen(eq=False)
class Step:
    """A step over the elements of an input source."""

    source: InputSource
    elements: int
    """The number of elements that a step takes."""
    whole: Callable[[Sequence[Element]], Scalars]
    """The computation on the elements."""
    counts: Counts
    few: Callable[[Sequence[Element], tf.Tensor, Remainder], Scalars] | None = None
    """The computation on fewer elements; the first element stands in for the missing ones."""

    def trace(self, several: bool) -> list[tf.Variable]:
        """Trace the step, which creates lazy variables; return the variables that it uses."""
        return variables_of(self.several if several else self.one)

    @cached_property
    def one(self) -> Callable[..., Scalars]:
        """One step; called with the arguments of the source."""

        @tf.function(input_signature=self.source.signature, autograph=False)
        def one(*args: tf.Tensor) -> Scalars:
            return self._step(args)

        return one

    @cached_property
    def several(self) -> Callable[..., Scalars]:
        """Several steps; called with their number and the source's arguments; returns means."""

        @tf.function(input_signature=[_COUNT, *self.source.signature], autograph=False)
        def several(steps: tf.Tensor, *args: tf.Tensor) -> Scalars:
            names: list[str] = []  # filled while ``turn`` is traced

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
        """A step with fewer elements than towers.

        It is called with the number of elements, then the arguments of the source.
        The remaining towers repeat the first element, with zero weight.
        """
        return self._of_few("pad")

    @cached_property
    def smaller(self) -> Callable[..., Scalars]:
        """Like ``padded``, but the remaining towers compute nothing."""
        return self._of_few("smaller")

    def _step(self, args: Sequence[tf.Tensor]) -> Scalars:
        # All towers' elements are dequeued first, so that a step never runs with some missing.
        scalars = self.whole([self.source.tensors(*args) for _ in range(self.elements)])
        self.counts.add(scalars)
        return scalars

    def _of_few(self, remainder: Remainder) -> Callable[..., Scalars]:
        assert self.few is not None
        few = self.few

        @tf.function(input_signature=[_COUNT, *self.source.signature], autograph=False)
        def step(present: tf.Tensor, *args: tf.Tensor) -> Scalars:
            first = self.source.tensors(*args)
            elements = [first]
            for k in range(1, self.elements):
                element = tf.cond(k < present, lambda: self.source.tensors(*args), lambda: [*first])
                elements.append(element)
            scalars = few(elements, present, remainder)
            self.counts.add(scalars)
            return scalars

        return step
