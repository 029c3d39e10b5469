"""Progress bars on a terminal, for slow operations: writing rows, fetching bytes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flowdsl.resources.streams import is_terminal

_EVERY = 0.25
"""The minimum number of seconds between two updates."""


@contextmanager
def bar(what: str, total: int | None, *, of_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of finished items; it redraws a few times a second.

    Nothing is drawn if standard error is not a terminal.
    """
    if not is_terminal(sys.stderr):
        yield lambda _: None
        return
    from rich import progress  # slow to import, and often no bar is shown
    from rich.console import Console

    done = progress.DownloadColumn() if of_bytes else progress.MofNCompleteColumn()
    columns = progress.TextColumn("{task.description}"), progress.BarColumn(), done
    with progress.Progress(
        *(*columns, progress.TimeRemainingColumn()),
        console=Console(stderr=True),
        transient=True,
        auto_refresh=False,
    ) as shown:
        task = shown.add_task(what, total=total)
        due = 0.0

        def draw(count: int) -> None:
            nonlocal due
            if (now := time.monotonic()) > due:
                shown.update(task, completed=count, refresh=True)
                due = now + _EVERY

        yield draw
