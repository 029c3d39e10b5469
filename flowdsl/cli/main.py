"""The commands of ``flowdsl``, and the exit status of errors."""

from __future__ import annotations

from typing import Any

import click

import flowdsl
from flowdsl.cli.benching import bench
from flowdsl.cli.checking import check
from flowdsl.cli.files import convert, inspect, with_options
from flowdsl.cli.looking import explain, head, measure, profile
from flowdsl.cli.targets import BadInput
from flowdsl.errors import FlowError, InvalidFlow, MissingLibrary, SourceError


class Commands(click.Group):
    """The commands: an error of flowdsl becomes a sentence and an exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FlowError as error:
            kind = BadInput if isinstance(error, _BAD_INPUT) else click.ClickException
            reads = ctx.invoked_subcommand in (inspect.name, convert.name)
            raise kind(with_options(str(error)) if reads else str(error)) from error


_BAD_INPUT = (InvalidFlow, MissingLibrary, SourceError)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(flowdsl.__version__, prog_name="flowdsl")
def main() -> None:
    """Check, explain and measure flows, and look into stored files.

    TARGET is FILE.py:FLOW or MODULE:FLOW; FLOW is a flow, or a function without arguments that
    returns one.
    """


for command in (check, explain, profile, measure, head, bench, inspect, convert):
    main.add_command(command)
