"""The thread that fills a queue of tensors fails.

Elements queued before are delivered; then the error itself is raised, where the data would end.
"""

from __future__ import annotations

import tensorflow as tf

from flowdsl.tensorflow import queues


def half(n: tf.Tensor) -> tf.Tensor:
    with tf.control_dependencies([tf.debugging.Assert(n < 3, ["3 cannot be halved"])]):
        return n // 2


number = queues.range_input_producer(9, shuffle=False, num_epochs=1)
pair = queues.batch([queues.apply(half, queues.apply(number.dequeue))], 1)
try:
    with queues.running(pair):
        while True:
            print(queues.evaluate(pair).numpy())
except tf.errors.InvalidArgumentError as error:
    print(next(line for line in error.message.splitlines() if "halved" in line))

# Seen:
# [0]
# [0]
# [1]
# ...assertion failed: [3 cannot be halved]...
