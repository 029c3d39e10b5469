"""TensorFlow: its input sources, the queues of TensorFlow 1, and trainers, all fed from a Flow.

inputs/  how data enters a step function: QueueInput, FeedInput, TFDatasetInput, StagingInput, ...
queues/  tf.train's input pipelines, on tensors
train/   trainers, callbacks and checkpoints

``flowdsl.graph`` and ``flowdsl.train`` are the older names of ``inputs`` and ``train``.
"""

from __future__ import annotations

try:
    import tensorflow as _  # noqa: F401  # first, so that the message below comes before others
except ModuleNotFoundError as error:
    if error.name != "tensorflow":
        raise
    raise ImportError(
        'flowdsl.tensorflow needs TensorFlow: pip install "flowdsl[tensorflow]"',
        name="tensorflow",
    ) from error
