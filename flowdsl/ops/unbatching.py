"""unbatch: replace each element by its rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

import attrs
from numpy.typing import NDArray

from flowdsl.effects import Unsized
from flowdsl.elements.batch_specs import spec_of_row
from flowdsl.elements.specs import Spec, with_sizes
from flowdsl.elements.stacking import unstack
from flowdsl.elements.structure import arguments, components
from flowdsl.errors import ElementError, InvalidFlow, SpecMismatch
from flowdsl.nodes import (
    A,
    E,
    FlowBase,
    MadeFromLatest,
    Node,
    PassFactory,
    Restartable,
    Restarts,
    Row,
    T,
    TracedReader,
    U,
    cached_per_node,
    describe_element,
    flow,
    frozen_node,
    name_of,
    probed,
    spec_of_result,
    trace,
    validate_callable,
    with_inferred,
)

if TYPE_CHECKING:
    from flowdsl.elements.batch_types import Unknown
    from flowdsl.flow import Flow

B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")

AnyBatch: TypeAlias = NDArray[Any] | list[Any] | tuple[Any, ...] | Mapping[str, Any]
"""A component with a leading axis. Types do not distinguish arrays whose rows are views or scalars:
a row is ``Any``, as in NumPy."""


@frozen_node
class Unbatch(MadeFromLatest[U, E | Unsized], Restartable[U, E | Unsized], Generic[A, U, E]):
    """The rows of every element, one by one."""

    source: Node[A, E]
    into: Callable[..., U] | None = attrs.field(
        validator=attrs.validators.optional(validate_callable)
    )

    def __attrs_post_init__(self) -> None:
        try:
            spec_of_row(self.source.spec(probe=False))
        except SpecMismatch as error:
            raise InvalidFlow(f"{self.title}: {error}") from error

    @property
    def title(self) -> str:
        return f"unbatch({name_of(self.into) if self.into else ''})"

    @property
    def length(self) -> None:
        return None

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        if self.into is not None:
            declared = spec_of_result(self.into)
            return with_inferred(self, declared, probe, _first_row)
        row = spec_of_row(self.source.spec(probe))
        # Sizes are not taken from the probed row: in a list, the other rows may have other sizes.
        return with_sizes(probed(self, row), row) if probe else row

    def rows_from(
        self, epoch: int, sources: Sequence[PassFactory], restarts: Restarts
    ) -> Iterator[Row[U]]:
        elements = self._elements(epoch, restarts.before_each(sources[0]))
        return enumerate(elements, restarts.yielded)

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        read, row, last = TracedReader(sources[0], deque(maxlen=1)), 0, None
        for position, y in self.rows(epoch, [read]):
            (latest,) = read.latest
            is_same_batch = latest is last  # ``latest`` is a new object for each batch
            row, last = row + 1 if is_same_batch else 0, latest
            _, batch = latest
            yield position, trace(y, [batch.of_row(row) if batch.of_row else batch.places])

    def _elements(self, epoch: int, source: PassFactory) -> Iterator[U]:
        for position, batch in source(epoch):
            rows = self._split(batch)
            while True:
                try:
                    row = next(rows)
                except StopIteration:
                    break
                except Exception as error:  # name the batch: only the batch has a position
                    origin = self.source.origin(epoch, position)
                    described = describe_element(batch)
                    raise ElementError(self.title, position, epoch, origin, described) from error
                yield row

    def _split(self, batch: Any) -> Iterator[U]:
        for row in unstack(batch):
            if self.into is None:
                yield row
            elif isinstance(batch, tuple):
                yield self.into(*row)
            elif isinstance(batch, dict):
                yield self.into(**row)
            elif (parts := components(batch)) is not None:
                values = dict(zip((name for name, _ in parts), row, strict=True))
                yield self.into(**arguments(type(batch), values))
            else:
                yield self.into(row)


def _first_row(batches: Spec, batch: Any) -> tuple[Spec, Any] | None:
    """The spec of rows, and the first row of a batch; None if the batch is empty."""
    row: list[Any] = list(islice(unstack(batch), 1))
    return (spec_of_row(batches), row[0]) if row else None


class Unbatching(FlowBase[T, E]):
    """Operators that split batches into rows."""

    @overload
    def unbatch(self: FlowBase[Unknown, E], into: None = None) -> Flow[Any, E | Unsized]: ...
    @overload
    def unbatch(self: FlowBase[list[A], E], into: None = None) -> Flow[A, E | Unsized]: ...
    @overload
    def unbatch(self: FlowBase[NDArray[Any], E], into: None = None) -> Flow[Any, E | Unsized]: ...
    @overload
    def unbatch(
        self: FlowBase[Mapping[str, list[A]], E], into: None = None
    ) -> Flow[dict[str, A], E | Unsized]: ...
    @overload
    def unbatch(
        self: FlowBase[Mapping[str, AnyBatch], E], into: None = None
    ) -> Flow[dict[str, Any], E | Unsized]: ...
    @overload
    def unbatch(
        self: FlowBase[tuple[Unknown, ...], E], into: None = None
    ) -> Flow[tuple[Any, ...], E | Unsized]: ...
    @overload
    def unbatch(
        self: FlowBase[tuple[list[A]], E], into: None = None
    ) -> Flow[tuple[A], E | Unsized]: ...
    @overload
    def unbatch(
        self: FlowBase[tuple[list[A], list[B]], E], into: None = None
    ) -> Flow[tuple[A, B], E | Unsized]: ...
    @overload
    def unbatch(
        self: FlowBase[tuple[list[A], list[B], list[C]], E], into: None = None
    ) -> Flow[tuple[A, B, C], E | Unsized]: ...
    @overload
    def unbatch(
        self: FlowBase[tuple[list[A], list[B], list[C], list[D]], E], into: None = None
    ) -> Flow[tuple[A, B, C, D], E | Unsized]: ...
    @overload
    def unbatch(
        self: FlowBase[tuple[AnyBatch], E], into: None = None
    ) -> Flow[tuple[Any], E | Unsized]: ...
    @overload
    def unbatch(
        self: FlowBase[tuple[AnyBatch, AnyBatch], E], into: None = None
    ) -> Flow[tuple[Any, Any], E | Unsized]: ...
    @overload
    def unbatch(
        self: FlowBase[tuple[AnyBatch, AnyBatch, AnyBatch], E], into: None = None
    ) -> Flow[tuple[Any, Any, Any], E | Unsized]: ...
    @overload
    def unbatch(
        self: FlowBase[tuple[AnyBatch, AnyBatch, AnyBatch, AnyBatch], E], into: None = None
    ) -> Flow[tuple[Any, Any, Any, Any], E | Unsized]: ...
    @overload
    def unbatch(
        self: FlowBase[tuple[AnyBatch, AnyBatch, AnyBatch, AnyBatch, AnyBatch], E],
        into: None = None,
    ) -> Flow[tuple[Any, Any, Any, Any, Any], E | Unsized]: ...
    @overload
    def unbatch(
        self: FlowBase[tuple[AnyBatch, AnyBatch, AnyBatch, AnyBatch, AnyBatch, AnyBatch], E],
        into: None = None,
    ) -> Flow[tuple[Any, Any, Any, Any, Any, Any], E | Unsized]: ...
    @overload
    def unbatch(
        self: FlowBase[
            tuple[AnyBatch, AnyBatch, AnyBatch, AnyBatch, AnyBatch, AnyBatch, AnyBatch], E
        ],
        into: None = None,
    ) -> Flow[tuple[Any, Any, Any, Any, Any, Any, Any], E | Unsized]: ...
    @overload
    def unbatch(
        self: FlowBase[
            tuple[AnyBatch, AnyBatch, AnyBatch, AnyBatch, AnyBatch, AnyBatch, AnyBatch, AnyBatch], E
        ],
        into: None = None,
    ) -> Flow[tuple[Any, Any, Any, Any, Any, Any, Any, Any], E | Unsized]: ...
    @overload
    def unbatch(
        self: FlowBase[tuple[AnyBatch, ...], E], into: None = None
    ) -> Flow[tuple[Any, ...], E | Unsized]: ...
    @overload
    def unbatch(self, into: Callable[..., B]) -> Flow[B, E | Unsized]: ...
    def unbatch(self: FlowBase[Any, Any], into: Callable[..., Any] | None = None) -> Flow[Any, Any]:
        """Split every element into rows along its leading axis: the inverse of ``batch``.

        Shapes: a component of shape ``(n, *s)`` is split into ``n`` views of shape ``s``; a
        component of shape ``(n,)`` into NumPy scalars. All components of an element must have the
        same leading size. Lists are split like arrays, so that ``collate=list`` and ``lists`` can
        be undone too.

        Rows of a tuple are tuples, rows of a dict are dicts, rows of a NamedTuple have its class,
        and rows of a record are plain tuples. ``into`` is called with the components of each row,
        by position for a tuple, by name for a dict or record: ``unbatch(Sample)`` yields instances
        of ``Sample``.

        Length: known only at the end of a pass.

        Effects: ``Unsized``.

        Errors: ``InvalidFlow`` for elements known to have no leading axis; an ``ElementError`` that
        names the batch if its components differ in their leading size, or if ``into`` raises.

        >>> import flowdsl as fl
        >>> fl.from_range(5).batch(2).unbatch(int).collect()
        [0, 1, 2, 3, 4]

        Source: ``enqueue_many`` in ``tf.train.batch``; ``unbatch`` in tf.data.

        Elsewhere: tensorpack none; tf.data ``unbatch``; Grain none; torchdata ``Unbatcher``.
        """
        return flow(Unbatch(self.node, into))
