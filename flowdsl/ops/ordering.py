"""shuffle: the order of elements."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, overload

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.effects import Counted, Reordered
from flowdsl.elements import Spec
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
)
from flowdsl.ops.mapping import generator

if TYPE_CHECKING:
    from flowdsl.flow import Flow


@attrs.frozen
class Shuffle(Indexing[T, E | Reordered], Generic[T, E]):
    """All elements in a random order, another one in each epoch."""

    seed: int = attrs.field(validator=at_least(0))
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
        return enumerate(elements[i] for i in order.tolist())


def permute(position: Positions, n: int, key: str) -> Positions:
    """Where a keyed pseudo-random permutation of ``range(n)`` sends each position.

    Computed for a position by itself, in constant memory: a Feistel network permutes the next
    power of four, and positions that land outside ``range(n)`` are sent on until they land inside
    (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002).

    Shapes: as ``position``. Values in ``position`` must lie in ``range(n)``.

    >>> sorted(permute(np.arange(5), 5, "key").tolist())
    [0, 1, 2, 3, 4]
    """
    half = np.uint64(max((n - 1).bit_length() + 1, 2) // 2)
    mask = np.uint64((1 << int(half)) - 1)
    keys = np.frombuffer(hashlib.blake2b(key.encode(), digest_size=8 * _ROUNDS).digest(), np.uint64)
    moved = position.astype(np.uint64)
    outside = np.arange(len(moved))
    while len(outside):
        block = moved[outside]
        left, right = block >> half, block & mask
        for k in keys:
            left, right = right, left ^ (_mix(right ^ k) & mask)
        moved[outside] = (left << half) | right
        outside = outside[moved[outside] >= n]
    return moved.astype(np.int64)


_ROUNDS = 6
"""Four rounds are the least for a network that looks random (Luby and Rackoff, 1988); two more
cost 30 ns an element and make up for a small domain."""


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finalizer: every input bit reaches every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@attrs.frozen
class WindowShuffle(Node[T, E | Reordered], Generic[T, E]):
    """Each element drawn at random from the next ``buffer`` ones not yet drawn."""

    source: Node[T, E]
    buffer: int = attrs.field(validator=at_least(1))
    seed: int = attrs.field(validator=at_least(0))
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
        ([3, 0, 4, 5, 2, 1], [5, 2, 0, 4, 3, 1])

        Source: ``LocallyShuffleData`` and ``RandomShuffleQueue``; the global order is a Feistel
        permutation, see ``permute``.
        """
        salt = self.node.depth
        if buffer is None:
            return flow(Shuffle(self.node, seed, salt))
        return flow(WindowShuffle(self.node, buffer, seed, salt))
