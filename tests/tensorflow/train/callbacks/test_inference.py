from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
import pytest
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.inputs import QueueInput, StagingInput
from flowdsl.tensorflow.train import (
    Callback,
    InferenceRunner,
    SimpleTrainer,
    SyncMultiGPUTrainerReplicated,
    TrainConfig,
)
from flowdsl.tensorflow.train.monitors import Monitor
from tests.tensorflow.train.regression import Linear, X, Y, points, sgd


class Last(Monitor):
    """Keeps the record of the last epoch."""

    def process_epoch(self, epoch: int, step: int, scalars: Mapping[str, float]) -> None:
        self.record = dict(scalars)


class Measured(Linear):
    def absolute(self, x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"mae": tf.reduce_mean(tf.abs(tf.tanh(x @ self.w) + self.b - y))}


def config(evaluate: InferenceRunner, monitor: Monitor, max_epoch: int = 1) -> TrainConfig:
    return TrainConfig(
        dataflow=points().batch(8),
        model=Measured,
        optimizer=sgd,
        callbacks=[evaluate],
        extra_callbacks=(),
        monitors=(monitor,),
        max_epoch=max_epoch,
    )


def errors(model: object) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    assert isinstance(model, Measured)
    w, b = model.w.numpy(), model.b.numpy()
    return np.asarray(np.tanh(X @ w) + b - Y, np.float32)


def test_two_runners_of_one_prefix_are_refused() -> None:
    first, second = (InferenceRunner(points(n).batch(8)) for n in (16, 96))
    given = config(first, Last())
    with pytest.raises(fl.InvalidFlow, match=r"records scalars as validation_\.\.\. too"):
        SimpleTrainer(attrs.evolve(given, callbacks=[first, second])).train()
    other = InferenceRunner(points(16).batch(8), prefix="training")
    last = Last()
    SimpleTrainer(attrs.evolve(given, callbacks=[first, other], monitors=(last,))).train()
    assert last.record["validation_rows"] == last.record["training_rows"] == 16


def test_a_scalar_has_one_value_in_a_step() -> None:
    class Puts(Callback):
        def __init__(self, value: float) -> None:
            self.value = value

        def trigger_step(self) -> None:
            self.trainer.monitors.put_scalar("rate", self.value)

    given = config(InferenceRunner(points(16).batch(8)), Last())
    SimpleTrainer(attrs.evolve(given, callbacks=[Puts(1.0), Puts(1.0)])).train()

    class PutsAMean(Puts):
        def trigger_epoch(self) -> None:
            self.trainer.monitors.put_scalar("rate", 0.5)

    last = Last()
    once = attrs.evolve(given, callbacks=[PutsAMean(1.0)], monitors=(last,))
    SimpleTrainer(once).train()
    assert last.record["rate"] == 0.5
    with pytest.raises(
        fl.InvalidFlow, match=r"'rate' is recorded twice after step 1, as 1\.0 and as 2"
    ):
        SimpleTrainer(attrs.evolve(given, callbacks=[Puts(1.0), Puts(2.0)])).train()


@pytest.mark.parametrize("size", [1, 7, 32, 96])
def test_every_row_counts_once_whatever_the_batches(size: int) -> None:
    last = Last()
    trainer = SimpleTrainer(config(InferenceRunner(points().shuffle().batch(size)), last))
    trainer.train()
    assert last.record["validation_rows"] == len(X)
    mean = float(np.mean(errors(trainer.model) ** 2))
    assert last.record["validation_loss"] == pytest.approx(mean, rel=1e-4)


def test_inference_runs_after_each_epoch_with_several_towers() -> None:
    last = Last()
    evaluate = InferenceRunner(points().batch(10), prefix="held_out")
    trainer = SyncMultiGPUTrainerReplicated(config(evaluate, last, 3), ("/cpu:0", "/cpu:1"))
    trainer.train()
    mean = float(np.mean(errors(trainer.model) ** 2))
    assert last.record["held_out_loss"] == pytest.approx(mean, rel=1e-4)


def test_another_method_can_define_the_scalars() -> None:
    last = Last()
    evaluate = InferenceRunner(points().batch(10), Measured.absolute)
    trainer = SimpleTrainer(config(evaluate, last))
    trainer.train()
    mean = float(np.mean(np.abs(errors(trainer.model))))
    assert last.record["validation_mae"] == pytest.approx(mean, rel=1e-4)
    assert "validation_loss" not in last.record


def test_elements_without_a_batch_count_as_one_row() -> None:
    class Single(Linear):
        def loss(self, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, Mapping[str, tf.Tensor]]:
            return super().loss(tf.reshape(x, (-1, 5)), tf.reshape(y, (-1, 1)))

    last = Last()
    flow = fl.from_items([(x, y[0]) for x, y in zip(X, Y, strict=True)])
    evaluate = InferenceRunner(flow.map(lambda p: (p[1], p[0])), lambda m, y, x: {"y": y})
    setup = config(evaluate, last)
    SimpleTrainer(setup).train()
    assert last.record["validation_rows"] == len(X)
    assert last.record["validation_y"] == pytest.approx(float(np.mean(Y)), rel=1e-4)


@pytest.mark.parametrize(
    ("flow", "tag"),
    [
        (points().batch(8).repeat(), "Endless"),
        (points().shuffle().take(10), "Resampled"),
        (points().filter(lambda p: bool(p.y > 0)), "Resampled|Unsized"),
    ],
)
def test_a_flow_that_loses_or_repeats_rows_is_refused(flow: fl.Flow[object], tag: str) -> None:
    with pytest.raises(
        fl.InvalidFlow, match=rf"InferenceRunner: each row must count.*without.*({tag})"
    ):
        unchecked(InferenceRunner, flow)


def unchecked(make: Callable[..., object], flow: object) -> None:
    """Create what a type checker would refuse."""
    make(flow)


def test_an_error_of_the_flow_is_an_error_of_training() -> None:
    def fragile(i: int) -> tuple[np.float32, np.float32]:
        return np.float32(1 // (3 - i)), np.float32(0)

    evaluate = InferenceRunner(fl.from_range(9).map(fragile), lambda m, x, y: {"x": x})
    with pytest.raises(fl.ElementError, match="element 3"):
        SimpleTrainer(config(evaluate, Last())).train()


def test_a_flow_without_elements_has_no_mean() -> None:
    evaluate = InferenceRunner(
        points(0).batch(8),
        spec=[tf.TensorSpec((None, 5), tf.float32), tf.TensorSpec((None, 1), tf.float32)],
    )
    with pytest.raises(fl.FlowError, match="InferenceRunner: the flow had 0 elements of 0"):
        SimpleTrainer(config(evaluate, Last())).train()


def test_non_flow_is_refused_with_the_reason() -> None:
    batches = points(16).batch(8)
    given: Any
    for given, message in (
        (StagingInput(QueueInput(batches)), "a StagingInput is only for training: .* in advance"),
        (QueueInput(batches), "got QueueInput; pass the flow itself"),
        ([1, 2], "got list; make one with from_items"),
    ):
        with pytest.raises(fl.InvalidFlow, match=message):
            InferenceRunner(given)
