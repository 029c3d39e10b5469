"""The figures of a run as tables, for a terminal or a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowdsl.runtime.figures import (
    HEADER,
    duration,
    losses,
    name,
    number,
    share,
    stage_cells,
    summary,
)
from flowdsl.runtime.statistics import RunStatistics, StageStatistics

if TYPE_CHECKING:
    from rich.table import Table

_WORDS = 2
"""So many columns are words; the others are figures."""


def table(statistics: RunStatistics, limiting: int | None = None) -> Table:
    """A row for each stage; that of the limiting one stands out. docs/seeing.md tells the columns.

    >>> from flowdsl.runtime.statistics import RunStatistics, StageStatistics
    >>> stage = StageStatistics(("from_range(9)",), "consumer", 2.0, 9, 9)
    >>> table(RunStatistics(9, 2.0, 0.5, (stage,))).row_count
    1
    """
    from rich.table import Table  # slow to import, and not every run is looked at

    rows = [stage_cells(stage) for stage in statistics.stages]
    shown = Table(title=summary(statistics), title_style="", title_justify="left")
    kept = [k for k in range(len(HEADER)) if k < _WORDS or any(row[k] for row in rows)]
    for k in kept:
        shown.add_column(HEADER[k], justify="left" if k < _WORDS else "right", no_wrap=k >= _WORDS)
    for number_, (stage, row) in enumerate(zip(statistics.stages, rows, strict=True)):
        cells = [row[k] for k in kept]
        if losses(stage):
            cells[0] += f"\n{losses(stage)}"
        shown.add_row(*map(_plain, cells), style="bold yellow" if number_ == limiting else "")
    return shown


def costs_table(statistics: RunStatistics, operator: str | None = None) -> Table:
    """A row for each operator that was timed, with its part of its stage."""
    from rich.table import Table

    shown = Table()
    shown.add_column("operator")
    for word in ("calls/s", "a call", "of its stage"):
        shown.add_column(word, justify="right", no_wrap=True)
    for stage in statistics.stages:
        for row, title in _costs(stage, statistics.seconds):
            shown.add_row(*map(_plain, row), style="bold yellow" if title == operator else "")
        if stage.costs and stage is not statistics.stages[-1]:
            shown.add_section()
    return shown


def _costs(stage: StageStatistics, seconds: float) -> list[tuple[tuple[str, ...], str]]:
    whole = stage.busy or sum(cost.seconds for cost in stage.costs)
    rows = [
        (
            cost.title,
            number(cost.calls / seconds) if seconds else "",
            duration(cost.mean),
            share(cost.seconds / whole) if whole else "",
        )
        for cost in stage.costs
    ]
    rest = whole - sum(cost.seconds for cost in stage.costs)
    if stage.costs and stage.busy and rest > 0.01 * whole:
        rows.append((f"packing, of {name(stage)}", "", "", share(rest / whole)))
    return [(row, row[0]) for row in rows]


def _plain(text: str) -> str:
    """Brackets in a title are no markup."""
    from rich.markup import escape

    return escape(text)
