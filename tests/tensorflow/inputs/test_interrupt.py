"""Interrupts of a waiting program; each test runs its own process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

STUCK = """
import sys, threading, time
import tests.quick_tensorflow
import numpy as np, tensorflow as tf
import flowdsl as fl
from flowdsl.tensorflow.inputs import *
from flowdsl.tensorflow.inputs import queues

def stuck(i: int) -> np.int64:
    if i == 2:
        threading.Event().wait()
    return np.int64(i)

def fed(source):
    source.reset()
    step = tf.function(input_signature=source.signature)(source.tensors)
    return lambda: step(*source.next_args())

def tell_that_it_waits():
    same, before = 0, None
    while same < 10:
        frame = sys._current_frames()[threading.main_thread().ident]
        same, before = same + 1 if (frame, frame.f_lasti) == before else 0, (frame, frame.f_lasti)
        time.sleep(0.03)
    print("waiting", flush=True)

flow = fl.from_range(5).map(stuck)
"""

INTERRUPTED = """
def stuck_tensor(i):
    return tf.ensure_shape(tf.numpy_function(stuck, [i], tf.int64), ())

def take_all(make):
    take = fed(make())
    while True:
        take()

def take_of_queues(call):
    empty = tf.queue.FIFOQueue(5, [tf.int64], [()])
    rows = queues.batch([queues.apply(empty.dequeue)], 1)
    with queues.running(rows):
        call(lambda: queues.evaluate(rows))()

def interrupted(run, *args):
    threading.Thread(target=tell_that_it_waits).start()
    try:
        run(*args)
    except KeyboardInterrupt:
        print("interrupted", flush=True)

interrupted(take_all, lambda: QueueInput(flow))
interrupted(take_all, lambda: QueueInput(flow.prefetch(procs=1)))
interrupted(take_all, lambda: BatchQueueInput(flow, 1))
interrupted(take_all, lambda: FeedInput(flow))
interrupted(take_all, lambda: TFDatasetInput(flow))
interrupted(take_all, lambda: TFDatasetInput(tf.data.Dataset.range(5).map(stuck_tensor)))
interrupted(take_all, lambda: StagingInput(QueueInput(flow)))
interrupted(take_all, lambda: ZMQInput("ipc://" + sys.argv[1], spec=[tf.TensorSpec((), tf.int64)]))
interrupted(take_of_queues, lambda evaluate: evaluate)
interrupted(take_of_queues, tf.function)
"""


def start(program: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", STUCK + program, str(folder / "socket")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )


def test_ctrl_c_ends_a_loop_that_waits_for_data(tmp_path: Path) -> None:
    with start(INTERRUPTED, tmp_path) as program:
        assert program.stdout is not None
        for _ in range(INTERRUPTED.count("\ninterrupted(")):
            said = program.stdout.readline()
            assert said == "waiting\n", program.communicate(timeout=200)
            program.send_signal(signal.SIGINT)
            said = program.stdout.readline()  # or it waits for ever
            assert said == "interrupted\n", program.communicate(timeout=200)
        _, err = program.communicate(timeout=200)
        assert program.returncode == 0, err


@pytest.mark.long
def test_a_program_ends_while_its_flow_is_stuck(tmp_path: Path) -> None:
    with start("take = fed(QueueInput(flow))\ntake()\ntake()", tmp_path) as program:
        _, err = program.communicate(timeout=200)
        assert program.returncode == 0, err
