"""The figures of a run as tables, for a terminal, a notebook or a page."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowdsl.statistics.figures import (
    HEADER,
    duration,
    losses,
    name,
    number,
    share,
    stage_cells,
)
from flowdsl.statistics.stages import StageStatistics

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


_WORDS = 2
"""The number of columns with words; the other columns have figures."""

_COLUMNS = 120
"""The width of the text that ``printed`` returns."""


def table(stages: Sequence[StageStatistics], limiting: int | None = None) -> Table:
    """A table with a row per stage; docs/seeing.md explains the columns.

    The stage of number ``limiting`` is highlighted.

    >>> table([StageStatistics(("from_range(9)",), 2.0, 9, 9)]).row_count
    1
    """
    from rich.table import Table  # slow to import, and often not needed
    from rich.text import Text

    rows = [stage_cells(stage) for stage in stages]
    shown = Table()
    kept = [k for k in range(len(HEADER)) if k < _WORDS or any(row[k] for row in rows)]
    for k in kept:
        shown.add_column(HEADER[k], justify="left" if k < _WORDS else "right", no_wrap=k >= _WORDS)
    for k, (stage, row) in enumerate(zip(stages, rows, strict=True)):
        cells = [row[column] for column in kept]
        if losses(stage):
            cells[0] += f"\n{losses(stage)}"
        shown.add_row(*map(Text, cells), style="bold yellow" if k == limiting else "")
    return shown


def costs_table(
    stages: Sequence[StageStatistics], seconds: float, operator: str | None = None
) -> Table:
    """A table with a row per timed operator, and its share of the stage's time.

    ``seconds`` is the time of the run. The operator of title ``operator`` is highlighted.
    """
    from rich.table import Table
    from rich.text import Text

    shown = Table()
    shown.add_column("operator")
    for word in ("calls/s", "a call", "of its stage"):
        shown.add_column(word, justify="right", no_wrap=True)
    for stage in stages:
        for row in _costs(stage, seconds):
            shown.add_row(*map(Text, row), style="bold yellow" if row[0] == operator else "")
        if stage.costs and stage is not stages[-1]:
            shown.add_section()
    return shown


def printed(*parts: RenderableType) -> str:
    """Render rich objects as text without colours."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, width=_COLUMNS, color_system=None, legacy_windows=False)
    console.print(*parts, sep="\n")
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _costs(stage: StageStatistics, seconds: float) -> list[tuple[str, ...]]:
    whole = stage.busy or sum(cost.seconds for cost in stage.costs)
    rows: list[tuple[str, ...]] = [
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
    return rows
