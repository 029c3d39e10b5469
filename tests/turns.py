"""One at a time, among all processes that run the tests of this checkout."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CACHE = Path(__file__).parents[1] / ".mypy_cache"


@contextmanager
def mypy_alone() -> Iterator[None]:
    """Runs of mypy share a cache, which each of them reads and writes as if it were its own."""
    _CACHE.mkdir(exist_ok=True)
    with open(_CACHE / "turn", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # given back when the file is closed
        yield
