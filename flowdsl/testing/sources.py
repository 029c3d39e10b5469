"""Random sources: rows in memory, rows by index, streams, and sources that support one pass."""

from __future__ import annotations

import queue
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from flowdsl.ops.iterables import from_iterable
from flowdsl.ops.queues import from_queue
from flowdsl.ops.sources import from_items, from_range
from flowdsl.testing import functions, models
from flowdsl.testing.catalogue import Draw
from flowdsl.testing.elements import parts_of
from flowdsl.testing.recipes import AnyFlow, Source


def damage(draw: Draw, n: int) -> int | None:
    """Sometimes draw the number of a row to make unreadable, but never the first."""
    return draw(st.integers(1, n - 1)) if n > 1 and draw(st.integers(0, 7)) == 0 else None


def rows(form: str, first: int, n: int, bad: int | None) -> Any:
    """Create a sequence of rows, one of which may be unreadable."""
    items = list(functions.make_rows(form, first, n))
    return items if bad is None else functions.damaged(items, bad)


def in_memory(draw: Draw, form: str, first: int, n: int) -> Source:
    """Draw rows in memory, one of which may fail; or an array for each component."""
    if form in ("tuple", "dict", "array") and draw(st.booleans()):
        return _in_arrays(form, first, n)
    items = rows(form, first, n, damage(draw, n))
    return Source(lambda: from_items(items), lambda: models.rows(items))


def _in_arrays(form: str, first: int, n: int) -> Source:
    items = list(functions.make_rows(form, first, n))
    if form == "array":
        table = np.array(items).reshape(n, 3)
        return Source(lambda: from_items(table), lambda: models.rows(items))
    parts = [[part for _, part in parts_of(x) or ()] for x in items]
    marks = np.array([mark for mark, _ in parts], np.int32)
    data = np.array([data for _, data in parts], np.float32).reshape(n, 3)
    columns: Any = (marks, data) if form == "tuple" else {"id": marks, "data": data}
    return Source(lambda: from_items(columns), lambda: models.rows(items))


def by_number(draw: Draw, form: str, first: int, n: int) -> Source:
    """Draw rows that are computed from their index, in any process."""
    func = partial(functions.make_from, form, first)
    return Source(lambda: from_range(n).map(func), lambda: models.map_(models.rows(range(n)), func))


def streamed(draw: Draw, form: str, first: int, n: int) -> Source:
    """Draw a stream of rows, one of which may fail."""
    items = rows(form, first, n, damage(draw, n))
    func = partial(functions.read_rows, items)
    return Source(lambda: from_iterable(func), lambda: models.stream(items))


def once(draw: Draw, form: str, first: int, n: int) -> Source:
    """Draw rows of a queue or an iterator, which support only one pass."""
    items = list(functions.make_rows(form, first, n))
    flow: Callable[[], AnyFlow] = lambda: from_queue(_filled(items))  # noqa: E731
    if draw(st.booleans()):
        flow = lambda: from_iterable(iter(items))  # noqa: E731
    return Source(flow, lambda: models.one_pass(items))


def _filled(items: list[Any]) -> queue.Queue[Any]:
    q: queue.Queue[Any] = queue.Queue()
    for item in [*items, None]:
        q.put(item)
    return q
