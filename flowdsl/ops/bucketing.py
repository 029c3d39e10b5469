"""bucket_by_length: batches of elements of similar length."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import attrs
import numpy as np

from flowdsl.effects import Reordered, Resampled, Unsized
from flowdsl.elements.batch_specs import spec_of_padded_batch
from flowdsl.elements.specs import Spec
from flowdsl.elements.stacking import Collate, Padding, pad
from flowdsl.errors import InvalidFlow, SpecMismatch
from flowdsl.nodes import (
    BATCH_KEYWORD_ADVICE,
    PARALLEL_KEYWORD_ADVICE,
    A,
    E,
    FlowBase,
    T,
    U,
    cached_per_node,
    deep_copied,
    flow,
    format_call,
    frozen_node,
    is_int,
    keyword_unless_default,
    name_of,
    probed,
    rejects_keywords,
    validate_callable,
    validate_key,
)
from flowdsl.ops.batching import spec_of_collated, spelled_collate
from flowdsl.ops.grouping import Group, Grouped, Key
from flowdsl.ops.padding import validate_padding

if TYPE_CHECKING:
    from flowdsl.elements.batch_types import Batchable
    from flowdsl.flow import Flow

B = TypeVar("B")


@frozen_node
class BucketByLength(Grouped[A, U, E | Reordered | Unsized], Generic[A, U, E]):
    """Padded batches of elements whose lengths are between the same two boundaries."""

    function: Callable[[A], int] = attrs.field(
        validator=lambda node, field, value: validate_key(node, field.evolve(name="length"), value)
    )
    boundaries: tuple[int, ...]
    batch_sizes: tuple[int, ...] | None
    """The number of elements of a full batch in each bucket; None if only ``max_tokens`` counts."""
    max_tokens: int | None
    padding: Padding = attrs.field(converter=deep_copied, validator=validate_padding)
    collate: Collate | None = attrs.field(validator=attrs.validators.optional(validate_callable))

    @property
    def title(self) -> str:
        sizes = None if self.batch_sizes is None else list(self.batch_sizes)
        return format_call(
            "bucket_by_length",
            name_of(self.function),
            str(list(self.boundaries)),
            "" if sizes is None else str(sizes),
            keyword_unless_default("max_tokens", self.max_tokens, None),
            keyword_unless_default("drop_remainder", self.drop_remainder, False),
            "" if repr(self.padding) == "0" else f"padding={self.padding!r}",
            spelled_collate(self.collate).removeprefix(", "),
        )

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        rows = self.spec_of_rows(probe)
        if self.collate is None:
            return spec_of_padded_batch(rows, None, self.padding)
        batch = spec_of_collated(rows, self.collate, None)
        return probed(self, batch) if probe else batch

    def key_and_size(self, x: A) -> tuple[Key, int]:
        size = self.function(x)
        if self.function is len and isinstance(x, tuple | dict):
            first = next(iter(x), 0) if isinstance(x, dict) else 0
            raise SpecMismatch(
                f"len of a {type(x).__name__} is its number of components, {size}; pass the length "
                f"of one, such as lambda x: len(x[{first!r}])"
            )
        if not is_int(size, 0):
            raise SpecMismatch(
                f"the length of an element must be an int >= 0; {name_of(self.function)} returned "
                f"{size!r}"
            )
        if self.max_tokens is not None and size > self.max_tokens:
            raise SpecMismatch(
                f"an element of length {size} exceeds max_tokens={self.max_tokens} by itself; cut "
                f"it with .map, or leave it out with .filter"
            )
        return bisect_right(self.boundaries, size), int(size)

    def admits(self, group: Group[A], size: int) -> bool:
        if self.max_tokens is None:
            return True
        return (len(group.rows) + 1) * max(group.largest, size) <= self.max_tokens

    def is_full(self, key: Any, group: Group[A]) -> bool:
        return self.batch_sizes is not None and len(group.rows) == self.batch_sizes[key]

    def gather(self, elements: list[A]) -> U:
        batch: U = pad(elements, self.padding) if self.collate is None else self.collate(elements)
        return batch


def _checked_boundaries(boundaries: Sequence[int]) -> tuple[int, ...]:
    is_list = isinstance(boundaries, (list, tuple, range, np.ndarray))
    if not is_list or not all(is_int(boundary, 1) for boundary in boundaries):
        raise InvalidFlow(
            f"bucket_by_length: boundaries must be a list of ints >= 1, got {boundaries!r}"
        )
    if any(a >= b for a, b in pairwise(boundaries)):
        raise InvalidFlow(f"bucket_by_length: boundaries must increase, got {list(boundaries)!r}")
    return tuple(map(int, boundaries))


def _checked_sizes(
    sizes: int | Sequence[int] | None, max_tokens: int | None, buckets: int
) -> tuple[int, ...] | None:
    if sizes is None and max_tokens is None:
        raise InvalidFlow(
            "bucket_by_length: the size of a batch is not bounded; pass batch_sizes, max_tokens, "
            "or both"
        )
    if max_tokens is not None and not is_int(max_tokens, 1):
        raise InvalidFlow(
            f"bucket_by_length: max_tokens must be an int >= 1 or None, got {max_tokens!r}"
        )
    if sizes is None:
        return None
    found: Any = (sizes,) * buckets if is_int(sizes, 1) else sizes
    if not isinstance(found, (list, tuple, np.ndarray)) or not all(is_int(n, 1) for n in found):
        raise InvalidFlow(
            f"bucket_by_length: batch_sizes must be an int >= 1, or a list of them, got {sizes!r}"
        )
    if len(found) != buckets:
        raise InvalidFlow(
            f"bucket_by_length: {buckets - 1} boundaries make {buckets} buckets, and batch_sizes "
            f"has {len(found)} sizes"
        )
    return tuple(map(int, found))


class Bucketing(FlowBase[T, E]):
    """Operators that group elements by their lengths."""

    @overload
    def bucket_by_length(
        self: Batchable[B],
        length: Callable[[T], int],
        boundaries: Sequence[int],
        batch_sizes: int | Sequence[int] | None = None,
        *,
        max_tokens: int | None = None,
        drop_remainder: Literal[False] = False,
        padding: Padding = 0,
    ) -> Flow[B, E | Reordered | Unsized]: ...
    @overload
    def bucket_by_length(
        self: Batchable[B],
        length: Callable[[T], int],
        boundaries: Sequence[int],
        batch_sizes: int | Sequence[int] | None = None,
        *,
        max_tokens: int | None = None,
        drop_remainder: bool,
        padding: Padding = 0,
    ) -> Flow[B, E | Reordered | Resampled | Unsized]: ...
    @overload
    def bucket_by_length(
        self,
        length: Callable[[T], int],
        boundaries: Sequence[int],
        batch_sizes: int | Sequence[int] | None = None,
        *,
        max_tokens: int | None = None,
        drop_remainder: Literal[False] = False,
        collate: Callable[[list[T]], B],
    ) -> Flow[B, E | Reordered | Unsized]: ...
    @overload
    def bucket_by_length(
        self,
        length: Callable[[T], int],
        boundaries: Sequence[int],
        batch_sizes: int | Sequence[int] | None = None,
        *,
        max_tokens: int | None = None,
        drop_remainder: bool,
        collate: Callable[[list[T]], B],
    ) -> Flow[B, E | Reordered | Resampled | Unsized]: ...
    @rejects_keywords(
        **{
            **BATCH_KEYWORD_ADVICE,
            **PARALLEL_KEYWORD_ADVICE,
            "element_length_func": "write bucket_by_length(length, ...)",
            "bucket_boundaries": "write boundaries={}",
            "bucket_batch_sizes": "write batch_sizes={}",
            "batch_size": "write batch_sizes={}",
            "padding_values": "write padding={}",
            "no_padding": "write collate=list, or another function of the list of elements",
            "max_sentences": "write batch_sizes={}",
        }
    )
    def bucket_by_length(
        self: Any,
        length: Callable[[Any], int],
        boundaries: Sequence[int],
        batch_sizes: int | Sequence[int] | None = None,
        *,
        max_tokens: int | None = None,
        drop_remainder: bool = False,
        padding: Padding = 0,
        collate: Collate | None = None,
    ) -> Flow[Any, Any]:
        """Group elements of similar length, and pad each batch to its longest element.

        ``length`` returns the length of an element. ``boundaries`` divide lengths into buckets: an
        element whose length is below the first boundary belongs to the first bucket, and one at or
        above the last boundary to the last bucket. ``boundaries=[]`` has one bucket, which keeps
        the order.

        ``batch_sizes`` is the number of elements in a batch: one number for all buckets, or a list
        with one for each bucket, which is one more than there are boundaries. ``max_tokens`` bounds
        the entries of a batch, with padding: its number of elements times their greatest length.
        Both may be given.

        A batch is yielded as soon as it is full. At the end of a pass, batches that are not full
        are yielded too, in the order of their first rows, or left out with ``drop_remainder``; no
        batch reaches into the next pass.

        Shapes and ``padding`` are as for ``padded_batch``. ``collate`` replaces the padding; its
        argument is the list of elements.

        Memory: for each bucket, the elements of one batch that is not full.

        Length: known only at the end of a pass.

        Effects: ``Reordered`` and ``Unsized``; with ``drop_remainder``, ``Resampled`` too.

        Errors: ``InvalidFlow`` for boundaries that do not increase, sizes that do not fit them,
        neither ``batch_sizes`` nor ``max_tokens``, or elements known not to stack; an
        ``ElementError`` for an element that is longer than ``max_tokens``, for rows that do not
        stack, or if ``length`` does not return a length.

        >>> import flowdsl as fl
        >>> words = fl.from_items([[1], [2, 3, 4, 5], [6, 7], [8, 9, 10], [11]])
        >>> for batch in words.bucket_by_length(len, [3], [2, 2]):
        ...     print(batch.tolist())
        [[1, 0], [6, 7]]
        [[2, 3, 4, 5], [8, 9, 10, 0]]
        [[11]]
        >>> [batch.shape for batch in words.bucket_by_length(len, [3], max_tokens=4)]
        [(1, 4), (2, 2), (1, 3), (1, 1)]

        Source: ``bucket_by_sequence_length`` of tf.data; ``max_tokens`` of fairseq.

        Elsewhere: tensorpack none; tf.data ``bucket_by_sequence_length``; Grain none; torchdata
        ``max_token_bucketize`` and ``bucketbatch``.
        """
        if padding != 0 and collate is not None:
            raise InvalidFlow(
                "bucket_by_length: padding and collate: write one of them, as collate replaces the "
                "padding"
            )
        edges = _checked_boundaries(boundaries)
        sizes = _checked_sizes(batch_sizes, max_tokens, len(edges) + 1)
        return flow(
            BucketByLength(
                self.node,
                drop_remainder,
                length,
                boundaries=edges,
                batch_sizes=sizes,
                max_tokens=None if max_tokens is None else int(max_tokens),
                padding=padding,
                collate=collate,
            )
        )
