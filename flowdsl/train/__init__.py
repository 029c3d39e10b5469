"""Training with TensorFlow, from a Flow to a model.

config.py      TrainConfig: what to train, on what, for how long
model.py       the protocols of a model and an optimizer; ModelDesc
trainer.py     the loop; simple.py and replicated.py choose its devices
callbacks/     actions during training: progress, evaluation, checkpoints
monitors.py    where scalars go; events.py for TensorBoard
picture.py     draws recorded scalars
checkpoint.py  everything that training needs to continue, in one file
"""

from __future__ import annotations

import flowdsl.graph  # noqa: F401  # first: it says what to do without TensorFlow
from flowdsl.graph import LeftOver
from flowdsl.train.callbacks import Callback, Evaluate, ModelSaver, ProgressBar, StopTraining
from flowdsl.train.config import TrainConfig
from flowdsl.train.events import TFEventWriter, read_events
from flowdsl.train.model import Model, ModelDesc, Optimizer
from flowdsl.train.monitors import History, JSONWriter, Monitor, ScalarPrinter, read_stats
from flowdsl.train.picture import draw_curves
from flowdsl.train.replicated import SyncMultiGPUTrainerReplicated
from flowdsl.train.simple import SimpleTrainer
from flowdsl.train.trainer import Trainer

__all__ = [
    "Callback",
    "Evaluate",
    "History",
    "JSONWriter",
    "LeftOver",
    "Model",
    "ModelDesc",
    "ModelSaver",
    "Monitor",
    "Optimizer",
    "ProgressBar",
    "ScalarPrinter",
    "SimpleTrainer",
    "StopTraining",
    "SyncMultiGPUTrainerReplicated",
    "TFEventWriter",
    "TrainConfig",
    "Trainer",
    "draw_curves",
    "read_events",
    "read_stats",
]
