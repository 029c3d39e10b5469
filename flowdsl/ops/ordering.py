"""shuffle: the order of elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, overload

import attrs
import numpy as np

from flowdsl.effects import Counted, Reordered
from flowdsl.errors import InvalidFlow
from flowdsl.node import (
    Addresses,
    E,
    FlowBase,
    Indexing,
    Node,
    Positions,
    Row,
    T,
    at_least,
    flow,
    plain_int,
)
from flowdsl.ops.randomness import generator, permute
from flowdsl.specs import Spec

if TYPE_CHECKING:
    from flowdsl.flow import Flow


@attrs.frozen
class Shuffle(Indexing[T, E | Reordered], Generic[T, E]):
    """All elements in a random order, another one in each epoch."""

    seed: int = attrs.field(converter=plain_int, validator=at_least(0))
    salt: int = attrs.field()

    def __attrs_post_init__(self) -> None:
        if self.source.length is None:
            raise InvalidFlow(
                f"shuffle: {self.source.title} has no known length; a global shuffle needs one. "
                f"Give shuffle(buffer=n) to shuffle within a window of n elements"
            )

    @property
    def title(self) -> str:
        return f"shuffle(seed={self.seed})"

    @property
    def length(self) -> int | None:
        return self.source.length

    def resolve(self, at: Addresses) -> Addresses:
        position = np.empty_like(at.position)
        for epoch in np.unique(at.epoch):
            here = at.epoch == epoch
            position[here] = self._permute(int(epoch), at.position[here])
        return Addresses(at.epoch, position)

    def _permute(self, epoch: int, position: Positions) -> Positions:
        return permute(position, self.length or 0, f"{self.seed}/{self.salt}/{epoch}")

    def rows(self, epoch: int) -> Iterator[Row[T]]:
        elements = [x for _, x in self.source.rows(epoch)]
        order = self._permute(epoch, np.arange(len(elements), dtype=np.int64))
        for position, i in enumerate(order.tolist()):
            yield position, elements[i]


@attrs.frozen
class WindowShuffle(Node[T, E | Reordered], Generic[T, E]):
    """Each element drawn at random from the next ``buffer`` ones not yet drawn."""

    source: Node[T, E]
    buffer: int = attrs.field(converter=plain_int, validator=at_least(1))
    seed: int = attrs.field(converter=plain_int, validator=at_least(0))
    salt: int = attrs.field()

    @property
    def title(self) -> str:
        return f"shuffle(buffer={self.buffer}, seed={self.seed})"

    @property
    def length(self) -> int | None:
        return self.source.length

    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)

    def rows(self, epoch: int) -> Iterator[Row[T]]:
        return enumerate(self._elements(epoch))

    def _elements(self, epoch: int) -> Iterator[T]:
        rng = generator(self.seed, self.salt, epoch, 0)
        window: list[T] = []
        for _, x in self.source.rows(epoch):
            window.append(x)
            if len(window) == self.buffer:
                yield _draw(window, rng)
        while window:
            yield _draw(window, rng)


def _draw(window: list[Any], rng: np.random.Generator) -> Any:
    i = int(rng.integers(len(window)))
    window[i], window[-1] = window[-1], window[i]
    return window.pop()


class Ordering(FlowBase[T, E]):
    """Operators on the order of elements."""

    @overload
    def shuffle(
        self: FlowBase[T, Counted], buffer: None = None, *, seed: int = 0
    ) -> Flow[T, E | Reordered]: ...
    @overload
    def shuffle(self, buffer: int, *, seed: int = 0) -> Flow[T, E | Reordered]: ...
    def shuffle(
        self: FlowBase[Any, Any], buffer: int | None = None, *, seed: int = 0
    ) -> Flow[Any, Any]:
        """Put the elements in a random order: all of them, or within a window of ``buffer``.

        Without ``buffer`` every order is as likely as the key allows, and over a random-access
        flow no element moves and nothing is held: positions are permuted by arithmetic. Over any
        other flow of known length the elements are collected first. With ``buffer``, each element
        is drawn from a window of that many, which a stream needs; memory: ``buffer`` elements.
        Every epoch has its own order.

        Effects: ``Reordered``. Errors: ``InvalidFlow`` for a negative seed, ``buffer < 1``, or a
        global shuffle of a flow of unknown length.

        >>> import flowdsl as fl
        >>> flow = fl.from_range(6).shuffle(seed=1)
        >>> flow.collect(), list(flow.epoch(1))
        ([4, 0, 5, 2, 3, 1], [3, 2, 5, 0, 1, 4])

        Source: ``LocallyShuffleData`` and ``RandomShuffleQueue``; the global order is a Feistel
        permutation, see ``randomness.permute``.
        """
        salt = self.node.depth
        if buffer is None:
            return flow(Shuffle(self.node, seed, salt))
        return flow(WindowShuffle(self.node, buffer, seed, salt))
