"""batch, window: consecutive elements become one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.arguments import (
    BATCHED,
    PARALLEL,
    at_least,
    elsewhere,
    is_callable,
    is_flag,
    name_of,
    plain_int,
)
from flowdsl.effects import Endless, Resampled, Tag
from flowdsl.elements import Record, Stackable
from flowdsl.errors import InvalidFlow, SpecMismatch
from flowdsl.kinds import Grouping
from flowdsl.node import A, E, FlowBase, Row, T, U, flow
from flowdsl.probing import probed, spec_of_result
from flowdsl.specs import Spec, StructSpec
from flowdsl.stacking import Allocate, spec_of_batch, stack

if TYPE_CHECKING:
    from flowdsl.flow import Flow

B = TypeVar("B")
D1 = TypeVar("D1", bound=np.generic)
D2 = TypeVar("D2", bound=np.generic)
D3 = TypeVar("D3", bound=np.generic)
D4 = TypeVar("D4", bound=np.generic)


@attrs.frozen
class Stacking(Grouping[A, U, E], Generic[A, U, E]):
    """Groups of ``n`` consecutive elements; the last one may be smaller."""

    n: int = attrs.field(converter=plain_int, validator=at_least(1))
    drop_remainder: bool = attrs.field(validator=is_flag)

    def __attrs_post_init__(self) -> None:
        try:
            self.spec(probe=False)
        except SpecMismatch as error:
            raise InvalidFlow(f"{self.title}: {error}") from error

    @property
    def effects(self) -> frozenset[Tag]:
        inherited = super().effects
        rows = self.source.length
        loses = self.drop_remainder and Endless not in inherited and (not rows or rows % self.n)
        return inherited | {Resampled} if loses else inherited

    @property
    def size_of_each(self) -> int | None:
        """How many rows every group has; None where it is not known that all have as many."""
        whole = self.drop_remainder or Endless in self.source.effects
        rows = self.source.length
        return self.n if whole or (rows is not None and rows % self.n == 0) else None


@attrs.frozen
class Batch(Stacking[A, U, E], Generic[A, U, E]):
    """Groups of ``n`` consecutive elements, stacked; the last one may be smaller."""

    collate: Callable[[Sequence[A]], U] | None = attrs.field(
        validator=attrs.validators.optional(is_callable)
    )

    @property
    def title(self) -> str:
        remainder = ", drop_remainder=True" if self.drop_remainder else ""
        collate = f", collate={name_of(self.collate)}" if self.collate else ""
        return f"batch({self.n}{remainder}{collate})"

    def gather(self, group: Sequence[A], allocate: Allocate | None = None) -> U:
        if self.collate is not None:
            return self.collate(group)
        stacked: U = stack(group, allocate) if allocate else stack(group)
        return stacked

    def spec(self, probe: bool) -> Spec:
        if self.collate is not None:
            declared = spec_of_result(self.collate)
            return probed(self, declared) if probe else declared
        return spec_of_batch(self.source.spec(probe), self.size_of_each)


def _is_size(node: Window[Any, Any], field: attrs.Attribute[int], value: object) -> None:
    at_least(1)(node, field.evolve(name="size"), value)  # the method's name for it


@attrs.frozen
class Window(Grouping[A, tuple[A, ...], E | Resampled], Generic[A, E]):
    """Every run of ``n`` consecutive elements, or every ``stride``-th of them."""

    n: int = attrs.field(converter=plain_int, validator=_is_size)
    stride: int = attrs.field(converter=plain_int, validator=at_least(1))  # pyright: ignore[reportIncompatibleMethodOverride]  # a field is a property too
    drop_remainder: bool = attrs.field(default=True, init=False)

    @property
    def title(self) -> str:
        stride = f", stride={self.stride}" if self.stride != 1 else ""
        return f"window({self.n}{stride})"

    @property
    def length(self) -> int | None:
        rows = self.source.length
        return None if rows is None else max(0, (rows - self.n) // self.stride + 1)

    def gather(self, group: Sequence[A], allocate: Allocate | None = None) -> tuple[A, ...]:
        return tuple(group)

    def spec(self, probe: bool) -> Spec:
        each = self.source.spec(probe)
        return StructSpec(tuple, tuple((str(i), each) for i in range(self.n)))

    def rows(self, epoch: int) -> Iterator[Row[tuple[A, ...]]]:
        latest = deque[A](maxlen=self.n)
        for begin, (_, x) in enumerate(self.source.rows(epoch), 1 - self.n):
            latest.append(x)
            if begin >= 0 and begin % self.stride == 0:
                yield begin // self.stride, tuple(latest)


class Batching(FlowBase[T, E]):
    """Operators that group elements."""

    @overload
    def batch(
        self: FlowBase[Record[B], E], n: int, *, drop_remainder: Literal[False] = False
    ) -> Flow[B, E]: ...
    @overload
    def batch(  # type: ignore[overload-overlap]  # a bool is an int is a float: asked in this order
        self: FlowBase[bool, E], n: int, *, drop_remainder: Literal[False] = False
    ) -> Flow[NDArray[np.bool_], E]: ...
    @overload
    def batch(  # type: ignore[overload-overlap]  # a bool is an int is a float: asked in this order
        self: FlowBase[int, E], n: int, *, drop_remainder: Literal[False] = False
    ) -> Flow[NDArray[np.int64], E]: ...
    @overload
    def batch(
        self: FlowBase[float, E], n: int, *, drop_remainder: Literal[False] = False
    ) -> Flow[NDArray[np.float64], E]: ...
    @overload
    def batch(
        self: FlowBase[Stackable[D1], E], n: int, *, drop_remainder: Literal[False] = False
    ) -> Flow[NDArray[D1], E]: ...
    @overload
    def batch(
        self: FlowBase[Mapping[str, Stackable[D1]], E],
        n: int,
        *,
        drop_remainder: Literal[False] = False,
    ) -> Flow[dict[str, NDArray[D1]], E]: ...
    @overload
    def batch(
        self: FlowBase[tuple[Stackable[D1]], E], n: int, *, drop_remainder: Literal[False] = False
    ) -> Flow[tuple[NDArray[D1]], E]: ...
    @overload
    def batch(
        self: FlowBase[tuple[Stackable[D1], Stackable[D2]], E],
        n: int,
        *,
        drop_remainder: Literal[False] = False,
    ) -> Flow[tuple[NDArray[D1], NDArray[D2]], E]: ...
    @overload
    def batch(
        self: FlowBase[tuple[Stackable[D1], Stackable[D2], Stackable[D3]], E],
        n: int,
        *,
        drop_remainder: Literal[False] = False,
    ) -> Flow[tuple[NDArray[D1], NDArray[D2], NDArray[D3]], E]: ...
    @overload
    def batch(
        self: FlowBase[tuple[Stackable[D1], Stackable[D2], Stackable[D3], Stackable[D4]], E],
        n: int,
        *,
        drop_remainder: Literal[False] = False,
    ) -> Flow[tuple[NDArray[D1], NDArray[D2], NDArray[D3], NDArray[D4]], E]: ...
    @overload
    def batch(  # type: ignore[overload-overlap]  # the fixed arities are asked first
        self: FlowBase[tuple[Stackable[D1], ...], E],
        n: int,
        *,
        drop_remainder: Literal[False] = False,
    ) -> Flow[tuple[NDArray[D1], ...], E]: ...
    @overload
    def batch(
        self, n: int, *, drop_remainder: Literal[False] = False, collate: Callable[[Sequence[T]], B]
    ) -> Flow[B, E]: ...
    @overload
    def batch(
        self: FlowBase[Record[B], E], n: int, *, drop_remainder: bool
    ) -> Flow[B, E | Resampled]: ...
    @overload
    def batch(  # type: ignore[overload-overlap]  # a bool is an int is a float: asked in this order
        self: FlowBase[bool, E], n: int, *, drop_remainder: bool
    ) -> Flow[NDArray[np.bool_], E | Resampled]: ...
    @overload
    def batch(
        self: FlowBase[int, E], n: int, *, drop_remainder: bool
    ) -> Flow[NDArray[np.int64], E | Resampled]: ...
    @overload
    def batch(
        self: FlowBase[float, E], n: int, *, drop_remainder: bool
    ) -> Flow[NDArray[np.float64], E | Resampled]: ...
    @overload
    def batch(
        self: FlowBase[Stackable[D1], E], n: int, *, drop_remainder: bool
    ) -> Flow[NDArray[D1], E | Resampled]: ...
    @overload
    def batch(
        self: FlowBase[Mapping[str, Stackable[D1]], E], n: int, *, drop_remainder: bool
    ) -> Flow[dict[str, NDArray[D1]], E | Resampled]: ...
    @overload
    def batch(
        self: FlowBase[tuple[Stackable[D1]], E], n: int, *, drop_remainder: bool
    ) -> Flow[tuple[NDArray[D1]], E | Resampled]: ...
    @overload
    def batch(
        self: FlowBase[tuple[Stackable[D1], Stackable[D2]], E], n: int, *, drop_remainder: bool
    ) -> Flow[tuple[NDArray[D1], NDArray[D2]], E | Resampled]: ...
    @overload
    def batch(
        self: FlowBase[tuple[Stackable[D1], Stackable[D2], Stackable[D3]], E],
        n: int,
        *,
        drop_remainder: bool,
    ) -> Flow[tuple[NDArray[D1], NDArray[D2], NDArray[D3]], E | Resampled]: ...
    @overload
    def batch(
        self: FlowBase[tuple[Stackable[D1], Stackable[D2], Stackable[D3], Stackable[D4]], E],
        n: int,
        *,
        drop_remainder: bool,
    ) -> Flow[tuple[NDArray[D1], NDArray[D2], NDArray[D3], NDArray[D4]], E | Resampled]: ...
    @overload
    def batch(
        self: FlowBase[tuple[Stackable[D1], ...], E], n: int, *, drop_remainder: bool
    ) -> Flow[tuple[NDArray[D1], ...], E | Resampled]: ...
    @overload
    def batch(
        self, n: int, *, drop_remainder: bool, collate: Callable[[Sequence[T]], B]
    ) -> Flow[B, E | Resampled]: ...
    @elsewhere(**BATCHED, collate_fn="write collate=", batch_fn="write collate=", **PARALLEL)
    def batch(
        self: FlowBase[Any, Any],
        n: int,
        *,
        drop_remainder: bool = False,
        collate: Callable[[Sequence[Any]], Any] | None = None,
    ) -> Flow[Any, Any]:
        """Group ``n`` consecutive elements and stack their components along a new leading axis.

        Shapes: a component of shape ``s`` becomes one of shape ``(n, *s)``; the last batch is
        smaller when ``n`` does not divide the length, or is left out with ``drop_remainder``.
        Arrays and NumPy scalars keep their dtype; bool, int and float become bool, int64 and
        float64; nothing is ever cast. ``collate`` replaces the stacking: it is given the list of
        elements, and ``collate=lists`` takes components of any type.

        A tuple or NamedTuple gives a plain tuple, which ``starmap(Batch)`` names; a dict gives a
        dict, a ``Record`` the batch type that it names. Checkers follow records, dicts of arrays,
        single values, and tuples of arrays or NumPy scalars, up to four of different dtypes: write
        ``np.int64(label)`` for a number in a tuple.

        Length: that of the source divided by ``n``, rounded up, or down with ``drop_remainder``.

        Effects: none: a batch is its rows. With ``drop_remainder``, ``Resampled``.

        Errors: ``InvalidFlow`` for ``n < 1`` or elements known not to stack; an ``ElementError``
        caused by a ``SpecMismatch`` for rows that turn out not to.

        >>> import flowdsl as fl
        >>> fl.from_range(5).batch(2).collect()
        [array([0, 1]), array([2, 3]), array([4])]

        Source: ``BatchData`` in tensorpack, ``tf.train.batch``.

        Elsewhere: tensorpack ``BatchData``; tf.data ``batch``; Grain ``batch``; torchdata
        ``Batcher``.
        """
        return flow(Batch(self.node, n, drop_remainder, collate))

    @elsewhere(shift="write window(size, stride={n})", drop_remainder="all windows are whole")
    def window(self, size: int, stride: int = 1) -> Flow[tuple[T, ...], E | Resampled]:
        """Give every run of ``size`` consecutive elements as a tuple, or every ``stride``-th run.

        Windows overlap when ``stride < size``, and skip elements when ``stride > size``. All are
        whole: elements at the end that fill none are left out. ``.map(fl.stack)`` stacks them.

        Length: ``(length - size) // stride + 1``, or 0 for a flow shorter than ``size``.

        Effects: ``Resampled``: a row may be in several windows, or in none.

        Errors: ``InvalidFlow`` for ``size < 1`` or ``stride < 1``.

        >>> import flowdsl as fl
        >>> fl.from_range(5).window(3).collect()
        [(0, 1, 2), (1, 2, 3), (2, 3, 4)]
        >>> fl.from_range(7).window(2, stride=4).map(fl.stack).collect()
        [array([0, 1]), array([4, 5])]

        Source: ``window`` of tf.data, whose ``shift`` is the stride here.

        Elsewhere: tensorpack none; tf.data ``window``; Grain none; torchdata none.
        """
        return flow(Window(self.node, size, stride))
