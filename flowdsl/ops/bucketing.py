# Overloads are tried in order: a dict of functions is not a function.
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false
"""batch_by_shape: batches of elements of equal shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, TypeVar, overload

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.effects import Endless, Reordered, Resampled, Tag, Unsized
from flowdsl.elements.specs import Spec, with_sizes
from flowdsl.elements.stacking import Collate, CollateByComponent, collated
from flowdsl.elements.structure import Record
from flowdsl.errors import ElementError, SpecMismatch, raise_ending
from flowdsl.nodes import (
    BATCH_KEYWORD_ADVICE,
    PARALLEL_KEYWORD_ADVICE,
    A,
    E,
    FlowBase,
    Node,
    PassFactory,
    Row,
    T,
    Traceable,
    Traced,
    TracedReader,
    U,
    at_least,
    cached_per_node,
    deep_copied,
    describe_element,
    describe_group,
    flow,
    name_of,
    plain_int,
    probed,
    refuse_mismatch,
    rejects_keywords,
    trace,
    validate_callable,
    validate_flag,
)
from flowdsl.ops.batching import spec_of_collated, spelled_collate, validate_collate

if TYPE_CHECKING:
    from flowdsl.elements.batch_types import Batchable
    from flowdsl.flow import Flow

B = TypeVar("B")


@attrs.frozen(repr=False)
class BatchByShape(Traceable[U, E | Reordered | Unsized], Generic[A, U, E]):
    """Groups of ``n`` elements of one shape, each when it is full; then the incomplete groups."""

    source: Node[A, E]
    n: int = attrs.field(converter=plain_int, validator=at_least(1))
    selector: Callable[[A], NDArray[np.generic]] = attrs.field(validator=validate_callable)
    drop_remainder: bool = attrs.field(validator=validate_flag)
    collate: Collate | CollateByComponent | None = attrs.field(
        converter=deep_copied, validator=validate_collate
    )

    def __attrs_post_init__(self) -> None:
        refuse_mismatch(self)

    @property
    def title(self) -> str:
        remainder = ", drop_remainder=True" if self.drop_remainder else ""
        collate = spelled_collate(self.collate)
        return f"batch_by_shape({self.n}, {name_of(self.selector)}{remainder}{collate})"

    @property
    def length(self) -> None:
        return None

    @property
    def yields_all(self) -> bool:
        # With ``drop_remainder`` the last groups are in no element, but this is known at the end.
        return True

    def combined_effects(self) -> frozenset[Tag]:
        return super().combined_effects() | ({Resampled} if self.drop_remainder else frozenset())

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        rows = self.source.spec(False)
        if probe:  # the probed element does not determine the sizes of the others
            rows = with_sizes(self.source.spec(True), rows)
        always_full = self.drop_remainder or Endless in self.source.effects
        batch = spec_of_collated(rows, self.collate, self.n if always_full else None)
        return probed(self, batch) if probe and self.collate is not None else batch

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[U]]:
        return enumerate(self._gather(epoch, group) for group in self._groups(epoch, sources[0]))

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        read, waiting = TracedReader(sources[0]), dict[int, Traced[Any]]()
        for position, group in enumerate(self._groups(epoch, read)):
            waiting.update(read.latest)
            read.latest.clear()
            members = [waiting.pop(i).places for i, _ in group]
            yield position, trace(self._gather(epoch, group), members, self.collate is None)

    def _groups(self, epoch: int, source: PassFactory) -> Iterator[list[Row[A]]]:
        groups: dict[tuple[int, ...], list[Row[A]]] = {}
        for position, x in source(epoch):
            try:
                shape = self._shape(x)
            except BaseException as error:
                raise_ending(self._failure(epoch, [(position, x)]), error)
            groups.setdefault(shape, []).append((position, x))
            if len(groups[shape]) == self.n:
                yield groups.pop(shape)
        if not self.drop_remainder:
            yield from groups.values()

    def _shape(self, x: A) -> tuple[int, ...]:
        array = self.selector(x)
        if not isinstance(array, np.ndarray):
            raise SpecMismatch(
                f"the selector must return an array, whose shape the element is grouped by; "
                f"{name_of(self.selector)} returned {type(array).__name__}"
            )
        return array.shape

    def _gather(self, epoch: int, group: list[Row[A]]) -> U:
        elements = [x for _, x in group]
        try:
            batch: U = collated(elements, self.collate)
        except BaseException as error:
            raise_ending(self._failure(epoch, group), error)
        return batch

    def _failure(self, epoch: int, group: list[Row[A]]) -> ElementError:
        """An error that names the first row: the rows of a group may be far apart."""
        first = group[0][0]
        more = f" and {len(group) - 1} more of its shape" if len(group) > 1 else ""
        elements = [x for _, x in group]
        described = describe_group(elements) if more else describe_element(*elements)
        origin = self.source.origin(epoch, first) + more
        return ElementError(self.title, first, epoch, origin, described)


class ShapeBatching(FlowBase[T, E]):
    """Operators that group elements of equal shape."""

    @overload  # of options of unknown types, ``**options``
    def batch_by_shape(
        self: Batchable[B],
        n: int,
        selector: Callable[[T], NDArray[np.generic]],
        *,
        drop_remainder: Never,
    ) -> Flow[B, Any]: ...
    @overload
    def batch_by_shape(
        self: Batchable[B],
        n: int,
        selector: Callable[[T], NDArray[np.generic]],
        *,
        drop_remainder: Literal[False] = False,
    ) -> Flow[B, E | Reordered | Unsized]: ...
    @overload
    def batch_by_shape(
        self: Batchable[B],
        n: int,
        selector: Callable[[T], NDArray[np.generic]],
        *,
        drop_remainder: bool,
    ) -> Flow[B, E | Reordered | Resampled | Unsized]: ...
    @overload
    def batch_by_shape(
        self,
        n: int,
        selector: Callable[[T], NDArray[np.generic]],
        *,
        drop_remainder: Literal[False] = False,
        collate: Callable[[list[T]], B],
    ) -> Flow[B, E | Reordered | Unsized]: ...
    @overload
    def batch_by_shape(
        self,
        n: int,
        selector: Callable[[T], NDArray[np.generic]],
        *,
        drop_remainder: bool,
        collate: Callable[[list[T]], B],
    ) -> Flow[B, E | Reordered | Resampled | Unsized]: ...
    @overload
    def batch_by_shape(
        self: FlowBase[Record[B], E],
        n: int,
        selector: Callable[[T], NDArray[np.generic]],
        *,
        drop_remainder: Literal[False] = False,
        collate: CollateByComponent,
    ) -> Flow[B, E | Reordered | Unsized]: ...
    @overload
    def batch_by_shape(
        self: FlowBase[Record[B], E],
        n: int,
        selector: Callable[[T], NDArray[np.generic]],
        *,
        drop_remainder: bool,
        collate: CollateByComponent,
    ) -> Flow[B, E | Reordered | Resampled | Unsized]: ...
    @overload
    def batch_by_shape(
        self: FlowBase[Mapping[str, object], E],
        n: int,
        selector: Callable[[T], NDArray[np.generic]],
        *,
        drop_remainder: Literal[False] = False,
        collate: CollateByComponent,
    ) -> Flow[dict[str, Any], E | Reordered | Unsized]: ...
    @overload
    def batch_by_shape(
        self: FlowBase[Mapping[str, object], E],
        n: int,
        selector: Callable[[T], NDArray[np.generic]],
        *,
        drop_remainder: bool,
        collate: CollateByComponent,
    ) -> Flow[dict[str, Any], E | Reordered | Resampled | Unsized]: ...
    @overload
    def batch_by_shape(
        self,
        n: int,
        selector: Callable[[T], NDArray[np.generic]],
        *,
        drop_remainder: Literal[False] = False,
        collate: CollateByComponent,
    ) -> Flow[tuple[Any, ...], E | Reordered | Unsized]: ...
    @overload
    def batch_by_shape(
        self,
        n: int,
        selector: Callable[[T], NDArray[np.generic]],
        *,
        drop_remainder: bool,
        collate: CollateByComponent,
    ) -> Flow[tuple[Any, ...], E | Reordered | Resampled | Unsized]: ...
    @rejects_keywords(
        **{
            **BATCH_KEYWORD_ADVICE,
            **PARALLEL_KEYWORD_ADVICE,
            "batch_size": "write batch_by_shape({n}, selector)",
        }
    )
    def batch_by_shape(
        self: Any,
        n: int,
        selector: Callable[[Any], NDArray[np.generic]],
        *,
        drop_remainder: bool = False,
        collate: Collate | CollateByComponent | None = None,
    ) -> Flow[Any, Any]:
        """Group ``n`` elements in which the selected array has the same shape, and stack them.

        ``selector`` returns the array: ``c0`` to ``c7``, or a function. A batch is yielded as soon
        as its group is full. At the end of a pass, groups that are not full are yielded too, in the
        order of their first rows, or left out with ``drop_remainder``; no group reaches into the
        next pass. Up to ``n - 1`` elements of every shape are kept in memory.

        Shapes and ``collate`` are as for ``batch``; components that are not selected must have the
        same shape within a group.

        Length: known only at the end of a pass.

        Effects: ``Reordered`` and ``Unsized``; with ``drop_remainder``, ``Resampled`` too.

        Errors: ``InvalidFlow`` for ``n < 1`` or elements known not to stack; an ``ElementError``
        for rows that do not stack, or if ``selector`` does not return an array.

        >>> import flowdsl as fl, numpy as np
        >>> words = fl.from_items([np.array(w) for w in ([1, 2], [3], [4, 5], [6], [7])])
        >>> [batch.tolist() for batch in words.batch_by_shape(2, lambda word: word)]
        [[[1, 2], [4, 5]], [[3], [6]], [[7]]]

        Source: ``BatchDataByShape`` in tensorpack, whose remainders go into the next pass.

        Elsewhere: tensorpack ``BatchDataByShape``; tf.data ``group_by_window``; Grain none;
        torchdata ``Grouper``.
        """
        return flow(BatchByShape(self.node, n, selector, drop_remainder, collate))
