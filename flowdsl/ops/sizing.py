"""take, repeat: how much of a flow there is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from typing import TYPE_CHECKING, Any, ClassVar, Generic, overload

import attrs
import numpy as np

from flowdsl.effects import Counted, Endless, Exact, Finite, InOrder, Resampled, Unsized
from flowdsl.errors import EndlessFlow, InvalidFlow
from flowdsl.node import Addresses, E, FlowBase, Indexing, Row, T, at_least, flow, plain_int
from flowdsl.ops.randomness import epoch_of_pass

if TYPE_CHECKING:
    from flowdsl.flow import Flow


@attrs.frozen
class Take(Indexing[T, E], Generic[T, E]):
    """The first ``n`` elements."""

    bounds: ClassVar[bool] = True
    positional: ClassVar[bool] = True
    keeps_positions: ClassVar[bool] = True
    n: int = attrs.field(converter=plain_int, validator=at_least(0))

    @property
    def title(self) -> str:
        return f"take({self.n})"

    @property
    def length(self) -> int | None:
        if Endless in self.source.effects:
            return self.n
        return None if self.source.length is None else min(self.n, self.source.length)

    def resolve(self, at: Addresses) -> Addresses:
        return at

    def rows(self, epoch: int) -> Iterator[Row[T]]:
        return islice(self.source.rows(epoch), self.n)


@attrs.frozen
class Repeat(Indexing[T, E | Resampled], Generic[T, E]):
    """``n`` passes in a row, each an epoch of its own."""

    n: int = attrs.field(converter=plain_int, validator=at_least(1))

    @property
    def title(self) -> str:
        return f"repeat({self.n})"

    @property
    def length(self) -> int | None:
        return None if self.source.length is None else self.n * self.source.length

    def resolve(self, at: Addresses) -> Addresses:
        if self.source.length is None:  # the first pass over an endless source never ends
            return Addresses(epoch_of_pass(at.epoch, np.zeros_like(at.epoch)), at.position)
        passes, position = divmod(at.position, max(self.source.length, 1))
        return Addresses(epoch_of_pass(at.epoch, passes), position)

    def rows(self, epoch: int) -> Iterator[Row[T]]:
        passes = (_inner(epoch, k) for k in range(self.n))
        return enumerate(x for inner in passes for _, x in self.source.rows(inner))


@attrs.frozen
class RepeatForever(Indexing[T, E | Resampled | Endless], Generic[T, E]):
    """Pass after pass, each an epoch of its own, without end."""

    def __attrs_post_init__(self) -> None:
        if self.source.length == 0:
            raise InvalidFlow("repeat: its source has no elements, and without n it never ends")

    @property
    def title(self) -> str:
        return "repeat()"

    @property
    def length(self) -> int | None:
        return None

    def resolve(self, at: Addresses) -> Addresses:
        if self.source.length is None:  # as above
            return Addresses(epoch_of_pass(at.epoch, np.zeros_like(at.epoch)), at.position)
        passes, position = divmod(at.position, self.source.length)
        return Addresses(epoch_of_pass(at.epoch, passes), position)

    def rows(self, epoch: int) -> Iterator[Row[T]]:
        return enumerate(self._elements(epoch))

    def _elements(self, epoch: int) -> Iterator[T]:
        for k in count():
            empty = True
            for _, x in self.source.rows(_inner(epoch, k)):
                empty = False
                yield x
            if empty:
                raise EndlessFlow(
                    f"repeat: pass {k} had no elements, and repeating nothing never yields; give "
                    f"repeat(n), or check what is filtered out"
                )


def _inner(epoch: int, k: int) -> int:
    return int(epoch_of_pass(np.array([epoch]), np.array([k]))[0])


class Sizing(FlowBase[T, E]):
    """Operators on the length of a flow."""

    @overload
    def take(self: FlowBase[T, Exact], n: int) -> Flow[T, Exact]: ...
    @overload
    def take(  # type: ignore[overload-overlap]  # only Exact fits both rows: the first
        self: FlowBase[T, InOrder], n: int
    ) -> Flow[T, Unsized]: ...
    @overload
    def take(self: FlowBase[T, Resampled | Endless], n: int) -> Flow[T, Resampled]: ...
    @overload
    def take(self: FlowBase[T, Counted | Endless], n: int) -> Flow[T, Counted]: ...
    @overload
    def take(self, n: int) -> Flow[T, Finite]: ...
    def take(self: FlowBase[Any, Any], n: int) -> Flow[Any, Any]:
        """The first ``n`` elements, or all of them if there are fewer.

        Effects: ends an endless flow. After a shuffle, ``Resampled``: which rows come first is
        chance, so the result is a permutation of nothing. Errors: ``InvalidFlow`` for ``n < 0``.

        >>> import flowdsl as fl
        >>> fl.from_range(3).repeat().take(5).collect()
        [0, 1, 2, 0, 1]

        Source: ``take`` in tf.data.
        """
        return flow(Take[Any, Any](self.node, n))

    @overload
    def repeat(self, n: None = None) -> Flow[T, E | Resampled | Endless]: ...
    @overload
    def repeat(self, n: int) -> Flow[T, E | Resampled]: ...
    def repeat(self, n: int | None = None) -> Flow[Any, Any]:
        """``n`` passes in a row; without ``n``, pass after pass without end.

        Each pass is an epoch of its own: what shuffles or draws at random below it does so afresh,
        and batches do not reach from one pass into the next.

        Effects: ``Resampled``, and ``Endless`` without ``n``. Errors: ``InvalidFlow`` for ``n < 1``
        or an endless repetition of nothing; ``EndlessFlow`` when a pass turns out to be empty.

        >>> import flowdsl as fl
        >>> fl.from_range(3).batch(2).repeat(2).collect()
        [array([0, 1]), array([2]), array([0, 1]), array([2])]

        Source: ``RepeatedData`` in tensorpack, ``repeat`` in tf.data.
        """
        if n is None:
            return flow(RepeatForever(self.node))
        return flow(Repeat(self.node, n))
