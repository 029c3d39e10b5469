"""A compiled Keras model trains, measures and evaluates as by ``fit`` and ``evaluate``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
import pytest
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import (
    AsyncMultiGPUTrainer,
    InferenceRunner,
    ModelDesc,
    Monitor,
    PeriodicTrigger,
    SimpleTrainer,
    SyncMultiGPUTrainerParameterServer,
    SyncMultiGPUTrainerReplicated,
    TrainConfig,
    Trainer,
)
from tests.tensorflow.train.keras_models import (
    BATCH,
    EPOCHS,
    LAYERS,
    OPTIMIZERS,
    X,
    Y,
    assert_equal,
    compiled,
    config,
    fitted,
    keras,
    trainer,
)

CASES = [
    *((layer, "sgd", "float32") for layer in LAYERS),
    *(("dropout", optimizer, "float32") for optimizer in OPTIMIZERS if optimizer != "sgd"),
    *(("batch normalization", optimizer, "mixed_float16") for optimizer in ("sgd", "averaged")),
]
QUICK_ON_ONE = [
    ("dropout", "accumulating", "float32"),
    ("dropout", "wrapped", "float32"),
    ("batch normalization", "averaged", "mixed_float16"),
]
"""Each way in which layers, optimizers and policies keep state; ``make long`` trains the others."""

QUICK_ON_TWO = [("dropout", "sgd", "float32")]
REFUSED_ON_TWO = ("clipping", "accumulating")


@pytest.mark.parametrize(
    ("layer", "optimizer", "policy"),
    [
        case if case in QUICK_ON_ONE else pytest.param(*case, marks=pytest.mark.long)
        for case in CASES
    ],
)
def test_one_device_trains_as_fit_does(layer: str, optimizer: str, policy: str) -> None:
    ours = trainer(compiled(layer, optimizer, policy))
    ours.train()
    theirs, _ = fitted(compiled(layer, optimizer, policy))
    model: Any = ours.model
    assert_equal(model.net, theirs)


@pytest.mark.parametrize(
    ("layer", "optimizer", "policy"),
    [
        *QUICK_ON_TWO,
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in CASES
            if case[1] not in REFUSED_ON_TWO and case not in QUICK_ON_TWO
        ),
    ],
)
def test_two_devices_train_as_fit_does_on_two(layer: str, optimizer: str, policy: str) -> None:
    ours = trainer(compiled(layer, optimizer, policy), towers=2)
    ours.train()
    theirs, _ = fitted(compiled(layer, optimizer, policy), towers=2)
    model: Any = ours.model
    assert_equal(model.net, theirs)


@pytest.mark.parametrize(
    "optimizer",
    ["clipping", *(pytest.param(x, marks=pytest.mark.long) for x in ("accumulating", "wrapped"))],
)
def test_devices_that_share_variables_train_as_fit_does_on_one(optimizer: str) -> None:
    ours = SyncMultiGPUTrainerParameterServer(config(compiled("penalties", optimizer), 2))
    ours.train()
    theirs, _ = fitted(compiled("penalties", optimizer))
    model: Any = ours.model
    assert_equal(model.net, theirs)


@pytest.mark.parametrize("optimizer", REFUSED_ON_TWO)
@pytest.mark.parametrize("wrapped", [False, True])
def test_settings_that_differ_on_replicas_are_refused(optimizer: str, wrapped: bool) -> None:
    policy = "mixed_float16" if wrapped else "float32"
    with pytest.raises(fl.InvalidFlow, match=r"(global_clipnorm|gradient_accumulation_steps) of"):
        trainer(compiled("penalties", optimizer, policy), towers=2)


@pytest.mark.parametrize(
    "kind", [SyncMultiGPUTrainerReplicated, SyncMultiGPUTrainerParameterServer]
)
@pytest.mark.parametrize("rows", [[1.0, 1e6, 1.0, 1.0], [1e6, 1.0, 1.0, 1.0]])
def test_gradients_that_overflow_on_one_device_leave_out_the_step_on_all(
    kind: Callable[[TrainConfig], Trainer], rows: list[float]
) -> None:
    class Line(ModelDesc):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(np.ones(1, np.float32))

        def loss(self, x: tf.Tensor) -> tf.Tensor:
            return tf.reduce_mean(self.w * x)

    def scaling() -> Any:
        return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), 2.0**126)

    chosen = TrainConfig(
        fl.from_items([np.float32(row) for row in rows]).batch(1),
        model=Line,
        optimizer=scaling,
        tower=["/cpu:0", "/cpu:1"],
        extra_callbacks=(),
        monitors=(),
        max_epoch=1,
    )
    ours = kind(chosen)
    ours.train()
    assert isinstance(ours.model, Line)
    np.testing.assert_allclose(ours.model.w.numpy(), [0.9], rtol=1e-6)


def test_gradients_of_16_bits_do_not_vanish() -> None:
    """The loss is scaled: unscaled, the gradient here is zero in 16 bits."""

    class Small(ModelDesc):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(np.ones(1, np.float32))

        def loss(self, x: tf.Tensor) -> tf.Tensor:
            return tf.reduce_mean(tf.cast(tf.cast(self.w, tf.float16) * 1e-4, tf.float32) * x)

    def optimizer() -> Any:
        return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1e5))

    flow = fl.from_items([np.float32(1e-5)]).batch(1)
    ours = SimpleTrainer(
        TrainConfig(
            flow, model=Small, optimizer=optimizer, extra_callbacks=(), monitors=(), max_epoch=1
        )
    )
    ours.train()
    assert isinstance(ours.model, Small)
    np.testing.assert_allclose(ours.model.w.numpy(), [1.0 - 1e-4], rtol=1e-6)


def test_a_loss_of_keras_is_scaled_once_on_several_devices() -> None:
    """A Keras loss divides itself by the number of replicas; a trainer already does that."""

    class Line(ModelDesc):
        def __init__(self) -> None:
            super().__init__()
            self.dense = tf.keras.layers.Dense(1, kernel_initializer="zeros")
            self.dense.build((None, 6))

        def loss(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            loss: tf.Tensor = keras.losses.MeanSquaredError()(y, self.dense(x))
            return loss

    def sgd() -> Any:
        return keras.optimizers.SGD(0.1)

    one = SimpleTrainer(config(Line, optimizer=sgd))
    two = SyncMultiGPUTrainerReplicated(config(Line, 2, optimizer=sgd))
    for each in (one, two):
        each.train()
    for mine, other in zip(
        one.model.trainable_variables, two.model.trainable_variables, strict=True
    ):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), atol=1e-6)


# -- metrics, outputs, steps of one's own ----------------------------------------------------------


class Epochs(Monitor):
    """The scalars of each epoch."""

    def __init__(self) -> None:
        self.each: list[Mapping[str, float]] = []

    def process_epoch(self, epoch: int, step: int, scalars: Mapping[str, float]) -> None:
        self.each.append(scalars)


def assert_measured(epochs: Epochs, history: Mapping[str, list[float]]) -> None:
    assert len(epochs.each) == EPOCHS
    for name, theirs in history.items():
        ours = [scalars[name.replace("val_", "validation_")] for scalars in epochs.each]
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("towers", [pytest.param(1, marks=pytest.mark.long), 2])
def test_metrics_equal_fit_and_evaluate(towers: int) -> None:
    epochs, make = Epochs(), compiled("penalties", "sgd", metrics=["accuracy", "auc"])
    held_out = fl.from_items(list(zip(X[:10], Y[:10], strict=True))).batch(4)
    ours = trainer(
        make,
        towers,
        callbacks=[InferenceRunner(held_out)],
        monitors=[epochs],
    )
    ours.train()
    _, history = fitted(make, validation_data=(X[:10], Y[:10]))
    assert {"accuracy", "auc", "val_accuracy", "val_auc", "val_loss"} <= set(history)
    assert_measured(epochs, history)


def test_evaluating_within_an_epoch_leaves_the_metrics_of_training_as_they_are() -> None:
    epochs = Epochs()
    held_out = fl.from_items(list(zip(X[:10], Y[:10], strict=True))).batch(4)
    within = PeriodicTrigger(InferenceRunner(held_out), every_k_steps=2)
    ours = trainer(compiled("penalties", "sgd"), callbacks=[within], monitors=[epochs])
    ours.train()
    _, history = fitted(compiled("penalties", "sgd"))
    assert_measured(epochs, history)


def two_outputs() -> Any:
    keras.utils.set_random_seed(1)
    first, second = keras.Input((6,), name="first"), keras.Input((6,), name="second")
    joined = keras.layers.Concatenate()([first, second])
    outputs = {
        "sign": keras.layers.Dense(1, activation="sigmoid", name="sign")(joined),
        "size": keras.layers.Dense(1, name="size")(joined),
    }
    net = keras.Model({"first": first, "second": second}, outputs)
    net.compile(
        keras.optimizers.SGD(0.1),
        {"sign": "binary_crossentropy", "size": "mse"},
        loss_weights={"sign": 0.2, "size": 3.0},
        metrics={"sign": ["accuracy"], "size": ["mae"]},
        weighted_metrics={"sign": ["accuracy"], "size": []},
    )
    return net


@pytest.mark.parametrize("weights", [pytest.param(False, marks=pytest.mark.long), True])
def test_several_inputs_outputs_and_weights_are_as_in_fit(weights: bool) -> None:
    x, y = {"first": X, "second": X[::-1]}, {"sign": Y, "size": X[:, 2:3]}
    w = np.linspace(0, 1, len(X), dtype=np.float32)
    rows: list[Any] = [
        (
            {name: values[i] for name, values in x.items()},
            {name: values[i] for name, values in y.items()},
            *([{"sign": w[i], "size": w[i]}] if weights else []),
        )
        for i in range(len(X))
    ]
    epochs = Epochs()
    chosen = config(two_outputs, monitors=[epochs])
    ours = SimpleTrainer(attrs.evolve(chosen, dataflow=fl.from_items(rows).batch(BATCH)))
    ours.train()
    theirs = two_outputs()
    history = theirs.fit(
        x,
        y,
        sample_weight={"sign": w, "size": w} if weights else None,
        batch_size=BATCH,
        epochs=EPOCHS,
        shuffle=False,
        verbose=0,
    ).history
    model: Any = ours.model
    assert_equal(model.net, theirs)
    assert_measured(epochs, history)


class Halving(tf.keras.Sequential):
    """Takes half of each gradient."""

    def train_step(self, data: Any) -> dict[str, Any]:
        net: Any = self
        x, y = data
        with tf.GradientTape() as tape:
            predicted = net(x, training=True)
            loss = net.compute_loss(x, y, predicted)
        gradients = [gradient / 2 for gradient in tape.gradient(loss, net.trainable_variables)]
        net.optimizer.apply(gradients, net.trainable_variables)
        for metric in net.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, predicted)
        return {metric.name: metric.result() for metric in net.metrics if metric.name == "loss"}


def halving() -> Any:
    keras.utils.set_random_seed(3)
    net: Any = Halving([keras.Input((6,)), keras.layers.Dense(1, activation="sigmoid")])
    net.compile(keras.optimizers.Adam(0.1), "binary_crossentropy")
    return net


@pytest.mark.parametrize("towers", [pytest.param(1, marks=pytest.mark.long), 2])
def test_custom_train_step_is_run(towers: int) -> None:
    ours = trainer(halving, towers)
    ours.train()
    theirs, _ = fitted(halving, towers)
    model: Any = ours.model
    assert_equal(model.net, theirs)


def test_custom_train_step_is_refused_by_trainers_that_sum_gradients() -> None:
    for kind in (SyncMultiGPUTrainerParameterServer, AsyncMultiGPUTrainer):
        with pytest.raises(fl.InvalidFlow, match="Halving overrides train_step"):
            kind(config(halving, 2))
    with pytest.raises(fl.InvalidFlow, match=r"remainder='pad' cannot be used.*train_step"):
        SyncMultiGPUTrainerReplicated(config(halving, 2, remainder="pad"))
    with pytest.raises(fl.InvalidFlow, match=r"remainder='pad' cannot be used.*metrics"):
        SyncMultiGPUTrainerReplicated(config(compiled("dropout", "sgd"), 2, remainder="pad"))
    with pytest.raises(fl.InvalidFlow, match="LossScaleOptimizer changes its scale"):
        AsyncMultiGPUTrainer(config(compiled("dropout", "wrapped"), 2))


def test_element_unsupported_by_fit_is_refused() -> None:
    rows = [{"image": x, "label": y} for x, y in zip(X, Y, strict=True)]
    chosen = attrs.evolve(config(halving), dataflow=fl.from_items(rows).batch(BATCH))
    with pytest.raises(fl.InvalidFlow, match=r"components are \(image, label\): make it \(x, y\)"):
        SimpleTrainer(chosen)
