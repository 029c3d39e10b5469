"""Towers: the devices of a step, and the placement of the model's variables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import local
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from flowdsl.tensorflow.train.placement import LeastLoadedDeviceSetter

Element: TypeAlias = Sequence[tf.Tensor]
Scalars: TypeAlias = dict[str, tf.Tensor]
Gradients: TypeAlias = Sequence[tf.Tensor]
Computed: TypeAlias = tuple[Scalars, Gradients]


class Towers(ABC):
    """Devices of this process, each of which takes one element of a step."""

    devices: tuple[str, ...]

    @property
    def total(self) -> int:
        """The number of towers, including those of other processes that take part in a step."""
        return len(self.devices)

    @abstractmethod
    def scope(self) -> Any:
        """Return a context in which the variables of a model and an optimizer are created."""

    def as_if_alone(self) -> AbstractContextManager[None]:
        """Return a context in which a tower computes its loss as if it were alone."""
        return nullcontext()

    def run_on_first(self, function: Callable[[], Scalars]) -> Scalars:
        """Call a function on the first tower only, within a TensorFlow function."""
        return function()

    def overflow_together(self, gradients: Gradients) -> Gradients:
        """Return the gradients to apply; if those of one tower have overflowed, all are NaN.

        An optimizer that scales the loss skips such a step, on all towers or on none.
        """
        return gradients

    @abstractmethod
    def run(self, tower: Callable[..., Scalars], elements: Sequence[Element]) -> Scalars:
        """Run a function on each device with its element; return the sums of its scalars."""

    @abstractmethod
    def train(
        self,
        computed: Callable[..., Computed],
        apply: Callable[[Gradients], object],
        elements: Sequence[Element],
    ) -> Scalars:
        """Compute on each device, and apply the sums of the gradients to the variables."""


class _UnscaledLosses(tf.distribute.Strategy):
    """A strategy in which Keras losses can be means over a tower's own batch.

    Keras losses divide themselves by the number of replicas, and so do losses written by
    TensorFlow's guide. A trainer divides every loss; dividing twice would make gradients too small
    by the number of towers. So while a loss is traced, the number of replicas is 1.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._traced = local()  # each replica is traced in its own thread
        super().__init__(*args, **kwargs)

    @property
    def num_replicas_in_sync(self) -> int:
        return 1 if getattr(self._traced, "alone", False) else int(super().num_replicas_in_sync)

    @contextmanager
    def as_if_alone(self) -> Iterator[None]:
        self._traced.alone = True
        try:
            yield
        finally:
            self._traced.alone = False


class Mirrored(_UnscaledLosses, tf.distribute.MirroredStrategy):
    """A mirrored strategy on the devices of this process."""


class MultiWorkerMirrored(_UnscaledLosses, tf.distribute.MultiWorkerMirroredStrategy):
    """A mirrored strategy on the devices of several processes."""


class Replicas(Towers):
    """Each device has its copy of the variables; a TensorFlow strategy keeps them equal."""

    def __init__(self, strategy: Mirrored | MultiWorkerMirrored, devices: Sequence[str]) -> None:
        self.strategy = strategy
        self.devices = tuple(devices)

    @property
    def total(self) -> int:
        return int(self.strategy.num_replicas_in_sync)

    def scope(self) -> Any:
        return self.strategy.scope()

    def as_if_alone(self) -> AbstractContextManager[None]:
        return self.strategy.as_if_alone()

    def run_on_first(self, function: Callable[[], Scalars]) -> Scalars:
        results: list[Scalars] = []

        def replica() -> None:
            context = tf.distribute.get_replica_context()
            if tf.get_static_value(context.replica_id_in_sync_group) == 0:
                results.append(function())

        self.strategy.run(replica)
        return results[-1]

    def overflow_together(self, gradients: Gradients) -> Gradients:
        finite = [tf.reduce_all(tf.math.is_finite(_values(each))) for each in gradients]
        overflowed_here = tf.cast(tf.logical_not(tf.reduce_all(finite)), tf.float32)
        overflows = tf.distribute.get_replica_context().all_reduce("SUM", overflowed_here)
        factor = tf.where(overflows > 0, np.nan, 1.0)
        return [_scaled(gradient, factor) for gradient in gradients]

    def run(self, tower: Callable[..., Scalars], elements: Sequence[Element]) -> Scalars:
        inputs = [self._spread(component) for component in zip(*elements, strict=True)]
        scalars = self.strategy.run(tower, args=inputs)
        return {name: self.strategy.reduce("SUM", v, axis=None) for name, v in scalars.items()}

    def train(
        self,
        computed: Callable[..., Computed],
        apply: Callable[[Gradients], object],
        elements: Sequence[Element],
    ) -> Scalars:
        def tower(*inputs: tf.Tensor) -> Scalars:
            scalars, gradients = computed(*inputs)
            apply(gradients)  # sums them over the replicas
            return scalars

        return self.run(tower, elements)

    def _spread(self, values: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """Return a distributed value with one value for each replica of this process."""

        def of_replica(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
            return values[context.replica_id_in_sync_group % len(values)]

        return self.strategy.experimental_distribute_values_from_function(of_replica)


class SharedVariables(Towers):
    """All devices share the variables, each of which is placed on the least loaded device."""

    def __init__(self, devices: Sequence[str], variables_on: Sequence[str]) -> None:
        self.devices = tuple(devices)
        self._setter = LeastLoadedDeviceSetter(devices[0], variables_on)

    @contextmanager
    def scope(self) -> Iterator[None]:
        with self._setter.scope():
            yield

    def run(self, tower: Callable[..., Scalars], elements: Sequence[Element]) -> Scalars:
        of_towers: list[Scalars] = []
        for device, element in zip(self.devices, elements, strict=True):
            with tf.device(device):
                of_towers.append(tower(*element))
        return _sums(of_towers)

    def train(
        self,
        computed: Callable[..., Computed],
        apply: Callable[[Gradients], object],
        elements: Sequence[Element],
    ) -> Scalars:
        all_gradients: list[Gradients] = []

        def tower(*inputs: tf.Tensor) -> Scalars:
            scalars, gradients = computed(*inputs)
            all_gradients.append(gradients)
            return scalars

        sums = self.run(tower, elements)
        apply([_sum_of_gradients(each) for each in zip(*all_gradients, strict=True)])
        return sums


def _values(gradient: Any) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _scaled(gradient: Any, factor: tf.Tensor) -> Any:
    values = _values(gradient) * tf.cast(factor, gradient.dtype)
    if not isinstance(gradient, tf.IndexedSlices):
        return values
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)


def _sums(of_towers: Sequence[Scalars]) -> Scalars:
    with tf.device("/cpu:0"):
        return {name: tf.add_n([scalars[name] for scalars in of_towers]) for name in of_towers[0]}


def _sum_of_gradients(gradients: tuple[Any, ...]) -> Any:
    """Sum the gradients of one variable, None if it has none; sparse ones stay sparse."""
    present = [gradient for gradient in gradients if gradient is not None]
    if not present:
        return None
    if all(isinstance(gradient, tf.IndexedSlices) for gradient in present):
        return tf.IndexedSlices(
            tf.concat([gradient.values for gradient in present], 0),
            tf.concat([gradient.indices for gradient in present], 0),
            present[0].dense_shape,
        )
    return tf.add_n([tf.convert_to_tensor(gradient) for gradient in present])
