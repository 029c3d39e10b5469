from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Generic, ParamSpec, Self, TypeVar, overload

from tensorflow._tensor import Tensor, TypeSpec, Variable

_P = ParamSpec("_P")
_R_co = TypeVar("_R_co", covariant=True)
_R = TypeVar("_R")

# At run time this is tf.types.experimental.PolymorphicFunction.
class _Function(Generic[_P, _R_co]):
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co: ...
    def experimental_get_tracing_count(self) -> int: ...
    def get_concrete_function(
        self, *args: _P.args, **kwargs: _P.kwargs
    ) -> _ConcreteFunction[_R_co]: ...

class _ConcreteFunction(Generic[_R_co]):
    def __call__(self, *args: Tensor) -> _R_co: ...
    @property
    def structured_outputs(self) -> _R_co: ...

@overload
def function(func: Callable[_P, _R]) -> _Function[_P, _R]: ...
@overload
def function(
    *,
    input_signature: Sequence[TypeSpec] | None = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
) -> Callable[[Callable[_P, _R]], _Function[_P, _R]]: ...

class GradientTape:
    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def watch(self, tensor: Tensor) -> None: ...
    def watched_variables(self) -> tuple[Variable, ...]: ...
    def gradient(self, target: Tensor, sources: Sequence[Variable]) -> list[Tensor]: ...
