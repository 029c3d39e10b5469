"""Everyday operations where Python lacks what only Linux, or only Unix, has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flowdsl.resources import systems

PROCESSES = """\
prefetch: procs=2: worker processes need Linux; write threads=2, or procs="auto", which needs no \
workers here
replicate: procs=2: worker processes need Linux; write .repeat(2), which needs none
"""
SOCKETS = """\
from_zmq: 'ipc:///tmp/rows' cannot be protected from other users on this system; use \
tcp://127.0.0.1:port
"""
NO_LOCKS = "ignore:only soft file lock is available"  # filelock itself knows Windows by its name


@pytest.mark.parametrize(
    ("system", "refusals"), [("macos", PROCESSES), ("windows", PROCESSES + SOCKETS)]
)
def test_everything_but_processes_runs(system: str, refusals: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", NO_LOCKS, "-m", "tests.resources.other_systems", system],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == (refusals, "")


def test_bytes_are_read_at_an_offset_without_pread(tmp_path: Path) -> None:
    path = tmp_path / "digits"
    path.write_bytes(b"0123456789")
    file = os.open(path, os.O_RDONLY | systems.BINARY)
    try:
        for read in (systems.read_at, systems._read_at):
            assert [read(file, 3, start) for start in (4, 0, 9)] == [b"456", b"012", b"9"]
    finally:
        os.close(file)
