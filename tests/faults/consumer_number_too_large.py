"""An integer does not fit into the 32 bits that JAX keeps.

An error names the component and the element, and suggests a correction. JAX alone would truncate
it.
"""

from __future__ import annotations

import numpy as np

import flowdsl as fl

rows = [(np.zeros(2, np.float32), np.int64(7)), (np.zeros(2, np.float32), np.int64(2**40))]
for x, y in fl.from_items(rows).to_jax():
    print(x, y)

# Seen:
# [0. 0.] 7
# flowdsl.errors.SpecMismatch: to_jax: component '1' of element 1, an array of int64 of shape (),
# cannot be placed: it has numbers from 1099511627776 to 1099511627776, and JAX keeps 32 bits; call
# jax.config.update("jax_enable_x64", True) first, or map them to smaller ones
