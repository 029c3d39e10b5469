"""An older name of ``flowdsl.tensorflow.queues``, with ``LazyTensor`` for ``LazyTensor``."""

from __future__ import annotations

from flowdsl.tensorflow.queues import *  # noqa: F403
from flowdsl.tensorflow.queues import LazyTensor as Produced  # noqa: F401
from flowdsl.tensorflow.queues import __all__ as __all__
