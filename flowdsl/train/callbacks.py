"""An older name of ``flowdsl.tensorflow.train.callbacks``."""

from __future__ import annotations

from flowdsl.tensorflow.train.callbacks import *  # noqa: F403
from flowdsl.tensorflow.train.callbacks import __all__ as __all__
