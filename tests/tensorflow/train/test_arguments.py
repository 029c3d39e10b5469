"""Arguments of another kind than is expected are refused by name: no bare error of Python."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import flowdsl as fl
import flowdsl.tensorflow.inputs as inputs
import flowdsl.tensorflow.train as train
from flowdsl.errors import InvalidArgument
from tests.tensorflow.train.regression import Linear, points

FLOW = points(8).batch(2)
SPECS = [tf.TensorSpec((None, 3), tf.float32, "x"), tf.TensorSpec((None, 1), tf.float32, "y")]


def config(flow: fl.Flow[Any, Any] = FLOW, **others: Any) -> train.TrainConfig:
    chosen: dict[str, Any] = {"model": Linear, "optimizer": lambda: tf.keras.optimizers.SGD(0.1)}
    return train.TrainConfig(flow, **chosen | others)


def trainer() -> train.Trainer:
    return train.SimpleTrainer(config())


MISTAKES: dict[str, Callable[[], object]] = {
    "TrainConfig: callbacks must be a list of callbacks, got a ModelSaver; write [...]": (
        lambda: config(callbacks=train.ModelSaver())
    ),
    "TrainConfig: callbacks must be a list of callbacks, and item 0 is the function print": (
        lambda: config(callbacks=[print])
    ),
    "TrainConfig: callbacks must be a list of callbacks, and item 0 is the class ModelSaver; write "
    "ModelSaver(...)": lambda: config(callbacks=[train.ModelSaver]),
    "TrainConfig: monitors must be a list of monitors, got a JSONWriter": (
        lambda: config(monitors=train.JSONWriter())
    ),
    "TrainConfig: tower must be a list of devices, numbers of GPUs or names such as '/gpu:0', got "
    "'cpu:0'; write ['cpu:0']": lambda: config(tower="cpu:0"),
    "TrainConfig: predict_tower must be a list of devices, numbers of GPUs or names such as "
    "'/gpu:0', got 0; write [0]": lambda: config(predict_tower=0),
    "TrainConfig: logdir must be a path, got 3": lambda: config(logdir=3),
    "TrainConfig: a step of 1 tower(s) takes 1 element(s), and the flow has 0": (
        lambda: train.SimpleTrainer(config(FLOW.take(0)))
    ),
    "TrainConfig: session_init must be a path, or a dict": lambda: config(session_init=[1.0]),
    "SimpleTrainer: config must be a TrainConfig, got a Flow; write SimpleTrainer(TrainConfig(": (
        lambda: train.SimpleTrainer(FLOW)  # type: ignore[arg-type]
    ),
    "SyncMultiGPUTrainerReplicated: devices must be a list of devices, such as '/gpu:0', got "
    "'/cpu:0'; write ['/cpu:0']": (
        lambda: train.SyncMultiGPUTrainerReplicated(config(), "/cpu:0")  # type: ignore[arg-type]
    ),
    "get_predictor: input_names must be a list of names, got 'x'; write ['x']": (
        lambda: trainer().get_predictor("x", ["loss"])  # type: ignore[arg-type]
    ),
    "InferenceRunner: scalars must be a method of the model that returns scalars, such as "
    "Digits.predictive, got 'accuracy'": (
        lambda: train.InferenceRunner(FLOW, "accuracy")  # type: ignore[arg-type]
    ),
    "ScheduledHyperParamSetter: schedule must be a list of pairs of an epoch and a value, with "
    "increasing epochs from 0, e.g. [(0, 0.1), (30, 0.01)], got {0: 0.1}; write [(0, 0.1)]": (
        lambda: train.ScheduledHyperParamSetter("lr", {0: 0.1})  # type: ignore[arg-type]
    ),
    "PeriodicTrigger: callback must be a callback, got the class ModelSaver; write "
    "ModelSaver(...)": (
        lambda: train.PeriodicTrigger(train.ModelSaver, 1)  # type: ignore[call-overload]
    ),
    "PeriodicTrigger: pass every_k_steps, every_k_epochs, or both, as in "
    "PeriodicTrigger(ModelSaver(...), every_k_epochs=5)": (
        lambda: train.PeriodicTrigger(train.ModelSaver())  # type: ignore[call-overload]
    ),
    "Curves: names must be a list of names, got 'loss'; write ['loss']": (
        lambda: train.Curves(names="loss")  # type: ignore[arg-type]
    ),
    "RunUpdateOps: updates must be a list of functions, got the function print; write [...]": (
        lambda: train.RunUpdateOps(print)  # type: ignore[arg-type]
    ),
    "QueueInput: spec must be a list of tf.TensorSpec, one for each component, got a TensorSpec; "
    "write [...]": lambda: inputs.QueueInput(FLOW, spec=SPECS[0]),  # type: ignore[arg-type]
    "remap_input_source: names must be a list of names, got 'x'; write ['x']": (
        lambda: inputs.remap_input_source(inputs.QueueInput(FLOW), "x")  # type: ignore[arg-type]
    ),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_is_named_with_what_to_write(message: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        MISTAKES[message]()


def bases() -> Iterator[tuple[Callable[..., object], dict[str, Any]]]:
    """Yield public classes and functions, with the arguments that they need."""
    yield train.TrainConfig, {"dataflow": FLOW, "model": Linear}
    for trained in (train.SimpleTrainer, train.QueueInputTrainer, train.AsyncMultiGPUTrainer):
        yield trained, {"config": None}
    yield train.SyncMultiGPUTrainerReplicated, {"config": None}
    yield train.SyncMultiGPUTrainerParameterServer, {"config": None}
    yield train.DistributedReplicatedTrainer, {"config": None}
    yield train.AsyncDistributedTrainer, {"config": None}
    yield train.PeriodicTrigger, {"callback": train.ModelSaver(), "every_k_epochs": 1}
    yield train.ScheduledHyperParamSetter, {"param": "lr", "schedule": [(0, 0.1)]}
    yield train.LeastLoadedDeviceSetter, {"worker_device": "/cpu:0", "ps_devices": ["/cpu:0"]}
    yield train.EarlyStopping, {"monitor": "loss"}
    yield train.InferenceRunner, {"flow": FLOW}
    yield train.MinSaver, {"monitor_stat": "loss"}
    yield train.read_events, {"logdir": "none"}
    yield train.read_stats, {"logdir": "none"}
    yield train.draw_curves, {"logdir": "none", "path": "none.svg"}
    build = train.MultiGPUTrainerBase.build_on_multi_tower
    yield build, {"towers": [0], "func": list, "devices": ["/cpu:0"]}
    yield from ((callback, {}) for callback in (train.Curves, train.DataReport, train.ModelSaver))
    yield from ((callback, {}) for callback in (train.MergeAllSummaries, train.RunUpdateOps))
    yield from ((callback, {}) for callback in (train.MovingAverageSummary, train.ScalarPrinter))
    yield inputs.QueueInput, {"flow": FLOW}
    yield inputs.BatchQueueInput, {"flow": FLOW, "batch_size": 2}
    yield inputs.FeedInput, {"flow": FLOW}
    yield inputs.TFDatasetInput, {"dataset": FLOW}
    yield inputs.DummyConstantInput, {"shapes": [(2, 3)]}
    yield inputs.PlaceholderInput, {"specs": SPECS}
    yield inputs.StagingInput, {"input": inputs.QueueInput(FLOW)}
    yield inputs.remap_input_source, {"input": inputs.QueueInput(FLOW), "names": ["a", "b"]}


OTHERS = [
    *(3, -1, 1.5, True, "x", None, print, object(), train.ModelSaver(), train.ModelSaver, FLOW),
    *([], ["a"], [1], [print], [(0, "a")], {0: 0.1}, np.zeros(3), Path("x")),
]


@pytest.mark.parametrize(("make", "needed"), [pytest.param(*b, id=b[0].__name__) for b in bases()])
def test_arguments_of_other_kinds_end_in_no_bare_error(
    make: Callable[..., object], needed: dict[str, Any]
) -> None:
    for name in inspect.signature(make).parameters:
        for other in OTHERS:
            with suppress(fl.FlowError):
                make(**needed | {name: other})


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda w: None, r"Bad\.loss: return a scalar .* 'loss' is of type NoneType \(is a return"),
        (lambda w: (w, w), r"Bad\.loss: return a scalar tensor, .* got \(loss, "),
        (lambda w: [w], r"Bad\.loss: 'loss' has shape \(1,\), but a scalar"),
        (lambda w: (w, {"x": "a", "y": object()}), r"'y' is of type object"),
        (lambda w: 3.0, "depends on none of the model's trainable variables"),
    ],
)
@pytest.mark.filterwarnings("ignore::flowdsl.tensorflow.train.UntrainedVariable")
def test_a_loss_returns_a_scalar(result: Any, message: str) -> None:
    class Bad(train.ModelDesc):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(1.0)

        def loss(self, x: tf.Tensor) -> Any:
            return result(self.w + tf.cast(x, tf.float32))

    with pytest.raises(InvalidArgument, match=message):
        train.SimpleTrainer(config(fl.from_range(3), model=Bad)).train()


def test_scalars_may_be_numbers_and_variables() -> None:
    class Fine(train.ModelDesc):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(1.0)

        def loss(self, x: tf.Tensor) -> Any:
            return self.w * tf.cast(x, tf.float32), {"decay": 0.5, "w": self.w}

    trainer = train.SimpleTrainer(config(fl.from_range(3), model=Fine, max_epoch=1))
    trainer.train()
    assert trainer.scalars["decay"] == 0.5


def test_a_finished_trainer_without_a_logdir_suggests_a_new_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trainer = train.SimpleTrainer(config(max_epoch=1))
    trainer.train()
    trainer.train()
    assert "training is complete: epoch 1 is done" in caplog.text
    assert "create a new trainer" in caplog.text
