from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tensorflow._tensor import DType, Shape, Tensor, TensorLike, TensorShape

_Values: TypeAlias = TensorLike | Sequence[TensorLike] | Mapping[str, TensorLike]

class QueueBase:
    @property
    def queue_ref(self) -> Tensor: ...
    @property
    def dtypes(self) -> list[DType]: ...
    @property
    def shapes(self) -> list[TensorShape]: ...
    @property
    def names(self) -> list[str] | None: ...
    def enqueue(self, vals: _Values) -> None: ...
    def enqueue_many(self, vals: _Values) -> None: ...
    # A tensor, or a list or dict of them, as the queue was made.
    def dequeue(self) -> Any: ...
    def dequeue_many(self, n: int) -> Any: ...
    def dequeue_up_to(self, n: int) -> Any: ...
    def close(self, cancel_pending_enqueues: bool = False) -> None: ...
    def is_closed(self) -> Tensor: ...
    def size(self) -> Tensor: ...

class FIFOQueue(QueueBase):
    def __init__(
        self,
        capacity: int,
        dtypes: Sequence[DType],
        shapes: Sequence[Shape] | None = None,
        names: Sequence[str] | None = None,
        shared_name: str | None = None,
    ) -> None: ...

class PaddingFIFOQueue(QueueBase):
    def __init__(
        self,
        capacity: int,
        dtypes: Sequence[DType],
        shapes: Sequence[Shape],
        names: Sequence[str] | None = None,
        shared_name: str | None = None,
    ) -> None: ...

class RandomShuffleQueue(QueueBase):
    def __init__(
        self,
        capacity: int,
        min_after_dequeue: int,
        dtypes: Sequence[DType],
        shapes: Sequence[Shape] | None = None,
        names: Sequence[str] | None = None,
        seed: int | None = None,
        shared_name: str | None = None,
    ) -> None: ...
