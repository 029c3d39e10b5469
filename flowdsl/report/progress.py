"""A pass with a bar that shows how far it is, on the standard error stream of a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from flowdsl.effects import Effect
from flowdsl.errors import InvalidFlow
from flowdsl.node import FlowBase
from flowdsl.runtime.run import Run
from flowdsl.runtime.state import State
from flowdsl.runtime.statistics import RunStatistics

if TYPE_CHECKING:
    from rich.console import Console

    from flowdsl.runtime.state import State

T = TypeVar("T")

EVERY = 0.25
"""Seconds between two drawings, each of which takes about half a millisecond from the loop."""

QUICK, MOST_A_LOOK = 0.001, 16
"""Where elements come quickly, the time is looked at after so many of them, not after each."""


class Tracked(Iterable[T], Generic[T]):
    """A run, with a bar while a loop goes through it; made by ``progress``.

    The loop itself draws, a few times a second, and takes the bar down where it ends, however it
    does: at the end of the pass, by ``break``, by an error, by Ctrl-C. The run goes on from there
    with the next loop.
    """

    def __init__(self, run: Run[T], description: str = "", console: Console | None = None) -> None:
        """``console`` is where to draw: the standard error stream unless said otherwise."""
        self.run = run
        self.description = description
        self._console = console
        self._loop: Iterator[T] | None = None

    def __iter__(self) -> Iterator[T]:
        """A loop over what is left; where nobody sees a bar it is the run itself, at no cost."""
        console = _seen(self._console)
        return self.run if console is None else _drawn(self.run, self.description, console)

    def __next__(self) -> T:
        if self._loop is None:
            self._loop = iter(self)
        return next(self._loop)

    def __length_hint__(self) -> int:
        return self.run.__length_hint__()

    def __enter__(self) -> Tracked[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def position(self) -> int:
        """How many elements of the pass have been delivered, as the run says."""
        return self.run.position

    def state_dict(self, position: int | None = None) -> State:
        """Where the pass stands, as the run says: what ``flow.resume`` continues from."""
        return self.run.state_dict(position)

    def statistics(self) -> RunStatistics:
        """What the run has done so far."""
        return self.run.statistics()

    def close(self) -> None:
        """End the pass, and take the bar down."""
        self._loop = None
        self.run.close()


def progress(run: Run[T] | FlowBase[T, Effect], description: str = "") -> Tracked[T]:
    """Show how far a run, or the first pass of a flow, is while a loop goes through it.

    In a terminal it is drawn on the standard error stream, in a notebook under the cell: elements
    so far and per second, the time that is left where the length is known, and for each stage of
    workers how busy they are and how full their queue is. What the loop prints stands above it.
    Elsewhere nothing is drawn, and the loop is as fast as without.

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
    return Tracked(run, description)


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
