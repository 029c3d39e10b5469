from typing import Any

import numpy as np
from numpy.typing import NDArray

def decode_jpeg(
    data: object,
    colorspace: str = "RGB",
    fastdct: bool = False,
    fastupsample: bool = False,
    min_height: int = 0,
    min_width: int = 0,
    min_factor: float = 1,
    buffer: Any = None,
    strict: bool = True,
) -> NDArray[np.uint8]: ...
def decode_jpeg_header(
    data: object,
    min_height: int = 0,
    min_width: int = 0,
    min_factor: float = 1,
    strict: bool = True,
) -> tuple[int, int, str, str]: ...
def encode_jpeg(
    image: NDArray[np.uint8],
    quality: int = 85,
    colorspace: str = "RGB",
    colorsubsampling: str = "444",
    fastdct: bool = True,
) -> bytes: ...
