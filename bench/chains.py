"""Chains in one process, beside the loop that a careful person writes for each of them.

The loops give the very same elements: those of a shuffle take their order from the same function,
and a random operator draws from the element's own generator. They hold no state that a pass would
need to be resumed, and name nobody when they fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs
import numpy as np

import flowdsl as fl
from flowdsl import Flow, c0, c1
from flowdsl.nodes import generator, permute

Made: TypeAlias = list[Any]
Take: TypeAlias = Callable[[Any], object]
"""What the consumer does with an element."""

_WEIGHTS = np.random.default_rng(0).random((64, 64), np.float32)
_ROW = np.arange(64, dtype=np.float32)


def increment(i: int) -> int:
    return i + 1


def transform(i: int) -> np.ndarray[Any, Any]:
    """Some microseconds of NumPy."""
    made: np.ndarray[Any, Any] = np.maximum(_WEIGHTS @ (_ROW + i), 0)
    return made


@attrs.frozen
class Chain:
    """A flow over so many rows, and the loop that does the same."""

    name: str
    rows: int
    flow: Callable[[int], Flow[Any, Any]]
    loop: Callable[[int, Take], None]


def _maps(k: int) -> Callable[[int], Flow[Any, Any]]:
    def build(n: int) -> Flow[Any, Any]:
        flow: Flow[Any, Any] = fl.from_range(n)
        for _ in range(k):
            flow = flow.map(increment)
        return flow

    return build


def _loop_1(n: int, take: Take) -> None:
    for i in range(n):
        take(increment(i))


def _loop_2(n: int, take: Take) -> None:
    for i in range(n):
        x = increment(i)
        take(increment(x))


def _loop_4(n: int, take: Take) -> None:
    for i in range(n):
        x = increment(i)
        x = increment(x)
        x = increment(x)
        take(increment(x))


def _loop_8(n: int, take: Take) -> None:
    for i in range(n):
        x = increment(i)
        x = increment(x)
        x = increment(x)
        x = increment(x)
        x = increment(x)
        x = increment(x)
        x = increment(x)
        take(increment(x))


# A chain that grows by an operator of another kind each time.


def pair(i: int) -> tuple[np.ndarray[Any, Any], int]:
    return transform(i), i


def scaled(x: np.ndarray[Any, Any], label: int) -> tuple[np.ndarray[Any, Any], int]:
    return x * 0.5, label


def wanted(element: tuple[Any, int]) -> bool:
    return element[1] % 8 != 0


def jitter(x: tuple[int, Any], rng: np.random.Generator) -> tuple[int, Any]:
    return x[0], x[1] + rng.random(64, np.float32)


def negative(x: Any) -> Any:
    return -x


def grown(k: int) -> Callable[[int], Flow[Any, Any]]:
    def build(n: int) -> Flow[Any, Any]:
        flow: Any = fl.from_range(n)
        steps: list[Callable[[Any], Any]] = [
            lambda f: f.map(pair),
            lambda f: f.starmap(scaled),
            lambda f: f.select(c1, c0),
            lambda f: f.map_component(negative, 1),
            lambda f: f.shuffle(seed=3),
            lambda f: f.repeat(2),
            lambda f: f.random_map(jitter, seed=5),
            lambda f: f.batch(32),
        ]
        for step in steps[:k]:
            flow = step(flow)
        return flow  # type: ignore[no-any-return]  # the steps are of any types

    return build


def _grown_2(n: int, take: Take) -> None:
    for i in range(n):
        x, label = pair(i)
        take(scaled(x, label))


def _grown_4(n: int, take: Take) -> None:
    for i in range(n):
        x, label = pair(i)
        x, label = scaled(x, label)
        take((label, negative(x)))


def _order(n: int, epoch: int) -> list[int]:
    order: list[int] = permute(np.arange(n), n, f"3/5/{epoch}").tolist()
    return order


def _grown_6(n: int, take: Take) -> None:
    for epoch in range(2):
        for i in _order(n, epoch):
            x, label = pair(i)
            x, label = scaled(x, label)
            take((label, negative(x)))


def _grown_8(n: int, take: Take) -> None:
    rows: list[Any] = []
    position = 0
    for epoch in range(2):
        for i in _order(n, epoch):
            x, label = pair(i)
            x, label = scaled(x, label)
            rows.append(jitter((label, negative(x)), generator(5, 7, 0, position)))
            position += 1
            if len(rows) == 32:
                take((np.array([row[0] for row in rows]), np.stack([row[1] for row in rows])))
                rows = []
    if rows:
        take((np.array([row[0] for row in rows]), np.stack([row[1] for row in rows])))


def _filtered(n: int) -> Flow[Any, Any]:
    return fl.from_range(n).map(pair).filter(wanted)


def _loop_filtered(n: int, take: Take) -> None:
    for i in range(n):
        x = pair(i)
        if wanted(x):
            take(x)


def _batched(n: int) -> Flow[Any, Any]:
    return fl.from_range(n).map(increment).map(increment).batch(64)


def _loop_batched(n: int, take: Take) -> None:
    for begin in range(0, n, 64):
        take(np.array([increment(increment(i)) for i in range(begin, min(begin + 64, n))]))


def _rows(n: int) -> Flow[Any, Any]:
    return fl.from_range(n).map(transform).batch(64)


def _loop_rows(n: int, take: Take) -> None:
    for begin in range(0, n, 64):
        take(np.stack([transform(i) for i in range(begin, min(begin + 64, n))]))


CHAINS = [
    Chain("1 map, tiny", 100_000, _maps(1), _loop_1),
    Chain("2 maps, tiny", 100_000, _maps(2), _loop_2),
    Chain("4 maps, tiny", 50_000, _maps(4), _loop_4),
    Chain("8 maps, tiny", 50_000, _maps(8), _loop_8),
    Chain("2 maps and a batch of 64, tiny", 100_000, _batched, _loop_batched),
    Chain("a map and a batch of 64, NumPy", 50_000, _rows, _loop_rows),
    Chain("a map and a filter, NumPy", 50_000, _filtered, _loop_filtered),
    Chain("2 operators, NumPy", 50_000, grown(2), _grown_2),
    Chain("4 operators, NumPy", 50_000, grown(4), _grown_4),
    Chain("6 operators, NumPy", 20_000, grown(6), _grown_6),
    Chain("8 operators, NumPy", 5_000, grown(8), _grown_8),
]
