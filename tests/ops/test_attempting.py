"""on_error: failing elements are left out, counted and reported.

The laws test this for any chain, with any workers; here each operator is tested by itself.
"""

from __future__ import annotations

import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import (
    ElementError,
    EndlessFlow,
    Flow,
    FlowError,
    InvalidFlow,
    StateMismatch,
    WorkerDied,
)
from flowdsl.nodes import AnyNode
from flowdsl.nodes.failures import SkipFailed
from flowdsl.plan.lower import plan_of
from flowdsl.plan.plan import Base, Lookup, Stage
from flowdsl.plan.reference import interpret
from flowdsl.plan.tree import walk
from flowdsl.testing.functions import damaged
from flowdsl.testing.recipes import Recipe
from flowdsl.workers.processes import Processes
from tests.chaos.dying import kill, kills
from tests.paces import paced, whims
from tests.sampling import examples
from tests.strategies import skipping
from tests.threads import spawn_thread

BAD = (2, 5)


def tens(i: int) -> int:
    if i in BAD:
        raise ValueError(i)
    return 10 * i


def under_30(i: int) -> bool:
    if i == 30:
        raise ValueError(i)
    return i < 30


def twice(i: int) -> list[int]:
    return [i, i]


def noted(seen: list[Any], func: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function, which also records its arguments."""

    def call(x: Any) -> Any:
        seen.append(x)
        return func(x)

    return call


ROWS = fl.from_range(8).map(tens)
STREAM = fl.from_iterable(range(8)).map(tens)
LEFT = [0, 10, 30, 40, 60, 70]


@pytest.fixture(autouse=True)
def workers_are_threads(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "killed" not in request.node.name:
        monkeypatch.setattr(Processes, "spawn", staticmethod(spawn_thread))


WORKERS: list[dict[str, Any]] = [{}, {"procs": 2}, {"threads": 2}]


def skipping_of(flow: Flow[Any, Any], **workers: Any) -> list[Any]:
    return flow.prefetch(**workers, on_error="skip").collect()


class TestSkippedElements:
    """Failed elements below each operator are left out."""

    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    @pytest.mark.parametrize("rows", [ROWS, STREAM], ids=["rows", "stream"])
    @pytest.mark.parametrize(
        ("above", "expected"),
        [
            (lambda f: f, LEFT),
            (lambda f: f.map(str), list(map(str, LEFT))),
            (lambda f: f.filter(under_30), [0, 10]),
            (lambda f: f.filter_map(lambda i: i or None), LEFT[1:]),
            # those that failed have a number, so that the others' is theirs
            (lambda f: f.enumerate(), [(0, 0), (1, 10), (3, 30), (4, 40), (6, 60), (7, 70)]),
            (lambda f: f.inspect(0), LEFT),
            # what chooses counts them too: it does not look at elements
            (lambda f: f.take(4), [0, 10, 30]),
            (lambda f: f.skip(2), [30, 40, 60, 70]),
            (lambda f: f.shard(2, 0), [0, 40, 60]),
            (lambda f: f.fixed_size(3), [0, 10]),
            (lambda f: f.repeat(2), LEFT * 2),
            (lambda f: f.repeat_each(2), [i for i in LEFT for _ in range(2)]),
            (lambda f: f.concat(fl.from_range(2)), [*LEFT, 0, 1]),
            (lambda f: f.interleave(fl.from_range(2)), [0, 0, 10, 1, *LEFT[2:]]),
            (lambda f: f.zip(fl.from_range(8)), [(i, i // 10) for i in LEFT]),
            (lambda f: fl.from_range(8).zip(f), [(i // 10, i) for i in LEFT]),
            # what looks at several is given the others
            (lambda f: f.batch(4, collate=list), [LEFT[:4], LEFT[4:]]),
            (lambda f: f.batch(4, collate=list, drop_remainder=True), [LEFT[:4]]),
            (lambda f: f.padded_batch(4).map(np.ndarray.tolist), [LEFT[:4], LEFT[4:]]),
            (lambda f: f.window(5), [tuple(LEFT[:5]), tuple(LEFT[1:])]),
            (lambda f: f.batch(4, collate=list).unbatch(), LEFT),
            (lambda f: f.batch_by_shape(4, np.asarray, collate=list), [LEFT[:4], LEFT[4:]]),
            (lambda f: f.flat_map(twice), [i for i in LEFT for _ in range(2)]),
            (lambda f: f.shuffle(1), LEFT),
            (lambda f: f.cache(), LEFT),
            (lambda f: f.batch(2, collate=list).take(2).map(sum), [10, 70]),
        ],
    )
    def test_failed_elements_are_left_out_below_each_operator(
        self,
        rows: Flow[int, Any],
        above: Callable[[Any], Flow[Any, Any]],
        expected: list[Any],
        workers: dict[str, Any],
    ) -> None:
        assert skipping_of(above(rows), **workers) == expected

    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    def test_random_operators_draw_as_if_nothing_was_left_out(
        self, workers: dict[str, Any]
    ) -> None:
        def noise(i: int, rng: np.random.Generator) -> tuple[int, float]:
            return i, rng.random()

        whole = fl.from_range(8).map(lambda i: 10 * i)
        choices: list[Callable[[Any], Flow[int, Any]]] = [
            lambda f: f.shuffle(seed=3),
            lambda f: f.random_map(noise, seed=3).map(lambda pair: pair[0]),
            lambda f: f.choose(f, seed=3),
            lambda f: f.mix(f, seed=3),
            lambda f: f.shuffle(seed=1).shuffle(seed=2).repeat(2).take(13),
        ]
        for above in choices:
            kept = [i for i in above(whole).collect() if i // 10 not in BAD]
            assert skipping_of(above(ROWS), **workers) == kept
        drawn = dict(whole.random_map(noise, seed=3).collect())
        assert skipping_of(ROWS.random_map(noise, seed=3), **workers) == [
            (i, drawn[i]) for i in LEFT
        ]

    def test_on_error_does_not_change_later_draws(self) -> None:
        for flow in (fl.from_range(20), fl.from_range(20).inspect(0).map(abs).map(abs)):
            assert flow.prefetch(on_error="skip").node.depth == flow.node.depth
            assert flow.prefetch(on_error="skip").shuffle(9).collect() == flow.shuffle(9).collect()

    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    def test_several_operators_may_fail(self, workers: dict[str, Any]) -> None:
        flow = (
            ROWS.map(lambda i: 1 // (i - 30))
            .map(lambda i: i + 1)
            .filter(lambda i: 1 // (i - 1) < 9)
        )
        assert flow.prefetch(**workers, on_error="skip").collect() == [0, 0]

    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    def test_rows_that_cannot_be_read_are_left_out(self, workers: dict[str, Any]) -> None:
        flow = fl.from_items(damaged([(np.int32(i + 1),) for i in range(5)], 3))
        assert skipping_of(flow.shuffle().map(len), **workers) == [1] * 4
        reported: list[ElementError] = []
        flow.shuffle().prefetch(**workers, on_error=reported.append).collect()
        assert list(map(str, reported)) == [
            (
                "from_items(5 items) failed on element 3 (row 3 of from_items(5 items)): "
                "ValueError('row 3 is bad')"
            )
        ]
        assert repr(reported[0].__cause__) == "ValueError('row 3 is bad')"

    def test_all_elements_may_be_left_out(self) -> None:
        assert skipping_of(fl.from_range(3).map(lambda i: i // 0)) == []
        assert skipping_of(fl.from_range(3).map(lambda i: i // 0).batch(2)) == []

    def test_without_on_error_a_failure_is_raised(self) -> None:
        with pytest.raises(ElementError):
            ROWS.prefetch().collect()
        with pytest.raises(ElementError):
            ROWS.prefetch(on_error="raise").collect()

    def test_operators_above_on_error_still_raise(self) -> None:
        flow = ROWS.prefetch(on_error="skip").map(lambda i: i / (i - 30))
        with pytest.raises(ElementError) as caught:
            flow.collect()
        assert str(caught.value) == (
            "map(<lambda>) failed on element 3 (row 3 of from_range(8)): "
            "ZeroDivisionError('division by zero'); the element was 30"
        )

    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    def test_a_damaged_row_is_reported_in_every_pass(self, workers: dict[str, Any]) -> None:
        flow = fl.from_items(damaged([(np.int32(i),) for i in range(3)], 1)).repeat(3)
        reported: list[ElementError] = []
        assert len(flow.prefetch(**workers, on_error=reported.append).collect()) == 6
        assert [error.epoch for error in reported] == [0, 1, 2]


class TestRemainingErrors:
    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    def test_a_stream_that_fails_is_an_error(self, workers: dict[str, Any]) -> None:
        def words() -> Iterator[int]:
            yield from (1, 2)
            raise OSError("gone")

        got: list[int] = []
        with (
            pytest.raises(ElementError) as caught,
            iter(fl.from_iterable(words).map(abs).prefetch(**workers, on_error="skip")) as run,
        ):
            got.extend(run)
        assert repr(caught.value.__cause__) == "OSError('gone')"
        assert str(caught.value).startswith("from_iterable(")

    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    def test_rows_that_do_not_stack_are_an_error(self, workers: dict[str, Any]) -> None:
        flow = fl.from_range(4).map(lambda i: np.zeros(i)).batch(2)
        with pytest.raises(ElementError, match=r"^batch\(2\) failed on element 0"):
            skipping_of(flow, **workers)

    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    def test_a_batch_above_failures_names_its_rows(self, workers: dict[str, Any]) -> None:
        rows = fl.from_range(12).map(lambda i: np.zeros(1 if i == 9 else 2))
        kept = rows.prefetch(**workers, on_error="skip")
        flow = fl.from_range(12).map(lambda i: np.zeros(1 if i == 9 else 2 // (i != 3)))
        for batches, position, first in (
            (flow.prefetch(**workers, on_error="skip").batch(4), 2, 9),
            (flow.batch(4).prefetch(**workers, on_error="skip"), 2, 9),
            (kept.filter(lambda x: True).batch(6), 1, 6),
        ):
            with pytest.raises(ElementError, match="do not stack") as caught:
                batches.collect()
            assert caught.value.place == (
                f"element {position} (row {first} of from_range(12) to row 11 of from_range(12))"
            )

    def test_a_failing_flat_map_function_is_an_error(self) -> None:
        with pytest.raises(ElementError, match=r"^flat_map\(<lambda>\) failed on element 0"):
            skipping_of(fl.from_range(4).flat_map(lambda i: [1 // i]))

    def test_a_source_that_cannot_be_opened_is_an_error(self, tmp_path: Any) -> None:
        path = tmp_path / "rows.lmdb"
        fl.from_range(3).write_lmdb(path)
        flow = fl.from_lmdb(path).prefetch(on_error="skip")
        path.unlink()
        with pytest.raises(FlowError, match="cannot be opened"):
            flow.collect()

    def test_keyboard_interrupt_is_not_skipped(self) -> None:
        def stop(_: int) -> int:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            skipping_of(fl.from_range(4).map(stop))


class TestHandler:
    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    @pytest.mark.parametrize("rows", [ROWS, STREAM], ids=["rows", "stream"])
    def test_the_handler_gets_each_error_in_order(
        self, rows: Flow[int, Any], workers: dict[str, Any]
    ) -> None:
        reported: list[ElementError] = []
        flow = rows.map(lambda i: 1 / (i - 30)).prefetch(**workers, on_error=reported.append)
        assert len(flow.collect()) == 5
        assert [(e.operator, e.position, e.epoch, repr(e.__cause__)) for e in reported] == [
            ("map(tens)", 2, 0, "ValueError(2)"),
            ("map(<lambda>)", 3, 0, "ZeroDivisionError('division by zero')"),
            ("map(tens)", 5, 0, "ValueError(5)"),
        ]
        row = "element" if rows is STREAM else "row"
        assert all(e.origin.startswith(f"{row} {e.position} of from_") for e in reported)

    def test_the_handler_gets_nothing_after_an_error(self) -> None:
        def half(i: int) -> Any:
            if i == 5:
                raise ValueError(i)
            return i if i != 4 else sys.exit(3)

        reported: list[ElementError] = []
        with paced([8]):
            flow = fl.from_range(8).map(half).prefetch(procs=1, on_error=reported.append)
            run = iter(flow)
            assert [next(run) for _ in range(4)] == [0, 1, 2, 3]
            with pytest.raises(SystemExit):
                next(run)
        assert reported == []

    def test_the_handler_must_accept_one_argument(self) -> None:
        with pytest.raises(InvalidFlow) as caught:
            ROWS.prefetch(on_error=lambda: None)  # type: ignore[arg-type,misc]  # on purpose
        assert str(caught.value) == (
            "prefetch: on_error must take one argument, the error, but <lambda> cannot be called "
            "with it: too many positional arguments"
        )
        ROWS.prefetch(on_error=print)
        ROWS.prefetch(on_error=dict)  # type: ignore[arg-type]  # which says nothing of what it takes

    def test_the_handler_gets_the_epoch_and_the_row(self) -> None:
        reported: list[ElementError] = []
        flow = ROWS.shuffle(seed=1).repeat(2).prefetch(on_error=reported.append)
        for epoch in (0, 1):
            list(flow.epoch(epoch))
        assert len(reported) == 8
        assert len({e.epoch for e in reported}) == 4
        assert Counter(e.origin for e in reported) == {f"row {i} of from_range(8)": 4 for i in BAD}

    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    @pytest.mark.parametrize("rows", [ROWS, STREAM], ids=["rows", "stream"])
    def test_the_handler_may_raise_to_end_the_pass(
        self, rows: Flow[int, Any], workers: dict[str, Any]
    ) -> None:
        def stop(error: ElementError) -> None:
            raise KeyError(error.position)

        whole: Any = rows.prefetch(**workers, on_error=stop)
        pairs: Any = rows.batch(2, collate=list).prefetch(**workers, on_error=stop)
        for flow, first in ((whole, [0, 10]), (pairs, [[0, 10]])):
            got: list[Any] = []
            with paced([4, 1, 3]), iter(flow) as run:
                with pytest.raises(KeyError) as caught:
                    got.extend(run)
                assert caught.value.args == (2,)
                (note,) = caught.value.__notes__
                assert note.startswith("raised by on_error=")
                assert "which was called because map(tens) failed on element 2 (" in note
                assert got == first
                with pytest.raises(FlowError, match="ended with an error"):
                    next(run)

    def test_the_reference_notes_what_the_handler_raises(self) -> None:
        def again(error: ElementError) -> None:
            raise error

        def other(error: ElementError) -> None:
            raise OSError("the log is full") from error

        for handler, notes in ((again, 0), (other, 1)):
            with pytest.raises((ElementError, OSError)) as caught:
                list(interpret(ROWS.prefetch(on_error=handler).node))
            assert len(getattr(caught.value, "__notes__", [])) == notes

    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    def test_the_handler_gets_the_file_and_the_line(
        self, tmp_path: Any, workers: dict[str, Any]
    ) -> None:
        path = tmp_path / "a.csv"
        path.write_text("x,y\n1,2\n4,5\n?,3\n")
        seen: list[tuple[str, int | None]] = []

        def handler(error: ElementError) -> None:
            assert error.location is not None
            seen.append((error.location.path, error.location.line))

        def fails_on_5(pair: tuple[int, int]) -> float:
            return 1 / (pair[1] - 5)

        flow = fl.from_csv(path, tuple[int, int], header=True).map(fails_on_5)
        assert flow.prefetch(**workers, on_error=handler).collect() == [-1 / 3]
        assert seen == [(str(path), 3), (str(path), 4)]

    def test_the_handler_is_not_called_by_a_probe(self) -> None:
        reported: list[ElementError] = []
        flow = fl.from_range(4).map(lambda i: 1 // i).prefetch(on_error=reported.append)
        above = flow.map(lambda i: i).batch(2, collate=list).unbatch()
        assert str(above.spec) == "int"
        above.explain()
        assert reported == []
        assert above.collect() == [1, 0, 0]
        assert len(reported) == 1

    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    def test_nested_handlers_get_their_own_errors(self, workers: dict[str, Any]) -> None:
        inner: list[ElementError] = []
        outer: list[ElementError] = []
        flow = ROWS.prefetch(**workers, on_error=inner.append)
        flow = flow.map(lambda i: i / (i - 30)).prefetch(**workers, on_error=outer.append)
        assert len(flow.collect()) == 5
        assert [(e.operator, e.position) for e in inner] == [("map(tens)", 2), ("map(tens)", 5)]
        assert [(e.operator, e.position) for e in outer] == [("map(<lambda>)", 3)]

    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    def test_handlers_of_merged_flows_get_their_own_errors(self, workers: dict[str, Any]) -> None:
        ours: list[ElementError] = []
        theirs: list[ElementError] = []
        other = fl.from_range(3).map(lambda i: 1 // i).prefetch(on_error=theirs.append)
        flow = other.concat(ROWS).prefetch(**workers, on_error=ours.append)
        assert flow.collect() == [1, 0, *LEFT]
        assert [(e.operator, e.position) for e in theirs] == [("map(<lambda>)", 0)]
        assert [(e.operator, e.position) for e in ours] == [("map(tens)", 2), ("map(tens)", 5)]

    def test_errors_of_merged_flows_name_the_failed_operator(self) -> None:
        reported: list[ElementError] = []
        flow = ROWS.concat(ROWS.map(abs).map(lambda i: i // (i - 10)), fl.from_range(2).map(tens))
        flow.prefetch(on_error=reported.append).collect()
        assert [(e.operator, e.position) for e in reported] == [
            ("map(tens)", 2),
            ("map(tens)", 5),
            ("map(<lambda>)", 1),
            ("map(tens)", 2),
            ("map(tens)", 5),
        ] or [(e.operator, e.position) for e in reported][2:] == [
            ("map(<lambda>)", 1),
            ("map(tens)", 2),
            ("map(tens)", 5),
        ]


class TestSeveralPasses:
    def test_a_cache_below_on_error_is_separate_from_the_original(self) -> None:
        whole = ROWS.cache()
        assert skipping_of(whole) == LEFT
        with pytest.raises(ElementError):
            whole.collect()
        calls: list[int] = []
        kept = fl.from_range(3).map(noted(calls, lambda i: 1 // i)).cache()
        flow = kept.prefetch(on_error="skip")
        assert [flow.collect(), flow.collect(), calls] == [[1, 0], [1, 0], [0, 1, 2]]

    def test_a_cache_used_twice_is_shared(self) -> None:
        calls: list[int] = []
        kept = fl.from_range(2).map(noted(calls, lambda i: i)).cache()
        assert skipping_of(kept.concat(kept)) == [0, 1, 0, 1]
        assert calls == [0, 1]

    def test_repeating_a_flow_without_good_elements_is_an_error(self) -> None:
        flow = fl.from_range(3).map(lambda i: i // 0).batch(2).repeat().prefetch(on_error="skip")
        with pytest.raises(FlowError, match="no elements"):
            next(iter(flow))

    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    @pytest.mark.parametrize("rows", [fl.from_range(20), fl.from_iterable(range(20))], ids=str)
    def test_an_endless_flow_without_good_elements_is_an_error(
        self, rows: Flow[int, Any], workers: dict[str, Any]
    ) -> None:
        flow = rows.map(lambda i: i // 0).repeat().batch(3).prefetch(**workers, on_error="skip")
        with pytest.raises(
            EndlessFlow, match=r"^repeat: .*(pass 0 had no elements|all 20 elements of a pass)"
        ):
            next(iter(flow))

    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    def test_one_good_row_per_pass_keeps_an_endless_flow_alive(
        self, workers: dict[str, Any]
    ) -> None:
        flow = fl.from_range(20).map(lambda i: 1 // (i == 0)).shuffle().repeat()
        shuffled = flow.prefetch(**workers, on_error="skip").shuffle(4).map(abs).batch(3).take(5)
        with paced([40]):  # failures travel slowly, and the workers have to end in time
            assert [x.tolist() for x in shuffled.prefetch(**workers)] == [[1, 1, 1]] * 5

    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    def test_failures_above_a_repeat_count_for_their_pass(self, workers: dict[str, Any]) -> None:
        flow = fl.from_range(3).repeat().map(lambda i: 1 // (i == 0)).prefetch(on_error="skip")
        with paced([40]):
            assert flow.take(5).prefetch(**workers).collect() == [1] * 5

    @pytest.mark.parametrize(
        "fails",
        [
            lambda rows: rows.repeat().map(lambda i: i // 0),
            lambda rows: rows.map(lambda i: 1 // (i % 2)).repeat().map(lambda i: i // 0),
            lambda rows: rows.map(lambda i: i // 0).repeat().batch(2),
        ],
    )
    def test_a_pass_of_an_endless_flow_with_only_failures_is_an_error(
        self, fails: Callable[[Flow[int, Any]], Flow[Any, Any]]
    ) -> None:
        flow = fails(fl.from_range(4)).prefetch(on_error="skip")
        with pytest.raises(EndlessFlow, match=r"all 4 elements of a pass|pass 0 had no elements"):
            next(iter(flow))

    def test_failures_of_several_endless_flows_are_counted_separately(self) -> None:
        half = fl.from_range(20).map(lambda i: 1 // (i % 2)).repeat().prefetch(on_error="skip")
        other = fl.from_range(20).map(lambda i: 1 // (i % 2)).repeat().prefetch(on_error="skip")
        assert half.zip(other).take(40).collect() == [(1, 1)] * 40


class TestPromises:
    def test_on_error_changes_effects_and_length(self) -> None:
        for flow in (ROWS, STREAM, fl.from_iterable(range(3)), ROWS.batch(2), ROWS.cache()):
            skips = flow.prefetch(on_error="skip")
            assert skips.effects == flow.effects | {fl.Resampled, fl.Unsized}
            assert skips.node.length is None

    def test_a_take_below_on_error_keeps_its_length(self) -> None:
        flow = ROWS.batch(2, collate=list).repeat().take(7).prefetch(on_error="skip")
        assert (len(flow), fl.Unsized in flow.effects) == (7, False)
        assert len(flow.collect()) == 7

    @pytest.mark.parametrize(
        ("flow", "spec"),
        [
            (fl.from_range(4).map(lambda i: 1 / i), "float"),
            (fl.from_range(4).map(lambda i: 1 / i).map(lambda x: (x, x)), "(float, float)"),
            (fl.from_range(4).map(lambda i: 1 / i).filter(bool), "float"),
            (fl.from_range(4).map(lambda i: 1 / i).map(lambda x: 1 / (x - 1)), "float"),
            (fl.from_range(4).map(lambda i: 1 / i).enumerate(), "(int, float)"),
            (fl.from_range(4).map(lambda i: 1 / i).inspect(4).map(abs), "float"),
            (fl.from_range(4).map(lambda i: 1 / i).batch(2), "float64[?]"),
            (fl.from_range(4).map(lambda i: 1 / i).zip(fl.from_range(4)), "(float, int)"),
            (fl.from_items(damaged([0.5, 1.5], 0)), "float"),
            (fl.from_items(damaged([0.5, 1.5], 0)).map(lambda x: x), "float"),
            (fl.from_range(4).map(lambda i: i // 0), "?"),
            (fl.from_range(4).repeat().map(lambda i: i // 0), "?"),
        ],
        ids=str,
    )
    def test_the_spec_comes_from_elements_that_do_not_fail(
        self, flow: Flow[Any, Any], spec: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert str(flow.prefetch(on_error="skip").spec) == spec
        assert capfd.readouterr().err == ""

    def test_functions_never_receive_failures(self) -> None:
        seen: list[Any] = []
        flow: Flow[int, Any] = fl.from_range(3).map(lambda i: 1 // i).map(noted(seen, lambda x: x))
        flow = flow.filter(noted(seen, lambda x: True)).prefetch(on_error="skip")
        assert flow.spec is not None
        flow.explain()
        assert flow.collect() == [1, 0]
        assert set(map(type, seen)) == {int}


class TestStatistics:
    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    @pytest.mark.parametrize("rows", [ROWS, STREAM], ids=["rows", "stream"])
    def test_skipped_and_filtered_elements_are_counted(
        self, rows: Flow[int, Any], workers: dict[str, Any]
    ) -> None:
        flow = rows.filter(lambda i: i != 30).prefetch(**workers, on_error="skip")
        with iter(flow) as run:
            assert list(run) == [0, 10, 40, 60, 70]
            done = run.statistics()
        assert (done.elements, done.skipped) == (5, 2)
        row = "element 2 of from_iterable(range)" if rows is STREAM else "row 2 of from_range(8)"
        assert done.skips[0].error == (
            f"map(tens) failed on element 2 ({row}): ValueError(2); the element was 2"
        )
        if workers:
            (stage,) = done.stages
            counts = stage.entered, stage.delivered, stage.filtered, stage.skipped
            assert counts == (8, 5, 1, 2)

    def test_the_first_skips_are_listed(self) -> None:
        with iter(fl.from_range(500).map(lambda i: i // 0).prefetch(on_error="skip")) as run:
            assert list(run) == []
            done = run.statistics()
        assert (done.skipped, len(done.skips)) == (500, 100)
        assert "element 99 " in done.skips[-1].error

    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    def test_skips_are_logged_at_the_end(
        self, workers: dict[str, Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        flow = ROWS.prefetch(**workers, on_error="skip")
        with iter(flow) as run:
            for _ in range(4):
                next(run)
            assert caplog.records == []
            assert list(run) == [60, 70]
        (record,) = caplog.records
        assert (record.name, record.levelno) == ("flowdsl", logging.WARNING)
        assert "2 elements" in record.getMessage()
        assert "map(tens) failed on element 2 (row 2 of from_range(8))" in record.getMessage()
        caplog.clear()
        fl.from_range(3).prefetch(**workers, on_error="skip").collect()
        assert caplog.records == []

    @settings(max_examples=examples(60))
    @given(skipping(most=4), st.integers(1, 3), st.booleans(), st.integers(0, 2), whims)
    def test_the_same_elements_are_left_out_by_any_workers(
        self, recipe: Recipe, n: int, in_threads: bool, epoch: int, sizes: list[int]
    ) -> None:
        def reported(**workers: int) -> list[str]:
            reported: list[str] = []

            def note(error: ElementError) -> None:
                reported.append(f"{error} <- {error.__cause__!r}")

            flow: Any = recipe.build()
            with flow.prefetch(**workers, on_error=note).epoch(epoch) as run:
                list(run)
                assert run.statistics().skipped >= len(reported)  # besides those of the recipe
            return sorted(reported)  # failures below a batch are reported when it is read

        try:
            alone = reported()
        except FlowError:
            return
        with paced(sizes):
            assert reported(**{"threads" if in_threads else "procs": n}) == alone


class TestState:
    def test_a_state_distinguishes_flows_with_and_without_on_error(self) -> None:
        skips = ROWS.prefetch(on_error="skip")
        with iter(skips) as run:
            assert [next(run) for _ in range(3)] == LEFT[:3]
            state = run.state_dict()
        with pytest.raises(StateMismatch, match='on_error="skip"'):
            ROWS.resume(state)
        with pytest.raises(StateMismatch, match='on_error="skip"'):
            ROWS.prefetch(procs=2).resume(state)

    @pytest.mark.parametrize("workers", WORKERS, ids=str)
    def test_a_state_fits_any_handler_and_any_workers(self, workers: dict[str, Any]) -> None:
        with iter(ROWS.prefetch(on_error="skip")) as run:
            assert [next(run) for _ in range(3)] == LEFT[:3]
            state = run.state_dict()
        reported: list[ElementError] = []
        assert list(ROWS.prefetch(**workers, on_error=reported.append).resume(state)) == LEFT[3:]


@pytest.mark.parametrize("workers", WORKERS, ids=str)
@pytest.mark.parametrize("rows", [ROWS, STREAM], ids=["rows", "stream"])
def test_a_resumed_pass_reports_only_later_failures(
    rows: Flow[int, Any], workers: dict[str, Any]
) -> None:
    reported: list[int] = []
    flow = rows.prefetch(**workers, on_error=lambda error: reported.append(error.position))
    with iter(flow) as run:
        assert [next(run), next(run), next(run)] == [0, 10, 30]
        state = run.state_dict()
    reported.clear()
    again = flow.resume(state)
    assert list(again) == [40, 60, 70]
    assert reported == [5]
    assert again.statistics().skipped == 1


def test_failures_read_ahead_are_reported_again_after_a_resume() -> None:
    reported: list[int] = []
    rows = fl.from_iterable(range(8)).map(tens)
    left = rows.prefetch(on_error=lambda error: reported.append(error.position))
    flow = left.shuffle(1).map(abs).filter(lambda i: i >= 0).prefetch(threads=1)
    with iter(flow) as run:
        assert [next(run), next(run)] == [0, 10]
        state = run.state_dict()
    reported.clear()
    assert list(flow.resume(state)) == [30, 40, 60, 70]
    assert reported == [2, 5]


class TestZipWithSkips:
    """zip over what has lost its places."""

    @pytest.mark.parametrize(
        ("part", "where"),
        [
            (ROWS.batch(2, collate=list), "batch(2, collate=list)"),
            (ROWS.window(2), "window(2)"),
            (ROWS.flat_map(twice), "flat_map(twice)"),
            (ROWS.cache(), "cache()"),
            (ROWS.batch(2, collate=list).map(len).take(3), "batch(2, collate=list)"),
            (ROWS.zip(ROWS).batch(2, collate=list), "batch(2, collate=list)"),
        ],
        ids=str,
    )
    def test_zip_over_skipped_rows_is_refused(self, part: Flow[Any, Any], where: str) -> None:
        other = fl.from_range(1).repeat()
        for flow in (part.zip(other), other.zip(part), part.zip(other).shuffle(2).map(len)):
            with pytest.raises(InvalidFlow) as caught:
                flow.prefetch(on_error="skip")
            assert str(caught.value) == (
                f"prefetch: on_error leaves rows out below {where}, so that zip(...) would join "
                f"elements that do not belong together; put zip(...) below {where}"
            )

    def test_zip_over_an_inner_on_error_is_allowed(self) -> None:
        other: Flow[int, Any] = fl.from_range(1).repeat()
        flow: Flow[Any, Any] = ROWS.prefetch(on_error="skip").batch(2, collate=list).zip(other)
        assert len(flow.prefetch(on_error="skip").collect()) == 3
        flow = ROWS.zip(other).batch(2, collate=tuple)
        assert len(flow.prefetch(on_error="skip").collect()) == 3

    def test_operators_that_need_the_length_are_refused(self) -> None:
        with pytest.raises(InvalidFlow) as caught:
            ROWS.batch(2).shuffle().prefetch(on_error="skip")
        assert str(caught.value) == (
            "prefetch: on_error leaves rows out, so their number is not known; shuffle: "
            "batch(2) has no known length, and a shuffle of all elements needs to know how many "
            "there are. Write shuffle(buffer=n) to shuffle within a window of n elements; or if "
            "they fit in memory, collect them first: fl.from_items(flow.collect()).shuffle()"
        )
        with pytest.raises(
            InvalidFlow, match=r"^prefetch: on_error leaves .*; mix: batch\(2\) has"
        ):
            ROWS.batch(2).mix(ROWS.batch(2)).prefetch(on_error="skip")


class TestPlan:
    def leaves_out(self, node: AnyNode) -> int:
        return sum(isinstance(part, SkipFailed) for part in walk(node))

    @pytest.mark.parametrize(
        ("flow", "places"),
        [
            (ROWS, 1),
            (ROWS.batch(2), 1),
            (ROWS.batch(2).map(len), 2),
            (ROWS.batch(2).repeat().take(3), 1),
            (fl.from_iterable(range(3)), 1),
            (fl.from_iterable(range(3)).batch(2), 1),
            (ROWS.prefetch(on_error="skip"), 1),
            (ROWS.prefetch(on_error="skip").batch(2), 1),
            (ROWS.prefetch(on_error="skip").map(abs), 2),
            (ROWS.concat(ROWS), 1),
            (ROWS.batch(2).concat(ROWS.batch(2)), 2),
        ],
        ids=str,
    )
    def test_skips_are_put_below_operators_that_read_elements(
        self, flow: Flow[Any, Any], places: int
    ) -> None:
        assert self.leaves_out(flow.prefetch(on_error="skip").node) == places

    def test_on_error_keeps_late_reading(self) -> None:
        flow = ROWS.enumerate().shuffle().repeat(2).prefetch(procs=2, on_error="skip")
        stage = plan_of(flow.node).root
        assert isinstance(stage, Stage)
        assert (stage.bases, stage.workers.count) == ((), 2)

    def test_no_workers_are_started_only_to_leave_elements_out(self) -> None:
        for flow in (
            STREAM.repeat(2),
            STREAM.concat(fl.from_iterable([1])),
            ROWS.batch(2, collate=list),
            ROWS.prefetch(procs=0, on_error="skip").batch(2, collate=list),
        ):
            plan = plan_of(flow.prefetch(procs=2, on_error="skip").node).root
            assert not isinstance(plan, Stage)
            assert sum(isinstance(part, Stage) for part in walk_plan(plan)) == 1
        for idle in (fl.from_iterable(range(3)), fl.from_items([1, 2]).shuffle()):
            plan = plan_of(idle.prefetch(procs=2, on_error="skip").node).root
            assert all(
                not part.workers.count for part in walk_plan(plan) if isinstance(part, Stage)
            )


def walk_plan(part: Base) -> Iterator[Base]:
    """Yield every part of a plan."""
    if not isinstance(part, Lookup):
        for source in part.bases if isinstance(part, Stage) else part.sources:
            yield from walk_plan(source)
    yield part


@pytest.mark.usefixtures("mortals")
@pytest.mark.parametrize("rows", [fl.from_range(6), fl.from_iterable(range(6))], ids=str)
@pytest.mark.parametrize(
    ("above", "expected"),
    [
        (lambda f: f, [0, 1, 2, 4, 5]),
        (lambda f: f.batch(2, collate=list), [[0, 1], [2, 4], [5]]),
        (lambda f: f.shuffle(1).map(abs), [0, 1, 2, 4, 5]),
        (lambda f: f.repeat(2), [0, 1, 2, 4, 5] * 2),
    ],
)
def test_an_element_by_which_workers_are_killed_is_left_out(
    rows: Flow[int, Any], above: Callable[[Any], Flow[Any, Any]], expected: list[Any]
) -> None:
    reported: list[ElementError] = []
    flow = above(rows.map(kills(3))).prefetch(procs=2, on_error=reported.append, deaths=1)
    assert flow.collect() == expected
    assert {e.position for e in reported} == {3} or len(reported) == 2
    died = r"^(a worker died|2 workers died, .*) at work on element \d+ of (?!on_error)"
    assert all(re.match(died, str(e.__cause__)) for e in reported)


def test_an_element_by_which_a_process_is_killed_is_left_out() -> None:
    reported: list[ElementError] = []
    flow = fl.from_range(6).map(kills(3)).prefetch(procs=2, on_error=reported.append, deaths=1)
    assert flow.batch(2, collate=list).collect() == [[0, 1], [2, 4], [5]]
    assert [error.position for error in reported] == [3]
    assert "signal SIGKILL" in str(reported[0].__cause__)


@pytest.mark.usefixtures("mortals")
@pytest.mark.parametrize("above", [lambda f: f.map(double_or_die), lambda f: f.batch(2)])
def test_workers_killed_above_on_error_are_an_error(above: Callable[[Any], Flow[Any, Any]]) -> None:
    inner = fl.from_range(6).map(abs).prefetch(procs=1, on_error="skip")
    with pytest.raises(WorkerDied, match=r"died(, one after another,)? at work on element"):
        above(inner).map(double_or_die).prefetch(procs=1, deaths=1).collect()


def double_or_die(x: Any) -> Any:
    if np.any(x == 3):
        kill()
    return x
