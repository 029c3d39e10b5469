"""Actions at the stations of training."""

from __future__ import annotations

from flowdsl.train.callbacks.base import Callback, StopTraining
from flowdsl.train.callbacks.inference import InferenceRunner
from flowdsl.train.callbacks.progress import ProgressBar
from flowdsl.train.callbacks.saver import ModelSaver
from flowdsl.train.callbacks.summaries import MergeAllSummaries, MovingAverageSummary
from flowdsl.train.callbacks.updates import RunUpdateOps

__all__ = [
    "Callback",
    "InferenceRunner",
    "MergeAllSummaries",
    "ModelSaver",
    "MovingAverageSummary",
    "ProgressBar",
    "RunUpdateOps",
    "StopTraining",
]
