# Type checkers try overloads in order. They see an overlap: a dict of functions might be callable.
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false
"""batch: combine consecutive elements into one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, TypeAlias, TypeVar, overload

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.effects import Endless, Resampled, Tag
from flowdsl.elements.batch_specs import spec_collated_by_component, spec_of_batch
from flowdsl.elements.preallocated import Allocate, BatchRows
from flowdsl.elements.specs import ArraySpec, Spec, StructSpec
from flowdsl.elements.stacking import Collate, CollateByComponent, collated
from flowdsl.elements.structure import Record
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import (
    PARALLEL_KEYWORD_ADVICE,
    POSITION_LIMIT,
    A,
    AnyNode,
    Batched,
    E,
    FlowBase,
    T,
    U,
    at_least,
    cached_per_node,
    deep_copied,
    flow,
    frozen_node,
    method_name,
    name_of,
    plain_int,
    probed,
    refuse_mismatch,
    rejects_keywords,
    spec_of_result,
    validate_flag,
)
from flowdsl.ops.rows_of_arrays import copied, moved_rows_of, spans_of

if TYPE_CHECKING:
    from flowdsl.elements.batch_types import Batchable
    from flowdsl.flow import Flow

B = TypeVar("B")


@frozen_node
class Stacking(Batched[A, U, E], Generic[A, U, E]):
    """Groups of ``n`` consecutive elements; the last one may be smaller."""

    n: int = attrs.field(converter=plain_int, validator=at_least(1))
    drop_remainder: bool = attrs.field(validator=validate_flag)

    def __attrs_post_init__(self) -> None:
        refuse_mismatch(self)

    def combined_effects(self) -> frozenset[Tag]:
        inherited = super().combined_effects()
        rows = self.source.length
        may_lose = not rows or rows % self.n  # unless ``n`` is known to divide the number of rows
        loses = self.drop_remainder and Endless not in inherited and may_lose
        return inherited | {Resampled} if loses else inherited

    @property
    def size_of_each(self) -> int | None:
        """The number of rows in every group; None if groups may differ in it."""
        rows = self.source.length
        divides = rows is not None and rows % self.n == 0
        all_full = self.drop_remainder or Endless in self.source.effects or divides
        return self.n if all_full else None


def validate_collate(node: AnyNode, field: attrs.Attribute[Any], value: object) -> None:
    """An attrs validator: the field must be a function, or a dict or tuple of functions."""
    parts = tuple(value.values()) if isinstance(value, dict) else value
    functions: tuple[object, ...] = parts if isinstance(parts, tuple) else (parts,)
    if not all(callable(func) or func is None for func in functions):
        raise InvalidFlow(
            f"{method_name(node)}: collate must be a function of the list of rows, or a dict or "
            f"tuple of such functions, one for each component; got {value!r}"
        )


def spelled_collate(collate: Collate | CollateByComponent | None) -> str:
    """The part of a title for ``collate``; empty for None."""
    if collate is None:
        return ""
    if isinstance(collate, tuple):
        names = ", ".join(map(_named, collate))
        comma = "," if len(collate) == 1 else ""
        return f", collate=({names}{comma})"
    if isinstance(collate, dict):
        parts = (f"{name!r}: {_named(func)}" for name, func in collate.items())
        return f", collate={{{', '.join(parts)}}}"
    return f", collate={name_of(collate)}"


def _named(func: Collate | None) -> str:
    return "None" if func is None else name_of(func)


def spec_of_collated(
    rows: Spec, collate: Collate | CollateByComponent | None, n: int | None
) -> Spec:
    """The spec of a batch, from the spec of its rows.

    Raises:
        SpecMismatch: The rows do not stack, or lack components that ``collate`` names.
    """
    if collate is None:
        return spec_of_batch(rows, n)
    return (
        spec_of_result(collate)
        if callable(collate)
        else spec_collated_by_component(rows, collate, n)
    )


@frozen_node
class Batch(Stacking[A, U, E], Generic[A, U, E]):
    """Groups of ``n`` consecutive elements, stacked; the last one may be smaller."""

    collate: Collate | CollateByComponent | None = attrs.field(
        converter=deep_copied, validator=validate_collate
    )

    @property
    def title(self) -> str:
        remainder = ", drop_remainder=True" if self.drop_remainder else ""
        return f"batch({self.n}{remainder}{spelled_collate(self.collate)})"

    @property
    def stacks(self) -> bool:
        return self.collate is None

    def group(self, size: int, allocate: Allocate | None = None) -> list[A]:
        return BatchRows(size, allocate or np.empty) if self.collate is None else []

    def gather(self, group: Sequence[A], allocate: Allocate | None = None) -> U:
        rows = group if isinstance(group, BatchRows) else list(group)
        batch: U = collated(rows, self.collate, allocate)
        return batch

    def open_views(self) -> Callable[[int, int], U] | None:
        if not self.stacks:
            return None
        n, length = self.n, POSITION_LIMIT if self.source.length is None else self.source.length
        if (spans := spans_of(self.source)) is not None:
            return lambda epoch, i: copied(spans(i * n, min(i * n + n, length)))
        if (moved := moved_rows_of(self.source)) is not None:
            return lambda epoch, i: moved(epoch, i * n, min(i * n + n, length))
        return None

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        batch = spec_of_collated(self.source.spec(probe), self.collate, self.size_of_each)
        return probed(self, batch) if probe and self.collate is not None else batch


Remainder: TypeAlias = Literal["fill"]
"""The treatment of a last batch with too few rows."""


@frozen_node
class FilledBatch(Batch[A, tuple[Any, NDArray[np.bool_]], E], Generic[A, E]):
    """A ``Batch`` whose last group is filled, with a mask of the real rows."""

    drop_remainder: bool = attrs.field(default=False, init=False)

    @property
    def title(self) -> str:
        return f'batch({self.n}, remainder="fill"{spelled_collate(self.collate)})'

    @property
    def size_of_each(self) -> int:
        return self.n

    def open_views(self) -> None:
        return None  # views cannot have the rows that are added to the last batch

    def group(self, size: int, allocate: Allocate | None = None) -> list[A]:
        return super().group(self.n, allocate)

    def gather(
        self, group: Sequence[A], allocate: Allocate | None = None
    ) -> tuple[Any, NDArray[np.bool_]]:
        rows = group if isinstance(group, BatchRows) else list(group)
        mask = np.arange(self.n) < len(rows)
        rows.extend([group[-1]] * (self.n - len(rows)))
        return collated(rows, self.collate, allocate), mask

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        batch = spec_of_collated(self.source.spec(probe), self.collate, self.n)
        filled = StructSpec(tuple, (("0", batch), ("1", ArraySpec(np.dtype(np.bool_), (self.n,)))))
        return probed(self, filled) if probe and self.collate is not None else filled


def validate_remainder(operator: str, remainder: object, drop_remainder: bool) -> None:
    """Check the argument ``remainder`` of an operator.

    Raises:
        InvalidFlow: It is not None or "fill", or contradicts ``drop_remainder``.
    """
    if remainder not in (None, "fill"):
        raise InvalidFlow(
            f"{operator}: remainder must be None or 'fill', got {remainder!r}; a smaller last "
            f"batch is kept, unless drop_remainder=True leaves it out"
        )
    if remainder is not None and drop_remainder:
        raise InvalidFlow(
            f"{operator}: remainder='fill' fills the last batch, and drop_remainder=True leaves it "
            f"out: write one of them"
        )


class Batching(FlowBase[T, E]):
    """Operators that group elements."""

    # For ``batch(n, **options)`` with options of unknown type: pyright finds no other overload that
    # accepts them all. ``remainder: Never`` keeps other calls away.
    @overload
    def batch(self: Batchable[B], n: int, *, remainder: Never, **options: Any) -> Flow[B, Any]: ...
    @overload
    def batch(
        self: Batchable[B],
        n: int,
        *,
        drop_remainder: Literal[False] = False,
        remainder: None = None,
    ) -> Flow[B, E]: ...
    @overload
    def batch(
        self: Batchable[B], n: int, *, remainder: Remainder
    ) -> Flow[tuple[B, NDArray[np.bool_]], E]: ...
    @overload
    def batch(
        self, n: int, *, remainder: Remainder, collate: Callable[[list[T]], B]
    ) -> Flow[tuple[B, NDArray[np.bool_]], E]: ...
    @overload
    def batch(
        self, n: int, *, remainder: Remainder, collate: CollateByComponent
    ) -> Flow[tuple[Any, NDArray[np.bool_]], E]: ...
    @overload
    def batch(
        self: Batchable[B], n: int, *, drop_remainder: bool, remainder: None = None
    ) -> Flow[B, E | Resampled]: ...
    @overload
    def batch(
        self,
        n: int,
        *,
        drop_remainder: Literal[False] = False,
        remainder: None = None,
        collate: Callable[[list[T]], B],
    ) -> Flow[B, E]: ...
    @overload
    def batch(
        self,
        n: int,
        *,
        drop_remainder: bool,
        remainder: None = None,
        collate: Callable[[list[T]], B],
    ) -> Flow[B, E | Resampled]: ...
    @overload
    def batch(
        self: FlowBase[Record[B], E],
        n: int,
        *,
        drop_remainder: Literal[False] = False,
        remainder: None = None,
        collate: CollateByComponent,
    ) -> Flow[B, E]: ...
    @overload
    def batch(
        self: FlowBase[Record[B], E],
        n: int,
        *,
        drop_remainder: bool,
        remainder: None = None,
        collate: CollateByComponent,
    ) -> Flow[B, E | Resampled]: ...
    @overload
    def batch(
        self: FlowBase[Mapping[str, object], E],
        n: int,
        *,
        drop_remainder: Literal[False] = False,
        remainder: None = None,
        collate: CollateByComponent,
    ) -> Flow[dict[str, Any], E]: ...
    @overload
    def batch(
        self: FlowBase[Mapping[str, object], E],
        n: int,
        *,
        drop_remainder: bool,
        remainder: None = None,
        collate: CollateByComponent,
    ) -> Flow[dict[str, Any], E | Resampled]: ...
    @overload
    def batch(
        self,
        n: int,
        *,
        drop_remainder: Literal[False] = False,
        remainder: None = None,
        collate: CollateByComponent,
    ) -> Flow[tuple[Any, ...], E]: ...
    @overload
    def batch(
        self, n: int, *, drop_remainder: bool, remainder: None = None, collate: CollateByComponent
    ) -> Flow[tuple[Any, ...], E | Resampled]: ...
    @rejects_keywords(  # type: ignore[misc]  # nothing reaches the first overload
        batch_size="write {name}({n})",
        drop_last="write drop_remainder={}",
        collate_fn="write collate=",
        batch_fn="write collate=",
        use_list="write collate=fl.lists for lists; without it, rows become arrays",
        **PARALLEL_KEYWORD_ADVICE,
    )
    def batch(  # pyright: ignore[reportInconsistentOverload]  # nothing reaches the first
        self: Any,
        n: int,
        *,
        drop_remainder: bool = False,
        remainder: Remainder | None = None,
        collate: Collate | CollateByComponent | None = None,
    ) -> Flow[Any, Any]:
        """Group ``n`` consecutive elements and stack their components along a new leading axis.

        Shapes: a component of shape ``s`` becomes one of shape ``(n, *s)``; the last batch is
        smaller when ``n`` does not divide the length, or is left out with ``drop_remainder``.
        Arrays and NumPy scalars keep their dtype; bool, int and float become bool, int64 and
        float64, complex complex128; values are never cast. A list of numbers is stacked as an
        array; use ``padded_batch`` for ragged lists. A tensor of another library is stacked as an
        array too, if it is in CPU memory. Text becomes a list.

        At run time, a batch of NamedTuples has their class, and a batch of attrs or dataclass
        instances is a NamedTuple with their fields: ``batch.image``. Type checkers see plain
        tuples; map to a class of your own, ``starmap(MyBatch)``, to have named fields there too. A
        batch of dicts is a dict, and a batch of ``Record`` has the batch type that the class names.
        Type checkers support tuples of up to eight components.

        With ``remainder="fill"`` every batch has ``n`` rows, for compilers that want fixed shapes:
        an element is ``(batch, mask)``, where the mask, ``bool[n]``, is False for the rows that
        fill the last batch. These repeat its last row, so they are valid input; multiply the losses
        of the rows by the mask.

        ``collate`` replaces the stacking by a function of the list of elements; ``collate=lists``
        accepts components of any type. A dict or tuple has a function for each component, which is
        called with the list of its values. Components that a dict leaves out, and components with
        None, are stacked.

        Length: the source's divided by ``n``, rounded up, or down with ``drop_remainder``.

        Effects: none, as a batch counts as its rows, without the rows that fill it. With
        ``drop_remainder``, ``Resampled``.

        Errors: ``InvalidFlow`` for ``n < 1``, another ``remainder``, one with ``drop_remainder``,
        or elements known not to stack; an ``ElementError`` caused by a ``SpecMismatch`` for rows
        that do not stack.

        >>> import flowdsl as fl
        >>> fl.from_range(5).batch(2).collect()
        [array([0, 1]), array([2, 3]), array([4])]
        >>> fl.from_range(3).batch(2, remainder="fill").collect()
        [(array([0, 1]), array([ True,  True])), (array([2, 2]), array([ True, False]))]
        >>> words = fl.from_items([("to", [1.5]), ("be", [0.5])])
        >>> words.batch(2).collect()
        [(['to', 'be'], array([[1.5],
               [0.5]]))]
        >>> words.batch(2, collate=("-".join, None)).map(fl.c0).collect()
        ['to-be']

        Source: ``BatchData`` in tensorpack, ``tf.train.batch``; ``batch_and_pad`` of Grain.

        Elsewhere: tensorpack ``BatchData``; tf.data ``batch``; Grain ``batch``; torchdata
        ``Batcher``.
        """
        validate_remainder("batch", remainder, drop_remainder)
        if remainder == "fill":
            return flow(FilledBatch(self.node, n, collate))
        return flow(Batch(self.node, n, drop_remainder, collate))
