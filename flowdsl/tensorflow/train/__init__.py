"""Training with TensorFlow, from a Flow to a model.

config.py        TrainConfig: what to train, on what, for how long
model.py         the protocols of a model and an optimizer; ModelDesc
compiled.py      a compiled Keras model, which trains as fit does
trainer.py       the loop: epochs, steps, callbacks
feedfree.py      a step as one function of TensorFlow (step.py), of a model's loss (single_cost.py)
towers.py        the devices of a step; placement.py says where variables are
simple.py, multi_gpu.py, asynchronous.py, distributed.py    the trainers, by their devices
cluster.py       the processes that take part in a training
predictor.py     functions from inputs to outputs of the model
callbacks/       actions during training: progress, evaluation, checkpoints
monitors.py      where scalars go; events.py for TensorBoard; plots.py draws them
checkpoint.py    everything that training needs to continue, in one file
variables.py     which variables a model has; initial_values.py their first values
settings.py      what a program sets of a training; session.py threads and memory
nan_check.py      the error for a loss that is not finite
"""

from __future__ import annotations

from flowdsl.tensorflow.inputs import LeftOver
from flowdsl.tensorflow.train.asynchronous import AsyncMultiGPUTrainer
from flowdsl.tensorflow.train.callbacks import (
    Callback,
    Curves,
    DataReport,
    EarlyStopping,
    InferenceRunner,
    MaxSaver,
    MergeAllSummaries,
    MinSaver,
    ModelSaver,
    MovingAverageSummary,
    PeriodicTrigger,
    ProgressBar,
    RunUpdateOps,
    ScheduledHyperParamSetter,
    StopTraining,
)
from flowdsl.tensorflow.train.config import TrainConfig
from flowdsl.tensorflow.train.distributed import (
    AsyncDistributedTrainer,
    DistributedReplicatedTrainer,
)
from flowdsl.tensorflow.train.events import TFEventWriter, read_events
from flowdsl.tensorflow.train.feedfree import FeedfreeTrainerBase, SingleCostFeedfreeTrainer
from flowdsl.tensorflow.train.model import Model, ModelDesc, Optimizer
from flowdsl.tensorflow.train.monitors import (
    History,
    JSONWriter,
    Monitor,
    ScalarPrinter,
    read_stats,
)
from flowdsl.tensorflow.train.multi_gpu import (
    MultiGPUTrainerBase,
    SyncMultiGPUTrainer,
    SyncMultiGPUTrainerParameterServer,
    SyncMultiGPUTrainerReplicated,
)
from flowdsl.tensorflow.train.nan_check import NonFiniteLoss
from flowdsl.tensorflow.train.placement import LeastLoadedDeviceSetter
from flowdsl.tensorflow.train.plots import draw_curves
from flowdsl.tensorflow.train.predictor import OnlinePredictor
from flowdsl.tensorflow.train.simple import QueueInputTrainer, SimpleFeedfreeTrainer, SimpleTrainer
from flowdsl.tensorflow.train.single_cost import UntrainedVariable
from flowdsl.tensorflow.train.trainer import Trainer

__all__ = [
    "AsyncDistributedTrainer",
    "AsyncMultiGPUTrainer",
    "Callback",
    "Curves",
    "DataReport",
    "DistributedReplicatedTrainer",
    "EarlyStopping",
    "FeedfreeTrainerBase",
    "History",
    "InferenceRunner",
    "JSONWriter",
    "LeastLoadedDeviceSetter",
    "LeftOver",
    "MaxSaver",
    "MergeAllSummaries",
    "MinSaver",
    "Model",
    "ModelDesc",
    "ModelSaver",
    "Monitor",
    "MovingAverageSummary",
    "MultiGPUTrainerBase",
    "NonFiniteLoss",
    "OnlinePredictor",
    "Optimizer",
    "PeriodicTrigger",
    "ProgressBar",
    "QueueInputTrainer",
    "RunUpdateOps",
    "ScalarPrinter",
    "ScheduledHyperParamSetter",
    "SimpleFeedfreeTrainer",
    "SimpleTrainer",
    "SingleCostFeedfreeTrainer",
    "StopTraining",
    "SyncMultiGPUTrainer",
    "SyncMultiGPUTrainerParameterServer",
    "SyncMultiGPUTrainerReplicated",
    "TFEventWriter",
    "TrainConfig",
    "Trainer",
    "UntrainedVariable",
    "draw_curves",
    "read_events",
    "read_stats",
]
