"""The rows of a batch whose large arrays are stacked as the rows arrive.

Collecting all rows first and stacking them then takes twice as long. An array that was just made is
still in the processor's cache when it is copied into the batch, and its memory can be reused for
the next array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.structure import components, is_named_tuple

Allocate: TypeAlias = Callable[[tuple[int, ...], "np.dtype[Any]"], "NDArray[Any]"]
"""Allocates a new array: ``np.empty``, or an allocation in a slab shared with other processes."""

LEAST_BYTES = 1 << 14
"""Smaller arrays are stacked at the end: placing each would cost more than it saves."""

MAX_BYTES = 1 << 28
"""A larger array of a batch is not allocated before the number of its rows is known."""


class Stacked(list[Any]):
    """Arrays that have been stacked already, in the order of the list."""

    def __init__(self, rows: Iterable[Any], batch: NDArray[Any]) -> None:
        """``batch[i]`` is equal to row ``i``."""
        super().__init__(rows)
        self.batch = batch


class NextRow:
    """The parts of a batch for the arrays of its next row: views of the batch's arrays.

    A source may read the row's arrays into these views instead of into new arrays. ``out`` has
    them by the component's name; the names of a tuple's components are their numbers.
    """

    out: Mapping[str, NDArray[Any]] = {}


class BatchRows(list[Any]):
    """A list of up to ``size`` rows; rows are added only by ``extend``.

    In rows that are arrays, tuples or dicts, arrays are replaced by views of the batch, to which
    they were copied. Rows of other classes stay unchanged.
    """

    next_row: NextRow | None = None
    """Has the next row's views while rows are added, for the source that reads this row."""

    def __init__(self, size: int, allocate: Allocate) -> None:
        """Nothing is allocated before the first row."""
        super().__init__()
        self._size = size
        self._allocate = allocate
        self._kind: type = type(None)
        self._batches: dict[str, NDArray[Any]] = {}
        """The batch of each component, by name; the name is empty if rows are arrays."""
        self._out: Mapping[str, NDArray[Any]] = {}
        """The views that ``next_row`` has, by name."""
        self._numbers: Mapping[str, str] = {}
        """The numbers of a NamedTuple's components, by name."""

    def extend(self, rows: Iterable[Any], /) -> None:
        """Add rows one at a time, as they arrive."""
        remaining = iter(rows)
        try:
            for x in remaining:
                if not self:
                    self._allocate_for(x)
                if not self._batches:  # no array is worth it, or rows differ: collect the rest
                    self._withdraw_out()
                    self.append(x)
                    super().extend(remaining)
                    return
                self.append(self._placed(x))
                self._offer_out()
        finally:
            self._withdraw_out()

    def column(self, name: str, parts: Sequence[Any]) -> Sequence[Any]:
        """A component of all rows, as ``Stacked`` if all have the same dtype and shape."""
        batch = self._batches.get(name)
        return parts if batch is None or len(self) < self._size else Stacked(parts, batch)

    def _offer_out(self) -> None:
        """Show the source the views for its next row."""
        if self.next_row is not None and (i := len(self)) < self._size:
            self._out = {name: batch[i] for name, batch in self._batches.items()}
            numbers = self._numbers
            self.next_row.out = (
                {numbers[name]: place for name, place in self._out.items()}
                if numbers
                else self._out
            )

    def _withdraw_out(self) -> None:
        if self.next_row is not None:
            self.next_row.out = self._out = {}

    def _allocate_for(self, x: Any) -> None:
        """Allocate the arrays of the batch, from its first row."""
        self._kind = type(x)
        parts = [("", x)] if self._kind is np.ndarray else components(x) or []
        if is_named_tuple(self._kind):
            self._numbers = {name: str(k) for k, (name, _) in enumerate(parts)}
        elif self._kind not in (np.ndarray, tuple, dict):
            self.next_row = None  # a constructor would see the views, and may exchange arrays
        try:
            self._batches = {
                name: self._allocate((self._size, *part.shape), part.dtype)
                for name, part in parts
                if self._is_worth_it(part)
            }
        except (MemoryError, OSError):  # then stacking at the end raises the error
            self._batches = {}

    def _is_worth_it(self, part: Any) -> bool:
        return (
            type(part) is np.ndarray
            and part.ndim > 0
            and part.nbytes >= LEAST_BYTES
            and self._size > 1
            and self._size * part.nbytes <= MAX_BYTES
            and part.dtype.kind in "biufcmM"
        )

    def _placed(self, x: Any) -> Any:
        """The row, with its arrays copied into the batch."""
        kind: type = type(x)
        if kind is not self._kind:
            self._batches = {}
            return x
        if kind is np.ndarray:
            return self._put("", x)
        if kind is tuple:
            parts = list(x)
            for name in list(self._batches):
                if (i := int(name)) < len(parts):
                    parts[i] = self._put(name, parts[i])
            return tuple(parts)
        if kind is dict:
            placed = {name: self._put(name, x.get(name)) for name in list(self._batches)}
            return {name: placed.get(name, part) for name, part in x.items()}
        for name in list(self._batches):
            self._put(name, getattr(x, name, None))
        return x

    def _put(self, name: str, part: Any) -> Any:
        """The part in its place in the batch; the part itself if it has no place there."""
        batch = self._batches.get(name)
        is_in_place = part is not None and part is self._out.get(name)  # read there directly
        if batch is None or is_in_place:
            return part
        if (
            type(part) is not np.ndarray
            or part.dtype != batch.dtype
            or part.shape != batch.shape[1:]
        ):
            del self._batches[name]
            return part
        place = batch[len(self)]
        place[...] = part
        return place
