"""InferenceRunner: means of scalars over a whole finite flow, each row counted once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

import tensorflow as tf

from flowdsl.effects import Endless, Reordered, Resampled, Unsized, describe
from flowdsl.errors import FlowError, InvalidArgument
from flowdsl.flow import Flow
from flowdsl.nodes import checked, checked_function
from flowdsl.tensorflow.inputs import EndOfPass, InputSource, QueueInput, StagingInput
from flowdsl.tensorflow.train.binding import binding_of
from flowdsl.tensorflow.train.callbacks.base import Callback
from flowdsl.tensorflow.train.compiled import CompiledModel, Scalars
from flowdsl.tensorflow.train.model import Model, named_scalars
from flowdsl.tensorflow.train.towers import Towers


def _require_flow(flow: object) -> None:
    if isinstance(flow, StagingInput):
        raise InvalidArgument(
            "InferenceRunner: a StagingInput is only for training: it takes the elements of "
            "later steps in advance, so the last ones would not be counted; pass the flow itself"
        )
    if not isinstance(flow, Flow):
        is_source = isinstance(flow, InputSource)
        advice = "pass the flow itself" if is_source else "make one with from_items"
        raise InvalidArgument(
            f"InferenceRunner: flow must be a Flow, with each row exactly once, got "
            f"{type(flow).__name__}; {advice}"
        )


class InferenceRunner(Callback):
    """After each epoch, runs a finite flow through the model and reports means over its rows.

    The flow must contain each row exactly once, in any order (``Flow[B, Reordered]``): after
    ``repeat`` or ``shuffle().take(n)`` it is a type error, and ``InvalidArgument`` at run time.

    By default, the scalars are the scalars of ``model.loss``. ``scalars`` is a method of the model
    to use instead, e.g. ``Digits.predictive``, if the loss behaves differently in training. Scalars
    are means over a batch and are weighted by its rows, so a small last batch has its proper
    weight. They are named ``validation_loss``, ...; ``validation_rows`` is the number of rows. For
    a compiled Keras model, they are the results of its ``evaluate``, including metrics. Each runner
    needs its own ``prefix``.

    Source: ``InferenceRunner`` in tensorpack, which takes any dataflow and averages over batches.
    """

    def __init__(
        self,
        flow: Flow[object, Reordered],
        scalars: Callable[..., Scalars] | None = None,
        *,
        prefix: str = "validation",
        capacity: int = 50,
        spec: Sequence[tf.TensorSpec] | None = None,
    ) -> None:
        _require_flow(flow)
        lossy = flow.effects & {Resampled, Unsized, Endless}
        if lossy:
            raise InvalidArgument(
                f"InferenceRunner: each row must count exactly once, but this flow is "
                f"{describe(frozenset(flow.effects))}; use one without {describe(lossy)}"
            )
        self.prefix = checked("InferenceRunner: prefix", prefix, str, "text")
        self._scalars = scalars
        if scalars is not None:
            expected = "a method of the model that returns scalars, such as Digits.predictive"
            checked_function("InferenceRunner: scalars", scalars, expected)
        self._source = QueueInput(flow, capacity=capacity, spec=spec)

    def before_train(self) -> None:
        self.trainer.monitors.reserve(self.prefix, self)
        model = self.trainer.model
        self._measure: _OfLoss | _OfCompiled
        if isinstance(model, CompiledModel) and self._scalars is None:
            self._measure = _OfCompiled(model, self.trainer.devices, self._source)
        else:
            self._measure = _OfLoss(model, self._scalars, self._source)

    def trigger(self) -> None:
        for name, value in self.evaluate().items():
            self.trainer.monitors.put_scalar(f"{self.prefix}_{name}", value)

    def after_train(self) -> None:
        self._source.close()

    def evaluate(self) -> dict[str, float]:
        """Run one pass over the flow; return means of scalars over its rows, and the row count."""
        rows = elements = 0
        source = self._source
        with self._measure as measured:
            source.reset()
            while True:
                try:
                    args = source.next_args()
                except EndOfPass:
                    break
                elements += 1
                rows += measured.add(args)
            expected = source.size()
            if elements != expected or not rows:
                raise FlowError(f"InferenceRunner: the flow had {elements} elements of {expected}")
            return {**measured.result(rows), "rows": rows}


class _OfLoss:
    """Means of a model's scalars over rows."""

    def __init__(self, model: Model, scalars: Callable[..., Scalars] | None, source: InputSource):
        if scalars is None:
            binding = binding_of(model.loss, f"{type(model).__name__}.loss", source)
        else:
            binding = binding_of(partial(scalars, model), "InferenceRunner: scalars", source)

        @tf.function(input_signature=source.signature, autograph=False)
        def measure(*args: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
            inputs = source.tensors(*args)
            if scalars is None:
                return named_scalars(model, binding, inputs), _rows(inputs)
            return dict(binding.call(partial(scalars, model), inputs)), _rows(inputs)

        self._measure = measure

    def __enter__(self) -> Self:
        self._sums: dict[str, float] = {}
        return self

    def __exit__(self, *error: object) -> None:
        self._sums = {}

    def add(self, args: tuple[tf.Tensor, ...]) -> int:
        """Measure an element and return its number of rows."""
        scalars, rows = self._measure(*args)
        for name, value in scalars.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value) * int(rows)
        return int(rows)

    def result(self, rows: int) -> dict[str, float]:
        """Return the means over ``rows`` rows."""
        return {name: value / rows for name, value in self._sums.items()}


class _OfCompiled:
    """The results of ``evaluate``; metrics start with the pass, and training's metrics are kept."""

    def __init__(self, model: CompiledModel, towers: Towers, source: InputSource) -> None:
        binding = model.binding(source)
        self._model = model

        @tf.function(input_signature=source.signature, autograph=False)
        def measure(*args: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
            inputs = source.tensors(*args)
            logs = towers.run_on_first(lambda: dict(binding.call(model.test_step, inputs)))
            return logs, _rows(inputs)

        def reset_metrics() -> dict[str, tf.Tensor]:
            model.reset_metrics()
            return {}

        @tf.function(autograph=False)
        def reset() -> None:
            # Only on the tower that measures: a reset on all would wait for other processes.
            towers.run_on_first(reset_metrics)

        self._measure, self._reset = measure, reset

    def __enter__(self) -> Self:
        self._metrics_of_training = self._model.metrics_state()
        self._reset()
        self._logs: dict[str, tf.Tensor] = {}
        return self

    def __exit__(self, *error: object) -> None:
        self._model.restore_metrics(self._metrics_of_training)

    def add(self, args: tuple[tf.Tensor, ...]) -> int:
        """Measure an element and return its number of rows."""
        self._logs, rows = self._measure(*args)
        return int(rows)

    def result(self, rows: int) -> dict[str, float]:
        """Return the logs of the last step, in which metrics have accumulated all batches."""
        return {name: float(value) for name, value in self._logs.items()}


def _rows(inputs: Sequence[tf.Tensor]) -> tf.Tensor:
    first = inputs[0]
    return tf.shape(first)[0] if first.shape.rank else tf.constant(1)
