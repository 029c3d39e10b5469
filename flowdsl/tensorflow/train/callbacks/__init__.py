"""Callbacks: actions at certain moments of training."""

from __future__ import annotations

from flowdsl.tensorflow.train.callbacks.base import Callback, StopTraining
from flowdsl.tensorflow.train.callbacks.best import MaxSaver, MinSaver
from flowdsl.tensorflow.train.callbacks.curves import Curves
from flowdsl.tensorflow.train.callbacks.data import DataReport
from flowdsl.tensorflow.train.callbacks.hyperparameters import ScheduledHyperParamSetter
from flowdsl.tensorflow.train.callbacks.inference import InferenceRunner
from flowdsl.tensorflow.train.callbacks.periodic import PeriodicTrigger
from flowdsl.tensorflow.train.callbacks.progress import ProgressBar
from flowdsl.tensorflow.train.callbacks.saver import ModelSaver
from flowdsl.tensorflow.train.callbacks.stopping import EarlyStopping
from flowdsl.tensorflow.train.callbacks.summaries import MergeAllSummaries, MovingAverageSummary
from flowdsl.tensorflow.train.callbacks.updates import RunUpdateOps

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
