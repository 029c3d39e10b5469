"""Named components reach the step under their names, in any order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import pytest
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.inputs import (
    BatchQueueInput,
    EndOfPass,
    FeedInput,
    InputSource,
    QueueInput,
    StagingInput,
    TFDatasetInput,
    dataflow_to_dataset,
    remap_input_source,
)


class Row(TypedDict):
    image: float
    label: float


class Pair(NamedTuple):
    image: float
    label: float


class Swapped(NamedTuple):
    label: float
    image: float


def swapped(i: int) -> Row:
    return {"label": -float(i), "image": float(i)}


def varying(i: int) -> dict[str, float]:
    image, label = ("image", float(i)), ("label", -float(i))
    return dict([image, label] if i % 2 else [label, image])


def of_two_classes(i: int) -> Any:
    return Swapped(-float(i), float(i)) if i % 2 else Pair(float(i), -float(i))


ROWS = [(float(i), -float(i)) for i in range(4)]
SCALAR = tf.TensorSpec((), tf.float64)
SOURCES: dict[str, Callable[[fl.Flow[Any]], InputSource]] = {
    "QueueInput": QueueInput,
    "FeedInput": lambda flow: FeedInput(flow, infinite=False),
    "TFDatasetInput": TFDatasetInput,
    "TFDatasetInput of a dataset": lambda flow: TFDatasetInput(dataflow_to_dataset(flow)),
    "BatchQueueInput": lambda flow: BatchQueueInput(flow, 1),
    "StagingInput": lambda flow: StagingInput(QueueInput(flow)),
}


def fed(source: InputSource) -> list[tuple[float, float]]:
    """The image and the label of each step."""
    names = [str(spec.name) for spec in source.specs]
    step = tf.function(input_signature=source.signature)(source.tensors)
    seen = []
    with source:
        source.reset()
        try:
            while True:
                made = dict(zip(names, step(*source.next_args()), strict=True))
                seen.append((made["image"].numpy().item(), made["label"].numpy().item()))
        except EndOfPass:
            return seen


@pytest.mark.parametrize("row", [swapped, varying])
@pytest.mark.parametrize("kind", SOURCES)
def test_a_component_is_found_by_its_name(kind: str, row: Callable[[int], Any]) -> None:
    assert fed(SOURCES[kind](fl.from_range(4).map(row))) == ROWS


@pytest.mark.parametrize("kind", ["QueueInput", "FeedInput"])
def test_named_tuples_with_other_names_are_refused(kind: str) -> None:
    with pytest.raises(fl.SpecMismatch, match=r"Swapped\(.*Pair\("):
        fed(SOURCES[kind](fl.from_range(4).map(of_two_classes)))


def test_elements_of_different_keys_are_refused_with_both() -> None:
    rows = [{"image": 1.0, "label": 1.0}, {"image": 2.0, "text": 2.0}]
    flow: fl.Flow[Any] = fl.from_items(rows)
    with pytest.raises(fl.SpecMismatch, match=r"element 1: it is \{.*text.*expected is \{.*label"):
        fed(QueueInput(flow))


def test_a_dataset_of_a_flow_keeps_names() -> None:
    dataset = dataflow_to_dataset(fl.from_range(4).map(lambda i: {"x": varying(i)}))
    rows = [element["x"] for element in dataset]
    assert [(float(row["image"]), float(row["label"])) for row in rows] == ROWS


def stream() -> fl.Flow[Any, Any]:
    return fl.from_iterable(iter([varying(i) for i in range(4)]))


def test_names_in_spec_set_the_order_for_a_stream() -> None:
    spec = [tf.TensorSpec((), tf.float64, name) for name in ("image", "label")]
    assert fed(QueueInput(stream(), spec=spec)) == ROWS
    assert fed(QueueInput(stream(), spec=spec[::-1])) == ROWS


@pytest.mark.parametrize("row", [swapped, varying])
def test_received_rows_go_by_name(row: Callable[[int], Any], tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/rows"
    sender = threading.Thread(target=fl.from_range(4).map(row).send_zmq, args=[address])
    sender.start()
    spec = [tf.TensorSpec((), tf.float64, "label"), tf.TensorSpec((), tf.float64, "image")]
    received: fl.Flow[Any, Any] = fl.from_zmq(address)
    assert fed(QueueInput(received, spec=spec)) == ROWS
    sender.join()


def test_stream_in_another_order_without_names_is_refused() -> None:
    source = remap_input_source(QueueInput(stream(), spec=[SCALAR] * 2), ["label", "image"])
    with pytest.raises(fl.SpecMismatch, match=r"element 1: its keys are image, label.*name them"):
        fed(source)


def test_names_in_spec_go_by_name() -> None:
    spec = [tf.TensorSpec((), tf.float64, name) for name in ("label", "image")]
    flow = fl.from_range(4).map(lambda i: {"image": float(i), "label": -float(i)})
    source = QueueInput(flow, spec=spec)
    assert [tensor.name for tensor in source.specs] == ["label", "image"]
    assert fed(source) == ROWS


def test_other_names_in_spec_are_refused_with_both() -> None:
    spec = [tf.TensorSpec((), tf.float64, name) for name in ("x", "y")]
    message = "components image, label, and the expected names are x, y"
    with pytest.raises(fl.SpecMismatch, match=message):
        QueueInput(fl.from_range(4).map(swapped), spec=spec)


@pytest.mark.parametrize("suffix", ["lmdb", "npz", "tfrecord", "arrayrecord"])
def test_rows_stored_in_another_order_keep_their_names(suffix: str, tmp_path: Path) -> None:
    path = str(tmp_path / f"rows.{suffix}")
    getattr(fl.from_range(4).map(swapped), f"write_{suffix}")(path)
    flow = getattr(fl, f"from_{suffix}")(path, Row)
    assert fed(QueueInput(flow)) == ROWS
    halved = flow.map_component(lambda x: x / 2, "image")
    assert fed(QueueInput(halved)) == [(image / 2, label) for image, label in ROWS]
