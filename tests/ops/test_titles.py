"""Titles of operators: as written in the chain, without default arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl.errors import InvalidFlow, StateMismatch
from tests.functions import Light

ROWS: Any = fl.from_range(4)
STREAM: Any = fl.from_iterable(lambda: iter([1])).shuffle(2)
PAIRS: Any = ROWS.map(lambda i: (i, i))
IMAGES: Any = fl.from_items([(np.zeros((2, 2)), np.zeros((2, 2)))] * 4)

CASES: dict[str, Any] = {
    "shuffle()": lambda: ROWS.shuffle(),
    "shuffle(seed=1)": lambda: ROWS.shuffle(seed=1),
    "shuffle(buffer=3)": lambda: ROWS.shuffle(3),
    "shuffle(buffer=3, seed=1)": lambda: ROWS.shuffle(3, seed=1),
    "shuffle(reshuffle=False)": lambda: ROWS.shuffle(reshuffle=False),
    "shuffle(buffer=3, reshuffle=False)": lambda: ROWS.shuffle(3, reshuffle=False),
    "random_map(max)": lambda: ROWS.random_map(max),
    "random_map(max, seed=1)": lambda: ROWS.random_map(max, seed=1),
    "enumerate()": lambda: ROWS.enumerate(),
    "enumerate(start=1)": lambda: ROWS.enumerate(1),
    "map_component(str)": lambda: PAIRS.map_component(str),
    "map_component(str, 1)": lambda: PAIRS.map_component(str, 1),
    "map_component(str, -1)": lambda: PAIRS.map_component(str, -1),
    "augment(flip)": lambda: IMAGES.augment(np.flip),
    "augment([flip, rot90], images=1, seed=1)": lambda: IMAGES.augment(
        [np.flip, np.rot90], images=fl.c1, seed=1
    ),
    "augment(Light, images=(0, 1), copy=False)": lambda: IMAGES.augment(
        Light(), images=(0, 1), copy=False
    ),
    "augment(Light, masks=1)": lambda: IMAGES.augment(Light(), masks=1),
    "augment(Light, points=1)": lambda: IMAGES.augment(Light(), points=[1]),
    "choose(...)": lambda: ROWS.choose(ROWS),
    "choose(..., seed=2)": lambda: ROWS.choose(ROWS, seed=2),
    "choose(..., stop='first')": lambda: ROWS.choose(ROWS, stop="first"),
    "choose(..., weights=[1, 2])": lambda: ROWS.choose(ROWS, weights=[1, 2]),
    "mix(...)": lambda: ROWS.mix(ROWS),
    "mix(..., seed=2)": lambda: ROWS.mix(ROWS, seed=2),
    "inspect()": lambda: ROWS.inspect(),
    "inspect(2, name='a')": lambda: ROWS.inspect(2, name="a"),
    "prefetch(threads=1)": lambda: ROWS.prefetch(),
    "prefetch(procs=0)": lambda: ROWS.prefetch(0),
    "prefetch(procs=2)": lambda: ROWS.prefetch(2),
    "prefetch(threads=2, memory=9)": lambda: ROWS.prefetch(threads=2, memory=9),
    "fake([(2,)])": lambda: fl.fake([(2,)]),
    "fake([(2,)], 9, random=False, seed=3)": lambda: fl.fake([(2,)], 9, random=False, seed=3),
    "padded_batch(2)": lambda: ROWS.padded_batch(2),
    "[::2]": lambda: ROWS[::2],
    "[::-1]": lambda: ROWS[::-1],
    "select_rows(2 positions)": lambda: ROWS[[3, 1]],
    "sample(3)": lambda: ROWS.sample(3),
    "sample(3, weights=[4 numbers], replacement=False, seed=1)": lambda: ROWS.sample(
        3, [1, 1, 1, 1], replacement=False, seed=1
    ),
    "scan(max)": lambda: ROWS.scan(max, 0),
    "take_while(bool)": lambda: ROWS.take_while(bool),
    "skip_while(bool)": lambda: ROWS.skip_while(bool),
    "window(2)": lambda: ROWS.window(2),
    "window(2, stride=3, dilation=4, remainder='fill', key=len)": lambda: ROWS.window(
        2, 3, dilation=4, remainder="fill", key=len
    ),
    "fixed_size(2)": lambda: ROWS.fixed_size(2),
}


@pytest.mark.parametrize("title", CASES)
def test_titles_are_as_written_in_the_chain(title: str) -> None:
    flow = CASES[title]()
    assert flow.node.title == title


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ROWS.shuffle(), ROWS.shuffle(seed=1)),
        (ROWS.shuffle(2), ROWS.shuffle(2, seed=1)),
        (ROWS.random_map(max), ROWS.random_map(max, seed=1)),
        (ROWS.enumerate(), ROWS.enumerate(1)),
        (ROWS.choose(ROWS), ROWS.choose(ROWS, seed=1)),
        (ROWS.choose(ROWS), ROWS.choose(ROWS, weights=[1, 2])),
        (ROWS.mix(ROWS), ROWS.mix(ROWS, seed=1)),
        (fl.fake([(2,)]), fl.fake([(2,)], seed=1)),
        (fl.fake([(2,)]), fl.fake([(2,)], 999)),
        (IMAGES.augment(np.flip), IMAGES.augment(np.flip, seed=1)),
        (IMAGES.augment(np.flip), IMAGES.augment(np.flip, images=1)),
        (PAIRS.map_component(str), PAIRS.map_component(str, 1)),
    ],
)
def test_a_state_distinguishes_titles(one: Any, other: Any) -> None:
    for a, b in ((one, other), (other, one)):
        state = iter(a).state_dict()
        a.resume(state)
        with pytest.raises(StateMismatch):
            b.resume(state)


@pytest.mark.parametrize("build", [lambda: ROWS.zip(ROWS.shuffle()), lambda: ROWS.mix(STREAM)])
def test_errors_do_not_show_default_arguments(build: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        build()
    assert "seed" not in str(caught.value)
