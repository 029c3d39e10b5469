"""A model: what a flow means, in plain Python, and what is known before a pass.

A model is a function from an epoch to positions and elements. None of it uses a node of flowdsl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import attrs

from flowdsl.effects import Endless, Reordered, Resampled, Tag, Unsized

Rows: TypeAlias = Iterator[tuple[int, Any]]


class Failed(Exception):
    """Raised by a model where its flow raises an error."""


class Bad:
    """Stands for an element that fails."""


BAD = Bad()


@attrs.frozen
class Model:
    """What a flow means, and what is known before a pass.

    >>> from flowdsl.testing import models
    >>> def reversed_model(source: Model) -> Model:
    ...     return source.then_anew(
    ...         lambda epoch: list(source.elements(epoch))[::-1], source.length, Reordered
    ...     )
    >>> list(reversed_model(models.rows("abc")).rows(0))
    [(0, 'c'), (1, 'b'), (2, 'a')]
    """

    rows: Callable[[int], Rows]
    """The positions and elements of an epoch."""
    length: int | None
    """The number of elements of a pass; None where it is not known beforehand."""
    tags: frozenset[Tag] = frozenset()
    """The effects of the flow."""
    depth: int = 1
    """The number of operators that change elements: part of the seed of random operators."""
    careful: bool = False
    """Whether an element that fails is ``BAD`` rather than an error."""
    may_be_bad: bool = False
    """Whether some elements may be ``BAD``."""
    leaves_out: bool = False
    """Whether ``BAD`` elements were left out somewhere in the flow."""
    read: Callable[[int], Rows] | None = None
    """The rows with ``BAD`` for unreadable ones, of a source that can go on after these."""

    @property
    def endless(self) -> bool:
        """Whether a pass never ends."""
        return Endless in self.tags

    def elements(self, epoch: int) -> Iterator[Any]:
        """The elements of an epoch."""
        return (x for _, x in self.rows(epoch))

    def then(self, rows: Callable[[int], Rows], length: int | None, *tags: Tag) -> Model:
        """Add an operator, whose ``rows`` have positions, and which adds tags.

        They are asked for where the first is read: a flow of which nothing is taken reads nothing.
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

    def then_anew(
        self, elements: Callable[[int], Iterable[Any]], length: int | None, *tags: Tag
    ) -> Model:
        """Add an operator whose elements are numbered from 0."""
        return self.then(lambda epoch: enumerate(elements(epoch)), length, *tags)

    def carefully(self) -> Model:
        """This source, with ``BAD`` for rows that cannot be read."""
        tries = not self.leaves_out and (self.read is not None or self.depth > 1)
        return attrs.evolve(self, rows=self.read or self.rows, careful=True, may_be_bad=tries)

    def tried(self) -> Model:
        """The model after an operator that calls a function on each element."""
        return attrs.evolve(self, may_be_bad=self.careful or self.may_be_bad)

    def good(self) -> Model:
        """The model without ``BAD`` elements, if it may have any."""
        return self.left_out() if self.may_be_bad else self

    def left_out(self) -> Model:
        """The model without ``BAD`` elements, and with the effects of leaving them out."""
        return attrs.evolve(
            self,
            rows=lambda epoch: (row for row in self.rows(epoch) if row[1] is not BAD),
            length=None,
            tags=self.tags | {Resampled, Unsized},
            may_be_bad=False,
            leaves_out=True,
            read=None,
        )

    def bounded(self) -> Model:
        """The model cut to a number of elements: known beforehand if it was endless."""
        ends = self.tags - {Endless, Unsized} if self.endless else self.tags
        return attrs.evolve(self, tags=ends)

    def by_place(self) -> Model:
        """The model with rows chosen by position: chosen by chance, if their order is random."""
        return attrs.evolve(
            self, tags=self.tags | ({Resampled} if Reordered in self.tags else set())
        )

    def at_depth(self, depth: int) -> Model:
        """The model with the random seeds of this depth."""
        return attrs.evolve(self, depth=depth)

    def times(self, n: int) -> int | None:
        """The length of ``n`` passes."""
        return None if self.length is None else n * self.length
