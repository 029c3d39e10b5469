"""The outcome of a case."""

from __future__ import annotations

import json
from collections.abc import Mapping
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


def as_json(outcomes: Mapping[str, Outcome]) -> str:
    """The outcomes as text, a line for each; bytes are written as ``{"bytes": latin-1}``."""
    lines = (
        f"{json.dumps(name)}: {json.dumps(attrs.asdict(outcome), default=_bytes)}"
        for name, outcome in sorted(outcomes.items())
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _bytes(x: object) -> dict[str, str]:
    assert isinstance(x, bytes)
    return {"bytes": x.decode("latin-1")}


def from_json(text: str) -> dict[str, Outcome]:
    """The outcomes that ``as_json`` wrote."""
    return {name: Outcome(**fields) for name, fields in json.loads(text, object_hook=_back).items()}


def _back(fields: dict[str, Any]) -> Any:
    return fields["bytes"].encode("latin-1") if fields.keys() == {"bytes"} else fields
