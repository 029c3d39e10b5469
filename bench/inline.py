"""Chains in one process against hand-written loops: ``python -m bench.inline 7``, as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

import numpy as np

from bench.chains import CHAINS, Chain


def nothing(_: object) -> None:
    """What a consumer that takes no time does with an element."""


def through(chain: Chain, rows: int, take: Callable[[Any], object]) -> None:
    for x in chain.flow(rows):
        take(x)


def compare(chain: Chain, repetitions: int) -> dict[str, float]:
    """Nanoseconds of processor time a row, turn by turn, so that both see the same machine."""
    for_loop, for_flow = list[float](), list[float]()
    for _ in range(repetitions):
        for_loop.append(_timed(chain.loop, chain.rows, nothing))
        for_flow.append(_timed(through, chain, chain.rows, nothing))
    found = {"loop": median(for_loop), "flow": median(for_flow)}
    return {name: seconds / chain.rows * 1e9 for name, seconds in found.items()}


def check(chain: Chain, rows: int = 300) -> None:
    """Both give the same elements."""
    loop, flow = list[Any](), list[Any]()
    chain.loop(rows, loop.append)
    through(chain, rows, flow.append)
    if not same(loop, flow):
        raise SystemExit(f"{chain.name}: the loop gives other elements than the flow")


def same(one: Any, other: Any) -> bool:
    """Equal, arrays included."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        parts: Iterable[tuple[Any, Any]] = zip(one, other, strict=False)
        return len(one) == len(other) and all(same(a, b) for a, b in parts)
    return bool(np.array_equal(one, other))


def _timed(function: Callable[..., None], *args: Any) -> float:
    began = time.process_time()
    function(*args)
    return time.process_time() - began


def main(repetitions: int) -> None:
    found: dict[str, dict[str, float]] = {}
    for chain in CHAINS:
        check(chain)
        found[chain.name] = compare(chain, repetitions)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
