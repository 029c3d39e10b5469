"""A fault: a program that meets it, what flowdsl promises, and what a user sees.

The first line of a program's docstring names the fault, and the rest the promised behaviour. The
last lines of the program, after ``# Seen:``, are its output, with ``...`` for parts that vary. It
runs in a separate folder, in a forked process, so no thread must have been started before.
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
import warnings
from functools import cache
from importlib import import_module
from itertools import groupby, islice
from pathlib import Path

import attrs

import flowdsl as fl

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # its log is not part of a fault
SLOW = {
    "consumer_in_a_worker",
    "consumer_interrupted",
    "dataset_item_fails",
    "function_never_returns",
    "input_that_stalls",
    "limit_of_processor_time",
    "program_ends_by_a_signal",
    "program_exits_while_a_thread_iterates",
    "program_replaced_by_another",
    "sender_killed",
    "training_process_dies",
    "worker_stopped",
}
"""Faults that take more than a second: programs that wait, or that import a framework again."""
_EACH = 8
_SECONDS = 60
_SEEN = "\n# Seen:\n"
# Not JAX, which warns about every fork once it is imported.
_FRAMEWORKS = {"keras": "keras", "tensorflow": "flowdsl.tensorflow.train", "torch": "torch"}
_OF_TENSORFLOW = re.compile(
    r"^(WARNING: All log messages|[IWE]0000 |\t \[\[\{\{).*\n", re.MULTILINE
)
"""Log lines of TensorFlow at any log level; the second line of an error begins with a tab."""


@attrs.frozen
class Fault:
    """A program of this folder."""

    name: str
    path: Path
    title: str
    promise: str
    program: str
    output: str
    """The output of the program."""

    @property
    def frameworks(self) -> list[str]:
        """The modules of frameworks that the program names."""
        return [module for name, module in _FRAMEWORKS.items() if name in self.program]

    def ends_so(self, text: str) -> bool:
        """Return True if the output is as documented."""
        return doctest.OutputChecker().check_output(
            self.output, text, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        )


@cache
def faults() -> tuple[Fault, ...]:
    """Every fault, by name."""
    found = sorted(Path(__file__).parent.glob("*_*.py"))
    return tuple(_fault(path) for path in found if not path.name.startswith(("test_", "__")))


def sample() -> tuple[Fault, ...]:
    """Return every eighth fault of each kind, which is the first word of its name.

    Slow faults are left out, and faults of frameworks, since importing those takes seconds.
    """
    quick = (fault for fault in faults() if not (fault.name in SLOW or fault.frameworks))
    kinds = groupby(quick, lambda fault: fault.name.partition("_")[0])
    return tuple(fault for _, kind in kinds for fault in islice(kind, None, None, _EACH))


def _fault(path: Path) -> Fault:
    program, mark, output = path.read_text().partition(_SEEN)
    title, _, promise = (ast.get_docstring(ast.parse(program)) or "").partition("\n\n")
    if not (mark and title and promise):
        raise ValueError(f"{path.name}: a title, a promise and '# Seen:' are needed")
    lines = [line.removeprefix("#").removeprefix(" ") for line in output.splitlines()]
    code = program[program.index('"""\n', 4) + 4 :].strip()
    return Fault(path.stem, path, title, promise, code, "\n".join(lines) + "\n")


def seen(fault: Fault) -> str:
    """Run a program, and return its output with the last line of a traceback."""
    # Imported before the fork, which is faster, and safe as long as they have started nothing.
    fl.from_range(1).prefetch(procs=0).collect()
    for module in fault.frameworks:
        if module != "torch":
            import_module("tests.quick_tensorflow")
        import_module(module)
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            _run(fault, folder, writing)
        os.close(writing)
        with os.fdopen(reading, errors="replace") as pipe:
            text = _OF_TENSORFLOW.sub("", pipe.read())
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        ended = f"(ended by {signal.Signals(-status).name})\n" if status < 0 else ""
        return text.replace(f"{folder}/", "") + ended


def _run(fault: Fault, folder: str, writing: int) -> None:
    os.dup2(writing, 1)
    os.dup2(writing, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    os.chdir(folder)
    # Python 3.12 and later warn of every fork of a process with threads.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    os.environ["PYTHONWARNINGS"] = "ignore::DeprecationWarning"  # in worker processes
    signal.alarm(_SECONDS)
    try:
        runpy.run_path(str(fault.path), run_name="__main__")
    except BaseException as error:
        error.__notes__ = []
        print(*traceback.format_exception_only(error), sep="", end="")
    finally:
        sys.stdout.flush()
        os._exit(0)
