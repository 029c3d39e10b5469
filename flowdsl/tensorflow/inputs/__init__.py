"""TensorFlow input sources, fed by a Flow.

source.py             InputSource: the protocol between data and a step function
queue_input.py        QueueInput, BatchQueueInput: a flow through a queue, which a pump fills
feed_input.py         FeedInput: a flow's elements as arguments of the step
placeholder_input.py  PlaceholderInput: elements that the caller feeds
dataset_input.py      TFDatasetInput; dataflow_to_dataset, distributed_dataset: flows for tf.data
zmq_input.py          ZMQInput: elements that other programs send
staging_input.py      StagingInput: the next elements, copied to the device in advance
remap_input.py        remap_input_source: renamed components, and components that are fed
tensor_input.py       TensorInput, DummyConstantInput: elements that TensorFlow computes in the step
queues/               the input pipelines of tf.train, as lazy tensors
signature.py          converts a flow's spec to tensor specs; checks elements against them
aligned.py            copies of large arrays that TensorFlow reads in place
devices.py            the devices of a data-parallel step; logical CPUs to try one anywhere
"""

from __future__ import annotations

from flowdsl.feeding.pump import EndOfPass
from flowdsl.tensorflow import queues
from flowdsl.tensorflow.inputs.dataset_input import (
    TFDatasetInput,
    dataflow_to_dataset,
    distributed_dataset,
)
from flowdsl.tensorflow.inputs.devices import logical_cpus, towers
from flowdsl.tensorflow.inputs.feed_input import FeedInput
from flowdsl.tensorflow.inputs.placeholder_input import PlaceholderInput
from flowdsl.tensorflow.inputs.queue_input import BatchQueueInput, QueueInput
from flowdsl.tensorflow.inputs.remap_input import remap_input_source
from flowdsl.tensorflow.inputs.source import InputSource, LeftOver
from flowdsl.tensorflow.inputs.staging_input import StagingInput
from flowdsl.tensorflow.inputs.tensor_input import DummyConstantInput, TensorInput
from flowdsl.tensorflow.inputs.zmq_input import ZMQInput

__all__ = [
    "BatchQueueInput",
    "DummyConstantInput",
    "EndOfPass",
    "FeedInput",
    "InputSource",
    "LeftOver",
    "PlaceholderInput",
    "QueueInput",
    "StagingInput",
    "TFDatasetInput",
    "TensorInput",
    "ZMQInput",
    "dataflow_to_dataset",
    "distributed_dataset",
    "logical_cpus",
    "queues",
    "remap_input_source",
    "towers",
]
