import numpy as np
from numpy.typing import NDArray

class Bunch:
    images: NDArray[np.float64]
    target: NDArray[np.int64]

def load_digits(*, n_class: int = 10) -> Bunch: ...
