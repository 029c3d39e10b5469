"""Filters that keep almost nothing: a run says so once, with its counts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

import flowdsl as fl
from flowdsl.report.bottleneck import verdict
from flowdsl.statistics import run as figures
from flowdsl.statistics.run import Filtered

N = 12_000


def is_rare(i: int) -> bool:
    return i % 4_000 == 7


def is_odd(i: int) -> bool:
    return i % 2 == 1


def never(i: int) -> bool:
    return False


FLOWS: dict[str, Callable[[], fl.Flow[int, Any]]] = {
    "rows": lambda: fl.from_range(N).filter(is_rare),
    "workers": lambda: fl.from_range(N).filter(is_rare).prefetch(threads=2),
    "a stream": lambda: fl.from_iterable(lambda: range(N)).filter(is_rare),
    "a stream for workers": lambda: (
        fl.from_iterable(lambda: range(N)).filter(is_rare).map(abs).prefetch(threads=1)
    ),
    "above flat_map": lambda: fl.from_range(N // 2).flat_map(lambda i: [i, i]).filter(is_rare),
}


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "flowdsl"]


@pytest.mark.parametrize("name", FLOWS)
def test_a_filter_that_keeps_almost_nothing_says_so_once(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "flowdsl")
    flow = FLOWS[name]()
    kept = len(flow.collect())
    (message,) = messages(caplog)
    assert message.startswith(f"filter(is_rare) kept {kept} of 12,000 elements: ")
    assert "select_rows(positions)" in message
    assert len(flow.collect()) == kept
    assert len(messages(caplog)) == 1


@pytest.mark.parametrize("name", FLOWS)
def test_the_statistics_and_the_verdict_name_it(name: str) -> None:
    run = iter(FLOWS[name]())
    kept = len(list(run))
    statistics = run.statistics()
    assert [(one.kept, one.seen) for one in statistics.sparse] == [(kept, N)]
    assert f"filter(is_rare) kept {kept} of 12,000 elements" in str(statistics)
    assert f"filter(is_rare) kept {kept} of 12,000 elements" in verdict(statistics).advice


@pytest.mark.parametrize("rows", [fl.from_range(N), fl.from_iterable(lambda: range(N))], ids=str)
def test_a_filter_that_keeps_more_says_nothing(
    rows: fl.Flow[int, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "flowdsl")
    run = iter(rows.filter(is_odd))
    assert len(list(run)) == N / 2
    assert [(one.kept, one.seen) for one in run.statistics().filtered] == [(N / 2, N)]
    assert rows.take(900).filter(never).collect() == []
    assert messages(caplog) == []


ENDLESS: dict[str, Callable[[Iterator[int]], fl.Flow[int, Any]]] = {
    "a stream": lambda numbers: fl.from_iterable(numbers).filter(never),
    "workers": lambda numbers: fl.from_iterable(numbers).map(abs).filter(never).prefetch(threads=1),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_pass_that_keeps_nothing_says_so_before_its_end(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "flowdsl")
    for module in ("flowdsl.runtime.filters", "flowdsl.workers.pool"):
        monkeypatch.setattr(f"{module}.DROPPED_IN_A_ROW", 20_000)

    def numbers() -> Iterator[int]:
        yield from range(60_000)
        said.extend(messages(caplog))

    said = list[str]()
    assert list(islice(ENDLESS[name](numbers()), 1)) == []
    assert [message[:22] for message in said] == ["filter(never) kept 0 o"]
    assert len(messages(caplog)) == 1


def test_rows_by_number_that_keep_nothing_say_so_before_the_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "flowdsl")
    monkeypatch.setattr("flowdsl.runtime.inline.DROPPED_IN_A_ROW", 20_000)
    said = list[int]()

    def noting(i: int) -> bool:
        if messages(caplog):
            said.append(i)
        return False

    assert fl.from_range(60_000).filter(noting).collect() == []
    assert said
    assert min(said) < 40_000


def test_only_many_elements_are_judged() -> None:
    assert not Filtered("filter(f)", 0, figures.LEAST_SEEN - 1).is_sparse
    assert Filtered("filter(f)", 9, figures.LEAST_SEEN).is_sparse
    assert not Filtered("filter(f)", 10, figures.LEAST_SEEN).is_sparse
