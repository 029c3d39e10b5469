"""The drawing of a bar: a line on the run, and one for each stage of workers."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from flowdsl.report.sums import since
from flowdsl.statistics.figures import name, number, share

if TYPE_CHECKING:
    from flowdsl.runtime.run import Run

RECENT = 2.0
"""Seconds that rates and fills are taken over, at least."""


def shows(console: Console) -> bool:
    """Whether someone can see a bar: a terminal, or a notebook that has what it takes."""
    if console.is_jupyter:
        return find_spec("ipywidgets") is not None
    return console.is_terminal and not console.is_dumb_terminal


@cache
def standard_error() -> Console:
    """One for all bars, so that they know of each other."""
    return Console(stderr=True)


class _Lines(Progress):
    """A bar, with lines of text under it."""

    text: tuple[str, ...] = ()

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        for line in self.text:
            yield Text(line, style="dim", no_wrap=True, overflow="ellipsis")


class Bar:
    """Shows how a run stands, when it is told to; up while the context lasts."""

    def __init__(self, run: Run[Any], description: str, console: Console) -> None:
        """Nothing is drawn yet."""
        self._run = run
        self._before = self._middle = run.statistics()
        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        ]
        self._progress = _Lines(
            *(columns if description else columns[1:]),
            console=console,
            auto_refresh=False,  # no thread: the loop itself draws
            redirect_stdout=console.is_jupyter or sys.stdout.isatty(),  # else it goes to a file
        )
        total = self._before.length
        self._task = self._progress.add_task(description, total=total, rate="")

    def __enter__(self) -> Self:
        try:
            self._progress.start()
        except BaseException:  # Ctrl-C in the midst of it
            self._progress.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.draw()
        finally:
            self._progress.stop()

    def draw(self) -> None:
        """How it stands now, with rates and fills of the last few seconds."""
        now = self._run.statistics()
        if now.seconds - self._middle.seconds >= RECENT:
            self._before, self._middle = self._middle, now
        lately = since(now, self._before) if self._before.stages else now
        self._progress.text = tuple(
            f"  {name(stage)}: busy {share(stage.utilisation)}, queue {share(stage.fill)} full"
            for stage in lately.stages
            if stage.workers
        )
        self._progress.update(
            self._task,
            completed=self._run.position,
            total=now.length,
            rate=f"{number(lately.rate)}/s" if lately.elements > 0 else "",
        )
        self._progress.refresh()
