"""Find the bottleneck of a run from the shares of its time.

The problem: name the part of a run that limits its speed, and predict the effect of a change.
Comparing the costs of operators is not enough, as they run in different numbers of workers, at the
same time. So shares of time are compared. A run has two kinds of resource: the workers of each
stage, and the one thread that iterates. That thread's time is split into the consumer's own work on
the elements, reading for the workers, operators that workers do not run, and handing elements over;
the rest is waiting.

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

from flowdsl.errors import InvalidArgument
from flowdsl.report.phrasing import MAX_WORKERS, Phrasing
from flowdsl.report.shares import Shares, inverse
from flowdsl.report.verdict import Limit, Verdict
from flowdsl.resources.cores import cores as available_cores
from flowdsl.statistics.figures import about, duration, name, number, share, where
from flowdsl.statistics.run import RunStatistics
from flowdsl.statistics.stages import StageStatistics

BUSY = 0.7
"""Workers that are busy for at least this share of their time are a bottleneck."""

SIMILAR_FACTOR = 1.15
"""Two parts are equally limiting if relieving one of them gains less than this factor."""

UNEVEN = 0.3
"""A worker is a straggler if it is busy longer than the average by at least this share."""

SLOW_ELEMENT = 10
"""Slow elements are the cause if they take at least this many times the median."""

WORTHWHILE = 1.15
"""The least speed-up for which advice is worthwhile."""

HANDING_OVER = 5e-6
"""Seconds in which the consumer's thread takes an element from a worker, without its bytes."""

SENDING = 10e-6
"""Seconds in which the consumer's thread reads a row in memory and sends it to a worker."""

NEAR_GREATEST = 0.8
"""If workers of several stages wait for reading, the first stage with a share of at least this part
of the greatest share is named: a later stage's reading includes the earlier ones."""


def verdict(
    statistics: RunStatistics, cores: int | None = None, *, rows_sent: float = 0.0
) -> Verdict:
    """Find the part that limits a run.

    ``cores`` is the number of processes that can compute at the same time, by default the cores
    that this process may use. ``rows_sent`` is the number of rows that workers would receive for
    each element of a run without workers. A verdict is most precise for a profiled run: otherwise
    the cost of each operator is unknown and, without workers, so is the time of the consumer's own
    work.

    >>> verdict(RunStatistics(0, 0.0, 0.0, ())).limiting
    'unclear'

    Raises:
        InvalidArgument: ``statistics`` is another object, such as the run itself.
    """
    if not isinstance(statistics, RunStatistics):
        raise InvalidArgument(
            f"verdict: statistics must be the result of run.statistics(), got {statistics!r}"
        )
    if not statistics.elements or statistics.seconds <= 0:
        return Diagnosis(Phrasing(Shares(statistics), 1)).unclear(
            "Nothing can be said yet: no element was delivered.", "Let it run on."
        )
    phrasing = Phrasing(Shares(statistics), cores or available_cores())
    return Diagnosis(phrasing, rows_sent).diagnose()


@attrs.frozen
class Diagnosis:
    """Derives the verdict of one run."""

    phrasing: Phrasing
    rows_sent: float = 0.0

    @property
    def run(self) -> RunStatistics:
        return self.phrasing.run

    @property
    def shares(self) -> Shares:
        return self.phrasing.shares

    def diagnose(self) -> Verdict:
        if not self.shares.pools:
            if not self.run.profiled and not self.run.consumer_seconds:
                return self.unclear(
                    f"{number(self.run.rate)} elements/s, all in the consumer's thread: how its "
                    f"time divides between the flow and the consumer was not measured.",
                    "flow.profile(step=...) times both.",
                )
            parts = self.shares.thread
            return (
                self._consumer_verdict()
                if parts["consumer"] > parts["hosted"]
                else self._hosted_verdict()
            )
        working = 1 - self.shares.blocked
        k, stage = max(self.shares.pools.items(), key=lambda pair: pair[1].utilisation)
        if (
            working >= BUSY
            and working * SIMILAR_FACTOR > stage.utilisation > working / SIMILAR_FACTOR
        ):
            return self._balanced_verdict(k)
        if working >= max(BUSY, stage.utilisation):
            return self._thread_verdict()
        if stage.utilisation >= BUSY:
            return self._workers_verdict(k)
        # the stage for which the consumer's thread waited longest
        k, stage = max(self.shares.pools.items(), key=lambda pair: pair[1].waited)
        if _busiest(stage) >= BUSY and stage.skew >= UNEVEN:
            return self._slow_worker_verdict(k)
        several = len(stage.workers) > 1 and stage.utilisation > 0
        if several and stage.p99 >= SLOW_ELEMENT * stage.p50 > 0:
            return self._slow_elements_verdict(k)
        blocked = share(self.shares.blocked)
        return self.unclear(
            f"Nothing is busy for long: at {number(self.run.rate)} elements/s the consumer's "
            f"thread waited {blocked} of {duration(self.run.seconds)}, and the workers of "
            f"{name(stage)} were busy {share(stage.utilisation)} of it.",
            "That is usual in a short run, while workers start: profile for longer.",
        )

    def _thread_verdict(self) -> Verdict:
        parts = self.shares.thread
        greatest = max(parts, key=lambda part: parts[part])
        if greatest == "consumer" and self.shares.hosted and not self.run.profiled:
            last = name(list(self.shares.hosted.values())[-1])
            return self.unclear(
                f"{number(self.run.rate)} elements/s, limited by the consumer or by {last}, which "
                f"runs in its thread: only a profile shows which of the two.",
                "flow.profile(step=...) times both.",
            )
        if greatest == "consumer":
            return self._consumer_verdict()
        if greatest == "input":
            return self._input_verdict()
        return self._hosted_verdict() if greatest == "hosted" else self._handing_over_verdict()

    def _workers_verdict(self, k: int) -> Verdict:
        stage, rate = self.run.stages[k], self.run.rate
        operator, subject = self.phrasing.operator(stage)
        count, headroom = len(stage.workers), inverse(self.shares.greatest_other(k))
        are = "is" if count == 1 else "are"
        finding = (
            f"{subject} limits the run to {number(rate)} "
            f"elements/s{self.phrasing.calls(stage, operator)}: its {where(stage, one='one')} "
            f"{are} busy {share(stage.utilisation)} of the time.{self.phrasing.waits(stage)}"
        )
        advice, expected, workers = self._more_workers(k, headroom)
        return self._make_verdict(
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
        make = f"make it cheaper: {self.phrasing.rate_of_rest(headroom)}."
        if stage.copies == "passes":  # each worker of a replicate runs a pass of its own
            reason = "replicate(procs=n) runs n passes, so another number changes the elements"
            return f"{reason}; {make}", None, None
        count = len(stage.workers)
        if stage.auto and count < self.phrasing.cores:
            call = f'prefetch({self.phrasing.keyword(k)}="auto")'
            tried = f"{call} tried other numbers of workers and none was faster"
            return f"{tried}; {make}", None, None
        desired = min(MAX_WORKERS, count * headroom)
        most = self.phrasing.most_busy_workers(k)
        workers = max(count, math.ceil(min(desired, most) - 0.1))
        expected = rate * min(headroom, self.phrasing.speedup(k, workers / count))
        computing = stage.computing
        contended = self.phrasing.waits_for_cores(stage)
        bound = self.phrasing.bound()
        if workers > count and expected >= WORTHWHILE * rate:
            call = self.phrasing.prefetch(k, workers)
            at_most = "up to " if contended else ""
            phrase = f"{call} would give {at_most}about {about(expected)} elements/s"
            if stage.kind is not None and stage.kind.shares_lock:
                phrase += ", if the functions release the interpreter lock; if not, use procs"
            if desired > most + 1 and computing is None:
                phrase += f" on {bound}; more workers would help if they mostly wait for I/O"
            elif contended:
                phrase += f", which is what {bound} can do beside their other work"
            elif desired > most + 1:
                phrase += f", which is what {bound} can do"
            return f"{phrase}.", expected, workers
        if count < most - 0.5 or headroom < WORTHWHILE:
            return make.capitalize(), None, None
        if computing is None:
            are = "is" if self.phrasing.cores == 1 else "are"
            phrase = f"There {are} {bound}, so more workers would help"
            return f"{phrase} only if they wait rather than compute; if not, {make}", None, None
        in_use = f"{self.phrasing.all_cores()} in use"
        if contended:
            remedy = make if self.phrasing.crowded else f"end what else uses cores, or {make}"
            phrase = f"{in_use} and more workers would wait for a core too, so {remedy}"
            return phrase[0].upper() + phrase[1:], None, None
        return f"The workers are CPU-bound and {in_use}, so {make}", None, None

    def _slow_worker_verdict(self, k: int) -> Verdict:
        stage = self.run.stages[k]
        operator, subject = self.phrasing.operator(stage)
        busiest = _busiest(stage)
        headroom_if_even = inverse(max(self.shares.greatest_other(k), stage.utilisation))
        finding = (
            f"One worker of {subject} limits the run to {number(self.run.rate)} elements/s: it is "
            f"busy {share(busiest)} of the time, its {where(stage)} {share(stage.utilisation)} on "
            f"average. The others wait for it, to keep the order.{self.phrasing.waits(stage)}"
        )
        expected = self.run.rate * self.phrasing.speedup(k, headroom_if_even)
        advice = (
            "Find out why that worker is slow: a core that other programs use too, or elements "
            f"that always go to this worker; with evenly shared work, the run would reach about "
            f"{about(expected)} elements/s."
        )
        if self.phrasing.waits_in_turn(stage):
            advice += " prefetch(ordered=False) does not wait for it, if any order will do."
        return self._make_verdict(
            "straggler",
            finding,
            advice,
            headroom_if_even,
            stage=k,
            operator=operator,
            expected=expected,
        )

    def _slow_elements_verdict(self, k: int) -> Verdict:
        stage = self.run.stages[k]
        operator, subject = self.phrasing.operator(stage)
        headroom_if_even = inverse(max(self.shares.greatest_other(k), stage.utilisation))
        finding = (
            f"A few slow elements of {subject} limit the run to {number(self.run.rate)} "
            f"elements/s: one in a hundred takes {duration(stage.p99)} or more, half take "
            f"{duration(stage.p50)} or less; finished elements wait for the slow ones, to keep the "
            f"order.{self.phrasing.waits(stage)}"
        )
        expected = None
        advice = "See what they have in common, e.g. where they are read from."
        if self.phrasing.waits_in_turn(stage):
            expected = self.run.rate * self.phrasing.speedup(k, headroom_if_even)
            advice = (
                f"prefetch(ordered=False) does not wait for them, if any order will do: up to "
                f"about {about(expected)} elements/s."
            )
        return self._make_verdict(
            "straggler",
            finding,
            advice,
            headroom_if_even,
            stage=k,
            operator=operator,
            expected=expected,
        )

    def _hosted_verdict(self) -> Verdict:
        rate, parts = self.run.rate, self.shares.thread
        spent = parts["hosted"]
        hosted = self.shares.hosted
        k = self.phrasing.costliest(hosted, spent)
        operator, subject = (
            self.phrasing.operator(self.run.stages[k]) if k is not None else (None, "The flow")
        )
        finding = (
            f"{subject} limits the run to {number(rate)} elements/s"
            f"{self.phrasing.calls(self.run.stages[k], operator) if k is not None else ''}: in the "
            f"consumer's thread, where it takes {share(spent)} of the time."
            f"{self.phrasing.waits_of_thread()}"
        )
        fixed_share = self.phrasing.fixed_share(hosted) * spent
        movable_share = spent - fixed_share
        if movable_share < WORTHWHILE - 1 or (
            operator is not None and operator in self.phrasing.fixed_operators(hosted)
        ):
            headroom = inverse(self.shares.greatest_other("hosted"))
            advice = (
                f"No worker can run it, as it must see the elements in order. Make it cheaper, "
                f"or move work from it into a map, which workers can run: "
                f"{self.phrasing.rate_of_rest(headroom)}."
            )
            return self._make_verdict(
                "thread", finding, advice, headroom, stage=k, operator=operator
            )
        # The thread's share of the time once workers run the movable operators.
        remaining_share = 1 - self.shares.blocked - movable_share
        headroom = inverse(max(remaining_share, self.shares.most_utilised))
        workers = max(
            1,
            min(self.phrasing.cores, math.ceil(min(movable_share * headroom, MAX_WORKERS) - 0.1)),
        )
        slowdown = self.phrasing.slowdown(workers - movable_share)
        expected = rate * min(headroom, workers / movable_share * slowdown)
        if not self.shares.pools:
            transfer = HANDING_OVER + self.rows_sent * SENDING
            expected = min(expected, 1 / (remaining_share / rate + transfer))
            if expected < WORTHWHILE * rate:
                return self._make_verdict(
                    "thread",
                    finding,
                    self._without_workers(transfer),
                    headroom,
                    stage=k,
                    operator=operator,
                )
        known = all(s.costs for s in hosted.values())
        contended = slowdown < 1
        at_most = "up to about" if known and contended else "about" if known else "up to"
        effect = f"would give {at_most} {about(expected)} elements/s"
        if self.shares.pools:
            has_prefetch = any(not stage.copies for stage in self.shares.pools.values())
            instead = ", rather than before it," if has_prefetch else ""
            advice = f"A prefetch after it in the chain{instead} {effect}."
        else:
            advice = f"prefetch(procs={workers}) at its end {effect}"
            if workers == self.phrasing.cores:
                advice += f", which is what {self.phrasing.bound()} can do"
                advice += " beside their other work" if contended else ""
            fixed = " and ".join(sorted(self.phrasing.fixed_operators(hosted)))
            if not known and fixed:
                advice += f", less the time of {fixed}, which no worker can run"
            advice += "."
        return self._make_verdict(
            "thread",
            finding,
            advice,
            headroom,
            stage=k,
            operator=operator,
            expected=expected,
            workers=workers,
        )

    def _without_workers(self, transfer: float) -> str:
        """Return the advice where transferring an element takes about as long as computing it."""
        element, rows = duration(1 / self.run.rate), round(self.rows_sent)
        way, remedy = "taking one from a worker", "Make it cheaper"
        if rows:
            its_rows = "its row" if rows == 1 else f"its {number(rows)} rows"
            way = f"sending {its_rows} to a worker and taking it from there"
            remedy += ", or store the rows, e.g. with write_lmdb, so that workers read them"
        return (
            f"Workers would hardly help: an element takes {element}, and {way} about "
            f'{duration(transfer)}. {remedy}. prefetch(procs="auto") measures whether they help.'
        )

    def _input_verdict(self) -> Verdict:
        read = self.shares.inputs
        greatest = max(read.values())
        k = next(k for k, part in read.items() if part >= NEAR_GREATEST * greatest)
        spent, headroom = self.shares.thread["input"], inverse(self.shares.greatest_other("input"))
        # Stages are numbered from the sources: the one before, if without workers, is its input.
        supply = self.run.stages[k - 1] if k and self.run.stages[k - 1].kind is None else None
        operator, subject = self.phrasing.operator(supply) if supply else (None, None)
        subject = subject or f"The input of {name(self.run.stages[k])}"
        finding = (
            f"{subject} limits the run to {number(self.run.rate)} elements/s: it is read in the "
            f"consumer's thread, which takes {share(spent)} of the time."
        )
        advice = (
            f"No number of {self.phrasing.keyword(k)} changes that. Move work from it into a map "
            f"before the prefetch, or make it a source that workers read by themselves, e.g. with "
            f"write_lmdb, once: {self.phrasing.rate_of_rest(headroom)}."
        )
        at = k - 1 if supply else k
        return self._make_verdict("input", finding, advice, headroom, stage=at, operator=operator)

    def _handing_over_verdict(self) -> Verdict:
        spent = self.shares.thread["handing over"]
        headroom = inverse(self.shares.greatest_other("handing over"))
        k = max(self.shares.pools, key=lambda j: self.shares.pools[j].delivered)
        finding = (
            "Handing elements over from workers to the consumer limits the run to "
            f"{number(self.run.rate)} elements/s: it takes {share(spent)} of the time of the "
            "consumer's thread."
        )
        workers_busy_share = sum(s.busy for s in self.shares.pools.values()) / self.run.seconds
        share_without_prefetch = max(1e-9, 1 - self.shares.blocked - spent + workers_busy_share)
        copies = any(stage.copies for stage in self.shares.pools.values())
        before = "replicate" if copies else "the prefetch"
        advice = f"Fewer and larger elements cost less: batch them before {before}."
        if workers_busy_share < spent and not copies:
            advice += (
                " Computing them takes less time than transferring them: without prefetch, it "
                f"would be about {about(self.run.rate / share_without_prefetch)} elements/s."
            )
        return self._make_verdict("handing over", finding, advice, headroom, stage=k)

    def _consumer_verdict(self) -> Verdict:
        rate, parts = self.run.rate, self.shares.thread
        flow_share = max(1 - self.shares.blocked - parts["consumer"], self.shares.most_utilised)
        headroom = inverse(flow_share)
        finding = (
            f"The consumer limits the run to {number(rate)} elements/s: its own work takes "
            f"{share(parts['consumer'])} of the time.{self.phrasing.waits_of_thread()}"
        )
        if not self.shares.pools and parts["hosted"] >= 1 - 1 / WORTHWHILE:
            faster = 1 / max(parts["consumer"], parts["hosted"])
            slowdown = self.phrasing.slowdown(faster - 1)
            transfer = HANDING_OVER + self.rows_sent * SENDING
            expected = min(rate * faster * slowdown, 1 / (parts["consumer"] / rate + transfer))
            if expected < WORTHWHILE * rate:
                advice = self._without_workers(transfer)
                return self._make_verdict("consumer", finding, advice, headroom)
            advice = (
                f"prefetch(procs=1) would run the flow in parallel with the consumer: "
                f"{'up to ' if slowdown < 1 else ''}about {about(expected)} elements/s."
            )
            return self._make_verdict(
                "consumer", finding, advice, headroom, expected=expected, workers=1
            )
        if not self.run.profiled:
            advice = (
                "This includes any operators after the workers: flow.profile(step=...) times them "
                "apart from the consumer."
            )
            return self._make_verdict("consumer", finding, advice, headroom)
        possible = f"The flow alone could give about {about(rate * headroom)}"
        if headroom > 100:
            possible = "The flow alone could give more than 100 times this rate"
        advice = f"{possible}: nothing in it needs to change."
        if len(self.shares.pools) == 1:
            ((k, stage),) = self.shares.pools.items()
            enough = max(1, math.ceil(1.2 * stage.utilisation * len(stage.workers)))
            adjustable = stage.copies != "passes" and not stage.auto
            if enough < len(stage.workers) and adjustable:
                advice = f"{possible}; {self.phrasing.prefetch(k, enough)} would do."
                return self._make_verdict(
                    "consumer", finding, advice, headroom, expected=rate, workers=enough
                )
        return self._make_verdict("consumer", finding, advice, headroom)

    def _balanced_verdict(self, k: int) -> Verdict:
        stage = self.run.stages[k]
        parts = self.shares.thread
        greatest = max(parts, key=lambda part: parts[part])
        mostly = {
            "consumer": "the consumer's own work",
            "input": "reading the input of workers",
            "hosted": "the work of operators that run in it",
        }.get(greatest, "handing elements over")
        finding = (
            f"The run is balanced at {number(self.run.rate)} elements/s: the "
            f"{where(stage, one='one')} of {name(stage)} are busy {share(stage.utilisation)} of "
            f"the time, and the consumer's thread {share(1 - self.shares.blocked)}; most of the "
            f"thread's time is {mostly}."
        )
        headroom = inverse(max(1 - self.shares.blocked, stage.utilisation))
        advice = "Speeding up only one of them will not help; both must become faster."
        return self._make_verdict("balanced", finding, advice, headroom, stage=k)

    def unclear(self, finding: str, advice: str) -> Verdict:
        return self._make_verdict("unclear", finding, advice)

    def _make_verdict(
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
            advice=f"{advice} {self.run.advice_on_filters}".rstrip(),
            expected=expected,
            workers=workers,
        )


def _busiest(stage: StageStatistics) -> float:
    """Return the share of the run's time in which the stage's busiest worker was busy."""
    most = max((worker.busy for worker in stage.workers), default=0.0)
    return most / stage.seconds if stage.seconds else 0.0
