"""Resume points: a pass resumes above filters without repeating work."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, TypeAlias

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import ElementError, Flow, Run, StateMismatch
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.nodes import Batched, Identity, IndexedMap, PassFactory, Row, Windowed
from flowdsl.runtime.resume_points import resumable_path
from flowdsl.workers.processes import Processes
from tests.sampling import examples
from tests.states import changed
from tests.threads import spawn_thread

Step: TypeAlias = tuple[str, int]


class Reader:
    """Passes rows through, and records them."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, x: Any) -> Any:
        self.seen.append(x)
        return x


def numbers_in(x: Any) -> list[int]:
    return [n for one in x for n in numbers_in(one)] if isinstance(x, list | tuple) else [x]


def kept_of(n: int) -> Callable[[Any], bool]:
    def kept(x: Any) -> bool:
        return sum(numbers_in(x)) % (n + 2) != 0

    return kept


def failing_of(n: int) -> Callable[[Any], Any]:
    def failing(x: Any) -> Any:
        if sum(numbers_in(x)) % (n + 3) == 0:
            raise ValueError(f"{x} is bad")
        return x

    return failing


def tokens(x: Any) -> list[int]:
    """A sequence of a length that depends on the element; it may be empty, or long."""
    return [n % 1000 for n in numbers_in(x)] * (sum(numbers_in(x)) % 4)


def numbers(row: fl.Packed[Any]) -> list[Any]:
    return [row.tokens.tolist(), row.segment_ids.tolist(), row.positions.tolist()]


def drawn(x: Any, generator: Any) -> Any:
    return [x, int(generator.integers(100))]


STEPS: dict[str, Callable[[Flow[Any, Any], int], Flow[Any, Any]]] = {
    "map": lambda flow, n: flow.map(lambda x: [x]),
    "filter": lambda flow, n: flow.filter(kept_of(n)),
    "filter_map": lambda flow, n: flow.filter_map(lambda x: x if kept_of(n)(x) else None),
    "random_map": lambda flow, n: flow.random_map(drawn, seed=n),
    "batch": lambda flow, n: flow.batch(n + 1, collate=list),
    "whole batch": lambda flow, n: flow.batch(n + 1, drop_remainder=True, collate=list),
    "repeat": lambda flow, n: flow.repeat(n + 1),
    "take": lambda flow, n: flow.take(5 * n),
    "skip some": lambda flow, n: flow.skip(n),
    "shard": lambda flow, n: flow.shard(n + 1, n // 2),
    "enumerate": lambda flow, n: flow.enumerate(),
    "inspect": lambda flow, n: flow.inspect(0),
    "skip": lambda flow, n: flow.map(failing_of(n)).prefetch(0, on_error="skip"),
    "flat_map": lambda flow, n: flow.flat_map(lambda x: [x] * (sum(numbers_in(x)) % (n + 2))),
    "unbatch": lambda flow, n: flow.batch(n + 2, collate=list).unbatch(),
    "take_while": lambda flow, n: flow.take_while(lambda x: sum(numbers_in(x)) % 23 != n + 1),
    "skip_while": lambda flow, n: flow.skip_while(lambda x: sum(numbers_in(x)) % 23 > 3 * n),
    "repeat_each": lambda flow, n: flow.repeat_each(n + 1),
    "window": lambda flow, n: flow.window(n + 1, stride=2 - n % 2, dilation=n + 1),
    "long windows": lambda flow, n: flow.window(9 + n, dilation=2, remainder="keep"),
    "windows with gaps": lambda flow, n: flow.window(1 + n % 2, stride=n + 2, remainder="keep"),
    "pack": lambda flow, n: flow.map(tokens).pack(2 * n + 1).map(numbers),
    "pack whole": lambda flow, n: (
        flow.map(tokens).pack(2 * n + 1, "first_fit", bins=n + 1, too_long="split").map(numbers)
    ),
    "threads": lambda flow, n: flow.prefetch(threads=n + 1),
    "procs": lambda flow, n: flow.prefetch(procs=n + 1),
}
PLACEMENTS = ("threads", "procs")
RESTARTED = (
    "take_while",
    *("flat_map", "unbatch", "repeat_each", "window", "long windows", "windows with gaps"),
    *("pack", "pack whole"),
)


def steps_of(names: list[str]) -> st.SearchStrategy[list[Step]]:
    # no more than a state has places for
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 2)), max_size=5)


steps = steps_of(list(STEPS))
steps_without_restarts = steps_of([name for name in STEPS if name not in RESTARTED])
rows = st.integers(0, 25)


def build(
    rows: int, steps: list[Step], read: Callable[[Any], Any], workers: bool
) -> Flow[Any, Any]:
    flow: Flow[Any, Any] = fl.from_range(rows).shuffle(seed=rows).map(read)
    for name, n in steps:
        if workers or name not in PLACEMENTS:
            flow = STEPS[name](flow, n)
    return flow


def most_of(run: Iterator[Any]) -> list[Any]:
    return list(islice(run, 60))


def through_json(run: Run[Any], position: int | None = None) -> Any:
    return json.loads(json.dumps(run.state_dict(position)))


@settings(max_examples=examples(500))
@given(rows, steps_without_restarts, st.integers(0, 20), st.integers(0, 20), st.integers(0, 2))
@example(20, [("filter", 0), ("batch", 1), ("repeat", 2), ("filter", 1), ("repeat", 1)], 5, 4, 1)
@example(20, [("skip", 0), ("whole batch", 2), ("filter", 0), ("repeat", 2)], 1, 1, 0)
def test_a_resume_reads_no_rows_again(
    rows: int, steps: list[Step], first: int, second: int, epoch: int
) -> None:
    reader = Reader()
    flow = build(rows, steps, reader, workers=False)
    expected = most_of(flow.epoch(epoch))
    read_by_one = reader.seen[:]
    reader.seen.clear()
    run = flow.epoch(epoch)
    got = list(islice(run, first))
    for take in (second, 60):
        run = flow.resume(through_json(run))
        got += islice(run, take if take == second else 60 - len(got))
    assert got == expected
    assert reader.seen == read_by_one


@pytest.fixture
def workers_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Processes, "spawn", staticmethod(spawn_thread))


@pytest.mark.usefixtures("workers_are_threads")
@settings(max_examples=examples(200))
@given(rows, steps, st.integers(0, 20), st.lists(st.booleans(), min_size=3, max_size=3))
@example(20, [("threads", 0), ("filter", 0), ("take", 1), ("repeat", 2)], 5, [True, True, True])
@example(9, [("threads", 0), ("filter", 0), ("take", 0)], 0, [False, True, False])
@example(
    12, [("filter", 0), ("threads", 0), ("batch", 1), ("threads", 0), ("repeat", 2)], 5, [True] * 3
)
@example(
    11, [("filter", 1), ("repeat", 1), ("batch", 2), ("map", 0), ("threads", 1)], 3, [True] * 3
)
@example(20, [("flat_map", 2), ("map", 0), ("threads", 0), ("repeat", 1)], 14, [True] * 3)
@example(20, [("shard", 1), ("flat_map", 2), ("map", 0), ("threads", 0)], 6, [True, True, False])
@example(20, [("window", 0), ("map", 0), ("threads", 0), ("repeat", 2)], 20, [True] * 3)
def test_placement_does_not_affect_a_resume(
    rows: int, steps: list[Step], first: int, workers: list[bool]
) -> None:
    flows = [build(rows, steps, _same, here) for here in workers]
    expected = most_of(iter(build(rows, steps, _same, workers=False)))
    with iter(flows[0]) as run:
        got = list(islice(run, first))
        state = through_json(run)
    with flows[1].resume(state) as run:
        got += islice(run, 3)
        state = through_json(run)
    with flows[2].resume(state) as run:
        got += islice(run, 60 - len(got))
    assert got == expected


def _same(x: Any) -> Any:
    return x


def odd(i: int) -> bool:
    return i % 2 == 1


def kept(reader: Reader, n: int = 100) -> Flow[list[int], Any]:
    return fl.from_range(n).map(reader).filter(odd).batch(2, collate=list)


def tens(rows: Flow[int, Any]) -> Flow[list[int], Any]:
    return rows.filter(lambda i: i % 10 == 0).batch(2, collate=list)


class TestStateOfARun:
    def test_contains_the_places_of_operators(self) -> None:
        run = iter(kept(Reader(), 9).repeat())
        assert run.state_dict()["places"] == []
        assert list(islice(run, 3)) == [[1, 3], [5, 7], [1, 3]]
        # three delivered; repeat gave three; in its pass 1 one batch was made; row 4 is next
        assert run.state_dict()["places"] == [3, 0, 3, 1, 1, 0, 4]

    def test_at_the_end(self) -> None:
        reader = Reader()
        run = iter(kept(reader, 9))
        assert list(run) == [[1, 3], [5, 7]]
        state = run.state_dict()
        reader.seen.clear()
        assert list(kept(reader, 9).resume(state)) == []
        assert reader.seen in ([], [8])  # what no batch was made of may be looked at again

    def test_before_the_first_element_is_the_resumed_state(self) -> None:
        run = iter(kept(Reader()))
        next(run)
        state = run.state_dict()
        assert kept(Reader()).resume(state).state_dict() == state

    def test_after_close_is_unchanged(self) -> None:
        reader = Reader()
        with iter(kept(reader)) as run:
            next(run)
        rest = kept(reader).resume(run.state_dict())
        assert next(rest) == [5, 7]
        assert reader.seen == list(range(8))

    def test_after_close_with_workers_is_unchanged(self) -> None:
        flow = fl.from_range(100).filter(odd).prefetch(threads=2)
        with iter(flow) as run:
            assert list(islice(run, 5)) == [1, 3, 5, 7, 9]
        assert run.state_dict()["places"] == [5, 0, 10]
        assert next(flow.resume(run.state_dict())) == 11

    def test_after_an_error_is_the_last_resume_point(self) -> None:
        reader = Reader()

        def fails_once(i: int) -> int:
            if i == 6 and reader.seen.count(6) == 1:
                raise ValueError("for once")
            return i

        flow = fl.from_range(20).map(reader).map(fails_once).filter(odd).batch(2, collate=list)
        run = iter(flow)
        assert next(run) == [1, 3]
        before = run.state_dict()
        with pytest.raises(ElementError, match="row 6"):
            next(run)
        assert run.state_dict() == before  # not row 7, to which the batch that failed had come
        reader.seen.remove(6)
        reader.seen.append(6)
        assert list(flow.resume(run.state_dict())) == [[5, 7], [9, 11], [13, 15], [17, 19]]

    def test_after_an_unexpected_error_is_the_last_resume_point(self) -> None:
        def fails(i: int) -> int:
            if i == 6:
                raise ValueError("always")
            return i

        flow = fl.from_range(20).map(fails).filter(odd).batch(2, collate=list)
        run = iter(flow)
        assert next(run) == [1, 3]
        with pytest.raises(ElementError, match="row 6"):
            next(run)
        assert run.state_dict()["places"] == []
        with pytest.raises(ElementError, match="row 6"):
            next(flow.resume(run.state_dict()))

    def test_during_an_element_is_the_last_resume_point(self) -> None:
        states = list[Any]()

        def ask(i: int) -> int:
            run.mark()
            states.append(run.state_dict())
            return i

        run = iter(fl.from_range(20).map(ask).filter(odd).batch(2, collate=list))
        flow = fl.from_range(20).map(_asked).filter(odd).batch(2, collate=list)
        next(run)
        run.mark()
        next(run)
        assert [state["position"] for state in states] == [0] * 4 + [1] * 4
        assert [state["places"] for state in states] == [[]] * 4 + [[1, 0, 1, 0, 4]] * 4
        state = changed(iter(flow).state_dict(), position=1, places=states[-1]["places"])
        assert next(flow.resume(state)) == [5, 7]


def _asked(i: int) -> int:
    return i


class TestEarlierStates:
    def test_resume_from_the_last_resume_point(self) -> None:
        reader = Reader()
        run = iter(kept(reader))
        for position in range(12):
            if position % 4 == 0:
                run.mark(since=0)
            next(run)
        for position in range(13):
            state = run.state_dict(position)
            assert state["position"] == position
            marked = min(position - position % 4, 8) if position < 12 else 12
            assert state["places"] == ([] if not marked else [marked, 0, marked, 0, 4 * marked])
            reader.seen.clear()
            assert next(kept(reader).resume(state)) == [4 * position + 1, 4 * position + 3]
            assert reader.seen == list(range(4 * marked, 4 * position + 4))

    def test_older_resume_points_are_dropped(self) -> None:
        run = iter(kept(Reader()))
        for position in range(1, 21):
            next(run)
            run.mark(since=max(0, position - 3))
        assert run.state_dict(17)["places"][0] == 17
        assert run.state_dict(16)["places"] == []
        run.mark()
        assert run.state_dict(19)["places"] == []

    def test_a_current_state_keeps_older_resume_points(self) -> None:
        run = iter(kept(Reader()))
        for _ in range(10):
            run.mark(since=0)
            next(run)
        before = run.state_dict(5)
        assert before["places"] == [5, 0, 5, 0, 20]
        run.state_dict()
        assert run.state_dict(5) == before
        rest = kept(Reader()).resume(before)
        next(rest)
        assert rest.state_dict()["places"][0] == 6
        assert rest.state_dict(5) == before

    def test_computes_only_elements_since_the_resume_point(self) -> None:
        reader = Reader()
        run = kept(reader).resume(_state_after(kept(reader), 3))
        next(run)
        reader.seen.clear()
        rest = kept(reader).resume(run.state_dict(3))
        assert next(rest) == [13, 15]
        assert reader.seen == list(range(12, 16))


def _state_after(flow: Flow[Any, Any], n: int) -> Any:
    with iter(flow) as run:
        for _ in range(n):
            next(run)
        return through_json(run)


class TestResumedRun:
    def test_errors_name_the_element(self) -> None:
        def ragged(i: int) -> list[int]:
            return [i] * (2 if i == 61 else 1)

        flow = fl.from_range(100).filter(odd).map(ragged).map(_array).batch(2)
        run = flow.resume(_state_after(flow, 10))
        for _ in range(5):
            next(run)
        with pytest.raises(ElementError) as resumed:
            next(run)
        with pytest.raises(ElementError) as whole:
            list(flow)
        assert (str(resumed.value), resumed.value.position) == (
            str(whole.value),
            whole.value.position,
        )
        assert whole.value.position == 15

    def test_random_numbers_depend_on_the_position(self) -> None:
        flow = fl.from_range(50).shuffle().filter(odd).repeat().random_map(drawn)
        expected = list(islice(flow, 90))
        assert list(islice(flow.resume(_state_after(flow, 60)), 30)) == expected[60:]

    def test_the_skip_handler_is_called_once_per_element(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, "flowdsl")
        reported: list[str] = []
        flow = (
            fl.from_range(30)
            .map(failing_of(2))
            .prefetch(0, on_error=lambda error: reported.append(str(error.__cause__)))
            .batch(4, collate=list)
        )
        run = iter(flow)
        got = list(islice(run, 3))
        assert reported == ["0 is bad", "5 is bad", "10 is bad"]
        rest = flow.resume(run.state_dict())
        got += rest
        assert [i for batch in got for i in batch] == [i for i in range(30) if i % 5]
        assert reported == [f"{i} is bad" for i in range(0, 30, 5)]
        assert rest.statistics().skipped == 3

    def test_statistics_count_only_elements_of_this_run(self) -> None:
        flow = fl.from_range(40).filter(odd)
        rest = flow.resume(_state_after(flow, 7))
        assert list(islice(rest, 3)) == [15, 17, 19]
        (stage,) = rest.statistics().stages
        assert (rest.statistics().elements, stage.delivered) == (3, 3)
        assert list(rest) == list(range(21, 40, 2))
        (stage,) = rest.statistics().stages
        assert (stage.entered, stage.delivered, stage.filtered) == (26, 13, 13)

    def test_profiling_keeps_places(self) -> None:
        flow = kept(Reader()).repeat()
        run = Run(flow.node, profile=True)
        list(islice(run, 60))
        assert run.state_dict()["places"] == [60, 0, 60, 2, 10, 0, 40]
        assert {cost.title for cost in run.statistics().hosted} >= {"repeat()"}

    def test_an_endless_flow_without_elements_is_detected(self) -> None:
        kept = [True]
        flow = fl.from_range(4).filter(lambda i: kept[0]).repeat()
        run = iter(flow)
        assert list(islice(run, 6)) == [0, 1, 2, 3, 0, 1]
        kept[0] = False
        with pytest.raises(fl.EndlessFlow, match="pass 2 had no elements"):
            next(flow.resume(run.state_dict()))

    def test_rows_in_memory_sent_to_workers(self) -> None:
        flow = fl.from_items(list(range(100))).filter(odd).prefetch(threads=2)
        state = _state_after(flow, 9)
        assert state["places"] == [9, 0, 18]
        assert list(flow.resume(state)) == list(range(19, 100, 2))


class TestBelowAnOperatorInThisProcess:
    """A prefetch in the middle: the places of the operators above are computed from positions."""

    @pytest.mark.parametrize(
        ("build", "first"),
        [
            (lambda rows: rows.prefetch(threads=2).batch(2, collate=list), 60),
            (lambda rows: rows.prefetch(threads=2).batch(2, collate=list).map(_same), 60),
            (
                lambda rows: rows.batch(2, collate=list).prefetch(threads=2).batch(3, collate=list),
                180,
            ),
            (lambda rows: rows.prefetch(threads=2).enumerate().batch(2, collate=list), 60),
            (lambda rows: rows.prefetch(threads=2).map(str), 30),
            (lambda rows: rows.prefetch(threads=2).map(_same).skip(7), 37),
            (lambda rows: rows.prefetch(threads=2).map(_same).shard(3, 1), 89),
            (lambda rows: rows.take(20).prefetch(threads=2).map(_same).repeat(), 10),
            (lambda rows: rows.prefetch(threads=2).batch(2, collate=list).filter(any), 60),
        ],
    )
    def test_no_earlier_elements_are_computed(
        self, build: Callable[[Flow[int, Any]], Flow[Any, Any]], first: int
    ) -> None:
        reader = Reader()
        flow = build(fl.from_range(1000).map(reader))
        expected = list(islice(flow, 31))
        with iter(flow) as run:
            for _ in range(30):
                next(run)
        reader.seen.clear()
        with flow.resume(through_json(run)) as rest:
            assert str(next(rest)) == str(expected[30])
        assert min(reader.seen) >= first

    def test_resuming_at_the_end_yields_nothing(self) -> None:
        flow = fl.from_range(11).map(_same).prefetch(threads=1).batch(2).batch(2, collate=list)
        for position in range(4):
            assert str(list(flow.resume(_state_after(flow, position)))) == str(
                list(flow)[position:]
            )


def pair(i: Any) -> list[Any]:
    return [i, 1000]


class TestWithinAnElement:
    """Operators that are in the midst of an element begin again there, or some elements before."""

    @pytest.mark.parametrize(
        ("build", "most"),
        [
            (lambda rows: rows.flat_map(pair), 8),
            (lambda rows: rows.flat_map(pair).map(str).filter(bool), 24),
            (lambda rows: rows.flat_map(pair).flat_map(pair), 12),
            (lambda rows: rows.filter(odd).flat_map(pair).batch(5, collate=list), 20),
            (lambda rows: rows.batch(40, collate=list).unbatch(), 160),
            (lambda rows: rows.batch(4, collate=list).unbatch().repeat(3), 64),
            (lambda rows: rows.filter(odd).repeat_each(3).take(200), 20),
            (lambda rows: rows.flat_map(pair).batch(7, collate=list).unbatch().repeat(), 100),
            (lambda rows: rows.flat_map(pair).enumerate().batch(3, collate=list), 24),
            (lambda rows: rows.filter(bool).map(tokens).pack(2).map(numbers), 60),
            (lambda rows: rows.flat_map(pair).map(tokens).pack(3).map(numbers), 50),
            (lambda rows: rows.filter(bool).map(lambda i: [i] * 50).pack(9).map(numbers), 17),
            (
                lambda rows: (
                    rows.filter(bool)
                    .map(lambda i: [i] * (1 + i % 3))
                    .pack(2, "best_fit", bins=1, too_long="split")
                    .map(numbers)
                ),
                100,
            ),
            (lambda rows: rows.filter(odd).window(2), 20),
            (lambda rows: rows.filter(odd).window(3, 2), 36),
            (lambda rows: rows.filter(odd).window(2, 5, dilation=3), 80),
            (lambda rows: rows.filter(bool).window(30), 68),
            (lambda rows: rows.filter(bool).window(3, stride=9).repeat(), 72),
            (lambda rows: rows.flat_map(pair).window(2).batch(3, collate=list), 24),
        ],
    )
    @pytest.mark.parametrize("threads", [0, 2])
    def test_a_bounded_number_of_rows_is_read_again(
        self,
        build: Callable[[Flow[int, Any]], Flow[Any, Any]],
        most: int,
        threads: int,
    ) -> None:
        reader = Reader()
        below = build(fl.from_range(100).map(reader))
        flow = below.prefetch(threads=threads) if threads else below
        expected, read = list[Any](), [0]  # the number of rows read for the first elements
        for x in islice(below, 250):
            expected.append(x)
            read.append(len(reader.seen))
        for position in range(0, len(expected) - 9, 7):
            state = _state_after(flow if position % 2 else below, position)
            reader.seen.clear()
            with below.resume(state) as run:
                assert list(islice(run, 9)) == expected[position : position + 9]
            assert len(reader.seen) <= read[position + 9] - read[position] + most
            with flow.resume(state) as run:
                assert list(islice(run, 9)) == expected[position : position + 9]

    @pytest.mark.parametrize(
        ("build", "first"),
        [
            (lambda rows: rows.prefetch(threads=2).window(3), 30),
            (lambda rows: rows.prefetch(threads=2).window(2, stride=3).batch(2, collate=list), 180),
            (lambda rows: rows.prefetch(threads=2).window(3, stride=2).filter(any), 60),
            (lambda rows: rows.repeat_each(2).prefetch(threads=2).filter(bool), 15),
        ],
    )
    def test_the_restart_is_arithmetic_over_rows_that_are_read_by_number(
        self, build: Callable[[Flow[int, Any]], Flow[Any, Any]], first: int
    ) -> None:
        reader = Reader()
        flow = build(fl.from_range(1000).map(reader))
        expected = list(islice(flow, 34))
        state = _state_after(flow, 30)
        reader.seen.clear()
        with flow.resume(state) as rest:
            assert rest.state_dict() == state
            assert list(islice(rest, 4)) == expected[30:]
        assert min(reader.seen) >= first

    def test_a_run_saved_with_workers_resumes_where_it_was(self) -> None:
        reader = Reader()
        docs = fl.from_range(10_000).map(reader).flat_map(lambda i: [i] * 40)
        flow = docs.map(lambda i: i + 1).batch(16).prefetch(threads=2)
        state = _state_after(flow, 700)
        reader.seen.clear()
        with flow.resume(state) as rest:
            assert next(rest).tolist() == [281] * 16
        assert min(reader.seen) >= 279 - 8

    def test_workers_do_not_compute_again_what_they_were_sent(self) -> None:
        reader, mapped = Reader(), Reader()
        flow = fl.from_range(1000).map(reader).filter(odd).batch(2, collate=list).map(mapped)
        with_workers = flow.prefetch(threads=2)
        state = _state_after(with_workers, 50)
        reader.seen.clear()
        mapped.seen.clear()
        with with_workers.resume(state) as rest:
            assert next(rest) == [201, 203]
        assert (min(reader.seen), min(mapped.seen)) == (200, [201, 203])

    def test_the_restart_of_an_earlier_pass_is_not_used(self) -> None:
        flow = fl.from_range(3).filter(odd).flat_map(pair).repeat()
        for position in range(9):
            run = flow.resume(_state_after(flow, position))
            assert list(islice(run, 4)) == [(1, 1000)[i % 2] for i in range(position, position + 4)]


class TestWithoutPlaces:
    @pytest.mark.parametrize(
        "build",
        [
            lambda rows: tens(rows).scan(lambda state, x: (state, x), 0),
            lambda rows: tens(rows).interleave(rows, stop="all"),
        ],
    )
    def test_elements_are_computed_again(
        self, build: Callable[[Flow[int, Any]], Flow[Any, Any]]
    ) -> None:
        flow = build(fl.from_range(100))
        expected = list(flow)
        for position in range(0, len(expected), 9):
            state = _state_after(flow, position)
            assert state["places"] == []
            assert list(flow.resume(state)) == expected[position:]

    def test_no_place_is_needed_if_the_position_is_enough(self) -> None:
        flow = fl.from_range(10).shuffle().map(_same).batch(2).repeat()
        assert resumable_path(flow.node) == ()
        assert _state_after(flow, 7)["places"] == []

    def test_flows_with_too_many_places_record_none(self) -> None:
        flow: Flow[Any, Any] = fl.from_range(10).filter(odd)
        for _ in range(16):
            flow = flow.repeat(1)
        assert _state_after(flow, 2)["places"] == []
        assert next(flow.resume(_state_after(flow, 2))) == 5

    def test_operators_with_more_state_record_no_place(self) -> None:
        with pytest.raises(TypeError, match="EveryThird: an IndexedMap operator cannot leave"):

            class EveryThird(IndexedMap[int, int, Any]):
                drops: ClassVar[bool] = True

    def test_overriding_rows_of_a_resumable_node_is_an_error(self) -> None:
        with pytest.raises(TypeError, match=r"Pairs\.rows: it cannot .* Resumable"):

            class Pairs(Batched[int, Any, Any]):
                def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:  # type: ignore[misc]  # it is final
                    return iter(())

    def test_a_windowed_node_with_its_own_rows_is_used(self) -> None:
        @attrs.frozen
        class Pairs(Windowed[int, Any, Any]):
            n: int = attrs.field(default=2, init=False)
            drop_remainder: bool = attrs.field(default=False, init=False)

            @property
            def title(self) -> str:
                return "pairs"

            @property
            def length(self) -> None:
                return None

            def spec(self, probe: bool) -> Spec:
                return UNKNOWN

            def gather(self, group: Sequence[int], allocate: Any = None) -> Any:
                return tuple(group)

            def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
                elements = (x for _, x in sources[0](epoch))
                groups = iter(lambda: tuple(islice(elements, self.n)), ())
                return ((k, ("own", *group)) for k, group in enumerate(groups))

        flow = fl.from_range(8).filter(lambda i: i > 1).apply(Pairs)
        assert list(flow) == [("own", 2, 3), ("own", 4, 5), ("own", 6, 7)]
        assert list(flow.resume(_state_after(flow, 1))) == [("own", 4, 5), ("own", 6, 7)]

    def test_places_are_not_used_beside_task_inputs(self) -> None:
        @attrs.frozen
        class Watch(Identity[int, Any]):
            @property
            def title(self) -> str:
                return "watch"

        def build(threads: int) -> Flow[Any, Any]:
            flow = fl.from_range(100).filter(odd).apply(Watch).map(_same)
            return flow.prefetch(threads=threads).filter(lambda i: i % 3 == 0)

        state = _state_after(build(0), 4)
        assert state["places"] == [4, 0, 22]
        for threads in (0, 2):
            assert list(islice(build(threads).resume(state), 3)) == [27, 33, 39]

    def test_the_end_of_a_longer_shard_is_the_end_of_others(self) -> None:
        def shard(i: int) -> Flow[int, Any]:
            return fl.from_range(41).shard(2, i).filter(lambda i: True)

        assert list(shard(1).resume(_state_after(shard(0), 21))) == []

    def test_places_of_another_shard_are_not_used(self) -> None:
        def shard(n: int, i: int) -> Flow[int, Any]:
            return fl.from_range(40).shard(n, i).filter(lambda i: i % 3 == 0)

        state = _state_after(shard(2, 0), 3)
        assert state["shards"] == [[2, 0]]
        assert list(shard(2, 0).resume(state)) == [18, 24, 30, 36]
        assert list(shard(2, 1).resume(state)) == [21, 27, 33, 39]
        with pytest.raises(StateMismatch, match="no position follows from position"):
            shard(4, 0).resume(state)


class TestRefusals:
    @pytest.mark.parametrize(
        "places",
        [[2, 0, 1, 0, 4], [1, 0, 1, 0, 101]],
        ids=str,
    )
    def test_invalid_places_are_refused(self, places: list[int]) -> None:
        state = changed(_state_after(kept(Reader()), 1), places=places)
        with pytest.raises(StateMismatch) as caught:
            kept(Reader()).resume(state)
        assert str(caught.value) == f"resume: this flow has no places {places} at position 1"


def test_places_of_a_changed_flow_are_ignored() -> None:
    """An ``inspect`` does not change the identity of a flow."""
    looked_at = fl.from_range(20).filter(odd).inspect(0)
    flow = fl.from_range(20).filter(odd)
    for one, other in ((flow, looked_at), (looked_at, flow)):
        assert list(other.resume(_state_after(one, 4))) == list(range(9, 20, 2))


def _array(x: list[int]) -> Any:
    import numpy as np

    return np.array(x)
