"""How fast elements come into a step of TensorFlow: ``python -m bench.graph``.

Each figure is steps, or rows, a second, in a process of its own. In each round each contestant has
one turn; figures are medians, and the ratios are what counts. Every contestant has the same flow,
or the same rows.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from bench.rates import Pass, Work, run

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

Element = tuple[NDArray[np.float32], NDArray[np.int64]]
Step = Callable[..., Any]

SMALL, MEDIUM, LARGE = (32, 16), (32, 40_000), (64, 224, 224, 3)
"""The shapes of batches of 2 KB, 5 MB and 38 MB."""
STEPS, ROWS, BATCH, PROCS = 200, 200 * 32, 32, 2


@cache
def _tf() -> Any:
    tf: Any = import_module("tensorflow")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    return tf


@cache
def _images(shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.random.default_rng(0).random(shape, np.float32)


def _batches(shape: tuple[int, ...], procs: int) -> fl.Flow[Element, Any]:
    """Batches that a worker makes, each an array of its own, or that are there where none does."""
    labels = np.arange(shape[0])

    def make(i: int) -> Element:
        return _images(shape) + np.float32(i), labels

    def given(i: int) -> Element:
        return _images(shape), labels

    return fl.from_range(10**9).map(make if procs else given).prefetch(procs=procs)


def _specs(shape: tuple[int, ...]) -> list[Any]:
    tf = _tf()
    return [
        tf.TensorSpec(shape, tf.float32, "x"),
        tf.TensorSpec(shape[:1], tf.int64, "y"),
    ]


# -- a step that costs nothing ---------------------------------------------------------------------


def _touch(x: Any, y: Any) -> Any:
    """What a step does with an element, where only the input is timed."""
    return _tf().reshape(x, [-1])[0] + _tf().cast(y[0], _tf().float32)


def _stepping(source: Any, body: Step, steps: int) -> Pass:
    """Steps over an input source, whose pass never ends."""
    tf = _tf()
    step = tf.function(input_signature=source.signature)(lambda *args: body(*source.tensors(*args)))
    source.reset()

    def begin() -> Iterator[Any]:
        for _ in range(steps):
            yield step(*source.next_args()).numpy()

    return begin


def _over_dataset(dataset: Any, body: Step, steps: int) -> Pass:
    """Steps over the iterator of a dataset, as one writes them by hand."""
    tf = _tf()
    elements = iter(dataset)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow comes by its name here
    def step(elements: Any) -> Any:
        return body(*next(elements))

    def begin() -> Iterator[Any]:
        for _ in range(steps):
            yield step(elements).numpy()

    return begin


def _queue(shape: tuple[int, ...], procs: int, body: Step, steps: int) -> Pass:
    from flowdsl.tensorflow.inputs import QueueInput

    source = QueueInput(_batches(shape, procs), capacity=8, spec=_specs(shape))
    return _stepping(source, body, steps)


def _dataset_input(shape: tuple[int, ...], procs: int, body: Step, steps: int) -> Pass:
    from flowdsl.tensorflow.inputs import TFDatasetInput

    source = TFDatasetInput(_batches(shape, procs), capacity=8, spec=_specs(shape))
    return _stepping(source, body, steps)


def _from_generator(shape: tuple[int, ...], procs: int, body: Step, steps: int) -> Pass:
    flow = _batches(shape, procs)
    made = _tf().data.Dataset.from_generator(
        lambda: iter(flow), output_signature=tuple(_specs(shape))
    )
    return _over_dataset(made.prefetch(8), body, steps)


def _numpy_function(shape: tuple[int, ...], procs: int, body: Step, steps: int) -> Pass:
    tf = _tf()
    elements = iter(_batches(shape, procs))

    def take(_: Any) -> Any:
        x, y = tf.numpy_function(lambda: next(elements), [], [tf.float32, tf.int64])
        return tf.ensure_shape(x, shape), tf.ensure_shape(y, shape[:1])

    return _over_dataset(tf.data.Dataset.range(10**9).map(take).prefetch(8), body, steps)


# -- a step that takes a while ---------------------------------------------------------------------


def _busy(seconds: float) -> Step:
    """A step of one core, of about so long: products of a matrix."""
    tf = _tf()
    side = 256
    matrix = tf.constant(np.eye(side, dtype=np.float32))

    @tf.function  # type: ignore[untyped-decorator]  # as above
    def products(n: Any) -> Any:
        return tf.while_loop(lambda k, _: k < n, lambda k, x: (k + 1, x @ matrix), (0, matrix))[1]

    products(tf.constant(10))
    began = time.perf_counter()
    products(tf.constant(400)).numpy()
    each = (time.perf_counter() - began) / 400
    count = tf.constant(round(seconds / each))

    def body(x: Any, y: Any) -> Any:
        return products(count)[0, 0] + _touch(x, y)

    return body


def _elsewhere(seconds: float) -> Step:
    """A step of so long that takes no core of this machine, as on an accelerator.

    TensorFlow itself sleeps. A sleep in Python would take the interpreter's lock when it begins and
    ends, and so would measure who else holds it, which no step on an accelerator waits for.
    """
    tf = _tf()
    endless = tf.data.Dataset.range(10**9)
    sleeping = tf.raw_ops.SleepDataset(
        input_dataset=tf.data.experimental.to_variant(endless),
        sleep_microseconds=tf.constant(round(seconds * 1e6), tf.int64),
        output_types=[tf.int64],
        output_shapes=[tf.TensorShape([])],
    )
    spec = tf.TensorSpec([], tf.int64)
    elements = iter(tf.data.experimental.from_variant(sleeping, spec))

    def body(x: Any, y: Any) -> Any:
        with tf.control_dependencies([next(elements)]):
            return _touch(x, y)

    return body


def _constant(shape: tuple[int, ...], body: Step, steps: int) -> Pass:
    from flowdsl.tensorflow.inputs import DummyConstantInput

    tf = _tf()
    return _stepping(DummyConstantInput([shape, shape[:1]], [tf.float32, tf.int64]), body, steps)


# -- the queue family ------------------------------------------------------------------------------


def _ours(shuffled: bool) -> Pass:
    from flowdsl.tensorflow import queues

    tf = _tf()
    row = queues.range_input_producer(10**6, shuffle=False, capacity=1000)
    pair = queues.apply(lambda n: [n, tf.fill([100], 1.0)], queues.apply(row.dequeue))
    if shuffled:
        batch = queues.shuffle_batch(pair, BATCH, capacity=2000, min_after_dequeue=1000)
    else:
        batch = queues.batch(pair, BATCH, capacity=2000)
    step = tf.function(lambda: queues.evaluate(batch)[0][0])
    end = threading.Event()
    begun = threading.Event()

    def keep_running() -> None:
        with queues.running(batch):
            begun.set()
            end.wait()

    threading.Thread(target=keep_running, daemon=True).start()
    begun.wait()

    def begin() -> Iterator[Any]:
        for _ in range(STEPS):
            yield step().numpy()

    return begin


def _v1(shuffled: bool) -> Pass:
    v1 = _tf().compat.v1
    v1.disable_eager_execution()
    v1.logging.set_verbosity(v1.logging.ERROR)
    row = v1.train.range_input_producer(10**6, shuffle=False, capacity=1000).dequeue()
    pair = [row, _tf().fill([100], 1.0)]
    if shuffled:
        batch = v1.train.shuffle_batch(pair, BATCH, capacity=2000, min_after_dequeue=1000)
    else:
        batch = v1.train.batch(pair, BATCH, capacity=2000)
    session = v1.Session()
    v1.train.start_queue_runners(session)
    step = session.make_callable(batch[0][0])

    def begin() -> Iterator[Any]:
        for _ in range(STEPS):
            yield step()

    return begin


def _tf_data(shuffled: bool) -> Pass:
    tf = _tf()
    rows = tf.data.Dataset.range(10**6).repeat()
    rows = rows.map(lambda n: (tf.cast(n, tf.int32), tf.fill([100], 1.0)))
    if shuffled:
        rows = rows.shuffle(1000)
    return _over_dataset(rows.batch(BATCH).prefetch(8), lambda n, _: n[0], STEPS)


# -- the works -------------------------------------------------------------------------------------


def _inputs(shape: tuple[int, ...], procs: int, steps: int) -> dict[str, Callable[[], Pass]]:
    makers = {
        "flowdsl": _queue,
        "flowdsl, TFDatasetInput": _dataset_input,
        "from_generator": _from_generator,
        "numpy_function": _numpy_function,
    }
    return {who: partial(make, shape, procs, _touch, steps) for who, make in makers.items()}


def _fed(shape: tuple[int, ...], procs: int, body: Callable[[], Step], steps: int) -> Work:
    return Work(
        steps,
        {
            "flowdsl": lambda: _queue(shape, procs, body(), steps),
            "constant": lambda: _constant(shape, body(), steps),
        },
        goal=0.97,
        of="constant",
    )


WORKS = {
    "2 KB batches": Work(STEPS, _inputs(SMALL, 0, STEPS)),
    "38 MB batches": Work(100, _inputs(LARGE, 0, 100)),
    "38 MB batches of 2 workers": Work(50, _inputs(LARGE, PROCS, 50)),
    "38 MB of 2 workers, a step of 50 ms": _fed(LARGE, PROCS, lambda: _elsewhere(0.05), 50),
    "5 MB of a worker, a step of 6 ms": _fed(MEDIUM, 1, lambda: _elsewhere(0.006), STEPS),
    "5 MB of a worker, 6 ms of a core": _fed(MEDIUM, 1, lambda: _busy(0.006), STEPS),
    "rows to batch": Work(
        ROWS,
        {
            "flowdsl": partial(_ours, False),
            "tf.train": partial(_v1, False),
            "tf.data": partial(_tf_data, False),
        },
    ),
    "rows to shuffle_batch": Work(
        ROWS,
        {
            "flowdsl": partial(_ours, True),
            "tf.train": partial(_v1, True),
            "tf.data": partial(_tf_data, True),
        },
    ),
}


def main() -> None:
    run("bench.graph", __doc__, "steps or rows", WORKS, {}, Path("out/graph.json"))


if __name__ == "__main__":
    main()
