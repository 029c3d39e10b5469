"""The output of commands: aligned lines for a person, JSON for a script."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, TextIO

import click
import numpy as np

from flowdsl.cli.targets import BadInput
from flowdsl.nodes.validation import BriefRepr

_SMALL = 16
"""An array of at most this many entries is printed with its values."""


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option --json to a command; what the user's code prints goes to standard error."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        is_eager=True,  # before TARGET, which is imported
        callback=_json_alone,
        help="Print JSON, for scripts.",
    )(command)


def _json_alone(context: click.Context, option: click.Parameter, as_json: bool) -> bool:
    if as_json:
        context.meta[_OUTPUT] = context.with_resource(_output_for_json())
    return as_json


_OUTPUT = "flowdsl.cli.output"
"""The key of standard output in a context's ``meta``, while prints go to standard error."""


@contextmanager
def _output_for_json() -> Iterator[TextIO]:
    """Yield standard output, to which no other code prints: neither C code nor a worker."""
    output = sys.stdout
    with redirect_stdout(sys.stderr):
        try:
            number = output.fileno()
        except (OSError, ValueError):  # a file without a number, such as in a test
            yield output
            return
        output.flush()
        with open(os.dup(number), "w", encoding=output.encoding, errors=output.errors) as own:
            with suppress(OSError):  # standard error may be closed
                os.dup2(2, number)
            try:
                yield own
            finally:
                output.flush()
                own.flush()
                os.dup2(own.fileno(), number)


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    output = click.get_current_context().meta[_OUTPUT]
    click.echo(json.dumps(value, indent=2, ensure_ascii=False), file=output)


def print_lines(lines: Mapping[str, str]) -> None:
    """Print names and values in two columns."""
    width = max(map(len, lines))
    for name, value in lines.items():
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {value}")


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns: the second, a name, and the last, a remark, are left-aligned."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        cells = [
            cell.ljust(width) if k in (1, len(row) - 1) else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo(f"  {'  '.join(cells)}".rstrip())


class _ElementRepr(BriefRepr):
    """A brief ``repr`` that shows the values of small arrays."""

    def repr1(self, x: Any, level: int) -> str:
        text = super().repr1(x, level)
        if isinstance(x, np.ndarray) and x.size <= _SMALL:
            return f"{text} {x.tolist()}"
        return text


def element_text(element: object) -> str:
    """Return an element as one line, without the values of large arrays.

    >>> element_text((np.zeros((224, 224, 3), np.uint8), np.array([1, 2])))
    '(uint8[224, 224, 3], int64[2] [1, 2])'
    """
    return " ".join(_ElementRepr().repr(element).splitlines())


class OutputPath(click.Path):
    """A file to write at the end of a command: its folder is checked at the beginning."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        if not os.path.isdir(folder := os.path.dirname(os.fspath(path)) or "."):
            self.fail(f"the folder {folder!r} does not exist", param, ctx)
        return path


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Report a file that cannot be written as bad input."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{str(path)!r} cannot be written: {error.strerror}") from error
