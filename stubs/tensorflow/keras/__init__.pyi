from collections.abc import Callable, Sequence
from typing import Any

from tensorflow._tensor import Tensor, TensorLike
from tensorflow._tensor import Variable as _Variable
from tensorflow.keras import layers as layers
from tensorflow.keras import losses as losses
from tensorflow.keras import metrics as metrics
from tensorflow.keras import optimizers as optimizers
from tensorflow.keras import random as random
from tensorflow.keras import utils as utils
from tensorflow.keras.layers import Layer

# No tf.Variable at run time, but taken wherever one is.
class Variable(_Variable):
    @property
    def path(self) -> str: ...
    @property
    def value(self) -> _Variable: ...
    @property
    def trainable(self) -> bool: ...

class Model(Layer):
    inputs: list[Tensor]
    output_names: list[str]
    metrics: list[metrics.Metric]
    metrics_variables: list[Variable]
    optimizer: optimizers.Optimizer
    def summary(self) -> None: ...
    def compile(
        self,
        optimizer: str | optimizers.Optimizer = "rmsprop",
        loss: str | losses.Loss | Callable[[Tensor, Tensor], Tensor] | None = None,
        metrics: Sequence[str] | None = None,
    ) -> None: ...
    def compute_loss(
        self,
        x: TensorLike | None = None,
        y: TensorLike | None = None,
        y_pred: TensorLike | None = None,
        sample_weight: TensorLike | None = None,
        training: bool = True,
    ) -> Tensor: ...
    def call(self, inputs: TensorLike) -> Tensor: ...
    def compute_metrics(
        self, x: object, y: object, y_pred: object, sample_weight: object = None
    ) -> dict[str, Tensor]: ...
    def get_metrics_result(self) -> dict[str, Tensor]: ...
    def reset_metrics(self) -> None: ...
    def train_step(self, data: Any) -> dict[str, Tensor]: ...
    def test_step(self, data: Any) -> dict[str, Tensor]: ...
    # private, and what ``fit`` calls: nothing public makes the variables of metrics
    def _symbolic_build(self, *, data_batch: object) -> None: ...

class Sequential(Model):
    def __init__(
        self, layers: Sequence[Layer | Tensor] | None = None, *, name: str | None = None
    ) -> None: ...
    def add(self, layer: Layer | Tensor) -> None: ...

def Input(
    shape: Sequence[int | None] | None = None,
    batch_size: int | None = None,
    dtype: str | None = None,
    *,
    name: str | None = None,
) -> Tensor: ...
