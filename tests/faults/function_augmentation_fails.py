"""An augmentation fails on one image.

The error names the augmentation and its row, and describes the element; the cause is the
augmentation's own exception. With `on_error="skip"` the other images are delivered.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl


def warmer(image: NDArray[np.float64]) -> NDArray[np.float64]:
    image *= np.array([1.2, 1.0, 0.8])
    return image


rows = [np.ones((8, 8, 3)), np.ones((8, 8)), np.ones((8, 8, 3))]  # the second has no colours
images = fl.from_items(rows).augment(warmer)
print([image.shape for image in images.prefetch(on_error="skip")])
images.collect()

# Seen:
# 1 element failed and was left out: augment(warmer) failed on element 1 (row 1 of
# from_items(3 items)): ValueError('operands could not be broadcast together with shapes (8,8) (3,)
# (8,8) '); the element was float64[8, 8]
# [(8, 8, 3), (8, 8, 3)]
# flowdsl.errors.ElementError: augment(warmer) failed on element 1 (row 1 of from_items(3 items)):
# ValueError('operands could not be broadcast together with shapes (8,8) (3,) (8,8) '); the element
# was float64[8, 8]
