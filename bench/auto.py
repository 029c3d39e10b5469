"""``prefetch(procs="auto")`` beside each fixed number of workers: ``python -m bench.auto 3``.

Works that want different numbers. A rate is that of two seconds, of "auto" after the five in which
it is to settle; in each repetition every number has its turn, and a run of its own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Literal, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.resources.cores import cores

SETTLES, WARM, SECONDS = 5.0, 1.0, 2.0
Number: TypeAlias = int | Literal["auto"]


def computing(i: int) -> int:
    """A millisecond of Python."""
    x = i
    for _ in range(20_000):
        x = x * 3 & 0xFFFF
    return x


def light(i: int) -> int:
    """A tenth of a millisecond of Python."""
    x = i
    for _ in range(2_000):
        x = x * 3 & 0xFFFF
    return x


def waiting(i: int) -> int:
    """Four milliseconds of waiting, as for a disk or a network."""
    time.sleep(0.004)
    return i


@cache
def _large() -> NDArray[np.float64]:
    return np.ones(1 << 23)


def moving(i: int) -> float:
    """64 MB of memory read, and as many written."""
    return float((_large() * 2.0)[i % 100])


def at_once(i: int) -> None:
    """Takes what comes."""


def slowly(i: int) -> None:
    """A millisecond of a consumer's own work."""
    until = time.perf_counter() + 0.001
    while time.perf_counter() < until:
        pass


def in_bursts(i: int) -> None:
    """Takes 200 at once, and then nothing for a quarter of a second."""
    if i % 200 == 199:
        time.sleep(0.25)


@attrs.frozen
class Work:
    """Rows, and who takes them."""

    read: Callable[[int], object]
    take: Callable[[int], None] = at_once


WORKS = {
    "computing": Work(computing),
    "waiting": Work(waiting),
    "moving memory": Work(moving),
    "for a slow consumer": Work(light, slowly),
    "for one that takes bursts": Work(computing, in_bursts),
    "tiny": Work(abs),
}


def rate(work: Work, number: Number, warm: float) -> tuple[float, int]:
    """Rows a second, and the workers at the end."""
    with iter(fl.from_range(1 << 40).map(work.read).prefetch(procs=number)) as run:
        began = time.perf_counter()
        since, before = began, 0
        for i, _ in enumerate(run):
            work.take(i)
            if i % 1000 and work.read is abs:
                continue
            now = time.perf_counter()
            if not before and now - began > warm:
                since, before = now, i
            elif before and now - since > SECONDS:
                return (i - before) / (now - since), len(run.statistics().stages[-1].workers)
    raise AssertionError("the flow has no end")


def main(repetitions: int) -> dict[str, dict[str, list[float]]]:
    """By work, the rates of each number and of "auto", and the numbers that it came to."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, work in WORKS.items():
        of = found[name] = {"came to": []}
        for _ in range(repetitions):
            for number in range(1, cores() + 1):
                of.setdefault(str(number), []).append(rate(work, number, WARM)[0])
            auto, came_to = rate(work, "auto", SETTLES)
            of.setdefault("auto", []).append(auto)
            of["came to"].append(came_to)
    return found


if __name__ == "__main__":
    from bench.auto import main  # under its own name, by which workers import it

    print(json.dumps(main(int(sys.argv[1]))), flush=True)
