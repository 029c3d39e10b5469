"""``Supplied``: the node that stands for a base in the program of a stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flowdsl.effects import Effect, Tag
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.nodes import AnyNode, Node, PassFactory, Row, frozen_node


@frozen_node
class Supplied(Node[Any, Effect]):
    """The input of a program: elements that arrive from the consumer's process.

    It has the length, effects and random access of the base, for the operators above.
    """

    slot: int
    """The number of the base among the bases of the stage."""
    rows_supplied: int | None
    random_access: bool
    tags: frozenset[Tag]

    @classmethod
    def like(cls, base: AnyNode, slot: int) -> Supplied:
        """The input that replaces ``base``."""
        return cls(
            slot,
            rows_supplied=base.length,
            random_access=base.indexable,
            tags=base.effects,
        )

    @property
    def title(self) -> str:
        return "supplied"

    @property
    def length(self) -> int | None:
        return self.rows_supplied

    @property
    def indexable(self) -> bool:
        return self.random_access

    @property
    def effects(self) -> frozenset[Tag]:
        return self.tags

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        raise AssertionError("a program runs on the elements that it is supplied with")
