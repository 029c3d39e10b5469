"""Mistakes with input sources and with TensorFlow's names, as in ``bad``."""

from __future__ import annotations

import tensorflow as tf

from flowdsl.tensorflow import queues
from flowdsl.tensorflow.inputs import (
    BatchQueueInput,
    DummyConstantInput,
    FeedInput,
    QueueInput,
    StagingInput,
    TensorInput,
    TFDatasetInput,
    ZMQInput,
    dataflow_to_dataset,
)
from flowdsl.tensorflow.train import SimpleTrainer, TrainConfig
from tests.tensorflow.train.regression import Linear, sgd
from tests.typing.good import numbers

source = QueueInput(numbers)

# -- names of TensorFlow ---------------------------------------------------------------------------
tf.distribute.MirorredStrategy()  # E: attr-defined
tf.errors.OutOfRange()  # E: attr-defined
tf.queue.FifoQueue(3, [tf.int64])  # E: attr-defined
tf.raw_ops.QueueDequeue(handle=1)  # E: attr-defined
tf.functoin(print)  # E: attr-defined
tf.reduce_men([1.0])  # E: attr-defined
tf.TensorSpec((), tf.int46)  # E: attr-defined
tf.data.Dataset.from_generators(print)  # E: attr-defined
tf.queue.FIFOQueue(3)  # E: call-arg
tf.constant(3).nmupy()  # E: attr-defined

# -- input sources ---------------------------------------------------------------------------------
QueueInput([1, 2])  # E: arg-type
QueueInput(numbers, 50)  # E: arg-type
QueueInput(numbers, capacity="50")  # E: arg-type
QueueInput(numbers, spec=[tf.int64])  # E: list-item
BatchQueueInput(numbers)  # E: call-arg
BatchQueueInput(numbers, 4, remainder="keep")  # E: arg-type
FeedInput(numbers, infinte=False)  # E: call-arg
DummyConstantInput(3)  # E: arg-type
TensorInput([tf.constant(3)])  # E: arg-type
TFDatasetInput([1])  # E: arg-type
StagingInput(numbers)  # E: arg-type
ZMQInput("ipc://a")  # E: call-arg
dataflow_to_dataset([1])  # E: arg-type
source.next_arg()  # E: attr-defined
source.reset("0")  # E: arg-type

# -- queues ----------------------------------------------------------------------------------------
queues.batch([1], batch_size="2")  # E: arg-type
queues.batch([1], 2, alow_smaller_final_batch=True)  # E: call-arg

# -- trainers --------------------------------------------------------------------------------------
TrainConfig(dataflow=numbers, model=numbers, optimizer=sgd)  # E: arg-type
TrainConfig(dataflow=numbers, model=Linear, optimizer=sgd, remainder="keep")  # E: arg-type
TrainConfig(dataflow=numbers, model=Linear, optimizer=sgd, steps_per_call="2")  # E: arg-type
TrainConfig(data=numbers, model=Linear, optimizer=sgd)  # E: arg-type
SimpleTrainer(numbers)  # E: arg-type
