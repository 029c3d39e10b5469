"""A plan as a picture, optionally with the figures of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape

import attrs

from flowdsl.report.diagram import Box, Diagram, Operator
from flowdsl.report.drawing import Drawing, cut, lines, text_width
from flowdsl.report.shares import Part, Shares
from flowdsl.report.verdict import Verdict
from flowdsl.statistics.figures import duration, losses, number, share, size
from flowdsl.statistics.run import RunStatistics
from flowdsl.statistics.stages import OperatorCost, StageStatistics

_WIDTH = 460.0
"""The width of a box."""

_LINE = 21.0
_HEAD = 30.0
_PAD = 12.0
_GAP_ACROSS = 20.0
"""The space between boxes side by side."""

_GAP_DOWN = 40.0
"""The space between a box and the one below it."""

_MARGIN = 20.0
_BAR = 92.0

_WORDS: dict[Part, str] = {
    "consumer": "the consumer's own work",
    "hosted": "operators here",
    "input": "reading for workers",
    "handing over": "handing over",
}


@attrs.frozen
class Figures:
    """The figures of a run to draw on a plan."""

    statistics: RunStatistics
    """The run's statistics with the diagram's stages, from ``Diagram.arrange``."""
    verdict: Verdict


@attrs.frozen
class _Placed:
    """A box with its layout; ``span`` is the width of the box and all boxes that feed it."""

    box: Box
    sources: tuple[_Placed, ...]
    span: float
    height: float


def picture(plan: Diagram, figures: Figures | None = None) -> Drawing:
    """Draw a plan: elements flow down from the sources to the consumer."""
    return _Picture(plan, figures).draw()


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
body {{ margin: 2rem auto; max-width: 72rem; padding: 0 1rem; font-family: system-ui, sans-serif; }}
svg {{ max-width: 100%; height: auto; display: block; margin: auto; }}
pre {{ overflow-x: auto; font-size: 12px; margin-top: 2rem; }}
</style>
</head>
<body>
{svg}
<pre>{tables}</pre>
</body>
</html>
"""


def page(svg: str, tables: str) -> str:
    """Return a picture and tables as an HTML page."""
    return _PAGE.format(title="A flow's profile", svg=svg, tables=escape(tables))


class _Picture:
    def __init__(self, plan: Diagram, figures: Figures | None) -> None:
        self._plan = plan
        self._figures = figures
        self._costs = _costs_by_line(plan.root, figures.statistics) if figures else {}
        title = str(figures.verdict) if figures else "the plan of a flow"
        self._on = Drawing(title)

    def draw(self) -> Drawing:
        on, placed = self._on, self._placed(self._plan.root)
        top = _MARGIN
        if self._figures:
            top = self._caption(top, placed.span)
        foot = top + self._tall(placed)
        center = self._draw(placed, _MARGIN, foot)
        bottom = self._consumer(center, foot)
        on.width = placed.span + 2 * _MARGIN
        on.height = bottom + _MARGIN
        return on

    # -- layout --------------------------------------------------------------------------------

    def _placed(self, box: Box) -> _Placed:
        sources = tuple(map(self._placed, box.sources))
        span = sum(source.span for source in sources) + _GAP_ACROSS * max(0, len(sources) - 1)
        height = _HEAD + _LINE * len(box.operators) + _PAD + _LINE * len(list(self._facts(box)))
        return _Placed(box, sources, max(_WIDTH, span), height)

    def _tall(self, placed: _Placed) -> float:
        """Return the height of a box, the boxes above it, and the arrows that lead to it."""
        if placed.sources:
            return max(map(self._tall, placed.sources)) + _GAP_DOWN + placed.height
        return placed.height + (0 if placed.box.receives is None else _GAP_DOWN)  # of an arrow

    # -- drawing -------------------------------------------------------------------------------

    def _draw(self, placed: _Placed, left: float, foot: float) -> float:
        """Draw a box with its foot at ``foot`` and all boxes above it; return its center."""
        center = left + placed.span / 2
        top = foot - placed.height
        self._box(placed.box, center - _WIDTH / 2, top, placed.height)
        x = left
        for source in placed.sources:
            above = self._draw(source, x, top - _GAP_DOWN)
            to = center + (above - center) * 0.35 if len(placed.sources) > 1 else center
            self._on.arrow(above, top - _GAP_DOWN, to, top)
            self._label(above, top - _GAP_DOWN / 2 + 2, self._flow(source.box), before=above < to)
            x += source.span + _GAP_ACROSS
        if placed.box.receives == "positions" and not placed.sources:
            self._on.arrow(center, top - _GAP_DOWN + 14, center, top)
            self._label(center, top - _GAP_DOWN / 2 + 6, "positions")
        return center

    def _box(self, box: Box, x: float, y: float, height: float) -> None:
        on, hot = self._on, self._limits(box)
        on.box(x, y, _WIDTH, height, "hot-box" if hot else "box", 8)
        on.text(x + _PAD, y + 20, box.where, "strong")
        if hot:
            self._mark(x, y)
        y += _HEAD
        costs = sum(cost.seconds for cost in map(self._cost, box.operators) if cost)
        stage = self._stage(box)
        whole = max(costs, stage.busy if stage else 0.0)
        for line in box.operators:
            self._operator(line, x, y, whole)
            y += _LINE
        y += _PAD / 2
        for fact in self._facts(box):
            fact(x, y)
            y += _LINE

    def _mark(self, x: float, y: float) -> None:
        """Mark the box with this corner as limiting."""
        edge = x + _WIDTH - _PAD
        self._on.box(edge - 44, y + 7, 44, 18, "hot", 9)
        self._on.text(edge - 22, y + 20, "limits", "small strong middle on-hot")

    def _operator(self, line: Operator, x: float, y: float, whole: float) -> None:
        on, cost = self._on, self._cost(line)
        hot = self._is_named(line)
        left, right = x + _PAD + 14 * line.depth, x + _WIDTH - _PAD
        room = right - left - (_BAR + 86 if cost else text_width(line.note, "small") + 10)
        room = max(room, 120.0)
        kind = "mono strong hot-text" if hot else "mono"
        on.text(left, y + 14, cut(line.title, room, kind), kind, line.title)
        if cost is None:
            note = cut(line.note, right - left - text_width(line.title, kind) - 10, "small")
            if not self._figures and len(note) > len("..."):  # else nothing of it is left
                on.text(right, y + 14, note, "small faint end", line.note)
            return
        on.text(right - _BAR - 8, y + 14, duration(cost.mean), "small faint end")
        on.box(right - _BAR, y + 6, _BAR, 8, "rail", 4)
        part = cost.seconds / whole if whole else 0
        on.box(
            right - _BAR, y + 6, _BAR * part, 8, "hot" if hot else "cost", min(4, _BAR * part / 2)
        )

    def _facts(self, box: Box) -> Iterator[Callable[[float, float], None]]:
        """Yield functions that draw the lines under the operators of a box."""
        stage = self._stage(box)
        if stage is None or not stage.workers or not stage.seconds:
            return
        yield lambda x, y: self._workers(stage, x, y)
        words = [f"fill {share(stage.fill)}"]
        if stage.p50:
            words.append(f"p50 {duration(stage.p50)} · p99 {duration(stage.p99)}")
        if stage.nbytes and stage.seconds:
            words.append(f"{size(stage.nbytes / stage.seconds)}/s")
        yield lambda x, y: self._on.text(x + _PAD, y + 12, " · ".join(words), "small faint")
        if losses(stage):
            yield lambda x, y: self._on.text(x + _PAD, y + 12, losses(stage), "small faint")

    def _workers(self, stage: StageStatistics, x: float, y: float) -> None:
        """Draw a bar for each worker, filled by the share of time it was busy."""
        on = self._on
        busy = [min(1.0, worker.busy / stage.seconds) for worker in stage.workers]
        shown = busy[:16]
        left = x + _PAD
        for k, part in enumerate(shown):
            at = left + k * 11
            on.box(at, y, 8, 14, "rail", 2)
            on.box(at, y + 14 * (1 - part), 8, 14 * part, "hot" if part >= 0.9 else "cost", 2)
        left += 11 * len(shown) + 5
        label = f"busy {share(stage.utilisation)}"
        if stage.skew >= 0.1:
            label += f", the busiest {share(max(busy))}"
        label += f" · waited for {share(stage.waited / stage.seconds)} of the time"
        on.text(left, y + 12, label, "small faint")

    def _consumer(self, center: float, top: float) -> float:
        """Draw the consumer, below the plan; return its lower edge."""
        on, x = self._on, center - _WIDTH / 2
        on.arrow(center, top, center, top + _GAP_DOWN)
        run = self._figures.statistics if self._figures else None
        flow = f"{number(run.rate)} elements/s" if run else self._flow(self._plan.root)
        self._label(center, top + _GAP_DOWN / 2 + 2, flow)
        y = top + _GAP_DOWN
        if self._figures is None:
            on.box(x, y, _WIDTH, _HEAD, "box", 8)
            on.text(x + _PAD, y + 20, "the consumer", "strong")
            return y + _HEAD
        verdict, parts = self._figures.verdict, Shares(self._figures.statistics).thread
        shown: list[tuple[Part, float]] = [pair for pair in parts.items() if pair[1] >= 0.005]
        rows = (len(shown) + 2) // 2
        height = _HEAD + 24 + 18 * rows + 4
        hot = verdict.limiting in ("consumer", "handing over", "balanced")
        on.box(x, y, _WIDTH, height, "hot-box" if hot else "box", 8)
        on.text(x + _PAD, y + 20, "the thread that iterates", "strong")
        if hot:
            self._mark(x, y)
        left, wide = x + _PAD, _WIDTH - 2 * _PAD
        on.box(left, y + _HEAD + 2, wide, 10, "rail", 3)
        for part, spent in shown:
            on.box(left, y + _HEAD + 2, wide * spent, 10, part.partition(" ")[0])
            left += wide * spent
        legend = [(part.partition(" ")[0], _WORDS[part], spent) for part, spent in shown]
        legend.append(("rail", "waiting", max(0.0, 1 - sum(parts.values()))))
        for k, (kind, word, spent) in enumerate(legend):
            at = x + _PAD + (k % 2) * wide / 2
            line = y + _HEAD + 24 + 18 * (k // 2)
            on.box(at, line, 9, 9, kind, 2)
            on.text(at + 15, line + 9, f"{word} {share(spent)}", "small faint")
        return y + height

    def _caption(self, y: float, wide: float) -> float:
        assert self._figures is not None
        verdict = self._figures.verdict
        for line in lines(verdict.finding, wide, "large"):
            self._on.text(_MARGIN, y + 14, line, "large strong")
            y += 20
        rest = str(verdict).removeprefix(verdict.finding).strip()
        for line in lines(rest, wide):
            self._on.text(_MARGIN, y + 14, line)
            y += 18
        line = self._figures.statistics.summary
        self._on.text(_MARGIN, y + 16, cut(line, wide, "small"), "small faint", line)
        return y + 30

    def _label(self, x: float, y: float, text: str, before: bool = False) -> None:
        """Draw a label beside an arrow, on the side away from its target."""
        kind = "small faint end" if before else "small faint"
        self._on.text(x - 10 if before else x + 10, y, cut(text, _WIDTH / 2 - 10, kind), kind, text)

    # -- figures -------------------------------------------------------------------------------

    def _stage(self, box: Box) -> StageStatistics | None:
        if self._figures is None or box.entry is None:
            return None
        return self._figures.statistics.stages[box.entry]

    def _flow(self, box: Box) -> str:
        if self._figures is None:
            return box.yields or "elements"
        stage = self._stage(box)
        return f"{number(stage.rate)} elements/s" if stage and stage.delivered else "elements"

    def _limits(self, box: Box) -> bool:
        verdict = self._figures.verdict if self._figures else None
        if verdict is None or verdict.stage is None or verdict.limiting == "handing over":
            return False
        return any(line.entry == verdict.stage for line in box.operators)

    def _is_named(self, line: Operator) -> bool:
        if self._figures is None or line.entry != self._figures.verdict.stage:
            return False
        return line.title == self._figures.verdict.operator

    def _cost(self, line: Operator) -> OperatorCost | None:
        return self._costs.get(id(line))


def _costs_by_line(box: Box, statistics: RunStatistics) -> dict[int, OperatorCost]:
    """Return the cost of each operator; operators with the same title are matched in order."""
    by_line: dict[int, OperatorCost] = {}
    unmatched = {k: list(stage.costs) for k, stage in enumerate(statistics.stages)}
    for line in box.operators:
        costs = [] if line.entry is None else unmatched[line.entry]
        cost = next((c for c in costs if c.title == line.title), None)
        if cost is not None:
            costs.remove(cost)
            by_line[id(line)] = cost
    for source in box.sources:
        by_line |= _costs_by_line(source, statistics)
    return by_line
