from tensorflow.train import ClusterSpec

class ClusterResolver:
    task_type: str | None
    task_id: int | None
    def cluster_spec(self) -> ClusterSpec: ...

class TFConfigClusterResolver(ClusterResolver):
    def __init__(self) -> None: ...

class SimpleClusterResolver(ClusterResolver):
    def __init__(
        self,
        cluster_spec: ClusterSpec,
        master: str = "",
        task_type: str | None = None,
        task_id: int | None = None,
    ) -> None: ...
