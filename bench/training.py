"""Steps of training a second: a trainer of ours, a loop by hand, and Keras's fit.

python -m bench.training
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

import flowdsl as fl
from bench.rates import Pass, Work, run

BATCH, FEATURES, STEPS, CALL = 32, 64, 200, 20
"""``CALL`` steps are in one call of TensorFlow where steps are small."""
LARGE, SMALL = (2048, 2048), (16,)
"""The widths of the hidden layers: a step takes about 5 ms of a core, and about 0.2 ms."""


@cache
def _tf() -> Any:
    tf: Any = import_module("tensorflow")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    return tf


@cache
def _rows() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH * STEPS, FEATURES)).astype(np.float32)
    return x, x[:, :1]


def _net(widths: tuple[int, ...]) -> Any:
    layers = _tf().keras.layers
    hidden = [layers.Dense(width, activation="relu") for width in widths]
    return _tf().keras.Sequential([layers.Input((FEATURES,)), *hidden, layers.Dense(1)])


def _optimizer() -> Any:
    return _tf().keras.optimizers.SGD(1e-3)


def _flow() -> fl.Flow[Any, Any]:
    x, y = _rows()
    return fl.from_items(list(zip(x, y, strict=True))).batch(BATCH).cache()


def _in_turn(train: Callable[[Callable[[], None]], None]) -> Pass:
    """A pass a time of a training that runs in a thread, and asks after each whether to go on."""
    go, done = threading.Semaphore(0), threading.Semaphore(0)

    def next_pass() -> None:
        done.release()
        go.acquire()

    def begin() -> Iterator[None]:
        go.release()
        done.acquire()
        yield

    def run_all() -> None:
        go.acquire()
        train(next_pass)

    threading.Thread(target=run_all, daemon=True).start()
    return begin


def _ours(widths: tuple[int, ...], call: int) -> Pass:
    tf = _tf()
    from flowdsl.tensorflow import train as training

    class Model(training.ModelDesc):
        def __init__(self) -> None:
            super().__init__()
            self.net = _net(widths)

        def loss(self, x: Any, y: Any) -> Any:
            return tf.reduce_mean((self.net(x) - y) ** 2)

    class Ask(training.Callback):
        def __init__(self, next_pass: Callable[[], None]) -> None:
            self.next_pass = next_pass

        def trigger_epoch(self) -> None:
            self.next_pass()

    def train(next_pass: Callable[[], None]) -> None:
        config = training.TrainConfig(
            dataflow=_flow(),
            model=Model,
            optimizer=_optimizer,
            callbacks=[Ask(next_pass)],
            extra_callbacks=[
                training.MovingAverageSummary(),
                training.ProgressBar(Console(file=io.StringIO())),
            ],
            monitors=(),
            steps_per_call=call,
        )
        training.QueueInputTrainer(config).train()

    return _in_turn(train)


def _by_hand(widths: tuple[int, ...], call: int) -> Pass:
    """A loop over tf.distribute and tf.data, as one writes it."""
    tf = _tf()
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        net, optimizer = _net(widths), _optimizer()
        optimizer.build(net.trainable_variables)
    data = tf.data.Dataset.from_tensor_slices(_rows()).batch(BATCH).repeat().prefetch(8)
    elements = iter(strategy.experimental_distribute_dataset(data))

    def replica(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((net(x) - y) ** 2)
        variables = net.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow comes by its name here
    def steps(elements: Any) -> Any:
        if call == 1:
            return strategy.reduce("MEAN", strategy.run(replica, next(elements)), axis=None)
        loss = tf.constant(0.0)
        for _ in tf.range(call):
            loss = strategy.reduce("MEAN", strategy.run(replica, next(elements)), axis=None)
        return loss

    def begin() -> Iterator[None]:
        for _ in range(STEPS // call):
            float(steps(elements))  # as a loop that shows its loss
        yield

    return begin


def _fit(widths: tuple[int, ...], call: int) -> Pass:
    tf = _tf()

    class Ask(tf.keras.callbacks.Callback):  # type: ignore[misc,name-defined]  # as above
        def __init__(self, next_pass: Callable[[], None]) -> None:
            super().__init__()
            self.next_pass = next_pass

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.next_pass()

    def train(next_pass: Callable[[], None]) -> None:
        net = _net(widths)
        net.compile(optimizer=_optimizer(), loss="mse", steps_per_execution=call)
        data = tf.data.Dataset.from_tensor_slices(_rows()).batch(BATCH).prefetch(8)
        net.fit(data, epochs=10**6, verbose=0, callbacks=[Ask(next_pass)])

    return _in_turn(train)


def _work(widths: tuple[int, ...], call: int, goal: float, of: str) -> Work:
    makers = {"flowdsl": _ours, "tf.distribute by hand": _by_hand, "Keras fit": _fit}
    contestants: dict[str, Callable[[], Pass]] = {
        who: partial(make, widths, call) for who, make in makers.items()
    }
    return Work(STEPS, contestants, goal=goal, of=of)


WORKS: dict[str, Work] = {
    "a step of about 5 ms": _work(LARGE, 1, 0.97, "tf.distribute by hand"),
    "a small step": _work(SMALL, 1, 1.0, "Keras fit"),
    f"small steps, {CALL} a call": _work(SMALL, CALL, 1.0, "Keras fit"),
}


def main() -> None:
    run("bench.training", __doc__, "steps", WORKS, {}, Path("out/training.json"))


if __name__ == "__main__":
    main()
