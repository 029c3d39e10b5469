"""DistributedReplicatedTrainer: one training by the processes of several machines."""

from __future__ import annotations

import json
import os

import tensorflow as tf

from flowdsl.errors import InvalidFlow
from flowdsl.graph import InputSource, StagingInput
from flowdsl.graph.sharded_input import ShardedInput
from flowdsl.train.config import TrainConfig
from flowdsl.train.multi_gpu import MultiGPUTrainerBase
from flowdsl.train.towers import Replicas


class DistributedReplicatedTrainer(MultiGPUTrainerBase):
    """Trains one model in several processes, each with a copy on each of its devices.

    All processes run the same program; which of them one is, ``server`` tells, by default what the
    environment variable ``TF_CONFIG`` says. The gradients of a step are added up over all devices
    of all processes: a step is that of one device on the joined elements. Each process makes every
    n-th element of ``config.dataflow``, and all end a pass together. Callbacks that are
    ``chief_only`` run in the first process alone, and so do the monitors: there are the checkpoints
    too, in a ``logdir`` that all processes can read.

    Make it before anything of TensorFlow: the processes meet first. When one of them dies, the
    others end with TensorFlow's ``UnavailableError`` or the like, mostly within seconds. Run the
    program again, in as many processes or in others: it goes on from the last checkpoint, and no
    element is trained on twice or left out, but for those after the checkpoint.

    Raises:
        InvalidFlow: ``TF_CONFIG`` is missing or names no workers; or ``config`` has a ``data``
            source, which each process would read whole.

    Source: ``DistributedReplicatedTrainer`` in tensorpack; here on TensorFlow's
    ``MultiWorkerMirroredStrategy``.
    """

    def __init__(
        self,
        config: TrainConfig,
        server: tf.distribute.cluster_resolver.ClusterResolver | None = None,
        *,
        gpu_prefetch: bool = True,
    ) -> None:
        if config.dataflow is None:
            raise InvalidFlow(
                "DistributedReplicatedTrainer: give dataflow, of which each process makes its own "
                "part: data is an input source that each would read whole"
            )
        if config.remainder != "drop":
            raise InvalidFlow(
                "DistributedReplicatedTrainer: remainder must be 'drop': processes end a pass "
                "together"
            )
        resolver = server if server is not None else _told_by_the_environment()
        if "worker" not in resolver.cluster_spec().jobs:
            raise InvalidFlow(
                f"DistributedReplicatedTrainer: the cluster has no workers, only "
                f"{', '.join(resolver.cluster_spec().jobs) or 'nothing'}"
            )
        try:
            strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
        except RuntimeError as error:
            raise InvalidFlow(
                f"DistributedReplicatedTrainer: TensorFlow has started already; make the trainer "
                f"before its first operation ({error})"
            ) from error
        self.workers = resolver.cluster_spec().num_tasks("worker")
        """How many processes there are."""
        self.worker = int(resolver.task_id or 0)
        """The number of this one."""
        self.is_chief = self.worker == 0
        devices = strategy.extended.worker_devices
        super().__init__(config, Replicas(strategy, devices), gpu_prefetch)

    def make_input(self) -> InputSource:
        flow = self.config.dataflow
        assert flow is not None
        capacity = max(50, 2 * self.towers * self.config.steps_per_call)
        source = ShardedInput(flow, self.workers, self.worker, capacity=capacity)
        return StagingInput(source) if self.stages else source


def _told_by_the_environment() -> tf.distribute.cluster_resolver.ClusterResolver:
    told = os.environ.get("TF_CONFIG")
    if not told:
        raise InvalidFlow(
            "DistributedReplicatedTrainer: the environment variable TF_CONFIG is missing, which "
            'says who takes part, e.g. {"cluster": {"worker": ["a:5000", "b:5000"]}, "task": '
            '{"type": "worker", "index": 0}}; or give server='
        )
    try:
        json.loads(told)
    except ValueError as error:
        raise InvalidFlow(f"DistributedReplicatedTrainer: TF_CONFIG is no JSON: {error}") from error
    return tf.distribute.cluster_resolver.TFConfigClusterResolver()
