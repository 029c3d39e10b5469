"""A queue of tensors is read while nothing fills it.

TensorFlow would wait forever, and not hear Ctrl-C. The read is refused, and the error suggests a
correction.
"""

from __future__ import annotations

from flowdsl.tensorflow.inputs import queues

numbers = queues.range_input_producer(9)
batch = queues.batch([queues.apply(numbers.dequeue)], batch_size=3)
queues.evaluate(batch)

# Seen:
# flowdsl.errors.FlowError: batch_1: nothing fills this queue yet, so reading from it would wait
# forever; read it within a block: with queues.running(...):
