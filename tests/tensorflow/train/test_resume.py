from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs
import numpy as np
import pytest
import tensorflow as tf

import flowdsl as fl
from flowdsl.errors import SourceError
from flowdsl.tensorflow.inputs import logical_cpus
from flowdsl.tensorflow.train import (
    Callback,
    InferenceRunner,
    JSONWriter,
    ModelSaver,
    Monitor,
    SimpleTrainer,
    SyncMultiGPUTrainerReplicated,
    TFEventWriter,
    TrainConfig,
    Trainer,
    read_events,
    read_stats,
)
from flowdsl.tensorflow.train.checkpoint import latest_checkpoint
from tests.tensorflow.train.regression import Floats, Linear, adam, points

STEPS, EPOCHS, SAVE_EVERY = 7, 3, 4


class Killed(BaseException):
    """Simulates a kill: no error handler sees it."""


class KillAt(Callback):
    """Ends the process, really or simulated, right after a step."""

    def __init__(self, step: int, process: bool = False) -> None:
        self.step = step
        self.process = process

    def trigger_step(self) -> None:
        if self.trainer.global_step == self.step:
            if self.process:
                os.kill(os.getpid(), signal.SIGKILL)
            raise Killed


def trainer(
    logdir: Path, kill: Callback | None = None, model: type[Linear] = Linear, seed: int = 3
) -> SyncMultiGPUTrainerReplicated:
    config = TrainConfig(
        dataflow=points(90).shuffle(seed=seed).batch(8).repeat(),
        model=model,
        optimizer=adam,
        callbacks=[ModelSaver(every_steps=SAVE_EVERY), InferenceRunner(points(50).batch(16))]
        + ([kill] if kill else []),
        extra_callbacks=(),
        monitors=(TFEventWriter(), JSONWriter()),
        steps_per_epoch=STEPS,
        max_epoch=EPOCHS,
        logdir=logdir,
    )
    return SyncMultiGPUTrainerReplicated(config, ("/cpu:0", "/cpu:1"))


def weights(trained: Trainer) -> Floats:
    assert isinstance(trained.model, Linear)
    return trained.model.weights()


def without_timing(entry: dict[str, float | None]) -> dict[str, float | None]:
    return {
        name: value for name, value in entry.items() if name not in ("queue_fill", "input_wait")
    }


def check_equal(logdir: Path, resumed: Trainer, reference: Trainer, reference_dir: Path) -> None:
    assert resumed.global_step == reference.global_step == STEPS * EPOCHS
    np.testing.assert_allclose(weights(resumed), weights(reference), atol=1e-6)
    got, expected = read_stats(logdir), read_stats(reference_dir)
    assert [without_timing(e) for e in got] == [
        pytest.approx(without_timing(e), abs=1e-6) for e in expected
    ]
    got_events, expected_events = read_events(logdir), read_events(reference_dir)
    assert got_events.keys() == expected_events.keys()
    assert [*got_events["loss"]] == [*range(1, STEPS * EPOCHS + 1)]
    assert got_events["loss"] == pytest.approx(expected_events["loss"], abs=1e-6)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, Path]:
    logdir = tmp_path_factory.mktemp("undisturbed")
    whole = trainer(logdir)
    whole.train()
    return whole, logdir


@pytest.fixture
def finished(undisturbed: tuple[Trainer, Path], tmp_path: Path) -> Path:
    """A logdir of a finished training, for one test."""
    return shutil.copytree(undisturbed[1], tmp_path / "finished")


@pytest.fixture(scope="module")
def killed_at_10(tmp_path_factory: pytest.TempPathFactory) -> Path:
    logdir = tmp_path_factory.mktemp("killed")
    with pytest.raises(Killed):
        trainer(logdir, KillAt(10)).train()
    return logdir


@pytest.fixture
def killed(killed_at_10: Path, tmp_path: Path) -> Path:
    """A logdir of a training that was killed after step 10, for one test."""
    return shutil.copytree(killed_at_10, tmp_path / "killed")


# Before the first checkpoint, within an epoch, at its last step, after an epoch's checkpoint.
@pytest.mark.parametrize(
    "step", [7, 19, *(pytest.param(step, marks=pytest.mark.long) for step in (3, 6, 8, 14))]
)
def test_resumed_training_equals_uninterrupted_training(
    step: int, undisturbed: tuple[Trainer, Path], tmp_path: Path
) -> None:
    with pytest.raises(Killed):
        trainer(tmp_path, KillAt(step)).train()
    again = trainer(tmp_path)
    again.train()
    check_equal(tmp_path, again, *undisturbed)


def test_training_survives_repeated_kills(
    undisturbed: tuple[Trainer, Path], tmp_path: Path
) -> None:
    for step in (5, 9, 13, 18):
        with pytest.raises(Killed):
            trainer(tmp_path, KillAt(step)).train()
    again = trainer(tmp_path)
    again.train()
    check_equal(tmp_path, again, *undisturbed)


@pytest.mark.long
def test_a_killed_process_is_run_again(undisturbed: tuple[Trainer, Path], tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    program = [sys.executable, "-m", "tests.tensorflow.train.test_resume", str(tmp_path)]
    ran = subprocess.run(program, cwd=root, capture_output=True, text=True)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    again = trainer(tmp_path)
    again.train()
    check_equal(tmp_path, again, *undisturbed)


def test_finished_training_is_not_run_again(finished: Path) -> None:
    before = (finished / "stats.json").read_text()
    again = trainer(finished)
    again.train()
    assert again.global_step == STEPS * EPOCHS
    assert (finished / "stats.json").read_text() == before


def test_resume_false_does_not_overwrite_checkpoints(finished: Path) -> None:
    with pytest.raises(fl.InvalidFlow, match=r"resume=False.*ckpt-21 exists already.*logdir"):
        trainer(finished).train(resume=False)


class Wider(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.more = tf.Variable(np.zeros((5, 2), np.float32))


class Reshaped(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(np.zeros((5, 2), np.float32))


class Counting(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.count = tf.Variable(0.0, trainable=False)


@pytest.mark.filterwarnings("ignore:not trained. more")
@pytest.mark.parametrize("model", [Wider, Reshaped, Counting])
def test_a_checkpoint_of_another_model_is_refused(model: type[Linear], finished: Path) -> None:
    with pytest.raises(fl.StateMismatch, match="ckpt-21 does not fit this model and optimizer"):
        trainer(finished, model=model).train()


def test_a_checkpoint_of_another_flow_is_refused(killed: Path) -> None:
    with pytest.raises(fl.StateMismatch, match="shuffle"):
        trainer(killed, seed=4).train()


def test_the_last_checkpoints_are_kept(finished: Path) -> None:
    kept = sorted(path.name for path in (finished / "checkpoints").glob("*.index"))
    assert kept == ["ckpt-16.index", "ckpt-20.index", "ckpt-21.index"]


class Careful(Monitor):
    """Records the step up to which it has written."""

    def process_step(self, step: int, scalars: Mapping[str, float]) -> None:
        self.seen = step

    def flush(self) -> None:
        self.written = self.seen


def test_monitors_are_flushed_before_a_checkpoint(tmp_path: Path) -> None:
    careful = Careful()
    config = attrs.evolve(trainer(tmp_path, KillAt(10)).config, monitors=(careful,))
    with pytest.raises(Killed):
        SimpleTrainer(config).train()
    assert (tmp_path / "checkpoints" / "ckpt-8.index").exists()
    assert careful.written == 8


def test_training_resumes_on_another_number_of_devices(killed: Path) -> None:
    config = trainer(killed).config
    single = SimpleTrainer(config)
    single.train()
    assert single.global_step == STEPS * EPOCHS


def test_saving_needs_a_logdir() -> None:
    config = TrainConfig(
        dataflow=points().batch(8),
        model=Linear,
        optimizer=adam,
        callbacks=[ModelSaver()],
        max_epoch=1,
    )
    with pytest.raises(fl.FlowError, match="logdir"):
        SimpleTrainer(config).train()


def test_earlier_checkpoint_is_used_if_the_latest_was_removed(finished: Path) -> None:
    folder = finished / "checkpoints"
    kept = sorted(int(path.stem.removeprefix("ckpt-")) for path in folder.glob("ckpt-*.index"))
    for path in folder.glob(f"ckpt-{kept[-1]}.*"):
        path.unlink()
    again = trainer(finished)
    again.setup()
    assert again.global_step == kept[-2]
    for path in folder.glob("ckpt-*"):
        path.unlink()
    other = trainer(finished)
    other.setup()
    assert other.global_step == 0


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        ("index", "cut"),
        ("data-00000-of-00001", "flip"),
        pytest.param("index", "flip", marks=pytest.mark.long),
        pytest.param("data-00000-of-00001", "cut", marks=pytest.mark.long),
    ],
)
def test_damaged_checkpoint_is_an_error(finished: Path, suffix: str, damage: str) -> None:
    path = Path(f"{latest_checkpoint(finished)}.{suffix}")
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle] ^= 1
    path.write_bytes(content[:middle] if damage == "cut" else content)
    with pytest.raises(SourceError, match="is damaged: remove its files"):
        trainer(finished).setup()


if __name__ == "__main__":  # the process to be killed
    logical_cpus(2)
    trainer(Path(sys.argv[1]), KillAt(17, process=True)).train()
