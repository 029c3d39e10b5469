"""The page on types: its messages of type checkers and its results are real."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import pytest

import flowdsl as fl
from tests.turns import mypy_alone

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "types.md").read_text()

Messages: TypeAlias = dict[str, list[str]]
"""The first lines of the errors of every line of code, in order."""


def rows(header: str) -> list[list[str]]:
    """Return the cells of a table, without backquotes around pure code."""
    _, _, table = PAGE.partition(f"{header}\n|-")
    lines = table.partition("\n\n")[0].splitlines()[1:]
    cells = [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in lines]
    return [[re.sub(r"^`([^`]*)`$", r"\1", c.replace(r"\|", "|")) for c in row] for row in cells]


EVERYDAY = rows("| the chain | its type |")
COMPONENTS = rows("| a component of type | in a batch |")
ELEMENTS = rows("| an element of type | its batch |")
MISTAKES = rows("| the line | would | the checkers |")
REFUSED = rows("| refused | by | since | write |")
ACCEPTED = rows("| accepted | comes to |")

CODE = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
MARKED = re.findall(r"^(.*  # refused by (mypy|pyright|both).*)$", CODE, re.MULTILINE)
"""Lines in the code that are refused, and the checkers that refuse them."""


def batched(number: int, element: str, batch: str) -> str:
    """Create a line that is correct if a flow of such elements has such batches."""
    head = f"def batched_{number}(flow: Flow[{element}, Exact]) -> None: "
    called = "flow.batch(2)"
    return head + (called if batch == "refused" else f"assert_type({called}, Flow[{batch}, Exact])")


NAMED = [(re.sub(r"^`(\w+)`, an? .*", r"\1", element), batch) for element, batch in ELEMENTS]
BATCHES = [
    *NAMED,
    *((component, batch) for component, batch in COMPONENTS),
    *((f"tuple[str, {x}]", f"tuple[list[str], {batch}]") for x, batch in COMPONENTS),
]
TYPED = [
    "from typing import assert_type",
    *(f"assert_type({chain}, {made})" for chain, made in EVERYDAY),
    *(batched(number, *row) for number, row in enumerate(BATCHES)),
]
NOT_STACKED = [line for line in TYPED if line.endswith("flow.batch(2)")]

LINES = [
    *TYPED,
    *(line for line, *_ in MISTAKES),
    *(line for line, *_ in REFUSED),
    *(line for *_, line in REFUSED),
    *(line for line, *_ in ACCEPTED),
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the code of the page, then the lines of its tables."""
    file = tmp_path_factory.mktemp("types") / "page.py"
    file.write_text("\n".join([CODE, *LINES, ""]))
    return file


def run(module: str, *arguments: object) -> str:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, f"{module} found no error, or broke:\n{done.stdout}{done.stderr}"
    return done.stdout


def messages(file: Path, diagnostics: list[tuple[int, str]]) -> Messages:
    code = file.read_text().splitlines()
    found: Messages = defaultdict(list)
    for number, message in diagnostics:
        found[code[number - 1]].append(message.splitlines()[0])
    return found


@pytest.fixture(scope="module")
def mypy(file: Path) -> Messages:
    return diagnostics_by_mypy(file)


def diagnostics_by_mypy(file: Path) -> Messages:
    with mypy_alone():
        notes = [json.loads(line) for line in run("mypy", "--output=json", file).splitlines()]
    diagnostics = [
        n for n in notes if n["severity"] == "error" and Path(n["file"]).name == file.name
    ]
    return messages(file, [(n["line"], n["message"]) for n in diagnostics])


@pytest.fixture(scope="module")
def pyright(file: Path) -> Messages:
    project = file.with_name("pyrightconfig.json")
    settings = {
        "include": [str(file)],
        "extraPaths": [str(ROOT)],
        "stubPath": str(ROOT / "stubs"),
        "pythonVersion": "3.11",
        "typeCheckingMode": "standard",
    }
    project.write_text(json.dumps(settings))
    arguments = ("--outputjson", "--pythonpath", sys.executable, "--project", project)
    diagnostics = json.loads(run("basedpyright", *arguments))["generalDiagnostics"]
    errors = [note for note in diagnostics if note["severity"] == "error"]
    return messages(file, [(n["range"]["start"]["line"] + 1, n["message"]) for n in errors])


def says(found: list[str], shown: str) -> bool:
    """Return True if the page shows the first message, complete or truncated."""
    first = found[0] if found else ""
    start, cut, _ = shown.partition(" …")
    return first.startswith(start) if cut else first == shown


def test_every_table_is_found() -> None:
    assert min(map(len, (EVERYDAY, COMPONENTS, ELEMENTS, REFUSED, ACCEPTED))) > 7
    assert len(MARKED) == CODE.count("refused by")
    assert NOT_STACKED


def test_there_are_ten_mistakes() -> None:
    assert len(MISTAKES) == 10
    assert len({line for line, *_ in MISTAKES}) == 10


@pytest.mark.parametrize(("line", "shown"), [(line, shown) for line, _, shown in MISTAKES])
def test_mistakes_have_the_documented_messages(
    line: str, shown: str, mypy: Messages, pyright: Messages
) -> None:
    by_mypy, by_pyright = shown.strip("`").split("` <br> `")
    assert says(mypy[line], by_mypy), mypy[line]
    assert says(pyright[line], by_pyright), pyright[line]


def test_documented_correct_code_is_refused(mypy: Messages, pyright: Messages) -> None:
    for line, by, *_ in [*REFUSED, *MARKED, *([line, "both"] for line in NOT_STACKED)]:
        assert bool(mypy[line]) == (by != "pyright"), line
        assert bool(pyright[line]) == (by != "mypy"), line


def test_documented_code_is_accepted_with_a_mypy_option(file: Path, mypy: Messages) -> None:
    # as a comment: an option for all files would make mypy check all of them again
    optional = file.with_name("optional.py")
    optional.write_text("# mypy: allow-redefinition\n" + file.read_text())
    found = diagnostics_by_mypy(optional)
    accepted = {line for line, _ in MARKED if line.endswith("# refused by mypy")}
    assert len(accepted) == 2
    assert {line for line in mypy if mypy[line]} - {*found} == accepted


def test_nothing_else_is_refused(mypy: Messages, pyright: Messages) -> None:
    refused = {line for found in (mypy, pyright) for line in found if found[line]}
    expected = {line for line, *_ in [*MISTAKES, *REFUSED, *MARKED]} | set(NOT_STACKED)
    assert {line: (mypy[line], pyright[line]) for line in refused ^ expected} == {}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the code of the page with its files, and return its definitions."""
    monkeypatch.chdir(tmp_path)
    for name in ("digits/0.png", "digits/1.png", "digits/2.png", "more/3.png"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    digits = fl.from_range(3).map(lambda i: (np.full((8, 8), 200, np.uint8), i))
    digits.write_lmdb("digits.lmdb")
    module = ModuleType("page")  # by its name a dataclass finds what its annotations mean
    monkeypatch.setitem(sys.modules, "page", module)
    exec(CODE, vars(module))
    return vars(module)


def deliver(line: str, page: dict[str, Any]) -> None:
    made = eval(line, page)
    if isinstance(made, fl.Flow):
        assert next(iter(made), None) is not None


@pytest.mark.parametrize("line", [line for line, _ in EVERYDAY])
def test_examples_run(line: str, page: dict[str, Any]) -> None:
    deliver(line, page)


@pytest.mark.parametrize("line", [line for row in REFUSED for line in (row[0], row[-1])])
def test_correct_examples_run(line: str, page: dict[str, Any]) -> None:
    deliver(line, page)


@pytest.mark.parametrize(("line", "comes_to"), ACCEPTED)
def test_accepted_examples_have_the_documented_results(
    line: str, comes_to: str, page: dict[str, Any]
) -> None:
    (named,) = re.findall(r"^(?:an? )?`(\w+)`", comes_to) or ["nothing bad"]
    expected = getattr(fl, named, None)
    with pytest.raises(expected) if expected else nullcontext():
        deliver(line, page)
