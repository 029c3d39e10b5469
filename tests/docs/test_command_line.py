"""The page on the command line shows what the commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from flowdsl.cli.main import main
from tests.cli.commands import Project
from tests.cli.conftest import project as project

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "command-line.md").read_text()
CONSOLES = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    pytest.param(command, printed, id=command)
    for console in CONSOLES
    for command, printed in re.findall(r"^\$ flowdsl (.*)\n((?:[^$].*\n)*)", console, re.MULTILINE)
]


def _without_digests(text: str) -> str:
    return re.sub(r"[0-9a-f]{16}|(?<=bytes   )[\d,]+", "#", text)


@pytest.fixture
def page(project: Project) -> Project:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    project.write("train.py", program)
    project.write("words.csv", "text,times\nto,2\nbe,2\nor,1\nnot,1\n")
    return project


@pytest.mark.parametrize(("command", "printed"), COMMANDS)
def test_commands_print_what_the_page_shows(page: Project, command: str, printed: str) -> None:
    if command.startswith("inspect"):
        page.succeeds("convert", "words.csv", "words.parquet", "--element", "train.py:Word")
    result = page.run(*shlex.split(command))
    assert _without_digests(result.output) == _without_digests(printed)


def test_every_command_is_listed() -> None:
    listed = re.findall(r"^\| `(\w+) [A-Z ]+` \|", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(main.commands)
