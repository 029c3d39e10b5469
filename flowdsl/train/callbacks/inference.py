"""InferenceRunner: scalars over a whole finite flow, each row counted once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import tensorflow as tf

from flowdsl.effects import Endless, Reordered, Resampled, Unsized, describe
from flowdsl.errors import FlowError, InvalidFlow
from flowdsl.flow import Flow
from flowdsl.graph import EndOfPass, InputSource, QueueInput, StagingInput
from flowdsl.train.binding import binding_of
from flowdsl.train.callbacks.base import Callback
from flowdsl.train.model import Scalars, evaluated, named_scalars


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
    They are named ``validation_loss``, ...; ``validation_rows`` is the number of rows.

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
        model, source, scalars = self.trainer.model, self._source, self._scalars

        method = evaluated(model)
        if scalars is None:
            binding = binding_of(method, f"{type(model).__name__}.{method.__name__}", source)
        else:
            binding = binding_of(partial(scalars, model), "InferenceRunner: scalars", source)

        @tf.function(input_signature=source.signature, autograph=False)
        def measure(*args: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
            inputs = source.tensors(*args)
            if scalars is None:
                found = named_scalars(model, binding, inputs, method)
            else:
                found = dict(binding.call(partial(scalars, model), inputs))
            first = inputs[0]
            rows = tf.shape(first)[0] if first.shape.rank else tf.constant(1)
            return found, rows

        self._measure = measure

    def trigger(self) -> None:
        for name, value in self.evaluate().items():
            self.trainer.monitors.put_scalar(f"{self.prefix}_{name}", value)

    def evaluate(self) -> dict[str, float]:
        """One pass over the flow: the mean of each scalar over all rows, and their number."""
        sums: dict[str, float] = {}
        rows = elements = 0
        with self._source as source:
            source.reset()
            while True:
                try:
                    args = source.next_args()
                except EndOfPass:
                    break
                found, count = self._measure(*args)
                elements += 1
                rows += int(count)
                for name, value in found.items():
                    sums[name] = sums.get(name, 0.0) + float(value) * int(count)
            expected = source.size()
        if elements != expected or not rows:
            raise FlowError(f"InferenceRunner: the flow gave {elements} elements of {expected}")
        return {name: value / rows for name, value in sums.items()} | {"rows": rows}
