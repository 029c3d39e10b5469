"""Runs a case, and checks its elements, errors, reports and remains."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import attrs

from flowdsl import ElementError, FlowError, InvalidFlow, WorkerDied
from flowdsl.nodes import OneShot
from flowdsl.nodes.failures import SkipFailed
from flowdsl.plan.reference import interpret
from flowdsl.plan.tree import walk
from flowdsl.runtime.run import Run
from flowdsl.testing.elements import same
from flowdsl.testing.outcomes import computes_ahead
from flowdsl.testing.recipes import MAX_ELEMENTS, AnyFlow
from flowdsl.workers import processes, slabs, wire
from flowdsl.workers.launching import Child, fork_server
from flowdsl.workers.processes import Process, Processes, start_process
from flowdsl.workers.worker import Setup
from tests.chaos.cases import Case
from tests.chaos.faults import Fault, Faulty, Poison
from tests.chaos.mortals import Mortals, alive
from tests.children import workers_of
from tests.paces import paced, tuned

SECONDS_A_TRIAL = 60
_SECONDS_STOPPED = 0.03
_TICK = 0.01


class Hung(Exception):
    """Raised if a trial takes too long."""


class Wrong(Exception):
    """Raised if a run differs from its reference."""


@attrs.frozen
class Outcome:
    """The outcome of a pass."""

    elements: list[Any]
    error: FlowError | SystemExit | None
    ended: bool
    reported: list[str]
    """The rows reported to the skip handler."""


@attrs.define
class Tally:
    """The results of trials."""

    pipelines: int = 0
    elements: int = 0
    deaths: int = 0
    retried: int = 0
    skipped: int = 0
    errors_at_their_place: int = 0
    refused: int = 0
    """Cases that cannot be built, such as a zip of flows of unknown length."""
    with_processes: int = 0


def try_case(case: Case, tally: Tally, real: bool = False) -> None:
    """Run a case with threads or processes, and compare it with its reference.

    Raises:
        Wrong: It delivered something else, or left something behind.
        Hung: It did not end.
    """
    if real:  # each death costs the start of a process
        poison = case.poison if case.deaths <= 3 else ()
        case = attrs.evolve(case, procs=min(case.procs, 2), threads=0, poison=poison)
    fork_server()  # a run starts it, and it stays
    before = _left_behind()
    with tempfile.TemporaryDirectory() as folder, _limited(), _backend(case, real) as end_one:
        try:
            _Trial(case, folder, tally, end_one).run()
        except InvalidFlow:  # such as zip of what on_error has made of no known length
            tally.refused += 1
    after = _left_behind()
    deadline = time.monotonic() + 60
    while _is_more(after, before) and time.monotonic() < deadline:
        gc.collect()  # an exception holds the frames that it came through
        after = _left_behind()
    if _is_more(after, before):
        raise Wrong(f"left behind: {after}, and before there was {before}")
    tally.pipelines += 1
    tally.with_processes += real


@attrs.define
class _Trial:
    case: Case
    folder: str
    tally: Tally
    end_one: Callable[[int], None]

    def run(self) -> None:
        case = self.case
        faults = self._faults()
        reported: list[str] = []
        strike = Faulty(faults)

        def handler(error: ElementError) -> None:
            reported.append(error.origin)

        def flow(procs: int = case.procs) -> AnyFlow:
            return case.build(strike, handler, procs)

        epochs = [case.epoch, case.epoch + 1] if case.ending == "again" else [case.epoch]
        here = flow()
        for k, epoch in enumerate(epochs):
            if k and not here.node.replayable:
                return
            node = flow(0).node
            expected = _outcome(interpret(node, epoch), reported)
            if case.ending == "again" and k and case.deaths > 1:
                self.end_one(epoch)  # at rest, but a thread may yet take up what it is given next
            run = here.epoch(epoch)
            resumed = case.ending == "resume" and all(
                not isinstance(part, OneShot) for part in walk(node)
            )
            cut = case.cut if case.ending == "abandon" or resumed else MAX_ELEMENTS
            got = self._consume(run, expected, cut, reported)
            self._count(run)
            lenient = computes_ahead(node)
            if resumed and got.error is None and not got.ended and case.ordered:
                with flow(case.then_procs).resume(run.state_dict()) as rest:
                    more = _outcome(rest, reported, MAX_ELEMENTS - cut)
                    self._count(rest)
                joined = [*got.elements, *more.elements]
                got = Outcome(joined, more.error, more.ended, [])
            self._judge(got, expected, lenient)

    def _faults(self) -> tuple[Fault, ...]:
        case = self.case
        rows = [i for part in case.recipe.parts for i in part.ids]
        if not rows:
            return ()
        marks = Path(self.folder)
        struck = [
            Fault(rows[s.place % len(rows)], s.kind, s.times, str(marks / str(k)), os.getpid())
            for k, s in enumerate(case.struck)
        ]
        poison = [Poison(rows[p % len(rows)], "kill", 0, "", os.getpid()) for p in case.poison]
        return (*struck, *poison)

    def _consume(self, run: Run[Any], expected: Outcome, cut: int, reported: list[str]) -> Outcome:
        case = self.case
        kept: list[Any] = []
        reported.clear()
        error: FlowError | SystemExit | None = None
        ended = False
        try:
            while len(kept) < cut:
                at = len(kept)
                for place, number in case.leaving:
                    if place == at:
                        self.end_one(number)
                if at in case.pauses:
                    time.sleep(0.005)
                element = next(run)
                if case.ending == "drop" and case.ordered and at < len(expected.elements):
                    if not same(element, expected.elements[at]):
                        raise Wrong(f"element {at} is {element}, not {expected.elements[at]}")
                    element = expected.elements[at]
                kept.append(element)
        except StopIteration:
            ended = True
        except (FlowError, SystemExit) as raised:
            error, ended = raised, True
        run.close()
        return Outcome(kept, error, ended, list(reported))

    def _count(self, run: Run[Any]) -> None:
        statistics = run.statistics()
        self.tally.elements += statistics.elements
        for stage in statistics.stages:
            self.tally.deaths += stage.deaths
            self.tally.retried += stage.retried
            self.tally.skipped += stage.skipped

    def _judge(self, got: Outcome, expected: Outcome, lenient: bool) -> None:
        case = self.case
        if got.error is not None and case.memory is not None and "memory=" in str(got.error):
            expected = Outcome(expected.elements[: len(got.elements)], got.error, True, [])
        if isinstance(got.error, SystemExit) and any(s.kind == "leave" for s in case.struck):
            # An exit does not wait for the elements and errors before it.
            size = min(len(got.elements), len(expected.elements))
            if case.ordered:
                _compare(got.elements[:size], expected.elements[:size])
            self.tally.errors_at_their_place += 1
            return
        if not case.ordered:
            self._judge_unordered(got, expected)
            return
        cut_short = case.ending == "abandon" and not got.ended
        size = len(got.elements)
        if lenient and expected.error is not None:
            known = len(expected.elements)
            if size < known and not cut_short:
                raise Wrong(f"{_reported(got)}, not {_reported(expected)}")
            _compare(got.elements[:known], expected.elements[:size])
            return
        if size < len(expected.elements) and not cut_short:
            raise Wrong(f"{_reported(got)}, not {_reported(expected)}") from got.error
        _compare(got.elements, expected.elements[:size] if cut_short else expected.elements)
        if cut_short:
            return
        if got.ended != expected.ended:
            raise Wrong(f"{_reported(got)}, not {_reported(expected)}")
        self._judge_errors(got, expected)
        if case.on_error == "call" and expected.error is None and expected.ended:
            self._judge_reported(got, expected)

    def _judge_errors(self, got: Outcome, expected: Outcome) -> None:
        if (got.error is None) != (expected.error is None):
            raise Wrong(f"{_reported(got)}, not {_reported(expected)}")
        if got.error is None:
            return
        self.tally.errors_at_their_place += 1
        if isinstance(got.error, WorkerDied) and self.case.poison:
            return
        if type(got.error) is not type(expected.error):
            raise Wrong(f"{_reported(got)}, not {_reported(expected)}") from got.error
        if isinstance(got.error, ElementError | SystemExit) and str(got.error) != str(
            expected.error
        ):
            raise Wrong(f"{_reported(got)}, not {_reported(expected)}") from got.error

    def _judge_reported(self, got: Outcome, expected: Outcome) -> None:
        """Check that reports are in order and unique; unreadable rows may be reported early."""
        case = self.case
        if case.ending in ("resume", "again") or case.recipe.is_combined:
            return  # a second pass over a cache reports nothing again; some flows are read ahead
        built = case.build(Faulty(()), lambda error: None, case.procs).node
        if sum(isinstance(part, SkipFailed) for part in walk(built)) > 1:
            # The lower stage reads ahead, and reports rows that a take above it does not need.
            missing = Counter(expected.reported) - Counter(got.reported)
            if missing:
                raise Wrong(f"not reported: {sorted(missing.elements())}, but {got.reported}")
            return
        if got.reported != expected.reported:
            raise Wrong(f"reported skips: {got.reported}, expected: {expected.reported}")

    def _judge_unordered(self, got: Outcome, expected: Outcome) -> None:
        """Check that every element comes once, in any order, as far as the reference is known."""
        if not expected.ended or expected.error is not None:
            return
        left = list(expected.elements)
        for element in got.elements:
            place = next((k for k, other in enumerate(left) if same(element, other)), None)
            if place is None:
                raise Wrong(f"{element} comes twice, or is none of the reference's")
            del left[place]
        if got.ended and (left or got.error is not None):
            raise Wrong(
                f"{_reported(got)}, not {_reported(expected)}; missing: {left[:5]}"
            ) from got.error


def _outcome(elements: Iterator[Any], reported: list[str], most: int = MAX_ELEMENTS) -> Outcome:
    reported.clear()
    got: list[Any] = []
    try:
        for element in islice(elements, most):
            got.append(element)  # noqa: PERF402  # what came before an error counts too
    except (FlowError, SystemExit) as error:
        return Outcome(got, error, True, list(reported))
    return Outcome(got, None, len(got) < most, list(reported))


def _compare(got: list[Any], expected: list[Any]) -> None:
    for k, (one, other) in enumerate(zip(got, expected, strict=False)):
        if not same(one, other):
            raise Wrong(f"element {k} is {one}, not {other}")
    if len(got) != len(expected):
        raise Wrong(f"{len(got)} elements, not {len(expected)}")


def _reported(outcome: Outcome) -> str:
    end = "an end" if outcome.ended else "no end"
    if outcome.error is not None:
        end = f"{type(outcome.error).__name__}: {outcome.error} <- {outcome.error.__cause__!r}"
    return f"{len(outcome.elements)} elements and {end}"


# -- what runs it, and what it leaves --------------------------------------------------------------


@contextlib.contextmanager
def _backend(case: Case, real: bool) -> Iterator[Callable[[int], None]]:
    """Provide workers that can be ended from outside; yields the function that ends one."""
    with contextlib.ExitStack() as patches:

        def patch(where: object, name: str, value: object) -> None:
            patches.enter_context(mock.patch.object(where, name, value))

        patch(processes, "SECONDS_STOPPED", _SECONDS_STOPPED)
        patch(processes, "_TICK", _TICK)
        logging.getLogger("flowdsl").disabled = True
        patches.callback(setattr, logging.getLogger("flowdsl"), "disabled", False)
        if case.sizes:
            patches.enter_context(paced(list(case.sizes)))
        if case.numbers:
            patches.enter_context(tuned([min(case.procs, n) for n in case.numbers]))
        if real:
            born: list[Child] = []

            def spawn(setup: Setup) -> Process:
                worker = start_process(setup)
                born.append(worker.process)
                return worker

            def end_one(number: int) -> None:
                if born:  # not by its number, which may be another's by now
                    born[-1 - number % min(2, len(born))].kill()

            patch(Processes, "spawn", staticmethod(spawn))
            yield end_one
        else:
            mortals = Mortals(case.stillborn)
            patch(Processes, "spawn", staticmethod(mortals.spawn))
            patch(processes, "_is_stopped", mortals.is_stopped)
            if case.shared:
                patch(slabs, "WORTH_SHARING", 1)
                patch(wire, "WORTH_SHARING", 1)
            yield mortals.end_one


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Raise in the main thread after a time limit."""

    def hung(number: int, frame: FrameType | None) -> None:
        raise Hung(f"no end after {SECONDS_A_TRIAL} seconds")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(SECONDS_A_TRIAL)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _is_more(after: dict[str, int], before: dict[str, int]) -> bool:
    return any(after[name] > before[name] for name in before)


def _left_behind() -> dict[str, int]:
    """Return what a run may leave: workers, shared memory, descriptors, files in /dev/shm."""
    maps = Path("/proc/self/maps").read_text()
    return {
        "worker threads": alive(),
        "processes": len(workers_of()),
        "slabs": maps.count("memfd:flowdsl"),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "in /dev/shm": maps.count("/dev/shm/"),
    }
