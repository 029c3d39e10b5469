"""A compiled Keras model, trained and evaluated as by ``fit`` and ``evaluate``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from math import prod
from typing import Any, TypeAlias, TypeVar

import attrs
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from flowdsl.errors import InvalidArgument
from flowdsl.tensorflow.inputs import InputSource
from flowdsl.tensorflow.train.binding import Binding, binding_of_names

R = TypeVar("R")

Scalars: TypeAlias = Mapping[str, tf.Tensor]
"""Scalars to monitor, by name."""

Loss: TypeAlias = tf.Tensor | tuple[tf.Tensor, Scalars]
"""The loss, a scalar mean over the batch; or a pair of the loss and other batch means."""

Values: TypeAlias = Any
"""A tensor, or tensors in tuples and dicts, as Keras models take and return them."""


class CompiledModel(tf.Module):
    """A compiled Keras model as a ``Model``: its loss of ``(x, y)``, or ``(x, y, sample_weight)``.

    Each of the three may be a tuple or a dict of tensors. As in ``fit``, penalties of layers, such
    as L2, are part of the loss, and metrics are updated.

    Raises:
        InvalidArgument: The model is not compiled.
    """

    def __init__(self, net: tf.keras.Model) -> None:
        super().__init__()
        if getattr(net, "optimizer", None) is None:  # set by compile()
            raise InvalidArgument(
                f"TrainConfig: the Keras model {net.name!r} is not compiled, so it has no loss: "
                f"call its compile(optimizer=..., loss=...), or derive a model from ModelDesc"
            )
        self.net = net
        self.measures = True
        """True if metrics are updated while training."""

    @property
    def trainable_variables(self) -> Sequence[tf.Variable]:
        return self.net.trainable_variables

    @property
    def has_its_own_step(self) -> bool:
        """True if its class overrides ``train_step``."""
        return type(self.net).train_step is not tf.keras.Model.train_step

    @property
    def has_metrics(self) -> bool:
        """True if it measures more than its loss."""
        return any(metric.name != "loss" for metric in self.net.metrics)

    def binding(self, source: InputSource) -> Binding:
        """Return how ``loss`` takes the elements of a source.

        Raises:
            InvalidArgument: The elements are not ``(x, y)`` or ``(x, y, sample_weight)``.
        """
        paths = tuple(tuple(str(spec.name).split(".")) for spec in source.specs)
        names = list(dict.fromkeys(path[0] for path in paths))
        label = f"the Keras model {self.net.name!r}: loss"
        if not source.by_position and not {*names} <= {"x", "y", "sample_weight"}:
            raise InvalidArgument(
                f"{label}(x, y, sample_weight) does not take an element, whose components are "
                f"({', '.join(names)}): make it (x, y) with .map, where x and y may be dicts"
            )
        bound = binding_of_names(self.loss, label, names, source.by_position)
        return _Nested(bound.names, paths)

    def build(self, binding: Binding, specs: Sequence[tf.TensorSpec]) -> None:
        """Create what the model creates with its first batch, such as variables of metrics.

        A replica cannot create them within a step.
        """
        if any(spec.shape.rank is None for spec in specs):
            return
        batch = [tf.zeros([1 if n is None else n for n in s.shape], s.dtype) for s in specs]
        self.net._symbolic_build(data_batch=binding.call(_packed, batch))  # as in fit

    def loss(self, x: Values, y: Values = None, sample_weight: Values = None) -> Loss:
        """Return the loss of a batch, and the metrics' values since their reset."""
        net = self.net
        predicted = net(x, training=True) if _takes_training(net.call) else net(x)
        training = {"training": True} if _takes_training(net.compute_loss) else {}
        loss = net.compute_loss(x, y, predicted, sample_weight, **training)
        if not self.measures:
            return loss, {}
        for metric in net.metrics:
            if metric.name == "loss":
                metric.update_state(loss, sample_weight=_rows(x))
        return loss, _scalars(net.compute_metrics(x, y, predicted, sample_weight), without="loss")

    def train_step(self, x: Values, y: Values = None, sample_weight: Values = None) -> Scalars:
        """Run the model's own training step and return its logs."""
        return _scalars(self.net.train_step(_packed(x, y, sample_weight)))

    def test_step(self, x: Values, y: Values = None, sample_weight: Values = None) -> Scalars:
        """Run a step of ``evaluate``, in which layers such as dropout are inactive."""
        return _scalars(self.net.test_step(_packed(x, y, sample_weight)))

    def reset_metrics(self) -> None:
        """Reset the metrics, as at the start of an epoch."""
        self.net.reset_metrics()

    def metrics_state(self) -> list[NDArray[Any]]:
        """Return the state of training's metrics, for ``restore_metrics``."""
        return [variable.numpy() for variable in self._metric_variables]

    def restore_metrics(self, state: Sequence[NDArray[Any]]) -> None:
        """Restore the metrics to a state of ``metrics_state``."""
        for variable, value in zip(self._metric_variables, state, strict=True):
            variable.assign(value)

    @property
    def _metric_variables(self) -> Sequence[tf.Variable]:
        # Where they are not measured, they may be in other processes: reading one waits for these.
        return self.net.metrics_variables if self.measures else ()

    def measured(self) -> dict[str, float]:
        """Return the metrics' values since their reset; vectors are split into numbered scalars."""
        scalars: dict[str, float] = {}
        for name, value in self.net.get_metrics_result().items():
            array = np.asarray(value)
            if array.ndim:
                scalars.update({f"{name}_{k}": float(each) for k, each in enumerate(array.flat)})
            else:
                scalars[name] = float(array)
        return scalars


@attrs.frozen
class _Nested(Binding):
    """Passes a step's flat components in the tuples and dicts that they came from."""

    paths: tuple[tuple[str, ...], ...] = ()

    def call(self, function: Callable[..., R], components: Sequence[tf.Tensor]) -> R:
        nested = _nested(list(zip(self.paths, components, strict=True)))
        return super().call(function, list(nested.values()) if isinstance(nested, dict) else nested)


def _nested(parts: Sequence[tuple[tuple[str, ...], tf.Tensor]]) -> Values:
    """Nest tensors by their paths: into tuples for numbered names, else into dicts."""
    if not parts[0][0]:
        return parts[0][1]
    groups: dict[str, list[tuple[tuple[str, ...], tf.Tensor]]] = {}
    for (name, *rest), tensor in parts:
        groups.setdefault(name, []).append((tuple(rest), tensor))
    named = {name: _nested(group) for name, group in groups.items()}
    return tuple(named.values()) if list(named) == [*map(str, range(len(named)))] else named


def _takes_training(function: Callable[..., object]) -> bool:
    taken = signature(function).parameters.values()
    return any(p.name == "training" or p.kind is Parameter.VAR_KEYWORD for p in taken)


def _rows(x: Values) -> tf.Tensor:
    while isinstance(x, (dict, tuple)):
        x = next(iter(x.values() if isinstance(x, dict) else x))
    return tf.shape(x)[0]


def _packed(x: Values, y: Values = None, sample_weight: Values = None) -> Values:
    return tf.keras.utils.pack_x_y_sample_weight(x, y, sample_weight)


def _scalars(logs: Mapping[str, Any], without: str = "") -> dict[str, tf.Tensor]:
    """Convert logs to scalars; a metric of several numbers is split into several scalars."""
    scalars: dict[str, tf.Tensor] = {}
    for name, value in logs.items():
        tensor = tf.cast(tf.convert_to_tensor(value), tf.float32)
        if tensor.shape.rank == 0:
            scalars[name] = tensor
        else:
            flat = tf.reshape(tensor, [-1])
            numbers = prod(dim or 0 for dim in tensor.shape)
            scalars.update({f"{name}_{k}": flat[k] for k in range(numbers)})
    scalars.pop(without, None)
    return scalars
