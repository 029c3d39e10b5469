"""Lowering: the stages of a plan, their workers, and the elements sent to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Flow
from flowdsl.nodes import AnyNode, Unordered
from flowdsl.nodes.failures import SkipFailed
from flowdsl.plan.lower import plan_of
from flowdsl.plan.plan import NO_WORKERS, Base, Hosted, Plan, Stage
from flowdsl.plan.supplied import Supplied
from flowdsl.plan.tree import walk
from flowdsl.resources.worker_kinds import PROCESSES, THREADS, Workers
from flowdsl.testing.elements import same
from flowdsl.testing.outcomes import reference
from tests.plan.test_rules import double, odd, picture


def stage_of(flow: Flow[Any, Any]) -> Stage:
    stage = plan_of(flow.node).root
    assert isinstance(stage, Stage)
    return stage


def hosted(part: Base) -> Hosted:
    assert isinstance(part, Hosted)
    return part


def titles_of(bases: Sequence[Base]) -> list[str]:
    return [base.top.node.title for base in bases]


class TestPositionsTravel:
    flow = fl.from_range(20).shuffle().map(double).batch(3).prefetch(procs=2)

    def test_positions_travel_if_workers_can_read_the_source(self) -> None:
        stage = stage_of(self.flow)
        assert stage.bases == ()
        assert stage.workers.count == 2
        assert stage.program is stage.meaning
        assert picture(stage.meaning) == "from_range(20) > shuffle() > map(double) > batch(3)"

    def test_positions_travel_through_a_filter(self) -> None:
        stage = stage_of(fl.from_range(20).filter(odd).map(double).prefetch(procs=2))
        assert stage.bases == ()
        assert stage.drops
        assert not stage_of(self.flow).drops


class TestElementsTravel:
    @pytest.mark.parametrize(
        ("flow", "base", "program"),
        [
            (
                fl.from_items(range(20)).map(double),
                "from_items(20 items)",
                "supplied > map(double)",
            ),
            (
                fl.from_items(range(20)).shuffle().map(double).batch(2),
                "from_items(20 items) > shuffle()",
                "supplied > map(double) > batch(2)",
            ),
            (
                fl.from_items(range(20)).map(double).shuffle().take(9),
                "from_items(20 items)",
                "supplied > map(double) > shuffle() > take(9)",
            ),
            (
                fl.from_iterable(range(20)).map(double).batch(2),
                "from_iterable(range)",
                "supplied > map(double) > batch(2)",
            ),
            (
                fl.from_range(20).shuffle(4).map(double),
                "from_range(20) > shuffle(4)",
                "supplied > map(double)",
            ),
        ],
        ids=lambda value: picture(value.node) if isinstance(value, Flow) else "",
    )
    def test_elements_travel_if_only_this_process_can_make_them(
        self, flow: Flow[Any, Any], base: str, program: str
    ) -> None:
        stage = stage_of(flow.prefetch(procs=3))
        (below,) = stage.bases
        assert picture(below.top.node) == base
        assert picture(stage.program) == program
        assert picture(stage.meaning) == picture(flow.node)

    def test_supplied_has_the_length_and_indexability_of_the_base(self) -> None:
        supplied = walk(stage_of(fl.from_items([1, 2]).map(double).prefetch(1)).program)[0]
        assert isinstance(supplied, Supplied)
        assert (supplied.length, supplied.indexable) == (2, True)
        supplied = walk(stage_of(fl.from_iterable([1]).map(double).prefetch(1)).program)[0]
        assert (supplied.length, supplied.indexable) == (None, False)
        with pytest.raises(AssertionError):
            supplied.rows(0, ())

    @pytest.mark.parametrize(("sizes", "ratio"), [((), 1), ((3,), 3), ((3, 4), 12)])
    def test_rows_per_element_is_the_product_of_batch_sizes(
        self, sizes: tuple[int, ...], ratio: int
    ) -> None:
        flow: Flow[Any, Any] = fl.from_iterable([np.zeros(3)] * 30).map(np.sqrt)
        for n in sizes:
            flow = flow.batch(n)
        assert stage_of(flow.prefetch(procs=2)).rows_per_element == ratio

    @pytest.mark.parametrize(
        ("drops", "elements"), [((False, False), 3), ((True, False), 2), ((False, True), 2)]
    )
    def test_last_rows_form_the_right_number_of_elements(
        self, drops: tuple[bool, bool], elements: int
    ) -> None:
        flow: Flow[Any, Any] = fl.from_iterable([np.zeros(3)] * 30).map(np.sqrt)
        for n, drop in zip((3, 2), drops, strict=True):
            flow = flow.batch(n, drop_remainder=drop, collate=list)
        assert stage_of(flow.prefetch(procs=2)).elements_of(13) == elements


class TestWithoutPrefetch:
    def test_an_indexable_flow_is_one_stage_in_this_process(self) -> None:
        flow = fl.from_range(20).shuffle().map(double).batch(3)
        stage = stage_of(flow)
        assert (stage.workers.count, stage.bases, stage.meaning) == (0, (), flow.node)

    def test_a_filtered_flow_is_one_stage_in_this_process(self) -> None:
        stage = stage_of(fl.from_range(20).map(double).filter(odd).map(abs))
        assert picture(stage.meaning) == "from_range(20) > map(double) > filter(odd) > map(abs)"
        assert stage.drops

    def test_an_operator_that_is_not_indexable_is_hosted_above_the_stage(self) -> None:
        flow = fl.from_range(20).map(double).filter(odd).batch(3)
        batch = hosted(plan_of(flow.node).root)
        (stage,) = batch.sources
        assert batch.top.node.title == "batch(3)"
        assert isinstance(stage, Stage)
        assert picture(stage.meaning) == "from_range(20) > map(double) > filter(odd)"

    def test_an_operator_that_counts_filtered_elements_is_hosted(self) -> None:
        numbered = hosted(plan_of(fl.from_range(20).filter(odd).enumerate().node).root)
        (stage,) = numbered.sources
        assert numbered.top.node.title == "enumerate()"
        assert isinstance(stage, Stage)

    def test_operators_above_a_prefetch_stay_in_this_process(self) -> None:
        flow = fl.from_range(20).map(double).prefetch(procs=2).map(abs).batch(2)
        batch = hosted(plan_of(flow.node).root)
        mapped = hosted(batch.sources[0])
        (stage,) = mapped.sources
        assert titles_of([batch, mapped]) == ["batch(2)", "map(abs)"]
        assert isinstance(stage, Stage)
        assert (stage.workers.count, picture(stage.meaning)) == (2, "from_range(20) > map(double)")

    def test_a_stream_runs_by_its_reference(self) -> None:
        mapped = hosted(plan_of(fl.from_iterable([1]).map(double).node).root)
        stream = hosted(mapped.sources[0])
        assert (titles_of([mapped, stream]), stream.sources) == (
            ["map(double)", "from_iterable(list)"],
            (),
        )


PARTS: list[Callable[[Flow[Any, Any]], Flow[Any, Any]]] = [
    lambda flow: flow.map(double),
    lambda flow: flow.filter(odd),
    lambda flow: flow.flat_map(lambda x: [x, x]),
    lambda flow: flow.shuffle(buffer=3),
    lambda flow: flow.batch(2).unbatch(),
]


@given(st.lists(st.sampled_from(PARTS), max_size=8), st.integers(1, 9), st.booleans())
def test_one_prefetch_has_at_most_the_requested_workers(
    parts: list[Callable[[Flow[Any, Any]], Flow[Any, Any]]], procs: int, batched: bool
) -> None:
    flow: Flow[Any, Any] = fl.from_range(20).map(double)
    for part in parts:
        flow = part(flow)
    flow = flow.batch(2) if batched else flow
    stages = plan_of(flow.prefetch(procs=procs).node).stages
    assert 1 <= sum(stage.workers.count for stage in stages) <= procs


def test_with_a_timeout_each_part_has_its_own_worker() -> None:
    flow = fl.from_range(20).map(double).shuffle(buffer=3).map(double)
    stages = plan_of(flow.prefetch(procs=1, timeout=9).node).stages
    assert [stage.workers.count for stage in stages] == [1, 1]


def test_two_pools_on_both_sides_of_a_window() -> None:
    flow = fl.from_range(20).map(double).shuffle(4).map(double).prefetch(procs=2)
    upper = stage_of(flow)
    window = hosted(upper.bases[0])
    (below,) = window.sources
    assert isinstance(below, Stage)
    assert (upper.workers.count, below.workers.count) == (1, 1)
    assert (window.top.node.title, below.bases) == ("shuffle(buffer=4)", ())
    assert picture(upper.program) == "supplied > map(double)"
    assert picture(below.program) == "from_range(20) > map(double)"


class TestPlan:
    def test_a_plan_is_made_once_for_a_flow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[object] = []

        def noted(node: AnyNode) -> Plan[Any]:
            made.append(node)
            return plan_of(node)

        monkeypatch.setattr("flowdsl.plan.lower.plan_of", noted)
        flow = fl.from_range(20).shuffle().filter(odd).map(double)
        assert list(flow.epoch(1)) == list(flow.epoch(1)) != list(flow)
        flow.explain()
        assert made == [flow.node]

    def test_stages_are_numbered_in_the_order_of_elements(self) -> None:
        ahead = fl.from_range(20).map(double).shuffle(4).map(double)
        plan = plan_of(ahead.interleave(fl.from_range(20).map(abs)).prefetch(procs=4).node)
        assert [stage.number for stage in plan.stages] == [0, 1, 2]
        assert [picture(stage.meaning) for stage in plan.stages] == [
            "from_range(20) > map(double)",
            "from_range(20) > map(double) > prefetch(1) > shuffle(4) > map(double)",
            "from_range(20) > map(abs)",
        ]

    def test_operators_with_the_same_title_have_different_numbers(self) -> None:
        flow = fl.from_range(20).map(double).shuffle(4).map(double).prefetch(procs=2)
        below, upper = plan_of(flow.node).stages
        assert [step.number for step in below.steps] == [1, 2]
        assert [step.number for step in upper.steps] == [4]

    def test_moved_operators_keep_their_numbers(self) -> None:
        stage = stage_of(fl.from_range(20).map(double).map(abs).take(3).prefetch(procs=2))
        assert [(step.number, step.node.title) for step in stage.steps] == [
            (1, "from_range(20)"),
            (4, "take(3)"),
            (2, "map(double)"),
            (3, "map(abs)"),
        ]

    def test_programs_of_workers_have_no_error_handler(self) -> None:
        stage = stage_of(fl.from_range(20).map(double).prefetch(procs=2, on_error=print))
        (leaving,) = (node for node in walk(stage.program) if isinstance(node, SkipFailed))
        assert leaving.handler is None
        assert isinstance(stage.meaning, SkipFailed)
        assert stage.meaning.handler is print


def _draw(_: object, rng: np.random.Generator) -> float:
    return rng.random()


@pytest.mark.parametrize(
    "flow",
    [
        fl.from_items(range(6)).repeat().batch(4).take(2).shuffle(),
        fl.from_items(range(10)).repeat().batch(2).random_map(_draw).take(3).repeat(2),
    ],
    ids=repr,
)
def test_a_program_keeps_the_effects_of_its_bases(flow: Flow[Any, Any]) -> None:
    stage = plan_of(flow.prefetch(procs=2).node).root
    assert isinstance(stage, Stage)
    assert stage.program.effects == flow.effects
    assert stage.program.length == flow.node.length
    assert same(flow.prefetch(procs=2).collect(), flow.collect())


class TestSeveralFlows:
    def test_positions_travel_for_several_flows(self) -> None:
        flow = fl.from_range(20).map(double).concat(fl.from_range(9)).shuffle().prefetch(procs=2)
        stage = stage_of(flow)
        assert stage.bases == ()
        assert stage.program is stage.meaning

    def test_every_base_in_memory_has_a_slot(self) -> None:
        rows = fl.from_items(range(20))
        flow = rows.map(double).zip(rows.repeat().take(20).map(abs))
        stage = stage_of(flow.map(str).prefetch(procs=2))
        assert titles_of(stage.bases) == ["from_items(20 items)", "take(20)"]
        slots = [part for part in walk(stage.program) if isinstance(part, Supplied)]
        assert [(part.slot, part.length, part.indexable) for part in slots] == [
            (0, 20, True),
            (1, 20, True),
        ]

    def test_a_flow_in_two_places_is_two_bases(self) -> None:
        rows = fl.from_items(range(20))
        stage = stage_of(rows.map(double).concat(rows.map(abs), rows).prefetch(procs=2))
        assert titles_of(stage.bases) == ["from_items(20 items)"] * 3
        slots = [part.slot for part in walk(stage.program) if isinstance(part, Supplied)]
        assert slots == [0, 1, 2]

    def test_a_base_inside_another_base_is_a_separate_base(self) -> None:
        rows = fl.from_items(range(20))
        flow = rows.map(double).concat(rows.shuffle(seed=3).map(abs)).prefetch(procs=2)
        stage = stage_of(flow)
        assert titles_of(stage.bases) == ["from_items(20 items)", "shuffle(seed=3)"]
        assert picture(stage.program) == "supplied > map(double) > concat(supplied > map(abs))"
        assert flow.collect() == reference(flow.node).elements

    def test_a_choice_among_rows_in_memory_is_one_base(self) -> None:
        rows = fl.from_items(range(20))
        stage = stage_of(rows.mix(rows.take(3)).shuffle().map(str).prefetch(procs=2))
        (base,) = stage.bases
        assert base.top.node.title == "shuffle()"
        assert picture(stage.program) == "supplied > map(str)"

    def test_a_merge_with_a_stream_is_a_stream(self) -> None:
        flow = fl.from_range(9).map(double).interleave(fl.from_iterable(range(9))).map(str)
        stage = stage_of(flow.prefetch(procs=4))
        merged = hosted(stage.bases[0])
        assert merged.top.node.title == "interleave(...)"
        below, stream = merged.sources
        assert isinstance(below, Stage)
        assert (below.workers.count, picture(below.meaning)) == (2, "from_range(9) > map(double)")
        assert stream.top.node.title == "from_iterable(range)"


class TestThreads:
    def test_threads_run_a_stage_like_processes(self) -> None:
        stage = stage_of(fl.from_range(20).shuffle().map(double).batch(3).prefetch(threads=2))
        assert (stage.workers, stage.bases) == (Workers(THREADS, 2), ())
        assert picture(stage.meaning) == "from_range(20) > shuffle() > map(double) > batch(3)"

    def test_threads_run_on_both_sides_of_a_window(self) -> None:
        upper = stage_of(fl.from_range(20).map(double).shuffle(4).map(abs).prefetch(threads=4))
        (below,) = hosted(upper.bases[0]).sources
        assert isinstance(below, Stage)
        assert upper.workers == below.workers == Workers(THREADS, 2)

    def test_the_last_prefetch_sets_the_kind_of_worker(self) -> None:
        flow = fl.from_range(20).map(double).prefetch(threads=3).map(abs).prefetch(procs=2)
        assert stage_of(flow).workers == Workers(PROCESSES, 2)
        flow = fl.from_range(20).map(double).prefetch(procs=3).map(abs).prefetch(threads=2)
        assert stage_of(flow).workers == Workers(THREADS, 2)


def stages(flow: Flow[Any, Any]) -> Sequence[Stage]:
    return plan_of(flow.node).stages


class TestUnordered:
    def test_unordered_delivers_elements_as_they_are_ready(self) -> None:
        flow = fl.from_range(20).map(double).prefetch(procs=2, ordered=False)
        part = hosted(plan_of(flow.node).root)
        (stage,) = part.sources
        assert isinstance(part.top.node, Unordered)
        assert isinstance(stage, Stage)
        assert (stage.ordered, stage.workers) == (False, Workers(PROCESSES, 2))

    def test_elements_sent_to_an_unordered_stage_are_in_order(self) -> None:
        flow = fl.from_range(20).map(double).shuffle(4).map(abs).prefetch(procs=2, ordered=False)
        assert [stage.ordered for stage in stages(flow)] == [True, False]

    def test_an_unordered_batch_after_a_filter_has_ordered_rows(self) -> None:
        flow = fl.from_range(20).filter(odd).batch(3).prefetch(procs=2, ordered=False)
        (stage,) = stages(flow)
        assert (stage.ordered, picture(stage.meaning)) == (True, "from_range(20) > filter(odd)")

    def test_workers_above_do_not_absorb_an_unordered_prefetch(self) -> None:
        flow = fl.from_range(20).map(double).prefetch(procs=2, ordered=False)
        lower_one, upper = stages(flow.map(abs).prefetch(procs=3))
        assert (lower_one.ordered, lower_one.workers.count) == (False, 2)
        assert (upper.ordered, upper.workers.count) == (True, 3)
        assert picture(upper.program) == "supplied > map(abs)"
        (below,) = stages(flow.batch(2).prefetch(procs=3))  # whose rows are not consecutive
        assert picture(below.meaning) == "from_range(20) > map(double)"

    def test_an_unordered_prefetch_is_not_hoisted(self) -> None:
        flow = fl.from_range(20).map(double).prefetch(procs=2, ordered=False).shuffle()
        (stage,) = stages(flow)
        assert picture(stage.meaning) == "from_range(20) > map(double)"

    def test_unordered_without_workers_runs_in_this_process(self) -> None:
        flow = fl.from_range(20).map(double).prefetch(0, ordered=False)
        (stage,) = stages(flow)
        assert (stage.ordered, stage.workers) == (True, NO_WORKERS)


class TestReplicate:
    def test_replicating_a_random_access_flow_is_arithmetic(self) -> None:
        stage = stage_of(fl.from_range(20).shuffle().map(double).replicate(3))
        assert (stage.bases, stage.workers, stage.end_to_end) == ((), Workers(PROCESSES, 3), False)
        assert picture(stage.meaning) == "from_range(20) > shuffle() > map(double) > replicate(3)"

    def test_replicate_joins_the_prefetch_above_it(self) -> None:
        stage = stage_of(fl.from_range(20).replicate(3).shuffle().map(double).prefetch(procs=2))
        assert (stage.bases, stage.workers) == ((), Workers(PROCESSES, 2))

    def test_replicating_a_stream_needs_a_process_for_each_copy(self) -> None:
        flow = fl.from_iterable(range(20)).map(double).replicate(3)
        part = hosted(plan_of(flow.node).root)
        assert part.top.node is flow.node
        assert len(part.sources) == 3
        for copy in part.sources:
            assert isinstance(copy, Stage)
            assert (copy.end_to_end, copy.workers, copy.bases) == (True, Workers(PROCESSES, 1), ())
            assert picture(copy.program) == "from_iterable(range) > map(double)"

    def test_replicate_interleaves_one_pass_of_each_copy(self) -> None:
        node = fl.from_range(20).map(double).shuffle(4).replicate(2).node
        (source,) = node.sources
        whole = list(node.rows(2, [source.reference] * 2))
        assert whole == list(node.rows(2, [source.reference])) == list(node.reference(2))


class TestShares:
    def test_several_flows_share_memory_and_workers(self) -> None:
        streams = [fl.from_iterable(range(20)).map(double) for _ in range(3)]
        flow = streams[0].concat(*streams[1:]).prefetch(procs=7, memory=10**6, deaths=2, timeout=5)
        share = Workers(PROCESSES, 2, memory=10**6 // 3, deaths=2, timeout=5)
        assert [stage.workers for stage in stages(flow)] == [share] * 3
        flow = streams[0].concat(streams[1]).prefetch(threads=1, memory=9)
        assert [stage.workers for stage in stages(flow)] == [Workers(THREADS, 1, memory=4)] * 2

    def test_both_sides_of_a_shuffle_share_memory(self) -> None:
        flow = fl.from_iterable(range(20)).map(double).shuffle(4).map(double)
        below, above = stages(flow.prefetch(procs=4, memory=10**6))
        assert below.workers == above.workers == Workers(PROCESSES, 2, memory=5 * 10**5)

    def test_an_absorbing_prefetch_has_the_least_memory(self) -> None:
        flow = fl.from_range(9).map(double).prefetch(2, memory=70).map(abs).prefetch(3, memory=90)
        (stage,) = stages(flow)
        assert stage.workers == Workers(PROCESSES, 3, memory=70)
        (stage,) = stages(fl.from_range(9).map(abs).prefetch(2).shuffle().prefetch(3, memory=90))
        assert stage.workers == Workers(PROCESSES, 3, memory=90)

    def test_an_absorbing_prefetch_has_the_strictest_limits(self) -> None:
        rows = fl.from_range(99).map(double)
        flow = rows.prefetch(2, timeout=2, deaths=1).batch(8).map(abs).prefetch(3, timeout=20)
        (stage,) = stages(flow)
        assert stage.workers == Workers(PROCESSES, 3, timeout=16, deaths=1)
        flow = rows.prefetch(2, timeout=2, deaths=9).batch(8).map(abs).prefetch(3, timeout=9)
        (stage,) = stages(flow)
        assert stage.workers == Workers(PROCESSES, 3, timeout=9)
        (stage,) = stages(rows.prefetch(2).concat(rows.prefetch(1, timeout=2, deaths=1)))
        assert stage.workers == Workers(PROCESSES, 2, timeout=2, deaths=1)

    def test_workers_that_cannot_be_ended_have_no_timeout(self) -> None:
        rows = fl.from_range(99).map(double).prefetch(2, timeout=2, deaths=1)
        (stage,) = stages(rows.map(abs).prefetch(threads=3))
        assert stage.workers == Workers(THREADS, 3, deaths=1)

    def test_a_replica_keeps_the_limits_for_its_elements(self) -> None:
        stream = fl.from_iterable(range(20)).map(double)
        workers = [s.workers for s in stages(stream.prefetch(3, timeout=9, deaths=1).replicate(2))]
        assert workers == [Workers(PROCESSES, 1, timeout=9, deaths=1)] * 2
        workers = [s.workers for s in stages(stream.prefetch(threads=3, memory=9).replicate(2))]
        assert workers == [Workers(PROCESSES, 1, memory=9)] * 2

    def test_a_flow_without_work_gets_no_share(self) -> None:
        flow = fl.from_iterable(range(20)).concat(fl.from_iterable(range(20)).map(double))
        (stage,) = stages(flow.prefetch(procs=4, memory=100))
        assert stage.workers == Workers(PROCESSES, 4, memory=100)

    @pytest.mark.parametrize(
        ("workers", "k", "share"),
        [
            (Workers(PROCESSES, 8), 2, Workers(PROCESSES, 4)),
            (Workers(PROCESSES, 3), 2, Workers(PROCESSES, 1)),
            (Workers(THREADS, 2), 5, Workers(THREADS, 1)),
            (Workers(), 3, Workers()),
            (Workers(PROCESSES, 2, memory=5), 0, Workers(PROCESSES, 2, memory=5)),
            (Workers(PROCESSES, 2, memory=1), 2, Workers(PROCESSES, 1, memory=1)),
        ],
        ids=str,
    )
    def test_a_share_has_at_least_one_worker(
        self, workers: Workers, k: int, share: Workers
    ) -> None:
        assert workers.share(k) == share

    def test_workers_are_shown_with_number_and_noun(self) -> None:
        several = [Workers(kind, n) for kind in (PROCESSES, THREADS) for n in (1, 2)]
        assert list(map(str, several)) == [
            "1 worker process",
            "2 worker processes",
            "1 thread",
            "2 threads",
        ]


def test_workers_of_replicate_share_rows_or_passes() -> None:
    rows = stage_of(fl.from_range(9).map(double).replicate(procs=2))
    assert (rows.workers.count, rows.copies) == (2, "rows")
    assert stage_of(fl.from_range(9).replicate(2).map(double).prefetch(procs=3)).copies is None
    passes = plan_of(fl.from_iterable(range(9)).map(double).replicate(procs=2).node).root
    for stage in hosted(passes).sources:
        assert isinstance(stage, Stage)
        assert stage.copies == "passes"
