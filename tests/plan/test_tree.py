"""Walking and rebuilding trees, and the operators that a worker can run."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest

import flowdsl as fl
from flowdsl import Flow
from flowdsl.nodes import AnyNode, with_sources
from flowdsl.plan.lower import plan_of
from flowdsl.plan.tree import (
    Step,
    bases_of,
    rewrite,
    rows_sent,
    runs_in_worker,
    steps_of,
    walk,
)
from tests.nodes.test_base import Joined, Plain

RANGE = fl.from_range(6).node
ITEMS = fl.from_items([1, 2, 3]).node
STREAM = fl.from_iterable([1, 2]).node


def titles(node: AnyNode) -> list[str]:
    return [part.title for part in walk(node)]


class TestSteps:
    def test_steps_are_numbered_in_order_with_their_depth(self) -> None:
        inner = fl.from_range(9).map(abs).zip(fl.from_range(9))
        seen = list(walk(steps_of(fl.from_range(9).zip(inner).prefetch(procs=2).node)))
        assert [step.number for step in seen] == [1, 2, 3, 4, 5, 6, 0]
        assert [step.depth for step in seen] == [0, 1, 1, 2, 1, 0, 0]

    def test_steps_mirror_their_nodes(self) -> None:
        node = fl.from_range(9).zip(fl.from_range(9).map(abs)).batch(2, collate=list).node
        step = steps_of(node)
        assert [one.node for one in walk(step)] == list(walk(node))
        assert [one.node for one in step.sources[0].sources] == list(step.sources[0].node.sources)

    def test_steps_keep_their_number_over_other_sources(self) -> None:
        step = steps_of(fl.from_range(9).map(abs).take(3).node)
        moved = step.with_sources(*step.sources[0].sources)
        assert (moved.number, moved.node.sources) == (3, (step.sources[0].sources[0].node,))

    def test_steps_over_the_same_sources_are_unchanged(self) -> None:
        step = steps_of(fl.from_range(9).map(abs).node)
        assert step.with_sources(*step.sources) is step

    def test_steps_are_found_by_their_path(self) -> None:
        step = steps_of(fl.from_range(9).zip(fl.from_range(9).map(abs)).node)
        assert step.at(()) is step
        assert step.at((1, 0)).number == 2


class TestWithSources:
    def test_with_sources_keeps_the_arguments(self) -> None:
        node = fl.from_range(6).batch(4, drop_remainder=True).node
        assert with_sources(node, (ITEMS,)) == attrs.evolve(node, source=ITEMS)  # type: ignore[call-arg]  # of a Batch

    def test_with_the_same_sources_the_node_is_unchanged(self) -> None:
        node = Joined(RANGE, (ITEMS,))
        assert with_sources(node, (RANGE, ITEMS)) is node

    def test_with_sources_fills_fields_and_tuples_in_order(self) -> None:
        node = Joined(RANGE, (RANGE, RANGE), 7)
        assert with_sources(node, (ITEMS, STREAM, RANGE)) == Joined(ITEMS, (STREAM, RANGE), 7)

    def test_with_sources_requires_the_same_number(self) -> None:
        with pytest.raises(ValueError, match="zip"):
            with_sources(Joined(RANGE, (ITEMS,)), (RANGE,))


def test_walk_visits_sources_first() -> None:
    node = Joined(fl.from_range(6).map(str).node, (ITEMS, STREAM))
    assert titles(node) == [
        "from_range(6)",
        "map(str)",
        "from_items(3 items)",
        "from_iterable(list)",
        "joined(1)",
    ]


class TestRewrite:
    def test_rewrite_changes_every_node_after_its_sources(self) -> None:
        seen: list[str] = []

        def note(step: Step) -> Step:
            seen.append(step.node.title)
            return steps_of(ITEMS) if step.node is RANGE else step

        node = Joined(Plain(RANGE), (RANGE,))
        assert rewrite(steps_of(node), note).node == Joined(Plain(ITEMS), (ITEMS,))
        assert seen == ["from_range(6)", "plain()", "from_range(6)", "joined(1)"]

    def test_rewrite_without_a_change_returns_the_same_step(self) -> None:
        step = steps_of(Joined(Plain(RANGE), (STREAM,)))
        assert rewrite(step, lambda part: part) is step


def _keeps(x: Any) -> bool:
    return True


CASES: list[tuple[Flow[Any, Any], bool, str | None]] = [
    # a flow, whether a worker can run its last operator, and what only this process can make of it
    (fl.from_range(6), True, None),
    (fl.from_range(6).map(str), True, None),
    (fl.from_range(6).filter(_keeps), True, None),
    (fl.from_range(6).shuffle().map(str).repeat(), True, None),
    (fl.from_range(6).batch(2), True, None),
    (fl.from_range(6).filter(_keeps).batch(2), False, "batch(2)"),
    (fl.from_range(6).filter(_keeps).map(str), True, None),
    (fl.from_range(6).filter(_keeps).take(3), False, "take(3)"),
    (fl.from_range(6).filter(_keeps).take(3).batch(2), False, "batch(2)"),
    (fl.from_range(6).filter(_keeps).prefetch(0).batch(2), False, "batch(2)"),
    (fl.from_range(6).filter(_keeps).shuffle(2).batch(2), True, "shuffle(buffer=2)"),
    (fl.from_range(6).filter(_keeps).repeat(2).batch(2), True, "repeat(2)"),
    (fl.from_range(6).filter(_keeps).batch(2).map(len).batch(2), True, "batch(2)"),
    (fl.from_range(6).shuffle(2), False, "shuffle(buffer=2)"),
    (fl.from_range(6).shuffle(2).map(str), True, "shuffle(buffer=2)"),
    (fl.from_items([1]), True, "from_items(1 items)"),
    (fl.from_items([1]).map(str), True, "from_items(1 items)"),
    (fl.from_items([1]).shuffle().take(3).batch(2), True, "take(3)"),
    (fl.from_items([1]).map(str).shuffle(), True, "from_items(1 items)"),
    (fl.from_iterable([1]), False, "from_iterable(list)"),
    (fl.from_iterable([1]).batch(2), True, "from_iterable(list)"),
    (fl.from_iterable([1]).repeat().batch(2), True, "repeat()"),
    (fl.from_range(6).prefetch(0), True, "prefetch(procs=0)"),
]


@pytest.mark.parametrize(
    ("flow", "runs", "base"),
    CASES,
    ids=lambda value: " ".join(titles(value.node)) if isinstance(value, Flow) else "",
)
def test_operators_that_a_worker_can_run(
    flow: Flow[Any, Any], runs: bool, base: str | None
) -> None:
    assert runs_in_worker(flow.node) is runs
    step = steps_of(flow.node)
    found = bases_of(step)
    assert [part.node.title for part in found] == ([] if base is None else [base])
    assert all(part in list(walk(step)) for part in found)


items, numbers = fl.from_items([1, 2, 3, 4]), fl.from_range(4)


@pytest.mark.parametrize(
    ("flow", "rows"),
    [
        (numbers.shuffle(seed=1).map(abs).batch(2), 0),
        (items.shuffle(seed=1).map(abs).batch(2), 2),
        (fl.from_iterable([1, 2, 3, 4]).map(abs).batch(4), 4),
        (items.zip(items).batch(2), 2),  # pairs are sent
        (items.map(abs).zip(items, numbers).batch(2), 4),
        (items.map(abs).concat(numbers).batch(2), 2),
        (items.shuffle(buffer=2, seed=1), 1),
    ],
)
def test_rows_in_memory_are_sent_to_workers(flow: Flow[Any, Any], rows: int) -> None:
    assert rows_sent(steps_of(flow.node)) == rows


arrays, table = np.arange(4), pa.table({"x": [1, 2, 3, 4]})


@pytest.mark.parametrize(
    ("source", "shared"),
    [
        (fl.from_items(arrays), True),
        (fl.from_items((arrays, {"y": arrays})), True),
        (fl.from_items(table), True),
        (fl.from_items([1, 2, 3, 4]), False),  # as any sequence, whose code may need one thread
    ],
)
def test_threads_read_arrays_in_memory_by_themselves(source: Flow[Any, Any], shared: bool) -> None:
    for flow in (source, source.shuffle(seed=1), source.map(str).zip(numbers)):
        step = steps_of(flow.batch(2).node)
        assert bases_of(step)
        assert (bases_of(step, by_threads=True) == ()) is shared
    (stage,) = plan_of(source.shuffle(seed=1).batch(2).prefetch(threads=2).node).stages
    assert (stage.bases == ()) is shared
    (stage,) = plan_of(source.shuffle(seed=1).batch(2).prefetch(procs=2).node).stages
    assert stage.bases
