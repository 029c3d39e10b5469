"""Origins: the source rows from which an element was computed.

Recording origins during every pass would slow every pass. Instead they are computed on request, in
one of two ways. In a random-access flow this is arithmetic: each operator maps the position of its
element to positions in its sources (``Node.made_of``), down to the rows of the sources. In any
other flow the pass is repeated with elements that carry the addresses they came from
(``Traceable``). Each address is at the lowest operator that positions reach, so the arithmetic
from there to the sources is done only for the requested element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import attrs
import numpy as np

from flowdsl.effects import Effect, Tag
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.errors import InvalidFlow, Location
from flowdsl.nodes import (
    AnyNode,
    Elementwise,
    Failed,
    IndexedSource,
    Indices,
    Node,
    PassFactory,
    PassThrough,
    Row,
    Traceable,
    Traced,
    Windowed,
    frozen_node,
)
from flowdsl.plan.lower import plan_of
from flowdsl.plan.tree import Step, steps_of
from flowdsl.resources.any_depth import any_depth
from flowdsl.runtime.random_access import beyond, element_at, without_workers


@attrs.frozen
class Origin:
    """A row of a source.

    >>> import flowdsl as fl
    >>> origin, _ = fl.from_items("abc").zip(fl.from_range(3)).origins(1)
    >>> print(origin)
    row 1 of from_items(3 items)
    >>> origin
    Origin(source='from_items(3 items)', row=1, step=1, location=None)
    """

    source: str
    """The title of the source, as in ``explain`` and in errors."""
    row: int
    """The index of the row in the source, or for a stream, in the pass over it."""
    step: int
    """The number of the source in ``explain``, which distinguishes sources with the same title."""
    location: Location | None = None
    """The file of the row, and its line; None if ``source`` names the only file."""

    def __str__(self) -> str:
        more = "" if self.location is None else f", {self.location}"
        return f"row {self.row} of {self.source}{more}"


def origins_at(node: AnyNode, position: int, epoch: int) -> list[Origin]:
    """Return the origins of the element at a position of a pass.

    Raises:
        InvalidFlow: An operator does not report its input elements; or see ``without_workers``.
        IndexError: The position is beyond the end of the pass.
    """
    step = steps_of(without_workers(node, "origins"))
    node = step.node
    if not node.indexable:
        element = element_at(plan_of(traced(step)), position, epoch, "origins")
        return list(chain(*(_origins(*place) for place in element.places)))
    if position < 0 or (node.length is not None and position >= node.length):
        raise beyond("origins", position, node.length, node)
    return list(_origins(step, epoch, position))


# -- by arithmetic ---------------------------------------------------------------------------------


def _origins(step: Step, epoch: int, position: int, row: int | None = None) -> tuple[Origin, ...]:
    """Return the origins of an element of a step, or of one row of the element."""
    addresses = Indices.at(epoch, [position])
    if row is not None:
        step, addresses = _step_of_row(step, addresses, row)
    (origins,) = _origins_of_each(step, addresses)
    return origins


@any_depth
def _step_of_row(step: Step, addresses: Indices, row: int) -> tuple[Step, Indices]:
    """Return the step below whose element is a row of a batch, with the element's address.

    If the rows cannot be traced, return the step and the address of the whole element.
    """
    members = step.node.made_of(addresses)
    if members is not None and isinstance(step.node, Windowed) and step.node.stacks:
        # Rows that fill a batch repeat its last member.
        place = min(row, len(members.source) - 1)
        return step.sources[0], members.of(0).where(np.arange(len(members.source)) == place)
    if members is not None and isinstance(step.node, PassThrough):
        source = int(members.source[0])
        return _step_of_row(step.sources[source], members.of(source), row)
    return step, addresses


@any_depth
def _origins_of_each(step: Step, addresses: Indices) -> list[tuple[Origin, ...]]:
    """Return the origins of each element of a step at these addresses."""
    members = step.node.made_of(addresses)
    if members is None:
        assert not step.sources, f"{step.node.title} is indexable, but of a kind without made_of"
        return [(_origin(step, row),) for row in addresses.position.tolist()]
    below = [iter(_origins_of_each(source, members.of(k))) for k, source in enumerate(step.sources)]
    of_members = (next(below[k]) for k in members.source.tolist())
    return [tuple(chain(*islice(of_members, count))) for count in members.counts.tolist()]


def _origin(step: Step, row: int) -> Origin:
    source = step.node
    location = source.location(row) if isinstance(source, IndexedSource) else None
    return Origin(source.title, row, step.number, location)


# -- by repeating a pass ---------------------------------------------------------------------------


def _is_known_by_position(step: Step) -> bool:
    """Return True if arithmetic finds the origins from the position of an element."""
    return step.node.indexable or not step.sources


def traced(
    step: Step, ends_at: Callable[[Step], bool] = _is_known_by_position
) -> Node[Traced[Any], Effect]:
    """Return the flow with each element traced to the operators where ``ends_at`` is true.

    Raises:
        InvalidFlow: An operator on the way does not report its input elements.
    """
    if ends_at(step):
        return _Marked(step.node, step)
    if not isinstance(step.node, Traceable):
        raise InvalidFlow(
            f"origins: {step.node.title} does not say what its elements are made of; an operator "
            f"that does is Traceable (flowdsl.nodes.capabilities), as all but a plain Node are"
        )
    return _Followed(tuple(traced(source, ends_at) for source in step.sources), step)


@frozen_node
class _Marked(Elementwise[Any, Any, Effect]):
    """Traces each element to its address at an operator."""

    step: Step

    @property
    def title(self) -> str:
        return self.source.title

    def apply(self, x: Any, epoch: int, position: int) -> Any:
        place = self.step, epoch, position
        return x if isinstance(x, Failed) else Traced(x, (place,), lambda row: ((*place, row),))

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN


@frozen_node
class _Followed(Node[Any, Effect]):
    """An operator over traced elements."""

    parts: tuple[AnyNode, ...]
    step: Step

    @property
    def title(self) -> str:
        return self.step.node.title

    @property
    def effects(self) -> frozenset[Tag]:
        return self.step.node.effects

    @property
    def length(self) -> int | None:
        return self.step.node.length

    @property
    def positions_are_contiguous(self) -> bool:
        return self.step.node.positions_are_contiguous

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        assert isinstance(self.step.node, Traceable)
        return self.step.node.rows_with_places(epoch, sources)
