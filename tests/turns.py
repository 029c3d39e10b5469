"""A lock among all processes that run the tests of this checkout."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CACHE = Path(__file__).parents[1] / ".mypy_cache"


@contextmanager
def mypy_alone() -> Iterator[None]:
    """Serialize runs of mypy, which share a cache without locking it."""
    _CACHE.mkdir(exist_ok=True)
    with open(_CACHE / "turn", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # given back when the file is closed
        yield
