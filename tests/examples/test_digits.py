"""The example as a user runs it: a program in an empty folder, killed and run again."""

from __future__ import annotations

import json
import os
import random
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.tensorflow.train import read_events, read_stats

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "digits.py"
STEPS, EPOCHS = 45, 3
KILLED_AFTER, SAVED_AT = 67, 60  # both within the second epoch

RUN = """
import runpy, tests.quick_tensorflow
runpy.run_path("digits.py", run_name="__main__")
"""
KILL = f"""
import os, runpy, signal, tests.quick_tensorflow
from flowdsl.tensorflow.train import FeedfreeTrainerBase

run_step = FeedfreeTrainerBase.run_step

def run_step_or_die(trainer):
    run_step(trainer)
    if trainer.global_step == {KILLED_AFTER}:
        os.kill(os.getpid(), signal.SIGKILL)

FeedfreeTrainerBase.run_step = run_step_or_die
runpy.run_path("digits.py", run_name="__main__")
"""


def run(
    folder: Path, *, epochs: int = EPOCHS, kill: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run the example in a folder, for fewer epochs than a user would."""
    text = EXAMPLE.read_text()
    assert "max_epoch=40" in text
    script = folder / "digits.py"
    script.write_text(text.replace("max_epoch=40", f"max_epoch={epochs}"))
    return subprocess.run(
        [sys.executable, "-c", KILL if kill else RUN],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def event_files(folder: Path) -> list[Path]:
    """Return a file for each run of the training, oldest first."""
    return sorted((folder / "out").glob("events.out.tfevents.*"))


def learnt(folder: Path) -> dict[str, NDArray[Any]]:
    """The variables of the model and of the optimizer in the last checkpoint."""
    checkpoints = str(folder / "out" / "checkpoints")
    names = [name for name, _ in tf.train.list_variables(checkpoints)]
    kept = [name for name in names if name.startswith(("model/", "optimizer/"))]
    return {name: tf.train.load_variable(checkpoints, name) for name in kept}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a run of a few epochs, and what it printed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done = run(folder)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_importing_the_example_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLE), run_name="digits")
    assert not [*tmp_path.iterdir()]


def test_a_digit_moves_by_a_pixel_and_does_not_wrap() -> None:
    example = runpy.run_path(str(EXAMPLE), run_name="digits")
    image = np.zeros((8, 8), np.uint8)
    image[0, 4] = 16
    moved = [
        example["augment"](example["Sample"](image, np.int64(1)), np.random.default_rng(seed))
        for seed in range(100)
    ]
    assert {sample.image.shape for sample in moved} == {(8, 8)}
    places = {tuple(place) for sample in moved for place in np.argwhere(sample.image).tolist()}
    assert places == {(y, x) for y in (0, 1) for x in (3, 4, 5)}
    assert min(sample.image.sum() for sample in moved) == 0  # moved out of the image


@pytest.mark.long
def test_each_digit_is_in_one_of_the_two_files(undisturbed: tuple[Path, str]) -> None:
    train, held_out = (
        fl.from_lmdb(undisturbed[0] / name, dict[str, Any]).collect()
        for name in ("train.lmdb", "held_out.lmdb")
    )
    from sklearn.datasets import load_digits  # a second, which only this test takes

    digits, rest = load_digits(), iter(train)
    together = [held_out[i // 5] if i % 5 == 0 else next(rest) for i in range(1797)]
    assert len(train) + len(held_out) == 1797
    np.testing.assert_array_equal([row["image"] for row in together], digits.images)
    np.testing.assert_array_equal([row["label"] for row in together], digits.target)


def test_the_example_prints_its_plan_and_outputs(undisturbed: tuple[Path, str]) -> None:
    folder, said = undisturbed
    plan, _, rest = said.partition("epoch 1/3: 45 steps")
    assert "in 2 worker processes" in plan
    for operator in ("from_lmdb", "shuffle", "random_map(augment", "batch(32)", "repeat()"):
        assert operator in plan
    assert "epoch 3/3: 45 steps" in rest
    last = read_stats(folder / "out")[-1]
    accuracy = f"held-out accuracy: {last['validation_accuracy']:.3f};"
    assert said.splitlines()[-1].startswith(accuracy)
    for name in ("training.png", "stats.json", "events.*"):
        assert name in said.splitlines()[-1]
        assert [*(folder / "out").glob(name)]


def test_the_outputs_can_be_read(undisturbed: tuple[Path, str]) -> None:
    out = undisturbed[0] / "out"
    stats = json.loads((out / "stats.json").read_text())
    assert [entry["global_step"] for entry in stats] == [45, 90, 135]
    assert {entry["validation_rows"] for entry in stats} == {360}
    assert stats[-1]["validation_accuracy"] > 0.8
    series = read_events(out)
    for name in ("loss", "accuracy", "queue_fill"):
        assert [*series[name]] == [*range(1, STEPS * EPOCHS + 1)]
    assert max(series["queue_fill"].values()) > 0
    assert [*series["epoch/validation_accuracy"]] == [45, 90, 135]
    assert matplotlib.image.imread(out / "training.png").shape == (600, 960, 4)


@pytest.mark.long
def test_running_again_reports_that_training_is_complete(undisturbed: tuple[Path, str]) -> None:
    folder, said = undisturbed
    before = (folder / "out" / "stats.json").read_text()
    again = run(folder)
    assert again.returncode == 0, again.stderr
    assert "training is complete: epoch 3 is done" in again.stderr
    assert "out/checkpoints" in again.stderr
    assert again.stdout.splitlines()[-1:] == said.splitlines()[-1:]
    assert (folder / "out" / "stats.json").read_text() == before
    assert len(event_files(folder)) == 1


@pytest.mark.long  # tests of trainers kill a training in every run
def test_killed_training_resumes_at_the_next_batch(
    undisturbed: tuple[Path, str], tmp_path: Path
) -> None:
    reference, _ = undisturbed
    killed = run(tmp_path, kill=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [entry["global_step"] for entry in read_stats(tmp_path / "out")] == [45]
    again = run(tmp_path)
    assert again.returncode == 0, again.stderr
    assert f"training continues after step {SAVED_AT}, in epoch " in again.stderr
    assert "epoch 1/3" not in again.stdout

    _, second = event_files(tmp_path)  # what the second process did by itself
    (tmp_path / "second").mkdir()
    shutil.copy(second, tmp_path / "second")
    ran = read_events(tmp_path / "second")
    assert [*ran["loss"]] == [*range(SAVED_AT + 1, STEPS * EPOCHS + 1)]

    got, expected = learnt(tmp_path), learnt(reference)
    assert got.keys() == expected.keys()
    assert len(got) > 8  # two layers, and two moments for each of their variables
    for name, value in got.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)
    for name in ("loss", "accuracy", "epoch/validation_loss"):
        whole = read_events(tmp_path / "out")[name]
        assert whole == pytest.approx(read_events(reference / "out")[name], rel=1e-3, abs=1e-5)
    steps = [entry["global_step"] for entry in read_stats(tmp_path / "out")]
    assert steps == [45, 90, 135]


@pytest.mark.long
def test_training_recognises_the_test_digits(tmp_path: Path) -> None:
    done = run(tmp_path, epochs=40)
    assert done.returncode == 0, done.stderr
    last = read_stats(tmp_path / "out")[-1]
    assert last["validation_rows"] == 360
    assert (last["validation_accuracy"] or 0) >= 0.95


@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_at_twenty_random_moments_training_is_unchanged(
    undisturbed: tuple[Path, str], tmp_path: Path
) -> None:
    reference, _ = undisturbed
    script = tmp_path / "digits.py"
    script.write_text(EXAMPLE.read_text().replace("max_epoch=40", f"max_epoch={EPOCHS}"))
    kills, rng = 0, random.Random(5)
    while kills < 20:
        process = subprocess.Popen(
            [sys.executable, str(script)],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        # Until it trains, and then for a moment: a step takes some milliseconds.
        files = len(event_files(tmp_path))
        while process.poll() is None and len(event_files(tmp_path)) == files:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.6))
        process.kill()
        assert process.wait() in (0, -signal.SIGKILL)
        kills += 1
        stats = read_stats(tmp_path / "out")
        if stats and stats[-1]["global_step"] == STEPS * EPOCHS:
            shutil.rmtree(tmp_path / "out")  # it came to its end: once more
    again = run(tmp_path)
    assert again.returncode == 0, again.stderr
    losses, expected = (read_events(folder / "out")["loss"] for folder in (tmp_path, reference))
    assert [*losses] == [*expected]  # each step once
    # Equal losses show equal rows in equal order, as each epoch augments with other draws.
    np.testing.assert_allclose([*losses.values()], [*expected.values()], atol=1e-6)
    for name, values in learnt(reference).items():
        np.testing.assert_allclose(learnt(tmp_path)[name], values, atol=1e-6, err_msg=name)
