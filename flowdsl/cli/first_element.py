"""The first element of a flow, computed in this process: a spec does not show that it exists.

A spec is known from less than an element: of ``batch(10)`` from one row, so that rows that do not
stack are found only where a batch is made.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing, suppress
from functools import partial
from typing import Any

import attrs

from flowdsl.elements.specs import Spec
from flowdsl.errors import FlowError
from flowdsl.nodes import AnyNode, Row, SkippedByProbe
from flowdsl.nodes.kinds import worker_kinds
from flowdsl.nodes.spec_inference import MAX_DEPTH_PROBED, unmoved, without_side_effects
from flowdsl.plan.lower import plan_of
from flowdsl.plan.plan import Plan
from flowdsl.runtime.random_access import element_at, part_read_once

SECONDS = 10.0
"""How long a first element is looked for in a stream: a filter may leave all elements out."""


class NotComputed(Exception):
    """The first element was not computed; the message says why."""

    def __init__(self, reason: str, spec: Spec) -> None:
        super().__init__(reason)
        self.spec = spec
        """The spec of the elements, as far as it is found without the first one."""


class _TooLong(FlowError):
    """The time is over; a ``FlowError``, since operators pass such errors on unchanged."""


def spec_computed(node: AnyNode) -> Spec:
    """Compute the first element of a flow, if it has one, and return the spec.

    No workers are started, and operators that report or keep elements are left out.

    Raises:
        NotComputed: A source can be read only once, or the element takes too long to find.
        FlowError: The element cannot be computed.
    """
    if not node.replayable:
        once = part_read_once(node).title
        raise NotComputed(f"{once} yields its elements only once", node.spec(probe=True))
    silent = without_side_effects(node)
    plan = plan_of(silent)
    for stored in plan.storing:
        if isinstance(stored, SkippedByProbe) and stored.node_to_probe is not stored:
            raise NotComputed(f"{stored.title} is written by the first run", node.spec(probe=False))
    if silent.indexable and not worker_kinds(silent):
        _run(plan)
    else:
        _search(silent, plan)
    return node.spec(probe=True)


def _run(plan: Plan[Any]) -> None:
    with suppress(IndexError):  # a flow without elements
        element_at(plan, 0, epoch=0)


def _search(node: AnyNode, plan: Plan[Any]) -> None:
    """Compute the first element in the order of the sources, for a limited time.

    A shuffle would read all rows of a stream for its first.
    """
    if node.depth > MAX_DEPTH_PROBED:
        reason = f"the chain has more than {MAX_DEPTH_PROBED} operators"
        raise NotComputed(reason, node.spec(probe=True))
    searched = unmoved(node)
    reading = _Reading(time.monotonic() + SECONDS)
    try:
        with closing(reading.rows(searched, epoch=0)) as rows:
            next(rows, None)
    except _TooLong:
        is_read = all(id(source) in reading.yielding for source in searched.sources)
        reason = f"none was found within {SECONDS:g} seconds"
        raise NotComputed(reason, node.spec(probe=is_read)) from None
    except FlowError:
        if worker_kinds(node):
            raise
        _run(plan)  # which does not compute rows that are left out, such as by skip


@attrs.define
class _Reading:
    """Reads the reference sequence of flows until a deadline."""

    deadline: float
    yielding: set[int] = attrs.field(factory=set[int])
    """The nodes that have yielded a row, by ``id``: a probe of these ends."""

    def rows(self, node: AnyNode, epoch: int) -> Generator[Row[Any]]:
        """Yield the rows of a flow.

        Raises:
            _TooLong: The time is over.
        """
        for row in node.rows(epoch, [partial(self.rows, source) for source in node.sources]):
            self.yielding.add(id(node))
            if time.monotonic() > self.deadline:
                raise _TooLong
            yield row
