"""The examples of training, for a few steps, as programs in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from flowdsl.tensorflow.train import read_stats

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(folder: Path, name: str, *arguments: str) -> str:
    """Return the output of an example."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=quiet)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_every_trainer_learns_digits(tmp_path: Path) -> None:
    said = run(tmp_path, "trainers", "--epochs", "1")
    accuracies = {line.split()[0]: float(line.split()[1]) for line in said.splitlines()}
    assert len(accuracies) == 7
    assert min(accuracies.values()) > 0.8
    together = {name: value for name, value in accuracies.items() if name != "async"}
    assert max(together.values()) - min(together.values()) < 0.02  # they train alike


@pytest.mark.long
def test_a_custom_step_resumes_with_both_optimizers(tmp_path: Path) -> None:
    assert re.search(
        r"\d+% of the points lie at one of \d of 8", run(tmp_path, "gan", "--epochs=1")
    )
    run(tmp_path, "gan", "--epochs=2")
    entries = read_stats(tmp_path / "gan")
    assert [entry["global_step"] for entry in entries] == [200, 400]
    assert all(entry["critic"] and entry["generator"] for entry in entries)


@pytest.mark.long
@pytest.mark.slow
def test_patches_of_photographs_are_classified(tmp_path: Path) -> None:
    said = run(tmp_path, "patches", "--epochs=1")
    assert "steps waited" in said
    (entry,) = read_stats(tmp_path / "patches")
    assert (entry["accuracy"] or 0) > 0.8
    assert entry["validation_rows"] == 182
    assert [*(tmp_path / "patches" / "max-validation_accuracy").glob("*.index")]


@pytest.mark.long
def test_lines_of_any_length_are_learned(tmp_path: Path) -> None:
    said = run(tmp_path, "text", "--epochs=3")
    (bits, pairs) = map(float, re.findall(r"\d+\.\d+", said.splitlines()[-1]))
    assert 1 < bits < 5.5
    assert 3 < pairs < 5
    losses = [entry["loss"] or 0 for entry in read_stats(tmp_path / "text")]
    assert losses[2] < losses[0] - 0.5


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 100
