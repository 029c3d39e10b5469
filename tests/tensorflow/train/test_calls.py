"""Several steps per call, and steps with few elements, equal single steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.tensorflow.inputs import (
    BatchQueueInput,
    FeedInput,
    InputSource,
    QueueInput,
    StagingInput,
)
from flowdsl.tensorflow.train import (
    Callback,
    History,
    LeftOver,
    ModelDesc,
    ModelSaver,
    SyncMultiGPUTrainerReplicated,
    TrainConfig,
    Trainer,
)
from tests.sampling import examples
from tests.tensorflow.train.regression import Floats, Linear, points, sgd


def trained(towers: int, flow: Any, **options: Any) -> Trainer:
    """A trainer over logical CPUs, after training."""
    config = TrainConfig(
        dataflow=flow,
        **{
            "model": Linear,
            "optimizer": sgd,
            "extra_callbacks": (),
            "monitors": (),
            "max_epoch": 1,
            **options,
        },
    )
    devices = [f"/cpu:{k}" for k in range(towers)]
    trainer = SyncMultiGPUTrainerReplicated(config, devices)
    trainer.train()
    return trainer


def weights(trainer: Trainer) -> Floats:
    assert isinstance(trainer.model, Linear)
    return trainer.model.weights()


class Calls(Callback):
    """The steps at which callbacks were called."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def trigger_step(self) -> None:
        self.steps.append(self.trainer.global_step)


@settings(max_examples=examples(40))
@given(
    n=st.integers(2, 12),
    towers=st.integers(1, 2),
    steps=st.integers(2, 5),
    epoch=st.none() | st.integers(1, 7),
)
@pytest.mark.filterwarnings("ignore::flowdsl.tensorflow.train.LeftOver")
def test_several_steps_in_a_call_equal_single_steps(
    n: int, towers: int, steps: int, epoch: int | None
) -> None:
    flow = points(4 * n).shuffle(seed=n).batch(4)
    one, many = [
        trained(towers, flow, steps_per_call=k, steps_per_epoch=epoch, max_epoch=3)
        for k in (1, steps)
    ]
    np.testing.assert_allclose(weights(many), weights(one), atol=1e-6)
    for name in ("global_step", "left_over", "epoch_num"):
        assert getattr(many, name) == getattr(one, name), name


def test_callbacks_run_after_each_call_with_mean_scalars() -> None:
    calls, one, many = Calls(), History(), History()
    trained(1, points(44).batch(4), monitors=[one])
    trained(1, points(44).batch(4), monitors=[many], callbacks=[calls], steps_per_call=4)
    assert calls.steps == [4, 8, 11]
    losses = [*one["loss"].values()]
    means = [np.mean(losses[k : k + 4]) for k in (0, 4, 8)]
    assert [*many["loss"]] == calls.steps
    np.testing.assert_allclose([*many["loss"].values()], means, atol=1e-5)


def test_periodic_actions_run_after_the_call_that_reaches_their_step(
    tmp_path: Any,
) -> None:
    history = History()
    trained(
        1, points().batch(4), monitors=[history], steps_per_call=5, record_every=10,
        logdir=tmp_path, callbacks=[ModelSaver(every_steps=7, max_to_keep=9)],
    )  # fmt: skip
    assert [*history["loss"]] == [10, 20]
    saved = {int(path.name.split("-")[-1].split(".")[0]) for path in tmp_path.glob("**/*.index")}
    assert saved == {10, 15, 24}


class Killed(Exception):
    pass


class KillAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def trigger_step(self) -> None:
        if self.trainer.global_step == self.step:
            raise Killed


def test_training_resumes_between_two_calls(tmp_path: Any) -> None:
    flow = points(40).shuffle(seed=1).batch(4)

    def options(*kill: Callback) -> Any:
        callbacks = [ModelSaver(every_steps=1), *kill]
        return {"steps_per_call": 3, "max_epoch": 3, "logdir": tmp_path, "callbacks": callbacks}

    with pytest.raises(Killed):
        trained(1, flow, **options(KillAt(16)))
    again = trained(1, flow, **options())
    whole = trained(1, flow, steps_per_call=3, max_epoch=3)
    assert again.global_step == whole.global_step == 30
    np.testing.assert_allclose(weights(again), weights(whole), atol=1e-6)


@pytest.mark.parametrize(
    ("n", "towers", "steps", "remainder"),
    [
        (5, 2, 1, "pad"),
        (1, 2, 1, "smaller"),
        (7, 2, 3, "smaller"),
        pytest.param(5, 2, 1, "smaller", marks=pytest.mark.long),
        pytest.param(1, 2, 1, "pad", marks=pytest.mark.long),
        pytest.param(7, 2, 3, "pad", marks=pytest.mark.long),
    ],
)
def test_remaining_elements_form_a_smaller_step(
    remainder: str, n: int, towers: int, steps: int
) -> None:
    flow = points(8 * n).batch(8)
    history = History()
    few = trained(
        towers, flow, remainder=remainder, steps_per_call=steps, max_epoch=2, monitors=[history]
    )
    joined = trained(1, points(8 * n).batch(8 * towers), max_epoch=2)
    assert few.global_step == joined.global_step == 2 * -(-n // towers)
    assert (few.partial_steps, few.left_over) == (2, 0)
    np.testing.assert_allclose(weights(few), weights(joined), atol=1e-5)
    assert few.scalars["bias"] == pytest.approx(joined.scalars["bias"], abs=1e-5)


def test_elements_left_out_are_counted() -> None:
    with pytest.warns(LeftOver, match="remainder='pad'"):
        trainer = trained(2, points(40).batch(8), remainder="drop", max_epoch=2)
    assert (trainer.global_step, trainer.partial_steps, trainer.left_over) == (4, 0, 1)


@pytest.mark.parametrize("remainder", ["pad", "smaller"])
@pytest.mark.filterwarnings("ignore:not trained. unused")
def test_gradients_of_rows_of_a_table_are_added_up_too(
    remainder: Literal["pad", "smaller"],
) -> None:
    class Table(ModelDesc):
        def __init__(self) -> None:
            super().__init__()
            self.rows = tf.Variable(np.linspace(0, 1, 6, dtype=np.float32))
            self.unused = tf.Variable(3.0)  # has no gradient, and no step changes it

        def loss(self, i: tf.Tensor) -> tf.Tensor:
            return tf.reduce_mean(tf.gather(self.rows, i) ** 2)

    flow = fl.from_items([np.array(pair) for pair in ([0, 1], [1, 2], [3, 4])])
    few = trained(2, flow, model=Table, remainder=remainder)
    joined = trained(1, fl.from_items([0, 1, 1, 2, 3, 4]).batch(4), model=Table)
    for trainer in (few, joined):
        assert isinstance(trainer.model, Table)
        assert float(trainer.model.unused.numpy()) == 3.0
    assert isinstance(few.model, Table)
    assert isinstance(joined.model, Table)
    np.testing.assert_allclose(few.model.rows.numpy(), joined.model.rows.numpy(), atol=1e-6)


def test_smaller_batches_at_the_end_are_trained_on() -> None:
    source = BatchQueueInput(points(20), 8, remainder="smaller")
    rows = trained(1, None, data=source, max_epoch=2)
    flow = trained(1, points(20).batch(8), max_epoch=2)
    assert rows.global_step == flow.global_step == 6
    np.testing.assert_allclose(weights(rows), weights(flow), atol=1e-6)


@pytest.mark.parametrize(
    ("source", "option", "message"),
    [
        (lambda: FeedInput(points().batch(8)), {"steps_per_call": 2}, "steps_per_call .*FeedInput"),
        (
            lambda: StagingInput(QueueInput(points().batch(8))),
            {"steps_per_call": 2},
            "steps_per_call cannot be had with StagingInput",
        ),
    ],
)
def test_input_without_nesting_refuses_steps_per_call(
    source: Callable[[], InputSource], option: dict[str, int], message: str
) -> None:
    with pytest.raises(fl.InvalidFlow, match=message):
        trained(1, None, data=source(), **option)


def test_input_without_nesting_refuses_remainder() -> None:
    staged = StagingInput(QueueInput(points().batch(8)))
    with pytest.raises(fl.InvalidFlow, match="remainder cannot be had with StagingInput"):
        trained(2, None, data=staged, remainder="pad")
    with pytest.raises(fl.InvalidFlow, match=r"remainder must be 'drop', .* got 'keep'"):
        trained(1, points().batch(8), remainder="keep")
    for bad in (0, -1, 1.5, "2", True):
        with pytest.raises(fl.InvalidFlow, match="steps_per_call"):
            trained(1, points().batch(8), steps_per_call=bad)


def test_default_queue_capacity_covers_two_calls() -> None:
    sizes: Sequence[int] = [
        config.source(2).capacity  # type: ignore[attr-defined]  # a QueueInput
        for config in (
            TrainConfig(dataflow=points(), model=Linear, optimizer=sgd, steps_per_call=k)
            for k in (1, 40)
        )
    ]
    assert sizes == [50, 160]
