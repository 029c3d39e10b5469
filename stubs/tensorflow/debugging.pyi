from collections.abc import Sequence

from tensorflow._tensor import Tensor

def Assert(condition: Tensor, data: Sequence[object]) -> Tensor: ...
