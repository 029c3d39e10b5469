"""A fault: a program that meets it, what flowdsl promises, and what a user sees.

A program's docstring says in its first line what fails, and then what is promised. Its last lines,
after ``# Seen:``, are what it prints, with ``...`` for what differs from run to run. It runs in a
folder of its own, in a process that is forked: no thread has been started before.
"""

from __future__ import annotations

import ast
import doctest
import os
import re
import runpy
import signal
import sys
import tempfile
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path

import attrs

import flowdsl as fl

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # what it logs is no part of a fault
SLOW = {"training_process_dies"}
"""Those that take seconds: this one starts TensorFlow in two more processes."""
_SECONDS = 60
_SEEN = "\n# Seen:\n"
_OF_TENSORFLOW = re.compile(
    r"^(WARNING: All log messages|[IWE]0000 |\t \[\[\{\{).*\n", re.MULTILINE
)
"""What TensorFlow logs, whatever its log level; the second line of an error begins with a tab."""


@attrs.frozen
class Fault:
    """A program of this folder."""

    name: str
    path: Path
    title: str
    promise: str
    program: str
    told: str
    """What it prints."""

    def ends_so(self, text: str) -> bool:
        """Whether it printed what is told."""
        return doctest.OutputChecker().check_output(
            self.told, text, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        )


@cache
def faults() -> tuple[Fault, ...]:
    """Every fault, by name."""
    found = sorted(Path(__file__).parent.glob("*_*.py"))
    return tuple(_fault(path) for path in found if not path.name.startswith(("test_", "__")))


def _fault(path: Path) -> Fault:
    program, mark, told = path.read_text().partition(_SEEN)
    title, _, promise = (ast.get_docstring(ast.parse(program)) or "").partition("\n\n")
    if not (mark and title and promise):
        raise ValueError(f"{path.name}: a title, a promise and '# Seen:' are needed")
    lines = [line.removeprefix("#").removeprefix(" ") for line in told.splitlines()]
    code = program[program.index('"""\n', 4) + 4 :].strip()
    return Fault(path.stem, path, title, promise, code, "\n".join(lines) + "\n")


def seen(fault: Fault) -> str:
    """What the program prints, with the last line of a traceback."""
    # Imported before the fork: it is quicker. They may be, as long as they have done nothing; but
    # JAX, once it is there, warns of every fork.
    fl.from_range(1).prefetch(procs=0).collect()
    for module in ("flowdsl.tensorflow.train", "torch"):
        import_module(module)
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            _run(fault, folder, writing)
        os.close(writing)
        with os.fdopen(reading, errors="replace") as output:
            text = _OF_TENSORFLOW.sub("", output.read())
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        ended = f"(ended by {signal.Signals(-status).name})\n" if status < 0 else ""
        return text.replace(f"{folder}/", "") + ended


def _run(fault: Fault, folder: str, writing: int) -> None:
    os.dup2(writing, 1)
    os.dup2(writing, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    os.chdir(folder)
    signal.alarm(_SECONDS)
    try:
        runpy.run_path(str(fault.path), run_name="__main__")
    except BaseException as error:
        error.__notes__ = []
        print(*traceback.format_exception_only(error), sep="", end="")
    finally:
        sys.stdout.flush()
        os._exit(0)
