"""Models: the meaning of a flow in plain Python.

A model is a function from an epoch to positions and elements, with the length and effects known
before a pass. Models do not use nodes of flowdsl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import attrs

from flowdsl.effects import Endless, Reordered, Resampled, Tag, Unsized

Rows: TypeAlias = Iterator[tuple[int, Any]]


class Failed(Exception):
    """Raised by a model when its flow raises an error."""


class Bad:
    """The placeholder of an element that fails."""


BAD = Bad()


@attrs.frozen
class Model:
    """The meaning of a flow, and its properties known before a pass.

    >>> from flowdsl.testing import models
    >>> def reversed_model(source: Model) -> Model:
    ...     return source.then_renumbered(
    ...         lambda epoch: list(source.elements(epoch))[::-1], source.length, Reordered
    ...     )
    >>> list(reversed_model(models.rows("abc")).rows(0))
    [(0, 'c'), (1, 'b'), (2, 'a')]
    """

    rows: Callable[[int], Rows]
    """The positions and elements of an epoch."""
    length: int | None
    """The number of elements of a pass; None if it is not known before."""
    tags: frozenset[Tag] = frozenset()
    """The effects of the flow."""
    depth: int = 1
    """The number of operators that change elements: part of the seed of random operators."""
    failures_as_bad: bool = False
    """With it the model yields ``BAD`` for an element that fails; otherwise it raises."""
    may_be_bad: bool = False
    """True if some elements may be ``BAD``."""
    skips_bad: bool = False
    """True if the flow skips its ``BAD`` elements somewhere."""
    read: Callable[[int], Rows] | None = None
    """The rows with ``BAD`` for unreadable ones, for a source that can continue after them."""

    @property
    def endless(self) -> bool:
        """True if a pass never ends."""
        return Endless in self.tags

    def elements(self, epoch: int) -> Iterator[Any]:
        """Iterate over the elements of an epoch."""
        return (x for _, x in self.rows(epoch))

    def then(self, rows: Callable[[int], Rows], length: int | None, *tags: Tag) -> Model:
        """Add an operator, whose ``rows`` yield positions and elements, and which adds ``tags``.

        ``rows`` is called when the first row is read: a flow from which nothing is read reads
        nothing.
        """

        def late(epoch: int) -> Rows:
            yield from rows(epoch)

        return attrs.evolve(
            self,
            rows=late,
            length=length,
            tags=self.tags | set(tags),
            depth=self.depth + 1,
            read=None,
        )

    def then_renumbered(
        self, elements: Callable[[int], Iterable[Any]], length: int | None, *tags: Tag
    ) -> Model:
        """Add an operator whose elements are numbered from 0."""
        return self.then(lambda epoch: enumerate(elements(epoch)), length, *tags)

    def with_failures_as_bad(self) -> Model:
        """Return this source with ``BAD`` for rows that cannot be read."""
        tries = not self.skips_bad and (self.read is not None or self.depth > 1)
        return attrs.evolve(
            self, rows=self.read or self.rows, failures_as_bad=True, may_be_bad=tries
        )

    def may_fail(self) -> Model:
        """Return the model after an operator that calls a function, which may fail, on elements."""
        return attrs.evolve(self, may_be_bad=self.failures_as_bad or self.may_be_bad)

    def without_bad(self) -> Model:
        """Return the model without ``BAD`` elements, if it may have any."""
        return self.skipping_bad() if self.may_be_bad else self

    def skipping_bad(self) -> Model:
        """Return the model without ``BAD`` elements, with the effects of skipping them."""
        return attrs.evolve(
            self,
            rows=lambda epoch: (row for row in self.rows(epoch) if row[1] is not BAD),
            length=None,
            tags=self.tags | {Resampled, Unsized},
            may_be_bad=False,
            skips_bad=True,
            read=None,
        )

    def bounded(self) -> Model:
        """Return the model limited to a number of elements: no longer endless or unsized."""
        ends = self.tags - {Endless, Unsized} if self.endless else self.tags
        return attrs.evolve(self, tags=ends)

    def selected_by_position(self) -> Model:
        """Return the model with rows selected by position: randomly, if their order is random."""
        return attrs.evolve(
            self, tags=self.tags | ({Resampled} if Reordered in self.tags else set())
        )

    def at_depth(self, depth: int) -> Model:
        """Return the model with the random seeds of this depth."""
        return attrs.evolve(self, depth=depth)

    def times(self, n: int) -> int | None:
        """Return the length of ``n`` passes."""
        return None if self.length is None else n * self.length
