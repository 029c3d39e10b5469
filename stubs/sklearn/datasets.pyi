from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

class Bunch:
    images: NDArray[np.float64]
    target: NDArray[np.int64]
    DESCR: str

class _Images:
    images: list[NDArray[np.uint8]]

def load_sample_images() -> _Images: ...
def load_iris() -> Bunch: ...
def load_wine() -> Bunch: ...
def load_breast_cancer() -> Bunch: ...
def load_diabetes() -> Bunch: ...
def load_digits(*, n_class: int = 10) -> Bunch: ...
def load_svmlight_file(
    f: str, *, n_features: int | None = None, zero_based: bool | Literal["auto"] = "auto"
) -> tuple[Any, NDArray[np.float64]]: ...
def dump_svmlight_file(
    X: NDArray[np.float64],
    y: NDArray[Any],
    f: str,
    *,
    zero_based: bool = True,
    comment: str | None = None,
) -> None: ...
