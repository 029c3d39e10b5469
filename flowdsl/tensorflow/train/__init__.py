"""Training with TensorFlow, from a Flow to a model.

config.py        TrainConfig: the model, the data and the length of a training
model.py         the protocols of a model and an optimizer; ModelDesc
compiled.py      a compiled Keras model, trained as by fit
trainer.py       the training loop: epochs, steps, callbacks
feedfree.py      a step as one TensorFlow function (step.py), of a model's loss (single_cost.py)
towers.py        the devices of a step; placement.py places variables
simple.py, multi_gpu.py, asynchronous.py, distributed.py    the trainers, by their devices
cluster.py       the processes that take part in a training
predictor.py     functions from inputs to outputs of the model
callbacks/       actions during training: progress, evaluation, checkpoints
monitors.py      the destinations of scalars; events.py for TensorBoard; plots.py draws them
checkpoint.py    everything that training needs to continue, in one file
variables.py     the variables of a model; initial_values.py sets their first values
settings.py      the optimizer's settings in a checkpoint; session.py threads and memory
nan_check.py     the error for a loss that is not finite
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
