"""Training gives equal results for all input sources."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow import queues
from flowdsl.tensorflow.inputs import (
    BatchQueueInput,
    DummyConstantInput,
    FeedInput,
    InputSource,
    QueueInput,
    StagingInput,
    TensorInput,
    TFDatasetInput,
    dataflow_to_dataset,
    remap_input_source,
)
from flowdsl.tensorflow.train import (
    History,
    SimpleTrainer,
    SyncMultiGPUTrainerReplicated,
    TrainConfig,
    Trainer,
)
from tests.tensorflow.train.regression import Floats, Linear, X, Y, points, sgd

BATCH = 8


def test_the_fill_of_queues_is_recorded_by_their_summary_name() -> None:
    rows = tf.constant(np.concatenate([X, Y], 1))
    producer = queues.input_producer(
        rows, num_epochs=1, capacity=96, summary_name="fraction_of_96_full", name="rows"
    )
    batch: queues.LazyTensor = queues.batch([producer], BATCH, name="batch")

    def parts() -> list[tf.Tensor]:
        value = queues.evaluate(batch)
        return [value[:, :5], value[:, 5:]]

    history = History()
    config = TrainConfig(
        data=TensorInput(parts, size=len(X) // BATCH),
        model=Linear,
        optimizer=sgd,
        extra_callbacks=(),
        monitors=[history],
        max_epoch=1,
    )
    with queues.running(batch):
        SimpleTrainer(config).train()
    for name in ("rows/fraction_of_96_full", "batch/fraction_of_32_full"):
        fills = list(history[name].values())
        assert len(fills) == len(X) // BATCH
        assert all(0 <= fill <= 1 for fill in fills)


def flow() -> fl.Flow[object]:
    return points().batch(BATCH)


def dataset() -> InputSource:
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)
    return TFDatasetInput(batches)


def operations() -> InputSource:
    at = tf.Variable(0, dtype=tf.int64)

    def batch() -> list[tf.Tensor]:
        end = at.assign_add(BATCH)
        rows = tf.range(end - BATCH, end) % len(X)
        return [tf.gather(X, rows), tf.gather(Y, rows)]

    return TensorInput(batch, size=len(X) // BATCH)


INPUTS: dict[str, Callable[[], InputSource]] = {
    "feed": lambda: FeedInput(flow()),
    "queue of rows": lambda: BatchQueueInput(points(), BATCH),
    "queue of the user": lambda: QueueInput(flow(), tf.queue.FIFOQueue(9, [tf.float32] * 2)),
    "dataset": dataset,
    "flow as a dataset": lambda: TFDatasetInput(dataflow_to_dataset(flow())),
    "staged": lambda: StagingInput(QueueInput(flow()), 2),
    "staged dataset": lambda: StagingInput(dataset()),
    "operations": operations,
    "renamed": lambda: remap_input_source(
        QueueInput(points().batch(BATCH).map(lambda b: (b[1], b[0]))), ["y", "x"]
    ),
}


def trained(source: InputSource, towers: int = 1, max_epoch: int = 3) -> Trainer:
    config = TrainConfig(
        data=source,
        model=Linear,
        optimizer=sgd,
        extra_callbacks=(),
        monitors=(),
        max_epoch=max_epoch,
    )
    trainer = (
        SimpleTrainer(config)
        if towers == 1
        else SyncMultiGPUTrainerReplicated(config, [f"/cpu:{i}" for i in range(towers)])
    )
    trainer.train()
    return trainer


@cache
def expected(towers: int) -> Trainer:
    """Train on a flow, to compare others with."""
    return trained(QueueInput(flow()), towers)


def weights(trainer: Trainer) -> Floats:
    assert isinstance(trainer.model, Linear)
    return trainer.model.weights()


@pytest.mark.parametrize("towers", [1, 2])
@pytest.mark.parametrize("name", INPUTS)
def test_all_inputs_train_the_same_weights(name: str, towers: int) -> None:
    source = INPUTS[name]()
    if source.most_a_step is not None and towers > source.most_a_step:
        with pytest.raises(
            fl.InvalidFlow, match="FeedInput feeds one element a step, and 2 towers"
        ):
            trained(source, towers)
        return
    got = trained(source, towers)
    assert got.global_step == expected(towers).global_step == 3 * len(X) // BATCH // towers
    np.testing.assert_allclose(weights(got), weights(expected(towers)), rtol=1e-5)


def test_training_ends_with_the_pass_if_requested() -> None:
    assert trained(FeedInput(flow(), infinite=False)).global_step == len(X) // BATCH
    assert trained(FeedInput(flow())).global_step == 3 * len(X) // BATCH


def test_the_end_of_what_tensorflow_reads_ends_training() -> None:
    queue = tf.queue.FIFOQueue(9, [tf.float32] * 2, [(BATCH, 5), (BATCH, 1)])
    for i in range(5):
        queue.enqueue([X[i * BATCH : (i + 1) * BATCH], Y[i * BATCH : (i + 1) * BATCH]])
    queue.close()
    source = TensorInput(lambda: list(queue.dequeue()), size=100)
    assert trained(source).global_step == 5


def test_constant_input_can_be_trained_on() -> None:
    source = DummyConstantInput([(BATCH, 5), (BATCH, 1)])
    with pytest.raises(fl.InvalidFlow, match="steps_per_epoch must be given: DummyConstantInput"):
        trained(source)
    config = TrainConfig(
        data=source,
        model=Linear,
        optimizer=sgd,
        extra_callbacks=(),
        monitors=(),
        max_epoch=2,
        steps_per_epoch=5,
    )
    trainer = SimpleTrainer(config)
    trainer.train()
    assert trainer.global_step == 10
