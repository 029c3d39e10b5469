"""Every input source through every law; a new source needs one entry."""

from __future__ import annotations

import pytest
import tensorflow as tf

from flowdsl.tensorflow.inputs import (
    FeedInput,
    InputSource,
    QueueInput,
    StagingInput,
    TFDatasetInput,
    remap_input_source,
)
from flowdsl.testing.inputs import INPUT_LAWS, InputLaw, MakeInput
from flowdsl.testing.recipes import AnyFlow


def with_a_queue_of_its_own(flow: AnyFlow) -> InputSource:
    queue = tf.queue.FIFOQueue(5, [tf.int64, tf.float32], [(), (3,)])
    return QueueInput(flow, queue, capacity=4)


INPUTS: dict[str, MakeInput] = {
    "queue": QueueInput,
    "small queue": lambda flow: QueueInput(flow, capacity=3),
    "queue of the user": with_a_queue_of_its_own,
    "feed": FeedInput,
    "dataset input": TFDatasetInput,
    "staged": lambda flow: StagingInput(QueueInput(flow)),
    "staged far ahead": lambda flow: StagingInput(QueueInput(flow), nr_stage=3),
    "remapped": lambda flow: remap_input_source(QueueInput(flow), ["number", "data"]),
}


LATER = ["queue", "staged far ahead"]
"""Inputs that differ from another one only in a size; ``make long`` checks them too."""


@pytest.mark.parametrize("law", INPUT_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in LATER)) for name in INPUTS]
)
def test_input_passes_the_laws(name: str, law: InputLaw) -> None:
    law(INPUTS[name])
