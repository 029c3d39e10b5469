"""Train a PyTorch model in two workers of Ray Train, each with its shard of the batches."""

import argparse
import hashlib
import os
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import ray
import ray.train.torch
import torch
import torch.distributed
from numpy.typing import NDArray
from ray.train import Checkpoint, RunConfig, ScalingConfig
from sklearn.datasets import load_digits
from torch import nn

import flowdsl as fl

EPOCHS = 3
WORKERS = 2


def augment(
    sample: tuple[NDArray[np.float64], np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.float32], np.int64]:
    image, label = sample
    y, x = rng.integers(3, size=2)  # moves the digit by a pixel at most
    return np.pad(image / 16, 1).astype(np.float32)[None, y : y + 8, x : x + 8], label


def train_worker() -> None:
    """Train in one of the workers, and report the losses of all."""
    digits = load_digits()
    rows = fl.from_items(list(zip(digits.images, digits.target, strict=True)))
    batches = rows.shuffle(seed=7).random_map(augment, seed=7).batch(32)
    loader = batches.prefetch(procs=1).to_torch()  # every second batch: its rank is known here

    torch.set_num_threads(1)
    torch.manual_seed(1)
    net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 6 * 6, 10))
    model = ray.train.torch.prepare_model(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    lines = []
    for epoch in range(EPOCHS):
        losses = []
        for image, label in loader:
            loss = nn.functional.cross_entropy(model(image), label)
            optimizer.zero_grad()
            loss.backward()  # waits for the other ranks
            optimizer.step()
            losses.append(loss.item())
        lines.append(f"epoch {epoch}: {len(losses)} batches, loss {np.mean(losses):.4f}")
    weights = b"".join(x.numpy().tobytes() for x in net.state_dict().values())
    lines.append(f"weights {hashlib.sha256(weights).hexdigest()[:16]}")
    ranks: list[Any] = [None] * WORKERS
    torch.distributed.all_gather_object(ranks, lines)
    with TemporaryDirectory() as folder:  # the first worker saves; all report
        checkpoint = None
        if ray.train.get_context().get_world_rank() == 0:
            torch.save(net.state_dict(), f"{folder}/model.pt")
            checkpoint = Checkpoint.from_directory(folder)
        ray.train.report({"ranks": ranks}, checkpoint=checkpoint)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--local", action="store_true", help="start a cluster on this machine")
    asked = parser.parse_args()
    if asked.local:
        ray.init("local", num_cpus=2 * WORKERS)
    else:
        ray.init("auto")  # the cluster of RAY_ADDRESS, or of this machine
    trainer = ray.train.torch.TorchTrainer(
        train_worker,
        # A CPU for the worker, and one for the process that prefetch starts.
        scaling_config=ScalingConfig(num_workers=WORKERS, resources_per_worker={"CPU": 2}),
        # On several machines, a folder that all of them share.
        run_config=RunConfig(storage_path=os.path.abspath("out")),
    )
    metrics = trainer.fit().metrics
    assert metrics is not None
    for rank, lines in enumerate(metrics["ranks"]):
        for line in lines:
            print(f"rank {rank}, {line}")


if __name__ == "__main__":
    main()
