"""The tuner: finds the number of workers that pays off, by measuring the running pass.

No element depends on the number of workers, so the number may change at any time. A trial measures
the seconds per element with one number. If the consumer waits for elements, more workers are tried,
and kept if the pass becomes faster. If the consumer never waits, fewer workers are tried, and kept
if the pass does not become slower. A number that was rejected is tried again when the work has
changed, or after a time that doubles with each rejection.

The tuner reads no clock: all times are arguments of ``observe``.

Source: the hill climbing of tf.data's AUTOTUNE (Murray et al., 2021), with measured rates instead
of a model; the upper limit on useful workers is the utilisation law (Denning and Buzen, 1978).
"""

from __future__ import annotations

import math
from statistics import median

import attrs

PAYS = 0.05
"""Doubling the workers pays off if it reduces the time per element by at least this share. For a
smaller increase the required share is proportionally smaller, so that many small steps reach as far
as one large step."""

COSTS = 0.03
"""Fewer workers are enough if the time per element increases by at most this share."""

WAITS = 0.05
"""The consumer counts as waiting if it waits for more than this share of the time."""

SPARE = 1.2
"""The number of workers kept for each worker that the consumer's speed requires."""

CHANGED = 1.25
"""The work has changed if the time per element, or the number of workers it requires, differs by
more than this factor."""

PATIENCE, MOST_PATIENCE = 8.0, 120.0
"""Seconds after which a rejected number is tried again: initially, and at most."""

_BLOCK = 0.03
"""The seconds of a block: a trial consists of blocks, whose variation shows its precision."""
_LEAST_BLOCKS = 8
_LEAST, _MOST = 0.25, 1.5
"""The minimum and maximum seconds of a trial, which ends as soon as it is precise."""
_PRECISE = 0.02
"""The relative standard error at which a trial is precise."""
_PAUSE = 4.0
"""A consumer pauses if it spends more than this many times the usual time on an element."""


@attrs.define
class Span:
    """Measurements of a part of the pass."""

    seconds: float = 0.0
    elements: int = 0
    """Elements computed, including those removed by a filter."""
    waited: float = 0.0
    """Seconds in which the consumer's thread waited for workers."""
    outside: float = 0.0
    """Seconds of the consumer's own work."""
    worked: float = 0.0
    """Total seconds of work of all workers."""

    def add(self, other: Span) -> None:
        """Add the measurements of another span."""
        self.seconds += other.seconds
        self.elements += other.elements
        self.waited += other.waited
        self.outside += other.outside
        self.worked += other.worked


@attrs.frozen
class Trial:
    """The measurement of one number of workers."""

    count: int
    cost: float
    """Seconds per element, without pauses of the consumer."""
    waits: float
    """The share of the time in which the consumer waited."""
    required: float
    """The number of workers that would match the speed of the consumer's thread."""


@attrs.define
class Tuner:
    """Finds the number of workers from 1 to ``most`` that pays off.

    >>> Tuner(4).count, Tuner(4, 3).count
    (1, 3)
    """

    most: int
    count: int = 1
    """The number of workers to use now."""
    _blocks: list[Span] = attrs.field(factory=list[Span], init=False)
    """The measurements of the current trial."""
    _of_previous_count: int = attrs.field(default=0, init=False)
    """The number of undelivered tasks that were computed with the previous number of workers."""
    _before: Trial | None = attrs.field(default=None, init=False)
    """The trial of the previous number, until the current number is accepted or rejected."""
    _steady: Trial | None = attrs.field(default=None, init=False)
    """The trial after which the number was not changed."""
    _too_many: int = attrs.field(init=False)
    """The smallest number that was rejected as too large."""
    _too_few: int = attrs.field(default=0, init=False)
    """The largest number that was rejected as too small."""
    _patience: float = attrs.field(default=PATIENCE, init=False)
    _since_rejection: float = attrs.field(default=0.0, init=False)
    """Seconds since the last rejection."""

    def __attrs_post_init__(self) -> None:
        self._too_many = self.most + 1

    def observe(self, span: Span, under_way: int) -> None:
        """Record a delivered task, and possibly change the number.

        ``under_way`` is the number of tasks that are not delivered: if the number changes, they are
        still computed with the current one.
        """
        if self.most == 1:
            return
        if self._of_previous_count:
            self._of_previous_count -= 1
            return
        self._since_rejection += span.seconds
        if not self._blocks or self._blocks[-1].seconds >= _BLOCK:
            self._blocks.append(Span())
        self._blocks[-1].add(span)
        if self._blocks[-1].seconds < _BLOCK or not _is_enough(self._blocks):
            return
        trial = _measured(self.count, self._blocks)
        self._blocks.clear()
        count = self._next(trial)
        if count != self.count:
            self.count, self._of_previous_count = count, under_way

    def _next(self, trial: Trial) -> int:
        """Return the number to use after a trial."""
        before, self._before = self._before, None
        if before is not None and not _pays(before, trial):
            if trial.count > before.count:
                self._too_many = trial.count
            else:
                self._too_few = trial.count
            self._since_rejection = 0.0
            if abs(trial.count - before.count) == 1:
                self._steady = before
                return before.count
            trial = before  # perhaps a number between the two pays off
        self._forget_rejections(trial)
        count = self._better(trial)
        if count != trial.count:
            self._before = trial
        elif self._steady is None:
            self._steady = trial
        return count

    def _forget_rejections(self, trial: Trial) -> None:
        """Forget rejected numbers if the work has changed, or after a long time."""
        steady = self._steady
        changed = steady is not None and steady.count == trial.count and _differ(steady, trial)
        if changed:
            self._patience = PATIENCE
        elif self._since_rejection < self._patience:
            return
        else:
            self._patience = min(2 * self._patience, MOST_PATIENCE)
        self._too_many, self._too_few = self.most + 1, 0
        self._steady, self._since_rejection = None, 0.0

    def _better(self, trial: Trial) -> int:
        """Return a number that may be better than the trial's; otherwise the trial's number."""
        count = trial.count
        if trial.waits > WAITS:
            most = min(2 * count, math.ceil(trial.required), self.most)
            if self._too_many <= most:  # halfway to the rejected number
                most = (count + self._too_many) // 2
            return max(count, most)
        enough = max(1, math.ceil(SPARE * trial.required))
        if enough <= self._too_few:
            enough = -(-(count + self._too_few) // 2)
        return min(count, enough)


def _differ(before: Trial, now: Trial) -> bool:
    """Return True if the work has changed between two trials of the same number of workers."""
    factors = now.cost / before.cost, now.required / max(before.required, 1e-9)
    return not all(1 / CHANGED < factor < CHANGED for factor in factors)


def _pays(before: Trial, now: Trial) -> bool:
    """Return True if the number of the trial ``now`` is better than the previous number."""
    if now.count > before.count:
        doublings = math.log2(now.count / before.count)
        return now.cost < before.cost * math.pow(1 - PAYS, doublings)
    return now.cost < before.cost * (1 + COSTS)


def _is_enough(blocks: list[Span]) -> bool:
    """Return True if a trial is long enough or precise enough."""
    seconds, n = sum(block.seconds for block in blocks), len(blocks)
    if seconds >= _MOST:
        return True
    if n < _LEAST_BLOCKS or seconds < _LEAST:
        return False
    cost = seconds / sum(block.elements for block in blocks)
    spread = sum((block.seconds - cost * block.elements) ** 2 for block in blocks)
    return math.sqrt(spread * n / (n - 1)) < _PRECISE * seconds


def _measured(count: int, blocks: list[Span]) -> Trial:
    """Return the trial of ``count`` workers that consists of these blocks."""
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
        required=whole.worked / thread,
    )
