"""Type checkers over the programs of the tests: one run of each, which all its tests share.

A file of tests names its programs when it is imported, so the first test that reads findings has
all of them checked. Most of the time of a run is for the libraries that the programs import.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import attrs

ROOT = Path(__file__).parents[1]
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The running version: the newest NumPy, whose types need a newer Python, is installed for that."""
_CACHE = ROOT / ".mypy_cache"


@attrs.frozen
class Finding:
    """What a checker says of a line of a program: an error, or the type that it reveals."""

    line: int
    error: bool
    code: str
    message: str


Found: TypeAlias = Iterator[tuple[Path, Finding]]


@attrs.define(slots=False)
class Checker:
    """A type checker, its programs, and what it finds in them."""

    _run: Callable[[list[Path]], Found]
    _texts: dict[str, str] = attrs.field(factory=dict, init=False)
    _paths: list[Path] = attrs.field(factory=list, init=False)

    def add(self, name: str, text: str) -> None:
        """Check a text too, in a file of this name."""
        assert self._texts.setdefault(name, text) == text, name
        assert "_findings" not in vars(self), "name programs when the file of tests is imported"

    def add_files(self, *paths: Path) -> None:
        """Check files of the repository too, or all in a folder."""
        self._paths += paths

    def in_program(self, name: str) -> list[Finding]:
        """Return what the checker finds in the text of this name."""
        assert name in self._texts, name
        return self._findings.get(name, [])

    def in_files(self) -> dict[str, list[Finding]]:
        """Return what it finds in files of the repository, by path."""
        return {path: found for path, found in self._findings.items() if path not in self._texts}

    @cached_property
    def _findings(self) -> dict[str, list[Finding]]:
        found = defaultdict(list)
        with TemporaryDirectory() as folder:
            programs = [Path(folder) / name for name in self._texts]
            for program, text in zip(programs, self._texts.values(), strict=True):
                program.write_text(text)
            for path, finding in self._run([*self._paths, *programs]):
                file = (ROOT / path).resolve()
                inside = file.is_relative_to(ROOT)
                found[file.relative_to(ROOT).as_posix() if inside else file.name].append(finding)
        return dict(found)


@contextmanager
def mypy_alone() -> Iterator[None]:
    """Serialize runs of mypy, which share a cache without locking it."""
    _CACHE.mkdir(exist_ok=True)
    with open(_CACHE / "turn", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # given back when the file is closed
        yield


def _output(module: str, *arguments: object) -> str:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    assert done.returncode in (0, 1), f"{module} broke:\n{done.stdout}"
    return done.stdout


def _by_mypy(paths: list[Path]) -> Found:
    with mypy_alone():
        options = ("--output=json", "--no-error-summary", f"--python-version={_PYTHON}")
        lines = _output("mypy", *options, *paths).splitlines()
    for note in map(json.loads, lines):
        error = note["severity"] == "error"
        yield Path(note["file"]), Finding(note["line"], error, note["code"] or "", note["message"])


def _by_pyright(paths: list[Path]) -> Found:
    settings = {
        "include": list(map(str, paths)),
        "exclude": [],  # the project's own settings leave the bad files out, even when named
        "extraPaths": [str(ROOT)],
        "stubPath": str(ROOT / "stubs"),
        "pythonVersion": _PYTHON,
        "typeCheckingMode": "standard",
    }
    with TemporaryDirectory() as folder:
        project = Path(folder) / "pyrightconfig.json"
        project.write_text(json.dumps(settings))
        arguments = ("--outputjson", "--pythonpath", sys.executable, "--project", project)
        notes = json.loads(_output("basedpyright", *arguments))["generalDiagnostics"]
    for note in notes:
        line = note["range"]["start"]["line"] + 1
        error = note["severity"] == "error"
        yield Path(note["file"]), Finding(line, error, note.get("rule", ""), note["message"])


mypy = Checker(_by_mypy)
pyright = Checker(_by_pyright)
