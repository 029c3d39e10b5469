"""Input sources that are fed by the caller, by TensorFlow, or by other programs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.tensorflow import queues
from flowdsl.tensorflow.inputs import (
    DummyConstantInput,
    EndOfPass,
    FeedInput,
    InputSource,
    PlaceholderInput,
    QueueInput,
    TensorInput,
    TFDatasetInput,
    ZMQInput,
    dataflow_to_dataset,
    remap_input_source,
)
from flowdsl.testing.elements import same
from tests.sampling import examples


def stepping(source: InputSource) -> Callable[..., list[Any]]:
    step = tf.function(input_signature=source.signature)(source.tensors)
    return lambda: [tensor.numpy() for tensor in step(*source.next_args())]


def drained(source: InputSource) -> list[Any]:
    step, got = stepping(source), list[Any]()
    try:
        while True:
            got.append(step())
    except EndOfPass:
        return got


# -- by hand ---------------------------------------------------------------------------------------

IMAGE = tf.TensorSpec((None, 2), tf.float32, "image")
LABEL = tf.TensorSpec((), tf.int64)


def test_fed_element_is_used_once() -> None:
    source = PlaceholderInput([IMAGE, LABEL])
    assert [spec.name for spec in source.specs] == ["image", "1"]
    step = stepping(source)
    source.feed(np.ones((3, 2), np.float32), np.int64(7))
    assert source.fill == 1
    image, label = step()
    assert (image.tolist(), int(label)) == ([[1, 1]] * 3, 7)
    with pytest.raises(fl.FlowError, match=r"nothing was fed: call feed"):
        step()


@pytest.mark.parametrize(
    ("fed", "message"),
    [
        ((np.ones((3, 2)), np.int64(7)), r"'image' is float64\[3, 2\], but its spec is"),
        ((np.ones((3, 3), np.float32), np.int64(7)), r"'image' is float32\[3, 3\]"),
        ((np.ones((3, 2), np.float32),), r"1 component\(s\) were fed, its specs are image, 1"),
    ],
)
def test_element_that_contradicts_specs_is_not_fed(fed: tuple[Any, ...], message: str) -> None:
    with pytest.raises(fl.SpecMismatch, match=message):
        PlaceholderInput([IMAGE, LABEL]).feed(*fed)


def test_source_of_one_element_per_step_refuses_more() -> None:
    for source in (PlaceholderInput([IMAGE]), FeedInput(fl.from_range(3))):
        source.reset()
        assert source.most_a_step == 1
        with pytest.raises(fl.InvalidFlow, match="takes one element"):
            source.next_args(2)


def test_feed_input_infinite_controls_the_end_of_training() -> None:
    flow = fl.from_range(3)
    assert (FeedInput(flow).infinite, FeedInput(flow, False).infinite) == (True, False)
    assert QueueInput(flow).infinite
    with pytest.raises(fl.InvalidFlow, match="FeedInput: infinite must be True or False, got 1"):
        FeedInput(flow, 1)  # type: ignore[arg-type]  # what is tested


# -- by TensorFlow ---------------------------------------------------------------------------------


def test_get_tensor_fn_runs_for_each_tower_and_step() -> None:
    calls: list[int] = []

    def make() -> list[tf.Tensor]:
        calls.append(1)
        return [tf.random.normal((2,)), tf.constant(7)]

    with TensorInput(make, size=5) as source:
        assert [(s.dtype, s.shape.as_list()) for s in source.specs] == [
            (tf.float32, [2]),
            (tf.int32, []),
        ]

        @tf.function(input_signature=source.signature)
        def step() -> list[list[tf.Tensor]]:
            return [source.tensors() for _ in range(2)]

        seen: list[bytes] = []
        before = len(calls)
        source.reset()
        for _ in range(2):
            seen += [one[0].numpy().tobytes() for one in step(*source.next_args(2))]
        with pytest.raises(EndOfPass) as end:
            source.next_args(2)
        assert end.value.left == 1
        assert len({*seen}) == len(seen) == 4
        assert len(calls) - before == 2
        state = source.state_dict()
        source.restore(state)
        assert source.state_dict() == state


def test_input_without_a_size_is_endless() -> None:
    source = TensorInput(lambda: [tf.constant(1)])
    source.reset()
    for _ in range(100):
        source.next_args()
    with pytest.raises(fl.EndlessFlow, match="TensorInput: it has no size"):
        source.size()


@pytest.mark.parametrize("made", [3, {"x": 1}])
def test_function_without_a_list_result_is_refused(made: Any) -> None:
    with pytest.raises(fl.InvalidFlow, match="get_tensor_fn must return a list of tensors, got"):
        _ = TensorInput(lambda: made).specs


def test_constants_are_made_once() -> None:
    source = DummyConstantInput([(2, 3), ()], [tf.float32, tf.int64])

    @tf.function(input_signature=source.signature)
    def step() -> list[tf.Tensor]:
        return [*source.tensors(), *source.tensors()]

    source.reset()
    assert [tensor.numpy().sum() for tensor in step(*source.next_args())] == [0] * 4
    made = [node.op for node in step.get_concrete_function().graph.as_graph_def().node]  # type: ignore[attr-defined]  # of a graph
    assert "Fill" not in made
    for shapes in ([(None, 3)], [], [(2, -1)]):
        with pytest.raises(fl.InvalidFlow, match="DummyConstantInput"):
            DummyConstantInput(shapes)  # type: ignore[arg-type]  # what is tested


# -- tf.data ---------------------------------------------------------------------------------------


class Pair(NamedTuple):
    image: Any
    label: Any


FORMS: dict[str, Callable[[int], Any]] = {
    "one": lambda i: np.int64(i),
    "tuple": lambda i: (np.full(2, i, np.float32), f"text {i}"),
    "named": lambda i: Pair(np.full(2, i, np.uint8), i),
    "dict": lambda i: {"b": i / 2, "a": (np.int32(i), {"z": i % 2 == 0, "y": b"x"})},
}


def plain(x: Any) -> Any:
    """An element of a dataset as Python values."""
    if isinstance(x, dict):
        return {name: plain(part) for name, part in x.items()}
    if isinstance(x, tuple):
        return [plain(part) for part in x]
    value = np.asarray(x).tolist() if not isinstance(x, tf.Tensor) else x.numpy()
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("form", FORMS)
def test_flow_converts_to_dataset_and_back_to_input(form: str) -> None:
    flow = fl.from_range(7).map(FORMS[form])
    dataset = dataflow_to_dataset(flow)
    assert int(dataset.cardinality()) == 7
    expected = [plain(x) for x in flow]
    assert [plain(x) for x in dataset] == expected
    first = next(iter(dataset))
    assert type(first) is type(next(iter(flow))) or form == "one"
    with TFDatasetInput(dataset) as source, QueueInput(flow) as other:
        assert [s.name for s in source.specs] == [s.name for s in other.specs]
        assert source.by_position == other.by_position
        assert source.size() == 7
        source.reset()
        other.reset()
        assert same(drained(source), drained(other))


def test_keys_of_datasets_have_to_compare() -> None:
    (row,) = dataflow_to_dataset(fl.from_items([{1: 5.0, 0: {2: 6.0}}]))
    assert plain(row) == {1: 5.0, 0: {2: 6.0}}
    for element in ({0: 1.0, "a": 2.0}, {"x": {"a": 2.0, 0: 1.0}}):
        with pytest.raises(fl.SpecMismatch, match=r"dataflow_to_dataset: .* text .* '0' for 0$"):
            dataflow_to_dataset(fl.from_items([element]))


def test_each_iteration_is_the_next_epoch() -> None:
    flow = fl.from_range(9).shuffle(seed=4)
    dataset = dataflow_to_dataset(flow)
    for k in range(3):
        assert [int(x) for x in dataset] == list(flow.epoch(k))
    again = dataflow_to_dataset(flow).repeat(2)
    assert [int(x) for x in again] == [*flow.epoch(0), *flow.epoch(1)]


@settings(max_examples=examples(80))
@given(st.integers(0, 9), st.integers(1, 4))
def test_lengths_of_datasets(n: int, size: int) -> None:
    batches = tf.data.Dataset.range(n).batch(size)
    with TFDatasetInput(batches) as source:
        assert source.size() == -(-n // size)
        for _ in range(2):
            source.reset()
            assert [x.tolist() for (x,) in drained(source)] == [
                list(range(k, min(k + size, n))) for k in range(0, n, size)
            ]


def test_dataset_size_needs_a_known_length() -> None:
    with pytest.raises(fl.EndlessFlow, match="never ends"):
        TFDatasetInput(tf.data.Dataset.range(3).repeat()).size()
    unknown = tf.data.Dataset.from_generator(
        lambda: iter([1, 2]), output_signature=tf.TensorSpec((), tf.int64)
    )
    with pytest.raises(fl.UnknownLength, match="assert_cardinality"):
        TFDatasetInput(unknown).size()
    assert int(dataflow_to_dataset(fl.from_range(3).repeat()).cardinality()) == (
        tf.data.INFINITE_CARDINALITY
    )
    stream = fl.from_iterable(lambda: iter([1, 2]))
    assert [int(x) for x in dataflow_to_dataset(stream)] == [1, 2]


def test_states_over_queues_and_streams_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    row = queues.batch([queues.range_input_producer(9)], 3)
    with queues.running(row), TensorInput(lambda: [queues.evaluate(row)]) as source:
        assert len(source.specs) == 1
        source.reset()
        source.state_dict()
        assert caplog.text.count("restart the pass: TensorInput: a queue does not") == 1
        source.state_dict()
        assert caplog.text.count("restart the pass") == 1
    caplog.clear()
    with FeedInput(fl.from_iterable(lambda: iter([1, 2]))) as stream:
        stream.reset()
        stream.state_dict()
    with TensorInput(lambda: [tf.constant(1)]) as constant:
        constant.reset()
        constant.state_dict()
    assert "TensorInput" not in caplog.text


def test_dataset_restarts_its_pass_on_restore(caplog: pytest.LogCaptureFixture) -> None:
    with TFDatasetInput(tf.data.Dataset.range(5)) as source:
        source.reset()
        source.next_args()
        state = source.state_dict()
        assert "would restart the pass: TFDatasetInput" in caplog.text
        source.restore(state)
        assert int(source.tensors(*source.next_args())[0]) == 0


def test_dataset_error_is_raised_at_its_position() -> None:
    def numbers() -> Iterator[int]:
        yield from range(3)
        raise ValueError("the disk is on fire")

    dataset = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec((), tf.int64))
    with TFDatasetInput(dataset) as source:
        source.reset()
        got = [int(source.tensors(*source.next_args())[0]) for _ in range(3)]
        assert got == [0, 1, 2]
        with pytest.raises(fl.ElementError, match=r"\(dataset\) failed on element 3") as raised:
            source.next_args()
        assert "the disk is on fire" in str(raised.value.__cause__)


def test_non_plain_tensor_is_refused() -> None:
    ragged = tf.ragged.constant([[1], [2, 3]])
    with pytest.raises(fl.SpecMismatch, match=r"'element' is RaggedTensorSpec.*to_tensor"):
        TFDatasetInput(tf.data.Dataset.from_tensor_slices(ragged))
    with pytest.raises(fl.InvalidFlow, match=r"must be a tf\.data\.Dataset or a Flow, got list"):
        TFDatasetInput([1, 2])  # type: ignore[arg-type]  # what is tested


# -- other names -----------------------------------------------------------------------------------


def test_names_reorder_components_and_others_are_fed() -> None:
    flow = fl.from_items([(np.float32(i), i) for i in range(3)])
    wanted = [
        tf.TensorSpec((2,), tf.float32, "score"),
        tf.TensorSpec((), tf.int64, "label"),
        tf.TensorSpec((), tf.float32, "image"),
    ]
    with remap_input_source(QueueInput(flow), ["image", "label"], wanted) as source:
        assert [spec.name for spec in source.specs] == ["score", "label", "image"]
        assert not source.by_position
        step = stepping(source)
        source.reset()
        for i in range(3):
            source.feed(score=np.full(2, 10 * i, np.float32))
            assert [x.tolist() for x in step()] == [[10 * i] * 2, i, i]
        with pytest.raises(fl.FlowError, match="pass score to feed"):
            step()


@pytest.mark.parametrize("names", [["a"], ["a", "a"], ["a", "b", "c"]])
def test_each_component_has_a_name_of_its_own(names: Any) -> None:
    with pytest.raises(fl.InvalidFlow, match=r"each of the 2 component\(s\) \(0, 1\), each once"):
        remap_input_source(QueueInput(fl.from_items([(1, 2)])), names)


def test_mismatched_signature_is_refused() -> None:
    source = QueueInput(fl.from_items([(1, 2)]))
    with pytest.raises(fl.SpecMismatch, match="signature has a, but no 'b'"):
        remap_input_source(source, ["a", "b"], [tf.TensorSpec((), tf.int64, "a")])
    wrong = [tf.TensorSpec((), tf.int64, "a"), tf.TensorSpec((), tf.int32, "b")]
    with pytest.raises(fl.SpecMismatch, match=r"'b' is .*int32.* in signature, but .*int64"):
        remap_input_source(source, ["a", "b"], wrong)


# -- other programs --------------------------------------------------------------------------------


def test_zmq_ops_elements_arrive(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/ops"
    are_read = threading.Event()

    def pair(i: int) -> tuple[NDArray[np.uint8], np.int64]:
        # The format loses what a connection holds when its sender goes, so it stays until then.
        assert i < 60 or are_read.wait(60)
        return np.full((2, 2), i, np.uint8), np.int64(i)

    flow = fl.from_range(90).map(pair)
    sender = threading.Thread(target=flow.send_zmq, args=[address], kwargs={"format": "zmq_ops"})
    spec = [tf.TensorSpec((2, 2), tf.uint8, "image"), tf.TensorSpec((), tf.int64, "label")]
    with ZMQInput(address, 10, spec=spec) as source:
        source.reset()
        sender.start()
        step = stepping(source)
        got = [step() for _ in range(20)]
        are_read.set()
        sender.join()
        assert [int(label) for _, label in got] == list(range(20))
        assert all((image == int(label)).all() for image, label in got)
        with pytest.raises(fl.EndlessFlow):
            source.size()


def test_pass_without_senders_can_be_restarted(tmp_path: Path) -> None:
    spec = [tf.TensorSpec((), tf.int64)]
    before = {*threading.enumerate()}
    for _ in range(2):
        with ZMQInput(f"ipc://{tmp_path}/silent", spec=spec) as source:
            source.reset()
            source.reset()  # it binds the same address
        assert {*threading.enumerate()} <= before
