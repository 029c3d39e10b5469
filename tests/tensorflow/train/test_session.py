"""The start of training: values of variables, threads and memory, callbacks, devices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import (
    Callback,
    ModelDesc,
    ModelSaver,
    NonFiniteLoss,
    SimpleTrainer,
    StopTraining,
    TrainConfig,
)
from tests.tensorflow.train.regression import Linear, adam, points, sgd

W = np.arange(5, dtype=np.float32).reshape(5, 1)


def config(**options: Any) -> TrainConfig:
    chosen: dict[str, Any] = {
        "dataflow": points(32).batch(8),
        "model": Linear,
        "optimizer": sgd,
        "extra_callbacks": (),
        "monitors": (),
        "max_epoch": 1,
    }
    return TrainConfig(**chosen | options)


def begun(**options: Any) -> Linear:
    """Return the model at the start of training."""
    trainer = SimpleTrainer(config(**options))
    trainer.setup()
    assert isinstance(trainer.model, Linear)
    return trainer.model


# -- session_init ----------------------------------------------------------------------------------


def test_session_init_sets_variables_by_name(tmp_path: Path) -> None:
    np.testing.assert_array_equal(begun(session_init={"w": W}).w.numpy(), W)
    np.savez(tmp_path / "values.npz", w=W, b=[7.0])
    model = begun(session_init=tmp_path / "values.npz")
    np.testing.assert_array_equal(model.weights(), [0, 1, 2, 3, 4, 7])


def test_variables_of_keras_layers_have_their_keras_names() -> None:
    class Net(ModelDesc):
        def __init__(self) -> None:
            super().__init__()
            self.net = tf.keras.Sequential(
                [tf.keras.Input((5,)), tf.keras.layers.Dense(1, name="out")], name="net"
            )

        def loss(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            return tf.reduce_mean((self.net(x) - y) ** 2)

    trainer = SimpleTrainer(config(model=Net, session_init={"net/out/kernel": W}))
    trainer.setup()
    assert isinstance(trainer.model, Net)
    np.testing.assert_array_equal(trainer.model.net.variables[0].numpy(), W)


def test_session_init_loads_a_checkpoint_and_own_checkpoints_win(tmp_path: Path) -> None:
    first = SimpleTrainer(config(logdir=tmp_path / "a", callbacks=[ModelSaver()], optimizer=adam))
    first.train()
    assert isinstance(first.model, Linear)
    folder = tmp_path / "a" / "checkpoints"
    model = begun(session_init=folder)  # another optimizer, which starts from its initial state
    np.testing.assert_array_equal(model.weights(), first.model.weights())
    again = begun(logdir=tmp_path / "a", optimizer=adam, session_init={"w": W})
    np.testing.assert_array_equal(again.weights(), first.model.weights())


@pytest.mark.parametrize(
    ("initial", "says"),
    [
        ({"v": W}, r"no variable is called 'v'; there are b, w"),
        ({"w": W.T}, r"'w' is float32\[5, 1\], the value is float32\[1, 5\]"),
        ({"w": W.astype(str)}, r"'w' is float32\[5, 1\], the value is <U"),
        ("nowhere.npz", r"there is no file 'nowhere.npz'"),
        ("nowhere", r"there is no checkpoint 'nowhere'"),
    ],
)
def test_values_that_do_not_fit_are_named(initial: Any, says: str) -> None:
    with pytest.raises((fl.StateMismatch, fl.InvalidFlow), match=says):
        begun(session_init=initial)


def test_a_value_that_does_not_fit_leaves_the_others_as_they_were() -> None:
    trainer = SimpleTrainer(config(session_init={"w": W, "b": [1.0, 2.0]}))
    assert isinstance(trainer.model, Linear)
    before = trainer.model.weights()
    with pytest.raises(fl.StateMismatch):
        trainer.setup()
    np.testing.assert_array_equal(trainer.model.weights(), before)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    class Other(ModelDesc):
        def __init__(self) -> None:
            super().__init__()
            self.v = tf.Variable(np.zeros((5, 1), np.float32))

        def loss(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            return tf.reduce_mean((x @ self.v - y) ** 2)

    SimpleTrainer(config(model=Other, logdir=tmp_path, callbacks=[ModelSaver()])).train()
    with pytest.raises(fl.StateMismatch, match="is of another model than Linear"):
        begun(session_init=tmp_path / "checkpoints")


# -- session_config --------------------------------------------------------------------------------


@pytest.mark.long
def test_threads_are_set_before_tensorflow_starts() -> None:
    code = """
import tensorflow as tf, flowdsl as fl
from flowdsl.tensorflow.train import SimpleTrainer, TrainConfig
given = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=3, allow_soft_placement=True)
class Line(tf.Module):
    def __init__(self):
        self.w = tf.Variable(1.0)
    def loss(self, x):
        return self.w * tf.cast(x, tf.float32)
SimpleTrainer(TrainConfig(fl.from_range(4), model=Line, session_config=given, monitors=(),
    extra_callbacks=(), optimizer=tf.keras.optimizers.SGD, max_epoch=1)).train()
assert tf.config.threading.get_intra_op_parallelism_threads() == 3
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_unsupported_session_config_is_refused() -> None:
    v1 = tf.compat.v1
    with pytest.raises(fl.InvalidFlow, match="sets operation_timeout_in_ms, which TensorFlow 2"):
        SimpleTrainer(config(session_config=v1.ConfigProto(operation_timeout_in_ms=3)))
    options = v1.GPUOptions(visible_device_list="0")
    with pytest.raises(fl.InvalidFlow, match=r"sets gpu_options\.visible_device_list"):
        SimpleTrainer(config(session_config=v1.ConfigProto(gpu_options=options)))
    tf.constant(0)
    with pytest.raises(fl.InvalidFlow, match="session_config comes too late"):
        SimpleTrainer(config(session_config=v1.ConfigProto(intra_op_parallelism_threads=7)))
    with pytest.raises(fl.InvalidFlow, match="session_creator made a session"):
        config(session_creator=object())


# -- setup, callbacks ------------------------------------------------------------------------------


class Diary(Callback):
    def __init__(self, name: str, lines: list[str]) -> None:
        self.name, self.lines = name, lines

    def trigger_step(self) -> None:
        self.lines.append(self.name)


def test_a_callback_is_registered_before_setup_ends() -> None:
    lines: list[str] = []

    class Registers(Callback):
        def setup(self, trainer: Any) -> None:
            super().setup(trainer)
            trainer.register_callback(Diary("registered in setup", lines))

    trainer = SimpleTrainer(config(callbacks=[Diary("given", lines), Registers()]))
    trainer.register_callback(Diary("registered", lines))
    trainer.setup()
    with pytest.raises(fl.FlowError, match=r"setup\(\) has ended, so Diary would miss"):
        trainer.register_callback(Diary("late", lines))
    trainer.main_loop()
    assert lines == ["given", "registered", "registered in setup"] * 4


def test_main_loop_needs_setup() -> None:
    with pytest.raises(fl.FlowError, match=r"main_loop: call setup\(\) first"):
        SimpleTrainer(config()).main_loop()


def test_stopping_is_not_swallowed_and_completes_the_method_for_all_callbacks() -> None:
    lines: list[str] = []

    class Stops(Callback):
        def trigger_step(self) -> None:
            if self.trainer.global_step == 3:
                try:
                    raise StopTraining
                except Exception:  # as careless code has it
                    lines.append("swallowed")

        def after_train(self) -> None:
            lines.append("after_train")

    SimpleTrainer(config(callbacks=[Stops(), Diary("step", lines)])).train()
    assert lines == ["step"] * 3 + ["after_train"]


def test_only_the_chief_runs_what_is_for_the_chief() -> None:
    lines: list[str] = []

    class Everywhere(Diary):
        chief_only = False

    class Second(SimpleTrainer):
        is_chief = False

    Second(config(callbacks=[Diary("chief", lines), Everywhere("all", lines)])).train()
    assert lines == ["all"] * 4


# -- models and devices ----------------------------------------------------------------------------


def net(**options: Any) -> tf.keras.Model:
    dense = tf.keras.layers.Dense(1, kernel_initializer="zeros", **options)
    return tf.keras.Sequential([tf.keras.Input((5,)), dense])


def test_a_compiled_keras_model_trains_as_fit_does() -> None:
    ours, theirs = net(), net()
    for model in (ours, theirs):
        model.compile(optimizer=tf.keras.optimizers.Adam(0.05), loss="mse")
    trainer = SimpleTrainer(config(model=ours, optimizer=None))
    trainer.train()
    fit: Any = theirs
    ((x, y),) = points(32).batch(32).collect()
    fit.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    for mine, other in zip(ours.variables, theirs.variables, strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), atol=1e-6)


def test_existing_model_works_only_with_one_tower() -> None:
    model = Linear()
    trainer = SimpleTrainer(config(model=model))
    trainer.train()
    assert trainer.model is model
    from flowdsl.tensorflow.train import SyncMultiGPUTrainerReplicated

    with pytest.raises(fl.InvalidFlow, match=r"a Linear that is made already.*2 towers"):
        SyncMultiGPUTrainerReplicated(config(model=model, tower=["/cpu:0", "/cpu:1"]))
    with pytest.raises(fl.InvalidFlow, match=r"is not compiled.*compile\(optimizer"):
        SimpleTrainer(config(model=net()))
    with pytest.raises(fl.InvalidFlow, match="optimizer is missing"):
        SimpleTrainer(config(optimizer=None))


@pytest.mark.parametrize("arguments", [{"tower": [7]}, {"tower": ["/cpu:9"]}])
def test_a_device_that_does_not_exist_is_named(arguments: dict[str, Any]) -> None:
    with pytest.raises(fl.FlowError, match=r"there is no device.*TensorFlow sees .*/cpu:0"):
        SimpleTrainer(config(**arguments))


def test_towers_may_be_given_by_numbers() -> None:
    assert config(tower=[1]).devices() in (("/gpu:1",), ("/cpu:1",))


def test_configuration_arguments_have_the_documented_order() -> None:
    flow = points(32).batch(8)
    given = TrainConfig(flow, None, Linear, [], [], [], None, None, None, 1, 3, 5, 1, None, [-1])
    assert (given.steps_per_epoch, given.max_epoch, given.predict_tower) == (3, 5, (-1,))
    assert given.predict_device(0) == "/cpu:0"
    refused: Any = TrainConfig
    with pytest.raises(TypeError, match="stepz"):
        refused(flow, stepz=3)


def test_nan_loss_is_an_error() -> None:
    class Broken(Linear):
        def loss(self, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
            loss, _ = super().loss(x, y)
            return loss / 0.0 * 0.0, {}

    with pytest.raises(NonFiniteLoss, match="the loss of step 1, in epoch 1, is nan"):
        SimpleTrainer(config(model=Broken)).train()
