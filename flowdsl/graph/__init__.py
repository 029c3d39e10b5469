"""An older name of ``flowdsl.tensorflow.inputs`` and ``flowdsl.tensorflow.queues``."""

from __future__ import annotations

from flowdsl.tensorflow.inputs import *  # noqa: F403
from flowdsl.tensorflow.inputs import __all__ as __all__
