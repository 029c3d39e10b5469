"""The examples for a cluster: a machine that dies, and workers of Ray Train."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

pytest.importorskip("torch")

pytestmark = [pytest.mark.long, pytest.mark.timeout(450)]

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    """A folder for Ray of these tests: other clusters of this machine are neither found nor lost.

    Its path is short, since Ray makes sockets there.
    """
    with TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as path:
        yield path


def run(folder: str, example: str, *options: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment |= {"RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0"}
    environment.pop("RAY_ADDRESS", None)
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example), *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_machine_that_dies_in_mid_epoch_changes_no_weight(folder: str) -> None:
    undisturbed, killed, processes = (
        re.findall(
            r"^(?:epoch \d: loss \S+|weights \w+)|died: \d+",
            run(folder, "cluster_digits.py", *options),
            flags=re.MULTILINE,
        )
        for options in (("--local",), ("--local", "--kill", "1"), ("--procs",))
    )
    assert [line.split(":")[0] for line in undisturbed[::2]] == [
        *("epoch 0", "epoch 1", "epoch 2"),
        undisturbed[-1],
    ]
    assert undisturbed[-1].startswith("weights ")
    assert undisturbed[1::2] == ["died: 0"] * 3
    assert processes == undisturbed
    assert killed[::2] == undisturbed[::2]  # the node's workers may not have been ready yet


def test_workers_of_ray_train_get_their_shards_and_end_together(folder: str) -> None:
    lines = run(folder, "ray_train_digits.py", "--local")
    shards = [
        re.findall(rf"^rank {rank}, epoch \d: 28 batches, loss (\S+)$", lines, re.MULTILINE)
        for rank in range(2)
    ]
    assert list(map(len, shards)) == [3, 3]
    assert shards[0] != shards[1]
    first, second = re.findall(r"^rank \d, weights (\w+)$", lines, re.MULTILINE)
    assert first == second
