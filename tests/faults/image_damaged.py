"""An image file is damaged.

The error names the file and describes the damage. With `on_error="skip"` the other images are
delivered.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

import flowdsl as fl

for i in range(3):
    cv2.imwrite(f"{i}.png", np.full((8, 8, 3), i, np.uint8))
Path("1.png").write_bytes(Path("1.png").read_bytes()[:-20])
images = fl.from_images("*.png")
print([int(image.max()) for image in images.prefetch(on_error="skip")])
images.collect()

# Seen:
# 1 element failed and was left out: from_images('0.png', 3 files) failed on element 1
# (row 1 of from_images('0.png', 3 files)): SourceError("from_images: '1.png' cannot be read: this
# PNG image is cut off: it has ... bytes, and no end")
# [0, 2]
# flowdsl.errors.ElementError: from_images('0.png', 3 files) failed on element 1 (row 1 of
# from_images('0.png', 3 files)): SourceError("from_images: '1.png' cannot be read: this PNG image
# is cut off: it has ... bytes, and no end")
