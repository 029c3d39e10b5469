"""Each multi-device trainer equals one device on the joined elements."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.inputs import FeedInput, QueueInput, StagingInput, TensorInput
from flowdsl.tensorflow.train import (
    AsyncMultiGPUTrainer,
    Callback,
    FeedfreeTrainerBase,
    History,
    ModelDesc,
    ModelSaver,
    Optimizer,
    QueueInputTrainer,
    SimpleFeedfreeTrainer,
    SimpleTrainer,
    SyncMultiGPUTrainer,
    SyncMultiGPUTrainerParameterServer,
    SyncMultiGPUTrainerReplicated,
    TrainConfig,
    Trainer,
)
from tests.tensorflow.train.regression import Floats, Linear, X, adam, points, sgd

STEPS, ROWS = 10, 4


def momentum() -> Optimizer:
    return tf.keras.optimizers.SGD(0.1, momentum=0.9)


class Penalized(Linear):
    """With L2: the penalty is part of each tower's loss, so also of their mean."""

    def loss(self, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        loss, _ = super().loss(x, y)
        return loss + 0.1 * tf.reduce_sum(self.w**2), {}


def config(towers: int, **options: Any) -> TrainConfig:
    rows = ROWS if towers > 1 else options.pop("rows", ROWS)
    options.pop("rows", None)
    chosen: dict[str, Any] = {
        "dataflow": points().shuffle(seed=5).repeat().batch(rows),
        "model": Penalized,
        "optimizer": sgd,
        "extra_callbacks": (),
        "monitors": (),
        "steps_per_epoch": STEPS,
        "max_epoch": 1,
        "tower": [f"/cpu:{k}" for k in range(towers)],
    }
    return TrainConfig(**chosen | options)


def weights(trainer: Trainer) -> Floats:
    assert isinstance(trainer.model, Linear)
    return trainer.model.weights()


SYNCHRONOUS: list[Callable[[TrainConfig], Trainer]] = [
    SyncMultiGPUTrainerReplicated,
    SyncMultiGPUTrainer,
    lambda config: SyncMultiGPUTrainerParameterServer(config, "cpu"),
    lambda config: SyncMultiGPUTrainerParameterServer(config, gpu_prefetch=False),
]


@pytest.mark.parametrize(
    ("make", "towers", "optimizer"),
    [
        *product(SYNCHRONOUS, [2], [adam]),
        *product(SYNCHRONOUS[:2], [4], [momentum]),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                *product(SYNCHRONOUS[:2], [1, 2, 4], [sgd, momentum, adam]),
                *product(SYNCHRONOUS[2:], [4], [adam]),
            )
        ),
    ],
)
def test_towers_train_what_one_device_trains_on_the_joined_elements(
    make: Callable[[TrainConfig], Trainer], towers: int, optimizer: Callable[[], Optimizer]
) -> None:
    trainer = make(config(towers, optimizer=optimizer))
    trainer.train()
    one = SimpleTrainer(config(1, optimizer=optimizer, rows=ROWS * towers))
    one.train()
    assert trainer.global_step == STEPS
    np.testing.assert_allclose(weights(trainer), weights(one), atol=1e-5)


class Embedding(ModelDesc):
    """A model with sparse gradients, of the rows that an element refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.table = tf.Variable(np.arange(20, dtype=np.float32).reshape(10, 2) / 10)

    def loss(self, index: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.gather(self.table, index) ** 2)


@pytest.mark.parametrize("make", SYNCHRONOUS[:2])
def test_sparse_gradients_equal_the_joined_elements_gradients(
    make: Callable[[TrainConfig], Trainer],
) -> None:
    indices = np.random.default_rng(0).integers(10, size=64)
    flow = fl.from_items([int(i) for i in indices])

    def table(make: Callable[[TrainConfig], Trainer], towers: int, rows: int) -> Any:
        trainer = make(
            config(
                towers,
                dataflow=flow.batch(rows),
                model=Embedding,
                optimizer=adam,
                steps_per_epoch=4,
            )
        )
        trainer.train()
        assert isinstance(trainer.model, Embedding)
        return trainer.model.table.numpy()

    np.testing.assert_allclose(table(make, 2, 4), table(SimpleTrainer, 1, 8), atol=1e-6)


class Normed(ModelDesc):
    """With a layer that keeps the mean of its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = tf.keras.layers.BatchNormalization(momentum=0.75)
        self.norm.build((None, 5))

    def loss(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((self.norm(x, training=True) - y) ** 2)


@pytest.mark.parametrize("make", SYNCHRONOUS[:2])
def test_batch_statistics_follow_the_trainer(
    make: Callable[[TrainConfig], Trainer],
) -> None:
    trainer = make(config(2, model=Normed, dataflow=points().batch(ROWS), steps_per_epoch=1))
    trainer.train()
    assert isinstance(trainer.model, Normed)
    first, second = (0.25 * X[k * ROWS : (k + 1) * ROWS].mean(0) for k in range(2))
    expected = first if make is SyncMultiGPUTrainerReplicated else 0.75 * first + second
    np.testing.assert_allclose(trainer.model.norm.moving_mean.numpy(), expected, atol=1e-6)


def test_the_variables_of_a_parameter_server_are_spread_over_its_devices() -> None:
    trainer = SyncMultiGPUTrainer(config(2))
    assert isinstance(trainer.model, Linear)
    placed = [variable.device[-5:] for variable in (trainer.model.w, trainer.model.b)]
    assert placed == ["CPU:0", "CPU:1"]
    central = SyncMultiGPUTrainerParameterServer(config(2, tower=["/cpu:1", "/cpu:2"]), "cpu")
    assert isinstance(central.model, Linear)
    assert central.model.w.device.endswith("CPU:0")


def test_several_devices_stage_by_default() -> None:
    assert isinstance(SyncMultiGPUTrainerReplicated(config(2)).input, StagingInput)
    assert isinstance(SyncMultiGPUTrainer(config(2)).input, StagingInput)
    for trainer in (
        SyncMultiGPUTrainerReplicated(config(1)),
        SyncMultiGPUTrainerReplicated(config(2), gpu_prefetch=False),
        SyncMultiGPUTrainerReplicated(config(2, steps_per_call=2)),
        AsyncMultiGPUTrainer(config(2)),
    ):
        assert isinstance(trainer.input, QueueInput)


def test_custom_input_is_staged_and_resumed(tmp_path: Path) -> None:
    def trainer(epochs: int, **options: Any) -> SyncMultiGPUTrainer:
        source = QueueInput(points().batch(4))
        return SyncMultiGPUTrainer(
            config(2, dataflow=None, data=source, max_epoch=epochs, **options), gpu_prefetch=True
        )

    whole = trainer(2)
    assert isinstance(whole.input, StagingInput)
    whole.train()
    saved: dict[str, Any] = {"logdir": tmp_path, "callbacks": [ModelSaver()]}
    trainer(1, **saved).train()
    again = trainer(2, **saved)
    again.train()
    for mine, other in zip(
        again.model.trainable_variables, whole.model.trainable_variables, strict=True
    ):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), atol=1e-6)
    feed = TensorInput(lambda: [tf.zeros((2, 5)), tf.zeros((2, 1))], size=4)
    staged = StagingInput(QueueInput(points().batch(4)))
    assert isinstance(SyncMultiGPUTrainer(config(2, dataflow=None, data=feed)).input, StagingInput)
    assert SyncMultiGPUTrainer(config(2, dataflow=None, data=staged)).input is staged


def test_trainers_of_one_device_use_different_inputs() -> None:
    assert isinstance(SimpleTrainer(config(1)).input, FeedInput)
    assert isinstance(SimpleTrainer(config(1, steps_per_call=2)).input, QueueInput)
    assert isinstance(SimpleFeedfreeTrainer(config(1)).input, QueueInput)
    queue = tf.queue.FIFOQueue(3, [tf.float32, tf.float32])
    trainer = QueueInputTrainer(config(1), input_queue=queue)
    trainer.train()
    assert isinstance(trainer.input, QueueInput)
    simple = SimpleTrainer(config(1))
    simple.train()
    np.testing.assert_array_equal(weights(trainer), weights(simple))
    with pytest.raises(fl.InvalidFlow, match=r"QueueInputTrainer: config\.dataflow is missing"):
        QueueInputTrainer(config(1, dataflow=None, data=QueueInput(points().batch(4))))


# -- asynchronous ----------------------------------------------------------------------------------


class Adding(ModelDesc):
    """A model whose gradient is its element: the variable sums all, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.total = tf.Variable(0.0)

    def loss(self, number: tf.Tensor) -> tf.Tensor:
        return -self.total * tf.cast(number, tf.float32)


def whole() -> Optimizer:
    return tf.keras.optimizers.SGD(1.0)


@pytest.mark.parametrize(
    ("towers", "scale_gradient"),
    [
        (2, True),
        (4, False),
        *(pytest.param(*case, marks=pytest.mark.long) for case in ((1, True), (2, False))),
        *(pytest.param(*case, marks=pytest.mark.long) for case in ((1, False), (4, True))),
    ],
)
def test_no_asynchronous_update_is_lost(towers: int, scale_gradient: bool) -> None:
    trainer = AsyncMultiGPUTrainer(
        config(
            towers, dataflow=fl.from_range(400), model=Adding, optimizer=whole, steps_per_epoch=None
        ),
        scale_gradient,
    )
    trainer.train()
    assert isinstance(trainer.model, Adding)
    expected = sum(range(400)) / (towers if scale_gradient else 1)
    assert float(trainer.model.total) == expected
    assert trainer.updates == 400
    assert trainer.global_step == 400 // towers
    assert isinstance(trainer.optimizer, tf.keras.optimizers.Optimizer)
    assert int(trainer.optimizer.iterations) == 400
    assert not [t for t in threading.enumerate() if t.name.startswith("AsyncMultiGPU")]


def test_asynchronous_towers_compute_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=60)

    class Meeting(Adding):
        def loss(self, number: tf.Tensor) -> tf.Tensor:
            def meet() -> np.float32:
                meeting.wait()
                return np.float32(0)

            met = tf.numpy_function(meet, [], tf.float32)
            return super().loss(number) + tf.ensure_shape(met, [])

    AsyncMultiGPUTrainer(
        config(2, dataflow=fl.from_range(8), model=Meeting, optimizer=whole, steps_per_epoch=None)
    ).train()


def test_asynchronous_checkpoint_includes_all_updates(tmp_path: Any) -> None:
    class Kill(Callback):
        def trigger_step(self) -> None:
            if self.trainer.global_step == 37:
                raise KeyboardInterrupt

    def trainer(callbacks: Sequence[Callback]) -> AsyncMultiGPUTrainer:
        return AsyncMultiGPUTrainer(
            config(
                2,
                dataflow=fl.from_range(200),
                model=Adding,
                optimizer=whole,
                steps_per_epoch=None,
                logdir=tmp_path,
                callbacks=[ModelSaver(every_steps=10), *callbacks],
            )
        )

    with pytest.raises(KeyboardInterrupt):
        trainer([Kill()]).train()
    resumed = trainer([])
    resumed.setup()
    assert resumed.global_step == 30
    assert isinstance(resumed.model, Adding)
    assert float(resumed.model.total) == sum(range(60)) / 2
    resumed.main_loop()
    assert float(resumed.model.total) == sum(range(200)) / 2


def test_an_error_of_an_asynchronous_tower_ends_training() -> None:
    class Failing(Adding):
        def loss(self, number: tf.Tensor) -> tf.Tensor:
            tf.debugging.assert_less(number, tf.constant(10, tf.int64))
            return super().loss(number)

    trainer = AsyncMultiGPUTrainer(
        config(2, dataflow=fl.from_range(40), model=Failing, optimizer=whole, steps_per_epoch=None)
    )
    with pytest.raises(tf.errors.InvalidArgumentError):
        trainer.train()
    assert not [t for t in threading.enumerate() if t.name.startswith("AsyncMultiGPU")]


# -- a step of one's own ---------------------------------------------------------------------------


def test_custom_tower_runs_on_all_devices() -> None:
    class Two(FeedfreeTrainerBase):
        def build_train_tower(self, x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
            assert isinstance(self.model, Linear)
            self.model.b.assign_add(tf.reduce_mean(y, axis=0))
            return {"rows": tf.reduce_sum(tf.ones_like(y))}

    history = History()
    trainer = Two(config(1, optimizer=None, monitors=(history,)))
    trainer.train()
    assert set(history["rows"].values()) == {ROWS}
    assert weights(trainer)[-1] != 0


def test_custom_run_step_counts_as_a_step() -> None:
    class Mine(Trainer):
        def run_step(self) -> None:
            x, _ = self.next_args()
            assert self.global_step == 4 * self.epoch_num + self.local_step + 1
            self.scalars = {"loss": float(tf.reduce_mean(x))}

        def make_input(self) -> Any:
            return FeedInput(points(32).batch(8))

    history = History()
    trainer = Mine(
        config(1, optimizer=None, monitors=(history,), steps_per_epoch=None, max_epoch=2)
    )
    trainer.train()
    assert (trainer.epoch_num, trainer.global_step, len(history["loss"])) == (2, 8, 8)
