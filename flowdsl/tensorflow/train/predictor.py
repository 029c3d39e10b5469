"""Predictors: functions from named inputs to named outputs of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any

import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from flowdsl.errors import InvalidArgument
from flowdsl.tensorflow.train.compiled import CompiledModel
from flowdsl.tensorflow.train.model import Model


class OnlinePredictor:
    """Calls methods of a model on its current variables; each call is one TensorFlow function.

    Call it with the values of ``input_names``, in order; it returns the arrays of ``output_names``.

    Source: ``OnlinePredictor`` in tensorpack.
    """

    def __init__(
        self,
        outputs: Sequence[Callable[[Mapping[str, tf.Tensor]], Any]],
        input_names: Sequence[str],
        output_names: Sequence[str],
        device: str,
    ) -> None:
        self.input_names, self.output_names = tuple(input_names), tuple(output_names)
        self.device = device

        @tf.function(autograph=False, reduce_retracing=True)
        def predict(*values: tf.Tensor) -> list[tf.Tensor]:
            named = dict(zip(self.input_names, values, strict=True))
            with tf.device(device):
                return [output(named) for output in outputs]

        self._predict: Callable[..., list[tf.Tensor]] = predict

    def __call__(self, *inputs: ArrayLike | tf.Tensor) -> list[NDArray[Any]]:
        """Return the outputs for these inputs.

        Raises:
            InvalidArgument: There are too few inputs, or too many.
        """
        if len(inputs) != len(self.input_names):
            raise InvalidArgument(
                f"predictor: it takes {len(self.input_names)} inputs "
                f"({', '.join(self.input_names)}), got {len(inputs)}"
            )
        results = self._predict(*[tf.convert_to_tensor(value) for value in inputs])
        return [output.numpy() for output in results]


def predictor_of(
    model: Model, input_names: Sequence[str], output_names: Sequence[str], device: str
) -> OnlinePredictor:
    """Create the predictor of a model; raises InvalidArgument for unknown methods or inputs."""
    used: set[str] = set()
    outputs = [_output(model, name, input_names, used) for name in output_names]
    if unused := [name for name in input_names if name not in used]:
        raise InvalidArgument(
            f"get_predictor: none of {', '.join(output_names)} takes the input {unused[0]!r}"
        )
    return OnlinePredictor(outputs, input_names, output_names, device)


def _output(
    model: Model, name: str, inputs: Sequence[str], used: set[str]
) -> Callable[[Mapping[str, tf.Tensor]], Any]:
    if isinstance(model, CompiledModel):
        net = model.net
        if name not in _outputs_of_keras(net) or len(inputs) != len(net.inputs):
            raise InvalidArgument(
                f"get_predictor: the Keras model {net.name!r} has the output(s) "
                f"{', '.join(_outputs_of_keras(net))} and {len(net.inputs)} input(s); requested: "
                f"{name!r} of {len(inputs)}"
            )
        used.update(inputs)
        return lambda values: _output_of_keras(net, name, [values[each] for each in inputs])
    method = getattr(model, name, None)
    if not callable(method):
        raise InvalidArgument(
            f"get_predictor: {type(model).__name__} has no method {name!r}: an output is the "
            f"result of a method of the model, whose arguments are named as the inputs"
        )
    parameters = signature(method).parameters.values()
    taken = [p.name for p in parameters if p.name in inputs]
    missing = [p.name for p in parameters if p.default is Parameter.empty and p.name not in inputs]
    if missing or not taken:
        raise InvalidArgument(
            f"get_predictor: {type(model).__name__}.{name}{signature(method)} needs "
            f"{', '.join(missing) or 'none of the inputs'}, the inputs are {', '.join(inputs)}"
        )
    used.update(taken)

    def output(values: Mapping[str, tf.Tensor]) -> Any:
        return method(**{each: values[each] for each in taken})

    return output


def _outputs_of_keras(net: tf.keras.Model) -> list[str]:
    """Return the valid names of outputs; ``"output"`` is the only or first one."""
    return ["output", *getattr(net, "output_names", ())]  # a Sequential names none


def _output_of_keras(net: tf.keras.Model, name: str, values: Sequence[tf.Tensor]) -> Any:
    outputs: Any = net(values[0] if len(values) == 1 else [*values], training=False)
    if isinstance(outputs, (list, tuple)):
        return outputs[max(0, _outputs_of_keras(net).index(name) - 1)]
    return outputs[name] if isinstance(outputs, dict) else outputs
