"""The protocols of models and optimizers for a trainer, and a base class for models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, cast

import tensorflow as tf

from flowdsl.errors import InvalidArgument
from flowdsl.tensorflow.inputs import InputSource
from flowdsl.tensorflow.train.binding import Binding, binding_of
from flowdsl.tensorflow.train.compiled import CompiledModel, Loss
from flowdsl.tensorflow.train.variables import trainable_of_keras


class Model(Protocol):
    """A model: variables, and a loss whose arguments are the components of one element.

    The components of a dict or a record are passed by name. The components of a tuple are passed by
    position, and so are those of a NamedTuple, unless all of its names are arguments.

    ``loss`` is traced without AutoGraph, as in Keras 3: decorate a part that needs an ``if`` over
    tensors with ``tf.function``. A checkpoint stores what TensorFlow can track, so derive from
    ``ModelDesc`` or ``tf.Module``.
    """

    @property
    def trainable_variables(self) -> Sequence[tf.Variable]: ...

    @property
    def loss(self) -> Callable[..., Loss]: ...


GivenModel: TypeAlias = Model | tf.Module | tf.keras.Model
"""A model with a loss; one without, for a trainer with its own step; or a Keras model."""


class ModelDesc(tf.Module):
    """A base class for models, which finds the variables of its attributes, including Keras layers.

    They may be in nested lists, tuples and dicts. As with ``tf.Module`` and Keras, variables inside
    other objects are not trained; training warns of variables that the loss uses there.

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

    A ``tf.Module`` alone does not look into Keras layers, so it would train without them, and a
    ``tf.keras.Model`` has a ``loss`` of its own. Source: ``ModelDesc`` in tensorpack.
    """

    @property
    def trainable_variables(self) -> Sequence[tf.Variable]:
        found = [*super().trainable_variables, *trainable_of_keras(self)]
        return list({id(variable): variable for variable in found}.values())


class Optimizer(Protocol):
    """The methods that a trainer needs of an optimizer; Keras 3's optimizers have them.

    ``apply`` runs on every tower, with the tower's gradients of ``loss / towers``. It sums them
    over the towers, as Keras does, and applies the sum to the tower's copy of each variable.
    """

    def build(self, variables: Sequence[tf.Variable], /) -> object:
        """Create the optimizer's own variables."""

    def apply(self, grads: Sequence[tf.Tensor], variables: Sequence[tf.Variable], /) -> object:
        """Take one step."""


def binding_of_loss(model: Model, source: InputSource) -> Binding:
    """Return how the loss of a model takes the elements of a source.

    Raises:
        InvalidArgument: It does not, or the model has nothing to train; the message has a remedy.
    """
    name = type(model).__name__
    if not callable(getattr(model, "loss", None)):
        raise InvalidArgument(
            f"{name} has no method loss(self, <components of an element>): define it, or train "
            f"with a step of your own, by FeedfreeTrainerBase.build_train_tower"
        )
    if not model.trainable_variables:
        raise InvalidArgument(
            f"{name} has no trainable variables: derive it from ModelDesc, which finds the "
            f"variables of Keras layers, and build these with an input shape (tf.keras.Input)"
        )
    if isinstance(model, CompiledModel):
        return model.binding(source)
    return binding_of(model.loss, f"{name}.loss", source)


def named_scalars(
    model: Model,
    binding: Binding,
    inputs: Sequence[tf.Tensor],
) -> dict[str, tf.Tensor]:
    """Return the loss of one element, as ``"loss"``, and the model's other scalars to monitor.

    Raises:
        InvalidArgument: A value is not a scalar, or another one is named ``loss``.
    """
    result = binding.call(model.loss, inputs)
    label = f"{type(model).__name__}.loss"
    loss, others = _parts(label, result)
    if "loss" in others:
        raise InvalidArgument(f"{label}: 'loss' names the loss itself; rename it")
    scalars = {"loss": loss, **others}
    for name, value in scalars.items():
        if value.shape.rank != 0:
            raise InvalidArgument(
                f"{label}: {name!r} has shape {_described(value.shape)}, but a "
                f"scalar is needed: reduce it over the batch, e.g. with tf.reduce_mean"
            )
    return {name: tf.cast(value, tf.float32) for name, value in scalars.items()}


def _parts(label: str, result: object) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Return a loss and the other scalars; raise InvalidArgument for anything else."""
    loss, others = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
    wanted = "return a scalar tensor, or (loss, {name: scalar tensor})"
    if not isinstance(others, Mapping):
        raise InvalidArgument(f"{label}: {wanted}, got (loss, {type(others).__name__})")
    return _tensor(label, wanted, "loss", loss), {
        name: _tensor(label, wanted, name, value) for name, value in others.items()
    }


def _tensor(label: str, wanted: str, name: object, value: object) -> tf.Tensor:
    try:
        if isinstance(name, str) and value is not None:
            return tf.convert_to_tensor(value)  # also variables and numbers
    except (TypeError, ValueError):
        pass
    missing = " (is a return missing?)" if value is None else ""
    raise InvalidArgument(f"{label}: {wanted}; {name!r} is of type {type(value).__name__}{missing}")


def _described(shape: tf.TensorShape) -> str:
    if shape.rank is None:
        return "unknown (set it with tf.ensure_shape(value, []))"
    return str(tuple(shape))


def create_model(source: Callable[[], GivenModel] | GivenModel | None, towers: int) -> Model:
    """Return the model of a configuration, which is a model or a function that creates it.

    Raises:
        InvalidArgument: It is missing; or it is a model, but several towers need a copy each; or it
            is a Keras model that is not compiled.
    """
    if source is None:
        raise InvalidArgument(
            "TrainConfig: model is missing: pass the class, or a function without "
            "arguments that creates it"
        )
    model: object
    if isinstance(source, (tf.Module, tf.keras.Model)) or not callable(source):
        if towers > 1:
            raise InvalidArgument(
                f"TrainConfig: model is a {type(source).__name__} that is made already, and each "
                f"of {towers} towers needs its variables: pass a function that creates it, "
                f"model=lambda: ..."
            )
        model = source
    else:
        model = source()
    if not isinstance(model, tf.keras.Model) or not _has_keras_loss(model):
        return cast("Model", model)
    return CompiledModel(model)


def _has_keras_loss(model: tf.keras.Model) -> bool:
    """Return True if the model does not define a loss of its own, as a method."""
    own = [cls for cls in type(model).__mro__ if not cls.__module__.startswith("keras.")]
    return not any(callable(vars(cls).get("loss")) for cls in own)
