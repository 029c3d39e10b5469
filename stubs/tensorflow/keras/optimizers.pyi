from collections.abc import Sequence

from tensorflow._tensor import Tensor, Variable

class Optimizer:
    @property
    def learning_rate(self) -> Variable: ...
    @property
    def variables(self) -> list[Variable]: ...
    @property
    def iterations(self) -> Variable: ...
    def build(self, variables: Sequence[Variable]) -> None: ...
    def apply(
        self, grads: Sequence[Tensor], trainable_variables: Sequence[Variable] | None = None
    ) -> None: ...

class Adam(Optimizer):
    def __init__(
        self,
        learning_rate: float = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        *,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        global_clipnorm: float | None = None,
    ) -> None: ...

class AdamW(Optimizer):
    def __init__(self, learning_rate: float = 0.001, weight_decay: float = 0.004) -> None: ...

class SGD(Optimizer):
    def __init__(
        self,
        learning_rate: float = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        *,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        global_clipnorm: float | None = None,
    ) -> None: ...
