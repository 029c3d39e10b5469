"""A profile: run a flow for a while with timings, and derive a verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import attrs

from flowdsl.errors import FlowError, InvalidFlow
from flowdsl.plan.plan import Plan
from flowdsl.plan.tree import rows_sent, steps_of
from flowdsl.report.bottleneck import verdict
from flowdsl.report.diagram import Diagram, diagram_of
from flowdsl.report.picture import Figures, page, picture
from flowdsl.report.sums import since, together
from flowdsl.report.verdict import Verdict
from flowdsl.resources.core_waits import waited_for_core
from flowdsl.runtime.run import Run
from flowdsl.statistics.run import RunStatistics
from flowdsl.statistics.tables import costs_table, printed, table

if TYPE_CHECKING:
    from rich.console import RenderableType

T = TypeVar("T")

_SECONDS_BETWEEN_CHECKS, _MAX_WARMUP = 0.02, 1.0
"""Seconds between two checks whether all workers have started, and the limit on waiting for it."""


@attrs.frozen(repr=False)
class Profile:
    """The result of ``flow.profile``: print it, or save it as a picture.

    >>> import flowdsl as fl
    >>> profile = fl.from_range(100).map(abs).batch(10).profile(seconds=0.01)
    >>> profile.statistics.elements > 0
    True
    >>> isinstance(profile.verdict, fl.Verdict)
    True
    """

    statistics: RunStatistics
    """The run's statistics, with extra stages for the operators that run outside of stages."""
    verdict: Verdict
    _diagram: Diagram

    def svg(self) -> str:
        """The plan with its figures as SVG, light or dark like the reader's device."""
        return picture(self._diagram, Figures(self.statistics, self.verdict)).svg()

    def html(self) -> str:
        """The picture and the tables as one self-contained page without scripts."""
        return page(self.svg(), self._tables())

    def save(self, path: Path | str) -> None:
        """Write the picture to ``path``, whose suffix sets the format: ``.svg`` or ``.html``."""
        path = Path(path)
        render = {".svg": self.svg, ".html": self.html}.get(path.suffix)
        if render is None:
            raise InvalidFlow(f"save: path must end in .svg or .html, got {str(path)!r}")
        path.write_text(render(), encoding="utf-8")

    def __str__(self) -> str:
        return f"{self.verdict}\n\n{self._tables()}"

    def __repr__(self) -> str:
        return f"Profile({self.verdict.limiting!r}, {self.statistics.rate:,.4g} elements/s)"

    def __rich__(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        words = Text(self.verdict.finding, style="bold")
        words.append(str(self.verdict).removeprefix(self.verdict.finding), style="not bold")
        return Group(words, "", *self._parts())

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """The profile by MIME type, for notebooks."""
        return {"text/plain": str(self), "text/html": self.svg()}

    def _parts(self) -> Iterator[RenderableType]:
        from rich.text import Text

        yield Text(self.statistics.summary)
        yield table(self.statistics.stages, self.verdict.stage)
        if any(stage.costs for stage in self.statistics.stages):
            yield costs_table(
                self.statistics.stages, self.statistics.seconds, self.verdict.operator
            )

    def _tables(self) -> str:
        return printed(*self._parts())


def profile(plan: Plan[T], seconds: float, step: Callable[[T], object] | None = None) -> Profile:
    """Run a flow from epoch 0 for ``seconds`` seconds, and measure its operators.

    Raises:
        InvalidFlow: ``seconds`` is not a number > 0, or ``step`` cannot be called.
        FlowError: The flow has no elements.
    """
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not seconds > 0:
        raise InvalidFlow(f"profile: seconds must be a number > 0, got {seconds!r}")
    if step is not None and not callable(step):
        raise InvalidFlow(f"profile: step must be callable, or None, got {step!r}")
    node, diagram = plan.node, diagram_of(plan)
    watch = _Watch(seconds, step)
    total: RunStatistics | None = None
    for epoch in count():
        seen = watch.measure(Run(plan, epoch, profile=True))
        if not seen.elements:
            break
        total = seen if total is None else together(total, seen)
        if watch.done or not node.replayable:
            break
    if total is None:
        advice = "" if node.length == 0 else f"; see what {node.title} leaves out"
        raise FlowError(f"profile: the flow has no elements, so there is nothing to time{advice}")
    figures = diagram.arrange(attrs.evolve(total, length=None, profiled=True))
    found = verdict(figures, rows_sent=rows_sent(steps_of(node)))
    return Profile(figures, found, diagram)


@attrs.define
class _Watch(Generic[T]):
    """Measures passes for ``seconds`` seconds, after a warm-up.

    The warm-up does not count: workers start, files are opened, modules are imported. It ends with
    the first element delivered after all workers have made one, or after a time limit.
    """

    seconds: float
    step: Callable[[T], object] | None
    deadline: float | None = None
    done: bool = False

    def measure(self, run: Run[T]) -> RunStatistics:
        """Run a pass to its end or the deadline; return its statistics without the warm-up."""
        before: RunStatistics | None = None
        clock, step = time.perf_counter, self.step
        next_check, warmup_deadline = 0.0, None
        waited_before = waited_for_core()

        def statistics() -> RunStatistics:
            waited = max(0.0, waited_for_core() - waited_before)
            return attrs.evolve(run.statistics(), waited_for_core=waited)

        with run:
            for x in run:
                if step is not None:
                    step(x)
                now = clock()
                if self.deadline is not None:
                    if now >= self.deadline:
                        self.done = True
                        break
                elif now >= next_check:
                    next_check = now + _SECONDS_BETWEEN_CHECKS
                    warmup_deadline = warmup_deadline or now + min(self.seconds, _MAX_WARMUP)
                    before = statistics()
                    if now >= warmup_deadline or all_at_work(before):
                        self.deadline = clock() + self.seconds  # counted from `before`
        seen = statistics()
        if self.deadline is None:  # a pass shorter than the warm-up counts as a whole
            self.deadline = clock() + self.seconds
            return seen
        if before is None or seen.elements == before.elements:
            return seen
        return since(seen, before)


def all_at_work(seen: RunStatistics) -> bool:
    """Return True if all workers of all stages have made an element."""
    pools = [stage.workers for stage in seen.stages if stage.kind is not None]
    return all(workers and all(worker.elements for worker in workers) for workers in pools)
