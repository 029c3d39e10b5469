"""Actions at the stations of training."""

from __future__ import annotations

from flowdsl.train.callbacks.base import Callback, StopTraining
from flowdsl.train.callbacks.best import MaxSaver, MinSaver
from flowdsl.train.callbacks.curves import Curves
from flowdsl.train.callbacks.data import DataReport
from flowdsl.train.callbacks.hyperparameters import ScheduledHyperParamSetter
from flowdsl.train.callbacks.inference import InferenceRunner
from flowdsl.train.callbacks.periodic import PeriodicTrigger
from flowdsl.train.callbacks.progress import ProgressBar
from flowdsl.train.callbacks.saver import ModelSaver
from flowdsl.train.callbacks.stopping import EarlyStopping
from flowdsl.train.callbacks.summaries import MergeAllSummaries, MovingAverageSummary
from flowdsl.train.callbacks.updates import RunUpdateOps

__all__ = [
    "Callback",
    "Curves",
    "DataReport",
    "EarlyStopping",
    "InferenceRunner",
    "MaxSaver",
    "MergeAllSummaries",
    "MinSaver",
    "ModelSaver",
    "MovingAverageSummary",
    "PeriodicTrigger",
    "ProgressBar",
    "RunUpdateOps",
    "ScheduledHyperParamSetter",
    "StopTraining",
]
