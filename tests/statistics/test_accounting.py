"""The counts of a stage balance, and times are summarized by quantiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import FlowError
from flowdsl.executor import execute as making
from flowdsl.nodes import Indices, Row
from flowdsl.statistics.accounting import ElementCounts, Times, quantile
from tests.sampling import examples


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_counts_balance_or_raise(entered: int, delivered: int, filtered: int, skipped: int) -> None:
    books = ElementCounts(entered, delivered, filtered, skipped)
    if entered == delivered + filtered + skipped:
        books.check("map(f)")
        return
    with pytest.raises(FlowError) as caught:
        books.check("map(f)")
    assert str(caught.value) == (
        f"the counts of the stage that ends in map(f) do not balance: {entered} elements went in, "
        f"of which {delivered} came out, {filtered} were filtered and {skipped} were skipped; this "
        f"is a defect, please report it"
    )
    books.forget_under_way()
    books.check("map(f)")


class Faulty(making.EndToEnd):
    """A worker's program that loses a row of each task, or yields one twice."""

    times = 0

    def elements(self, addresses: Indices, supplied: Sequence[Iterable[Any]] = ()) -> Iterator[Any]:
        for k, position in enumerate(addresses.position.tolist()):
            yield from [position] * (self.times if k == 2 else 1)

    def rows(
        self, addresses: Indices, supplied: Sequence[Iterable[Any]] = ()
    ) -> Iterator[Row[Any]]:
        return ((position, position) for position in self.elements(addresses))


@pytest.mark.parametrize("times", [0, 2])
def test_a_row_that_is_lost_or_repeated_in_a_worker_is_an_error(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faulty, "times", times)
    monkeypatch.setattr("flowdsl.workers.threads.executor_of", lambda root, *_, **__: Faulty(root))
    with pytest.raises(FlowError, match="do not balance"):
        fl.from_range(100).map(abs).prefetch(threads=1).collect()


@pytest.mark.parametrize(("procs", "threads"), [(2, 0), (0, 2)])
def test_each_row_is_counted_once(procs: int, threads: int) -> None:
    def reciprocal(i: int) -> int:
        return 60 // (i % 10)

    flow = (
        fl.from_range(100)
        .filter(lambda i: i % 3 != 0)
        .map(reciprocal)
        .prefetch(procs, threads, on_error="skip")
    )
    run = iter(flow)
    assert len(list(run)) == 60
    (stage,) = run.statistics().stages
    assert (stage.entered, stage.filtered, stage.skipped, stage.delivered) == (100, 34, 6, 60)
    assert (stage.retried, stage.deaths, stage.in_flight) == (0, 0, 0)
    assert run.statistics().skipped == 6
    assert run.statistics().skips[0].error.startswith("map(reciprocal) failed on element 10 (row")


def test_counts_balance_over_passes_ended_early() -> None:
    flow = fl.from_range(100).filter(lambda i: i % 2 == 0).prefetch(threads=2).take(3).repeat(20)
    run = iter(flow)
    assert list(run) == [0, 2, 4] * 20
    (stage,) = run.statistics().stages
    assert stage.entered == stage.delivered + stage.filtered + stage.in_flight


def test_a_pass_that_ends_too_soon_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "flowdsl.runtime.inline.Inline._blocks", lambda *_: iter([Indices.span(0, 0, 7)])
    )
    with pytest.raises(FlowError, match="ended after 7 of 10 elements"):
        fl.from_range(10).map(abs).collect()


class TestTimes:
    @settings(max_examples=examples(200))
    @given(st.lists(st.floats(1e-6, 100), min_size=1), st.sampled_from([0.5, 0.99, 1.0]))
    def test_quantiles_are_right_within_a_bin(self, seconds: list[float], q: float) -> None:
        times = Times()
        times.add(seconds)
        rank = next(k for k in range(1, len(seconds) + 1) if k >= q * len(seconds))
        exact = sorted(seconds)[rank - 1]
        assert exact / 1.1 <= quantile(times.bins, q) <= exact * 1.1

    def test_quantiles_without_elements_are_zero(self) -> None:
        assert quantile((), 0.5) == 0.0

    def test_elements_added_with_a_mean_count_each(self) -> None:
        times = Times()
        times.add_mean(1.0, 99)
        times.add([100.0])
        assert quantile(times.bins, 0.5) == pytest.approx(0.01, rel=0.1)
        assert quantile(times.bins, 1.0) == pytest.approx(100, rel=0.1)
