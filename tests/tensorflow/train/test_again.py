"""After an interruption, a trainer that trains again continues with the next elements."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.tensorflow.inputs import (
    BatchQueueInput,
    FeedInput,
    InputSource,
    LeftOver,
    QueueInput,
    StagingInput,
)
from flowdsl.tensorflow.train import (
    Callback,
    ModelDesc,
    ModelSaver,
    NonFiniteLoss,
    SimpleTrainer,
    TrainConfig,
    Trainer,
)
from tests.waiting import eventually

ROWS, STEPS, EPOCHS = 7, 5, 3


class Interrupted(BaseException):
    """Ends a training like Ctrl-C."""


class At(Callback):
    """Interrupts the training once, at a call of one of its methods."""

    def __init__(self, method: str, step: int) -> None:
        self.method, self.step = method, step

    def stop(self, *_: object) -> Any:
        raise Interrupted

    def interrupt(self, method: str) -> None:
        if method == self.method and self.trainer.global_step == self.step:
            self.method = ""
            raise Interrupted

    def before_run(self) -> None:
        self.interrupt("before_run")

    def trigger_step(self) -> None:
        self.interrupt("trigger_step")

    def after_epoch(self) -> None:
        self.interrupt("after_epoch")

    def trigger(self) -> None:
        self.interrupt("trigger")


class Seen(ModelDesc):
    """Records the numbers it is trained on, and fails once, at the number ``fails_at``."""

    def __init__(self, fails_at: float = -1.0) -> None:
        super().__init__()
        self.w = tf.Variable(1.0)
        self.numbers: list[float] = []
        self.fails_at = fails_at

    def loss(self, x: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.numpy_function(self.see, [x], tf.float32)]):
            return self.w * tf.reduce_mean(tf.cast(x, tf.float32))

    def see(self, x: NDArray[np.int64]) -> np.float32:
        number = float(np.ravel(x)[0])
        if number == self.fails_at:
            self.fails_at = -1.0
            raise RuntimeError("once")
        self.numbers.append(number)
        return np.float32(number)


def numbers() -> fl.Flow[int]:
    return fl.from_range(ROWS).shuffle(seed=3)


INPUTS: dict[str, Callable[[], InputSource]] = {
    "feed": lambda: FeedInput(numbers()),
    "queue": lambda: QueueInput(numbers()),
    "queue of rows": lambda: BatchQueueInput(numbers(), 1),
    "staged": lambda: StagingInput(QueueInput(numbers())),
}


def config(
    source: InputSource, *callbacks: Callback, model: ModelDesc | None = None
) -> TrainConfig:
    return TrainConfig(
        data=source,
        model=model or Seen(),
        optimizer=lambda: tf.keras.optimizers.SGD(0.0),
        callbacks=callbacks,
        extra_callbacks=(),
        steps_per_epoch=STEPS,
        max_epoch=EPOCHS,
    )


def seen(trainer: Trainer) -> list[float]:
    assert isinstance(trainer.model, Seen)
    return trainer.model.numbers


def expected() -> list[float]:
    flow = numbers()
    every = [float(n) for epoch in range(EPOCHS) for n in flow.epoch(epoch)]
    return every[: STEPS * EPOCHS]


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize(
    ("method", "step"),
    [("trigger_step", 1), ("before_run", 6), ("after_epoch", 5), ("trigger", 10)],
)
def test_after_an_interruption_by_a_callback(kind: str, method: str, step: int) -> None:
    trainer = SimpleTrainer(config(INPUTS[kind](), At(method, step)))
    with pytest.raises(Interrupted):
        trainer.train()
    trainer.train()
    assert seen(trainer) == expected()
    assert (trainer.global_step, trainer.epoch_num) == (STEPS * EPOCHS, EPOCHS)


def test_after_errors_within_calls_of_several_steps() -> None:
    model = Seen(fails_at=expected()[6])
    several = attrs.evolve(config(QueueInput(numbers()), model=model), steps_per_call=3)
    trainer = SimpleTrainer(several)
    with pytest.raises(tf.errors.UnknownError, match="once"):
        trainer.train()
    assert trainer.global_step == 6
    trainer.train()
    assert seen(trainer) == expected()


class Own(Trainer):
    """A trainer whose steps only record what they get."""

    def __init__(self, given: TrainConfig, fails_at: int = -1) -> None:
        super().__init__(given)
        self.got: list[float] = []
        self.fails_at = fails_at

    def run_step(self) -> None:
        (x,) = self.input.tensors(*self.next_args())
        if self.global_step == self.fails_at:
            self.fails_at = -1
            raise RuntimeError("once")
        self.got.append(float(x))


@pytest.mark.parametrize("kind", ["feed", "queue"])
@pytest.mark.parametrize("step", [1, 4, 8])
def test_a_step_of_ones_own_that_failed_runs_again(kind: str, step: int) -> None:
    trainer = Own(config(INPUTS[kind]()), fails_at=step)
    with pytest.raises(RuntimeError, match="once"):
        trainer.train()
    trainer.train()
    assert trainer.got == expected()


@pytest.mark.parametrize("kind", ["feed", "queue"])
def test_after_an_error_of_the_flow(kind: str) -> None:
    broken = [True]

    def repaired(n: int) -> int:
        if n == 4 and broken[0]:
            raise OSError("the disk is away")
        return n

    flow = fl.from_range(ROWS).map(repaired)
    trainer = SimpleTrainer(config({"feed": FeedInput, "queue": QueueInput}[kind](flow)))
    with pytest.raises(fl.FlowError, match="away"):
        trainer.train()
    broken[:] = [False]
    trainer.train()
    assert seen(trainer) == [float(n % ROWS) for n in range(STEPS * EPOCHS)]


def test_while_the_flow_computes_an_element() -> None:
    free, before = threading.Event(), {*threading.enumerate()}

    def slow(n: int) -> int:
        if n == 3:
            free.wait(60)
        return n

    trainer = SimpleTrainer(
        config(QueueInput(fl.from_range(ROWS).map(slow)), At("trigger_step", 2))
    )
    with pytest.raises(Interrupted):
        trainer.train()
    with pytest.raises(fl.FlowError, match="create a new trainer, which"):
        trainer.train()
    free.set()
    assert eventually(lambda: {*threading.enumerate()} <= before)


def test_the_rows_that_fill_no_batch_are_counted() -> None:
    model = Seen()
    trainer = SimpleTrainer(config(BatchQueueInput(fl.from_range(ROWS), 3), model=model))
    with pytest.warns(LeftOver, match=r"the last 1 row\(s\) of a pass .*remainder='smaller'"):
        trainer.train()
    assert trainer.left_over_rows == (STEPS * EPOCHS - 1) // 2
    assert trainer.left_over == 0


BATCHED: dict[str, Callable[[], InputSource]] = {
    "batches": lambda: BatchQueueInput(fl.from_range(ROWS), 2, remainder="smaller"),
    "staged batches": lambda: StagingInput(
        BatchQueueInput(fl.from_range(ROWS), 2, remainder="smaller")
    ),
}


@pytest.mark.parametrize("kind", BATCHED)
@pytest.mark.parametrize("step", [1, 3, 4, 5, 9])
def test_batches_of_rows_are_whole_after_a_resume(kind: str, step: int, tmp_path: Path) -> None:
    def trainer(*callbacks: Callback) -> SimpleTrainer:
        saver = ModelSaver(every_steps=1)
        chosen = config(BATCHED[kind](), saver, *callbacks)
        return SimpleTrainer(attrs.evolve(chosen, logdir=tmp_path))

    killed, again = trainer(At("before_run", step)), trainer()
    with pytest.raises(Interrupted):
        killed.train()
    again.train()
    starts = [0.0, 2.0, 4.0, 6.0]
    assert seen(killed) + seen(again) == [starts[k % 4] for k in range(STEPS * EPOCHS)]


def test_a_staged_element_of_an_interrupted_step_is_not_used_later() -> None:
    trainer = Own(config(StagingInput(QueueInput(numbers()))), fails_at=ROWS)
    with pytest.raises(RuntimeError, match="once"):
        trainer.train()
    trainer.train()
    assert trainer.got == expected()


def test_an_interruption_while_elements_are_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    source = QueueInput(numbers())
    staged = StagingInput(source)
    trainer = SimpleTrainer(config(staged))
    trainer.setup()
    monkeypatch.setattr(source, "tensors", At("", 0).stop)
    with pytest.raises(Interrupted):
        trainer.train()
    monkeypatch.undo()
    trainer.train()
    assert seen(trainer) == expected()


def test_a_restore_that_failed_is_tried_again(tmp_path: Path) -> None:
    class Other(Seen):
        def __init__(self) -> None:
            super().__init__()
            self.further = tf.Variable(1.0)

        def loss(self, x: tf.Tensor) -> tf.Tensor:
            return super().loss(x) * self.further

    def trainer(model: ModelDesc, epochs: int) -> SimpleTrainer:
        chosen = config(QueueInput(numbers()), ModelSaver(max_to_keep=1), model=model)
        return SimpleTrainer(attrs.evolve(chosen, logdir=tmp_path, max_epoch=epochs))

    trainer(Seen(), 1).train()
    other = trainer(Other(), 2)
    for _ in range(2):
        with pytest.raises(fl.StateMismatch, match="does not fit this model"):
            other.train()
    resumed = trainer(Seen(), 2)
    resumed.train()
    assert seen(resumed) == expected()[STEPS : 2 * STEPS]


def test_a_setup_that_was_interrupted_registers_callbacks_once() -> None:
    class Counts(Callback):
        def __init__(self) -> None:
            self.steps: list[int] = []

        def trigger_step(self) -> None:
            self.steps.append(self.trainer.global_step)

    class Registers(At):
        def setup(self, trainer: Trainer) -> None:
            super().setup(trainer)
            trainer.register_callback(counts)
            self.interrupt("setup")

    counts = Counts()
    trainer = SimpleTrainer(config(QueueInput(numbers()), Registers("setup", 0)))
    with pytest.raises(Interrupted):
        trainer.train()
    trainer.train()
    assert counts.steps == [*range(1, STEPS * EPOCHS + 1)]


@pytest.mark.parametrize("epoch", [1, EPOCHS])
def test_callbacks_at_the_end_of_an_epoch_are_all_called(epoch: int, tmp_path: Path) -> None:
    calls: list[tuple[str, int]] = []

    class Records(Callback):
        def after_epoch(self) -> None:
            calls.append(("after", self.trainer.epoch_num))

        def trigger(self) -> None:
            calls.append(("trigger", self.trainer.epoch_num))

    failing = At("trigger", epoch * STEPS)
    chosen = config(QueueInput(numbers()), Records(), failing, Records(), ModelSaver())
    trainer = SimpleTrainer(attrs.evolve(chosen, logdir=tmp_path))
    with pytest.raises(Interrupted):
        trainer.train()
    trainer.train()
    each = [[("after", e)] * 2 + [("trigger", e)] * 2 for e in range(1, EPOCHS + 1)]
    assert calls == [call for calls in each for call in calls]
    assert seen(trainer) == expected()
    saved = sorted(path.stem for path in (tmp_path / "checkpoints").glob("*.index"))
    assert saved == sorted(f"ckpt-{e * STEPS}" for e in range(1, EPOCHS + 1))


def test_a_loss_that_was_reported_is_not_reported_again(tmp_path: Path) -> None:
    class Once(Seen):
        def see(self, x: NDArray[np.int64]) -> np.float32:
            nan = self.fails_at >= 0
            self.fails_at = -1.0
            return np.float32("nan") if nan else super().see(x)

        def loss(self, x: tf.Tensor) -> tf.Tensor:
            seen = tf.ensure_shape(tf.numpy_function(self.see, [x], tf.float32), [])
            return self.w + 0 * seen

    chosen = config(QueueInput(numbers()), ModelSaver(every_steps=1), model=Once(1.0))
    trainer = SimpleTrainer(attrs.evolve(chosen, logdir=tmp_path))
    with pytest.raises(NonFiniteLoss, match="step 1, in epoch 1"):
        trainer.train()
    trainer.train()
    assert trainer.global_step == STEPS * EPOCHS
    assert trainer.non_finite_steps == 1
