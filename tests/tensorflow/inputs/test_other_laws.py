"""Every input source without a flow through every law; a new source needs one entry."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.inputs import (
    BatchQueueInput,
    DummyConstantInput,
    InputSource,
    PlaceholderInput,
    StagingInput,
    TensorInput,
    TFDatasetInput,
    ZMQInput,
    remap_input_source,
)
from flowdsl.testing.other_inputs import (
    OTHER_INPUT_LAWS,
    OtherInput,
    OtherInputLaw,
    check_other_input,
)


def counted() -> InputSource:
    count = tf.Variable(-1, dtype=tf.int64)

    class Counted(TensorInput):
        def reset(self, epoch: int = 0) -> None:
            super().reset(epoch)
            count.assign(-1)

    return Counted(lambda: [count.assign_add(1)])


def feed(source: InputSource) -> None:
    assert isinstance(source, PlaceholderInput)
    source.feed(np.float32(1.5), np.arange(3))


def rows() -> InputSource:
    return BatchQueueInput(fl.from_range(9), 2, capacity=6)


BATCHES = [[[0, 1]], [[2, 3]], [[4, 5]], [[6, 7]]]
NUMBERS = [[i] for i in range(9)]

OTHERS: dict[str, OtherInput] = {
    "zeros": OtherInput(lambda: DummyConstantInput([(2, 3), ()]), [[np.zeros((2, 3)), 0.0]] * 4),
    "operations": OtherInput(counted, NUMBERS),
    "by hand": OtherInput(
        lambda: PlaceholderInput([tf.TensorSpec((), tf.float32), tf.TensorSpec((None,), tf.int64)]),
        [[1.5, [0, 1, 2]]] * 4,
        feed,
    ),
    "batches of rows": OtherInput(rows, BATCHES),
    "dataset": OtherInput(lambda: TFDatasetInput(tf.data.Dataset.range(9)), NUMBERS),
    "staged dataset": OtherInput(
        lambda: StagingInput(TFDatasetInput(tf.data.Dataset.range(9))), NUMBERS
    ),
    "renamed operations": OtherInput(lambda: remap_input_source(counted(), ["n"]), NUMBERS),
}


@pytest.mark.parametrize("law", OTHER_INPUT_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", OTHERS)
def test_other_input(name: str, law: OtherInputLaw) -> None:
    law(OTHERS[name])


@pytest.mark.parametrize("law", OTHER_INPUT_LAWS, ids=lambda law: law.__name__)
def test_elements_of_other_programs_arrive(law: OtherInputLaw, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/socket"
    end = threading.Event()

    def numbers() -> Iterator[np.int64]:
        yield from iter(lambda: np.int64(end.is_set()), 1)

    def send() -> None:
        while not end.is_set():
            with suppress(fl.SourceError):  # nobody receives yet, or any more
                fl.from_iterable(numbers).send_zmq(address, format="zmq_ops", timeout=0.3)

    sender = threading.Thread(target=send)
    sender.start()
    spec = [tf.TensorSpec((), tf.int64)]
    law(OtherInput(lambda: ZMQInput(address, 5, spec=spec)))
    end.set()
    sender.join()


# -- each law is seen to fail ----------------------------------------------------------------------


class OtherSpecs(DummyConstantInput):
    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        return (tf.TensorSpec((5,), tf.int32),)


class TracedAnew(DummyConstantInput):
    @property
    def signature(self) -> tuple[tf.TypeSpec, ...]:
        return (tf.TensorSpec(None, tf.int64),)

    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        super().next_args(elements)
        return (tf.zeros((self.epoch,), tf.int64),)

    def tensors(self, *args: tf.Tensor) -> list[tf.Tensor]:
        return super().tensors()


class NeverAnew(TensorInput):
    def __init__(self) -> None:
        count = tf.Variable(-1, dtype=tf.int64)
        super().__init__(lambda: [count.assign_add(1)])


class OneForAll(TensorInput):
    """All towers of a step get the same element."""

    def __init__(self) -> None:
        self.count = tf.Variable(0, dtype=tf.int64)
        super().__init__(lambda: [tf.identity(self.count)])

    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        super().next_args(elements)
        self.count.assign_add(1)
        return ()

    def reset(self, epoch: int = 0) -> None:
        super().reset(epoch)
        self.count.assign(-1)


class BeginsByItself(DummyConstantInput):
    def _taken_so_far(self) -> int:
        return self._taken or 0


class AnyState(DummyConstantInput):
    def restore(self, state: Any) -> None:
        self.reset(state.get("epoch") or 0)


class ForgetsTheEpoch(DummyConstantInput):
    def restore(self, state: Any) -> None:
        super().restore({**state, "epoch": 0})


class Negative(DummyConstantInput):
    @property
    def fill(self) -> int:
        return -1


class LeavesAThread(DummyConstantInput):
    def reset(self, epoch: int = 0) -> None:
        super().reset(epoch)
        threading.Thread(target=threading.Event().wait, args=[30], daemon=True).start()


KEPT: list[InputSource] = []


class Kept(DummyConstantInput):
    def reset(self, epoch: int = 0) -> None:
        super().reset(epoch)
        KEPT.append(self)


def broken(kind: type[DummyConstantInput]) -> Callable[[], InputSource]:
    return lambda: kind([(2,)])


ZEROS = [[[0.0, 0.0]]] * 4

BROKEN: list[tuple[Callable[[], InputSource], list[Any], str]] = [
    (broken(OtherSpecs), ZEROS, "elements of a step match the specs"),
    (broken(DummyConstantInput), [[[1.0, 1.0]]] * 4, "elements of a step match the specs"),
    (broken(ForgetsTheEpoch), ZEROS, "contains the epoch"),
    (NeverAnew, NUMBERS, "begins with its first element"),
    (OneForAll, NUMBERS, "one element for each"),
    (broken(BeginsByItself), ZEROS, "Before reset"),
    (broken(AnyState), ZEROS, "an invalid state is refused"),
    (broken(Negative), ZEROS, "are at least 0"),
    (broken(Kept), ZEROS, "an abandoned source is collected"),
]


@pytest.mark.parametrize(("make", "elements", "law"), BROKEN, ids=[law for _, _, law in BROKEN])
def test_broken_implementation_is_detected(
    make: Callable[[], InputSource], elements: list[Any], law: str
) -> None:
    with pytest.raises(AssertionError) as noticed:
        check_other_input(make, elements)
    assert law in noticed.value.__notes__[0]


def test_leftover_thread_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowdsl.testing.endings.PATIENCE", 0.1)
    with pytest.raises(AssertionError, match="after close there are the threads"):
        check_other_input(broken(LeavesAThread), ZEROS)


def test_retracing_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    from flowdsl.testing import inputs

    post_init = inputs.Feeding.__attrs_post_init__

    def without_signature(self: Any) -> None:
        post_init(self)
        source = self.source

        @tf.function
        def step(*args: tf.Tensor) -> list[list[tf.Tensor]]:
            self.traced += 1
            return [source.tensors(*args) for _ in range(self.towers)]

        self._step = step

    monkeypatch.setattr(inputs.Feeding, "__attrs_post_init__", without_signature)
    with pytest.raises(AssertionError, match="the step was traced 3 times"):
        check_other_input(broken(TracedAnew), ZEROS)
