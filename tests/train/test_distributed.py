"""Processes that train one model together: on their own parts of the data, as one device would."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl.graph import QueueInput
from flowdsl.train import DistributedReplicatedTrainer, SimpleTrainer, TrainConfig
from tests.train.distributed import OPTIMIZERS, Recording, batches

ENDS_WITHIN = 60
"""Seconds after the death of one process in which the others have to end; about 10 were seen."""


def free_ports(n: int) -> list[int]:
    sockets = [socket.socket() for _ in range(n)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Together:
    """Some processes of the program, in a folder."""

    def __init__(self, folder: Path, name: str, n: int, rows: int, kill_last_at: int = 0) -> None:
        self.folder, self.names = folder, [f"{name}{k}" for k in range(n)]
        workers = [f"127.0.0.1:{port}" for port in free_ports(n)]
        self.processes: list[subprocess.Popen[str]] = []
        for k, own in enumerate(self.names):
            told = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": k}}
            environment = {**os.environ, "TF_CONFIG": json.dumps(told)}
            kill = [str(kill_last_at)] if kill_last_at and k == n - 1 else []
            command = [sys.executable, "-m", "tests.train.distributed", str(folder), own, "adam"]
            self.processes.append(
                subprocess.Popen(
                    [*command, str(rows), *kill],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    cwd=Path(__file__).parents[2],
                )
            )

    def end(self) -> list[int]:
        """Wait for all; gives their exit codes."""
        self.said = [process.communicate(timeout=240)[0] for process in self.processes]
        return [process.returncode for process in self.processes]

    def told(self) -> list[dict[str, Any]]:
        return [json.loads((self.folder / f"{name}.json").read_text()) for name in self.names]

    def batches(self) -> list[list[list[int]]]:
        """For each step the batches of rows, of each process in turn."""
        each = [(self.folder / f"{name}.rows").read_text().splitlines() for name in self.names]
        return [[json.loads(line) for line in step] for step in zip(*each, strict=False)]


def rows_of(epochs: int, rows: int) -> list[list[list[int]]]:
    """The rows of each batch, for each pass."""
    passes = [batches(rows).epoch(epoch) for epoch in range(epochs)]
    return [[row.tolist() for row, _, _ in one] for one in passes]


@pytest.mark.slow
def test_two_processes_train_what_one_device_trains_on_the_joined_batches(tmp_path: Path) -> None:
    run = Together(tmp_path, "worker", 2, rows=92)  # 23 batches: one is left over in each pass
    assert run.end() == [0, 0], run.said
    first, second = run.told()
    assert first["weights"] == second["weights"]
    assert (first["steps"], second["steps"]) == (22, 22)
    expected = [each[:22] for each in rows_of(2, 92)]
    assert [batch for step in run.batches() for batch in step] == [*chain(*expected)]

    config = TrainConfig(
        dataflow=batches(92).take(22).unbatch().batch(8),
        model=Recording,
        optimizer=OPTIMIZERS["adam"],
        extra_callbacks=(),
        monitors=(),
        steps_per_epoch=11,
        max_epoch=2,
    )
    one = SimpleTrainer(config)
    one.train()
    assert isinstance(one.model, Recording)
    np.testing.assert_allclose(first["weights"], one.model.weights(), atol=1e-5)
    assert [*(tmp_path / "log" / "checkpoints").glob("*.index")]


@pytest.mark.long
@pytest.mark.parametrize("after", [1, 2, 3])
def test_after_the_death_of_one_no_row_is_trained_on_twice(after: int, tmp_path: Path) -> None:
    killed = Together(tmp_path, "killed", 2, rows=96, kill_last_at=7)
    killed.processes[1].wait()
    died = time.monotonic()
    assert killed.end() == [1, -signal.SIGKILL], killed.said
    assert time.monotonic() - died < ENDS_WITHIN
    assert "UnavailableError" in killed.said[0] or "AbortedError" in killed.said[0]

    again = Together(tmp_path, "again", after, rows=96)
    assert again.end() == [0] * after, again.said
    assert {told["began"] for told in again.told()} == {4}
    trained = [batch for step in killed.batches()[:4] for batch in step]
    trained += [batch for step in again.batches() for batch in step]
    first, second, *_ = rows_of(3, 96)
    rest = 24 - 8 - (24 - 8) % after  # of the first pass: a part that is too small is left over
    assert trained[: 8 + rest] == first[: 8 + rest]
    whole = 24 - 24 % after
    following = trained[8 + rest : 8 + rest + whole]
    assert following == second[: len(following)]


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        (None, "TF_CONFIG is missing, which says who takes part"),
        ("{", "TF_CONFIG is no JSON"),
        ('{"cluster": {"ps": ["127.0.0.1:1"]}}', "the cluster has no workers, only ps"),
    ],
)
def test_what_the_environment_has_to_say(
    environment: str | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if environment is not None:
        monkeypatch.setenv("TF_CONFIG", environment)
    config = TrainConfig(batches(96), model=Recording, optimizer=OPTIMIZERS["sgd"])
    with pytest.raises(fl.InvalidFlow, match=says):
        DistributedReplicatedTrainer(config)


def test_each_process_makes_its_own_part() -> None:
    source = QueueInput(batches(96))
    config = TrainConfig(data=source, model=Recording, optimizer=OPTIMIZERS["sgd"])
    with pytest.raises(fl.InvalidFlow, match="give dataflow, of which each process makes its own"):
        DistributedReplicatedTrainer(config)
