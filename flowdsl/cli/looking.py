"""The commands that look at a flow: explain, profile, measure, head."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from shlex import quote

import click

from flowdsl.cli.printing import OutputPath, element_text, json_option, print_json, writing
from flowdsl.cli.targets import Target, target_argument
from flowdsl.plan.lower import plan_of
from flowdsl.report.bottleneck import verdict
from flowdsl.report.diagram import diagram_of
from flowdsl.report.picture import picture
from flowdsl.statistics.speed import measure as speed_of

_IN_A_PROGRAM = "flow.profile(step=...)"
"""The advice of a verdict where only a profile shows more, as a program takes it."""

SVG = OutputPath(dir_okay=False, writable=True, path_type=Path)


@click.command()
@target_argument
@click.option("--svg", type=SVG, help="Write the plan as a picture to this file.")
def explain(target: Target, svg: Path | None) -> None:
    """Print the plan of a flow: what will run, where, and what it promises."""
    if svg is None:
        click.echo(target.flow.explain())
    else:
        drawn = picture(diagram_of(plan_of(target.flow.node))).svg()
        with writing(svg):
            svg.write_text(drawn, encoding="utf-8")


@click.command()
@target_argument
@click.option("--seconds", default=3.0, show_default=True, help="Run the flow for this long.")
@click.option("-n", "--size", type=click.IntRange(1), help="Run passes of this many elements.")
@click.option("--save", type=SVG, help="Write a picture with the figures: .svg or .html.")
def profile(target: Target, seconds: float, size: int | None, save: Path | None) -> None:
    """Run a flow with every operator timed, and say what limits it."""
    if save is not None and save.suffix not in (".svg", ".html"):
        raise click.UsageError(f"--save must end in .svg or .html, got {str(save)!r}")
    flow = target.flow if size is None else target.flow.take(size)
    found = flow.profile(seconds)
    click.echo(str(found))
    if save is not None:
        with writing(save):
            found.save(save)


@click.command()
@target_argument
@click.option("-n", "--size", default=5000, show_default=True, help="Time this many elements.")
@click.option("--warmup", default=0, show_default=True, help="Run this many before them.")
@json_option
def measure(target: Target, size: int, warmup: int, as_json: bool) -> None:
    """Time the elements of a flow, with a verdict and a table of its stages.

    The first rate is of the timed elements. The verdict and the table are of the whole run, which
    also takes the time to start it, to warm up and to count the bytes of elements.
    """
    if size < 1 or warmup < 0:
        raise click.UsageError("--size must be at least 1, and --warmup at least 0")
    with iter(target.flow) as run:
        speed = speed_of(run, size, warmup)
        statistics = run.statistics()
    limit = verdict(statistics)
    found = str(limit).replace(_IN_A_PROGRAM, f"`flowdsl profile {quote(target.name)}`")
    also = ", the warmup" if warmup else ""
    whole = f"The whole run, with its start{also} and the counting of bytes"
    if as_json:
        print_json(
            {
                "elements": speed.elements,
                "seconds": speed.seconds,
                "elements_per_second": speed.rate,
                "bytes_per_second": speed.bandwidth,
                "limiting": limit.limiting,
                "verdict": f"{whole}: {found}",
                "whole_run": {
                    "elements": statistics.elements,
                    "seconds": statistics.seconds,
                    "elements_per_second": statistics.rate,
                },
            }
        )
    else:
        click.echo(f"{speed}\n{whole}:\n{found}\n\n{statistics}")


@click.command()
@target_argument
@click.option(
    "-n",
    "--size",
    "count",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="Print this many elements.",
)
def head(target: Target, count: int) -> None:
    """Print the first elements of a flow; large arrays by dtype and shape."""
    shown = 0
    with iter(target.flow) as run:
        for element in islice(run, count):
            click.echo(element_text(element))
            shown += 1
    if count and not shown:
        click.echo("no elements", err=True)
