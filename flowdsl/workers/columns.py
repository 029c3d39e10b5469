"""Columns: the small arrays of many elements are sent as one array.

The problem: a flow of tokens or measurements sends thousands of small arrays between processes.
Pickle handles each of them by itself, with its dtype, shape and flags, which takes about 3
microseconds to write and 2 to read: longer than many functions need to compute the array.

The naive way is to send one array, and to return views of it. But a user who keeps one element,
such as a shuffle buffer, would then keep the memory of a whole task.

The choice: arrays that differ only in their contents and lengths are joined, and the receiver
copies each of them into memory of its own, which takes 0.3 microseconds. Tuples and dicts are
transposed if one of their columns can be joined. All other elements are pickled as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain, pairwise
from math import prod
from operator import attrgetter
from typing import Any, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.structure import is_named_tuple
from flowdsl.workers.slabs import WORTH_SHARING

Allocate: TypeAlias = Callable[[Sequence[int], np.dtype[Any]], NDArray[Any]]

FEWEST = 4
"""Fewer elements are pickled as they are."""
DEPTH = 8
"""Structures within more structures than this are pickled as they are."""


def columns_of(elements: list[Any], allocate: Allocate = np.empty) -> object:
    """Return an object with a smaller pickle, which is restored as a list of equal elements.

    Elements whose arrays cannot be joined are returned as they are. ``allocate`` returns the memory
    for a joined array.

    >>> import pickle
    >>> tokens = [(np.arange(n), f"text {n}") for n in range(100)]
    >>> columns = columns_of(tokens)
    >>> len(pickle.dumps(columns)) < len(pickle.dumps(tokens))
    True
    >>> pickle.loads(pickle.dumps(columns))[2]
    (array([0, 1]), 'text 2')
    """
    if len(elements) < FEWEST:
        return elements
    columns = _joined(elements, allocate, DEPTH)
    return elements if columns is None else columns


@attrs.frozen(eq=False)
class _Column:
    """A list of arrays, or of NumPy scalars, as one array."""

    values: NDArray[Any]
    """Arrays of one shape along a new first axis; scalars; or arrays joined along the first axis.
    """
    lengths: list[int] | None
    """The lengths of the arrays that are joined along their first axis."""
    writeable: bool

    def __reduce__(self) -> tuple[Any, ...]:
        return _separate, (self.values, self.lengths, self.writeable)


@attrs.frozen(eq=False)
class _Structures:
    """A list of tuples, NamedTuples or dicts as columns."""

    restore: Callable[..., list[Any]]
    form: object
    """What ``restore`` needs besides the columns: the class or the keys."""
    columns: list[object]

    def __reduce__(self) -> tuple[Any, ...]:
        return self.restore, (self.form, self.columns)


def _joined(elements: Sequence[Any], allocate: Allocate, depth: int) -> object | None:
    """Return the elements as columns; None if nothing can be joined."""
    kind = type(elements[0])
    if kind is np.ndarray:
        return _joined_arrays(elements, allocate)
    if issubclass(kind, np.generic):
        return _joined_scalars(elements, kind)
    restorer = _restorer(elements, kind) if depth else None
    if restorer is None:
        return None
    restore, form = restorer
    values = (element.values() for element in elements) if kind is dict else elements
    columns, any_joined = list[object](), False
    for column in zip(*values, strict=True):
        joined = _joined(column, allocate, depth - 1)
        any_joined |= joined is not None
        columns.append(column if joined is None else joined)
    return _Structures(restore, form, columns) if any_joined else None


def _restorer(
    elements: Sequence[Any], kind: type
) -> tuple[Callable[..., list[Any]], object] | None:
    """Return what restores the elements from columns; None if they have no common structure."""
    if not issubclass(kind, tuple | dict) or set(map(type, elements)) != {kind}:
        return None
    if kind is dict:
        keys = tuple(elements[0])
        # Equal keys may be of different types.
        are_texts = set(map(type, chain.from_iterable(elements))) == {str}
        same = are_texts and all(tuple(element) == keys for element in elements)
        return (_dicts, keys) if same else None
    if len(set(map(len, elements))) > 1:
        return None
    if kind is tuple:
        return _tuples, None
    return (_named_tuples, kind) if is_named_tuple(kind) else None


def _joined_arrays(arrays: Sequence[Any], allocate: Allocate) -> _Column | None:
    if set(map(type, arrays)) != {np.ndarray} or len(set(map(id, arrays))) < len(arrays):
        return None  # pickle sends an array that occurs several times only once
    dtypes = {id(dtype): dtype for dtype in map(_dtype, arrays)}  # usually one object
    dtype = arrays[0].dtype
    if not all(_is_plain(other) and other == dtype for other in dtypes.values()):
        return None
    layouts = {(flags.c_contiguous, flags.writeable) for flags in map(_flags, arrays)}
    if len(layouts) > 1:
        return None
    ((is_contiguous, writeable),) = layouts
    shapes = list(map(_shape, arrays))
    shape, count = shapes[0], len(shapes)
    if not is_contiguous or not shape:
        return None
    if is_uniform := len(set(shapes)) == 1:
        lengths, joined_shape = None, (count * shape[0], *shape[1:])
    elif len({shape[1:] for shape in shapes if shape}) == 1 and all(shapes):
        lengths = list(map(len, arrays))
        joined_shape = (sum(lengths), *shape[1:])
    else:
        return None
    if prod(joined_shape) * dtype.itemsize >= count * WORTH_SHARING:
        return None  # pickle sends large arrays without a copy
    values = allocate(joined_shape, dtype)
    np.concatenate(arrays, out=values)
    return _Column(values.reshape(count, *shape) if is_uniform else values, lengths, writeable)


_dtype, _flags, _shape = attrgetter("dtype"), attrgetter("flags"), attrgetter("shape")


def _joined_scalars(scalars: Sequence[Any], kind: type[np.generic]) -> _Column | None:
    if set(map(type, scalars)) != {kind} or not _is_plain(scalars[0].dtype):
        return None
    return _Column(np.array(scalars, scalars[0].dtype), None, True)


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Return True if concatenating arrays of this dtype keeps it unchanged."""
    return dtype.kind in "biufc" and dtype.metadata is None


def _separate(values: NDArray[Any], lengths: list[int] | None, writeable: bool) -> list[Any]:
    if lengths is not None:
        bounds = pairwise(accumulate(lengths, initial=0))
        arrays = [values[start:stop].copy() for start, stop in bounds]
    elif values.ndim == 1:
        return list(values)
    else:
        arrays = [array.copy() for array in values]
    if not writeable:
        for array in arrays:
            array.setflags(write=False)
    return arrays


def _tuples(_: None, columns: list[Any]) -> list[Any]:
    return list(zip(*columns, strict=True))


def _named_tuples(kind: Any, columns: list[Any]) -> list[Any]:
    return list(map(kind._make, zip(*columns, strict=True)))


def _dicts(keys: tuple[str, ...], columns: list[Any]) -> list[Any]:
    return [dict(zip(keys, values, strict=True)) for values in zip(*columns, strict=True)]
