"""Columns: the small arrays of many elements are sent as one array.

The problem: a flow of tokens or measurements sends thousands of small arrays between processes.
Pickle handles each of them by itself, with its dtype, shape and flags, which takes about 3
microseconds to write and 2 to read: longer than many functions need to compute the array.

The naive way is to send one array, and to return views of it. But a user who keeps one element,
such as a shuffle buffer, would then keep the memory of a whole task.

The choice: arrays that differ only in their contents and lengths are joined, and the receiver
copies each of them into memory of its own, which takes 0.3 microseconds. Tuples and dicts are
transposed if one of their columns can be joined. All other elements are pickled as they are: also
those in which an array occurs twice, or with an object that may refer to one, since pickle sends
each object once, and restores the references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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

_ATOMS = {bool, int, float, complex, str, bytes, type(None)}
"""The classes of values that may be among the arrays: immutable, and without references."""

_PICKLING = {"__reduce__", "__reduce_ex__", "__getstate__", "__setstate__"}
"""The methods by which a class changes what is pickled."""


class _Unsuitable(Exception):
    """The elements must be pickled as they are."""


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
    if len(elements) < FEWEST or not _has_array(elements[0], DEPTH):
        return elements
    try:
        transposed = _transposed(elements, DEPTH, set())
    except _Unsuitable:
        return elements
    columns = _joined(transposed, allocate)
    return elements if columns is None else columns


def _has_array(x: Any, depth: int) -> bool:
    """Return True if an element contains an array or a NumPy scalar in tuples and dicts."""
    kind = type(x)
    if kind is np.ndarray or issubclass(kind, np.generic):
        return True
    if not depth or not issubclass(kind, tuple | dict):
        return False
    parts: Iterable[object] = x.values() if isinstance(x, dict) else x
    return any(_has_array(part, depth - 1) for part in parts if type(part) not in _ATOMS)


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
    """The argument of ``restore`` besides the columns: the class or the keys."""
    columns: list[Any]

    def __reduce__(self) -> tuple[Any, ...]:
        return self.restore, (self.form, self.columns)


def _transposed(
    elements: Sequence[Any], depth: int, arrays: set[int]
) -> Sequence[Any] | _Structures:
    """Return the columns of structures; the elements themselves if they are none.

    ``arrays`` receives the ``id`` of each array.

    Raises:
        _Unsuitable: An array occurs twice, or the elements have no common structure.
    """
    kinds = set(map(type, elements))
    if kinds == {np.ndarray}:
        added = set(map(id, elements))
        if len(added) < len(elements) or not arrays.isdisjoint(added):
            raise _Unsuitable
        arrays |= added
        return elements
    if kinds <= _ATOMS:
        return elements
    if len(kinds) > 1 or not depth:
        raise _Unsuitable
    (kind,) = kinds
    if issubclass(kind, np.generic):
        return elements
    restore, form = _restorer(elements, kind)
    values = (element.values() for element in elements) if kind is dict else elements
    columns = zip(*values, strict=True)
    return _Structures(restore, form, [_transposed(x, depth - 1, arrays) for x in columns])


def _joined(elements: Sequence[Any] | _Structures, allocate: Allocate) -> object | None:
    """Return the elements with joined columns; None if nothing can be joined."""
    if not isinstance(elements, _Structures):
        if type(elements[0]) is np.ndarray:
            return _joined_arrays(elements, allocate)
        return _joined_scalars(elements) if isinstance(elements[0], np.generic) else None
    joined = [_joined(column, allocate) for column in elements.columns]
    if all(column is None for column in joined):
        return None
    columns = [
        whole if column is None else column
        for whole, column in zip(elements.columns, joined, strict=True)
    ]
    return _Structures(elements.restore, elements.form, columns)


def _restorer(elements: Sequence[Any], kind: type) -> tuple[Callable[..., list[Any]], object]:
    """Return what restores structures of this class from columns.

    Raises:
        _Unsuitable: They differ in keys or length, or pickle does not only keep their components.
    """
    if kind is dict:
        keys = tuple(elements[0])
        # Equal keys may be of different types.
        are_texts = set(map(type, chain.from_iterable(elements))) == {str}
        if are_texts and all(tuple(element) == keys for element in elements):
            return _dicts, keys
    elif kind is tuple:
        if len(set(map(len, elements))) == 1:
            return _tuples, None
    elif (
        is_named_tuple(kind)
        and "_fields" in vars(kind)  # else it is derived from one, and may have attributes
        and kind.__dictoffset__ == 0
        and _PICKLING.isdisjoint(vars(kind))
    ):
        return _named_tuples, kind
    raise _Unsuitable


def _joined_arrays(arrays: Sequence[Any], allocate: Allocate) -> _Column | None:
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
    elif all(shapes) and len({shape[1:] for shape in shapes}) == 1:
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


def _joined_scalars(scalars: Sequence[Any]) -> _Column | None:
    if not _is_plain(scalars[0].dtype):
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
