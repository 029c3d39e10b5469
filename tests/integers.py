"""Values that are not ints, although Python might calculate with them."""

from __future__ import annotations

from typing import Any

import numpy as np

NO_INTS: list[Any] = [1.5, 2.0, True, "2", np.float64(2), np.bool_(True), 2 + 0j, [2]]
