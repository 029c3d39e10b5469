"""Random pipelines with random faults: ``python -m tests.chaos --pipelines 10000 --seed 0``.

Most have workers that are threads, which speak the whole protocol and die as processes do; one in
``--real-every`` has real processes. A failure prints the seed that shows it again.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
import time
import traceback

import attrs
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.chaos.cases import case_of
from tests.chaos.trials import Tally, try_case


def main() -> int:
    """Run the requested number, or as many as time allows; return 1 if one failed."""
    asked = _arguments().parse_args()
    tally, console = Tally(), Console(file=sys.stderr)
    deadline = time.monotonic() + 60 * asked.minutes
    began = time.monotonic()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:.1f}/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("chaos", total=asked.pipelines, rate=0.0)
        for number in range(asked.seed, asked.seed + asked.pipelines):
            if time.monotonic() > deadline:
                break
            if number % 100 == 0:  # a trial collects garbage, and would search libraries each time
                gc.collect()
                gc.freeze()
            real = asked.real or (asked.real_every > 0 and number % asked.real_every == 0)
            case = case_of(number)
            try:
                with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
                    try_case(case, tally, real=real)  # inspect() prints
            except Exception:
                progress.stop()
                again = f"python -m tests.chaos --pipelines 1 --seed {number}{' --real' * real}"
                print(f"{traceback.format_exc()}\n{case}\n\nThis shows it again: {again}")
                return 1
            rate = tally.pipelines / (time.monotonic() - began)
            progress.update(task, advance=1, rate=rate)
            if not console.is_terminal and tally.pipelines % 500 == 0:
                console.print(f"{tally.pipelines} pipelines, {rate:.1f} a second")
    _summary(console, tally, time.monotonic() - began)
    return 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--pipelines", type=int, default=10_000, help="how many, at most")
    parser.add_argument("--seed", type=int, default=0, help="of the first; each has the next one")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long, at most")
    parser.add_argument("--real-every", type=int, default=40, help="one in so many has processes")
    parser.add_argument("--real", action="store_true", help="all have processes")
    return parser


def _summary(console: Console, tally: Tally, seconds: float) -> None:
    table = Table("of", "count", title="chaos")
    for name, count in attrs.asdict(tally).items():
        table.add_row(name.replace("_", " "), f"{count:,}")
    table.add_row("pipelines a second", f"{tally.pipelines / seconds:.1f}")
    console.print(table)
    console.print("Every one gave its reference, balanced its books, and left nothing behind.")


if __name__ == "__main__":
    sys.exit(main())
