"""A model: what a flow means, in plain Python, and what is known of it beforehand.

A model is a function from an epoch to positions and elements. None of it uses a node of flowdsl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import attrs

from flowdsl.effects import Endless, Reordered, Resampled, Tag, Unsized

Rows: TypeAlias = Iterator[tuple[int, Any]]


class Failed(Exception):
    """The flow raises an error of its own here."""


class Bad:
    """In the place of an element that cannot be made."""


BAD = Bad()


@attrs.frozen
class Model:
    """What a flow means, and what is known of it beforehand.

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
    """How many elements a pass has, where that is known beforehand."""
    tags: frozenset[Tag] = frozenset()
    """The effects."""
    depth: int = 1
    """The number of operators, which seeds those that draw; what changes no element is none."""
    careful: bool = False
    """What fails is ``BAD``, and no error."""
    may_be_bad: bool = False
    """Some of its elements may be."""
    leaves_out: bool = False
    """Somewhere in it what is bad was left out."""
    read: Callable[[int], Rows] | None = None
    """Of a source that can go on after a row that cannot be read: its rows, carefully."""

    @property
    def endless(self) -> bool:
        """A pass never ends."""
        return Endless in self.tags

    def elements(self, epoch: int) -> Iterator[Any]:
        """The elements of an epoch."""
        return (x for _, x in self.rows(epoch))

    def then(self, rows: Callable[[int], Rows], length: int | None, *tags: Tag) -> Model:
        """One more operator, which keeps positions or gives its own, and adds tags."""
        return attrs.evolve(
            self,
            rows=rows,
            length=length,
            tags=self.tags | set(tags),
            depth=self.depth + 1,
            read=None,
        )

    def then_anew(
        self, elements: Callable[[int], Iterable[Any]], length: int | None, *tags: Tag
    ) -> Model:
        """One more operator, whose elements are numbered from 0."""
        return self.then(lambda epoch: enumerate(elements(epoch)), length, *tags)

    def carefully(self) -> Model:
        """This source, where what cannot be read is bad."""
        tries = not self.leaves_out and (self.read is not None or self.depth > 1)
        return attrs.evolve(self, rows=self.read or self.rows, careful=True, may_be_bad=tries)

    def tried(self) -> Model:
        """An operator that was called on each element."""
        return attrs.evolve(self, may_be_bad=self.careful or self.may_be_bad)

    def good(self) -> Model:
        """The elements that could be made."""
        return self.left_out() if self.may_be_bad else self

    def left_out(self) -> Model:
        """The elements that could be made, where it must be said that there may be fewer."""
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
        """It ends, at a length that is known beforehand if it would never have ended."""
        ends = self.tags - {Endless, Unsized} if self.endless else self.tags
        return attrs.evolve(self, tags=ends)

    def by_place(self) -> Model:
        """Which rows it has is chance, if their order is."""
        return attrs.evolve(
            self, tags=self.tags | ({Resampled} if Reordered in self.tags else set())
        )

    def at_depth(self, depth: int) -> Model:
        """The model with the seeds of an operator at this depth."""
        return attrs.evolve(self, depth=depth)

    def times(self, n: int) -> int | None:
        """The length of ``n`` passes."""
        return None if self.length is None else n * self.length
