"""Actions at the stations of training."""

from __future__ import annotations

from flowdsl.train.callbacks.base import Callback, StopTraining
from flowdsl.train.callbacks.evaluate import Evaluate
from flowdsl.train.callbacks.progress import ProgressBar
from flowdsl.train.callbacks.saver import ModelSaver

__all__ = ["Callback", "Evaluate", "ModelSaver", "ProgressBar", "StopTraining"]
