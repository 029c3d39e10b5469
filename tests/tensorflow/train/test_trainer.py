from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.inputs import QueueInput
from flowdsl.tensorflow.train import (
    Callback,
    History,
    LeftOver,
    ModelDesc,
    Optimizer,
    SimpleTrainer,
    StopTraining,
    SyncMultiGPUTrainerReplicated,
    TrainConfig,
    Trainer,
)
from flowdsl.tensorflow.train.towers import Replicas
from tests.tensorflow.rows import failing_at_five
from tests.tensorflow.train.regression import Linear, X, adam, points, sgd

CPUS = ("/cpu:0", "/cpu:1")


def quiet(
    flow: fl.Flow[object],
    *,
    model: Callable[[], Linear] = Linear,
    optimizer: Callable[[], Optimizer] = sgd,
    callbacks: Sequence[Callback] = (),
    history: History | None = None,
    steps_per_epoch: int | None = None,
    max_epoch: int = 1,
) -> TrainConfig:
    return TrainConfig(
        dataflow=flow,
        model=model,
        optimizer=optimizer,
        callbacks=callbacks,
        extra_callbacks=(),
        monitors=(history,) if history else (),
        steps_per_epoch=steps_per_epoch,
        max_epoch=max_epoch,
    )


def weights(trainer: Trainer) -> list[float]:
    assert isinstance(trainer.model, Linear)
    return [float(w) for w in trainer.model.weights()]


class Momentum(tf.Module):
    """A hand-written optimizer: the protocol does not need Keras."""

    def build(self, variables: Sequence[tf.Variable], /) -> None:
        self.slots = [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables]

    def apply(self, grads: Sequence[tf.Tensor], variables: Sequence[tf.Variable], /) -> None:
        total = tf.distribute.get_replica_context().all_reduce("SUM", list(grads))
        for slot, grad, variable in zip(self.slots, total, variables, strict=True):
            variable.assign_sub(0.1 * slot.assign(0.5 * slot + grad))


@pytest.mark.parametrize("optimizer", [sgd, adam, Momentum])
def test_two_devices_equal_one_on_the_joined_batch(
    optimizer: Callable[[], Optimizer],
) -> None:
    two, one = History(), History()
    flow = points().shuffle(seed=5).repeat()
    config = quiet(flow.batch(8), optimizer=optimizer, history=two, steps_per_epoch=15)
    replicated = SyncMultiGPUTrainerReplicated(config, CPUS)
    replicated.train()
    config = quiet(flow.batch(16), optimizer=optimizer, history=one, steps_per_epoch=15)
    single = SimpleTrainer(config)
    single.train()
    assert isinstance(replicated.model, Linear)
    np.testing.assert_allclose(weights(replicated), weights(single), atol=1e-5)
    for name in ("loss", "bias"):
        np.testing.assert_allclose([*two[name].values()], [*one[name].values()], atol=1e-5)
    assert isinstance(replicated.devices, Replicas)
    copies = replicated.devices.strategy.experimental_local_results(replicated.model.w)
    assert len(copies) == 2
    np.testing.assert_array_equal(copies[0].numpy(), copies[1].numpy())


def test_gradients_of_two_devices_are_those_of_the_joined_batch() -> None:
    class Recorder(tf.Module):
        """Records the gradient it receives, and changes nothing else."""

        def build(self, variables: Sequence[tf.Variable], /) -> None:
            self.seen = [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables]

        def apply(self, grads: Sequence[tf.Tensor], variables: Sequence[tf.Variable], /) -> None:
            total = tf.distribute.get_replica_context().all_reduce("SUM", list(grads))
            for seen, grad in zip(self.seen, total, strict=True):
                seen.assign(grad)

    trainer = SyncMultiGPUTrainerReplicated(quiet(points(16).batch(8), optimizer=Recorder), CPUS)
    trainer.train()
    model = Linear()
    with tf.GradientTape() as tape:
        x, y = points(16).batch(16).collect()[0]
        loss, _ = model.loss(tf.constant(x), tf.constant(y))
    assert isinstance(trainer.optimizer, Recorder)
    expected = tape.gradient(loss, model.trainable_variables)
    for seen, gradient in zip(trainer.optimizer.seen, expected, strict=True):
        np.testing.assert_allclose(seen.numpy(), gradient.numpy(), atol=1e-5)


def test_each_tower_gets_elements_of_its_own() -> None:
    class Counting(Linear):
        def loss(self, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
            loss, _ = super().loss(x, y)
            return loss, {"total": tf.reduce_sum(x)}

    history = History()
    config = quiet(points().batch(8), model=Counting, history=history)
    SyncMultiGPUTrainerReplicated(config, CPUS).train()
    pairs = X.reshape(6, 16, 5).sum(axis=(1, 2)) / 2
    np.testing.assert_allclose([*history["total"].values()], pairs, atol=1e-4)


def test_epochs_steps_and_callback_calls_are_as_documented() -> None:
    class Diary(Callback):
        def __init__(self) -> None:
            self.lines: list[str] = []

        def before_train(self) -> None:
            self.lines.append("before_train")

        def before_epoch(self) -> None:
            self.lines.append(f"before_epoch {self.trainer.epoch_num}")

        def trigger_step(self) -> None:
            self.lines.append(f"trigger_step {self.trainer.local_step} {self.trainer.global_step}")

        def after_epoch(self) -> None:
            self.lines.append("after_epoch")

        def trigger_epoch(self) -> None:
            self.lines.append("trigger_epoch")

        def after_train(self) -> None:
            self.lines.append("after_train")

    diary = Diary()
    SimpleTrainer(quiet(points(16).batch(8), callbacks=[diary], max_epoch=2)).train()
    epoch = "before_epoch {}, trigger_step 1 {}, trigger_step 2 {}, after_epoch, trigger_epoch"
    assert diary.lines == [
        "before_train",
        *epoch.format(0, 1, 2).split(", "),
        *epoch.format(1, 3, 4).split(", "),
        "after_train",
    ]


def test_next_pass_has_a_fresh_shuffle() -> None:
    flow = points(32).shuffle(seed=2)
    trainer = SimpleTrainer(quiet(flow.batch(8), max_epoch=3))
    trainer.train()
    assert trainer.steps_per_epoch == 4
    endless = SimpleTrainer(quiet(flow.batch(8).repeat(), steps_per_epoch=12))
    endless.train()
    assert weights(trainer) == weights(endless)


def test_an_epoch_may_be_shorter_than_a_pass() -> None:
    short = SimpleTrainer(quiet(points(48).batch(8), steps_per_epoch=3, max_epoch=2))
    short.train()
    whole = SimpleTrainer(quiet(points(48).batch(8)))
    whole.train()
    assert weights(short) == weights(whole)


def test_elements_that_fill_no_step_are_counted_with_a_warning() -> None:
    config = quiet(points(40).batch(8), max_epoch=3)
    with pytest.warns(LeftOver, match=r"the last 1 element.*2 towers.*multiple of 2"):
        trainer = SyncMultiGPUTrainerReplicated(config, CPUS)
    with pytest.warns(LeftOver, match="the last 1 element"):
        trainer.train()
    assert (trainer.global_step, trainer.left_over) == (6, 2)


@pytest.mark.parametrize("procs", [0, 1])
def test_an_error_of_the_flow_ends_training_with_that_error(procs: int) -> None:
    class Scalar(ModelDesc):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(1.0)

        def loss(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            return tf.reduce_mean((self.w * x - y) ** 2)

    config = TrainConfig(
        dataflow=fl.from_range(20).map(failing_at_five).prefetch(procs=procs),
        model=Scalar,
        optimizer=sgd,
        extra_callbacks=(),
        monitors=(),
        max_epoch=1,
    )
    trainer = SimpleTrainer(config)
    with pytest.raises(fl.ElementError, match="element 5") as failed:
        trainer.train()
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    assert trainer.global_step == 5
    assert not [t for t in threading.enumerate() if t.name == "QueueInput"]


def test_a_flow_too_small_for_a_step_is_an_error() -> None:
    with pytest.raises(fl.InvalidFlow, match=r"a step of 2 tower.*the flow has 1"):
        SyncMultiGPUTrainerReplicated(quiet(points(8).batch(8)), CPUS)
    config = quiet(points(8).batch(8), steps_per_epoch=3)
    gave = pytest.raises(fl.FlowError, match="a complete pass of the flow had 1")
    with pytest.warns(LeftOver), gave:
        SyncMultiGPUTrainerReplicated(config, CPUS).train()


class StopAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def trigger_step(self) -> None:
        if self.trainer.global_step == self.step:
            raise StopTraining("enough")


def test_a_callback_can_stop_training() -> None:
    trainer = SimpleTrainer(quiet(points().batch(8), callbacks=[StopAt(3)], max_epoch=5))
    trainer.train()
    assert (trainer.global_step, trainer.epoch_num) == (3, 0)


def test_after_train_is_always_called() -> None:
    ended: list[str] = []

    class Fails(Callback):
        def trigger_step(self) -> None:
            raise RuntimeError("of the callback")

        def after_train(self) -> None:
            ended.append("yes")

    with pytest.raises(RuntimeError, match="of the callback"):
        SimpleTrainer(quiet(points().batch(8), callbacks=[Fails()])).train()
    assert ended == ["yes"]


def test_reading_the_loss_may_be_rarer() -> None:
    history = History()
    config = TrainConfig(
        data=QueueInput(points().batch(8)),
        model=Linear,
        optimizer=sgd,
        extra_callbacks=(),
        monitors=(history,),
        max_epoch=1,
        record_every=4,
    )
    SimpleTrainer(config).train()
    assert [*history["loss"]] == [4, 8, 12]
    assert [*history["queue_fill"]] == [4, 8, 12]


def test_a_model_that_does_not_take_the_element_is_refused() -> None:
    flow = points().batch(8).map(lambda b: b[0])
    with pytest.raises(fl.InvalidFlow, match=r"Linear\.loss.*does not take.*\(element\).*'y'"):
        SimpleTrainer(quiet(flow))


def test_a_model_without_variables_is_refused() -> None:
    class Unbuilt(Linear):
        def __init__(self) -> None:
            ModelDesc.__init__(self)
            self.net = tf.keras.Sequential([tf.keras.layers.Dense(1)])

    with pytest.raises(fl.InvalidFlow, match=r"Unbuilt has no trainable variables.*tf\.keras\.Inp"):
        SimpleTrainer(quiet(points().batch(8), model=Unbuilt))


@pytest.mark.parametrize("name", ["loss", "bias"])
def test_monitored_values_must_be_scalars(name: str) -> None:
    class Vector(Linear):
        def loss(self, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
            scalars = {"loss": tf.reduce_mean(self.w), "bias": tf.reduce_mean(self.b)}
            scalars[name] = tf.squeeze(x @ self.w + self.b, axis=1)
            return scalars.pop("loss"), scalars

    with pytest.raises(fl.InvalidFlow, match=rf"Vector\.loss: '{name}' has shape \(8,\)"):
        SimpleTrainer(quiet(points().batch(8), model=Vector)).train()


def test_clipping_before_the_sum_is_refused() -> None:
    def clipped() -> tf.keras.optimizers.Optimizer:
        return tf.keras.optimizers.SGD(0.1, clipnorm=1.0)

    with pytest.raises(fl.InvalidFlow, match="clipnorm of the optimizer clips each tower's"):
        SyncMultiGPUTrainerReplicated(quiet(points().batch(8), optimizer=clipped), CPUS)


def test_simple_trainer_is_for_one_tower() -> None:
    config = TrainConfig(dataflow=points().batch(8), model=Linear, optimizer=sgd, nr_tower=2)
    with pytest.raises(fl.InvalidFlow, match="SimpleTrainer has one tower, got /cpu:0, /cpu:1"):
        SimpleTrainer(config)


def test_devices_must_agree_with_the_configuration() -> None:
    config = TrainConfig(dataflow=points().batch(8), model=Linear, optimizer=sgd, nr_tower=3)
    with pytest.raises(fl.InvalidFlow, match="nr_tower=3, but 2 devices"):
        SyncMultiGPUTrainerReplicated(config, CPUS)
