"""Operators on one element at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Generic, cast, final

from flowdsl.errors import raise_with_cause
from flowdsl.nodes.base import (
    DROPPED,
    A,
    AnyNode,
    Dropped,
    E,
    Indices,
    Node,
    PassFactory,
    Provenance,
    Row,
    U,
    cached_per_node,
)
from flowdsl.nodes.capabilities import (
    MadeFromLatest,
    Reshardable,
    Resumable,
    position_after_reshard,
)
from flowdsl.nodes.frozen import frozen_node
from flowdsl.nodes.validation import describe_element


@frozen_node
class Elementwise(MadeFromLatest[U, E], Reshardable[U, E], Generic[A, U, E]):
    """An operator on one element at a time, which keeps the element's position."""

    drops: ClassVar[bool] = False
    """True if the operator may leave elements out."""

    cheap: ClassVar[bool] = False
    """True if it is so cheap that it does not justify sending elements to a worker."""

    source: Node[A, E]

    @property
    def loop_line(self) -> str:
        """The line of a generated loop that replaces ``x`` by the result of ``apply``.

        ``{epoch}`` and ``{position}`` stand for the element's epoch and position; other names in
        braces are attributes of the node.
        """
        return "x = {apply}(x, {epoch}, {position})"

    @abstractmethod
    def apply(self, x: A, epoch: int, position: int) -> U | Dropped:
        """Return the new element for ``x``, or ``DROPPED`` to leave it out."""

    @property
    @cached_per_node
    def indexable(self) -> bool:
        return self.source.indexable and not self.drops

    @property
    @cached_per_node
    def positions_are_contiguous(self) -> bool:
        return self.source.positions_are_contiguous and not self.drops

    @property
    @cached_per_node
    def length(self) -> int | None:
        return None if self.drops else self.source.length

    @property
    def looks_back(self) -> int | None:
        return 0

    def position_after_reshard(self, saved_flow: AnyNode, position: int) -> int | None:
        if not self.positions_are_contiguous:
            return None
        return position_after_reshard(self.source, saved_flow.sources[0], position)

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[U]]:
        for position, x in sources[0](epoch):
            y = self._applied(x, epoch, position, number=position)
            if not isinstance(y, Dropped):
                yield position, y

    def _applied(self, x: A, epoch: int, position: int, number: int) -> U | Dropped:
        """The result of ``apply`` with this number; ``position`` is for an error."""
        try:
            return self.apply(x, epoch, number)
        except BaseException as error:
            raise_with_cause(self.error_at(epoch, position, describe_element(x)), error)

    def made_of(self, addresses: Indices) -> Provenance:
        return Provenance.one_each(addresses)


class CodeTemplate(Elementwise[A, U, E], Generic[A, U, E]):
    """An elementwise operator defined by a line of Python, which is inlined into a generated loop.

    This saves a method call per element, which would cost as much as a small function.
    """

    @property
    @abstractmethod
    def loop_line(self) -> str:
        """The line of a generated loop, which sets ``x`` to the new element or to ``DROPPED``.

        ``{epoch}`` and ``{position}`` stand for the element's epoch and position; other names in
        braces, such as ``{func}``, are attributes of the node.
        """

    @final
    def apply(self, x: A, epoch: int, position: int) -> U | Dropped:
        return cast("U | Dropped", _compiled(self.loop_line)(self, x, epoch, position))


@lru_cache(maxsize=1024)
def _compiled(line: str) -> Callable[[object, object, int, int], object]:
    """The line as a function of its node, an element, and the element's epoch and position."""
    from string import Formatter  # here: not needed at import

    names = {name for _, name, _, _ in Formatter().parse(line) if name is not None}
    attributes = {name: f"node.{name}" for name in names - {"epoch", "position"}}
    body = line.format_map({"epoch": "epoch", "position": "position"} | attributes)
    namespace: dict[str, Any] = {"DROPPED": DROPPED}
    exec(f"def apply(node, x, epoch, position):\n    {body}\n    return x\n", namespace)
    apply: Callable[[object, object, int, int], object] = namespace["apply"]
    return apply


class IndexedMap(Resumable[U, E], Elementwise[A, U, E], Generic[A, U, E]):
    """An elementwise operator whose ``apply`` receives the element's number in the pass.

    It runs only where that number is known. It must not leave elements out: after a resume, the
    number is the count of elements that it has yielded.
    """

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if cls.drops:
            raise TypeError(
                f"{cls.__name__}: an IndexedMap operator cannot leave elements out; number the "
                f"elements with enumerate(), and leave some out with a filter above it"
            )

    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[Any]]:
        for number, (position, x) in enumerate(sources[0](epoch), yielded):
            yield position, self._applied(x, epoch, position, number=number)
