"""Draw a progress bar: a line for the run, and a line for each stage with workers."""

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
from flowdsl.resources.streams import is_terminal
from flowdsl.statistics.figures import name, number, share, where

if TYPE_CHECKING:
    from flowdsl.runtime.run import Run
    from flowdsl.statistics.stages import StageStatistics

RECENT = 2.0
"""The minimum number of seconds over which rates and fills are averaged."""


def shows(console: Console) -> bool:
    """Return True if a console can show a bar: a terminal, or a notebook with ``ipywidgets``."""
    if console.is_jupyter:
        return find_spec("ipywidgets") is not None
    return console.is_terminal and not console.is_dumb_terminal


@cache
def standard_error() -> Console:
    """Return the console on standard error, which all bars share so that they do not overlap."""
    return Console(stderr=True)


class _Lines(Progress):
    """A progress bar with lines of text under it."""

    text: tuple[str, ...] = ()

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        for line in self.text:
            yield Text(line, style="dim", no_wrap=True, overflow="ellipsis")


class Bar:
    """A context manager that shows a progress bar; ``draw`` updates it."""

    def __init__(self, run: Run[Any], description: str, console: Console) -> None:
        """Prepare a bar; nothing is drawn yet."""
        self._run = run
        self._before = self._later = run.statistics()
        """The statistics ``RECENT`` seconds ago or earlier, and the ones to use next."""
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
            auto_refresh=False,  # no thread: the user's loop draws
            redirect_stdout=console.is_jupyter or is_terminal(sys.stdout),  # a file stays as it is
        )
        total = self._before.length
        self._task = self._progress.add_task(description, total=total, rate="")

    def __enter__(self) -> Self:
        try:
            self._progress.start()
        except BaseException:  # such as Ctrl-C while drawing
            self._progress.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.draw()
        finally:
            self._progress.stop()

    def draw(self) -> None:
        """Draw the current state, with rates and fills of the last few seconds."""
        now = self._run.statistics()
        if now.seconds - self._later.seconds >= RECENT:
            self._before, self._later = self._later, now
        lately = since(now, self._before) if self._before.stages else now
        self._progress.text = tuple(_line(stage) for stage in lately.stages if stage.workers)
        self._progress.update(
            self._task,
            completed=self._run.position,
            total=now.length,
            rate=f"{number(lately.rate)}/s" if lately.elements > 0 else "",
        )
        self._progress.refresh()


def _line(stage: StageStatistics) -> str:
    workers = f"{where(stage)}, " if stage.auto else ""
    return (
        f"  {name(stage)}: {workers}busy {share(stage.utilisation)}, queue {share(stage.fill)} full"
    )
