"""Train a PyTorch model on batches from a Ray cluster. A machine that dies changes no weight."""

import argparse
import hashlib
from collections.abc import Iterable
from typing import Any

import cv2
import numpy as np
import ray
import torch
from numpy.typing import NDArray
from ray.cluster_utils import Cluster
from sklearn.datasets import load_digits
from torch import nn

import flowdsl as fl

EPOCHS = 3
NODE = {"num_cpus": 2, "object_store_memory": 100 << 20}


def augment(
    sample: tuple[NDArray[np.float64], np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.float32], np.int64]:
    """Enlarge a digit to 32 x 32 pixels, and turn it a little."""
    image, label = sample
    angle = rng.uniform(-0.3, 0.3)
    x, y = 4 * np.cos(angle), 4 * np.sin(angle)
    turn = np.array([[x, -y, 16 - 3.5 * (x - y)], [y, x, 16 - 3.5 * (x + y)]])
    return (cv2.warpAffine(image, turn, (32, 32)) / 16).astype(np.float32)[None], label


def make_model() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 6 * 6, 10)),
    )


def checksum(tensors: Iterable[torch.Tensor]) -> str:
    return hashlib.sha256(b"".join(x.numpy().tobytes() for x in tensors)).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--local", action="store_true", help="start a cluster on this machine")
    parser.add_argument("--kill", type=int, metavar="EPOCH", help="with --local: replace a node")
    parser.add_argument("--procs", action="store_true", help="use processes and no cluster")
    asked = parser.parse_args()

    cluster: Any = None
    second = None
    if asked.local:  # two nodes of Ray on this machine, to try a cluster without one
        head = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        second = cluster.add_node(**NODE)
        ray.init(cluster.address, log_to_driver=False)
    elif not asked.procs:
        ray.init("auto", log_to_driver=False)  # the cluster of RAY_ADDRESS, or of this machine

    digits = load_digits()  # in memory, so each machine gets them with the program
    rows = fl.from_items(list(zip(digits.images, digits.target, strict=True)))
    batches = rows.shuffle(seed=7).random_map(augment, seed=7).batch(16)
    # The limit of memory is there for --kill: without it, workers prepare all of so small an epoch
    # before the first step.
    procs, actors = (3, 0) if asked.procs else (0, 3)
    loader = batches.prefetch(procs, actors=actors, memory=1 << 16).to_torch()

    torch.set_num_threads(1)  # several add in an order that varies
    torch.manual_seed(1)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        total = 0.0
        for step, (image, label) in enumerate(loader):
            if cluster is not None and epoch == asked.kill and step == len(loader) // 2:
                cluster.remove_node(second, allow_graceful=False)  # as if it lost its power
                cluster.add_node(**NODE)
            loss = nn.functional.cross_entropy(model(image), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        statistics = loader.statistics()
        deaths = sum(stage.deaths for stage in statistics.stages) if statistics else 0
        print(f"epoch {epoch}: loss {total / len(loader):.4f}, workers that died: {deaths}")
    print(f"weights {checksum(model.state_dict().values())}")

    loader.close()
    ray.shutdown()
    if cluster is not None:
        cluster.shutdown()


if __name__ == "__main__":
    main()
