"""An older name of ``flowdsl.tensorflow.train``."""

from __future__ import annotations

from flowdsl.tensorflow.train import *  # noqa: F403
from flowdsl.tensorflow.train import __all__ as __all__
