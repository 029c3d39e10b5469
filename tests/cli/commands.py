"""Runs commands as a user does, in a project of the user's."""

from __future__ import annotations

from pathlib import Path

import attrs
from click.testing import CliRunner, Result

from flowdsl.cli.main import main

TRAIN = """
import flowdsl as fl

def square(i: int) -> int:
    return i * i

train = fl.from_range(1000).map(square).shuffle(seed=1).batch(4)
"""


@attrs.frozen
class Project:
    """A user's folder."""

    folder: Path

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, catch_exceptions=False)

    def succeeds(self, *arguments: str) -> str:
        """What a command prints that succeeds."""
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.output

    def refuses(self, *arguments: str) -> str:
        """The sentence that refuses bad input."""
        result = self.run(*arguments)
        assert result.exit_code == 2, result.output
        lines = result.output.splitlines()
        assert lines[-1].startswith("Error: ")
        return lines[-1].removeprefix("Error: ")
