"""Type checkers over the package and these files: only the marked lines fail.

``make types`` checks all of it with pyright, which takes too long to be repeated here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.turns import mypy_alone

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BAD = sorted(HERE.glob("bad*.py"))
GOOD = sorted(HERE.glob("good*.py"))
NATURAL = sorted(HERE.glob("natural/*.py"))
# A package that a checker only finds by import is one whose own errors mypy hides: it is a target.
TARGETS = [ROOT / "flowdsl", *GOOD, *NATURAL, *BAD]
MARK = re.compile(r"# E: ([a-z, -]+)$")

Failures: TypeAlias = dict[tuple[str, int], set[str]]
"""The codes of the errors on each line, by file and line number."""


def marked() -> Failures:
    found: Failures = {}
    for file in BAD:
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if mark := MARK.search(line):
                found[file.relative_to(ROOT).as_posix(), number] = set(mark[1].split(", "))
    return found


def run(module: str, *arguments: object) -> str:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, f"{module} found no error, or broke:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def mypy() -> Failures:
    failures: Failures = defaultdict(set)
    with mypy_alone():
        lines = run("mypy", "--output=json", *TARGETS).splitlines()
    for line in lines:
        error = json.loads(line)
        if error["severity"] == "error":
            failures[Path(error["file"]).as_posix(), error["line"]].add(error["code"])
    return failures


@pytest.fixture(scope="module")
def pyright(tmp_path_factory: pytest.TempPathFactory) -> Failures:
    project = tmp_path_factory.mktemp("pyright") / "pyrightconfig.json"
    settings = {
        # Nor may what it has found of bad lines make it refuse good ones after them.
        "include": [str(file) for file in (*BAD, *GOOD)],
        "exclude": [],  # the project's own settings leave the bad files out, even when named
        "extraPaths": [str(ROOT)],
        "stubPath": str(ROOT / "stubs"),
        "pythonVersion": "3.11",
        "typeCheckingMode": "standard",
    }
    project.write_text(json.dumps(settings))
    failures: Failures = defaultdict(set)
    found = run(
        "basedpyright", "--outputjson", "--pythonpath", sys.executable, "--project", project
    )
    for error in json.loads(found)["generalDiagnostics"]:
        if error["severity"] == "error":
            file = Path(error["file"]).relative_to(ROOT).as_posix()
            failures[file, error["range"]["start"]["line"] + 1].add(error["rule"])
    return failures


def test_mypy_rejects_each_bad_line_with_its_codes_and_nothing_else(mypy: Failures) -> None:
    assert mypy == marked()


def test_pyright_rejects_each_bad_line_and_nothing_else(pyright: Failures) -> None:
    assert sorted(pyright) == sorted(marked())


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_every_statement_of_a_bad_file_is_marked(file: Path) -> None:
    text = file.read_text()
    statements = text[text.index("# -- ") :].splitlines()
    unmarked = [line for line in statements if line and not line.startswith("# --")]
    assert [line for line in unmarked if not MARK.search(line)] == []
