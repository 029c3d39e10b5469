"""A pass with a bar that shows how far it is, on the standard error stream of a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

import attrs

from flowdsl.effects import Effect
from flowdsl.errors import InvalidFlow
from flowdsl.node import FlowBase
from flowdsl.runtime.run import Run

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")

EVERY = 0.25
"""Seconds between two drawings, each of which takes about half a millisecond from the loop."""

QUICK, MOST_A_LOOK = 0.001, 16
"""Where elements come quickly, the time is looked at after so many of them, not after each."""


@attrs.frozen
class Watched(Iterable[T], Generic[T]):
    """A run, with a bar while a loop goes through it.

    The loop itself draws, a few times a second, and takes the bar down where it ends, however it
    does: at the end of the pass, by ``break``, by an error, by Ctrl-C. For that, each loop is an
    iterator of its own, which nobody else holds. The next one goes on with the run from there.
    """

    run: Run[T]
    description: str = ""
    console: Console | None = None
    """Where to draw: on the standard error stream, unless said otherwise."""

    def __iter__(self) -> Iterator[T]:
        """A loop over what is left; where nobody sees a bar it is the run itself, at no cost."""
        console = _seen(self.console)
        return self.run if console is None else _drawn(self.run, self.description, console)


def progress(run: Run[T] | FlowBase[T, Effect], description: str = "") -> Iterable[T]:
    """Show how far a run, or the first pass of a flow, is while a loop goes through it.

    In a terminal it is drawn on the standard error stream, in a notebook under the cell: elements
    so far and per second, the time that is left where the length is known, and for each stage of
    workers how busy they are and how full their queue is. What the loop prints stands above it.
    Elsewhere nothing is drawn, and the loop is as fast as without. What the loop asks the run, such
    as its ``statistics()``, it asks the run itself.

    Errors: ``InvalidFlow`` for anything but a flow or a run of one.

    >>> import flowdsl as fl
    >>> run = fl.from_range(100).shuffle().epoch(1)
    >>> for i in fl.progress(run, "epoch 1"):
    ...     if i == 7:
    ...         state = run.state_dict()

    Source: ``tqdm``; ``rich.progress.track``.
    """
    if isinstance(run, FlowBase):
        run = iter(run)  # type: ignore[assignment]  # a flow's passes are runs; Flow says so, above
    if not isinstance(run, Run):
        raise InvalidFlow(f"progress: give a flow, or a run of one, got {run!r}")
    if not isinstance(description, str):
        raise InvalidFlow(f"progress: description must be text, got {description!r}")
    return Watched(run, description)


def _drawn(run: Run[T], description: str, console: Console) -> Iterator[T]:
    from flowdsl.report.bars import Bar  # rich is slow to import, and not everyone watches

    clock = time.monotonic
    with Bar(run, description, console) as bar:
        last, due, many = clock(), 0.0, 1
        ended = False
        while not ended:
            before = run.position
            yield from islice(run, many)
            ended = run.position < before + many
            now = clock()
            many = min(2 * many, MOST_A_LOOK) if now - last < QUICK else 1
            last = now
            if now >= due:
                bar.draw()
                due = now + EVERY


def _seen(console: Console | None) -> Console | None:
    """The console to draw on, if anyone looks at it."""
    if console is None and not sys.stderr.isatty() and "IPython" not in sys.modules:
        return None
    from flowdsl.report.bars import shows, standard_error

    console = standard_error() if console is None else console
    return console if shows(console) else None
