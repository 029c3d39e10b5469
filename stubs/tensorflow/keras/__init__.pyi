from collections.abc import Sequence

from tensorflow._tensor import Tensor
from tensorflow.keras import layers as layers
from tensorflow.keras import losses as losses
from tensorflow.keras import optimizers as optimizers
from tensorflow.keras import utils as utils
from tensorflow.keras.layers import Layer

class Model(Layer):
    def summary(self) -> None: ...

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
