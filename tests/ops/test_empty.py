"""Flows without elements: what arithmetic makes empty is empty, and not an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl import Endless, InvalidFlow, Unsized

SOME: Any = fl.from_range(3)
EMPTY: Any = fl.from_items([])
ENDLESS: Any = SOME.repeat()
STREAM: Any = fl.from_iterable([1, 2])

CASES: dict[str, Callable[[], Any]] = {
    "from_items([])": lambda: EMPTY,
    "from_items(no rows)": lambda: fl.from_items(np.zeros((0, 3))),
    "from_items(columns without rows)": lambda: fl.from_items({"x": np.zeros(0)}),
    "from_range(0)": lambda: fl.from_range(0),
    "from_iterable([])": lambda: fl.from_iterable([]),
    "from_dataset([])": lambda: fl.from_dataset([]),
    "fake(size=0)": lambda: fl.fake([(2,)], size=0),
    "take(0)": lambda: SOME.take(0),
    "take(0) of an endless flow": lambda: ENDLESS.take(0),
    "skip": lambda: SOME.skip(5),
    "repeat(0)": lambda: SOME.repeat(0),
    "repeat(np.int64(0))": lambda: SOME.repeat(np.int64(0)),
    "repeat(0) of an endless flow": lambda: ENDLESS.repeat(0),
    "repeat(0) of a stream": lambda: STREAM.repeat(0),
    "repeat(0) of an empty flow": lambda: EMPTY.repeat(0),
    "repeat_each(0)": lambda: SOME.repeat_each(0),
    "repeat_each(0) of an endless flow": lambda: ENDLESS.repeat_each(0),
    "a slice": lambda: SOME[2:2],
    "a slice with negative numbers": lambda: SOME[-1:-3],
    "a slice of an empty flow": lambda: EMPTY[::-2],
    "select_rows([])": lambda: SOME.select_rows([]),
    "sample(0)": lambda: SOME.sample(0),
    "fixed_size(0)": lambda: EMPTY.fixed_size(0),
    "shard of fewer rows than shards": lambda: fl.from_range(1).shard(3, 2),
    "shard, even": lambda: fl.from_range(2).shard(3, 0, even="drop"),
    "shard, padded": lambda: fl.from_range(0).shard(3, 0, even="pad"),
    "batch": lambda: EMPTY.batch(2),
    "batch, filled": lambda: EMPTY.batch(2, remainder="fill"),
    "batch without the remainder": lambda: fl.from_range(1).batch(2, drop_remainder=True),
    "padded_batch": lambda: EMPTY.padded_batch(2),
    "batch_by_shape": lambda: EMPTY.batch_by_shape(2, abs),
    "unbatch": lambda: EMPTY.batch(2).unbatch(),
    "window": lambda: fl.from_range(1).window(2),
    "pack": lambda: EMPTY.pack(3),
    "shuffle": lambda: EMPTY.shuffle(),
    "shuffle(block)": lambda: EMPTY.shuffle(block=3),
    "shuffle(buffer)": lambda: EMPTY.shuffle(3),
    "cache": lambda: EMPTY.cache(),
    "zip": lambda: EMPTY.zip(EMPTY),
    "concat": lambda: EMPTY.concat(EMPTY),
    "interleave": lambda: EMPTY.interleave(EMPTY),
    "choose": lambda: EMPTY.choose(EMPTY),
    "mix": lambda: EMPTY.mix(EMPTY),
    "map": lambda: EMPTY.map(abs).filter(bool).enumerate(),
    "augment": lambda: EMPTY.augment(np.flip),
    "replicate": lambda: EMPTY.replicate(2),
    "threads": lambda: EMPTY.map(abs).prefetch(threads=2),
    "on_error": lambda: EMPTY.map(abs).prefetch(threads=2, on_error="skip"),
}


@pytest.mark.parametrize("case", CASES)
def test_an_empty_flow_has_an_empty_pass(case: str) -> None:
    flow = CASES[case]()
    assert Endless not in flow.effects
    assert [list(run) for run in flow.epochs(2)] == [[], []]
    assert [*flow.node.reference(0)] == []
    assert flow.node.length == (None if Unsized in flow.effects else 0)
    assert flow.explain()
    assert list(flow.resume(iter(flow).state_dict())) == []
    with pytest.raises(IndexError, match=r"position 0 is beyond the (0|fewer) elements"):
        flow.at(0)


def test_workers_run_an_empty_flow() -> None:
    assert EMPTY.map(abs).batch(2).prefetch(procs=2).collect() == []


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: EMPTY.repeat(), "^repeat: its source has no elements, so repeating it without e"),
        (lambda: EMPTY.fixed_size(2), "^fixed_size: its source has no elements, so it can never"),
        (lambda: EMPTY.sample(2), r"^sample: n is 2, and from_items\(0 items\) has 0 element"),
        (lambda: EMPTY.choose(SOME, stop="all"), "^choose: .* would begin again without end"),
        (lambda: fl.from_range(1).split(0.5), "^split: .* each needs at least one row"),
        (lambda: SOME.batch(0), "^batch: n must be an int >= 1"),
    ],
)
def test_elements_that_cannot_exist_are_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidFlow, match=message):
        build()
