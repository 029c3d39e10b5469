"""Callbacks that watch scalars, change hyperparameters, or are triggered periodically."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import flowdsl as fl
from flowdsl.tensorflow.train import (
    Callback,
    Curves,
    DataReport,
    EarlyStopping,
    History,
    InferenceRunner,
    JSONWriter,
    MaxSaver,
    MergeAllSummaries,
    MinSaver,
    ModelSaver,
    MovingAverageSummary,
    PeriodicTrigger,
    RunUpdateOps,
    ScheduledHyperParamSetter,
    SimpleTrainer,
    StopTraining,
    TFEventWriter,
    TrainConfig,
    read_stats,
)
from tests.tensorflow.train.regression import Floats, Linear, points, sgd

STEPS = 4


def trained(
    callbacks: Sequence[Callback],
    *,
    epochs: int = 3,
    model: Callable[[], Any] = Linear,
    **options: Any,
) -> SimpleTrainer:
    chosen: dict[str, Any] = {
        "dataflow": points(32).batch(8),
        "model": model,
        "optimizer": sgd,
        "callbacks": callbacks,
        "extra_callbacks": (),
        "monitors": (),
        "max_epoch": epochs,
    }
    trainer = SimpleTrainer(TrainConfig(**chosen | options))
    trainer.train()
    return trainer


def weights(trainer: SimpleTrainer) -> Floats:
    assert isinstance(trainer.model, Linear)
    return trainer.model.weights()


class Put(Callback):
    """Records the next of some values at the end of each epoch."""

    def __init__(self, values: Sequence[float]) -> None:
        self.values = values

    def trigger(self) -> None:
        self.trainer.monitors.put_scalar("score", self.values[self.trainer.epoch_num - 1])


# -- savers of the best ----------------------------------------------------------------------------


@pytest.mark.parametrize(("saver", "best"), [(MinSaver, 2), (MaxSaver, 3)])
def test_training_can_begin_with_the_best_epoch(
    saver: type[MinSaver], best: int, tmp_path: Path
) -> None:
    seen: list[Floats] = []

    class Keep(Callback):
        def trigger(self) -> None:
            assert isinstance(self.trainer.model, Linear)
            seen.append(self.trainer.model.weights())

    scores = [3.0, 1.0, 5.0, float("nan"), 2.0]
    trained([saver("score"), Put(scores), Keep()], epochs=5, logdir=tmp_path)
    (folder,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert folder.name in ("min-score", "max-score")

    class Begin(Callback):
        def before_train(self) -> None:
            assert isinstance(self.trainer.model, Linear)
            np.testing.assert_array_equal(self.trainer.model.weights(), seen[best - 1])
            raise StopTraining

    trained([Begin()], session_init=folder)


def test_best_value_is_kept_over_a_resume(tmp_path: Path) -> None:
    trained([Put([1.0, 2.0]), MinSaver("score"), ModelSaver()], epochs=2, logdir=tmp_path)
    folder = tmp_path / "min-score"
    before = tf.train.latest_checkpoint(str(folder))
    trained([Put([0, 0, 3.0]), MinSaver("score"), ModelSaver()], epochs=3, logdir=tmp_path)
    assert tf.train.latest_checkpoint(str(folder)) == before
    trained([Put([0, 0, 0, 0.5]), MinSaver("score"), ModelSaver()], epochs=4, logdir=tmp_path)
    assert tf.train.latest_checkpoint(str(folder)) != before


def test_unrecorded_scalar_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(fl.InvalidFlow, match=r"MinSaver: no scalar 'scor'.*bias, .*score"):
        trained([Put([1.0]), MinSaver("scor")], logdir=tmp_path)
    with pytest.raises(fl.InvalidFlow, match=r"EarlyStopping: no scalar 'score'.*or only later"):
        trained([EarlyStopping("score"), Put([1.0])])


# -- early stopping --------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
    st.integers(0, 3),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from(["min", "max"]),
)
def test_early_stopping_follows_its_rule(
    values: list[int], patience: int, min_delta: float, mode: Any
) -> None:
    class Monitors:
        value = 0.0

        def latest(self, name: str, *, label: str) -> float:
            return self.value

    class Trainer:
        monitors = Monitors()

    callback: Any = EarlyStopping("score", patience, min_delta=min_delta, mode=mode)
    callback.trainer = Trainer()
    stopped = None
    for epoch, value in enumerate(values):
        Monitors.value = float(value)
        again: Any = EarlyStopping("score", patience, min_delta=min_delta, mode=mode)
        again.trainer = Trainer()
        again.load_state_dict(callback.state_dict())  # as after a kill
        callback = again
        try:
            callback.trigger()
        except StopTraining:
            stopped = epoch
            break
    signed = [v if mode == "min" else -v for v in values]
    best, since, expected = signed[0], 0, None
    for epoch, value in enumerate(signed[1:], 1):
        if best - value > min_delta:
            best, since = value, 0
        else:
            since += 1
            if since >= patience:
                expected = epoch
                break
    assert stopped == expected


def test_a_stopped_training_stays_stopped_and_its_last_epoch_is_saved(tmp_path: Path) -> None:
    def again() -> SimpleTrainer:
        scores = [1.0, 2.0, 3.0, 4.0]
        callbacks = [Put(scores), EarlyStopping("score", 2), ModelSaver()]
        return trained(callbacks, epochs=9, logdir=tmp_path, monitors=(JSONWriter(),))

    assert (again().epoch_num, len(read_stats(tmp_path))) == (3, 3)
    assert (again().epoch_num, len(read_stats(tmp_path))) == (3, 3)


# -- hyperparameters -------------------------------------------------------------------------------

RATES = [(0, 0.5), (2, 0.25), (4, 0.125)]


@pytest.mark.parametrize(
    ("interp", "expected"),
    [(None, [0.5, 0.5, 0.25, 0.25, 0.125]), ("linear", [0.5, 0.375, 0.25, 0.1875, 0.125])],
)
def test_scheduled_rate_applies_after_its_epochs(
    interp: Any, expected: list[float], tmp_path: Path
) -> None:
    seen: list[float] = []

    class Look(Callback):
        def before_run(self) -> None:
            optimizer = self.trainer.optimizer
            assert isinstance(optimizer, tf.keras.optimizers.SGD)
            seen.append(float(optimizer.learning_rate))

    def run(epochs: int) -> None:
        setter = ScheduledHyperParamSetter("learning_rate", RATES, interp)
        trained(
            [Look(), setter, ModelSaver()], epochs=epochs, logdir=tmp_path, monitors=(JSONWriter(),)
        )

    run(3)
    run(5)  # goes on, with another setter
    assert seen == [rate for rate in expected for _ in range(STEPS)]
    assert [entry["learning_rate"] for entry in read_stats(tmp_path)] == expected


@pytest.mark.parametrize("by_name", [True, False])
def test_a_schedule_may_count_steps_and_set_a_variable(by_name: bool) -> None:
    rate = tf.Variable(1.0, trainable=False, name="rate")
    seen: list[float] = []

    class Rated(Linear):
        def __init__(self) -> None:
            super().__init__()
            self.rate = rate

    class Look(Callback):
        def before_run(self) -> None:
            seen.append(float(rate))

    param = "rate" if by_name else rate
    setter = ScheduledHyperParamSetter(param, [(2, 7.0), (6, 8.0)], step_based=True)
    trained([Look(), setter], epochs=2, model=Rated)
    assert seen == [1.0] * 2 + [7.0] * 4 + [8.0] * 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"schedule": []}, "must be a list of pairs"),
        ({"schedule": [(3, 0.1), (3, 0.2)]}, "increasing epochs"),
        ({"schedule": [(-1, 0.1)]}, "increasing epochs"),
        ({"interp": "cubic"}, "interp must be None or 'linear'"),
    ],
)
def test_a_schedule_that_is_wrong_is_named(arguments: dict[str, Any], says: str) -> None:
    chosen: dict[str, Any] = {"param": "learning_rate", "schedule": RATES}
    with pytest.raises(fl.InvalidFlow, match=says):
        ScheduledHyperParamSetter(**chosen | arguments)


def test_hyperparameter_that_cannot_be_set_is_named() -> None:
    with pytest.raises(fl.InvalidFlow, match=r"'rate' cannot be set: neither the optimizer.*b, w"):
        trained([ScheduledHyperParamSetter("rate", RATES)])
    with pytest.raises(fl.InvalidFlow, match=r"'momentum' cannot be set: it is a float"):
        trained([ScheduledHyperParamSetter("momentum", RATES)])


# -- every so often --------------------------------------------------------------------------------


@pytest.mark.parametrize("steps_per_call", [1, 3])
def test_a_callback_is_triggered_every_so_many_steps_and_epochs(steps_per_call: int) -> None:
    came: list[tuple[int, int]] = []

    class Diary(Callback):
        def trigger(self) -> None:
            came.append((self.trainer.epoch_num, self.trainer.global_step))

    callback = PeriodicTrigger(Diary(), every_k_steps=3, every_k_epochs=2)
    trained([callback], epochs=4, steps_per_call=steps_per_call)
    if steps_per_call == 1:
        assert came == [(0, 3), (1, 6), (2, 8), (2, 9), (2, 12), (3, 15), (4, 16)]
    else:  # calls end at 3, 4, 7, 8, 11, 12, 15, 16
        assert came == [(0, 3), (1, 7), (2, 8), (2, 11), (2, 12), (3, 15), (4, 16)]


def test_periodic_callback_state_is_in_checkpoints(tmp_path: Path) -> None:
    def callbacks() -> list[Callback]:
        return [
            Put([3.0, 1.0, 2.0, 2.0, 2.0, 2.0]),
            PeriodicTrigger(EarlyStopping("score", 2), every_k_epochs=1),
            PeriodicTrigger(ModelSaver(), every_k_epochs=1),
        ]

    trained(callbacks(), epochs=3, logdir=tmp_path)
    assert trained(callbacks(), epochs=6, logdir=tmp_path).epoch_num == 4


@pytest.mark.parametrize("arguments", [{}, {"every_k_steps": 0}, {"every_k_epochs": True}])
def test_a_period_is_needed(arguments: dict[str, Any]) -> None:
    with pytest.raises(fl.InvalidFlow, match="PeriodicTrigger: "):
        PeriodicTrigger(ModelSaver(), **arguments)


# -- summaries, updates, reports -------------------------------------------------------------------


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=8))
def test_a_moving_average_is_as_defined(values: list[float]) -> None:
    callback: Any = MovingAverageSummary(0.5)
    put: dict[str, float] = {}

    class Trainer:
        scalars: Mapping[str, float]
        config = type("Config", (), {"record_every": 1})
        monitors = type("Monitors", (), {"put_scalar": staticmethod(put.__setitem__)})

        def reached_multiple_of(self, every: int) -> bool:
            return True

    callback.trainer = Trainer()
    average = values[0]
    for value in values:
        average = 0.5 * average + 0.5 * value
        Trainer.scalars = {"loss": value}
        callback.after_run()
    callback.trigger()
    assert put["moving_loss"] == pytest.approx(average)


def test_model_summaries_go_to_the_monitors() -> None:
    class Summarized(Linear):
        def summaries(self) -> dict[str, tf.Tensor]:
            return {"norm": tf.reduce_sum(self.w**2), "weights": self.w}

    class Kept(History):
        def __init__(self) -> None:
            super().__init__()
            self.arrays: list[tuple[int, str, tuple[int, ...]]] = []
            self.epochs: list[dict[str, float]] = []

        def process_histogram(self, step: int, name: str, values: Any) -> None:
            self.arrays.append((step, name, values.shape))

        def process_epoch(self, epoch: int, step: int, scalars: Any) -> None:
            self.epochs.append(dict(scalars))

    kept = Kept()
    trained([MergeAllSummaries(period=3)], epochs=2, model=Summarized, monitors=(kept,))
    assert kept.arrays == [(step, "weights", (5, 1)) for step in (3, 4, 6, 8)]
    assert all("norm" in scalars for scalars in kept.epochs)


def test_updates_run_after_each_step() -> None:
    class Averaged(Linear):
        def __init__(self) -> None:
            super().__init__()
            self.count = tf.Variable(0, trainable=False)
            self.updates = [lambda: self.count.assign_add(1)]

    trainer = trained([RunUpdateOps()], epochs=2, model=Averaged)
    assert isinstance(trainer.model, Averaged)
    assert int(trainer.model.count) == 2 * STEPS


def test_data_report_has_the_waiting_time(tmp_path: Path) -> None:
    out = io.StringIO()
    report = DataReport(Console(file=out, width=300))
    monitors = (JSONWriter(),)
    trained([report], epochs=2, logdir=tmp_path, monitors=monitors)
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert all("steps waited" in line and "of the epoch" in line for line in lines)
    assert all(0 <= (entry["data_wait"] or 0) <= 1 for entry in read_stats(tmp_path))


def test_the_data_report_has_the_verdict_of_the_run() -> None:
    def slow(point: Any) -> Any:
        time.sleep(0.02)
        return point

    out = io.StringIO()
    flow = points(96).map(slow).batch(8)
    trained([DataReport(Console(file=out, width=300))], epochs=1, dataflow=flow)
    assert out.getvalue().startswith("data limit: steps waited ")
    assert "all in the consumer's thread" in out.getvalue()  # as the verdict of the run has it


def test_curves_are_a_picture_in_the_logdir(tmp_path: Path) -> None:
    trained([Curves("loss.svg")], logdir=tmp_path, monitors=(TFEventWriter(),))
    assert (tmp_path / "loss.svg").read_text().startswith("<?xml")
    assert not [*tmp_path.glob(".loss*")]
    with pytest.raises(fl.InvalidFlow, match="Curves needs a place"):
        trained([Curves()])


def _fails_if_read(i: int) -> Any:
    raise AssertionError("the flow was read")


class MineSaver(ModelSaver):
    """A callback of a user, which writes to the folder too."""


@pytest.mark.parametrize(
    "part",
    [
        *(ModelSaver(), MinSaver("loss"), MaxSaver("loss"), Curves(), MineSaver()),
        PeriodicTrigger(PeriodicTrigger(ModelSaver(), 2), 2),
        *(JSONWriter(), TFEventWriter()),
    ],
    ids=lambda part: type(part).__name__,
)
def test_a_trainer_refuses_what_needs_a_logdir_before_anything_is_read(part: Any) -> None:
    flow = fl.from_range(8).map(_fails_if_read).prefetch(threads=1)
    is_callback = isinstance(part, Callback)
    config = TrainConfig(
        flow,
        model=Linear,
        optimizer=sgd,
        callbacks=[part] if is_callback else (),
        monitors=() if is_callback else [part],
    )
    name = "ModelSaver" if isinstance(part, PeriodicTrigger) else type(part).__name__
    message = rf"^{name} needs a place: pass TrainConfig\(logdir=\.\.\.\)$"
    with pytest.raises(fl.InvalidArgument, match=message):
        SimpleTrainer(config)
    if is_callback:
        trainer = SimpleTrainer(TrainConfig(points(8), model=Linear, optimizer=sgd))
        with pytest.raises(fl.InvalidArgument, match=message):
            trainer.register_callback(part)


def test_evaluating_every_other_epoch(tmp_path: Path) -> None:
    runner = PeriodicTrigger(InferenceRunner(points(10).batch(4)), every_k_epochs=2)
    trained([runner], epochs=4, logdir=tmp_path, monitors=(JSONWriter(),))
    assert ["validation_loss" in entry for entry in read_stats(tmp_path)] == [False, True] * 2
