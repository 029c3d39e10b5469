"""An element does not match the signature of an input source.

The steps before it are run; then the error names the element and the component. Nothing is cast,
cut or padded.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.inputs import QueueInput

flow = fl.from_items([{"x": np.zeros(3)}, {"x": np.zeros(3)}, {"x": np.zeros(4)}])
with QueueInput(flow, spec=[tf.TensorSpec((3,), tf.float64)]) as source:
    source.reset()
    for _ in range(3):
        print(source.tensors(*source.next_args())[0].shape)

# Seen:
# (3,)
# (3,)
# flowdsl.errors.SpecMismatch: QueueInput: component 'x' of element 2 is float64[4], but its spec is
# float64[3]; nothing is cast: make the elements alike with .map, or declare what varies with
# spec=[tf.TensorSpec(shape, dtype), ...]
