"""The nodes of ``on_error``: attempted operators, and the node that leaves failures out.

With ``on_error``, a function that raises must not end the pass: its element is left out. The naive
way is to catch the exception and drop the element at once. But then positions have gaps, and the
rest of the chain can no longer be planned by index: a shuffle would have to read the whole file.

So a failure is a value, ``Failed``, in the place of the element. Operators that choose or reorder
move it like any other element, later functions are not called on it, and a ``SkipFailed`` is put
before the first operator that would look into it. A shuffled file whose row 7 is damaged is still
read by number, and only the element of row 7 is left out.

These nodes are kinds: the planner and the runtime treat all attempted operators alike, just as
they treat all ``Elementwise`` operators alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, ClassVar, Generic, TypeAlias

import attrs

from flowdsl.effects import Effect, Resampled, Unsized
from flowdsl.elements.specs import UNKNOWN, Spec, spec_of
from flowdsl.errors import ElementError, Location
from flowdsl.nodes.base import (
    DROPPED,
    A,
    AnyNode,
    Dropped,
    E,
    Failed,
    Node,
    PassFactory,
    Row,
    cached_per_node,
    with_sources,
)
from flowdsl.nodes.capabilities import SkippedByProbe
from flowdsl.nodes.frozen import frozen_node
from flowdsl.nodes.kinds import Elementwise, IndexedMap, IndexedSource
from flowdsl.nodes.validation import describe_element
from flowdsl.resources.any_depth import any_depth

_MAX_PROBED = 1000
"""A probe tries at most this many elements, then leaves the spec unknown."""

Handler: TypeAlias = Callable[[ElementError], object]

NOT_KNOWN = -1
"""The number of an attempt if a worker died and the attempt that failed is unknown."""


class _Nothing(Node[Any, Effect]):
    """Replaces the source of an attempted operator, which is called element by element."""

    @property
    def title(self) -> str:
        return "nothing"

    @property
    def length(self) -> int | None:
        return None

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        raise AssertionError("an operator that is attempted is called element by element")


@attrs.frozen(repr=False)
class WrappedNode:
    """An operator without its sources, hidden from a planner that looks for sources."""

    node: Any

    @classmethod
    def of(cls, node: AnyNode) -> WrappedNode:
        return cls(with_sources(node, (_Nothing(),) * len(node.sources)))


class _Attempted:
    """Has the title and the fingerprint of the operator that it attempts."""

    __slots__ = ()
    attempted: WrappedNode

    @property
    def title(self) -> str:
        return str(self.attempted.node.title)

    @property
    def fingerprint(self) -> str:
        return str(self.attempted.node.fingerprint)

    @property
    def in_any_order(self) -> bool:
        return bool(self.attempted.node.in_any_order)


@frozen_node
class Attempt(_Attempted, Elementwise[A, Any, E], SkippedByProbe[Any, E], Generic[A, E]):
    """An attempted elementwise operator: if it fails, a failure takes the element's place."""

    attempted: WrappedNode
    number: int

    @property
    def depth(self) -> int:
        # As without on_error: the attempted operator is above a ``_Nothing``, of depth 1.
        return self.source.depth + int(self.attempted.node.depth) - 1

    @property
    def varies_by_epoch(self) -> bool:
        return bool(self.attempted.node.draws) or super().varies_by_epoch

    @property
    def node_to_probe(self) -> AnyNode:
        return self.source if isinstance(self.attempted.node, SkippedByProbe) else self

    def apply(self, x: A, epoch: int, position: int) -> Any:
        if isinstance(x, Failed):
            return x
        try:
            return self.attempted.node.apply(x, epoch, position)
        except Exception as error:
            return Failed(self.number, epoch, position, error, describe_element(x))

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        source = _Makeable(self.source, self.attempted) if probe else self.source
        return with_sources(self.attempted.node, (source,)).spec(probe)


class AttemptToFilter(Attempt[A, E | Unsized], Generic[A, E]):
    """An attempted operator that may leave an element out."""

    drops: ClassVar[bool] = True


class AttemptToCount(Attempt[A, E], IndexedMap[A, Any, E], Generic[A, E]):
    """An attempted operator that uses the element's number; failures count too."""


@frozen_node
class _Makeable(Elementwise[A, A, E | Unsized], Generic[A, E]):
    """The elements on which an operator does not fail, for a probe of this operator."""

    drops: ClassVar[bool] = True
    attempted: WrappedNode

    @property
    def title(self) -> str:
        return "elements that do not fail"

    def apply(self, x: A, epoch: int, position: int) -> A | Dropped:
        if isinstance(x, Failed):
            return DROPPED
        try:
            self.attempted.node.apply(x, epoch, position)
        except Exception:
            return DROPPED
        return x

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[A]]:
        for position, x in islice(sources[0](epoch), _MAX_PROBED):
            if not isinstance(self.apply(x, epoch, position), Dropped):
                yield position, x

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)


@frozen_node
class AttemptToRead(_Attempted, IndexedSource[Any]):
    """An attempted indexed source: if reading a row fails, a failure takes its place."""

    attempted: WrappedNode
    number: int

    @property
    def length(self) -> int:
        return int(self.attempted.node.length)

    def location(self, row: int) -> Location | None:
        location: Location | None = self.attempted.node.location(row)
        return location

    def open(self) -> Callable[[int], Any]:
        """Return a reader that raises: generated code makes failures of its errors by itself."""
        read: Callable[[int], Any] = self.attempted.node.open()
        return read

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        read = self.open()
        return ((i, self._attempted(read, epoch, i)) for i in range(self.length))

    def _attempted(self, read: Callable[[int], Any], epoch: int, i: int) -> Any:
        try:
            return read(i)
        except Exception as error:
            return Failed(self.number, epoch, i, error)

    def spec(self, probe: bool) -> Spec:
        try:
            known: Spec = self.attempted.node.spec(probe)
        except Exception:  # reading the first row, for the probe, failed
            known = UNKNOWN
            if probe:
                tried = (x for _, x in islice(self.rows(0, ()), _MAX_PROBED))
                known = next((spec_of(x) for x in tried if not isinstance(x, Failed)), UNKNOWN)
        return known


class AttemptToReadHere(AttemptToRead):
    """An attempted source whose rows are in this process's memory."""

    in_memory: ClassVar[bool] = True


@frozen_node
class SkipFailed(
    Elementwise[A, A, E | Resampled | Unsized],
    SkippedByProbe[A, E | Resampled | Unsized],
    Generic[A, E],
):
    """Leaves failures out, and calls ``handler`` with the error of each."""

    drops: ClassVar[bool] = True
    cheap: ClassVar[bool] = True
    handler: Handler | None
    title_argument: str

    @property
    def title(self) -> str:
        return f"on_error={self.title_argument}"

    @property
    def fingerprint(self) -> str:
        return 'on_error="skip"'  # the handler does not change the elements

    @property
    def depth(self) -> int:
        return self.source.depth  # leaving elements out does not change the draws of the others

    @property
    def node_to_probe(self) -> AnyNode:
        return self.silent()

    def silent(self) -> SkipFailed[A, E]:
        """This node without its handler, for probes and for workers."""
        return self if self.handler is None else attrs.evolve(self, handler=None)

    def apply(self, x: A, epoch: int, position: int) -> A | Dropped:
        return DROPPED if isinstance(x, Failed) else x

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[A]]:
        return self.rows_reporting(epoch, sources, lambda failed: self.handle(self.error(failed)))

    def handle(self, error: ElementError) -> None:
        """Call the handler, if there is one; what it raises has a note that names the element."""
        if self.handler is None:
            return
        try:
            self.handler(error)
        except BaseException as raised:
            if raised is not error:
                raised.add_note(
                    f"raised by {self.title}, which was called because {error.operator} failed on "
                    f"{error.place}"
                )
            raise

    def rows_reporting(
        self, epoch: int, sources: Sequence[PassFactory], report: Callable[[Failed], object]
    ) -> Iterator[Row[A]]:
        """Yield the rows of a pass; ``report`` is called with each failure that is left out."""
        for position, x in sources[0](epoch):
            if isinstance(x, Failed):
                report(x)
            else:
                yield position, x

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        return Elementwise.rows_with_places(self.silent(), epoch, sources)

    def error(self, failed: Failed) -> ElementError:
        """The error that names the operator that failed and the element it failed on."""
        matching = (node for node in attempts(self.source) if node.number == failed.attempt)
        operator = next(matching, self.source)  # none matches if the attempt is NOT_KNOWN
        error = operator.error_at(failed.epoch, failed.position, failed.detail)
        error.__cause__ = failed.cause
        return error

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)


@any_depth
def attempts(node: AnyNode) -> list[Attempt[Any, Any] | AttemptToRead]:
    """The attempted operators whose failures can be among this node's elements."""
    if isinstance(node, SkipFailed):
        return []
    own = [node] if isinstance(node, Attempt | AttemptToRead) else []
    return [*chain.from_iterable(map(attempts, node.sources)), *own]
