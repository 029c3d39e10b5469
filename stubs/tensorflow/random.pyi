from collections.abc import Sequence

from tensorflow._tensor import DType, Tensor, TensorLike, Variable

class Generator:
    state: Variable

def set_seed(seed: int) -> None: ...
def shuffle(value: TensorLike, seed: int | None = None) -> Tensor: ...
def normal(
    shape: Sequence[int],
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: DType = ...,
    seed: int | None = None,
) -> Tensor: ...
def stateless_normal(shape: Sequence[int], seed: Sequence[int] | Tensor) -> Tensor: ...
def stateless_uniform(shape: Sequence[int], seed: Sequence[int] | Tensor) -> Tensor: ...
