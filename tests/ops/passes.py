"""A flow's consecutive passes: by a run, by the reference, and by arithmetic on positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from flowdsl import Flow
from flowdsl.nodes import IndexTransform, Indices


def passes(flow: Flow[int, Any], n: int) -> list[int]:
    return [x for k in range(n) for x in flow.epoch(k)]


def reference(flow: Flow[int, Any], n: int) -> list[int]:
    return [x for k in range(n) for _, x in flow.node.reference(k)]


def resolved(flow: Flow[int, Any], epochs: int = 3) -> list[int]:
    """The elements at the addresses from ``resolve``, for all positions of some epochs at once."""
    node: Any = flow.node
    assert isinstance(node, IndexTransform)
    length = node.length or 0
    places = [(epoch, i) for i in range(length) for epoch in reversed(range(epochs))]
    epoch, position = np.array(places, np.int64).reshape(-1, 2).T
    at = node.resolve(Indices(epoch, position))
    assert at.epoch.dtype == at.position.dtype == np.int64
    rows = {k: [x for _, x in node.source.reference(k)] for k in set(at.epoch.tolist())}
    found = {
        place: rows[k][i]
        for place, k, i in zip(places, at.epoch.tolist(), at.position.tolist(), strict=True)
    }
    return [found[k, i] for k in range(epochs) for i in range(length)]
