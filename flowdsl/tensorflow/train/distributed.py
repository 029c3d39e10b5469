"""Trainers of several processes, on one machine or many."""

from __future__ import annotations

import sys

import tensorflow as tf

from flowdsl.errors import FlowError, InvalidArgument
from flowdsl.tensorflow.inputs import InputSource, StagingInput
from flowdsl.tensorflow.inputs.sharded_input import ShardedInput
from flowdsl.tensorflow.train.asynchronous import AsyncTrainerBase
from flowdsl.tensorflow.train.cluster import (
    Cluster,
    await_all,
    cluster_of,
    require_jobs,
    serve,
)
from flowdsl.tensorflow.train.compiled import CompiledModel
from flowdsl.tensorflow.train.config import TrainConfig, checked_config
from flowdsl.tensorflow.train.multi_gpu import MultiGPUTrainerBase
from flowdsl.tensorflow.train.towers import Element, MultiWorkerMirrored, Replicas, SharedVariables


class DistributedReplicatedTrainer(MultiGPUTrainerBase):
    """Trains one model in several processes, each with a replica on each of its devices.

    All processes run the same program. ``server`` identifies the process; by default it is read
    from the environment variable ``TF_CONFIG``. The gradients of a step are summed over all devices
    of all processes: a step equals a step of one device on the joined elements. Each process
    computes every n-th element of ``config.dataflow``, and all end a pass together. Callbacks that
    are ``chief_only`` run only in the first process, and so do monitors: checkpoints are written
    there too, to a ``logdir`` that all processes can read.

    Create the trainer before any TensorFlow operation: it first connects the processes. When a
    process dies, the others end with TensorFlow's ``UnavailableError`` or similar, mostly within
    seconds. Run the program again, with the same or another number of processes: it resumes from
    the last checkpoint. No element up to the checkpoint is repeated or left out.

    Raises:
        InvalidArgument: ``TF_CONFIG`` is missing or names no workers; or ``config`` has a ``data``
            source, which each process would read completely.

    Source: ``DistributedReplicatedTrainer`` in tensorpack; implemented with TensorFlow's
    ``MultiWorkerMirroredStrategy``.
    """

    def __init__(
        self,
        config: TrainConfig,
        server: Cluster | None = None,
        *,
        gpu_prefetch: bool = True,
    ) -> None:
        if checked_config(self, config).dataflow is None:
            raise InvalidArgument(
                "DistributedReplicatedTrainer: pass dataflow, of which each process computes its "
                "own part: data is an input source that each would read completely"
            )
        if config.remainder != "drop":
            raise InvalidArgument(
                "DistributedReplicatedTrainer: remainder must be 'drop': processes end a pass "
                "together"
            )
        example = '{"worker": ["a:5000", "b:5000"]}'
        name = type(self).__name__
        resolver = cluster_of(name, server, example)
        require_jobs(name, resolver, ["worker"])
        try:
            strategy = MultiWorkerMirrored(cluster_resolver=resolver)
        except RuntimeError as error:
            raise InvalidArgument(
                f"DistributedReplicatedTrainer: TensorFlow has started already; make the trainer "
                f"before its first operation ({error})"
            ) from error
        self.workers = resolver.cluster_spec().num_tasks("worker")
        """The number of processes."""
        self.worker = int(resolver.task_id or 0)
        """The number of this process."""
        self.is_chief = self.worker == 0
        devices = strategy.extended.worker_devices
        super().__init__(config, Replicas(strategy, devices), gpu_prefetch)

    def require_can_train(self, model: CompiledModel) -> None:
        if model.has_its_own_step or model.has_metrics:
            what = "overrides train_step" if model.has_its_own_step else "has metrics"
            raise InvalidArgument(
                f"DistributedReplicatedTrainer: the Keras model {model.net.name!r} {what}; metrics "
                f"would have to be read in all processes at once: compile it without them, or "
                f"derive a model from ModelDesc, whose loss returns scalars"
            )
        model.measures = False

    def make_input(self) -> InputSource:
        flow = self.config.dataflow
        assert flow is not None
        capacity = max(50, 2 * self.towers * self.config.steps_per_call)
        source = ShardedInput(flow, self.workers, self.worker, capacity=capacity)
        return StagingInput(source) if self.stages else source


class AsyncDistributedTrainer(AsyncTrainerBase):
    """Trains one model in several processes, none of which waits for another.

    One process is the ``chief``, some are ``worker`` and some are ``ps``, parameter servers. All
    run the same program; ``server``, by default ``TF_CONFIG``, identifies each process. The chief
    runs the training: the flow, with its own workers, and the callbacks. Each worker is a tower
    that receives its elements from the chief. The variables are spread over the parameter servers
    by size. Each element is trained on once, and no update is lost; otherwise this is
    ``AsyncMultiGPUTrainer``.

    In a process that is not the chief, the constructor does not return: the program ends together
    with the chief (``SystemExit``).

    When a worker or a parameter server dies, the chief fails at the next step that needs it, within
    about a second, and the others end with the chief. Run the program again, with the same or
    another number of workers: it resumes from the last checkpoint. No element up to the checkpoint
    is repeated or left out.

    Raises:
        InvalidArgument: ``TF_CONFIG`` is missing, or names no chief, workers or parameter servers.
        FlowError: Another process was not reachable within five minutes.

    Source: ``tf.distribute.ParameterServerStrategy``. Its ``ClusterCoordinator`` is not used: it
    repeats a step whose worker died, although the step's rows may already have been trained on.
    """

    def __init__(
        self,
        config: TrainConfig,
        server: Cluster | None = None,
        scale_gradient: bool = True,
    ) -> None:
        checked_config(self, config)
        name = type(self).__name__
        example = '{"chief": ["a:5000"], "ps": ["a:5001"], "worker": ["b:5000", "c:5000"]}'
        resolver = cluster_of(name, server, example)
        require_jobs(name, resolver, ["chief", "worker", "ps"])
        if resolver.task_type != "chief":
            serve(name, resolver)
            sys.exit()
        spec = resolver.cluster_spec()
        await_all(name, [*spec.job_tasks("worker"), *spec.job_tasks("ps")])
        tf.distribute.ParameterServerStrategy(resolver)  # connects the processes
        workers, servers = (
            [
                device.name
                for device in tf.config.list_logical_devices()
                if f"/job:{job}/" in device.name
            ]
            for job in ("worker", "ps")
        )
        super().__init__(config, SharedVariables(workers, servers), scale_gradient)

    def _train(self, k: int, element: Element) -> dict[str, float]:
        try:
            return super()._train(k, element)
        except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
            raise FlowError(
                f"AsyncDistributedTrainer: {self.devices.devices[k]} or one of the parameter "
                f"servers has ended; run the program again to resume from the last checkpoint "
                f"({type(error).__name__})"
            ) from error
