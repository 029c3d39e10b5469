"""What all writers share: a file that appears when it is complete, rows that are counted and named.

A file is written in a hidden folder beside its place and renamed when it is complete. So a writer
that fails, or is killed at any moment, leaves what was there before.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Generic

import attrs

from flowdsl.effects import Finite
from flowdsl.elements.structure import nbytes_of
from flowdsl.errors import EndlessFlow, InvalidFlow, SourceError, SpecMismatch
from flowdsl.nodes import FlowBase, T
from flowdsl.storage.paths import WRITE_HERE, OnePath, local_path
from flowdsl.storage.progress import bar
from flowdsl.storage.temp_dirs import temporary_directory

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_SAMPLE = 64
"""How many rows tell how large all will be."""
NO_SPACE = errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO
"""What a full disk may be told as; a library tells a write that ends too early as EIO."""


def write_file(
    writer: str,
    flow: FlowBase[T, Finite],
    path: OnePath,
    overwrite: bool,
    write: Callable[[Path, Iterable[T]], None],
) -> int:
    """Run one pass of a flow and write its elements to a new file; gives their number.

    ``write`` is given a path to write to and the rows. A ``SpecMismatch`` that it raises is told
    with the number of the row that it had taken last; an ``OSError`` becomes a ``SourceError``. On
    a terminal a bar shows how far it is.

    Raises:
        EndlessFlow: It never ends.
        InvalidFlow: The file exists and is to be kept, or its folder does not.
        SourceError: The disk refuses.
        SpecMismatch: An element cannot be written.
    """
    never_ends(writer, flow)
    if type(overwrite) is not bool:
        raise InvalidFlow(f"{writer}: overwrite must be True or False, got {overwrite!r}")
    target = Path(local_path(writer, path, WRITE_HERE))
    if target.is_dir() or (target.exists() and not overwrite):
        remedy = "it is a folder" if target.is_dir() else "pass overwrite=True"
        raise InvalidFlow(f"{writer}: {os.fspath(path)!r} exists; {remedy}")
    if not target.parent.is_dir():
        raise InvalidFlow(f"{writer}: no folder {str(target.parent)!r}; make it first")
    rows = RowsToWrite(writer, flow, os.fspath(path))
    try:
        with temporary_directory(target.parent) as folder:
            rows.place, partial = folder, folder / target.name
            with rows.refusals(), closing(rows.drawn()) as drawn:
                write(partial, drawn)
                _flush(partial)
            if overwrite:
                os.replace(partial, target)
            else:
                _appear(writer, partial, target, os.fspath(path))
    except OSError as error:  # of the folder
        raise rows.refused(error) from error
    return rows.count


def of_the_system(error: Exception) -> OSError:
    """The error of the system that a library tells in words of its own."""
    for code in NO_SPACE:
        if os.strerror(code) in str(error):
            return OSError(code, os.strerror(code))
    return OSError(str(error))


def never_ends(writer: str, flow: FlowBase[T, Finite]) -> None:
    """Refuse a flow that never ends."""
    from flowdsl.effects import Endless

    if Endless in flow.node.effects:
        raise EndlessFlow(
            f"{writer}: {flow.node.title} never ends, so no disk can hold it; "
            f"put .take(n) before it"
        )


def _appear(writer: str, partial: Path, target: Path, told: str) -> None:
    """Give a file its name, unless another has it by now."""
    try:
        os.link(partial, target)
    except FileExistsError as error:
        raise InvalidFlow(
            f"{writer}: {told!r} was made by another program meanwhile, and is kept; pass "
            f"overwrite=True"
        ) from error
    except OSError:  # a file system without links
        os.replace(partial, target)


def _flush(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@attrs.define(eq=False)
class RowsToWrite(Generic[T]):
    """The rows of one pass on their way to a file."""

    writer: str
    flow: FlowBase[T, Finite]
    told: str
    """The path as the user gave it."""
    place: Path | None = None
    """The file or folder that the bytes go to, whose number an error tells."""
    before: int = 0
    """How many bytes were there before."""
    count: int = 0
    """How many rows were taken."""
    _making: bool = False
    _sampled: int = 0
    """The bytes in the first rows, which a writer may hold back for a while."""

    def drawn(self) -> Generator[T]:
        """The rows; on a terminal, with a bar that shows how many were written."""
        flow = self.flow
        with closing(iter(flow)) as elements, bar(self.writer, flow.node.length) as draw:
            while True:
                self._making = True
                row = next(elements, _END)
                self._making = False
                if row is _END:
                    return
                self.count += 1
                if self.count <= _SAMPLE:
                    self._sampled += nbytes_of(row)
                yield row  # type: ignore[misc]  # mypy does not see that it is no _END
                del row
                draw(self.count)

    def refusals(self) -> AbstractContextManager[None]:
        """Tells errors of the format and of the disk with the row and the file."""
        return _Refusals(self)

    def refused(self, error: Exception) -> SourceError:
        """The error for what the disk refused."""
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        text = f"{self.writer}: {self.told!r} cannot be written: {reason}"
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            text += self._needed()
        return SourceError(text)

    def _needed(self) -> str:
        """How much space was needed, as far as it can be told."""
        place = self.place
        if place is None:
            return ""
        try:
            files = place.iterdir() if place.is_dir() else [place]
            written = sum(file.stat().st_size for file in files) - self.before
            free = shutil.disk_usage(place.parent).free
        except OSError:
            return ""
        length, told = self.flow.node.length, f"; {written:,} bytes were written"
        if length and self.count:
            each = max(written / self.count, self._sampled / min(self.count, _SAMPLE))
            told += f", about {round(each * length):,} are needed for {length} rows"
        return f"{told}, and {free:,} are free"


_END: object = object()


@attrs.define
class _Refusals(Generic[T]):
    rows: RowsToWrite[T]

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        rows = self.rows
        if rows._making:  # the flow's own error, told as it is
            return
        if isinstance(error, SpecMismatch):
            raise SpecMismatch(f"{rows.writer}: row {rows.count - 1}: {error}") from error
        if isinstance(error, OSError):
            raise rows.refused(error) from error
