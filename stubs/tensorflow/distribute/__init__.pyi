from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from tensorflow._tensor import Tensor, Variable
from tensorflow.data import Dataset
from tensorflow.distribute import cluster_resolver as cluster_resolver
from tensorflow.distribute import experimental as experimental
from tensorflow.train import ClusterSpec

_R = TypeVar("_R")
_T = TypeVar("_T", Tensor, list[Tensor])
_V = TypeVar("_V", Tensor, Variable)

class ReplicaContext:
    @property
    def replica_id_in_sync_group(self) -> Tensor: ...
    def all_reduce(self, reduce_op: str, value: _T) -> _T: ...

def get_replica_context() -> ReplicaContext: ...
def get_strategy() -> Strategy: ...

class DistributedDataset:
    def __iter__(self) -> Iterator[Any]: ...

class InputContext:
    def __init__(
        self,
        num_input_pipelines: int = 1,
        input_pipeline_id: int = 0,
        num_replicas_in_sync: int = 1,
    ) -> None: ...
    @property
    def num_input_pipelines(self) -> int: ...
    @property
    def input_pipeline_id(self) -> int: ...
    @property
    def num_replicas_in_sync(self) -> int: ...

class ReductionToOneDevice: ...

class _Extended:
    worker_devices: tuple[str, ...]

class Strategy:
    extended: _Extended
    @property
    def num_replicas_in_sync(self) -> int: ...
    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Dataset]
    ) -> DistributedDataset: ...
    def scope(self) -> AbstractContextManager[Strategy]: ...
    def run(
        self,
        fn: Callable[..., _R],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> _R: ...
    def reduce(self, reduce_op: str, value: Tensor, axis: int | None) -> Tensor: ...
    def experimental_distribute_values_from_function(
        self, value_fn: Callable[[experimental.ValueContext], Tensor]
    ) -> Tensor: ...
    def experimental_local_results(self, value: _V) -> tuple[_V, ...]: ...

class OneDeviceStrategy(Strategy):
    def __init__(self, device: str) -> None: ...

class MirroredStrategy(Strategy):
    def __init__(
        self,
        devices: Sequence[str] | None = None,
        cross_device_ops: ReductionToOneDevice | None = None,
    ) -> None: ...

class MultiWorkerMirroredStrategy(Strategy):
    def __init__(
        self, cluster_resolver: cluster_resolver.ClusterResolver | None = None
    ) -> None: ...

class ParameterServerStrategy(Strategy):
    def __init__(self, cluster_resolver: cluster_resolver.ClusterResolver) -> None: ...

class Server:
    def __init__(
        self,
        server_or_cluster_def: ClusterSpec,
        job_name: str | None = None,
        task_index: int | None = None,
    ) -> None: ...
