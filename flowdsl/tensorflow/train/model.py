"""The protocols of models and optimizers for a trainer, and a base class for models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, cast

import tensorflow as tf

from flowdsl.errors import InvalidFlow
from flowdsl.tensorflow.inputs import InputSource
from flowdsl.tensorflow.train.binding import Binding, binding_of
from flowdsl.tensorflow.train.compiled import CompiledModel, Loss
from flowdsl.tensorflow.train.variables import trainable_of_keras


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

    They may be in lists, tuples and dicts, nested too. Attributes of other objects are not trained,
    as with ``tf.Module`` and Keras; training warns of variables that the loss uses there.

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
        found = [*super().trainable_variables, *trainable_of_keras(self)]
        return list({id(variable): variable for variable in found}.values())


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
    if isinstance(model, CompiledModel):
        return model.binding(source)
    return binding_of(model.loss, f"{name}.loss", source)


def named_scalars(
    model: Model,
    binding: Binding,
    inputs: Sequence[tf.Tensor],
) -> dict[str, tf.Tensor]:
    """The loss of one element, as ``"loss"``, and the model's other scalars to monitor.

    Raises:
        InvalidFlow: One of them is not a scalar, or is called ``loss`` too.
    """
    result = binding.call(model.loss, inputs)
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
    return CompiledModel(model)


def _has_keras_loss(model: tf.keras.Model) -> bool:
    """Whether the model does not define a loss of its own, as a method."""
    own = [cls for cls in type(model).__mro__ if not cls.__module__.startswith("keras.")]
    return not any(callable(vars(cls).get("loss")) for cls in own)
