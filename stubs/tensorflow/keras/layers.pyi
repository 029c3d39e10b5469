from collections.abc import Callable, Sequence
from typing import TypeAlias

from tensorflow._tensor import Tensor, TensorLike
from tensorflow.keras import Variable

_Activation: TypeAlias = str | Callable[[Tensor], Tensor] | None
_Size: TypeAlias = int | tuple[int, int]

class Layer:
    name: str
    def __init__(self, *, name: str | None = None, trainable: bool = True) -> None: ...
    def __call__(
        self, inputs: TensorLike | Sequence[TensorLike], *, training: bool | None = None
    ) -> Tensor: ...
    def build(self, input_shape: tuple[int | None, ...]) -> None: ...
    @property
    def variables(self) -> list[Variable]: ...
    @property
    def trainable_variables(self) -> list[Variable]: ...

class Activation(Layer):
    def __init__(self, activation: _Activation, *, name: str | None = None) -> None: ...

class BatchNormalization(Layer):
    moving_mean: Variable
    moving_variance: Variable
    def __init__(
        self,
        axis: int = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        *,
        name: str | None = None,
    ) -> None: ...

class Conv2D(Layer):
    def __init__(
        self,
        filters: int,
        kernel_size: _Size,
        strides: _Size = (1, 1),
        padding: str = "valid",
        *,
        activation: _Activation = None,
        use_bias: bool = True,
        kernel_initializer: str = "glorot_uniform",
        name: str | None = None,
    ) -> None: ...

class Dense(Layer):
    def __init__(
        self,
        units: int,
        activation: _Activation = None,
        use_bias: bool = True,
        kernel_initializer: str = "glorot_uniform",
        *,
        name: str | None = None,
    ) -> None: ...

class Dropout(Layer):
    def __init__(
        self, rate: float, *, seed: int | None = None, name: str | None = None
    ) -> None: ...

class Embedding(Layer):
    def __init__(self, input_dim: int, output_dim: int, *, name: str | None = None) -> None: ...

class GRU(Layer):
    def __init__(
        self, units: int, *, return_sequences: bool = False, name: str | None = None
    ) -> None: ...

class Flatten(Layer):
    def __init__(self, *, name: str | None = None) -> None: ...

class GlobalAveragePooling2D(Layer):
    def __init__(self, *, name: str | None = None) -> None: ...

class MaxPooling2D(Layer):
    def __init__(
        self,
        pool_size: _Size = (2, 2),
        strides: _Size | None = None,
        padding: str = "valid",
        *,
        name: str | None = None,
    ) -> None: ...

class Rescaling(Layer):
    def __init__(self, scale: float, offset: float = 0.0, *, name: str | None = None) -> None: ...

class Reshape(Layer):
    def __init__(self, target_shape: Sequence[int], *, name: str | None = None) -> None: ...
