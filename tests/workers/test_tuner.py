"""The tuner on simulated passes: it finds the number of workers that pays, and adapts to it."""

from __future__ import annotations

import random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowdsl.workers.tuner import PATIENCE, Span, Tuner

AHEAD = 8
"""Tasks under way for each worker."""


@attrs.define
class Simulated:
    """A simulated pass: times of workers and consumer, with noise, pauses and contention."""

    work: float
    consumer: float
    contention: float = 0.0
    """The slowdown of the others by each worker beyond ``room``."""
    room: int = 1
    noise: float = 0.0
    pause: float = 0.0
    """Seconds that the consumer pauses every ``pause_every`` elements."""
    pause_every: int = 1000
    seed: int = 0
    clock: float = 0.0
    elements: int = 0

    def cost(self, count: int) -> float:
        """The seconds per element, without pauses."""
        return max(self.each(count) / count, self.consumer)

    def each(self, count: int) -> float:
        """The seconds that a worker takes for an element."""
        return self.work * (1 + self.contention * max(0, count - self.room))

    def best(self, most: int) -> float:
        return min(self.cost(count) for count in range(1, most + 1))

    def span(self, count: int) -> Span:
        """The next task."""
        chance = random.Random(f"{self.seed} {self.clock}")
        size = max(1, int(0.03 / self.each(count)))
        took = size * self.cost(count) * (1 + self.noise * chance.uniform(-1, 1))
        outside = size * self.consumer
        waited = max(0.0, took - outside)
        before, self.elements = self.elements, self.elements + size
        if before // self.pause_every != self.elements // self.pause_every:
            took, outside = took + self.pause, outside + self.pause
        self.clock += took
        return Span(took, size, waited, outside, size * self.each(count))

    def run(self, tuner: Tuner, seconds: float) -> list[int]:
        """Return the numbers that the tuner chose in this many seconds, one for each change."""
        until, chosen = self.clock + seconds, [tuner.count]
        number, left = tuner.count, 0
        """Return the number of workers of the next tasks, and the number of these tasks."""
        while self.clock < until:
            under_way = AHEAD * number
            tuner.observe(self.span(number), under_way)
            left = max(0, left - 1)
            if tuner.count != chosen[-1]:
                chosen.append(tuner.count)
                left = under_way
            number = number if left else tuner.count
        return chosen


passes = st.builds(
    Simulated,
    work=st.floats(1e-6, 0.02),
    consumer=st.floats(1e-7, 0.02),
    contention=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    noise=st.floats(0, 0.1),
    seed=st.integers(0, 99),
)


@given(passes, st.integers(1, 8), st.data())
def test_settles_near_the_best_number_in_five_seconds(
    simulated: Simulated, most: int, data: st.DataObject
) -> None:
    tuner = Tuner(most, data.draw(st.integers(1, most)))
    simulated.run(tuner, 5.0)
    assert 1 <= tuner.count <= most
    worst = max(simulated.cost(count) for count in range(1, most + 1))
    assert simulated.cost(tuner.count) <= worst
    assert simulated.cost(tuner.count) <= 1.1 * simulated.best(most)


@pytest.mark.parametrize("contention", [0.5, 0.75])
def test_small_steps_lead_as_far_as_a_large_one(contention: float) -> None:
    """Workers slow each other down, so the required number is never reached."""
    simulated = Simulated(work=0.0195, consumer=0.0098, contention=contention)
    tuner = Tuner(8)
    simulated.run(tuner, 5.0)
    assert simulated.cost(tuner.count) <= 1.1 * simulated.best(8)


def test_grows_while_more_workers_pay() -> None:
    tuner = Tuner(64)
    chosen = Simulated(work=0.01, consumer=1e-6).run(tuner, 5.0)
    assert chosen == [1, 2, 4, 8, 16, 32, 64]


def test_stops_when_more_workers_do_not_pay() -> None:
    """Each further worker slows the others down by as much as it contributes."""
    tuner = Tuner(16)
    chosen = Simulated(work=0.01, consumer=1e-6, contention=1.0).run(tuner, 5.0)
    assert chosen == [1, 2, 1]


def test_finds_a_number_between_two_trials() -> None:
    simulated = Simulated(work=0.012, consumer=0.0022)  # six workers keep up
    tuner = Tuner(16)
    chosen = simulated.run(tuner, 5.0)
    assert tuner.count in (6, 7)
    assert max(chosen) <= 7  # no more were tried than could be of use


def test_goes_halfway_back_from_too_many() -> None:
    tuner = Tuner(16)
    chosen = Simulated(work=0.01, consumer=1e-6, contention=1.0, room=6).run(tuner, 6.0)
    assert chosen == [1, 2, 4, 8, 6, 7, 6]


def test_shrinks_when_the_consumer_is_slower() -> None:
    tuner = Tuner(16, 16)
    Simulated(work=0.004, consumer=0.002).run(tuner, 5.0)
    assert tuner.count in (2, 3)


@pytest.mark.parametrize("count", [1, 5, 16])
def test_follows_changes_of_the_work(count: int) -> None:
    """The consumer becomes slower, then the work grows tenfold, and then shrinks again."""
    tuner = Tuner(16, count)
    Simulated(work=0.001, consumer=0.002).run(tuner, 5.0)
    assert tuner.count == 1
    Simulated(work=0.020, consumer=0.002).run(tuner, 5.0)
    assert tuner.count >= 10
    Simulated(work=0.001, consumer=0.002).run(tuner, 10.0)  # ready elements come first
    assert tuner.count <= 2


def test_rejected_numbers_are_retried_less_and_less_often() -> None:
    tuner = Tuner(2)
    simulated = Simulated(work=0.01, consumer=1e-6, contention=1.0)
    tries = [simulated.run(tuner, PATIENCE + 3).count(2) for _ in range(8)]
    assert tries[0] >= 1
    assert 2 <= sum(tries) <= 5


def test_pauses_of_the_consumer_do_not_count() -> None:
    """A consumer that sometimes writes a checkpoint counts as fast as one that does not."""
    for seed in range(20):
        simulated = Simulated(
            work=0.002, consumer=0.0015, noise=0.05, pause=0.9, pause_every=600, seed=seed
        )
        tuner = Tuner(8)
        simulated.run(tuner, 10.0)
        assert tuner.count in (2, 3)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_stays_within_its_bounds(most: int) -> None:
    tuner = Tuner(most)
    assert max(Simulated(work=0.01, consumer=1e-6).run(tuner, 3.0)) == most


def test_trials_of_slow_elements_take_longer() -> None:
    tuner = Tuner(4)
    Simulated(work=1.0, consumer=1e-6).run(tuner, 60.0)
    assert tuner.count == 4
