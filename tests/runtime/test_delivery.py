"""Which rows a run reports as delivered to a source that acknowledges them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from inspect import isabstract
from typing import Any, TypeAlias

import attrs
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.effects import Unsized
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.errors import FlowError, InvalidArgument
from flowdsl.feeding.pump import EndOfPass, Pump, Sink
from flowdsl.nodes import (
    Acknowledging,
    AnyNode,
    IndexedSource,
    Node,
    PassFactory,
    Receipts,
    Retaining,
    Row,
    Traceable,
    flow,
)
from flowdsl.nodes.frozen import compile_methods
from flowdsl.workers.task_sizer import MOST_PER_TASK
from tests.sampling import examples

AnyFlow: TypeAlias = fl.Flow[Any, Any]
ROWS = 40


@attrs.frozen(eq=False)
class Numbers(Acknowledging[int, Unsized]):
    """``n`` numbers from ``start`` on, once; the partitions of its rows repeat ``partitions``."""

    n: int
    start: int = 0
    receipts: Receipts = attrs.field(factory=Receipts)
    auto_commit: bool = True
    partitions: Sequence[int] = (0,)

    @property
    def title(self) -> str:
        return "numbers"

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[int]]:
        for i in range(self.n):
            self.receipts.on_yield(self.partitions[i % len(self.partitions)])
            yield i, self.start + i
            self.receipts.on_next()
        self.receipts.exhausted = True


def numbers(
    n: int = ROWS, auto_commit: bool = True, start: int = 0, partitions: Sequence[int] = (0,)
) -> tuple[AnyFlow, Receipts]:
    node = Numbers(n, start, auto_commit=auto_commit, partitions=partitions)
    return flow(node), node.receipts


def rows_in(x: Any) -> set[int]:
    """Return the rows that an element was made from."""
    if isinstance(x, (tuple, list)) or np.ndim(x):
        return set[int]().union(*map(rows_in, x))
    return {int(x)}


def _same(x: Any) -> Any:
    return x


def _count(state: int, x: Any) -> tuple[int, Any]:
    return state + 1, x


def _is_kept(x: Any) -> bool:
    return min(rows_in(x)) % 3 > 0


def _split(x: Any) -> list[Any]:
    return sorted(rows_in(x)) * 2 if min(rows_in(x)) % 4 else []


def _shape(x: Any) -> Any:
    return np.zeros(min(rows_in(x)) % 3)


STEPS: dict[str, Callable[[AnyFlow], AnyFlow]] = {
    "map": lambda f: f.map(_same),
    "filter": lambda f: f.filter(_is_kept),
    "batch": lambda f: f.map(_first).batch(3),
    "a batch without a remainder": lambda f: f.map(_first).batch(4, drop_remainder=True),
    "flat_map": lambda f: f.flat_map(_split),
    "unbatch": lambda f: f.map(_listed).unbatch(),
    "shuffle": lambda f: f.shuffle(5, seed=3),
    "window": lambda f: f.window(3),
    "window with a stride": lambda f: f.window(3, stride=2),
    "window with a dilation": lambda f: f.window(2, stride=3, dilation=4, remainder="keep"),
    "window by key": lambda f: f.window(2, key=_kind),
    "window by key with a stride": lambda f: f.window(
        2, stride=3, dilation=2, key=_kind, remainder="keep"
    ),
    "window by key with gaps": lambda f: f.window(2, stride=5, key=_kind),
    "interleave_map": lambda f: f.interleave_map(_split, cycle=3, block=2),
    "scan": lambda f: f.scan(_count, 0),
    "batch_by_shape": lambda f: f.map(_first).batch_by_shape(2, _shape, collate=_same),
    "batch_by_key": lambda f: f.map(_first).batch_by_key(3, _kind, collate=_same),
    "bucket_by_length": lambda f: f.map(_first).bucket_by_length(
        _kind, [1], [3, 2], max_tokens=3, collate=_same
    ),
    "pack": lambda f: f.map(_some_tokens).pack(4).map(_real),
    "pack whole": lambda f: f.map(_some_tokens).pack(8, "best_fit", bins=2).map(_real),
    "pack parts": lambda f: (
        f.map(_some_tokens).pack(4, "first_fit", bins=2, too_long="split").map(_real)
    ),
    "repeat_each": lambda f: f.repeat_each(2),
    "cache": lambda f: f.cache(),
    "skip": lambda f: f.skip(2),
    "zip": lambda f: f.zip(fl.from_range(10**6).repeat().map(lambda _: 10**9)),
    "ahead": lambda f: f.prefetch(threads=2),
    "threads": lambda f: f.map(_same).prefetch(threads=2),
    "batches in threads": lambda f: f.map(_first).batch(3).prefetch(threads=2),
}


def _kind(x: Any) -> int:
    return min(rows_in(x)) % 3


def _some_tokens(x: Any) -> Any:
    first = _first(x)
    return np.full(first % 7, first)


def _real(row: fl.Packed[Any]) -> Any:
    return row.tokens[row.segment_ids > 0]


def _first(x: Any) -> int:
    return min(rows_in(x))


def _twice(x: Any) -> list[Any]:
    return [x, x]


@attrs.frozen(eq=False)
class Third(Traceable[Any, Unsized]):
    """Every third element; an operator without an answer to ``looks_back``."""

    source: AnyNode

    @property
    def title(self) -> str:
        return "third"

    @property
    def length(self) -> None:
        return None

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        return enumerate(x for i, (_, x) in enumerate(sources[0](epoch)) if i % 3 == 0)

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        raise AssertionError("its rows are not tracked one by one")


def _listed(x: Any) -> list[int]:
    return sorted(rows_in(x))


SECOND = 1000
"""The first number of the second source."""

JOINS: dict[str, Callable[[AnyFlow, AnyFlow], AnyFlow]] = {
    "zip": lambda a, b: a.zip(b),
    "concat": lambda a, b: a.concat(b),
    "interleave": lambda a, b: a.interleave(b),
}

FROM_ONE_ROW = ["map", "filter", "flat_map", "unbatch", "ahead", "threads"]
"""Steps that make each element from one row."""

HOLDING: dict[str, Callable[[AnyFlow], AnyFlow]] = {
    "window": lambda f: f.window(2, key=_kind),
    "window with a stride": lambda f: f.window(2, stride=3, dilation=2, key=_kind),
    "batch": lambda f: f.map(_first).batch_by_key(3, _kind, collate=_same),
    "shuffle": lambda f: f.shuffle(5, seed=3),
}
"""Steps of which it is known which rows they hold."""

partitionings = st.lists(st.integers(0, 3), min_size=1, max_size=ROWS)
"""The partition of each row of a source."""


def delivered_rows(receipts: Receipts, partitions: Sequence[int]) -> set[int]:
    """Return the rows that count as delivered."""
    rows = dict[int, list[int]]()
    for i in range(ROWS):
        rows.setdefault(partitions[i % len(partitions)], []).append(i)
    counts = enumerate(receipts.delivered_of)
    return {i for partition, n in counts for i in rows.get(partition, [])[:n]}


def rows_in_any(elements: Sequence[Any]) -> set[int]:
    """Return the rows that some of the elements were made from."""
    return set[int]().union(*map(rows_in, elements))


names_of_steps = st.lists(st.sampled_from(list(STEPS)), max_size=2)


def with_steps(chain: AnyFlow, names: Sequence[str]) -> AnyFlow:
    for name in names:
        chain = STEPS[name](chain)
    return chain


def joined(
    name: str, first: Sequence[str], second: Sequence[str], above: Sequence[str]
) -> tuple[AnyFlow, tuple[Receipts, Receipts]]:
    """Return a flow over two sources, with steps below and above the operator that joins them."""
    (a, of_a), (b, of_b) = numbers(), numbers(start=SECOND)
    both = JOINS[name](with_steps(a, first), with_steps(b, second))
    return with_steps(both, above), (of_a, of_b)


def needed(elements: Sequence[Any]) -> tuple[int, int]:
    """Return, for each of two sources, the first row that the elements are made from."""
    rows = set[int]().union(*map(rows_in, elements))
    first = min((row for row in rows if row < SECOND), default=ROWS)
    second = min((row - SECOND for row in rows if SECOND <= row < 10**9), default=ROWS)
    return first, second


class TestRowsAreDelivered:
    @settings(max_examples=examples(100), deadline=None)
    @example(["batches in threads", "window by key"], 4, [0, 1, 2])
    @given(st.lists(st.sampled_from(list(STEPS)), max_size=4), st.integers(0, ROWS), partitionings)
    def test_only_with_all_elements_made_from_them(
        self, names: list[str], count: int, partitions: list[int]
    ) -> None:
        """No element that is still to come is made from a row that counts as delivered."""
        try:
            chain, receipts = numbers(partitions=partitions)
            for name in names:
                chain = STEPS[name](chain)
            expected = numbers()[0]
            for name in names:
                expected = STEPS[name](expected)
            elements = [x for _, x in expected.node.reference(0)]
        except FlowError:
            return  # not a chain, such as a batch of windows of other sizes
        with iter(chain) as run:
            for k, x in enumerate(elements[:count]):
                assert rows_in(next(run)) == rows_in(x)
                assert not delivered_rows(receipts, partitions) & rows_in_any(elements[k:])
        assert not delivered_rows(receipts, partitions) & rows_in_any(elements[count:])

    @settings(max_examples=examples(100), deadline=None)
    @given(
        st.lists(st.sampled_from(FROM_ONE_ROW), max_size=3),
        st.sampled_from(list(HOLDING)),
        st.sampled_from(["map", "ahead", "threads"]),
        st.integers(0, ROWS),
        partitionings,
    )
    def test_whatever_rows_of_other_partitions_are_held(
        self, below: list[str], holding: str, above: str, count: int, partitions: list[int]
    ) -> None:
        """Of each partition, all rows before the first one that may be held are delivered."""
        chain, receipts = numbers(partitions=partitions)
        entering = list(with_steps(numbers()[0], below))
        elements = list(HOLDING[holding](with_steps(numbers()[0], below)))
        if count >= len(elements):
            return
        run = iter(STEPS[above](HOLDING[holding](with_steps(chain, below))))
        for _ in range(count + 1):  # the request for the last one delivers those before it
            next(run)
        delivered, to_come = rows_in_any(elements[:count]), rows_in_any(elements[count:])
        held = to_come | (rows_in_any(entering) - rows_in_any(elements))
        # An operator such as `flat_map` may make more of the last row that it has read.
        used_up = sorted(delivered - held)[: -1 - len(below)]
        for partition in set(partitions):
            rows = [i for i in range(ROWS) if partitions[i % len(partitions)] == partition]
            first_held = min(held.intersection(rows), default=ROWS)
            expected = [i for i in used_up if i in rows and i < first_held]
            assert set(expected) <= delivered_rows(receipts, partitions)

    @settings(max_examples=examples(100), deadline=None)
    @given(
        st.sampled_from(list(JOINS)),
        names_of_steps,
        names_of_steps,
        names_of_steps,
        st.integers(0, ROWS),
        st.booleans(),
    )
    def test_of_each_source_only_with_all_elements_made_from_them(
        self,
        join: str,
        first: list[str],
        second: list[str],
        above: list[str],
        count: int,
        takes: bool,
    ) -> None:
        """Also if a ``take`` ends the pass while operators below it hold rows."""
        parts = join, first, second, above
        try:
            chain, receipts = joined(*parts)
            elements = [x for _, x in joined(*parts)[0].node.reference(0)]
        except FlowError:
            return  # not a chain, such as a zip of other lengths
        with iter(chain.take(count) if takes else chain) as run:
            for k, x in enumerate(elements[:count]):
                assert rows_in(next(run)) == rows_in(x)
                for of_one, limit in zip(receipts, needed(elements[k:]), strict=True):
                    assert of_one.delivered <= limit
            if takes:
                assert next(run, None) is None
        for of_one, limit in zip(receipts, needed(elements[count:]), strict=True):
            assert of_one.delivered <= limit

    @pytest.mark.parametrize("above", sorted(STEPS.keys() - {"zip"}))  # interleave is reordered
    @pytest.mark.parametrize("join", JOINS)
    def test_of_each_source_all_of_them_at_the_end(self, join: str, above: str) -> None:
        chain, receipts = joined(join, [], [], [above])
        list(chain)
        assert [of_one.delivered for of_one in receipts] == [ROWS, ROWS]

    @pytest.mark.parametrize(
        ("join", "first", "second", "above", "delivered"),
        [
            ("zip", [], [], ["window"], (3, 3)),
            ("zip", ["ahead"], ["map"], ["ahead"], (3, 3)),
            ("zip", [], [], ["shuffle"], (0, 0)),
            ("interleave", [], [], ["ahead"], (2, 1)),
            ("interleave", ["threads"], ["threads"], ["threads"], (2, 1)),
            ("concat", [], [], ["threads"], (3, 0)),
        ],
    )
    def test_of_each_source_as_soon_as_nothing_more_is_made_from_them(
        self,
        join: str,
        first: list[str],
        second: list[str],
        above: list[str],
        delivered: tuple[int, int],
    ) -> None:
        chain, receipts = joined(join, first, second, above)
        run = iter(chain)
        for _ in range(4):
            next(run)
        assert tuple(of_one.delivered for of_one in receipts) == delivered

    @pytest.mark.parametrize("above", ["", "map", "ahead"])
    def test_of_merged_streams_those_that_came(self, above: str) -> None:
        (first, of_first), (second, of_second) = numbers(200), numbers(200, start=1000)
        merged = first.merge(second)
        seen = [0, 0]
        with iter(STEPS[above](merged) if above else merged) as run:
            for _ in range(150):
                assert of_first.delivered <= seen[0]
                assert of_second.delivered <= seen[1]
                assert of_first.delivered + of_second.delivered >= sum(seen) - 1
                seen[min(rows_in(next(run))) >= 1000] += 1

    @pytest.mark.parametrize(
        ("above", "delivered"),
        [
            (lambda f: f.map(_same).prefetch(procs=2), 3),
            (lambda f: f.map(_same).prefetch(threads=2), 3),
            (lambda f: f.prefetch(threads=1), 3),
            (lambda f: f.flat_map(_twice), 1),
            (lambda f: f.batch(2).map(_same).prefetch(threads=1), 6),
            (lambda f: f.shuffle(buffer=100), 0),
            (lambda f: f.batch_by_shape(1, _shape).batch(2), 6),
            (lambda f: f.cache(), 3),
        ],
    )
    def test_and_not_the_rows_that_a_take_leaves_in_the_operators_below(
        self, above: Callable[[AnyFlow], AnyFlow], delivered: int
    ) -> None:
        chain, receipts = numbers(6)
        assert len(list(above(chain).take(3))) == 3
        assert receipts.delivered <= delivered

    def test_of_an_operator_that_may_drop_rows_at_the_end_of_the_pass(self) -> None:
        chain, receipts = numbers()
        run = iter(flow(Third(chain.node)))
        assert [next(run) for _ in range(4)] == [0, 3, 6, 9]
        assert receipts.delivered == 0
        list(run)
        assert receipts.delivered == ROWS

    @pytest.mark.parametrize("name", STEPS)
    def test_at_the_end_all_of_them(self, name: str) -> None:
        chain, receipts = numbers()
        list(STEPS[name](chain))
        assert receipts.delivered == ROWS

    @pytest.mark.parametrize(
        ("name", "count", "delivered"),
        [
            ("map", 7, 6),
            ("ahead", 7, 6),
            ("threads", 7, 6),
            ("filter", 4, 5),
            ("batch", 3, 6),
            ("flat_map", 3, 2),
            ("flat_map", 4, 2),
            ("repeat_each", 5, 1),
            ("window", 4, 3),
            ("window by key", 4, 3),
            ("window by key with a stride", 2, 1),
            ("window by key with a stride", 4, 9),
            ("window by key with gaps", 4, 6),
            ("window by key with gaps", 5, 16),
            ("interleave_map", 5, 1),
            ("interleave_map", 8, 5),
            ("scan", 7, 6),
        ],
    )
    def test_as_soon_as_nothing_more_is_made_from_them(
        self, name: str, count: int, delivered: int
    ) -> None:
        chain, receipts = numbers()
        run = iter(STEPS[name](chain))
        for _ in range(count):
            next(run)
        assert receipts.delivered == delivered

    def test_of_a_key_that_never_fills_a_window_at_the_end(self) -> None:
        chain, receipts = numbers()
        run = iter(chain.filter(lambda x: x >= 2).window(2, stride=2, key=lambda x: x == 7))
        for _ in range(10):
            next(run)
        assert receipts.delivered == 7
        list(run)
        assert receipts.delivered == ROWS

    def test_of_the_latest_with_those_that_were_dropped_before(self) -> None:
        chain, receipts = numbers(10**4)
        with iter(chain.latest(5)) as run:
            last = -1
            for x in run:
                assert receipts.delivered == last + 1
                last = x
        assert last == 10**4 - 1

    def test_in_worker_processes_too(self) -> None:
        chain, receipts = numbers()
        with iter(chain.filter(_is_kept).map(_same).batch(2).prefetch(procs=2).map(_same)) as run:
            assert [next(run).tolist() for _ in range(3)] == [[1, 2], [4, 5], [7, 8]]
            assert receipts.delivered == 6
        assert receipts.delivered == 9

    def test_unordered_where_all_before_are_delivered(self) -> None:
        chain, receipts = numbers()
        seen = set[int]()
        for x in chain.map(_same).prefetch(threads=2, ordered=False):
            assert set(range(receipts.delivered)) <= seen
            seen.add(x)
        assert receipts.delivered == ROWS


class TestCommits:
    def test_are_made_by_the_request_for_the_next_element(self) -> None:
        chain, receipts = numbers()
        run = iter(chain)
        next(run)
        assert receipts.delivered == 0
        next(run)
        assert receipts.delivered == 1

    def test_are_made_by_a_block_that_ends_without_an_error(self) -> None:
        chain, receipts = numbers()
        with iter(chain) as run:
            next(run)
        assert receipts.delivered == 1
        chain, receipts = numbers()
        with suppress(ZeroDivisionError), iter(chain) as run:
            next(run)
            raise ZeroDivisionError
        assert receipts.delivered == 0

    def test_are_left_to_the_consumer_with_auto_commit_false(self) -> None:
        chain, receipts = numbers(auto_commit=False)
        with iter(chain.batch(2)) as run:
            _ = next(run), next(run), next(run)
            assert receipts.delivered == 0
            run.commit(2)
            assert receipts.delivered == 4
            list(run)
            assert receipts.delivered == 4
            run.commit()
        assert receipts.delivered == ROWS

    def test_of_positions_that_the_run_has_not_reached_are_refused(self) -> None:
        run = iter(numbers()[0])
        next(run)
        with pytest.raises(InvalidArgument, match="position must be between 0 and 1, got 2"):
            run.commit(2)

    def test_after_the_run_was_closed_are_an_error(self) -> None:
        run = iter(numbers(auto_commit=False)[0])
        next(run)
        run.close()
        with pytest.raises(FlowError, match="1 elements cannot be acknowledged, as this run was"):
            run.commit()

    def test_of_other_sources_do_nothing(self) -> None:
        run = iter(fl.from_range(3))
        next(run)
        run.commit()
        assert not run.acknowledges
        assert next(run) == 1

    def test_are_an_error_after_a_source_failed_as_it_was_closed(self) -> None:
        node = FailsAsClosed(ROWS)
        with pytest.raises(FlowError, match="failed as it was closed"):
            list(flow(node).take(3))
        with pytest.raises(FlowError, match="as this run was closed before"):
            node.receipts.report((4,))


@attrs.frozen(eq=False)
class FailsAsClosed(Numbers):
    """Raises an error as its rows are closed."""

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[int]]:
        try:
            yield from super().rows(epoch, sources)
        finally:
            raise ValueError("the connection broke")


def test_what_is_left_to_do_after_the_last_row_runs_in_one_thread_at_a_time() -> None:
    """The thread that reads the source and the consumer's may both run it."""
    reporting, may_end = threading.Event(), threading.Event()
    ended = list[str]()

    def rest() -> Generator[None]:
        yield
        reporting.set()
        may_end.wait(60)
        try:
            yield
        finally:
            ended.append("closed")

    receipts = Receipts(followed=True)
    receipts.park(rest())
    with ThreadPoolExecutor(2) as threads:
        report = threads.submit(receipts.report, (1,))
        assert reporting.wait(60)
        close = threads.submit(receipts.close)
        wait([close], 0.05)
        may_end.set()
        report.result()
        close.result()
    assert ended == ["closed"]


class Waiting(Sink[Any]):
    def __init__(self) -> None:
        self.elements = deque[Any]()

    def put(self, element: Any, position: int) -> None:
        self.elements.append(element)


class TestAPump:
    def test_delivers_what_is_taken(self) -> None:
        chain, receipts = numbers()
        with Pump(iter(chain), Waiting(), capacity=8) as pump:
            pump.take(5)
        assert receipts.delivered == 5

    def test_delivers_all_when_the_consumer_has_seen_the_end(self) -> None:
        chain, receipts = numbers()
        pump = Pump(iter(chain), Waiting(), capacity=8)
        for _ in range(5):
            pump.take(7)
        with pytest.raises(EndOfPass):
            pump.take(7)
        pump.stop()
        assert receipts.delivered == ROWS


def test_each_kind_of_node_says_what_it_looks_back_at() -> None:
    """A node without an answer delivers its rows at the end, which a sender's memory may not last.

    Operators that yield elements in another order are tracked one by one.
    """
    in_another_order = {
        *("BatchByKey", "BatchByShape", "BucketByLength", "PackWhole", "Shuffle", "WindowShuffle")
    }
    operators = _subclasses(Node)
    for cls in operators:
        compile_methods(cls)
    silent = {
        cls.__name__
        for cls in operators
        if cls.__module__.startswith("flowdsl.ops")
        and not issubclass(cls, IndexedSource | Retaining)
        and not isabstract(cls)
        and cls.looks_back is Node.looks_back
        and {"source", "parts"} & {field.name for field in attrs.fields(cls)}
    }
    assert silent <= in_another_order


def _subclasses(cls: Any) -> set[type[AnyNode]]:
    found = set[type[AnyNode]]()
    for sub in cls.__subclasses__():
        found |= {sub, *_subclasses(sub)}
    return found


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("auto_commit", [True, False])
def test_rows_that_a_filter_leaves_out_are_reported_while_the_consumer_waits(
    threads: int, auto_commit: bool
) -> None:
    """Else a source would keep all of them, however rare the rows are that pass the filter."""
    n = 20 * MOST_PER_TASK  # many times what two workers have in hand, large as their tasks are
    flow, receipts = numbers(n, auto_commit)
    reported = list[int]()

    def is_last(i: int) -> bool:
        reported.append(receipts.delivered)
        return i in (0, n - 1)

    kept = flow.filter(is_last)
    with iter(kept.prefetch(threads=threads) if threads else kept) as run:
        assert next(run) == 0
        reported.clear()
        if not auto_commit:  # what the consumer has is not reported before it says so
            assert receipts.delivered == 0
            run.commit()
        assert next(run) == n - 1
        assert max(reported) > n // 2
        assert receipts.delivered < n
        if auto_commit:
            assert next(run, None) is None
            assert receipts.delivered == n


@pytest.mark.parametrize("auto_commit", [True, False])
@pytest.mark.parametrize(
    "above",
    [
        lambda flow: flow.flat_map(lambda i: [i] * (i == 0)),
        lambda flow: flow.map(lambda i: np.arange(int(i == 0))).unbatch(),
        lambda flow: flow.filter(lambda i: i % 2 == 0).flat_map(lambda i: [i] * (i == 0)).map(abs),
    ],
    ids=["flat_map", "unbatch", "several"],
)
def test_rows_of_which_no_element_is_made_are_reported_while_the_consumer_waits(
    above: Any, auto_commit: bool
) -> None:
    """Else a sender that waits for their acknowledgement would keep the next one waiting."""
    flow, receipts = numbers(100, auto_commit)
    reported = list[int]()

    def noted(i: int) -> int:
        reported.append(receipts.delivered)
        return i

    with iter(above(flow.map(noted))) as run:
        assert next(run) == 0
        if not auto_commit:
            assert receipts.delivered == 0
            run.commit()
        assert next(run, None) is None
    assert reported[-50:] == [*range(50, 100)]


def test_an_element_that_is_not_committed_holds_back_rows_left_out_after_it() -> None:
    flow, receipts = numbers(100, auto_commit=False)
    with iter(flow.filter(lambda i: i % 50 == 0)) as run:
        assert [next(run), next(run)] == [0, 50]
        assert receipts.delivered == 0
        run.commit()
        assert next(run, None) is None
        assert receipts.delivered >= 50
