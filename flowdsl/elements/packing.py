"""Packing: put several sequences, one after the other, into a row of fixed length.

A sequence is an array or a list of numbers, or a tuple, dict or record of several that are equally
long, such as tokens and their weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import getitem, sub
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.arrays import arrays_of_lists, arrays_of_tensors, dtype_of_all, rows_differ
from flowdsl.elements.batch_specs import spec_of_padded_batch
from flowdsl.elements.specs import UNKNOWN, ArraySpec, Spec, StructSpec
from flowdsl.elements.stacking import (
    Padding,
    batch_of_columns,
    by_component,
    check_single,
    checked_padding,
    columns_of,
    leading_sizes,
)
from flowdsl.errors import SpecMismatch

B_co = TypeVar("B_co", covariant=True)


class Packed(NamedTuple, Generic[B_co]):
    """A row of several sequences, as ``pack`` makes it; or a batch of such rows.

    ``segment_ids[:, None] == segment_ids`` is the mask that keeps attention within a sequence, and
    ``segment_ids > 0`` is True for all entries except padding.
    """

    tokens: B_co
    """The sequences one after the other, then padding, in the structure of the elements."""
    segment_ids: NDArray[np.int32]
    """The number of each entry's sequence in the row, from 1; 0 for padding."""
    positions: NDArray[np.int32]
    """The number of each entry in its sequence, from 0, counted within the row; 0 for padding."""


class Span(NamedTuple):
    """The entries of a sequence from ``start`` up to ``stop``."""

    sequence: Any
    start: int
    stop: int


def sequence_length(sequence: Any) -> int:
    """The number of entries of a sequence.

    Raises:
        SpecMismatch: It is not a sequence, or its components differ in length.
    """
    if type(sequence) is np.ndarray and sequence.ndim:
        return len(sequence)
    sizes = leading_sizes(sequence, "element")
    if not sizes:
        raise SpecMismatch("element: it has no components, so its length is unknown")
    (first, length), *others = sizes
    for name, size in others:
        if size != length:
            raise SpecMismatch(
                f"{first} has {length} entries, {name} has {size}: the components of a sequence "
                f"must be equally long"
            )
    return length


def packed(spans: Sequence[Span], n: int, padding: Padding) -> Packed[Any]:
    """Put spans, which must not be empty, into a row of ``n`` entries.

    Raises:
        SpecMismatch: They differ in structure, dtype, or the shape of an entry; or the padding does
            not fit them.

    >>> packed([Span([5, 6, 7], 1, 3), Span([8], 0, 1)], 4, 0)
    Packed(tokens=array([6, 7, 8, 0]), segment_ids=array([1, 1, 2, 0], dtype=int32),\
 positions=array([0, 1, 0, 0], dtype=int32))
    """
    sequences, starts, stops = zip(*spans, strict=True)
    tokens = _joined(sequences, list(map(slice, starts, stops)), n, padding, "element")
    return Packed(tokens, *_numbered(list(map(sub, stops, starts)), n))


_FEW = 12
"""Up to this number of spans, assigning one after the other is faster than ``np.repeat``."""


def _numbered(lengths: Sequence[int], n: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the ``segment_ids`` and the ``positions`` of spans of these lengths."""
    segment_ids, positions = np.zeros(n, np.int32), np.zeros(n, np.int32)
    if len(lengths) <= _FEW:
        numbers, stop = _counting(n), 0
        for segment, length in enumerate(lengths, 1):
            start, stop = stop, stop + length
            segment_ids[start:stop] = segment
            positions[start:stop] = numbers[:length]
    else:
        counts, used = np.array(lengths), sum(lengths)
        segment_ids[:used] = np.repeat(np.arange(1, len(lengths) + 1), counts)
        positions[:used] = np.arange(used) - np.repeat(counts.cumsum() - counts, counts)
    return segment_ids, positions


@lru_cache(maxsize=8)
def _counting(n: int) -> NDArray[np.int32]:
    """Return the numbers from 0 to ``n - 1``."""
    return np.arange(n, dtype=np.int32)


def _joined(
    sequences: Sequence[Any], slices: Sequence[slice], n: int, padding: Padding, at: str
) -> Any:
    kind = type(sequences[0])
    if len(set(map(type, sequences))) > 1:
        raise rows_differ(sequences, at)
    if kind is list:
        arrays = arrays_of_lists(
            [items[part] for items, part in zip(sequences, slices, strict=True)], at
        )
        if arrays is None:
            raise _not_a_sequence("text", at)
        return _concatenated(arrays, n, padding, at)
    columns = None if kind is np.ndarray else columns_of(sequences, at)
    if columns is None:
        wholes = sequences if kind is np.ndarray else arrays_of_tensors(sequences, at)
        return _concatenated(list(map(getitem, wholes, slices)), n, padding, at)
    paddings = by_component("padding", padding, [name for name, _ in columns], kind, at)
    joined = {
        name: _joined(column, slices, n, paddings[name], f"{at}.{name}") for name, column in columns
    }
    return batch_of_columns(kind, joined)


_checked_padding = lru_cache(maxsize=256, typed=True)(checked_padding)


def _concatenated(
    arrays: Sequence[NDArray[Any]], n: int, padding: Padding, at: str
) -> NDArray[Any]:
    dtype, entry = dtype_of_all(arrays, at), arrays[0].shape[1:]
    if any(array.shape[1:] != entry for array in arrays):
        raise rows_differ(arrays, at)
    fill = _checked_padding(check_single(padding, at), dtype, at)
    row = np.empty((n, *entry), dtype)
    used = sum(map(len, arrays))
    np.concatenate(arrays, out=row[:used])
    row[used:] = fill
    return row


def spec_of_packed(spec: Spec, n: int, padding: Padding) -> Spec:
    """The spec of the result of ``packed``, from the spec of the sequences.

    Raises:
        SpecMismatch: Elements of this spec are not sequences, or the padding does not fit them.
    """
    ints = ArraySpec(np.dtype(np.int32), (n,))
    tokens = _of_tokens(spec_of_padded_batch(spec, None, padding), n, "element")
    return StructSpec(Packed, (("tokens", tokens), ("segment_ids", ints), ("positions", ints)))


def _of_tokens(batch: Spec, n: int, at: str) -> Spec:
    """The spec of packed sequences, from the spec of a batch of them."""
    if isinstance(batch, StructSpec):
        fields = tuple((name, _of_tokens(part, n, f"{at}.{name}")) for name, part in batch.fields)
        return StructSpec(batch.form, fields)
    if batch == UNKNOWN:
        return UNKNOWN
    if not isinstance(batch, ArraySpec):
        raise _not_a_sequence("text", at)
    if batch.shape is None:
        return batch
    if len(batch.shape) < 2:
        raise _not_a_sequence("a single number", at)
    return ArraySpec(batch.dtype, (n, *batch.shape[2:]))


def _not_a_sequence(what: str, at: str) -> SpecMismatch:
    return SpecMismatch(
        f"{at}: {what} is not a sequence that can be packed; arrays and lists of numbers are, such "
        f"as the tokens of a text: make them with .map"
    )
