"""Agreement of a run with a reference that computes elements ahead."""

from __future__ import annotations

import queue
from typing import Any

import pytest

import flowdsl as fl
from flowdsl.testing.functions import damaged
from flowdsl.testing.outcomes import Outcome, agree, outcome, reference


def never_whole() -> fl.Flow[Any, Any]:
    """Two rows, the last of which fails, in complete batches of three."""
    rows: list[Any] = damaged([1, 2], 1)
    return fl.from_items(rows).batch(3, drop_remainder=True, collate=list)


def outcomes(flow: fl.Flow[Any, Any]) -> tuple[Outcome, Outcome]:
    with flow.epoch(0) as run:
        return outcome(run), reference(flow.node)


def test_an_unyielded_error_may_become_endless_flow() -> None:
    # The reference reads a row that fails; a run knows that no batch becomes full.
    empty = fl.from_items([1]).take(0).batch(3, drop_remainder=True, collate=list).map(list)
    flow = empty.choose(never_whole().map(list), stop="first", seed=0).repeat()
    got, expected = outcomes(flow)
    assert "EndlessFlow" in str(got.error)
    assert "ElementError" in str(expected.error)
    agree("a run", got, expected, flow.node)


def test_an_unyielded_error_may_become_a_second_pass_error() -> None:
    # The reference walks over the row that fails; a run knows that no window takes it, and goes on.
    rows = fl.from_items(damaged([1, 2], 1)).window(1, 2).map(list)

    def flow() -> fl.Flow[Any, Any]:
        none = queue.Queue[Any]()
        none.put(None)
        no_rows = fl.from_queue(none).window(1).map(list)
        return no_rows.concat(rows).fixed_size(2, keep_state=False)

    with flow().epoch(0) as run:
        got = outcome(run)
    expected = reference(flow().node)
    assert "SourceError: from_queue: a queue allows only one pass" in str(got.error)
    assert "ElementError" in str(expected.error)
    agree("a run", got, expected, flow().node)
    once = fl.from_items(damaged([1, 2], 1)).shuffle()
    with pytest.raises(AssertionError, match="a run: the error is"):
        agree("a run", got, expected, once.node)


def test_a_run_may_end_where_the_reference_fails_earlier() -> None:
    pairs = fl.from_items(damaged([1, 2, 3], 2)).batch(2, drop_remainder=True)
    flow = pairs.filter(lambda x: x.sum() > 3).fixed_size(1)
    got, expected = outcomes(flow)
    assert "EndlessFlow" in str(got.error)
    assert "ElementError" in str(expected.error)
    agree("a run", got, expected, flow.node)
    with pytest.raises(AssertionError, match="a run: the error is"):
        agree("a run", got, expected, pairs.node)


def test_an_error_of_another_kind_is_a_difference() -> None:
    flow = never_whole().map(list)
    got, expected = outcomes(flow)
    assert (got.error, "ElementError" in str(expected.error)) == (None, True)
    agree("a run", got, expected, flow.node)
    for error in ("EndlessFlow: ...", "SourceError: it is gone"):
        with pytest.raises(AssertionError, match="a run: the error is"):
            agree("a run", Outcome([], error, True), expected, flow.node)
