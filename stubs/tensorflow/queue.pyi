from collections.abc import Sequence

from tensorflow._tensor import DType, Shape, Tensor

class QueueBase:
    @property
    def queue_ref(self) -> Tensor: ...
    def close(self, cancel_pending_enqueues: bool = False) -> None: ...
    def is_closed(self) -> Tensor: ...
    def size(self) -> Tensor: ...

class FIFOQueue(QueueBase):
    def __init__(
        self,
        capacity: int,
        dtypes: Sequence[DType],
        shapes: Sequence[Shape] | None = None,
    ) -> None: ...

class PaddingFIFOQueue(QueueBase):
    def __init__(self, capacity: int, dtypes: Sequence[DType], shapes: Sequence[Shape]) -> None: ...
