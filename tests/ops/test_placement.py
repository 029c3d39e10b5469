"""prefetch and replicate: the place where operators run does not change elements."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl import Flow, FlowError, InvalidFlow, Reordered, Resampled
from flowdsl.workers.processes import Processes
from tests.ops.passes import passes, reference, resolved
from tests.threads import spawn_thread


@pytest.fixture
def workers_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Processes, "spawn", staticmethod(spawn_thread))


def draw(_: int, rng: np.random.Generator) -> float:
    return float(rng.random())


def numbers() -> Iterator[int]:
    return iter(range(5))


@pytest.mark.parametrize("workers", [{}, {"procs": 1}, {"procs": 3}, {"threads": 2}], ids=str)
def test_prefetch_does_not_change_the_elements(workers: dict[str, int]) -> None:
    flow = fl.from_range(50).shuffle().random_map(draw).repeat(2)
    ahead = flow.prefetch(workers.get("procs", 0), workers.get("threads", 0))
    assert ahead.collect() == flow.collect()
    assert list(ahead.epoch(2)) == list(flow.epoch(2))
    assert len(ahead) == len(flow)
    assert ahead.effects == flow.effects
    assert ahead.spec == flow.spec
    assert list(ahead.node.reference(0)) == list(flow.node.reference(0))
    assert ahead.node.origin(0, 3) == flow.node.origin(0, 3)


def test_prefetch_does_not_change_draws_above_it() -> None:
    flow = fl.from_range(50)
    assert flow.prefetch().random_map(draw).collect() == flow.random_map(draw).collect()
    assert flow.prefetch().shuffle().collect() == flow.shuffle().collect()
    assert flow.prefetch().shuffle(9).collect() == flow.shuffle(9).collect()
    unordered = flow.prefetch(ordered=False)
    assert unordered.shuffle(9).collect() == flow.shuffle(9).collect()


def test_prefetch_of_an_endless_flow() -> None:
    run = iter(fl.from_range(3).repeat().prefetch(procs=1))
    with run:
        assert [next(run) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_titles_show_the_given_arguments() -> None:
    flow = fl.from_range(3)
    assert [
        flow.prefetch().node.title,
        flow.prefetch(2).node.title,
        flow.prefetch(threads=2).node.title,
        flow.prefetch(0, 2, memory=10**6).node.title,
        flow.prefetch(2, memory=9, deaths=1, timeout=0.5).node.title,
        flow.prefetch(2, ordered=False).node.title,
        flow.prefetch(on_error="skip").node.sources[0].title,
        flow.prefetch(on_error=print).node.sources[0].title,
        flow.replicate(2).node.sources[0].title,
    ] == [
        "prefetch(threads=1)",
        "prefetch(procs=2)",
        "prefetch(threads=2)",
        "prefetch(threads=2, memory=1000000)",
        "prefetch(procs=2, memory=9, deaths=1, timeout=0.5)",
        "ordered=False",
        'on_error="skip"',
        "on_error=print",
        "replicate(procs=2)",
    ]


def test_numpy_numbers_are_accepted() -> None:
    flow = fl.from_range(3).prefetch(np.int64(2), memory=np.int64(2**20), deaths=np.int32(1))  # type: ignore[call-overload]  # checkers know no NumPy int for an int
    node: Any = flow.node
    workers = node.workers
    assert [type(n) for n in (workers.count, workers.memory, workers.deaths)] == [int] * 3


class TestUnordered:
    def test_unordered_prefetch_is_reordered(self) -> None:
        flow = fl.from_range(9)
        assert flow.prefetch(ordered=False).effects == {Reordered}
        assert flow.prefetch(ordered=False).take(3).effects == {Reordered, Resampled}
        assert len(flow.prefetch(ordered=False)) == 9

    @pytest.mark.parametrize("workers", [{"procs": 2}, {"threads": 2}], ids=str)
    @pytest.mark.usefixtures("workers_are_threads")
    def test_a_slow_element_does_not_delay_others(self, workers: dict[str, Any]) -> None:
        others = threading.Semaphore(0)

        def first_waits(i: int) -> int:
            if i == 0:  # for three of the other worker's: two of them have then been sent
                assert all(others.acquire(timeout=60) for _ in range(3))
            others.release()
            return i

        _waiting[:] = [first_waits]
        got = fl.from_range(6).map(_waited).prefetch(**workers, ordered=False).collect()
        assert sorted(got) == list(range(6))
        assert got.index(0) >= 2

    def test_one_process_keeps_the_order(self) -> None:
        assert fl.from_range(9).prefetch(ordered=False).collect() == list(range(9))

    def test_an_unordered_prefetch_has_no_state(self) -> None:
        for flow in (
            fl.from_range(9).prefetch(ordered=False),
            fl.from_range(9).prefetch(procs=2, ordered=False).map(abs).prefetch(procs=2),
        ):
            with iter(flow) as run, pytest.raises(FlowError) as caught:
                run.state_dict()
            assert str(caught.value) == (
                "state_dict: after prefetch(ordered=False) a position does not identify the "
                "elements that were delivered; use ordered=True to save and resume"
            )

    def test_an_unordered_prefetch_cannot_be_zipped(self) -> None:
        with pytest.raises(InvalidFlow, match="is reordered"):
            fl.from_range(9).prefetch(ordered=False).zip(fl.from_range(9))  # type: ignore[misc]  # that is the type's to refuse


_waiting: list[Any] = []


def _waited(i: int) -> Any:
    """Pickled by its name, so that workers in threads share the semaphore."""
    return _waiting[-1](i)


class TestReplicate:
    @pytest.mark.usefixtures("workers_are_threads")
    @pytest.mark.parametrize(
        ("flow", "expected"),
        [
            (fl.from_range(3), [0, 0, 1, 1, 2, 2]),
            (fl.from_iterable(numbers).take(2), [0, 0, 1, 1]),
            (fl.from_range(0), []),
            (fl.from_iterable(numbers).filter(lambda i: i > 5), []),
            (fl.from_range(4).batch(3, collate=list), [[0, 1, 2]] * 2 + [[3]] * 2),
        ],
        ids=str,
    )
    def test_replicate_interleaves_the_copies(
        self, flow: Flow[Any, Any], expected: list[Any]
    ) -> None:
        assert flow.replicate(2).collect() == expected

    @pytest.mark.usefixtures("workers_are_threads")
    def test_each_copy_has_its_own_epoch(self) -> None:
        for flow in (fl.from_range(5).shuffle(), fl.from_range(5).shuffle().filter(bool)):
            one, other = list(flow.epoch(2)), list(flow.epoch(3))
            assert one != other
            got = list(flow.replicate(2).epoch(1))
            assert (got[::2], got[1::2]) == (one, other)

    @pytest.mark.usefixtures("workers_are_threads")
    def test_a_copy_that_ends_sooner_is_skipped(self) -> None:
        flow = fl.from_range(6).shuffle(seed=14).take(4).filter(lambda i: i % 2 == 0)
        copies = [list(flow.epoch(k)) for k in range(3)]
        assert [len(copy) for copy in copies] == [3, 2, 1]
        expected = [c[i] for i in range(4) for c in copies if i < len(c)]
        assert flow.replicate(3).collect() == expected

    def test_replicate_resolves_to_the_reference(self) -> None:
        flow = fl.from_range(5).shuffle().replicate(3)
        node: Any = flow.node.sources[0]
        alone: Flow[int, Any] = Flow(node)
        assert resolved(alone, 2) == reference(flow, 2) == passes(flow, 2)

    @pytest.mark.usefixtures("workers_are_threads")
    def test_replicate_in_a_later_epoch_of_a_repeat(self) -> None:
        rows = fl.from_range(4).shuffle().replicate(3)
        flow = rows.repeat(3)
        assert list(flow.epoch(1)) == [x for _, x in flow.node.reference(1)]
        streamed = fl.from_range(4).shuffle().filter(bool).replicate(3).repeat(2)
        assert list(streamed.epoch(1)) == [x for _, x in streamed.node.reference(1)]

    def test_replicate_changes_effects_and_length(self) -> None:
        assert fl.from_range(5).replicate(3).effects == {Resampled}
        assert len(fl.from_range(5).replicate(3)) == 15
        assert fl.from_iterable(numbers).replicate(3).node.length is None

    def test_replicate_refuses_a_one_shot_source(self) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_iterable(iter([1, 2])).map(abs).replicate(2)
        assert str(caught.value) == (
            "replicate: map(abs) allows only one pass, and each copy needs its own"
        )


@pytest.mark.parametrize("name", ["procs", "threads"])
@pytest.mark.parametrize("value", [-1, 1.5, True, "2"])
def test_prefetch_refuses_invalid_numbers_of_workers(name: str, value: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(3).prefetch(**{name: value})
    assert str(caught.value) == f'prefetch: {name} must be an int >= 0 or "auto", got {value!r}'


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2"])
def test_replicate_refuses_invalid_numbers_of_copies(value: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(3).replicate(value)
    assert str(caught.value) == f"replicate: procs must be an int >= 1, got {value!r}"


def test_too_many_workers_are_refused() -> None:
    flow = fl.from_range(3)
    refusals: dict[str, Callable[[], object]] = {
        "prefetch: procs": lambda: flow.prefetch(procs=10**9),
        "prefetch: threads": lambda: flow.prefetch(threads=10**9),
        "replicate: procs": lambda: flow.replicate(procs=10**9),
    }
    for name, refused in refusals.items():
        with pytest.raises(InvalidFlow) as caught:
            refused()
        assert str(caught.value) == f"{name} must be at most 1024, got 1000000000"
    flow.prefetch(procs=1024)
    flow.prefetch(threads=1024)
    flow.replicate(procs=1024)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"procs": 2, "threads": 3},
            "prefetch: set one of procs, threads and actors; got procs=2, threads=3",
        ),
        ({"memory": 0}, "prefetch: memory must be an int >= 1, got 0"),
        ({"memory": 1e9}, "prefetch: memory must be an int >= 1, got 1000000000.0"),
        ({"memory": True}, "prefetch: memory must be an int >= 1, got True"),
        ({"deaths": 0}, "prefetch: deaths must be an int >= 1, got 0"),
        ({"deaths": None}, "prefetch: deaths must be an int >= 1, got None"),
        ({"timeout": 0}, "prefetch: timeout must be a number of seconds > 0, or None, got 0"),
        ({"timeout": -1.5}, "prefetch: timeout must be a number of seconds > 0, or None, got -1.5"),
        ({"timeout": "1"}, "prefetch: timeout must be a number of seconds > 0, or None, got '1'"),
        ({"timeout": True}, "prefetch: timeout must be a number of seconds > 0, or None, got True"),
        (
            {"timeout": math.nan},
            "prefetch: timeout must be a number of seconds > 0, or None, got nan",
        ),
        (
            {"timeout": 1, "threads": 2},
            "prefetch: timeout needs procs=, as a thread cannot be ended",
        ),
        ({"ordered": 1}, "prefetch: ordered must be True or False, got 1"),
        ({"ordered": None}, "prefetch: ordered must be True or False, got None"),
        (
            {"on_error": "ignore"},
            'prefetch: on_error must be "raise", "skip" or a function of the error, got \'ignore\'',
        ),
        (
            {"on_error": None},
            'prefetch: on_error must be "raise", "skip" or a function of the error, got None',
        ),
    ],
    ids=str,
)
def test_prefetch_refuses_invalid_arguments(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(3).prefetch(**given)
    assert str(caught.value) == message
