"""What happens to a waiting program; each test is a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

STUCK = """
import sys, threading
import numpy as np, tensorflow as tf
import flowdsl as fl
from flowdsl.graph import QueueInput

def stuck(i: int) -> np.int64:
    if i == 2:
        threading.Event().wait()
    return np.int64(i)

source = QueueInput(fl.from_range(3).map(stuck))
source.reset()
step = tf.function(input_signature=source.signature)(source.tensors)
for _ in range(2):
    step(*source.next_args())
if sys.argv[1] == "wait":
    print("waiting", flush=True)
    step(*source.next_args())
"""


def start(mode: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", STUCK, mode],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def test_ctrl_c_ends_a_loop_that_waits_for_data() -> None:
    with start("wait") as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "waiting\n"
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=200)  # it would wait for ever
        assert "KeyboardInterrupt" in err
        assert program.returncode in (-signal.SIGINT, 130)


def test_a_program_ends_while_its_flow_is_stuck() -> None:
    with start("end") as program:
        _, err = program.communicate(timeout=200)
        assert program.returncode == 0, err
