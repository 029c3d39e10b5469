"""A progress bar for a pass, in a terminal or a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

import attrs

from flowdsl.effects import Effect
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import FlowBase
from flowdsl.resources.streams import is_terminal
from flowdsl.runtime.run import Run

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")

SECONDS_BETWEEN_DRAWINGS = 0.25
"""Seconds between two drawings, each of which costs the loop about half a millisecond."""

QUICK, MAX_PER_LOOK = 0.001, 16
"""If elements come faster than ``QUICK`` seconds, the clock is read once per ``MAX_PER_LOOK``."""


@attrs.frozen
class Watched(Iterable[T], Generic[T]):
    """A run that shows a progress bar while a loop iterates over it.

    The loop itself draws, a few times a second, and removes the bar when it ends: at the end of the
    pass, by ``break``, by an error or by Ctrl-C. For that, each loop gets its own iterator, which
    is not referenced elsewhere. The next loop continues the run from there.
    """

    run: Run[T]
    description: str = ""
    console: Console | None = None
    """The console to draw on; None for the standard error stream."""

    def __iter__(self) -> Iterator[T]:
        """Iterate over the rest; if no bar can be shown, return the run itself, at no cost."""
        console = _console_for(self.console)
        return self.run if console is None else _drawn(self.run, self.description, console)


def progress(run: Run[T] | FlowBase[T, Effect], description: str = "") -> Iterable[T]:
    """Show the progress of a run, or of a flow's first pass, while a loop iterates over it.

    The bar is drawn on the standard error stream of a terminal, or under a notebook's cell. It
    shows the elements so far and per second, the time left if the length is known, and for each
    stage with workers the busy share of the workers and the fill of their queue. Output that the
    loop prints appears above the bar. Without a terminal or notebook no bar is drawn, and the loop
    is as fast as without ``progress``. Call methods such as ``statistics()`` on the run itself.

    Errors: ``InvalidFlow`` for an argument that is not a flow or a run.

    >>> import flowdsl as fl
    >>> run = fl.from_range(100).shuffle().epoch(1)
    >>> for i in fl.progress(run, "epoch 1"):
    ...     if i == 7:
    ...         state = run.state_dict()

    Source: ``tqdm``; ``rich.progress.track``.
    """
    if isinstance(run, FlowBase):
        run = iter(run)  # type: ignore[assignment]  # only Flow, in a higher layer, says that it is a run
    if not isinstance(run, Run):
        raise InvalidFlow(f"progress: expected a flow, or a run of one, got {run!r}")
    if not isinstance(description, str):
        raise InvalidFlow(f"progress: description must be text, got {description!r}")
    return Watched(run, description)


def _drawn(run: Run[T], description: str, console: Console) -> Iterator[T]:
    from flowdsl.report.progress_bar import Bar  # rich is slow to import, and often no bar is shown

    clock = time.monotonic
    with Bar(run, description, console) as bar:
        last, due, count = clock(), 0.0, 1
        ended = False
        while not ended:
            before = run.position
            yield from islice(run, count)
            ended = run.position < before + count
            now = clock()
            count = min(2 * count, MAX_PER_LOOK) if now - last < QUICK else 1
            last = now
            if now >= due:
                bar.draw()
                due = now + SECONDS_BETWEEN_DRAWINGS


def _console_for(console: Console | None) -> Console | None:
    """Return the console to draw on; None if it cannot show a bar."""
    if console is None and not is_terminal(sys.stderr) and "IPython" not in sys.modules:
        return None
    from flowdsl.report.progress_bar import shows, standard_error

    console = standard_error() if console is None else console
    return console if shows(console) else None
