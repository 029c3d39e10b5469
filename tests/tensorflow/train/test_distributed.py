"""Processes that train one model together on their shards, as one device would."""

from __future__ import annotations

import json
import signal
import time
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl.tensorflow.inputs import QueueInput
from flowdsl.tensorflow.train import (
    AsyncDistributedTrainer,
    DistributedReplicatedTrainer,
    SimpleTrainer,
    TrainConfig,
    cluster,
    read_stats,
)
from tests.tensorflow.train.cluster import Processes, free_ports
from tests.tensorflow.train.distributed import OPTIMIZERS, Recording, batches

ENDS_WITHIN = 200
"""Seconds in which the other processes must end after one dies; about 10 were observed."""


class Together:
    """Some processes of the program, in a folder."""

    def __init__(self, folder: Path, name: str, n: int, rows: int, kill_last_at: int = 0) -> None:
        self.folder, self.names = folder, [f"{name}{k}" for k in range(n)]
        self._processes = Processes("tests.tensorflow.train.distributed", worker=n)
        for k, own in enumerate(self.names):
            kill = [kill_last_at] if kill_last_at and k == n - 1 else []
            self.last = self._processes.start("worker", k, folder, own, "adam", rows, *kill)

    def end(self) -> list[int]:
        codes = self._processes.end()
        self.said = self._processes.said
        return codes

    def report(self) -> list[dict[str, Any]]:
        return [json.loads((self.folder / f"{name}.json").read_text()) for name in self.names]

    def batches(self) -> list[list[list[int]]]:
        """For each step the batches of rows, of each process in turn."""
        each = [(self.folder / f"{name}.rows").read_text().splitlines() for name in self.names]
        return [[json.loads(line) for line in step] for step in zip(*each, strict=False)]


def rows_of(epochs: int, rows: int) -> list[list[list[int]]]:
    """The rows of each batch, for each pass."""
    passes = [batches(rows).epoch(epoch) for epoch in range(epochs)]
    return [[row.tolist() for row, _, _ in one] for one in passes]


def test_two_processes_train_what_one_device_trains_on_the_joined_batches(tmp_path: Path) -> None:
    run = Together(tmp_path, "worker", 2, rows=92)  # 23 batches: one is left over in each pass
    assert run.end() == [0, 0], run.said
    first, second = run.report()
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
    killed.last.wait()
    died = time.monotonic()
    assert killed.end() == [1, -signal.SIGKILL], killed.said
    assert time.monotonic() - died < ENDS_WITHIN
    assert "UnavailableError" in killed.said[0] or "AbortedError" in killed.said[0]

    again = Together(tmp_path, "again", after, rows=96)
    assert again.end() == [0] * after, again.said
    assert {report["began"] for report in again.report()} == {4}
    trained = [batch for step in killed.batches()[:4] for batch in step]
    trained += [batch for step in again.batches() for batch in step]
    first, second, *_ = rows_of(3, 96)
    rest = 24 - 8 - (24 - 8) % after  # of the first pass: a part that is too small is left over
    assert trained[: 8 + rest] == first[: 8 + rest]
    whole = 24 - 24 % after
    following = trained[8 + rest : 8 + rest + whole]
    assert following == second[: len(following)]


class Chief:
    """An asynchronous training: a chief, a parameter server, and some workers."""

    def __init__(
        self, folder: Path, name: str, workers: int, rows: int, kill: bool = False
    ) -> None:
        self.folder, self.name = folder, name
        self._processes = Processes(
            "tests.tensorflow.train.asynchronous", chief=1, ps=1, worker=workers
        )
        started = [
            self._processes.start(job, k, folder, f"{name}-{job}{k}", rows)
            for job, n in [("ps", 1), ("worker", workers)]
            for k in range(n)
        ]
        victim = [started[-1].pid] if kill else []
        self._processes.start("chief", 0, folder, name, rows, *victim)

    def end(self) -> list[int]:
        codes = self._processes.end()
        self.said = self._processes.said
        return codes

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.folder / f"{self.name}.json").read_text())
        return report

    def batches(self) -> list[list[int]]:
        """The batches that were trained on, in the order in which workers finished."""
        lines = (self.folder / f"{self.name}.rows").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.mark.long
def test_workers_that_do_not_wait_train_on_each_element_once(tmp_path: Path) -> None:
    run = Chief(tmp_path, "chief", 2, rows=92)  # 23 batches: one is left over in each pass
    assert run.end() == [0] * 4, run.said
    report = run.report()
    assert (report["steps"], report["updates"]) == (22, 44)
    assert "/job:ps/" in report["on"]
    expected = [batch for each in rows_of(2, 92) for batch in each[:22]]
    assert sorted(run.batches()) == sorted(expected)
    assert [*(tmp_path / "log" / "checkpoints").glob("*.index")]


@pytest.mark.long
@pytest.mark.parametrize("after", [1, 2, 3])
def test_after_the_death_of_a_worker_no_element_is_trained_on_twice(
    after: int, tmp_path: Path
) -> None:
    killed = Chief(tmp_path, "killed", 2, rows=96, kill=True)
    began = time.monotonic()
    assert killed.end() == [0, 0, -signal.SIGKILL, 1], killed.said
    assert time.monotonic() - began < ENDS_WITHIN
    assert "/job:worker/replica:0/task:1/device:CPU:0 or one of the parameter" in killed.said[-1]

    again = Chief(tmp_path, "again", after, rows=96)
    assert again.end() == [0] * (2 + after), again.said
    assert again.report()["began"] == 4
    first, second, *_ = rows_of(3, 96)
    rest = 24 - 8 - (24 - 8) % after  # of the first pass: a part that is too small is left over
    trained = killed.batches()[:8] + again.batches()
    assert sorted(trained[:8]) == sorted(first[:8])
    assert sorted(trained[8 : 8 + rest]) == sorted(first[8 : 8 + rest])
    following = trained[8 + rest : 8 + rest + 24 - 24 % after]
    assert {*map(tuple, following)} <= {*map(tuple, second)}
    assert len({*map(tuple, following)}) == len(following)


def test_unreachable_processes_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    monkeypatch.setattr(cluster, "_SILENCE", 0.1)
    port, other = free_ports(2)
    with pytest.raises(fl.FlowError, match=rf"nothing answers at 127.0.0.1:{port}, "):
        cluster.await_all("Trainer", [f"127.0.0.1:{port}", f"127.0.0.1:{other}"])
    assert caplog.text.count(f"Trainer: waiting for 127.0.0.1:{port}, 127.0.0.1:{other}") == 1


@pytest.mark.parametrize("missing", ["chief", "ps", "worker"])
def test_asynchronous_cluster_needs_all_jobs(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    report = {job: ["127.0.0.1:1"] for job in ("chief", "ps", "worker") if job != missing}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": report}))
    config = TrainConfig(batches(96), model=Recording, optimizer=OPTIMIZERS["sgd"])
    with pytest.raises(fl.InvalidFlow, match=f"the cluster has no {missing}, only "):
        AsyncDistributedTrainer(config)


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        (None, "set the environment variable TF_CONFIG, which lists the processes"),
        ("{", "TF_CONFIG is not JSON"),
        ('{"cluster": {"ps": ["127.0.0.1:1"]}}', "the cluster has no worker, only ps"),
    ],
)
def test_tf_config_must_be_valid(
    environment: str | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if environment is not None:
        monkeypatch.setenv("TF_CONFIG", environment)
    config = TrainConfig(batches(96), model=Recording, optimizer=OPTIMIZERS["sgd"])
    with pytest.raises(fl.InvalidFlow, match=says):
        DistributedReplicatedTrainer(config)


def test_each_process_computes_only_its_shard() -> None:
    source = QueueInput(batches(96))
    config = TrainConfig(data=source, model=Recording, optimizer=OPTIMIZERS["sgd"])
    with pytest.raises(
        fl.InvalidFlow, match="pass dataflow, of which each process computes its own"
    ):
        DistributedReplicatedTrainer(config)


@pytest.mark.long
def test_a_compiled_model_is_trained_evaluated_and_resumed_by_two_processes(tmp_path: Path) -> None:
    """Actions of one process, such as saving and evaluating, must not wait for the other."""
    for epochs in (1, 2):
        processes = Processes("tests.tensorflow.train.distributed_keras", worker=2)
        for k in range(2):
            processes.start("worker", k, tmp_path, epochs)
        assert processes.end() == [0, 0], processes.said
    assert "training continues after step" in processes.said[0]
    losses = [(entry["loss"], entry["validation_loss"]) for entry in read_stats(tmp_path)]
    assert len(losses) == 2
    assert all(loss and loss > 0 for pair in losses for loss in pair)

    refused = Processes("tests.tensorflow.train.distributed_keras", worker=2)
    for k in range(2):
        refused.start("worker", k, tmp_path / "refused", 1, "mae")
    assert 0 not in refused.end()
    assert "has metrics" in refused.said[0]
