"""Sources with numbered rows, and what a reader of rows may be able to do."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Generic, Protocol, runtime_checkable

from flowdsl.effects import Exact
from flowdsl.elements.preallocated import NextRow
from flowdsl.errors import ElementError, Location, Where, raise_with_cause
from flowdsl.nodes.base import (
    Node,
    PassFactory,
    Row,
    T,
)


@runtime_checkable
class Expecting(Protocol):
    """A reader that learns which rows are read next, so that it can read many of them at once."""

    def expect(self, numbers: Sequence[int], /) -> None:
        """Announce the numbers of the next rows, in the order in which they are read."""


@runtime_checkable
class ReadsInPlace(Protocol):
    """A reader that can read the arrays of a row into the arrays of a batch."""

    next_row: NextRow
    """The place in a batch of the row that is read next, if it belongs in one."""


class IndexedSource(Node[T, Exact], Generic[T]):
    """A source with numbered rows, any of which can be read by itself."""

    in_memory: ClassVar[bool] = False
    """True if its rows are in this process's memory; False if every process can open it."""

    @property
    def shared_by_threads(self) -> bool:
        """True if several threads may read its rows at the same time."""
        return not self.in_memory

    @property
    def rows_together(self) -> int | None:
        """The number of rows read together if one is wanted; None if each is read alone."""
        return None

    @property
    def loop_line(self) -> str:
        """The line of a generated loop that replaces ``x``, the number of a row, by the row.

        ``{open}`` stands for the reader that ``open()`` returned, opened once for the loop; other
        names in braces are attributes of the source.
        """
        return "x = {open}(x)"

    @property
    @abstractmethod
    def length(self) -> int:
        """The number of rows."""

    @property
    def indexable(self) -> bool:
        return True

    @abstractmethod
    def open(self) -> Callable[[int], T]:
        """Return a reader of rows by number, for one process; deleting it closes its files."""

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        read = self.open()
        for i in range(self.length):
            try:
                row = read(i)
            except BaseException as error:
                raise_with_cause(self.error_at(epoch, i), error)
            yield i, row

    def location(self, row: int) -> Location | None:
        """Return the location of a row, for messages; None if the title says all that is known."""
        del row
        return None

    def origin(self, epoch: int, position: int) -> Where:
        location = self.location(position)
        more = "" if location is None else f", {location}"
        return Where(f"row {position} of {self.title}{more}", location=location)

    def error_at(self, epoch: int, position: int, detail: str | None = None) -> ElementError:
        # the text of its cause says the location
        where = Where(f"row {position} of {self.title}", location=self.location(position))
        return ElementError(self.title, position, epoch, where, detail)
