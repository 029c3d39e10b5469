"""The sources of a pass are closed when the pass ends, in every way it can end."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.errors import ElementError, FlowError, NotResumable
from flowdsl.executor.execute import EndToEnd
from flowdsl.nodes import Indices, Node, PassFactory, Row
from flowdsl.testing import functions
from flowdsl.testing.catalogue import MAX_ROWS, Draw
from flowdsl.testing.recipes import MAX_ELEMENTS, Recipe
from flowdsl.workers.processes import Processes
from tests.sampling import examples
from tests.strategies import CATALOGUE, OPERATORS
from tests.threads import spawn_thread
from tests.waiting import eventually


@attrs.define(eq=False)
class Files:
    """Generators that count as open from their first element to their end, like files."""

    opened: int = 0
    open: int = 0
    broken: bool = False
    """They cannot be closed."""

    def lines(self, n: int = 50, bad: int | None = None) -> Generator[int]:
        self.opened += 1
        self.open += 1
        try:
            for i in range(n):
                if i == bad:
                    raise OSError("damaged")
                yield i
        finally:
            self.open -= 1
            if self.broken:
                raise OSError("no space left")


@pytest.fixture
def files() -> Iterator[Files]:
    gc.disable()  # what only a collection of cycles closes stays open
    yield Files()
    gc.enable()


@pytest.fixture
def workers_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Processes, "spawn", staticmethod(spawn_thread))


def fail_on(bad: int, i: int) -> int:
    if i == bad:
        raise ValueError(i)
    return i


@attrs.frozen
class ThirdParty(Node[int, fl.Unsized]):
    """A source whose reference opens something."""

    files: Files

    @property
    def title(self) -> str:
        return "third_party()"

    @property
    def length(self) -> int | None:
        return None

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[int]]:
        return enumerate(self.files.lines())


Chain = Callable[[Files], fl.Flow[Any, Any]]

CHAINS: dict[str, Chain] = {
    "from_iterable": lambda files: fl.from_iterable(files.lines),
    "an object": lambda files: fl.from_iterable(Iterable(files)),
    "live": lambda files: fl.from_iterable(files.lines()),
    "mapped by the function": lambda files: fl.from_iterable(lambda: map(abs, files.lines())),
    "flat_map": lambda files: fl.from_range(3).flat_map(lambda _: files.lines()),
    "flat_map of a flow": lambda files: fl.from_range(3).flat_map(
        lambda _: fl.from_iterable(files.lines)
    ),
    "third party": lambda files: fl.Flow(ThirdParty(files)),
    "from_iterable of a flow": lambda files: fl.from_iterable(
        lambda: iter(fl.from_iterable(files.lines))
    ),
}

ABOVE: dict[str, Callable[[fl.Flow[Any, Any]], fl.Flow[Any, Any]]] = {
    "nothing": lambda flow: flow,
    "map": lambda flow: flow.map(abs),
    "batch": lambda flow: flow.batch(1).unbatch(int),
    "shuffle": lambda flow: flow.shuffle(2),
    "filter": lambda flow: flow.filter(bool).skip(1),
    "window": lambda flow: flow.window(2).map(min),
    "threads": lambda flow: flow.map(abs).prefetch(threads=2),
    "threads below": lambda flow: flow.map(abs).prefetch(threads=1).shuffle(2),
    "processes": lambda flow: flow.map(abs).prefetch(procs=1).map(abs),
    "zip": lambda flow: flow.zip(fl.from_range(9).repeat()).map(min),
    "choose": lambda flow: flow.choose(fl.from_range(9)),
    "take": lambda flow: flow.take(8),
    "fixed_size": lambda flow: flow.fixed_size(8),
    "cache": lambda flow: flow.take(8).cache(),
}


@attrs.frozen
class Iterable:
    files: Files

    def __iter__(self) -> Iterator[int]:
        return self.files.lines()


@pytest.mark.usefixtures("workers_are_threads")
@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("chain", CHAINS)
class TestSourceIsClosed:
    def flow(self, files: Files, chain: str, above: str) -> fl.Flow[Any, Any]:
        return ABOVE[above](CHAINS[chain](files))

    def test_at_the_end_of_the_pass(self, files: Files, chain: str, above: str) -> None:
        flow = self.flow(files, chain, above)
        assert len(flow.collect()) > 5
        assert files.opened
        assert files.open == 0

    def test_when_take_has_enough_elements(self, files: Files, chain: str, above: str) -> None:
        flow = self.flow(files, chain, above).take(2)
        assert len(list(flow)) == 2
        assert files.open == 0

    def test_by_run_close(self, files: Files, chain: str, above: str) -> None:
        flow = self.flow(files, chain, above)
        run = iter(flow)
        next(run)
        assert files.opened
        run.close()
        assert files.open == 0

    def test_by_with_although_the_error_is_kept(self, files: Files, chain: str, above: str) -> None:
        flow = self.flow(files, chain, above)
        with pytest.raises(KeyError), iter(flow) as run:
            raise KeyError(next(run))
        assert files.opened
        assert files.open == 0

    def test_after_an_error_above_that_is_kept(self, files: Files, chain: str, above: str) -> None:
        flow = self.flow(files, chain, above).map(lambda x: 1 // (x * 0))
        with pytest.raises(ElementError) as caught:
            flow.collect()
        assert files.opened
        assert files.open == 0
        del caught

    def test_when_the_run_is_collected(self, files: Files, chain: str, above: str) -> None:
        flow = self.flow(files, chain, above)
        run = iter(flow)
        next(run)
        del run
        assert eventually(lambda: files.open == 0)  # a thread that reads it may close it


class TestSeveralSources:
    def test_each_pass_ends_before_the_next_begins(self) -> None:
        files, most = Files(), list[int]()
        flow = fl.from_iterable(files.lines).take(2).map(lambda _: most.append(files.open))
        assert len(flow.repeat(3).collect()) == 6
        assert (files.opened, max(most)) == (3, 1)

    def test_other_sources_are_closed_when_one_has_ended(self, files: Files) -> None:
        flow = fl.from_iterable(files.lines).zip(fl.from_iterable([1, 2]))
        with pytest.raises(FlowError, match="one of the flows ended"):
            flow.collect()
        assert files.open == 0

    def test_a_resumed_source_is_closed(self, files: Files) -> None:
        flow = fl.from_iterable(files.lines).batch(2)
        run = iter(flow)
        next(run)
        state = run.state_dict()
        run.close()
        with flow.resume(state) as rest:
            assert next(rest).tolist() == [2, 3]
        assert files.open == 0

    def test_a_failed_source_closes_the_others(self, files: Files) -> None:
        with pytest.raises(ElementError, match="on element 4") as caught:
            fl.from_iterable(partial(files.lines, bad=4)).batch(2).collect()
        assert isinstance(caught.value.__cause__, OSError)
        assert files.open == 0

    def test_a_spec_probe_closes_its_source(self, files: Files) -> None:
        flow = fl.from_iterable(files.lines).batch(2)
        assert str(flow.spec) == "int64[?]"
        assert files.opened
        assert files.open == 0

    def test_files_are_closed(self, tmp_path: Any) -> None:
        (tmp_path / "lines").write_text("a\nb\nc\n")
        opened: list[Any] = []

        def lines() -> Any:
            opened.append((tmp_path / "lines").open())
            return opened[-1]

        flow = fl.from_iterable(lines)
        assert next(iter(flow)) == "a\n"
        assert opened[-1].closed


class TestIteratorHeldByTheUser:
    def test_stays_open_and_continues(self, files: Files) -> None:
        held = files.lines()
        with iter(fl.from_iterable(held)) as run:
            assert next(run) == 0
        assert files.open == 1
        assert next(held) == 1
        held.close()

    def test_is_not_referenced_after_the_pass(self, files: Files) -> None:
        held = files.lines()
        flow = fl.from_iterable(held)
        assert next(iter(flow)) == 0
        del held
        assert files.open == 0
        with pytest.raises(fl.SourceError, match="an iterator allows only one pass"):
            flow.collect()


class TestErrorsOfClosing:
    message = "from_iterable(Files.lines) failed as it was closed: OSError('no space left')"

    @pytest.fixture
    def broken(self, files: Files) -> Files:
        files.broken = True
        return files

    def test_are_raised_by_close(self, broken: Files) -> None:
        run = iter(fl.from_iterable(broken.lines).map(abs))
        next(run)
        with pytest.raises(FlowError) as caught:
            run.close()
        assert str(caught.value) == self.message
        assert isinstance(caught.value.__cause__, OSError)
        run.close()

    def test_in_a_flat_map_name_the_element_once(self, broken: Files) -> None:
        run = iter(fl.from_range(1).flat_map(lambda _: broken.lines()))
        next(run)
        with pytest.raises(FlowError) as caught:
            run.close()
        assert str(caught.value) == (
            "flat_map(<lambda>) failed on element 0 (row 0 of from_range(1)): "
            "OSError('no space left'); the element was 0; it was being closed"
        )

    def test_end_the_run_when_take_has_enough(self, broken: Files) -> None:
        run = iter(fl.from_iterable(broken.lines).map(abs).take(2))
        assert [next(run), next(run)] == [0, 1]
        with pytest.raises(FlowError) as caught:
            next(run)
        assert str(caught.value) == self.message

    def test_are_raised_before_the_next_pass(self, broken: Files) -> None:
        run = iter(fl.from_iterable(broken.lines).take(2).repeat())
        assert [next(run), next(run)] == [0, 1]
        with pytest.raises(FlowError) as caught:
            next(run)
        assert str(caught.value) == self.message

    def test_do_not_hide_an_error_of_the_run(self, broken: Files) -> None:
        flow = fl.from_iterable(broken.lines).map(partial(fail_on, 3))
        with pytest.raises(ElementError) as caught:
            flow.collect()
        assert isinstance(caught.value.__cause__, ValueError)
        assert caught.value.__notes__ == [f"closing the run also failed: {self.message}"]

    def test_do_not_hide_an_error_of_the_with_block(self, broken: Files) -> None:
        with pytest.raises(KeyError) as caught, iter(fl.from_iterable(broken.lines)) as run:
            raise KeyError(next(run))
        assert caught.value.__notes__ == [f"closing the run also failed: {self.message}"]

    def test_are_raised_by_with(self, broken: Files) -> None:
        with (
            pytest.raises(FlowError, match="no space left"),
            iter(fl.from_iterable(broken.lines)) as run,
        ):
            next(run)

    def test_are_all_reported(self, broken: Files) -> None:
        flow = fl.from_iterable(broken.lines).zip(fl.from_iterable(lambda: broken.lines()))
        run = iter(flow)
        next(run)
        with pytest.raises(FlowError) as caught:
            run.close()
        reported = [str(caught.value), *caught.value.__notes__]
        assert len([line for line in reported if "no space left" in line]) == 2

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    def test_are_logged_when_a_run_is_collected(
        self, broken: Files, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reported: list[Any] = []
        monkeypatch.setattr("sys.unraisablehook", lambda hook: reported.append(str(hook.exc_value)))
        run = iter(fl.from_iterable(broken.lines))
        next(run)
        del run
        assert reported == [self.message]


@attrs.define(eq=False)
class _Counted:
    """The rows of the random chains, and how many of their generators are open, by whom."""

    open: list[object] = attrs.field(factory=list[object])
    opened: int = 0

    def read_rows(self, rows: Any) -> Iterator[Any]:
        mine = object()
        here = threading.current_thread() is threading.main_thread()  # else it is a copy's, which
        if here:  # a process reads for itself, and which goes with it
            self.open.append(mine)
            self.opened += 1
        try:
            for i in range(len(rows)):
                yield rows[i]
        finally:
            if here:
                self.open.remove(mine)

    def __reduce__(self) -> Any:
        return _Counted, ()


@st.composite
def streams(draw: Draw, most: int = 6) -> Recipe:
    """A random chain over a stream."""
    recipe = draw(CATALOGUE.source_recipes("FromIterable"))
    for _ in range(draw(st.integers(0, most))):
        recipe = OPERATORS[draw(st.sampled_from(list(OPERATORS)))](draw, recipe)
    return recipe


def _run_to_its_end(flow: fl.Flow[Any, Any], end: str, position: int) -> object:
    """Run it up to some element and end it in some way; return the objects to keep alive."""
    run = iter(flow)
    try:
        if end == "end":
            for _ in islice(run, MAX_ELEMENTS):
                pass
        elif end == "resume":
            for _ in islice(run, position):
                pass
            state = run.state_dict()
            run.close()
            run = flow.resume(state)
            next(run, None)
        elif end == "with":
            with run:
                for _ in islice(run, position):
                    pass
                raise KeyError("of the consumer")
        else:
            for _ in islice(run, position):
                pass
    except NotResumable as error:  # of the question, and not of the run, which goes on
        run.close()
        return error
    except (FlowError, KeyError) as error:
        return error
    if end in ("deleted", "end"):
        del run
    else:
        run.close()
    return None


@settings(max_examples=examples(600))
@given(
    streams(),
    st.integers(0, 2),
    st.sampled_from(["end", "close", "with", "deleted", "resume", "take", "error"]),
    st.integers(0, MAX_ROWS),
)
def _random(counted: _Counted, recipe: Recipe, procs: int, end: str, position: int) -> None:
    if end == "resume" and not recipe.is_in_order(procs):
        return
    flow = recipe.build(procs)
    if end == "take":
        flow = flow.take(position)
    elif end == "error":
        flow = flow.enumerate().map(lambda x: fail_on(position, x[0]))
    kept = _run_to_its_end(flow, "end" if end in ("take", "error") else end, position)
    assert not counted.open, kept


def test_random_chains_leave_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = _Counted()
    monkeypatch.setattr(functions, "read_rows", counted.read_rows)
    monkeypatch.setattr(Processes, "spawn", staticmethod(spawn_thread))
    check: Any = _random
    check(counted)
    assert counted.opened > 25


def test_sources_in_a_worker_are_closed_when_it_is_parked(files: Files) -> None:
    copy = EndToEnd(fl.from_iterable(files.lines).node)
    assert list(copy.elements(Indices.span(0, 0, 2))) == [0, 1]
    assert files.open == 1
    copy.park()
    assert files.open == 0
    assert list(copy.elements(Indices.span(0, 2, 4))) == [2, 3]
