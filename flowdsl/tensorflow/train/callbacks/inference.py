"""InferenceRunner: scalars over a whole finite flow, each row counted once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

import tensorflow as tf

from flowdsl.effects import Endless, Reordered, Resampled, Unsized, describe
from flowdsl.errors import FlowError, InvalidFlow
from flowdsl.flow import Flow
from flowdsl.tensorflow.inputs import EndOfPass, InputSource, QueueInput, StagingInput
from flowdsl.tensorflow.train.binding import binding_of
from flowdsl.tensorflow.train.callbacks.base import Callback
from flowdsl.tensorflow.train.compiled import CompiledModel, Scalars
from flowdsl.tensorflow.train.model import Model, named_scalars
from flowdsl.tensorflow.train.towers import Towers


def _require_flow(given: object) -> None:
    if isinstance(given, StagingInput):
        raise InvalidFlow(
            "InferenceRunner: a StagingInput is for training alone: it takes the elements of later "
            "steps ahead, so the last of a pass would not be counted; give the flow itself"
        )
    if not isinstance(given, Flow):
        is_source = isinstance(given, InputSource)
        cure = "give the flow that it is made of" if is_source else "make one with from_items"
        raise InvalidFlow(
            f"InferenceRunner: flow must be a Flow, whose type says that each row comes once, got "
            f"{type(given).__name__}; {cure}"
        )


class InferenceRunner(Callback):
    """After each epoch, runs a finite flow through the model and reports means over its rows.

    The flow has to hold each row exactly once, in any order (``Flow[B, Reordered]``): after
    ``repeat`` or ``shuffle().take(n)`` it is a type error, and ``InvalidFlow`` at run time.

    By default the scalars are those of ``model.loss``; ``scalars`` is a method of the model to use
    instead, e.g. ``Digits.predictive``, where the loss behaves differently in training. They are
    means over a batch, and are weighted by its rows, so a small last batch counts for what it is.
    They are named ``validation_loss``, ...; ``validation_rows`` is the number of rows. The scalars
    of a compiled Keras model are those of its ``evaluate``, metrics too. Each runner needs a
    ``prefix`` of its own.

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
            raise InvalidFlow(
                f"InferenceRunner: each row must count exactly once, but this flow is "
                f"{describe(frozenset(flow.effects))}; give one without {describe(lossy)}"
            )
        self.prefix = prefix
        self._scalars = scalars
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

    def evaluate(self) -> dict[str, float]:
        """One pass over the flow: the mean of each scalar over all rows, and their number."""
        rows = elements = 0
        with self._measure as measured, self._source as source:
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
                raise FlowError(f"InferenceRunner: the flow gave {elements} elements of {expected}")
            return {**measured.result(rows), "rows": rows}


class _OfLoss:
    """The means of a model's scalars over rows."""

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
        """Measure an element; gives its rows."""
        found, rows = self._measure(*args)
        for name, value in found.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value) * int(rows)
        return int(rows)

    def result(self, rows: int) -> dict[str, float]:
        """The means over so many rows."""
        return {name: value / rows for name, value in self._sums.items()}


class _OfCompiled:
    """What ``evaluate`` gives: metrics that begin with the pass; those of training stay."""

    def __init__(self, model: CompiledModel, towers: Towers, source: InputSource) -> None:
        binding = model.binding(source)
        self._model = model

        @tf.function(input_signature=source.signature, autograph=False)
        def measure(*args: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
            inputs = source.tensors(*args)
            logs = towers.first(lambda: dict(binding.call(model.test_step, inputs)))
            return logs, _rows(inputs)

        def first_begins() -> dict[str, tf.Tensor]:
            model.reset_metrics()
            return {}

        @tf.function(autograph=False)
        def reset() -> None:  # by the tower that measures: all of them would wait for others
            towers.first(first_begins)

        self._measure, self._reset = measure, reset

    def __enter__(self) -> Self:
        self._of_training = self._model.measures_so_far()
        self._reset()
        self._logs: dict[str, tf.Tensor] = {}
        return self

    def __exit__(self, *error: object) -> None:
        self._model.go_on_measuring(self._of_training)

    def add(self, args: tuple[tf.Tensor, ...]) -> int:
        """Measure an element; gives its rows."""
        self._logs, rows = self._measure(*args)
        return int(rows)

    def result(self, rows: int) -> dict[str, float]:
        """The logs of the last step, which are of all: a metric goes on from batch to batch."""
        return {name: float(value) for name, value in self._logs.items()}


def _rows(inputs: Sequence[tf.Tensor]) -> tf.Tensor:
    first = inputs[0]
    return tf.shape(first)[0] if first.shape.rank else tf.constant(1)
