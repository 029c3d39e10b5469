"""Predictors: named inputs to named outputs, on the current variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import SimpleTrainer, SyncMultiGPUTrainerReplicated, TrainConfig
from tests.tensorflow.train.regression import Linear, X, points, sgd


class Answering(Linear):
    def answer(self, x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x @ self.w) + self.b

    def error(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return self.answer(x) - y

    def nothing(self) -> tf.Tensor:
        return tf.constant(0)


def config(**options: Any) -> TrainConfig:
    chosen: dict[str, Any] = {
        "dataflow": points(32).batch(8),
        "model": Answering,
        "optimizer": sgd,
        "extra_callbacks": (),
        "monitors": (),
        "max_epoch": 1,
    }
    return TrainConfig(**chosen | options)


@pytest.mark.parametrize("make", [SimpleTrainer, SyncMultiGPUTrainerReplicated])
def test_a_predictor_uses_the_variables_as_they_are(make: Any) -> None:
    towers = 1 if make is SimpleTrainer else 2
    trainer = make(config(tower=[f"/cpu:{k}" for k in range(towers)]))
    predict = trainer.get_predictor(["x"], ["answer"])
    before = predict(X[:3])[0]
    trainer.train()
    (after,) = predict(X[:3])
    model = trainer.model
    assert isinstance(model, Answering)
    np.testing.assert_allclose(after, np.tanh(X[:3] @ model.w.numpy()) + model.b.numpy(), 1e-5)
    assert not np.allclose(before, after)


def test_inputs_go_by_name_and_outputs_come_in_order() -> None:
    trainer = SimpleTrainer(config())
    predict = trainer.get_predictor(["y", "x"], ["error", "answer"])
    y = np.ones((3, 1), np.float32)
    error, answer = predict(y, X[:3])
    np.testing.assert_allclose(error, answer - y)
    with pytest.raises(fl.InvalidFlow, match=r"takes 2 inputs \(y, x\), got 1"):
        predict(y)


def test_predictors_are_made_once_for_each_device() -> None:
    trainer = SimpleTrainer(config(predict_tower=["/cpu:0", "/cpu:1"]))
    first, second, third = trainer.get_predictors(["x"], ["answer"], 3)
    assert first is third
    assert first is trainer.get_predictor(["x"], ["answer"], 0)
    assert [first.device, second.device] == ["/cpu:0", "/cpu:1"]
    np.testing.assert_allclose(first(X), second(X))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((["x"], ["anser"]), "Answering has no method 'anser'"),
        ((["x"], ["error"]), r"error\(.*needs y, the inputs are x"),
        ((["x", "z"], ["answer"]), "none of answer takes the input 'z'"),
        ((["x"], ["nothing"]), "none of the inputs"),
        (("x", ["answer"]), "input_names must be a list of names, got 'x'; write \\['x'\\]"),
        ((["x"], []), "output_names must be a list of names"),
        ((["x"], ["answer"], 1), r"tower must be a position in predict_tower=\(0,\), got 1"),
    ],
)
def test_unknown_output_of_a_model_is_named(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(fl.InvalidFlow, match=says):
        SimpleTrainer(config()).get_predictor(*arguments)


def test_a_keras_model_is_its_own_output() -> None:
    net = tf.keras.Sequential([tf.keras.Input((5,)), tf.keras.layers.Dense(1)])
    net.compile(loss="mse")
    predict = SimpleTrainer(config(model=net, optimizer=None)).get_predictor(["x"], ["output"])
    np.testing.assert_allclose(predict(X)[0], net(X, training=False).numpy(), atol=1e-6)
