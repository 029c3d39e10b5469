"""Trained variables, variables in checkpoints, and warnings about the others."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.tensorflow.train import (
    Callback,
    ModelDesc,
    ModelSaver,
    SimpleTrainer,
    TrainConfig,
    Trainer,
    UntrainedVariable,
)
from flowdsl.tensorflow.train.variables import held_by
from tests.tensorflow.train.keras_models import (
    BATCH,
    EPOCHS,
    LAYERS,
    X,
    Y,
    compiled,
    keras,
    trainer,
    values,
)

STEPS = len(X) // BATCH * EPOCHS


class Killed(BaseException):
    """Simulates a kill: no error handler sees it."""


class KillAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def trigger_step(self) -> None:
        if self.trainer.global_step == self.step:
            raise Killed


def resumed(make: Any, step: int, folder: Path, towers: int = 1, **options: Any) -> Trainer:
    """Return a training that was killed after a step, and run again."""
    chosen = {"logdir": folder, **options}
    killed = trainer(make, towers, callbacks=[ModelSaver(every_steps=2), KillAt(step)], **chosen)
    with pytest.raises(Killed):
        killed.train()
    again = trainer(make, towers, callbacks=[ModelSaver(every_steps=2)], **chosen)
    again.train()
    assert again.global_step == STEPS
    return again


@pytest.mark.parametrize(
    ("layer", "optimizer", "towers"),
    [
        pytest.param("dropout", "averaged", 1, marks=pytest.mark.long),
        pytest.param("dropout", "wrapped", 2, marks=pytest.mark.long),
        *(
            pytest.param(
                layer, "sgd", 1, marks=[] if layer == "gaussian noise" else pytest.mark.long
            )
            for layer in LAYERS
        ),
        *(
            pytest.param("dropout", optimizer, 1, marks=pytest.mark.long)
            for optimizer in ("accumulating", "wrapped")
        ),
    ],
)
def test_resumed_training_continues_random_state_and_metrics(
    layer: str, optimizer: str, towers: int, tmp_path: Path
) -> None:
    make = compiled(layer, optimizer)
    whole = trainer(make, towers)
    whole.train()
    step = 3 + len(layer) % (STEPS - 4)  # at any place of an epoch
    again = resumed(make, step, tmp_path, towers)
    reference: Any = whole.model
    model: Any = again.model
    for mine, other in zip(values(model.net), values(reference.net), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-6)
    assert model.measured() == pytest.approx(reference.measured(), abs=1e-6)


class Plain:
    """An object that neither TensorFlow nor Keras searches."""

    def __init__(self) -> None:
        self.count = tf.Variable(0.0, trainable=False)
        self.noise = keras.random.SeedGenerator(7)


OUTSIDE: dict[str, Any] = {}
"""Variables that do not belong to a model."""


class Uses(ModelDesc):
    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(np.full((6, 1), 0.1, np.float32))
        self.plain = Plain()
        OUTSIDE["count"] = tf.Variable(0.0, trainable=False)

    def loss(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        drawn = keras.random.normal((1,), seed=self.plain.noise)
        self.plain.count.assign_add(1.0)
        OUTSIDE["count"].assign_add(2.0)
        return tf.reduce_mean((x @ self.w - y + 0.1 * drawn) ** 2)


@settings(max_examples=3, deadline=None)
@given(st.integers(1, STEPS - 1))
def test_variables_that_tensorflow_does_not_track_are_in_a_checkpoint(step: int) -> None:
    import tempfile

    def sgd() -> Any:
        return keras.optimizers.SGD(0.1)

    whole = trainer(Uses, optimizer=sgd)
    whole.train()
    with tempfile.TemporaryDirectory() as folder:
        again = resumed(Uses, step, Path(folder), optimizer=sgd)
    assert isinstance(again.model, Uses)
    assert isinstance(whole.model, Uses)
    np.testing.assert_allclose(again.model.w.numpy(), whole.model.w.numpy(), atol=1e-6)
    assert float(again.model.plain.count.numpy()) == STEPS
    assert float(OUTSIDE["count"].numpy()) == 2 * STEPS


def test_another_training_begins_with_all_variables_of_a_checkpoint(tmp_path: Path) -> None:
    first = trainer(
        Uses, optimizer=lambda: keras.optimizers.SGD(0.1), logdir=tmp_path, callbacks=[ModelSaver()]
    )
    first.train()
    other = trainer(
        Uses, optimizer=keras.optimizers.Adam, session_init=tmp_path / "checkpoints", max_epoch=1
    )
    other.setup()
    assert isinstance(other.model, Uses)
    assert float(other.model.plain.count.numpy()) == STEPS


# -- layers in containers --------------------------------------------------------------------------


class Containers(ModelDesc):
    def __init__(self) -> None:
        super().__init__()

        def dense() -> Any:
            return keras.layers.Dense(1, use_bias=False)

        self.by_name = {"a": dense(), "b": {"c": [dense()]}}
        self.rows = [[dense()], [dense(), (dense(),)]]
        self.scale = keras.Variable(1.0)
        self.plain = tf.Variable(1.0)
        self.fixed = keras.Variable(1.0, trainable=False)
        module: Any = tf.Module()
        module.layers = {"d": dense()}
        self.of_module = module

    @property
    def layers(self) -> list[Any]:
        return [
            *(self.by_name["a"], self.by_name["b"]["c"][0]),
            *(self.rows[0][0], self.rows[1][0], self.rows[1][1][0]),
            self.of_module.layers["d"],
        ]

    def loss(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        made: Any = tf.add_n([layer(x) for layer in self.layers])
        return tf.reduce_mean((self.scale * made + self.plain - y) ** 2)


def test_layers_and_variables_in_any_containers_are_trained() -> None:
    def built() -> Containers:
        model = Containers()
        for layer in model.layers:
            layer.build((None, 6))
        return model

    ours = trainer(built, optimizer=lambda: keras.optimizers.SGD(0.1), max_epoch=1)
    variables = list(ours.model.trainable_variables)
    assert len(variables) == 8
    before = [variable.numpy() for variable in variables]
    ours.train()
    for variable, first in zip(variables, before, strict=True):
        assert not np.array_equal(variable.numpy(), first)


class Forgets(ModelDesc):
    def __init__(self, used: bool) -> None:
        super().__init__()
        self.w = tf.Variable(np.full((6, 1), 0.1, np.float32))
        self.idle = tf.Variable(1.0)
        hidden = Plain()
        self.elsewhere = hidden
        self.used = used
        OUTSIDE["w"] = tf.Variable(np.ones((6, 1), np.float32), name="outside")

    def loss(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        outside = OUTSIDE["w"] if self.used else 0.0
        idle = 0.0 if self.used else self.idle
        return tf.reduce_mean((x @ (self.w + outside) + idle - y) ** 2)


@pytest.mark.parametrize(
    "says",
    [
        r"not trained: outside of shape \[6, 1\]: the loss uses",
        "not trained: idle: the loss does not depend",
    ],
)
def test_trainable_variables_that_no_step_trains_are_named_once(says: str) -> None:
    ours = trainer(lambda: Forgets(True), optimizer=lambda: keras.optimizers.SGD(0.1))
    with pytest.warns(UntrainedVariable) as warned:
        ours.train()
    assert len(warned) == 2
    assert any(re.search(says, str(one.message)) for one in warned)


def test_loss_without_variables_is_refused() -> None:
    class Constant(Forgets):
        def loss(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            return tf.reduce_mean(x - y)

    with pytest.warns(UntrainedVariable), pytest.raises(fl.InvalidFlow, match="depends on none"):
        trainer(lambda: Constant(False), optimizer=keras.optimizers.SGD).train()


def test_held_variables_have_stable_paths() -> None:
    def held() -> list[str]:
        model = Containers()
        for layer in model.layers:
            layer.build((None, 6))
        return list(held_by({"model": model, "more": Plain()}))

    assert held() == held()
    assert "more/noise/state" in held()


# -- what a program has changed --------------------------------------------------------------------


def rated(folder: Path, rate: float, epochs: int, **options: Any) -> SimpleTrainer:
    flow = fl.from_items(list(zip(X, Y, strict=True))).batch(4)
    momentum: float = options.pop("momentum", 0.9)
    config = TrainConfig(
        flow,
        model=compiled("penalties", "sgd"),
        optimizer=lambda: keras.optimizers.SGD(rate, momentum=momentum),
        callbacks=[ModelSaver(), *options.pop("callbacks", ())],
        extra_callbacks=(),
        monitors=(),
        max_epoch=epochs,
        logdir=folder,
        **options,
    )
    return SimpleTrainer(config)


def rate_of(trainer: Trainer) -> float:
    optimizer: Any = trainer.optimizer
    return float(optimizer.learning_rate.numpy())


def test_changed_learning_rate_applies_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rated(tmp_path, 1.0, 1).train()
    assert not caplog.records
    second = rated(tmp_path, 0.1, 2, momentum=0.5)
    second.train()
    assert rate_of(second) == pytest.approx(0.1)
    (said,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "training continues after step 6, in epoch 2, from " in said.getMessage()
    assert "learning_rate is 0.1" in said.getMessage()
    assert "was 1.0" in said.getMessage()
    assert "momentum is 0.5, was 0.9" in said.getMessage()


def test_a_learning_rate_that_training_has_lowered_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Lower(Callback):
        def trigger_epoch(self) -> None:
            optimizer: Any = self.trainer.optimizer
            optimizer.learning_rate = 0.25

    rated(tmp_path, 1.0, 1, callbacks=[Lower()]).train()
    second = rated(tmp_path, 1.0, 2)
    second.train()
    assert rate_of(second) == 0.25
    assert "other settings" not in caplog.text


def test_steps_whose_loss_was_not_finite_are_counted_over_a_resume(tmp_path: Path) -> None:
    class Broken(ModelDesc):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(1.0)

        def loss(self, x: tf.Tensor) -> tf.Tensor:
            return tf.reduce_mean(x * self.w)

    def run(epochs: int) -> SimpleTrainer:
        rows = [np.float32(1), np.float32("nan"), np.float32(2)]
        config = TrainConfig(
            fl.from_items(rows).batch(1),
            model=Broken,
            optimizer=lambda: keras.optimizers.SGD(0.0),
            callbacks=[ModelSaver()],
            extra_callbacks=(),
            monitors=(),
            max_epoch=epochs,
            logdir=tmp_path,
            non_finite="count",
        )
        trainer = SimpleTrainer(config)
        trainer.train()
        return trainer

    first = run(1).non_finite_steps
    assert first >= 1
    assert run(2).non_finite_steps > first
