from tensorflow._tensor import Tensor, TensorLike, Variable

class Metric:
    name: str
    variables: list[Variable]
    def update_state(self, *args: TensorLike, sample_weight: TensorLike | None = None) -> None: ...
    def result(self) -> Tensor: ...
