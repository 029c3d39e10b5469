"""How many workers pay: found while they work, from how the time of the pass goes; no clocks.

Since no element depends on the number of workers, it may change at any time. A trial measures the
seconds that an element takes with one number. If the consumer waits for elements, more workers are
tried, and kept if they make it faster; if it never waits, fewer are, and kept if that makes it no
slower. What did not pay is tried again later, each time after twice as long, or when the work has
changed.

Source: the hill climbing of tf.data's AUTOTUNE (Murray et al., 2021), on measured rates alone; the
bound on useful workers by the utilisation law (Denning and Buzen, 1978).
"""

from __future__ import annotations

import math
from statistics import median

import attrs

PAYS = 0.05
"""Twice as many workers pay if an element then takes less time by this share; fewer than twice as
many, if by as much less as they are fewer, so that many small steps lead as far as a large one."""

COSTS = 0.03
"""Fewer workers do if an element then takes more time by this share at most."""

WAITS = 0.05
"""The consumer waits if it does so for this share of the time."""

SPARE = 1.2
"""How many workers are kept for each that the consumer's pace needs."""

CHANGED = 1.25
"""The work has changed if an element, or its share of the workers' time, is this many times more or
less than it was."""

PATIENCE, MOST_PATIENCE = 8.0, 120.0
"""Seconds after which a number that did not pay is tried again: at first, and at most."""

_BLOCK = 0.03
_LEAST_BLOCKS = 8
_LEAST, _MOST = 0.25, 1.5
"""The least and the most seconds of a trial: it ends as soon as it is precise."""
_PRECISE = 0.02
"""The standard error at which a trial is precise, as a share of what it measures."""
_PAUSE = 4.0
"""A consumer that takes this many times longer than usual over an element makes a pause."""


@attrs.define
class Span:
    """How a part of the pass went."""

    seconds: float = 0.0
    elements: int = 0
    """Elements made, those that a filter left out included."""
    waited: float = 0.0
    """Seconds in which the consumer's thread waited for workers."""
    outside: float = 0.0
    """Seconds of the consumer's own work."""
    worked: float = 0.0
    """Seconds that the workers took, added up."""

    def add(self, other: Span) -> None:
        """Make the span longer by another."""
        self.seconds += other.seconds
        self.elements += other.elements
        self.waited += other.waited
        self.outside += other.outside
        self.worked += other.worked


@attrs.frozen
class Trial:
    """What was measured with one number of workers."""

    count: int
    cost: float
    """Seconds that an element took, pauses of the consumer left out."""
    waits: float
    """The share of the time in which the consumer waited."""
    wanted: float
    """The number of workers that would keep up with the consumer's thread."""


@attrs.define
class Tuner:
    """Finds the number of workers from 1 to ``most`` that pays.

    >>> Tuner(4).count, Tuner(4, 3).count
    (1, 3)
    """

    most: int
    count: int = 1
    """The number of workers to use now."""
    _blocks: list[Span] = attrs.field(factory=list[Span], init=False)
    """The trial with this number so far."""
    _unsettled: int = attrs.field(default=0, init=False)
    """Tasks that are still to be delivered which were made with another number."""
    _before: Trial | None = attrs.field(default=None, init=False)
    """The trial from which this number departed."""
    _steady: Trial | None = attrs.field(default=None, init=False)
    """The trial after which the number was left as it was."""
    _too_many: int = attrs.field(init=False)
    """The least number that did not pay."""
    _too_few: int = attrs.field(default=0, init=False)
    """The greatest number that was too few."""
    _patience: float = attrs.field(default=PATIENCE, init=False)
    _held: float = attrs.field(default=0.0, init=False)
    """Seconds for which what did not pay was left alone."""

    def __attrs_post_init__(self) -> None:
        self._too_many = self.most + 1

    def observe(self, span: Span, in_flight: int) -> None:
        """Take note of a task that was delivered, and perhaps change the number.

        ``in_flight`` is the number of tasks that are under way, made with the number so far.
        """
        if self.most == 1:
            return
        if self._unsettled:
            self._unsettled -= 1
            return
        self._held += span.seconds
        if not self._blocks or self._blocks[-1].seconds >= _BLOCK:
            self._blocks.append(Span())
        self._blocks[-1].add(span)
        if self._blocks[-1].seconds < _BLOCK or not _is_enough(self._blocks):
            return
        trial = _measured(self.count, self._blocks)
        self._blocks.clear()
        count = self._next(trial)
        if count != self.count:
            self.count, self._unsettled = count, in_flight

    def _next(self, trial: Trial) -> int:
        """The number to use after a trial."""
        before, self._before = self._before, None
        if before is not None and not _pays(before, trial):
            if trial.count > before.count:
                self._too_many = trial.count
            else:
                self._too_few = trial.count
            self._held = 0.0
            if abs(trial.count - before.count) == 1:
                self._steady = before
                return before.count
            trial = before  # perhaps a number between the two does
        self._look_again(trial)
        count = self._better(trial)
        if count != trial.count:
            self._before = trial
        elif self._steady is None:
            self._steady = trial
        return count

    def _look_again(self, trial: Trial) -> None:
        """Forget what did not pay, if the work has changed or that is long ago."""
        steady = self._steady
        changed = steady is not None and steady.count == trial.count and _differ(steady, trial)
        if changed:
            self._patience = PATIENCE
        elif self._held < self._patience:
            return
        else:
            self._patience = min(2 * self._patience, MOST_PATIENCE)
        self._too_many, self._too_few = self.most + 1, 0
        self._steady, self._held = None, 0.0

    def _better(self, trial: Trial) -> int:
        """A number that may be better than that of the trial; else its own."""
        count = trial.count
        if trial.waits > WAITS:
            most = min(2 * count, math.ceil(trial.wanted), self.most)
            if self._too_many <= most:  # halfway to what did not pay
                most = (count + self._too_many) // 2
            return max(count, most)
        enough = max(1, math.ceil(SPARE * trial.wanted))
        if enough <= self._too_few:
            enough = -(-(count + self._too_few) // 2)
        return min(count, enough)


def _differ(before: Trial, now: Trial) -> bool:
    """Whether the work has changed between two trials with one number of workers."""
    factors = now.cost / before.cost, now.wanted / max(before.wanted, 1e-9)
    return not all(1 / CHANGED < factor < CHANGED for factor in factors)


def _pays(before: Trial, now: Trial) -> bool:
    """Whether a number of workers is better than the one from which it departed."""
    if now.count > before.count:
        doublings = math.log2(now.count / before.count)
        return now.cost < before.cost * math.pow(1 - PAYS, doublings)
    return now.cost < before.cost * (1 + COSTS)


def _is_enough(blocks: list[Span]) -> bool:
    """Whether a trial is long enough, or as precise as it needs to be."""
    seconds, n = sum(block.seconds for block in blocks), len(blocks)
    if seconds >= _MOST:
        return True
    if n < _LEAST_BLOCKS or seconds < _LEAST:
        return False
    cost = seconds / sum(block.elements for block in blocks)
    spread = sum((block.seconds - cost * block.elements) ** 2 for block in blocks)
    return math.sqrt(spread * n / (n - 1)) < _PRECISE * seconds


def _measured(count: int, blocks: list[Span]) -> Trial:
    whole = Span()
    for block in blocks:
        whole.add(block)
    usual = median(block.outside / block.elements for block in blocks)
    paused = sum(max(0.0, block.outside - _PAUSE * usual * block.elements) for block in blocks)
    seconds = max(whole.seconds - paused, 1e-9)
    thread = max(whole.seconds - paused - whole.waited, 1e-9)
    return Trial(
        count,
        cost=seconds / whole.elements,
        waits=whole.waited / seconds,
        wanted=whole.worked / thread,
    )
