"""The examples for other frameworks, killed in mid-epoch and run again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = 45
TAKEN = 67
"""The batch of the second epoch at which the example is killed; it saves states every 10 steps."""

KILLED = """
import os, runpy, signal, sys
from flowdsl.feeding.loader import LoaderPass

given = 0
give = LoaderPass.__next__

def give_or_die(self):
    global given
    element = give(self)
    if self._name == sys.argv[1]:
        given += len(element[0]) <= 32  # a batch for training; the others are larger
        if given == {taken}:
            os.kill(os.getpid(), signal.SIGKILL)
    return element

LoaderPass.__next__ = give_or_die
runpy.run_path(sys.argv[2], run_name="__main__")
"""


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def weights(folder: Path) -> dict[str, NDArray[np.generic]]:
    if (folder / "model.pt").exists():
        return {name: x.numpy() for name, x in torch.load(folder / "model.pt").items()}
    return {**np.load(folder / "model.npz")}


@pytest.mark.long
@pytest.mark.parametrize("framework", ["torch", "jax", "keras"])
def test_training_killed_in_mid_epoch_ends_with_the_same_weights(
    framework: str, tmp_path: Path
) -> None:
    example = str(EXAMPLES / f"{framework}_digits.py")
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    undisturbed.mkdir()
    killed.mkdir()
    done = run(undisturbed, example)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("held-out accuracy 0.") == 3
    (killed / "digits").symlink_to(undisturbed / "digits")

    died = run(killed, "-c", KILLED.format(taken=TAKEN), f"to_{framework}", example)
    assert died.returncode == -signal.SIGKILL, died.stderr
    again = run(killed, example)
    assert again.returncode == 0, again.stderr
    assert "going on in epoch 1" in again.stdout
    assert again.stdout.splitlines()[-1] == done.stdout.splitlines()[-1]
    expected, got = weights(undisturbed), weights(killed)
    assert expected.keys() == got.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)
