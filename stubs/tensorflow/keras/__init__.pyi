from collections.abc import Callable, Sequence

from tensorflow._tensor import Tensor, TensorLike
from tensorflow._tensor import Variable as _Variable
from tensorflow.keras import layers as layers
from tensorflow.keras import losses as losses
from tensorflow.keras import optimizers as optimizers
from tensorflow.keras import utils as utils
from tensorflow.keras.layers import Layer

# No tf.Variable at run time, but taken wherever one is.
class Variable(_Variable):
    @property
    def path(self) -> str: ...

class Model(Layer):
    inputs: list[Tensor]
    output_names: list[str]
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
