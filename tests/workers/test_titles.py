"""The names under which ``ps`` and ``top`` show the processes of flowdsl."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import flowdsl as fl
from tests.children import command, parent_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")


def test_workers_and_fork_server_have_names() -> None:
    run = iter(fl.from_range(100).map(lambda _: os.getpid()).prefetch(procs=1))
    worker = next(run)
    server = parent_of(worker)
    me = os.getpid()
    assert command(worker).rstrip() == f"flowdsl worker of process {me}"
    assert command(server).rstrip() == f"flowdsl forks: starts the workers of process {me}"
    names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in (worker, server)]
    assert names == ["flowdsl worker", "flowdsl forks"]
    run.close()


@pytest.mark.parametrize("length", [0, 5, 5000])
def test_a_title_of_any_length_leaves_arguments_and_environment_as_they_are(length: int) -> None:
    program = f"""
import os, sys
from flowdsl.workers.titles import set_title
set_title("name", {length} * "x")
with open("/proc/self/cmdline") as file:
    shown = file.read().rstrip(chr(0))
print(len(shown), shown[:9], sys.argv, os.environ["MARK"])
with open("/proc/self/environ") as file:
    print("MARK=there" in file.read())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "first", "second"],
        env={**os.environ, "MARK": "there"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    shown, there = done.stdout.splitlines()
    count, rest = shown.split(maxsplit=1)
    assert int(count) == 4 + length or 100 < int(count) < 4 + length
    assert rest == f"name{'x' * min(length, 5)} ['-c', 'first', 'second'] there"
    assert there == "True"


def test_nothing_changes_without_proc() -> None:
    program = """
from pathlib import Path
def missing(*_):
    raise FileNotFoundError
Path.read_text = Path.write_text = missing
from flowdsl.workers.titles import set_title
set_title("name")
"""
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)
