"""Runs the benches and says which targets are met: ``python -m bench --quick``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import attrs
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.contestants import CONTESTANTS
from bench.report import Figures, Verdict, table, verdicts
from bench.works import WORKS, spin

TURN_TIMEOUT = 400


@attrs.frozen
class Turn:
    """A process to run, and what its figures are called."""

    work: str
    contestant: str
    kind: str
    amount: float

    @property
    def command(self) -> list[str]:
        return ["-m", "bench.turn", self.work, self.contestant, self.kind, str(self.amount)]


@attrs.frozen
class Plan:
    """How much of it, and how often."""

    repetitions: int
    seconds: float
    """Of each turn, after it has warmed up."""
    works: list[str]
    sizes: list[int]
    parts: list[str]

    def turns(self, present: list[str], loops: int) -> Iterator[list[Turn]]:
        """Rounds of turns: in a round each contestant has one, so that all see the same machine."""
        for part in self.parts:
            if part in PARTS:
                yield from PARTS[part](self, present, loops)

    def _rates(self, present: list[str], loops: int) -> Iterator[list[Turn]]:
        works = self._possible
        of = {work: [n for n in present if CONTESTANTS[n].takes_part(work)] for work in works}
        for work in works:
            yield [Turn(work, name, "check", 50) for name in of[work]]
        for work in works:
            seconds = self.seconds * (3 if "cv2" in WORKS[work].needs else 1)
            for _ in range(self.repetitions):
                if work == "jpeg":
                    yield [Turn(work, "flowdsl", kind, seconds) for kind in ("alone", "limit")]
                yield [Turn(work, name, "rate", seconds) for name in of[work]]

    def _passes(self, present: list[str], loops: int) -> Iterator[list[Turn]]:
        orderly = [name for name in _of_all_works(present) if CONTESTANTS[name].orderly]
        for work in ("tiny", "fresh-uint8"):
            for _ in range(self.repetitions if work in self._possible else 0):
                yield [Turn(work, name, "whole", 400) for name in orderly]

    def _python(self, present: list[str], loops: int) -> Iterator[list[Turn]]:
        present, longer = _of_all_works(present), 3 * self.seconds  # batches come some at a time
        python = f"python:{loops}"
        for _ in range(self.repetitions):
            limit = Turn(python, "flowdsl", "limit", longer)
            yield [limit, *(Turn(python, name, "rate", longer) for name in present)]
        for _ in range(self.repetitions):
            yield [Turn(f"timed:{loops}", name, "busy", longer) for name in present]

    def _start(self, present: list[str], loops: int) -> Iterator[list[Turn]]:
        for _ in range(self.repetitions):
            yield [Turn("tiny", name, "first", 100) for name in _of_all_works(present)]
        for _ in range(self.repetitions):
            yield [Turn("tiny", "flowdsl", kind, 3) for kind in ("programs", "workers")]
            yield [Turn("tiny", "flowdsl", "idle", 4)]
            yield [Turn("fresh-uint8", "flowdsl", "faults", 300)]

    def _sizes(self, present: list[str], loops: int) -> Iterator[list[Turn]]:
        for _ in range(self.repetitions):
            yield [Turn("tiny", "flowdsl", "flat", size) for size in self.sizes]
        for _ in range(min(3, self.repetitions)):
            yield [Turn("tiny", "flowdsl", "memory", size) for size in (10**3, 10**7)]

    @property
    def _possible(self) -> list[str]:
        return [name for name in self.works if all(map(find_spec, WORKS[name].needs))]


def _of_all_works(present: list[str]) -> list[str]:
    return [name for name in present if CONTESTANTS[name].works is None]


PARTS: dict[str, Callable[[Plan, list[str], int], Iterator[list[Turn]]]] = {
    "rates": Plan._rates,
    "passes": Plan._passes,
    "python": Plan._python,
    "start": Plan._start,
    "sizes": Plan._sizes,
}
"""What is measured in turns; besides, ``chains`` in one process, and ``auto``."""

ALL = [*PARTS, "chains", "auto"]
FULL = Plan(5, 1.5, list(WORKS), [10**k for k in range(3, 8)], ALL)
QUICK = Plan(2, 0.4, ["tiny", "uint8"], [10**3, 10**7], ALL)


def run(plan: Plan, present: list[str], console: Console) -> tuple[Figures, list[str]]:
    """The figures of every turn by what they are of, and what went wrong."""
    loops = calibrated()
    rounds = list(plan.turns(present, loops))
    figures: Figures = {}
    trouble: list[str] = []
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    with bar:
        alone = [part for part in plan.parts if part not in PARTS]
        task = bar.add_task("", total=sum(map(len, rounds)) + len(alone))
        for turn in (turn for one in rounds for turn in one):
            bar.update(task, description=f"{turn.kind} {turn.work} {turn.contestant}")
            found = _answer(turn.command, trouble)
            for name, value in found.items():
                size = f" {turn.amount:.0f}" if turn.kind in ("flat", "memory") else ""
                key = f"{turn.kind} {turn.work.partition(':')[0]}{size} {name}"
                figures.setdefault(key, {}).setdefault(turn.contestant, []).append(value)
            bar.advance(task)
        if "chains" in alone:
            bar.update(task, description="chains in one process")
            repetitions = 3 if plan.repetitions < FULL.repetitions else 7
            for name, both in _answer(["-m", "bench.inline", str(repetitions)], trouble).items():
                figures[f"chain {name}"] = {who: [value] for who, value in both.items()}
            bar.advance(task)
        if "auto" in alone:
            bar.update(task, description="as many workers as pay")
            for name, rates in _answer(
                ["-m", "bench.auto", str(min(3, plan.repetitions))], trouble
            ).items():
                for number, each in rates.items():
                    figures[f"auto {name}: {number}"] = {"flowdsl": each}
            bar.advance(task)
    return figures, trouble


def calibrated() -> int:
    """How many turns of the loop take 200 µs here."""
    took: list[float] = []
    for _ in range(20):
        began = time.perf_counter()
        spin(10_000, 1)
        took.append(time.perf_counter() - began)
    return int(10_000 * 200e-6 / median(took))


def _answer(arguments: list[str], trouble: list[str]) -> dict[str, Any]:
    """What a process found: its last line of output is JSON."""
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            timeout=TURN_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        trouble.append(f"{' '.join(arguments[1:])}: no answer in {TURN_TIMEOUT} s")
        return {}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        trouble.append(f"{' '.join(arguments[1:])}: {last}")
        return {}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def facts() -> dict[str, object]:
    """The machine and versions that belong to the figures."""
    versions: dict[str, str] = {}
    for package in ("flowdsl", "numpy", "pyzmq", *{c.package for c in CONTESTANTS.values()}):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "versions": versions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Times flowdsl beside others, and against what it aims at.",
    )
    parser.add_argument("--quick", action="store_true", help="about a minute, to see that it runs")
    parser.add_argument("--only", nargs="*", help=f"contestants: {', '.join(CONTESTANTS)}")
    parser.add_argument("--works", nargs="*", choices=WORKS, help="of those, by default all")
    parser.add_argument("--parts", nargs="*", choices=ALL, help="of those, by default all")
    parser.add_argument("--out", type=Path, default=Path("out/bench.json"), help="the figures")
    chosen = parser.parse_args()
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    wanted = chosen.only or list(CONTESTANTS)
    present = [name for name in wanted if find_spec(CONTESTANTS[name].package) is not None]
    for name in wanted:
        if name not in present:
            console.print(f"{name} is left out: {CONTESTANTS[name].package} is not installed")
    plan = QUICK if chosen.quick else FULL
    plan = attrs.evolve(plan, works=chosen.works or plan.works, parts=chosen.parts or plan.parts)
    figures, trouble = run(plan, present, console)
    found: list[Verdict] = verdicts(figures)
    console.print(table(found, {name: CONTESTANTS[name].name for name in CONTESTANTS}))
    for line in trouble:
        console.print(f"failed: {line}", highlight=False)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "facts": facts(),
        "verdicts": [attrs.asdict(verdict) for verdict in found],
        "figures": figures,
        "trouble": trouble,
    }
    chosen.out.write_text(json.dumps(report, indent=1) + "\n")
    console.print(f"the figures are in {chosen.out}")


if __name__ == "__main__":
    main()
