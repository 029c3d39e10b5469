"""Find the bottleneck of a run from the shares of its time.

Problem: name the part of a run that limits its speed, and predict the effect of a change. Comparing
the costs of operators is not enough, as they run in different numbers of workers, at the same time.
So shares of time are compared. A run has two kinds of resource: the workers of each stage, and the
one thread that iterates. That thread's time is split into the consumer's own work on the elements,
reading for the workers, operators that workers do not run, and handing elements over; the rest is
waiting.

In the long run, a part that is busy for a share ``u`` of the time can sustain at most ``1 / u``
times the current rate. So the part with the greatest share is the bottleneck, the next greatest
share determines the speed of the others, and adding workers divides only the share of their stage
(Amdahl).

Source: the utilisation law and the bounds on throughput of operational analysis (Denning and
Buzen, 1978).
"""

from __future__ import annotations

import math

import attrs

from flowdsl.report.phrasing import MOST_WORKERS, Phrasing
from flowdsl.report.shares import Shares, inverse
from flowdsl.report.verdict import Limit, Verdict
from flowdsl.resources.cores import cores as available_cores
from flowdsl.statistics.figures import about, duration, name, number, share, where
from flowdsl.statistics.run import RunStatistics, StageStatistics

BUSY = 0.7
"""Workers that are busy for at least this share of their time are a bottleneck."""

ALIKE = 1.15
"""Two parts limit together if relieving one of them gains less than this factor."""

UNEVEN = 0.3
"""A worker is a straggler if it is busy longer than the average by at least this share."""

SLOW_ELEMENT = 10
"""Slow elements are the cause if they take at least this many times the median."""

WORTHWHILE = 1.15
"""The least speed-up for which advice is worthwhile."""


def verdict(statistics: RunStatistics, cores: int | None = None) -> Verdict:
    """Find the part that limits a run.

    ``cores`` is the number of processes that can compute at the same time, by default the cores
    that this process may use. A verdict is most precise for a profiled run: otherwise the cost of
    each operator is unknown and, without workers, so is the time of the consumer's own work.

    >>> verdict(RunStatistics(0, 0.0, 0.0, ())).limiting
    'unclear'

    Raises:
        TypeError: ``statistics`` is another object, such as the run itself.
    """
    if not isinstance(statistics, RunStatistics):
        raise TypeError(
            f"verdict: statistics must be the result of run.statistics(), got {statistics!r}"
        )
    if not statistics.elements or statistics.seconds <= 0:
        return Case(Phrasing(Shares(statistics), 1)).unclear(
            "Nothing can be said yet: no element was delivered.", "Let it run on."
        )
    return Case(Phrasing(Shares(statistics), cores or available_cores())).verdict()


@attrs.frozen
class Case:
    """A run, for which a verdict is derived."""

    words: Phrasing

    @property
    def run(self) -> RunStatistics:
        return self.words.run

    @property
    def shares(self) -> Shares:
        return self.words.shares

    def verdict(self) -> Verdict:
        if not self.shares.pools:
            if not self.run.profiled and not self.run.consumer_seconds:
                return self.unclear(
                    f"{number(self.run.rate)} elements/s, all in the consumer's thread: how its "
                    f"time divides between the flow and the consumer was not measured.",
                    "flow.profile(step=...) times both.",
                )
            parts = self.shares.thread
            return self._consumer() if parts["consumer"] > parts["thread"] else self._hosted()
        working = 1 - self.shares.blocked
        k, stage = max(self.shares.pools.items(), key=lambda pair: pair[1].utilisation)
        if working >= BUSY and working * ALIKE > stage.utilisation > working / ALIKE:
            return self._balanced(k)
        if working >= max(BUSY, stage.utilisation):
            return self._thread()
        if stage.utilisation >= BUSY:
            return self._workers(k)
        k, stage = max(self.shares.pools.items(), key=lambda pair: pair[1].waited)
        if _busiest(stage) >= BUSY and stage.skew >= UNEVEN:
            return self._slow_worker(k)
        several = len(stage.workers) > 1 and stage.utilisation > 0
        if several and stage.p99 >= SLOW_ELEMENT * stage.p50 > 0:
            return self._slow_elements(k)
        blocked = share(self.shares.blocked)
        return self.unclear(
            f"Nothing is busy for long: at {number(self.run.rate)} elements/s the consumer's "
            f"thread waited {blocked} of {duration(self.run.seconds)}, and the workers of "
            f"{name(stage)} were busy {share(stage.utilisation)} of it.",
            "That is usual in a short run, while workers start: profile for longer.",
        )

    def _thread(self) -> Verdict:
        parts = self.shares.thread
        what = max(parts, key=lambda part: parts[part])
        if what == "consumer" and self.shares.hosted and not self.run.profiled:
            last = name(list(self.shares.hosted.values())[-1])
            return self.unclear(
                f"{number(self.run.rate)} elements/s, limited by the consumer or by {last}, which "
                f"runs in its thread: only a profile shows which of the two.",
                "flow.profile(step=...) times both.",
            )
        if what == "consumer":
            return self._consumer()
        if what == "input":
            return self._input()
        return self._hosted() if what == "thread" else self._handing_over()

    def _workers(self, k: int) -> Verdict:
        stage, rate = self.run.stages[k], self.run.rate
        operator, what = self.words.operator(stage)
        count, headroom = len(stage.workers), inverse(self.shares.others(k))
        are = "is" if count == 1 else "are"
        finding = (
            f"{what} limits at {number(rate)} elements/s{self.words.calls(stage, operator)}: its "
            f"{where(stage, 'one')} {are} busy {share(stage.utilisation)} of the time."
        )
        advice, expected, workers = self._more_workers(k, headroom)
        return self._verdict(
            "workers",
            finding,
            advice,
            headroom,
            stage=k,
            operator=operator,
            expected=expected,
            workers=workers,
        )

    def _more_workers(self, k: int, headroom: float) -> tuple[str, float | None, int | None]:
        stage, rate = self.run.stages[k], self.run.rate
        make = f"make it cheaper: {self.words.rest(headroom)}."
        if stage.copies == "passes":
            reason = "replicate(procs=n) runs n passes, so another number changes the elements"
            return f"{reason}; {make}", None, None
        count = len(stage.workers)
        if stage.auto and count < self.words.cores:
            tried = f'prefetch({self.words.keyword(k)}="auto") has found no number that is faster'
            return f"{tried}; {make}", None, None
        desired = min(MOST_WORKERS, count * headroom)
        most = self.words.room(k)
        workers = max(count, math.ceil(min(desired, most) - 0.1))
        expected = rate * min(headroom, workers / count)
        computing = stage.computing
        bound = self.words.bound()
        if workers > count and expected >= WORTHWHILE * rate:
            phrase = (
                f"{self.words.prefetch(k, workers)} would give about {about(expected)} elements/s"
            )
            if stage.kind is not None and stage.kind.shares_lock:
                phrase += ", if the functions release the interpreter lock; if not, use procs"
            if desired > most + 1 and computing is None:
                phrase += (
                    f" on {bound}, and still more workers more, if they wait rather than compute"
                )
            elif desired > most + 1:
                phrase += f", which is what {bound} can do"
            return f"{phrase}.", expected, workers
        if count < most - 0.5 or headroom < WORTHWHILE:
            return make.capitalize(), None, None
        if computing is None:
            are = "is" if self.words.cores == 1 else "are"
            phrase = f"There {are} {bound}, so more workers would help"
            return f"{phrase} only if they wait rather than compute; if not, {make}", None, None
        return f"They compute, and {bound} can do no more, so {make}", None, None

    def _slow_worker(self, k: int) -> Verdict:
        stage = self.run.stages[k]
        operator, what = self.words.operator(stage)
        busiest = _busiest(stage)
        even = inverse(max(self.shares.others(k), stage.utilisation))
        finding = (
            f"One worker of {what} limits at {number(self.run.rate)} elements/s: it is busy "
            f"{share(busiest)} of the time, its {where(stage)} {share(stage.utilisation)} on "
            f"average. The others wait for it, to keep the order."
        )
        advice = (
            "See what is slow there: a core that other programs use too, or elements that always "
            f"go to this worker; evenly shared, it would be about "
            f"{about(self.run.rate * even)} elements/s."
        )
        if self.words.waits_in_turn(stage):
            advice += " prefetch(ordered=False) does not wait for it, if any order will do."
        expected = self.run.rate * even
        return self._verdict(
            "straggler", finding, advice, even, stage=k, operator=operator, expected=expected
        )

    def _slow_elements(self, k: int) -> Verdict:
        stage = self.run.stages[k]
        operator, what = self.words.operator(stage)
        even = inverse(max(self.shares.others(k), stage.utilisation))
        finding = (
            f"A few slow elements of {what} limit at {number(self.run.rate)} elements/s: one in "
            f"a hundred takes {duration(stage.p99)} or more, most take {duration(stage.p50)}, and "
            f"those wait for the slow ones, to keep the order."
        )
        advice = "See what they have in common, e.g. where they are read from."
        if self.words.waits_in_turn(stage):
            advice = (
                f"prefetch(ordered=False) does not wait for them, if any order will do: up to "
                f"about {about(self.run.rate * even)} elements/s."
            )
        expected = self.run.rate * even if self.words.waits_in_turn(stage) else None
        return self._verdict(
            "straggler", finding, advice, even, stage=k, operator=operator, expected=expected
        )

    def _hosted(self) -> Verdict:
        rate, parts = self.run.rate, self.shares.thread
        spent = parts["thread"]
        hosted = self.shares.hosted
        k = self.words.costliest(hosted, spent)
        operator, what = (
            self.words.operator(self.run.stages[k]) if k is not None else (None, "The flow")
        )
        finding = (
            f"{what} limits at {number(rate)} elements/s"
            f"{self.words.calls(self.run.stages[k], operator) if k is not None else ''}: in the "
            f"consumer's thread, where it takes {share(spent)} of the time."
        )
        stays = self.words.staying(hosted) * spent
        moved = spent - stays
        if moved < WORTHWHILE - 1 or (
            operator is not None and operator in self.words.stays(hosted)
        ):
            headroom = inverse(self.shares.others("thread"))
            advice = (
                f"No worker can run it, as it must see the elements in order. Make it cheaper, "
                f"or move work from it into a map, which workers can run: "
                f"{self.words.rest(headroom)}."
            )
            return self._verdict("thread", finding, advice, headroom, stage=k, operator=operator)
        left = 1 - self.shares.blocked - moved  # the thread's share once ``moved`` runs in workers
        headroom = inverse(max(left, self.shares.most_utilised))
        workers = max(
            1, min(self.words.cores, math.ceil(min(moved * headroom, MOST_WORKERS) - 0.1))
        )
        expected = rate * min(headroom, workers / moved)
        known = all(s.costs for s in hosted.values())
        effect = f"would give {'about' if known else 'up to'} {about(expected)} elements/s"
        if self.shares.pools:
            placed = any(not stage.copies for stage in self.shares.pools.values())
            advice = f"A prefetch behind it{', rather than before it,' * placed} {effect}."
        else:
            advice = f"prefetch(procs={workers}) at its end {effect}"
            if workers == self.words.cores:
                advice += f", which is what {self.words.bound()} can do"
            staying = " and ".join(sorted(self.words.stays(hosted)))
            if not known and staying:
                advice += f", less the time of {staying}, which no worker can run"
            advice += "."
        return self._verdict(
            "thread",
            finding,
            advice,
            headroom,
            stage=k,
            operator=operator,
            expected=expected,
            workers=workers,
        )

    def _input(self) -> Verdict:
        read = self.shares.inputs
        most = max(read.values())
        k = next(k for k, part in read.items() if part >= 0.8 * most)
        spent, headroom = self.shares.thread["input"], inverse(self.shares.others("input"))
        supply = self.run.stages[k - 1] if k and self.run.stages[k - 1].kind is None else None
        operator, what = self.words.operator(supply) if supply else (None, None)
        what = what or f"The input of {name(self.run.stages[k])}"
        finding = (
            f"{what} limits at {number(self.run.rate)} elements/s: it is read in the consumer's "
            f"thread, which takes {share(spent)} of the time."
        )
        advice = (
            f"No number of {self.words.keyword(k)} changes that. Move work from it into a map "
            f"before the prefetch, or make it a source that workers read by themselves, e.g. with "
            f"write_lmdb, once: {self.words.rest(headroom)}."
        )
        at = k - 1 if supply else k
        return self._verdict("input", finding, advice, headroom, stage=at, operator=operator)

    def _handing_over(self) -> Verdict:
        spent, headroom = (
            self.shares.thread["handing over"],
            inverse(self.shares.others("handing over")),
        )
        k = max(self.shares.pools, key=lambda j: self.shares.pools[j].delivered)
        finding = (
            f"Handing elements over from workers to the consumer limits at {number(self.run.rate)} "
            f"elements/s: it takes {share(spent)} of the time of the consumer's thread."
        )
        alone = sum(s.busy for s in self.shares.pools.values()) / self.run.seconds
        together = max(1e-9, 1 - self.shares.blocked - spent + alone)
        copies = any(stage.copies for stage in self.shares.pools.values())
        before = "replicate" if copies else "the prefetch"
        advice = f"Fewer and larger elements cost less: batch them before {before}."
        if alone < spent and not copies:
            advice += (
                f" They are made in less time than they travel: without prefetch, it would be "
                f"about {about(self.run.rate / together)} elements/s."
            )
        return self._verdict("handing over", finding, advice, headroom, stage=k)

    def _consumer(self) -> Verdict:
        rate, parts = self.run.rate, self.shares.thread
        flow = max(1 - self.shares.blocked - parts["consumer"], self.shares.most_utilised)
        headroom = inverse(flow)
        finding = (
            f"The consumer limits at {number(rate)} elements/s: its own work takes "
            f"{share(parts['consumer'])} of the time."
        )
        if not self.shares.pools and parts["thread"] >= 1 - 1 / WORTHWHILE:
            left = max(parts["consumer"], parts["thread"])
            expected = rate / left
            advice = (
                f"prefetch(procs=1) would run the flow beside it: about {about(expected)} "
                f"elements/s."
            )
            return self._verdict(
                "consumer", finding, advice, headroom, expected=expected, workers=1
            )
        if not self.run.profiled:
            advice = (
                "This includes any operators after the workers: flow.profile(step=...) times them "
                "apart from the consumer."
            )
            return self._verdict("consumer", finding, advice, headroom)
        able = f"The flow alone could give about {about(rate * headroom)}"
        if headroom > 100:
            able = "The flow alone could give over 100 times as many"
        advice = f"{able}: nothing in it needs to change."
        if len(self.shares.pools) == 1:
            ((k, stage),) = self.shares.pools.items()
            enough = max(1, math.ceil(1.2 * stage.utilisation * len(stage.workers)))
            adjustable = stage.copies != "passes" and not stage.auto
            if enough < len(stage.workers) and adjustable:
                advice = f"{able}; {self.words.prefetch(k, enough)} would do."
                return self._verdict(
                    "consumer", finding, advice, headroom, expected=rate, workers=enough
                )
        return self._verdict("consumer", finding, advice, headroom)

    def _balanced(self, k: int) -> Verdict:
        stage = self.run.stages[k]
        parts = self.shares.thread
        what = max(parts, key=lambda part: parts[part])
        mostly = {
            "consumer": "the consumer's own work",
            "input": "reading the input of workers",
            "thread": "operators that run there",
        }.get(what, "handing elements over")
        finding = (
            f"It is balanced at {number(self.run.rate)} elements/s: the {where(stage, 'one')} of "
            f"{name(stage)} are busy {share(stage.utilisation)} of the time, and the consumer's "
            f"thread {share(1 - self.shares.blocked)}, with {mostly} above all."
        )
        headroom = inverse(max(1 - self.shares.blocked, stage.utilisation))
        advice = "Only if both become faster does the run."
        return self._verdict("balanced", finding, advice, headroom, stage=k)

    def unclear(self, finding: str, advice: str) -> Verdict:
        return self._verdict("unclear", finding, advice)

    def _verdict(
        self,
        limiting: Limit,
        finding: str,
        advice: str,
        headroom: float = 1.0,
        *,
        stage: int | None = None,
        operator: str | None = None,
        expected: float | None = None,
        workers: int | None = None,
    ) -> Verdict:
        return Verdict(
            limiting=limiting,
            stage=stage,
            operator=operator,
            rate=self.run.rate,
            headroom=max(1.0, headroom),
            waited=self.run.waited_share,
            finding=finding,
            advice=advice,
            expected=expected,
            workers=workers,
        )


def _busiest(stage: StageStatistics) -> float:
    """The share of the run's time in which the stage's busiest worker was busy."""
    most = max((worker.busy for worker in stage.workers), default=0.0)
    return most / stage.seconds if stage.seconds else 0.0
