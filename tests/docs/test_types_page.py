"""The page on types: its messages of type checkers and its results are real."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import pytest

import flowdsl as fl
from tests.checkers import Checker, mypy, pyright

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


PROGRAM = "\n".join([CODE, *LINES, ""])
"""The code of the page, then the lines of its tables."""

for _checker in (mypy, pyright):
    _checker.add("page.py", PROGRAM)
# as a comment: an option for all files would make mypy check all of them again
mypy.add("optional.py", "# mypy: allow-redefinition\n" + PROGRAM)


def messages(checker: Checker, name: str, *, shifted: int = 0) -> Messages:
    code = PROGRAM.splitlines()
    found: Messages = defaultdict(list)
    for finding in checker.in_program(name):
        if finding.error:
            found[code[finding.line - 1 - shifted]].append(finding.message.splitlines()[0])
    return found


@pytest.fixture(scope="module", name="mypy")
def of_mypy() -> Messages:
    return messages(mypy, "page.py")


@pytest.fixture(scope="module", name="pyright")
def of_pyright() -> Messages:
    return messages(pyright, "page.py")


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


def test_documented_code_is_accepted_with_a_mypy_option() -> None:
    found, allowed = messages(mypy, "page.py"), messages(mypy, "optional.py", shifted=1)
    accepted = {line for line, _ in MARKED if line.endswith("# refused by mypy")}
    assert len(accepted) == 2
    assert {*found} - {*allowed} == accepted


def test_nothing_else_is_refused(mypy: Messages, pyright: Messages) -> None:
    refused = {line for found in (mypy, pyright) for line in found if found[line]}
    expected = {line for line, *_ in [*MISTAKES, *REFUSED, *MARKED]} | set(NOT_STACKED)
    if np.lib.NumpyVersion(np.__version__) >= "2.5.0":  # its types say more of some results
        expected |= refused & {line for line, _ in ACCEPTED}
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
