"""The sources of a file's rows and of several files' rows, which readers derive from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Protocol

import attrs

from flowdsl.elements.declared_specs import names_classes, restore_classes
from flowdsl.elements.preallocated import NextRow
from flowdsl.elements.specs import Spec
from flowdsl.errors import Location, SourceError
from flowdsl.nodes import IndexedSource, T, cached_per_node, frozen_node
from flowdsl.resources.file_names import without_secrets
from flowdsl.storage.index import Shards
from flowdsl.storage.layout import OutArrays
from flowdsl.storage.paths import title_of


@frozen_node
class FileSource(IndexedSource[T], Generic[T]):
    """The rows of one file, by index; the file must be the one that the flow was built from."""

    reader: ClassVar[str]
    """The name of the function that builds the flow."""

    path: str
    row_count: int
    row_spec: Spec
    digest: int
    """The digest of the content when the flow was built."""

    @property
    def title(self) -> str:
        return title_of(self.reader, [self.path])

    @property
    def fingerprint(self) -> str:
        return f"{self.title} of {self.length} rows {self.digest:08x}"

    @property
    def length(self) -> int:
        return self.row_count

    def spec(self, probe: bool) -> Spec:
        return self.row_spec

    def open(self) -> Callable[[int], T]:
        row_count, digest, read = self.opened()
        if (row_count, digest) != (self.row_count, self.digest):
            raise file_has_changed(self.path)
        return read

    @abstractmethod
    def opened(self) -> tuple[int, int, Callable[[int], T]]:
        """Open the file; return its number of rows, its digest, and a reader of rows by number."""


class FileOfRows(Protocol):
    """One of several files, as it was when the flow was built."""

    @property
    def path(self) -> str: ...
    @property
    def length(self) -> int:
        """The number of its rows."""
        ...


@frozen_node
class ShardedSource(IndexedSource[T], Generic[T]):
    """The rows of one or several files, by index, numbered one file after the other."""

    parts: tuple[FileOfRows, ...]

    @property
    @cached_per_node
    def shards(self) -> Shards:
        """The numbers of the rows in each file."""
        return Shards([part.length for part in self.parts])

    @property
    def length(self) -> int:
        return self.shards.length

    def location(self, row: int) -> Location | None:
        if len(self.parts) == 1:
            return None  # the title names it
        k, _ = self.shards.find(row)
        return Location(without_secrets(self.parts[k].path))


@attrs.define(eq=False)
class RowReader:
    """Reads rows by number; arrays are read into a batch where that is possible."""

    read: Callable[[int, OutArrays], Any]
    """Returns a row, with its arrays read into these ``out`` arrays if possible."""
    convert: Callable[[int, Any], Any] | None = None
    """Converts a row to the declared classes."""
    next_row: NextRow = attrs.field(factory=NextRow, init=False)

    def __call__(self, i: int) -> Any:
        row = self.read(i, self.next_row.out)
        return row if self.convert is None else self.convert(i, row)


def to_classes(spec: Spec) -> Callable[[int, Any], Any] | None:
    """Return a function that converts rows to the classes in their spec; None if it has none."""
    return (lambda _, row: restore_classes(row, spec)) if names_classes(spec) else None


def file_has_changed(path: str) -> SourceError:
    """Return the error for a file that has changed since the flow was built."""
    return SourceError(f"{path!r} has changed since this flow was built; build a new flow")
