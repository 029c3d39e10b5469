"""Keras trains on rows of different lengths, in a flow of unknown length.

The steps before the first such batch are run. The error names the rows and suggests a correction.
"""

from __future__ import annotations

import keras
import numpy as np
from numpy.typing import NDArray

import flowdsl as fl


class Tell(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        print("a step")


def row(i: int) -> tuple[NDArray[np.float32], float]:
    return np.full(3 if i < 6 else i, i, np.float32), 1.0


model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile(loss="mse")
rows = fl.from_range(9).map(row).filter(lambda pair: pair[0][0] != 1)
try:
    model.fit(rows.batch(2).to_keras(), verbose=0, callbacks=[Tell()])
except fl.ElementError as error:
    print(error)

# Seen:
# a step
# a step
# ...
# batch(2) failed on element 2 (row 5 of from_range(9) to row 6 of from_range(9)):
# SpecMismatch('element.0: row 0 of the batch is float32[3], row 1 is float32[6]; ragged rows do not
# stack: padded_batch pads them, or make them alike with .map'); the group was [(float32[3], 1.0),
# (float32[6], 1.0)]
