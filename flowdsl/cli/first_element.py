"""The first element of a flow, computed in this process: a spec does not show that it exists.

A spec is known from less than an element: of ``batch(10)`` from one row, so that rows that do not
stack are found only where a batch is made.

The element is computed by a run, which leaves out what operators such as ``skip`` do not need. The
operators whose spec is unknown are followed by a node that notes the first element that passes, and
the spec is completed from these elements. So no function is called twice with an element, except
under ``on_error``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from functools import partial
from typing import Any

import attrs

from flowdsl.effects import Effect
from flowdsl.elements.specs import Spec, is_known
from flowdsl.errors import FlowError
from flowdsl.nodes import (
    AnyNode,
    Elementwise,
    Failed,
    Row,
    SkippedByProbe,
    frozen_node,
    with_sources,
)
from flowdsl.nodes.kinds import worker_kinds
from flowdsl.nodes.spec_inference import (
    MAX_DEPTH_PROBED,
    first_in_reference,
    spec_from_elements,
    unmoved,
    without_side_effects,
)
from flowdsl.plan.lower import plan_of
from flowdsl.plan.tree import walk
from flowdsl.resources.any_depth import any_depth
from flowdsl.runtime.random_access import element_at, part_read_once

SECONDS = 10.0
"""The time limit of the search for a first element: a filter may leave all elements out."""


class NotComputed(Exception):
    """The first element was not computed; the message says why."""

    def __init__(self, reason: str, spec: Spec) -> None:
        super().__init__(reason)
        self.spec = spec
        """The spec of the elements, as far as it is found without the first one."""


class _TooLong(FlowError):
    """The time is over."""


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
    for stored in plan_of(silent).storing:  # a cache file that is not written yet
        if isinstance(stored, SkippedByProbe) and stored.node_to_probe is not stored:
            raise NotComputed(f"{stored.title} is written by the first run", node.spec(probe=False))
    if not silent.indexable and silent.depth > MAX_DEPTH_PROBED:
        reason = f"the chain has more than {MAX_DEPTH_PROBED} operators"
        raise NotComputed(reason, node.spec(probe=True))
    # A shuffle of a stream would read all rows for its first.
    searched = silent if silent.indexable else unmoved(silent)
    first = _FirstElements({id(part): part for part in walk(searched)}, time.monotonic() + SECONDS)
    try:
        first.compute(searched)
    except FlowError:
        if not first.is_late:
            raise
        reason = f"none was found within {SECONDS:g} seconds"
        raise NotComputed(reason, spec_from_elements(searched, first.of)) from None
    return spec_from_elements(searched, first.of)


@attrs.define(eq=False)
class _FirstElements:
    """The first elements of the parts of a flow, each computed once."""

    parts: dict[int, AnyNode]
    """The parts of the flow, by ``id``."""
    deadline: float
    is_late: bool = False
    """True if the time is over."""
    _found: dict[int, Any] = attrs.field(factory=dict[int, Any])
    """The first element of each part of which one was found, by ``id``."""
    _searched: set[int] = attrs.field(factory=set[int])
    """The ``id`` of each part that was read, and so has no element if none was found."""
    _read: set[int] = attrs.field(factory=set[int])
    """The ``id`` of each part that has yielded an element in the current search."""

    def of(self, node: AnyNode) -> tuple[Any] | None:
        """Return the first element of a node, as a tuple, or None if none was found.

        It is computed if no other element needed one of this node, as of the second flow of a
        ``concat``.
        """
        # ``on_error`` infers its spec from the elements that do not fail, by a node of its own.
        if id(node) not in self.parts:
            return first_in_reference(node)
        was_read = id(node) in self._found or id(node) in self._searched
        if not was_read and not self.is_late:
            with suppress(_TooLong):
                self.compute(node)
        return (self._found[id(node)],) if id(node) in self._found else None

    def compute(self, node: AnyNode) -> None:
        """Compute the first element of a flow, if it has one.

        Raises:
            FlowError: It cannot be computed; or the time is over, then ``is_late`` is set.
        """
        self._read.clear()
        if worker_kinds(node):
            with closing(self._rows(node, epoch=0)) as rows:
                next(rows, None)
        else:
            self._run(node)
        self._searched.add(id(node))
        for part in walk(node):  # sources first
            if any(id(source) in self._read | self._searched for source in part.sources):
                self._searched.add(id(part))

    def _run(self, node: AnyNode) -> None:
        parts = [*walk(node)]
        unknown = [part for part in parts if not is_known(part.spec(probe=False))]
        below = [source for part in unknown for source in part.sources]
        # Of a stream, each operator may read elements without end before it yields one.
        noted = [*unknown, *below] if node.indexable else parts
        noting = self._with_recorders(node, frozenset(map(id, noted)))
        with suppress(IndexError):  # a flow without elements
            element_at(plan_of(noting), 0, epoch=0)

    @any_depth
    def _with_recorders(self, node: AnyNode, noted: frozenset[int]) -> AnyNode:
        """Return the flow with a node that notes elements above each of the ``noted`` nodes."""
        sources = tuple(self._with_recorders(source, noted) for source in node.sources)
        above = with_sources(node, sources)
        return _Recorder(above, partial(self._note, node)) if id(node) in noted else above

    def _note(self, node: AnyNode, element: Any) -> None:
        self._read.add(id(node))
        if id(node) not in self._found and not isinstance(element, Failed):
            self._found[id(node)] = element
        if time.monotonic() > self.deadline:
            self.is_late = True
            raise _TooLong

    def _rows(self, node: AnyNode, epoch: int) -> Generator[Row[Any]]:
        """Yield the rows of the reference: a run of a flow that asks for workers would start them.

        Raises:
            _TooLong: The time is over.
        """
        for row in node.rows(epoch, [partial(self._rows, source) for source in node.sources]):
            self._note(node, row[1])
            yield row


@frozen_node
class _Recorder(Elementwise[Any, Any, Effect]):
    """Yields the elements of a node unchanged, and passes each to a function."""

    when_seen: Callable[[Any], None]

    @property
    def title(self) -> str:
        return self.source.title

    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)

    def apply(self, x: Any, epoch: int, position: int) -> Any:
        self.when_seen(x)
        return x
