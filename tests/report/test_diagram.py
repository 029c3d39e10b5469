from __future__ import annotations

from typing import Any

import attrs
import pytest

import flowdsl as fl
from flowdsl import Flow
from flowdsl.plan.lower import plan_of
from flowdsl.report.diagram import Box, diagram_of
from flowdsl.runtime.run import Run
from flowdsl.statistics.stages import OperatorCost, StageStatistics
from tests.report.books import run, stage


def double(i: int) -> int:
    return 2 * i


def odd(i: int) -> bool:
    return i % 2 == 1


def words() -> Any:
    return iter(range(50))


def boxes(box: Box) -> list[Box]:
    return [one for source in box.sources for one in boxes(source)] + [box]


def drawn(flow: Flow[Any, Any]) -> list[tuple[str, list[str]]]:
    return [
        (box.where, [line.title for line in box.operators])
        for box in boxes(diagram_of(plan_of(flow.node)).root)
    ]


def test_operators_that_run_together_are_in_a_box() -> None:
    flow: Flow[Any, Any] = fl.from_range(50).map(double).filter(odd).batch(8).prefetch(procs=2)
    assert drawn(flow) == [
        ("2 worker processes", ["from_range(50)", "map(double)", "filter(odd)"]),
        ("this process", ["batch(8)"]),
    ]


def test_operators_that_supply_workers_have_their_own_box() -> None:
    flow = fl.from_iterable(words).shuffle(8).map(double).prefetch(threads=1).map(double)
    assert drawn(flow) == [
        ("this process, read ahead", ["from_iterable(words)", "shuffle(buffer=8)"]),
        ("1 thread", ["map(double)"]),
        ("this process", ["map(double)"]),
    ]
    supplied = diagram_of(plan_of(flow.node)).root.sources[0]
    assert supplied.receives == "elements"
    assert diagram_of(plan_of(fl.from_range(9).prefetch(procs=1).node)).root.receives == "positions"


def test_without_workers_there_is_one_box() -> None:
    flow = fl.from_range(9).map(double).flat_map(lambda i: [i]).map(double).zip(fl.from_range(9))
    ((where, titles),) = drawn(flow)
    assert where == "this process"
    assert titles == [
        "from_range(9)",
        "map(double)",
        "flat_map(<lambda>)",
        "map(double)",
        "from_range(9)",
        "zip(...)",
    ]
    depths = [line.depth for line in diagram_of(plan_of(flow.node)).root.operators]
    assert depths == [0, 0, 0, 0, 1, 0]


def test_prefetch_is_shown_by_the_box_and_not_as_an_operator() -> None:
    flow = fl.from_range(9).map(double).prefetch(procs=2, ordered=False)
    assert drawn(flow) == [
        ("2 worker processes, in any order", ["from_range(9)", "map(double)"]),
    ]


def test_branches_are_drawn_as_sources() -> None:
    rows = fl.from_items(range(50)).map(double)
    flow = fl.from_range(50).map(double).concat(rows).prefetch(procs=2)
    mixed = flow.choose(fl.from_range(50).filter(odd).prefetch(procs=2)).batch(8)
    root = diagram_of(plan_of(mixed.prefetch(procs=4).node)).root
    assert [line.title for line in root.operators] == ["batch(8)"]
    (choosing,) = root.sources
    assert [source.where for source in choosing.sources] == ["2 worker processes"] * 2
    assert [one.where for one in choosing.sources[0].sources] == ["this process"]


def test_copies_are_drawn_once() -> None:
    flow = fl.from_iterable(words).map(double).replicate(3).batch(2)
    assert drawn(flow) == [
        ("3 worker processes, a copy each", ["from_iterable(words)", "map(double)"]),
        ("this process", ["replicate(procs=3)", "batch(2)"]),
    ]


def test_notes_show_effects_and_length() -> None:
    flow = fl.from_range(5000).shuffle().filter(odd).repeat()
    notes = [line.note for line in diagram_of(plan_of(flow.node)).root.operators]
    assert notes[0] == "Exact · 5,000"
    assert notes[1] == "Reordered · 5,000"
    assert notes[-1].endswith("Endless")


STAGED: list[Flow[Any, Any]] = [
    fl.from_range(50).map(double),
    fl.from_range(50).map(double).flat_map(lambda i: [i]),
    fl.from_iterable(words).map(double).batch(2),
    fl.from_iterable(words).map(double).prefetch(threads=1).map(double),
    fl.from_range(50).prefetch(threads=1).shuffle(4).map(double).prefetch(threads=1),
    fl.from_range(50).map(double).zip(fl.from_range(50).prefetch(threads=1)),
    fl.from_range(50).prefetch(threads=1).choose(fl.from_range(50).filter(odd)).batch(2),
    fl.from_items(range(50)).map(double).prefetch(threads=1),
    fl.from_iterable(words).replicate(2).shuffle(4).map(double).prefetch(threads=1),
]


@pytest.mark.parametrize("flow", STAGED, ids=repr)
def test_the_stages_match_the_statistics_of_a_run(flow: Flow[Any, Any]) -> None:
    """In the same order, with hosted operators between them."""
    with iter(flow) as running:
        next(running)
        seen = running.statistics()
    plan = diagram_of(plan_of(flow.node))
    numbers = [number for one in plan.entries if isinstance(one, tuple) for number in one]
    assert numbers == list(range(len(seen.stages)))
    lines = [line for box in boxes(plan.root) for line in box.operators]
    titles = [line.title for line in sorted(lines, key=lambda line: line.entry or 0)]
    whole = plan.arrange(seen).stages
    looked_up = [line.title for line in lines if line.entry is None]  # in memory: none of a stage
    assert [title for one in whole for title in one.operators] == titles[len(looked_up) :]
    for one, shown in zip(plan.entries, whole, strict=True):
        if isinstance(one, tuple):
            assert shown.operators[-1] in seen.stages[one[0]].operators


def test_copies_are_shown_as_one_stage() -> None:
    copies = [
        attrs.evolve(stage("map(f)", busy=(busy,), copies="passes"), delivered=n)
        for busy, n in ((3.0, 10), (5.0, 20), (4.0, 30))
    ]
    flow = fl.from_iterable(words).map(double).replicate(3).batch(2)
    first, last = diagram_of(plan_of(flow.node)).arrange(run(*copies)).stages
    assert first.operators == ("from_iterable(words)", "map(double)")
    assert [worker.busy for worker in first.workers] == [3.0, 5.0, 4.0]
    assert (first.delivered, first.copies) == (60, "passes")
    assert last.operators == ("replicate(procs=3)", "batch(2)")


def test_operators_with_the_same_title_keep_their_own_costs() -> None:
    flow = fl.from_iterable(words).flat_map(lambda x: [x]).map(double).prefetch(procs=1)
    flow = flow.flat_map(lambda x: [x])
    diagram = diagram_of(plan_of(flow.node))
    shown = run(stage("map(double)", busy=(1.0,)))
    costs = (
        OperatorCost("from_iterable(words)", 9, 0.1, step=1),
        OperatorCost("flat_map(<lambda>)", 9, 0.2, step=2),
        OperatorCost("flat_map(<lambda>)", 9, 4.0, step=4),
    )
    stages = diagram.arrange(attrs.evolve(shown, hosted=costs)).stages
    assert [one.operators for one in stages] == [
        ("from_iterable(words)", "flat_map(<lambda>)"),
        ("map(double)",),
        ("flat_map(<lambda>)",),
    ]
    assert [one.costs for one in stages] == [costs[:2], (), costs[2:]]


def test_a_run_distinguishes_operators_with_the_same_title() -> None:
    flow = fl.from_iterable(words).flat_map(lambda x: [x]).shuffle(3).flat_map(lambda x: [x])
    with Run(plan_of(flow.node), profile=True) as running:
        list(running)
    shown = [(cost.title, cost.step) for cost in running.statistics().hosted]
    assert shown == [
        ("from_iterable(words)", 1),
        ("flat_map(<lambda>)", 2),
        ("shuffle(buffer=3)", 3),
        ("flat_map(<lambda>)", 4),
    ]


def test_operators_that_stay_with_the_consumer_are_marked() -> None:
    flow = fl.from_iterable(words).map(double).batch(2)
    (hosted,) = diagram_of(plan_of(flow.node)).entries
    assert isinstance(hosted, StageStatistics)
    assert hosted.operators == ("from_iterable(words)", "map(double)", "batch(2)")
    assert hosted.stays == ("from_iterable(words)",)


def test_merged_streams_have_their_own_figures() -> None:
    flow = fl.from_iterable(words).choose(fl.from_iterable(words).map(double)).batch(2)
    stages = [
        one for one in diagram_of(plan_of(flow.node)).entries if isinstance(one, StageStatistics)
    ]
    first, (second, *rest) = stages[0].operators, stages[1].operators
    assert (first, second, rest[0]) == (
        ("from_iterable(words)",),
        "from_iterable(words)",
        "map(double)",
    )
    assert rest[-1] == "batch(2)"


def test_statistics_of_another_plan_are_refused() -> None:
    other = diagram_of(plan_of(fl.from_iterable(words).map(double).node))
    with pytest.raises(AssertionError, match="the figures of another plan"):
        other.arrange(run(stage("from_range(9)")))
