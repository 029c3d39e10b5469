"""Keras gets a flow without elements: here, too few rows for one full batch.

The error names the flow and the usual reason. Keras itself would report a missing input of the
model, or nothing at all.
"""

from __future__ import annotations

import keras
import numpy as np
from numpy.typing import NDArray

import flowdsl as fl


def row(i: int) -> tuple[NDArray[np.float32], float]:
    return np.full(3, i, np.float32), 1.0


model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile(loss="mse")
rows = fl.from_range(7).map(row)
try:
    model.fit(rows.batch(8, drop_remainder=True).to_keras(), verbose=0)
except fl.InvalidFlow as error:
    print(error)
model.fit(rows.filter(lambda pair: pair[1] > 1).batch(2).to_keras(), verbose=0)

# Seen:
# to_keras: from_range(7).map(row).batch(8, drop_remainder=True) has no elements, and Keras needs
# at least one batch; batch(n, drop_remainder=True) leaves out rows that do not fill a batch
# ...
# flowdsl.errors.FlowError: to_keras: epoch 0 of from_range(7).map(row).filter(<lambda>).batch(2)
# has no elements, and Keras needs at least one batch; check what its filters keep
