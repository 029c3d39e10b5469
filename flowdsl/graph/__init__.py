"""TensorFlow input sources, fed from a Flow.

source.py       InputSource: the protocol between data and a step function
queue_input.py  QueueInput: a flow through a TensorFlow queue, which a pump fills
layout.py       from a flow's spec to tensor specs; checking elements against them
devices.py      the devices of a data-parallel step; logical CPUs to try one anywhere
"""

from __future__ import annotations

try:
    import tensorflow as _  # noqa: F401  # first, so that its error below comes first
except ModuleNotFoundError as error:
    if error.name != "tensorflow":
        raise
    raise ImportError(
        'flowdsl.graph and flowdsl.train need TensorFlow: pip install "flowdsl[tensorflow]"',
        name="tensorflow",
    ) from error

from flowdsl.feeding.pump import EndOfPass
from flowdsl.graph.devices import logical_cpus, towers
from flowdsl.graph.queue_input import QueueInput
from flowdsl.graph.source import InputSource

__all__ = ["EndOfPass", "InputSource", "QueueInput", "logical_cpus", "towers"]
