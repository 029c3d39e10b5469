"""What ``on_error`` puts into a flow: operators that are attempted, and what leaves failures out.

A failure is a value in the place of the element. Operators that choose or reorder move it like any
other, the functions above it are not called, and the first operator that would look into it has a
``LeaveOut`` below it. So late reading stays: a shuffled file whose row 7 is damaged is still read
by number, and what is left out is the element whose turn row 7 was.

They are kinds: whatever operator is attempted, a planner and a runtime know them as they know
``Elementwise``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, Generic, TypeAlias

import attrs

from flowdsl.arguments import the_element
from flowdsl.capabilities import Transparent
from flowdsl.effects import Effect, Resampled, Unsized
from flowdsl.errors import ElementError
from flowdsl.kinds import Counting, Elementwise, IndexedSource
from flowdsl.node import (
    DROPPED,
    A,
    AnyNode,
    Dropped,
    E,
    Failed,
    Node,
    Passes,
    Row,
    remembered,
    with_sources,
)
from flowdsl.specs import UNKNOWN, Spec, spec_of

_MOST_PROBED = 1000
"""So many elements are tried before it is left open what one looks like."""

Handler: TypeAlias = Callable[[ElementError], object]

NOT_KNOWN = -1
"""The number of an attempt of which only the end is known: that a worker died on it."""


@attrs.frozen
class _Nothing(Node[Any, Effect]):
    """The place of the source in an operator that is kept for its function."""

    @property
    def title(self) -> str:
        return "nothing"

    @property
    def length(self) -> int | None:
        return None

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN

    def rows(self, epoch: int, sources: Sequence[Passes]) -> Iterator[Row[Any]]:
        raise AssertionError("an operator that is attempted is called element by element")


@attrs.frozen
class Held:
    """An operator by itself: a planner that looks for sources does not see it."""

    node: Any

    @classmethod
    def of(cls, node: AnyNode) -> Held:
        return cls(with_sources(node, (_Nothing(),) * len(node.sources)))


class _Attempted:
    """Goes by the name of what it attempts."""

    __slots__ = ()
    held: Held

    @property
    def title(self) -> str:
        return str(self.held.node.title)

    @property
    def fingerprint(self) -> str:
        return str(self.held.node.fingerprint)


@attrs.frozen
class Attempt(_Attempted, Elementwise[A, Any, E], Transparent[Any, E], Generic[A, E]):
    """An operator on one element; a failure stands in the element's place."""

    held: Held
    number: int

    @property
    def depth(self) -> int:
        return self.source.depth + int(self.held.node.depth) - 1  # as it would be by itself

    @property
    def unseen(self) -> AnyNode:
        return self.source if isinstance(self.held.node, Transparent) else self

    def apply(self, x: A, epoch: int, position: int) -> Any:
        if isinstance(x, Failed):
            return x
        try:
            return self.held.node.apply(x, epoch, position)
        except Exception as error:
            return Failed(self.number, epoch, position, error, the_element(x))

    @remembered
    def spec(self, probe: bool) -> Spec:
        source = _Makeable(self.source, self.held) if probe else self.source
        return with_sources(self.held.node, (source,)).spec(probe)


@attrs.frozen
class AttemptToFilter(Attempt[A, E | Unsized], Generic[A, E]):
    """An operator that may leave an element out."""

    drops: ClassVar[bool] = True


@attrs.frozen
class AttemptToCount(Attempt[A, E], Counting[A, Any, E], Generic[A, E]):
    """One that looks at the element's number; those that failed have theirs."""


@attrs.frozen
class _Makeable(Elementwise[A, A, E | Unsized], Generic[A, E]):
    """The elements that an operator can make something of: those that a probe of it looks at."""

    drops: ClassVar[bool] = True
    held: Held

    @property
    def title(self) -> str:
        return "what can be made"

    def apply(self, x: A, epoch: int, position: int) -> A | Dropped:
        if isinstance(x, Failed):
            return DROPPED
        try:
            self.held.node.apply(x, epoch, position)
        except Exception:
            return DROPPED
        return x

    def rows(self, epoch: int, sources: Sequence[Passes]) -> Iterator[Row[A]]:
        for position, x in islice(sources[0](epoch), _MOST_PROBED):
            if not isinstance(self.apply(x, epoch, position), Dropped):
                yield position, x

    @remembered
    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)


@attrs.frozen
class AttemptToRead(_Attempted, IndexedSource[Any]):
    """A source that is read by number; a failure stands in the row's place."""

    held: Held
    number: int

    @property
    def length(self) -> int:
        return int(self.held.node.length)

    def open(self) -> Callable[[int], Any]:
        read: Callable[[int], Any] = self.held.node.open()
        return read

    def rows(self, epoch: int, sources: Sequence[Passes]) -> Iterator[Row[Any]]:
        read = self.open()
        return ((i, self._attempted(read, epoch, i)) for i in range(self.length))

    def _attempted(self, read: Callable[[int], Any], epoch: int, i: int) -> Any:
        try:
            return read(i)
        except Exception as error:
            return Failed(self.number, epoch, i, error)

    def spec(self, probe: bool) -> Spec:
        try:
            known: Spec = self.held.node.spec(probe)
        except Exception:  # of the row that was read to see what one looks like
            known = UNKNOWN
            if probe:
                tried = (x for _, x in islice(self.rows(0, ()), _MOST_PROBED))
                known = next((spec_of(x) for x in tried if not isinstance(x, Failed)), UNKNOWN)
        return known


@attrs.frozen
class AttemptToReadHere(AttemptToRead):
    """One whose rows lie in this process's memory."""

    portable: ClassVar[bool] = False


@attrs.frozen
class LeaveOut(
    Elementwise[A, A, E | Resampled | Unsized],
    Transparent[A, E | Resampled | Unsized],
    Generic[A, E],
):
    """The elements that could be made; of each other one, ``handler`` is given the error."""

    drops: ClassVar[bool] = True
    light: ClassVar[bool] = True
    handler: Handler | None
    spelled: str

    @property
    def title(self) -> str:
        return f"on_error={self.spelled}"

    @property
    def fingerprint(self) -> str:
        return 'on_error="skip"'  # the same elements, whoever is told

    @property
    def depth(self) -> int:
        return self.source.depth  # what is left out changes no other element's draws

    @property
    def unseen(self) -> AnyNode:
        return self.silent()

    def silent(self) -> LeaveOut[A, E]:
        """With nobody to tell: what a probe looks at, and what travels to workers."""
        return self if self.handler is None else attrs.evolve(self, handler=None)

    def apply(self, x: A, epoch: int, position: int) -> A | Dropped:
        return DROPPED if isinstance(x, Failed) else x

    def rows(self, epoch: int, sources: Sequence[Passes]) -> Iterator[Row[A]]:
        handler = self.handler
        return self.rows_telling(
            epoch, sources, lambda failed: None if handler is None else handler(self.error(failed))
        )

    def rows_telling(
        self, epoch: int, sources: Sequence[Passes], tell: Callable[[Failed], object]
    ) -> Iterator[Row[A]]:
        """The rows of a pass; ``tell`` is called with what is left out, in its place."""
        for position, x in sources[0](epoch):
            if isinstance(x, Failed):
                tell(x)
            else:
                yield position, x

    def error(self, failed: Failed) -> ElementError:
        """The error that names the operator that failed, and the element."""
        named = (step for step in attempts(self.source) if step.number == failed.step)
        error = next(named, self.source).failure(failed.epoch, failed.position, failed.given)
        error.__cause__ = failed.cause
        return error

    @remembered
    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)


def attempts(node: AnyNode) -> Iterator[Attempt[Any, Any] | AttemptToRead]:
    """The operators whose failures can stand among the elements of this one."""
    if isinstance(node, LeaveOut):
        return
    if isinstance(node, Attempt | AttemptToRead):
        yield node
    for source in node.sources:
        yield from attempts(source)
