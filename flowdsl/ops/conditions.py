"""The types that conditions may return, for type checkers.

``filter`` keeps an element if the result of its condition is true, as ``if`` does. Types that are
true or false by what they contain, or by being None, are conditions. A number is more often a
mistake: ``filter(lambda row: row.label)`` leaves out the label 0. So is an array, whose truth is an
error, and a plain tuple, which is true whatever it contains. ``object`` would accept these too, as
types cannot exclude some of its subclasses. So the classes that are often optional are listed.
"""

from __future__ import annotations

import re
from datetime import date, time
from pathlib import PurePath
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
from msgspec import Struct


class _NamedTuple(Protocol):
    @property
    def _fields(self) -> tuple[str, ...]: ...


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


class _Attrs(Protocol):  # attrs.AttrsInstance is any object to pyright
    __attrs_attrs__: ClassVar[Any]


MayBeEmpty: TypeAlias = str | bytes | list[Any] | dict[Any, Any] | set[Any] | frozenset[Any]
Record: TypeAlias = _NamedTuple | _Dataclass | _Attrs | Struct
MayBeMissing: TypeAlias = Record | re.Match[Any] | date | time | PurePath | None
Truth: TypeAlias = bool | np.bool_ | Literal[0] | MayBeEmpty | MayBeMissing
"""The result of a condition; 0 is accepted for ``count and ...``."""
