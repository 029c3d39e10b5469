"""A loss that is not finite: its step, its epoch, and its source rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.tensorflow.inputs import BatchQueueInput, FeedInput, QueueInput, StagingInput
from flowdsl.tensorflow.train import (
    AsyncMultiGPUTrainer,
    ModelDesc,
    ModelSaver,
    NonFiniteLoss,
    SimpleTrainer,
    SyncMultiGPUTrainerReplicated,
    TrainConfig,
    Trainer,
)
from tests.sampling import examples
from tests.tensorflow.train.regression import sgd

ROWS, SIZE = 96, 4


class Numbers(ModelDesc):
    """A model whose loss is NaN if a number is -1."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(1.0)

    def loss(self, number: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.where(number < 0.0, float("nan"), number)) + 0.0 * self.w


def numbers(bad: int) -> fl.Flow[np.float32, fl.Exact]:
    rows = np.arange(ROWS, dtype=np.float32)
    rows[bad] = -1
    return fl.from_items([np.float32(row) for row in rows])


def still() -> Any:
    return tf.keras.optimizers.SGD(0.0)


def config(**options: Any) -> TrainConfig:
    chosen: dict[str, Any] = {
        "model": Numbers,
        "optimizer": still,
        "extra_callbacks": (),
        "monitors": (),
        "max_epoch": 1,
    }
    return TrainConfig(**chosen | options)


def failed(trainer: Trainer) -> NonFiniteLoss:
    with pytest.raises(NonFiniteLoss) as error:
        trainer.train()
    return error.value


def read_again(error: NonFiniteLoss, flow: fl.Flow[Any, Any]) -> list[Any]:
    """Run the code in the message and return its result."""
    found = re.search(r"read again by (.*\))\]?\. To train on", str(error))
    assert found, error
    code = found[1] + ("]" if found[1].startswith("[") else "")
    given = eval(code, {"flow": flow, "range": range})  # what the message says
    return given if isinstance(given, list) else [given]


@settings(max_examples=examples(60))
@given(st.integers(0, ROWS - 1), st.sampled_from([1, 2]), st.booleans(), st.booleans())
def test_the_error_names_the_step_and_its_rows(
    bad: int, towers: int, staged: bool, shuffled: bool
) -> None:
    flow: Any = numbers(bad)
    flow = (flow.shuffle(seed=3) if shuffled else flow).batch(SIZE)
    tower = [f"/cpu:{k}" for k in range(towers)]
    trainer = SyncMultiGPUTrainerReplicated(config(dataflow=flow, tower=tower), gpu_prefetch=staged)
    error = failed(trainer)
    batches = [batch.tolist() for batch in flow]
    place = next(k for k, batch in enumerate(batches) if -1 in batch)
    assert (error.step, error.epoch) == (place // towers + 1, 1)
    first = place - place % towers
    assert [again.tolist() for again in read_again(error, flow)] == batches[first : first + towers]
    assert len(error.origins) == SIZE * towers
    assert bad in {origin.row for origin in error.origins}
    assert f"row {error.origins[0].row} of from_items(96 items)" in str(error)


@pytest.mark.parametrize(
    "options",
    [
        {"steps_per_call": 4},
        {"record_every": 3},
        {"record_every": 1000},
        {"steps_per_call": 2, "record_every": 5},
    ],
)
def test_non_finite_step_is_named_although_not_every_loss_is_read(options: dict[str, Any]) -> None:
    flow = numbers(17).batch(SIZE)
    error = failed(SimpleTrainer(config(dataflow=flow, **options)))
    assert (error.step, {origin.row for origin in error.origins}) == (5, {16, 17, 18, 19})
    assert -1 in read_again(error, flow)[0]


@pytest.mark.parametrize("make", [FeedInput, QueueInput, lambda f: StagingInput(QueueInput(f))])
def test_all_flow_inputs_report_taken_rows(make: Any) -> None:
    flow = numbers(17).batch(SIZE)
    error = failed(SimpleTrainer(config(data=make(flow))))
    assert (error.step, {origin.row for origin in error.origins}) == (5, {16, 17, 18, 19})
    assert -1 in read_again(error, flow)[0]


def test_taken_covers_rows_batched_by_tensorflow() -> None:
    flow = numbers(17)
    error = failed(SimpleTrainer(config(data=BatchQueueInput(flow, SIZE))))
    assert [origin.row for origin in error.origins] == [16, 17, 18, 19]
    assert [float(number) for number in read_again(error, flow)] == [16, -1, 18, 19]


def test_error_rows_are_right_in_later_and_resumed_passes(tmp_path: Path) -> None:
    flow = numbers(50).shuffle(seed=1).batch(SIZE)

    class Late(Numbers):
        """A model whose loss is NaN from the second epoch on."""

        def __init__(self) -> None:
            super().__init__()
            self.steps = tf.Variable(0, trainable=False)

        def loss(self, number: tf.Tensor) -> tf.Tensor:
            late = self.steps.assign_add(1) > ROWS // SIZE
            return tf.where(late, super().loss(number), tf.reduce_sum(self.w))

    def trainer() -> SimpleTrainer:
        saver = ModelSaver(every_steps=5)
        chosen = config(dataflow=flow, model=Late, max_epoch=2, logdir=tmp_path, callbacks=[saver])
        return SimpleTrainer(chosen)

    batches = [batch.tolist() for batch in flow.epoch(1)]
    place = next(k for k, batch in enumerate(batches) if -1 in batch)
    for _ in range(2):  # the second goes on from the last checkpoint
        error = failed(trainer())
        assert (error.step, error.epoch) == (ROWS // SIZE + place + 1, 2)
        assert [again.tolist() for again in read_again(error, flow)] == [batches[place]]


def test_non_finite_steps_may_be_counted() -> None:
    flow = fl.from_items([np.float32(x) for x in (1, -1, 2, -1, -1, 3)])
    for options in ({}, {"steps_per_call": 3}, {"record_every": 4}):
        trainer = SimpleTrainer(config(dataflow=flow, non_finite="count", **options))
        trainer.train()
        assert (trainer.global_step, trainer.non_finite_steps) == (6, 3)
    with pytest.raises(fl.InvalidFlow, match="non_finite must be 'raise' or 'count'"):
        config(dataflow=flow, non_finite="ignore")


def test_loss_of_an_asynchronous_tower_is_checked() -> None:
    flow = numbers(40)
    towers = ["/cpu:0", "/cpu:1"]
    error = failed(AsyncMultiGPUTrainer(config(dataflow=flow, tower=towers)))
    assert error.step == 21
    assert {origin.row for origin in error.origins} == {40, 41}
    trainer = AsyncMultiGPUTrainer(config(dataflow=flow, tower=towers, non_finite="count"))
    trainer.train()
    assert trainer.non_finite_steps == 1


def test_error_without_a_flow_names_the_step() -> None:
    from flowdsl.tensorflow.inputs import TensorInput

    source = TensorInput(lambda: [tf.constant(-1.0)], size=5)
    error = failed(SimpleTrainer(config(data=source, optimizer=sgd)))
    assert (error.step, error.origins) == (1, ())
    assert "flow.at" not in str(error)


def test_no_checkpoint_is_saved_after_a_loss_that_was_not_read(tmp_path: Path) -> None:
    flow = fl.from_items([np.float32(x) for x in (1, 2, 3, 4, -1, 5, 6, 7)])
    chosen = config(
        dataflow=flow,
        optimizer=sgd,
        record_every=8,
        logdir=tmp_path,
        callbacks=[ModelSaver(every_steps=1)],
    )
    assert failed(SimpleTrainer(chosen)).step == 5
    found = sorted(path.stem for path in (tmp_path / "checkpoints").glob("*.index"))
    assert found == ["ckpt-2", "ckpt-3", "ckpt-4"]
