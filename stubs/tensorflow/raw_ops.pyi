from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
from tensorflow._tensor import DType, Tensor

def QueueEnqueueV2(
    *, handle: Tensor, components: Sequence[Tensor | npt.NDArray[Any]], timeout_ms: int = -1
) -> None: ...
def QueueDequeueV2(
    *, handle: Tensor, component_types: Sequence[DType], timeout_ms: int = -1
) -> list[Tensor]: ...
def QueueDequeueManyV2(
    *, handle: Tensor, n: int | Tensor, component_types: Sequence[DType], timeout_ms: int = -1
) -> list[Tensor]: ...
def Identity(*, input: Tensor | npt.NDArray[Any]) -> Tensor: ...
