"""Type checkers over the package and these files: only the marked lines fail.

``make types`` checks all of it with pyright, which takes too long to be repeated here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.checkers import ROOT, Checker, mypy, pyright

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
BAD = sorted(HERE.glob("bad*.py"))
GOOD = sorted(HERE.glob("good*.py"))
NATURAL = sorted(HERE.glob("natural/*.py"))
# A package that a checker only finds by import is one whose own errors mypy hides: it is a target.
mypy.add_files(ROOT / "flowdsl", *GOOD, *NATURAL, *BAD)
# Nor may what it has found of bad lines make it refuse good ones after them.
pyright.add_files(*BAD, *GOOD)
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


def failures(checker: Checker) -> Failures:
    found: Failures = defaultdict(set)
    for path, findings in checker.in_files().items():
        for finding in findings:
            if finding.error:
                found[path, finding.line].add(finding.code)
    return found


def test_mypy_rejects_each_bad_line_with_its_codes_and_nothing_else() -> None:
    assert failures(mypy) == marked()


def test_pyright_rejects_each_bad_line_and_nothing_else() -> None:
    assert sorted(failures(pyright)) == sorted(marked())


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_every_statement_of_a_bad_file_is_marked(file: Path) -> None:
    text = file.read_text()
    statements = text[text.index("# -- ") :].splitlines()
    unmarked = [line for line in statements if line and not line.startswith("# --")]
    assert [line for line in unmarked if not MARK.search(line)] == []
