"""OpenCV draws on an image that other elements share.

OpenCV refuses read-only arrays in its own words. The error has them, and suggests a correction.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

import flowdsl as fl


def draw(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    cv2.rectangle(image, (1, 1), (2, 2), 255)
    return image


fl.from_range(2).map(lambda i: np.zeros((4, 4), np.uint8)).repeat_each(3).map(draw).collect()

# Seen:
# flowdsl.errors.ElementError: map(draw) failed on element 0 (row 0 of from_range(2)):
# error("OpenCV... provided NumPy array marked as readonly..."); copy it first, x = x.copy(), as
# other passes or elements share its memory; the element was uint8[4, 4]
