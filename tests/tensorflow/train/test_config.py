from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.inputs import QueueInput
from flowdsl.tensorflow.train import (
    JSONWriter,
    MergeAllSummaries,
    MovingAverageSummary,
    ProgressBar,
    RunUpdateOps,
    ScalarPrinter,
    SimpleTrainer,
    TFEventWriter,
    TrainConfig,
)
from tests.tensorflow.train.regression import Linear, points, sgd

FLOW = points().batch(8)


def unchecked(make: Callable[..., object], **arguments: object) -> None:
    """Create what a type checker would refuse."""
    make(**arguments)


def test_default_callbacks_and_monitors() -> None:
    config = TrainConfig(dataflow=FLOW, model=Linear, optimizer=sgd)
    assert (config.starting_epoch, config.max_epoch) == (1, 99999)
    defaults = [MovingAverageSummary, ProgressBar, MergeAllSummaries, RunUpdateOps]
    assert [type(c) for c in config.extra_callbacks] == defaults
    assert [type(m) for m in config.monitors] == [ScalarPrinter]
    assert len(config.devices()) == 1


def test_with_a_logdir_the_monitors_write_files() -> None:
    config = TrainConfig(dataflow=FLOW, model=Linear, optimizer=sgd, logdir="log")
    assert config.logdir == Path("log")
    assert [type(m) for m in config.monitors] == [TFEventWriter, JSONWriter, ScalarPrinter]


def test_source_is_the_data_argument_or_a_queue_over_the_flow() -> None:
    given = QueueInput(FLOW)
    assert TrainConfig(data=given, model=Linear, optimizer=sgd).source() is given
    made = TrainConfig(dataflow=FLOW, model=Linear, optimizer=sgd).source()
    assert isinstance(made, QueueInput)
    assert made.flow is FLOW


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "either dataflow or data, got neither"),
        ({"dataflow": FLOW, "data": QueueInput(FLOW)}, "either dataflow or data, got both"),
        ({"dataflow": FLOW, "nr_tower": 2, "tower": ["/cpu:0"]}, "either nr_tower or tower"),
        ({"dataflow": FLOW, "tower": []}, "tower must list a device or more, got none"),
        ({"dataflow": FLOW, "nr_tower": 0}, "nr_tower must be an int >= 1, got 0"),
        ({"dataflow": FLOW, "steps_per_epoch": 0}, "steps_per_epoch must be an int >= 1, got 0"),
        ({"dataflow": FLOW, "max_epoch": True}, "max_epoch must be an int >= 0, got True"),
        ({"dataflow": FLOW, "record_every": -1}, "record_every must be an int >= 1, got -1"),
        (
            {"dataflow": FLOW, "starting_epoch": 5, "max_epoch": 3},
            "max_epoch must be >= starting_epoch=5, got 3",
        ),
        (
            {"dataflow": FLOW, "optimizer": tf.keras.optimizers.SGD(0.1)},
            "optimizer must be a function that creates it.*got the SGD itself.*optimizer=lambda",
        ),
        ({"dataflow": FLOW, "model": None}, "model must be a function that creates it"),
    ],
)
def test_an_argument_that_is_wrong_is_named(arguments: Mapping[str, object], says: str) -> None:
    with pytest.raises(fl.InvalidFlow, match=says):
        unchecked(TrainConfig, **{"model": Linear, "optimizer": sgd, **arguments})


def test_steps_per_epoch_is_required_for_unknown_length() -> None:
    for flow in (FLOW.repeat(), FLOW.filter(lambda _: True)):
        config = TrainConfig(dataflow=flow, model=Linear, optimizer=sgd)
        with pytest.raises(fl.InvalidFlow, match="steps_per_epoch must be given"):
            SimpleTrainer(config)
