"""Cells that are days and times, as ISO 8601 writes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import numpy as np

from flowdsl.elements.specs import ArraySpec, Spec, ValueSpec

EXAMPLES: dict[type, str] = {
    date: "date, such as 2024-01-31",
    datetime: "datetime, such as 2024-01-31T12:30",
    np.datetime64: "np.datetime64 of microseconds, such as 2024-01-31T12:30, without a time zone",
}
"""The classes of days and times, each as messages describe it."""

_TOO_FINE = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")
"""Matches a part of a microsecond, which Python would silently drop."""

_MICROSECONDS = np.dtype("M8[us]")


def spec_of_times(kind: type) -> Spec:
    """Return the spec of the values of a class of days or times."""
    return ArraySpec(_MICROSECONDS, ()) if kind is np.datetime64 else ValueSpec(kind)


def parser_of_times(kind: type) -> Callable[[str], Any]:
    """Return a function that parses a cell; it raises ValueError for other text."""
    if kind is date:
        return lambda text: date.fromisoformat(text.strip(" "))
    if kind is datetime:
        return _datetime
    return _datetime64


def _datetime(text: str) -> datetime:
    if _TOO_FINE.search(text):
        raise ValueError(text)
    return datetime.fromisoformat(text.strip(" "))


def _datetime64(text: str) -> np.datetime64:
    time = _datetime(text)
    if time.tzinfo is not None:  # NumPy has no time zones
        raise ValueError(text)
    return np.datetime64(time, "us")


def text_of_time(value: object) -> str | None:
    """Return the text that is read as this day or time; None if there is none.

    >>> text_of_time(date(2024, 1, 31)), text_of_time(np.datetime64("2024-01-31", "us"))
    ('2024-01-31', '2024-01-31T00:00:00.000000')
    """
    if isinstance(value, date) and type(value) in EXAMPLES:  # pandas.Timestamp is a subclass
        return value.isoformat()
    if isinstance(value, np.datetime64) and value.dtype == _MICROSECONDS and not np.isnat(value):
        return str(value)
    return None
