"""The command as a program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import flowdsl as fl
from tests.cli.commands import TRAIN, Project


def _flowdsl(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flowdsl", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_it_runs_as_a_module_with_workers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN + "workers = train.prefetch(procs=1)")
    done = _flowdsl(tmp_path, "head", "train.py:workers", "-n", "1")
    assert (done.returncode, done.stdout) == (0, "int64[4] [483025, 81796, 622521, 982081]\n")
    assert done.stderr == ""


def test_bad_input_is_status_2_and_no_traceback(tmp_path: Path) -> None:
    done = _flowdsl(tmp_path, "head", "train.py:train")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: the file 'train.py' does not exist\n"


CHATTY = """
import os
from typing import NamedTuple
import flowdsl as fl

def chat(i: int) -> int:
    print("python")
    os.write(1, b"C code\\n")
    return i

class Row(NamedTuple):
    i: int

chat(0)
flow = fl.from_range(20).map(chat).batch(2)
workers = flow.prefetch(procs=1)
"""

COMMANDS = [
    ("check", "chatty.py:flow", "--no-types"),
    ("measure", "chatty.py:workers", "--size", "4"),
    ("bench", "chatty.py:flow", "--processes", "1", "--seconds", "0.01"),
    ("inspect", "n.csv", "--element", "chatty.py:Row"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_json_is_alone_on_standard_output(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "chatty.py").write_text(CHATTY)
    fl.from_items([{"i": 1}]).write_csv(tmp_path / "n.csv")
    done = _flowdsl(tmp_path, *command, "--json")
    assert json.loads(done.stdout), done.stderr
    assert "python\nC code" in done.stderr


def test_the_version(project: Project) -> None:
    assert project.succeeds("--version") == f"flowdsl, version {fl.__version__}\n"


def test_a_run_that_fails_is_status_1(project: Project) -> None:
    project.write("bad.py", "import flowdsl as fl\nflow = fl.from_range(3).map(lambda i: 1 // i)\n")
    result = project.run("head", "bad.py:flow")
    assert result.exit_code == 1
    assert "map(<lambda>) failed on element 0" in result.output


def test_import_flowdsl_does_not_import_click() -> None:
    program = "import sys, flowdsl; sys.exit('click' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
