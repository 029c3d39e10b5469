"""The protocols of models and optimizers for a trainer, and a base class for models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, cast

import tensorflow as tf

from flowdsl.errors import InvalidFlow
from flowdsl.graph import InputSource
from flowdsl.train.binding import Binding, binding_of

Scalars: TypeAlias = Mapping[str, tf.Tensor]
"""Scalars to monitor, by name."""

Loss: TypeAlias = tf.Tensor | tuple[tf.Tensor, Scalars]
"""The loss, a scalar mean over the batch; or a pair of it and other batch means to monitor."""


class Model(Protocol):
    """Variables, and a loss whose arguments are the components of one element.

    Those of a dict or a record go to the arguments of their names; those of a tuple by their
    places, a NamedTuple's too unless all of its names are arguments.

    ``loss`` is traced as it is, without AutoGraph, as Keras 3 does: where it needs an ``if`` over
    tensors, decorate that part with ``tf.function``. A checkpoint holds what TensorFlow can track,
    so derive from ``ModelDesc`` or ``tf.Module``.
    """

    @property
    def trainable_variables(self) -> Sequence[tf.Variable]: ...

    @property
    def loss(self) -> Callable[..., Loss]: ...


GivenModel: TypeAlias = Model | tf.Module | tf.keras.Model
"""A model with a loss; one without, for a trainer that has a step of its own; or one of Keras."""


class ModelDesc(tf.Module):
    """A base for models, which finds the variables of its attributes, Keras layers included.

    >>> import tensorflow as tf
    >>> class Linear(ModelDesc):
    ...     def __init__(self) -> None:
    ...         super().__init__()
    ...         self.net = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
    ...         self.scale = tf.Variable(1.0, name="scale")
    ...
    ...     def loss(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    ...         return tf.reduce_mean((self.scale * self.net(x) - y) ** 2)
    >>> [variable.name for variable in Linear().trainable_variables]
    ['scale:0', 'kernel', 'bias']

    A ``tf.Module`` alone does not see what is inside Keras layers, so it would train without them,
    and a ``tf.keras.Model`` has a ``loss`` of its own. Source: ``ModelDesc`` in tensorpack.
    """

    @property
    def trainable_variables(self) -> Sequence[tf.Variable]:
        found = list(super().trainable_variables)
        for module in (self, *self.submodules):
            for value in vars(module).values():
                for part in value if isinstance(value, (list, tuple)) else (value,):
                    if isinstance(part, tf.keras.layers.Layer):
                        found += part.trainable_variables
        return list({id(variable): variable for variable in found}.values())


class CompiledModel(tf.Module):
    """A compiled Keras model as a ``Model``: its loss of ``(x, y)``, or ``(x, y, sample_weight)``.

    The penalties of its layers, such as L2, are part of the loss, as in ``fit``.
    """

    def __init__(self, net: tf.keras.Model) -> None:
        super().__init__()
        self.net = net

    @property
    def trainable_variables(self) -> Sequence[tf.Variable]:
        return self.net.trainable_variables

    def loss(self, x: tf.Tensor, y: tf.Tensor, sample_weight: tf.Tensor | None = None) -> tf.Tensor:
        return self.net.compute_loss(x, y, self.net(x, training=True), sample_weight, True)

    def evaluated(
        self, x: tf.Tensor, y: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> tf.Tensor:
        """The loss as ``evaluate`` has it: layers such as dropout do nothing."""
        return self.net.compute_loss(x, y, self.net(x, training=False), sample_weight, False)


class Optimizer(Protocol):
    """The methods that a trainer needs of an optimizer; Keras 3's optimizers have them.

    ``apply`` runs on every tower, with the tower's gradients of ``loss / towers``. It adds them up
    over the towers, as Keras does, and applies the sum to the tower's copy of each variable.
    """

    def build(self, variables: Sequence[tf.Variable], /) -> object:
        """Make the optimizer's own variables."""

    def apply(self, grads: Sequence[tf.Tensor], variables: Sequence[tf.Variable], /) -> object:
        """Take one step."""


def binding_of_loss(model: Model, source: InputSource) -> Binding:
    """How the loss of a model takes the elements of a source.

    Raises:
        InvalidFlow: It does not, or the model has nothing to train; it says what to write instead.
    """
    name = type(model).__name__
    if not callable(getattr(model, "loss", None)):
        raise InvalidFlow(
            f"{name} has no method loss(self, <components of an element>): define it, or train "
            f"with a step of your own, by FeedfreeTrainerBase.build_train_tower"
        )
    if not model.trainable_variables:
        raise InvalidFlow(
            f"{name} has no trainable variables: derive it from ModelDesc, which finds those of "
            f"Keras layers, and build these with an input shape (tf.keras.Input)"
        )
    return binding_of(model.loss, f"{name}.loss", source)


def evaluated(model: Model) -> Callable[..., Loss]:
    """The loss of a model where it does not train."""
    return model.evaluated if isinstance(model, CompiledModel) else model.loss


def named_scalars(
    model: Model,
    binding: Binding,
    inputs: Sequence[tf.Tensor],
    method: Callable[..., Loss] | None = None,
) -> dict[str, tf.Tensor]:
    """The loss of one element, as ``"loss"``, and the model's other scalars to monitor.

    Raises:
        InvalidFlow: One of them is not a scalar, or is called ``loss`` too.
    """
    result = binding.call(method or model.loss, inputs)
    loss, others = result if isinstance(result, tuple) else (result, {})
    if "loss" in others:
        raise InvalidFlow(f"{type(model).__name__}.loss: 'loss' names the loss itself; rename it")
    scalars = {"loss": loss, **others}
    for name, value in scalars.items():
        if value.shape.rank != 0:
            raise InvalidFlow(
                f"{type(model).__name__}.loss: {name!r} has shape {_told(value.shape)}, a scalar "
                f"is needed: reduce it over the batch, e.g. with tf.reduce_mean"
            )
    return {name: tf.cast(value, tf.float32) for name, value in scalars.items()}


def _told(shape: tf.TensorShape) -> str:
    if shape.rank is None:
        return "unknown (give it one with tf.ensure_shape(value, []))"
    return str(tuple(shape))


def made_model(given: Callable[[], GivenModel] | GivenModel | None, towers: int) -> Model:
    """The model of a configuration: made by the function that was given, or what was given.

    Raises:
        InvalidFlow: There is none; or it is there already, and several towers need a copy each; or
            it is a Keras model that is not compiled.
    """
    if given is None:
        raise InvalidFlow(
            "TrainConfig: model is missing: give the class, or a function without "
            "arguments that makes it"
        )
    model: object
    if isinstance(given, (tf.Module, tf.keras.Model)) or not callable(given):
        if towers > 1:
            raise InvalidFlow(
                f"TrainConfig: model is a {type(given).__name__} that is made already, and each of "
                f"{towers} towers needs its variables: give a function that makes it, "
                f"model=lambda: ..."
            )
        model = given
    else:
        model = given()
    if not isinstance(model, tf.keras.Model) or not _has_keras_loss(model):
        return cast("Model", model)
    if getattr(model, "optimizer", None) is None:  # it is there once it is compiled
        raise InvalidFlow(
            f"TrainConfig: the Keras model {model.name!r} is not compiled, so it has no loss: call "
            f"its compile(optimizer=..., loss=...), or derive a model from ModelDesc"
        )
    return CompiledModel(model)


def _has_keras_loss(model: tf.keras.Model) -> bool:
    """Whether the model does not define a loss of its own, as a method."""
    return not callable(vars(type(model)).get("loss"))
