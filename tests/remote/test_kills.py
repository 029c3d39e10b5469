"""A sender and a store, in processes that are killed or interrupted again and again."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

WAIT = 60
SENDER = """
import json, os, signal, sys
import flowdsl as fl

signal.signal(signal.SIGINT, signal.default_int_handler)
folder, rows = sys.argv[1], int(sys.argv[2])

def save(state):
    with open(f"{folder}/state.new", "w") as file:
        json.dump(state, file)
    os.replace(f"{folder}/state.new", f"{folder}/state")

state = json.load(open(f"{folder}/state")) if os.path.exists(f"{folder}/state") else None
flow = fl.from_range(rows).filter(lambda i: i % 7 > 0).map(lambda i: i * i).enumerate()
flow.send_zmq(f"ipc://{folder}/wire", serve=True, state=state, on_state=save)
"""
STORE = """
import os, signal, sys
import flowdsl as fl

signal.signal(signal.SIGINT, signal.default_int_handler)
folder = sys.argv[1]
file = os.open(f"{folder}/rows", os.O_RDWR | os.O_CREAT | os.O_APPEND)
whole = os.read(file, 1 << 24).rpartition(b"\\n")[0].splitlines()
os.ftruncate(file, sum(len(line) + 1 for line in whole))
stored = {int(line.split()[0]) for line in whole}
rows = fl.from_zmq(f"ipc://{folder}/wire", tuple[int, int], auto_commit=False)
with iter(rows.map(lambda x: x).prefetch(**{sys.argv[3]: 2})) as run:
    for number, row in run:
        if number not in stored:
            os.write(file, b"%d %d\\n" % (number, row))
            stored.add(number)
        if number % 5 == 0:
            run.commit()
    run.commit()
os.write(os.open(f"{folder}/ended", os.O_WRONLY | os.O_CREAT), b"ended")
"""


@pytest.mark.parametrize(
    ("moments", "workers"),
    [(1, "threads"), pytest.param(50, "procs", marks=pytest.mark.long)],
)
def test_nothing_is_lost_and_nothing_comes_twice(
    moments: int, workers: str, tmp_path: Path
) -> None:
    """The moments are numbers of stored rows, so they do not depend on the machine's speed."""
    rng, count = random.Random(3), 300 + 60 * moments
    rows = tmp_path / "rows"

    def begin(program: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", program, str(tmp_path), str(count), workers]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    processes = {SENDER: begin(SENDER), STORE: begin(STORE)}

    def begin_again() -> None:
        """Restart what was killed, and a store that has failed as its sender was interrupted."""
        for program in processes:
            if processes[program].poll():
                processes[program] = begin(program)

    expected = [i * i for i in range(count) if i % 7]
    until = time.monotonic() + WAIT + 5 * moments
    try:
        for stored in sorted(rng.sample(range(1, len(expected) - 200), moments)):
            while not rows.exists() or rows.read_bytes().count(b"\n") < stored:
                assert time.monotonic() < until, "no more rows are stored"
                begin_again()
                time.sleep(0.002)
            program = rng.choice([SENDER, STORE])
            processes[program].send_signal(rng.choice([signal.SIGKILL, signal.SIGINT]))
            processes[program].wait(WAIT)
        while any(process.poll() != 0 for process in processes.values()):
            assert time.monotonic() < until, "they do not come to an end"
            begin_again()
            time.sleep(0.01)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    assert (tmp_path / "ended").exists()
    got = [tuple(map(int, line.split())) for line in rows.read_text().splitlines()]
    assert got == list(enumerate(expected))
