"""Tasks cover every element of a pass once, for any sizes; the task sizer converges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import cycle, islice
from threading import Lock
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import ElementError, Flow
from flowdsl.executor.program import InputExhausted, Program, TruncatedInput
from flowdsl.plan.lower import plan_of
from flowdsl.plan.plan import Lookup, Stage
from flowdsl.testing.elements import same
from flowdsl.testing.outcomes import outcome, reference
from flowdsl.testing.recipes import MAX_ELEMENTS, Recipe
from flowdsl.workers.task_sizer import (
    BYTES_PER_TASK,
    FEW_PER_TASK,
    MANY_BYTES_PER_TASK,
    MOST_PER_TASK,
    SECONDS_PER_SMALL_TASK,
    SECONDS_PER_TASK,
    TaskSizer,
)
from flowdsl.workers.tasks import (
    InputRows,
    Task,
    TaskInput,
    TaskSource,
)
from flowdsl.workers.wire import Frame, frames_of_rows, unpack
from tests.sampling import examples
from tests.strategies import chains


class Whim(TaskSizer):
    """A task sizer with arbitrary sizes."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__(2)
        self._whims = cycle(sizes)

    def size(self, remaining: int | None) -> int:
        return next(self._whims)


class AtOnce:
    """Reads no more than is taken, in this thread, so only the sizes determine the tasks."""

    def __init__(self, title: str, begin: Callable[[], Iterator[Any]], **_: Any) -> None:
        self._rows = begin()
        self.error: Exception | None = None
        self.nbytes = 0

    def take(self, most: int, group_size: int, most_bytes: float) -> list[Any]:
        rows: list[Any] = []
        try:
            for row in islice(self._rows, most):
                rows.append(row)  # noqa: PERF402  # what came before the error counts
        except Exception as error:
            self.error = error
        return rows

    def stop(self) -> None:
        pass


@pytest.fixture(autouse=True, scope="module")
def _no_thread() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flowdsl.workers.tasks.ReadAhead", AtOnce)
        yield


whims = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def stage_of(flow: Flow[Any, Any]) -> Stage | None:
    stage = plan_of(flow.prefetch(procs=2).node).root
    return stage if isinstance(stage, Stage) and stage.workers.count else None


def work_of(stage: Stage, pace: TaskSizer) -> TaskSource:
    """Create the task source as a pool does, with bases that run by their references."""
    streams = (base for base in stage.bases if not isinstance(base, Lookup))
    return TaskSource(stage, tuple(base.top.node.reference for base in streams), pace, pack)


def work_off(
    work: TaskSource, epoch: int = 0, start: int = 0, one_by_one: bool = False
) -> Iterator[Any]:
    """Run the tasks one after another; or each split, as if a worker had died."""
    program = Program(work.stage.program)
    task_inputs = there(work.task_inputs(epoch, start))
    if one_by_one:
        task_inputs = (part for task_input in task_inputs for part in work.split(task_input))
    for task_input in task_inputs:
        assert task_input.size > 0
        try:
            for _, x in program.rows(task_input.task.addresses(), opened(task_input.packed)):
                yield x
        except InputExhausted as error:
            raise work.errors[error.slot]  # noqa: B904  # it has a cause of its own


def pack(rows: InputRows) -> tuple[list[Frame], int]:
    """Pack rows as for processes."""
    frames = frames_of_rows(rows)
    return frames, sum(map(len, frames))


def opened(frames: list[Frame] | None) -> list[list[Any]]:
    """Unpack the frames of a task as a worker does."""
    if not frames:
        return []
    content, *beside = frames
    elements: list[list[Any]] = unpack(bytes(content), beside)
    return elements


def only(frames: list[Frame]) -> list[Any]:
    """The same for a stage with one base."""
    (elements,) = opened(frames)
    return elements


@settings(max_examples=examples(300))
@given(chains(most=5), whims, st.integers(0, 2))
def test_random_stages_with_random_task_sizes(recipe: Recipe, sizes: list[int], epoch: int) -> None:
    flow = recipe.build()
    stage = stage_of(flow)
    expected = reference(recipe.build().node, epoch)  # a source may give one pass only
    if stage is None or expected.error is not None:
        return
    got = outcome(work_off(work_of(stage, Whim(sizes)), epoch))
    assert got.ended == expected.ended
    assert same(got.elements, expected.elements)


@settings(max_examples=examples(200))
@given(chains(most=4), whims, st.integers(0, 12))
def test_random_stages_from_any_position(recipe: Recipe, sizes: list[int], start: int) -> None:
    flow = recipe.build()
    stage = stage_of(flow)
    expected = reference(recipe.build().node)
    if stage is None or stage.drops or expected.error is not None:
        return
    if start and not all(isinstance(base, Lookup) for base in stage.bases):
        return  # a stream is begun at its place by what reads it
    left = MAX_ELEMENTS - start
    got = outcome(work_off(work_of(stage, Whim(sizes)), 0, start), left)
    assert same(got.elements, expected.elements[start:])


def there(task_inputs: Iterable[TaskInput | None]) -> Iterator[TaskInput]:
    """Yield the task inputs, all available immediately."""
    for task_input in task_inputs:
        assert task_input is not None
        yield task_input


def taken(task_inputs: Iterable[TaskInput | None]) -> list[tuple[Task, list[Frame]]]:
    """Yield each task with the frames of its input rows."""
    return [(task_input.task, task_input.packed or []) for task_input in there(task_inputs)]


def tasks_of(
    flow: Flow[Any, Any], sizes: list[int], start: int = 0, most: int = 100
) -> list[tuple[Task, list[Frame]]]:
    stage = stage_of(flow)
    assert stage is not None
    return taken(islice(work_of(stage, Whim(sizes)).task_inputs(3, start), most))


def before_it_ran_out(rows: Iterable[Any]) -> list[Any]:
    """Return the rows of a failed base; for streams of elements the rows just end."""
    got: list[Any] = []
    with pytest.raises(InputExhausted) if isinstance(rows, TruncatedInput) else nullcontext():
        for x in rows:
            got.append(x)  # noqa: PERF402  # what came before the error counts
    return got


class TestSpans:
    @given(st.integers(0, 40), whims, st.integers(0, 50))
    def test_cover_all_positions_once(self, n: int, sizes: list[int], start: int) -> None:
        tasks = [task for task, _ in tasks_of(fl.from_range(n).map(str), sizes, start)]
        covered = [i for task in tasks for i in range(task.start, task.stop)]
        assert covered == list(range(start, n))
        assert [task.number for task in tasks] == list(range(len(tasks)))
        assert {task.epoch for task in tasks} <= {3}
        spans = [task.addresses() for task in tasks]
        assert [i for at in spans for i in at.position.tolist()] == covered

    def test_of_a_filter_cover_all_input_positions(self) -> None:
        tasks = tasks_of(fl.from_range(10).filter(bool).map(str), [4])
        assert [(task.start, task.stop) for task, _ in tasks] == [(0, 4), (4, 8), (8, 10)]
        assert all(frames == [] for _, frames in tasks)

    def test_of_an_endless_flow_do_not_end(self) -> None:
        tasks = tasks_of(fl.from_range(3).repeat().map(str), [5], most=4)
        assert [(task.start, task.stop) for task, _ in tasks] == [
            (0, 5),
            (5, 10),
            (10, 15),
            (15, 20),
        ]

    def test_numbers_continue_over_passes(self) -> None:
        stage = stage_of(fl.from_range(4).map(str))
        assert stage is not None
        work = work_of(stage, Whim([2]))
        numbers = [
            task.number for epoch in range(2) for task, _ in taken(work.task_inputs(epoch, 0))
        ]
        assert numbers == [0, 1, 2, 3]


class TestTaskInputs:
    def test_a_failed_row_comes_after_the_rows_before_it(self) -> None:
        class Failing(list[int]):
            def __getitem__(self, i: Any) -> Any:
                if i == 5:
                    raise OSError("gone")
                return i

        flow = fl.from_items(Failing(range(9))).map(str).batch(2, collate=list)
        stage = stage_of(flow)
        assert stage is not None
        work = there(work_of(stage, Whim([3])).task_inputs(0, 0))
        ((task, frames),) = taken(islice(work, 1))
        assert (task.start, task.stop) == (0, 3)
        assert before_it_ran_out(only(frames)) == [0, 1, 2, 3, 4]
        with pytest.raises(ElementError, match=r"failed on element 5 \(row 5 of from_items"):
            next(work)

    def test_a_failed_stream_element_has_its_available_rows(self) -> None:
        def stream() -> Iterator[int]:
            yield from range(5)
            raise OSError("gone")

        stage = stage_of(fl.from_iterable(stream).map(str).batch(3, collate=list))
        assert stage is not None
        work = there(work_of(stage, Whim([4])).task_inputs(0, 0))
        assert only(next(work).packed) == [0, 1, 2]
        task_input = next(work)
        assert (task_input.task.start, task_input.task.stop) == (1, 2)
        assert before_it_ran_out(only(task_input.packed)) == [3, 4]
        with pytest.raises(ElementError, match="failed on element 5"):
            next(work)

    @pytest.mark.parametrize("source", [fl.from_items, lambda rows: fl.from_iterable(iter(rows))])
    def test_an_unpicklable_row_comes_after_the_rows_before_it(self, source: Any) -> None:
        flow = source([1, 2, Lock(), 4]).map(str)
        stage = stage_of(flow)
        assert stage is not None
        work = there(work_of(stage, Whim([4])).task_inputs(0, 0))
        assert before_it_ran_out(only(next(work).packed)) == [1, 2]
        with pytest.raises(ElementError, match="failed on element 2") as caught:
            next(work)
        assert "pickle" in str(caught.value.__cause__)

    def test_rows_in_memory_are_sent_with_their_task(self) -> None:
        flow: Flow[Any, Any] = fl.from_items("abcde").map(str.upper).batch(2, collate="".join)
        tasks = tasks_of(flow, [2])
        assert [(task.start, task.stop, only(frames)) for task, frames in tasks] == [
            (0, 2, ["a", "b", "c", "d"]),
            (2, 3, ["e"]),
        ]

    def test_rows_of_a_stream_are_sent_in_whole_groups(self) -> None:
        flow: Flow[Any, Any] = fl.from_iterable("abcdefg").map(str.upper).batch(2, collate="".join)
        tasks = tasks_of(flow, [2])
        assert [(task.start, task.stop, only(frames)) for task, frames in tasks] == [
            (0, 2, ["a", "b", "c", "d"]),
            (2, 4, ["e", "f", "g"]),
        ]
        assert all(task.positions is None for task, _ in tasks)

    def test_rows_of_a_stream_with_gaps_keep_their_positions(self) -> None:
        flow = fl.from_iterable(range(9)).filter(lambda i: i % 4 != 1).take(6).map(str)
        stage = stage_of(flow)
        assert stage is not None
        tasks = taken(work_of(stage, Whim([3])).task_inputs(0, 0))
        assert [(task.positions, only(frames)) for task, frames in tasks] == [
            ([0, 2, 3], [0, 2, 3]),
            ([4, 6, 7], [4, 6, 7]),
        ]
        assert [(task.start, task.stop) for task, _ in tasks] == [(0, 3), (3, 6)]
        assert tasks[1][0].addresses().position.tolist() == [4, 6, 7]

    def test_a_failed_stream_yields_the_rows_before(self) -> None:
        def stream() -> Iterator[int]:
            yield from range(5)
            raise OSError("gone")

        flow = fl.from_iterable(stream).map(str)
        stage = stage_of(flow)
        assert stage is not None
        work = there(work_of(stage, Whim([4])).task_inputs(0, 0))
        assert [only(next(work).packed), only(next(work).packed)] == [[0, 1, 2, 3], [4]]
        with pytest.raises(ElementError, match="failed on element 5"):
            next(work)


@settings(max_examples=examples(100))
@given(whims, st.lists(st.integers(0, 30), max_size=20), st.integers(1, 40), st.booleans())
def test_rows_of_a_task_have_limited_bytes(
    sizes: list[int], lengths: list[int], most: int, one_by_one: bool
) -> None:
    """The rows are in this process's memory; a task of one element has what it needs."""
    flow = fl.from_items([bytes(n) for n in lengths]).map(len)
    stage = stage_of(flow)
    assert stage is not None
    pace = Whim(sizes)
    pace.most_bytes = most
    for task_input in there(work_of(stage, pace).task_inputs(0, 0)):
        (rows,) = task_input.rows
        assert sum(map(len, rows)) <= most or task_input.size == 1
    assert list(work_off(work_of(stage, pace), one_by_one=one_by_one)) == lengths


class TestTaskSizer:
    def test_starts_small_and_doubles_at_most(self) -> None:
        pace = TaskSizer(2)
        assert pace.size(None) == 1
        sizes = []
        for _ in range(20):
            pace.observe(1000, 1e-9, 0)
            sizes.append(pace.size(None))
        assert sizes[:4] == [2, 4, 8, 16]
        assert sizes[-1] == MOST_PER_TASK

    def test_settles_at_the_target_duration(self) -> None:
        pace = TaskSizer(2)
        for _ in range(20):
            pace.observe(pace.size(None), pace.size(None) * SECONDS_PER_SMALL_TASK / 50.5, 10)
        assert pace.size(None) == 50

    def test_large_results_have_shorter_tasks(self) -> None:
        pace = TaskSizer(2)
        for _ in range(20):
            size = pace.size(None)
            pace.observe(size, size * SECONDS_PER_TASK / 50.5, size * MANY_BYTES_PER_TASK // 60)
        assert pace.size(None) == 50

    def test_settles_at_a_fifth_of_a_timeout(self) -> None:
        pace = TaskSizer(2, timeout=0.1)
        for _ in range(20):
            pace.observe(pace.size(None), pace.size(None) * 0.001, 10)
        assert pace.size(None) == 20

    def test_settles_at_the_target_bytes(self) -> None:
        pace = TaskSizer(2)
        for _ in range(20):
            pace.observe(pace.size(None), 1e-9, pace.size(None) * MANY_BYTES_PER_TASK // 20)
        assert pace.size(None) == 20

    @pytest.mark.parametrize(
        ("nbytes", "size"),
        [
            (MANY_BYTES_PER_TASK // 10, 10),
            (MANY_BYTES_PER_TASK // FEW_PER_TASK * 2, FEW_PER_TASK),
            (BYTES_PER_TASK // 2, 2),
            (BYTES_PER_TASK * 2, 1),
        ],
    )
    def test_a_few_large_elements_may_have_more_bytes_than_many(
        self, nbytes: int, size: int
    ) -> None:
        pace = TaskSizer(2)
        for _ in range(20):
            pace.observe(pace.size(None), 1e-9, pace.size(None) * nbytes)
        assert pace.size(None) == size

    def test_shrinks_immediately_and_to_one_at_least(self) -> None:
        pace = TaskSizer(2)
        for _ in range(20):
            pace.observe(1000, 1e-9, 0)
        pace.observe(100, 100 * SECONDS_PER_SMALL_TASK, 0)
        assert pace.size(None) == 1

    def test_shares_the_rest_among_the_workers(self) -> None:
        pace = TaskSizer(3)
        for _ in range(20):
            pace.observe(1000, 1e-9, 0)
        assert pace.size(600) == 100
        assert [pace.size(n) for n in (12, 6, 5, 1)] == [2, 1, 1, 1]


class TestSeveralBases:
    @given(whims, st.integers(0, 9), st.integers(0, 9), st.booleans())
    def test_the_row_that_fails_first_in_the_output_is_raised(
        self, sizes: list[int], bad: int, worse: int, one_by_one: bool
    ) -> None:
        class Failing(list[int]):
            def __init__(self, bad: int) -> None:
                super().__init__(range(9 + 1))
                self.bad = bad

            def __getitem__(self, i: Any) -> Any:
                if i == self.bad:
                    raise OSError(f"row {i}")
                return i

        one, other = Failing(bad), Failing(worse)
        flow = fl.from_items(one).map(str).interleave(fl.from_items(other).map(str))
        stage = stage_of(flow)
        assert stage is not None
        assert len(stage.bases) == 2
        got = list[Any]()
        with pytest.raises(fl.ElementError) as caught:
            got.extend(work_off(work_of(stage, Whim(sizes)), one_by_one=one_by_one))
        first = min((2 * bad, 0), (2 * worse + 1, 1))
        assert len(got) == first[0]
        assert str(caught.value.__cause__) == f"row {(bad, worse)[first[1]]}"

    def test_an_unpicklable_row_comes_after_the_rows_before_it(self) -> None:
        one, other = fl.from_items(range(4)), fl.from_items([0, 1, Lock(), 3])
        flow: Flow[Any, Any] = one.map(str)
        stage = stage_of(flow.interleave(other.map(str)))
        assert stage is not None
        got = list[Any]()
        with pytest.raises(fl.ElementError) as caught:
            got.extend(work_off(work_of(stage, Whim([3]))))
        assert got == ["0", "0", "1", "1", "2"]
        assert caught.value.origin == "row 2 of from_items(4 items)"
