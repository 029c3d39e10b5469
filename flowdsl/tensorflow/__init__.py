"""TensorFlow integration: input sources, TensorFlow 1 queues and trainers, all fed by a Flow.

inputs/  how data enters a step function: QueueInput, FeedInput, TFDatasetInput, StagingInput, ...
queues/  the input pipelines of tf.train, as lazy tensors
train/   trainers, callbacks and checkpoints

``flowdsl.graph`` and ``flowdsl.train`` are older names of ``inputs`` and ``train``.
"""

from __future__ import annotations

from flowdsl.errors import MissingLibrary

try:
    import tensorflow as _  # noqa: F401  # imported first, for the message below
except ModuleNotFoundError as error:
    if error.name != "tensorflow":
        raise
    raise MissingLibrary(
        'flowdsl.tensorflow needs TensorFlow: pip install "flowdsl[tensorflow]"',
        name="tensorflow",
    ) from error
