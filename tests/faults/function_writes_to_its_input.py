"""An augmentation writes to its input.

It writes to a copy: the elements of the source do not change. With `copy=False` nothing is copied,
and writing is an error.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl


def blacken(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    image[:] = 0
    return image


white = np.full((2, 2), 255, np.uint8)
images = fl.from_items([white])
print(images.augment(blacken).collect()[0].max(), white.max())
images.augment(blacken, copy=False).collect()

# Seen:
# 0 255
# flowdsl.errors.ElementError: augment(blacken, copy=False) failed on element 0 (row 0 of
# from_items(1 items)): ValueError('assignment destination is read-only'); copy it first, x =
# x.copy(), as other passes or elements share its memory; the element was uint8[2, 2]
