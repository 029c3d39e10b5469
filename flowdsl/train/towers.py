"""Towers: the devices that a step is spread over, and where the variables of the model are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import tensorflow as tf

from flowdsl.train.placement import LeastLoadedDeviceSetter

Element: TypeAlias = Sequence[tf.Tensor]
Scalars: TypeAlias = dict[str, tf.Tensor]
Gradients: TypeAlias = Sequence[tf.Tensor]
Computed: TypeAlias = tuple[Scalars, Gradients]


class Towers(ABC):
    """So many devices of this process, each of which takes an element of a step."""

    devices: tuple[str, ...]

    @property
    def total(self) -> int:
        """How many there are, with those of other processes that take part in a step."""
        return len(self.devices)

    @abstractmethod
    def scope(self) -> Any:
        """A context in which the variables of a model and of an optimizer are made."""

    @abstractmethod
    def run(self, tower: Callable[..., Scalars], elements: Sequence[Element]) -> Scalars:
        """Run a function on each device with its element; gives the sums of its scalars."""

    @abstractmethod
    def train(
        self,
        computed: Callable[..., Computed],
        apply: Callable[[Gradients], object],
        elements: Sequence[Element],
    ) -> Scalars:
        """Compute on each device, and apply the sums of the gradients to the variables."""


class Replicas(Towers):
    """Each device has its copy of the variables; a strategy of TensorFlow keeps them equal."""

    def __init__(self, strategy: tf.distribute.Strategy, devices: Sequence[str]) -> None:
        self.strategy = strategy
        self.devices = tuple(devices)

    @property
    def total(self) -> int:
        return int(self.strategy.num_replicas_in_sync)

    def scope(self) -> Any:
        return self.strategy.scope()

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
            apply(gradients)  # which adds them up over the replicas
            return scalars

        return self.run(tower, elements)

    def _spread(self, values: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """One value for each replica of this process."""

        def of_replica(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
            return values[context.replica_id_in_sync_group % len(values)]

        return self.strategy.experimental_distribute_values_from_function(of_replica)


class SharedVariables(Towers):
    """All devices share the variables, each of which is on the least loaded of some devices."""

    def __init__(self, devices: Sequence[str], variables_on: Sequence[str]) -> None:
        self.devices = tuple(devices)
        self._setter = LeastLoadedDeviceSetter(devices[0], variables_on)

    @contextmanager
    def scope(self) -> Iterator[None]:
        with self._setter.scope():
            yield

    def run(self, tower: Callable[..., Scalars], elements: Sequence[Element]) -> Scalars:
        every: list[Scalars] = []
        for device, element in zip(self.devices, elements, strict=True):
            with tf.device(device):
                every.append(tower(*element))
        return _sums(every)

    def train(
        self,
        computed: Callable[..., Computed],
        apply: Callable[[Gradients], object],
        elements: Sequence[Element],
    ) -> Scalars:
        found: list[Gradients] = []

        def tower(*inputs: tf.Tensor) -> Scalars:
            scalars, gradients = computed(*inputs)
            found.append(gradients)
            return scalars

        sums = self.run(tower, elements)
        apply([_sum_of_gradients(each) for each in zip(*found, strict=True)])
        return sums


def _sums(every: Sequence[Scalars]) -> Scalars:
    with tf.device("/cpu:0"):
        return {name: tf.add_n([scalars[name] for scalars in every]) for name in every[0]}


def _sum_of_gradients(gradients: tuple[Any, ...]) -> Any:
    """Of one variable; None where no device has one. Those of an embedding stay sparse."""
    there = [gradient for gradient in gradients if gradient is not None]
    if not there:
        return None
    if all(isinstance(gradient, tf.IndexedSlices) for gradient in there):
        return tf.IndexedSlices(
            tf.concat([gradient.values for gradient in there], 0),
            tf.concat([gradient.indices for gradient in there], 0),
            there[0].dense_shape,
        )
    return tf.add_n([tf.convert_to_tensor(gradient) for gradient in there])
