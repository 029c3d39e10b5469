"""map, starmap, random_map, filter: what happens to each element by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import attrs
import numpy as np
from typing_extensions import TypeVarTuple

from flowdsl.effects import Unsized
from flowdsl.node import (
    DROPPED,
    A,
    Dropped,
    E,
    Elementwise,
    FlowBase,
    T,
    U,
    at_least,
    flow,
    is_callable,
    name_of,
    plain_int,
)
from flowdsl.ops.randomness import generator
from flowdsl.probing import probed, spec_of_result
from flowdsl.specs import Spec

if TYPE_CHECKING:
    from flowdsl.flow import Flow

B = TypeVar("B")
Ts = TypeVarTuple("Ts")


@attrs.frozen
class Map(Elementwise[A, U, E], Generic[A, U, E]):
    """``func`` of every element."""

    func: Callable[[A], U] = attrs.field(validator=is_callable)

    @property
    def title(self) -> str:
        return f"map({name_of(self.func)})"

    def apply(self, x: A, epoch: int, position: int) -> U:
        return self.func(x)

    def spec(self, probe: bool) -> Spec:
        declared = spec_of_result(self.func)
        return probed(self, declared) if probe else declared


@attrs.frozen
class StarMap(Elementwise[tuple[Any, ...], U, E], Generic[U, E]):
    """``func`` of the unpacked components of every element."""

    func: Callable[..., U] = attrs.field(validator=is_callable)

    @property
    def title(self) -> str:
        return f"starmap({name_of(self.func)})"

    def apply(self, x: tuple[Any, ...], epoch: int, position: int) -> U:
        return self.func(*x)

    def spec(self, probe: bool) -> Spec:
        declared = spec_of_result(self.func)
        return probed(self, declared) if probe else declared


@attrs.frozen
class RandomMap(Elementwise[A, U, E], Generic[A, U, E]):
    """``func`` of every element and of a random generator that belongs to the element."""

    func: Callable[[A, np.random.Generator], U] = attrs.field(validator=is_callable)
    seed: int = attrs.field(converter=plain_int, validator=at_least(0))
    salt: int = attrs.field()
    """Tells this operator's draws from those of its neighbours with the same seed."""

    @property
    def title(self) -> str:
        return f"random_map({name_of(self.func)}, seed={self.seed})"

    def apply(self, x: A, epoch: int, position: int) -> U:
        return self.func(x, generator(self.seed, self.salt, epoch, position))

    def spec(self, probe: bool) -> Spec:
        declared = spec_of_result(self.func)
        return probed(self, declared) if probe else declared


@attrs.frozen
class Filter(Elementwise[A, A, E | Unsized], Generic[A, E]):
    """The elements for which ``keep`` is true."""

    drops: ClassVar[bool] = True
    keep: Callable[[A], bool | np.bool_] = attrs.field(validator=is_callable)

    @property
    def title(self) -> str:
        return f"filter({name_of(self.keep)})"

    def apply(self, x: A, epoch: int, position: int) -> A | Dropped:
        return x if self.keep(x) else DROPPED

    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)


class Mapping(FlowBase[T, E]):
    """Operators on each element by itself."""

    def map(self, func: Callable[[T], B]) -> Flow[B, E]:
        """Apply ``func`` to every element.

        ``func`` must depend on its argument only: it may run in any process, at any time, and in
        no particular order; results come back in the order of their elements.

        Effects: none. Errors: what ``func`` raises arrives at its place in the sequence, as the
        cause of an ``ElementError``.

        >>> import flowdsl as fl
        >>> fl.from_range(3).map(lambda i: i * i).collect()
        [0, 1, 4]

        Source: ``map`` of functional programming; ``MapData`` in tensorpack.
        """
        return flow(Map(self.node, func))

    def starmap(self: FlowBase[tuple[*Ts], E], func: Callable[[*Ts], B]) -> Flow[B, E]:
        """Apply ``func`` to the components of every tuple; ``starmap(Sample)`` names them.

        Effects and errors: as for ``map``.

        >>> import flowdsl as fl
        >>> fl.from_items([(1, 2), (3, 4)]).starmap(lambda a, b: a + b).collect()
        [3, 7]

        Source: ``itertools.starmap``.
        """
        return flow(StarMap(self.node, func))

    def random_map(self, func: Callable[[T, np.random.Generator], B], seed: int = 0) -> Flow[B, E]:
        """Apply ``func`` to every element and a random generator of the element's own.

        The generator is a function of the seed, this operator's place in the chain, the epoch and
        the element's position: never of the worker. So the draws are the same on any number of
        processes, and fresh in each epoch.

        Effects: none. Errors: as for ``map``; ``InvalidFlow`` if ``seed`` is negative.

        >>> import flowdsl as fl
        >>> noisy = fl.from_range(3).random_map(lambda i, rng: i + rng.random())
        >>> noisy.collect() == noisy.prefetch(procs=2).collect()
        True

        Source: ``random_map`` in Grain; the generator is Philox, see ``generator``.
        """
        return flow(RandomMap(self.node, func, seed, self.node.depth))

    def filter(self, keep: Callable[[T], bool | np.bool_]) -> Flow[T, E | Unsized]:
        """Keep the elements for which ``keep`` is true.

        Effects: ``Unsized``: how many stay is known at the end of a pass. Errors: as for ``map``.

        >>> import flowdsl as fl
        >>> fl.from_range(6).filter(lambda i: i % 3 == 0).collect()
        [0, 3]

        Source: ``filter`` of functional programming; ``MapData`` returning None in tensorpack.
        """
        return flow(Filter(self.node, keep))
