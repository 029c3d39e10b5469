"""The files that the sources of a stage read, which every machine must have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import attrs

from flowdsl.nodes import AnyNode
from flowdsl.plan.tree import walk
from flowdsl.storage.paths import is_url

MOST_CHECKED = 1000
"""If there are more files, at most this many are checked, at equal distances."""


def files_of(program: AnyNode) -> tuple[str, ...]:
    """Return the absolute paths of the files that workers read, or a sample of them."""
    found = list(dict.fromkeys(path for node in walk(program) for path in _paths(node)))
    distance = max(1, -(-len(found) // MOST_CHECKED))
    return tuple(found[::distance])


def _paths(value: object) -> Iterator[str]:
    """Yield the paths in the fields ``path``, ``paths`` and ``files`` of a source and its parts."""
    kind = type(value)
    if not attrs.has(kind) or not kind.__module__.startswith("flowdsl."):
        return
    for field in attrs.fields(kind):
        inner: Any = getattr(value, field.name)
        for part in inner if isinstance(inner, tuple) else (inner,):
            if isinstance(part, str) and field.name in ("path", "paths", "files"):
                if not is_url(part):
                    yield os.path.abspath(part)
            elif not isinstance(part, str | bytes):
                yield from _paths(part)
