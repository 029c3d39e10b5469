"""The outcome of a case."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import tensorflow as tf


@attrs.frozen
class Outcome:
    error: str
    """The kind of error that ended the case; empty if there was none."""
    message: str = ""
    shapes: list[list[int | None]] = attrs.field(factory=list[list["int | None"]])
    evaluations: list[Any] = attrs.field(factory=list[Any])


def plain(x: Any) -> Any:
    """A value as Python's own lists and dicts."""
    if isinstance(x, dict):
        return {name: plain(part) for name, part in x.items()}
    if isinstance(x, (list, tuple)):
        return [plain(part) for part in x]
    value = x.numpy() if isinstance(x, tf.Tensor) else x
    return np.asarray(value).tolist()
