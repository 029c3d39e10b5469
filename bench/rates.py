"""Rates of contestants, each in a process of its own, and what flowdsl is of the others."""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import attrs
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

Pass: TypeAlias = Callable[[], Iterable[Any]]
"""Begins a pass over rows, or over batches or steps that each have equally many rows."""

Rates: TypeAlias = dict[str, dict[str, list[float]]]
"""By work and contestant: the rate of each round."""


@attrs.frozen
class Work:
    """What is timed, and who does it: of a name that ``needs`` has, if its package is there."""

    rows: int
    """In a pass."""
    contestants: dict[str, Callable[[], Pass]]
    goal: float = 1.0
    """Of flowdsl, as a ratio to the fastest other, or to ``of``."""
    of: str | None = None


def rate(work: Work, contestant: str, seconds: float) -> float:
    """Rows a second: whole passes until the time is up, after one that does not count."""
    begin = work.contestants[contestant]()
    counted = _count(begin())
    each = work.rows / counted  # rows, or batches
    for _ in itertools.islice(begin(), counted // 4):
        pass
    began, came = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < seconds:
        came += _count(begin())
    return came * each / took


def _count(rows: Iterable[Any]) -> int:
    count = 0
    for row in rows:
        del row  # before the next is made
        count += 1
    return count


def measured(
    module: str,
    works: Mapping[str, Work],
    needs: Mapping[str, str],
    rounds: int,
    seconds: float,
    console: Console,
) -> Rates:
    """The rates of each work and contestant, a turn in each round."""
    turns = [
        (name, who)
        for name, work in works.items()
        for who in work.contestants
        if find_spec(needs.get(who, "flowdsl")) is not None
    ]
    rates: Rates = {name: {} for name in works}
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=rounds * len(turns))
        for _ in range(rounds):
            for name, who in turns:
                progress.update(task, description=f"{name}: {who}")
                found = _turn(module, name, who, seconds, console)
                if found is not None:
                    rates[name].setdefault(who, []).append(found)
                progress.advance(task)
    return rates


def _turn(module: str, name: str, who: str, seconds: float, console: Console) -> float | None:
    command = [sys.executable, "-m", module, "--turn", name, who, str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        console.print(f"failed: {name}, {who}: {last}", highlight=False)
        return None
    return float(lines[-1])


def table(works: Mapping[str, Work], unit: str, rates: Rates) -> Table:
    """The medians, and what flowdsl is of the fastest other."""
    shown = Table("work", "who", f"{unit} a second", "flowdsl is", "goal")
    for name, by_who in rates.items():
        ours = median(by_who.get("flowdsl", [0.0]))
        work = works[name]
        for who, found in by_who.items():
            ratio = "" if who.startswith("flowdsl") else f"{ours / median(found):.2f} of it"
            goal = f"{work.goal}" if work.of == who else ""
            shown.add_row(name, who, f"{median(found):,.0f}", ratio, goal)
    return shown


def run(
    module: str,
    description: str | None,
    unit: str,
    works: Mapping[str, Work],
    needs: Mapping[str, str],
    out: Path,
) -> None:
    """The command line of a module of works."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each turn")
    parser.add_argument("--works", nargs="*", choices=list(works), default=list(works))
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--turn", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.turn:
        name, who, seconds = chosen.turn
        print(rate(works[name], who, float(seconds)))
        return
    console, some = Console(), {name: works[name] for name in chosen.works}
    rates = measured(module, some, needs, chosen.rounds, chosen.seconds, console)
    console.print(table(works, unit, rates))
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(rates, indent=1) + "\n")
