# Type checkers try overloads in order. They see an overlap: a dict of functions might be callable.
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false
"""batch_by_key, batch_by_shape: batches of elements that belong together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, TypeAlias, TypeVar, overload

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.effects import Endless, Reordered, Resampled, Tag, Unsized
from flowdsl.elements.specs import Spec, with_sizes
from flowdsl.elements.stacking import Collate, CollateByComponent, collated
from flowdsl.elements.structure import Record
from flowdsl.errors import ElementError, SpecMismatch, raise_with_cause
from flowdsl.nodes import (
    BATCH_KEYWORD_ADVICE,
    PARALLEL_KEYWORD_ADVICE,
    A,
    AnyNode,
    E,
    FlowBase,
    Node,
    PassFactory,
    Restartable,
    Restarts,
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
    frozen_node,
    name_of,
    plain_int,
    probed,
    refuse_mismatch,
    rejects_keywords,
    trace,
    validate_flag,
    validate_key,
)
from flowdsl.ops.batching import spec_of_collated, spelled_collate, validate_collate

if TYPE_CHECKING:
    from flowdsl.elements.batch_types import Batchable
    from flowdsl.flow import Flow

B = TypeVar("B")


Key: TypeAlias = Hashable
"""The value that the elements of a group have in common."""


def key_of(x: A, function: Callable[[A], Key]) -> Key:
    """The key of an element.

    Raises:
        SpecMismatch: The function returned something that is not hashable, or NaN.
    """
    key = function(x)
    try:
        hash(key)
    except TypeError as error:
        raise SpecMismatch(
            f"the key must be hashable, such as an int, text, or a tuple of them; "
            f"{name_of(function)} returned {type(key).__name__}"
        ) from error
    if isinstance(key, float | np.generic) and key != key:  # NaN: each would have its own group
        raise SpecMismatch(
            f"the key must equal itself, and {key} does not; let {name_of(function)} return "
            f"another value for it, such as None"
        )
    return key


def error_of_group(node: AnyNode, epoch: int, group: Sequence[Row[Any]]) -> ElementError:
    """An error that names the first row of a group, since the rows may be far apart."""
    first = group[0][0]
    more = f" and {len(group) - 1} more of its group" if len(group) > 1 else ""
    elements = [x for _, x in group]
    described = describe_group(elements) if more else describe_element(*elements)
    origin = node.sources[0].origin(epoch, first) + more
    return ElementError(node.title, first, epoch, origin, described)


def spec_of_any(source: AnyNode, probe: bool) -> Spec:
    """The spec of all elements: sizes are not taken from a probe, which sees only one element."""
    rows = source.spec(False)
    return with_sizes(source.spec(True), rows) if probe else rows


@attrs.define(eq=False, repr=False)
class Group(Generic[A]):
    """Elements with equal keys, in order, with their positions."""

    rows: list[Row[A]] = attrs.field(factory=list[Any])
    largest: int = 0
    """The largest size of an element."""

    def add(self, row: Row[A], size: int) -> None:
        """Add an element with its position."""
        self.rows.append(row)
        self.largest = max(self.largest, size)


@frozen_node
class Grouped(Traceable[U, E], Restartable[U, E], Generic[A, U, E]):
    """Yields each group of elements with equal keys when it is full; then the incomplete groups."""

    source: Node[A, E]
    drop_remainder: bool = attrs.field(validator=validate_flag)

    def __attrs_post_init__(self) -> None:
        refuse_mismatch(self)

    @abstractmethod
    def key_and_size(self, x: A) -> tuple[Key, int]:
        """The key of an element, and its size, for ``admits``."""

    def admits(self, group: Group[A], size: int) -> bool:
        """Return False if an element of this size does not fit, and has to begin a new group."""
        del group, size
        return True

    @abstractmethod
    def is_full(self, key: Key, group: Group[A]) -> bool:
        """Return True if a group is complete."""

    @abstractmethod
    def gather(self, elements: list[A]) -> U:
        """Make one element of a group."""

    @property
    def stacks(self) -> bool:
        """True if row ``i`` of a result is exactly the ``i``-th element of its group."""
        return False

    @property
    def length(self) -> None:
        return None

    @property
    def yields_all(self) -> bool:
        # Elements that ``drop_remainder`` leaves out are known only at the end of the pass, where
        # all rows are acknowledged anyway.
        return True

    def combined_effects(self) -> frozenset[Tag]:
        effects = super().combined_effects()
        return effects | {Resampled} if self.drop_remainder else effects

    @property
    def always_full(self) -> bool:
        """True if no incomplete group is yielded."""
        return self.drop_remainder or Endless in self.source.effects

    def spec_of_rows(self, probe: bool) -> Spec:
        """The spec of the elements of the groups."""
        return spec_of_any(self.source, probe)

    def rows_from(
        self, epoch: int, sources: Sequence[PassFactory], restarts: Restarts
    ) -> Iterator[Row[U]]:
        from flowdsl.ops.held_rows import HeldRows  # here: not needed at import

        open_groups = dict[Key, Group[A]]()

        def held_positions() -> list[int]:
            return [position for group in open_groups.values() for position, _ in group.rows]

        rows = HeldRows[A](sources[0], restarts, held_positions).rows(epoch)
        groups = self._groups(epoch, rows, open_groups)
        return enumerate((self._gathered(epoch, group) for group in groups), restarts.yielded)

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        read, waiting = TracedReader(sources[0]), dict[int, Traced[Any]]()
        for position, group in enumerate(self._groups(epoch, read(epoch), open_groups={})):
            waiting.update(read.latest)
            read.latest.clear()
            members = [waiting.pop(i).places for i, _ in group]
            yield position, trace(self._gathered(epoch, group), members, self.stacks)

    def _groups(
        self, epoch: int, rows: Iterator[Row[A]], open_groups: dict[Key, Group[A]]
    ) -> Iterator[list[Row[A]]]:
        """Yield the rows of each group that is complete; keep the others in ``open_groups``."""
        for position, x in rows:
            try:
                key, size = self.key_and_size(x)
                group = open_groups.get(key)
            except BaseException as error:
                raise_with_cause(error_of_group(self, epoch, [(position, x)]), error)
            if group is not None and not self.admits(group, size):
                yield open_groups.pop(key).rows
                group = None
            if group is None:
                open_groups[key] = group = Group()
            group.add((position, x), size)
            if self.is_full(key, group):
                yield open_groups.pop(key).rows
        if not self.drop_remainder:
            yield from (group.rows for group in open_groups.values())

    def _gathered(self, epoch: int, group: list[Row[A]]) -> U:
        try:
            return self.gather([x for _, x in group])
        except BaseException as error:
            raise_with_cause(error_of_group(self, epoch, group), error)


@frozen_node
class _OfSize(Grouped[A, U, E], Generic[A, U, E]):
    """Groups of ``n`` elements with equal keys, stacked or collated."""

    n: int = attrs.field(converter=plain_int, validator=at_least(1))
    collate: Collate | CollateByComponent | None = attrs.field(
        converter=deep_copied, validator=validate_collate
    )

    def _title(self, method: str, function: Callable[[Any], object]) -> str:
        remainder = ", drop_remainder=True" if self.drop_remainder else ""
        collate = spelled_collate(self.collate)
        return f"{method}({self.n}, {name_of(function)}{remainder}{collate})"

    @property
    def stacks(self) -> bool:
        return self.collate is None

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        n = self.n if self.always_full else None
        batch = spec_of_collated(self.spec_of_rows(probe), self.collate, n)
        return probed(self, batch) if probe and self.collate is not None else batch

    def is_full(self, key: Key, group: Group[A]) -> bool:
        return len(group.rows) == self.n

    def gather(self, elements: list[A]) -> U:
        batch: U = collated(elements, self.collate)
        return batch


@frozen_node
class BatchByKey(_OfSize[A, U, E | Reordered | Unsized], Generic[A, U, E]):
    """Groups of ``n`` elements for which a function returns the same key."""

    key: Callable[[A], Key] = attrs.field(validator=validate_key)

    @property
    def title(self) -> str:
        return self._title("batch_by_key", self.key)

    def key_and_size(self, x: A) -> tuple[Key, int]:
        return key_of(x, self.key), 0


@frozen_node
class BatchByShape(_OfSize[A, U, E | Reordered | Unsized], Generic[A, U, E]):
    """Groups of ``n`` elements in which an array has the same shape."""

    selector: Callable[[A], NDArray[np.generic]] = attrs.field(validator=validate_key)

    @property
    def title(self) -> str:
        return self._title("batch_by_shape", self.selector)

    def key_and_size(self, x: A) -> tuple[Key, int]:
        array = self.selector(x)
        if not isinstance(array, np.ndarray):
            raise SpecMismatch(
                f"the selector must return an array, whose shape the element is grouped by; "
                f"{name_of(self.selector)} returned {type(array).__name__}"
            )
        return array.shape, 0


class KeyBatching(FlowBase[T, E]):
    """Operators that group elements with equal keys."""

    @overload
    def batch_by_key(
        self: Batchable[B],
        n: int,
        key: Callable[[T], Key],
        *,
        drop_remainder: Literal[False] = False,
    ) -> Flow[B, E | Reordered | Unsized]: ...
    @overload
    def batch_by_key(
        self: Batchable[B], n: int, key: Callable[[T], Key], *, drop_remainder: bool
    ) -> Flow[B, E | Reordered | Resampled | Unsized]: ...
    @overload
    def batch_by_key(
        self,
        n: int,
        key: Callable[[T], Key],
        *,
        drop_remainder: Literal[False] = False,
        collate: Callable[[list[T]], B],
    ) -> Flow[B, E | Reordered | Unsized]: ...
    @overload
    def batch_by_key(
        self,
        n: int,
        key: Callable[[T], Key],
        *,
        drop_remainder: bool,
        collate: Callable[[list[T]], B],
    ) -> Flow[B, E | Reordered | Resampled | Unsized]: ...
    @rejects_keywords(
        **{
            **BATCH_KEYWORD_ADVICE,
            **PARALLEL_KEYWORD_ADVICE,
            "batch_size": "write batch_by_key({n}, key)",
            "window_size": "write batch_by_key({n}, key)",
            "key_func": "write batch_by_key(n, key)",
            "reduce_func": "write collate=f, where f is a function of the list of elements",
        }
    )
    def batch_by_key(
        self: Any,
        n: int,
        key: Callable[[Any], Key],
        *,
        drop_remainder: bool = False,
        collate: Collate | CollateByComponent | None = None,
    ) -> Flow[Any, Any]:
        """Group ``n`` elements for which ``key`` returns the same value, and stack them.

        A batch is yielded as soon as its group is full. At the end of a pass, groups that are not
        full are yielded too, in the order of their first rows, or left out with ``drop_remainder``;
        no group reaches into the next pass. Keys must be hashable.

        Shapes and ``collate`` are as for ``batch``; ``collate=list`` yields the groups as lists.

        Memory: up to ``n - 1`` elements of every key.

        Length: known only at the end of a pass.

        Effects: ``Reordered`` and ``Unsized``; with ``drop_remainder``, ``Resampled`` too.

        Errors: ``InvalidFlow`` for ``n < 1`` or elements known not to stack; an ``ElementError``
        for rows that do not stack, or if ``key`` fails or returns a value that is not hashable.

        >>> import flowdsl as fl
        >>> words = fl.from_items(["to", "be", "or", "not", "to", "bee"])
        >>> words.batch_by_key(2, len).collect()
        [['to', 'be'], ['or', 'to'], ['not', 'bee']]

        Source: ``group_by_window`` of tf.data, whose leftovers come in the order of their keys.

        Elsewhere: tensorpack none; tf.data ``group_by_window``; Grain none; torchdata ``Grouper``.
        """
        return flow(BatchByKey(self.node, drop_remainder, n, collate, key))

    @overload  # for ``**options`` of unknown types; ``Never`` keeps other calls away
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

        Elsewhere: tensorpack ``BatchDataByShape``; tf.data none; Grain none; torchdata none.
        """
        return flow(BatchByShape(self.node, drop_remainder, n, collate, selector))
