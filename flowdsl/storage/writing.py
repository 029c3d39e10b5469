"""The shared part of all writers: atomic creation of files, counting of rows, and errors.

A file is written in a hidden folder beside its final place and renamed when it is complete. A
writer that fails, or is killed at any moment, therefore leaves any existing file unchanged.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Generic

import attrs

from flowdsl.effects import Finite
from flowdsl.elements.nbytes import nbytes_of
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.errors import EndlessFlow, FlowError, InvalidFlow, SourceError, SpecMismatch
from flowdsl.nodes import FlowBase, T, endless_part
from flowdsl.storage.open_files import not_a_file
from flowdsl.storage.paths import URL_REMEDY, OnePath, local_path
from flowdsl.storage.progress import bar
from flowdsl.storage.temp_dirs import move_new, temporary_directory

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_SAMPLED_ROWS = 64
"""The number of rows from which the size of all rows is estimated."""
NO_SPACE = errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO
"""Error codes of a full disk; some libraries report an incomplete write as EIO."""


def spec_without_rows(flow: FlowBase[object, Finite]) -> Spec:
    """Return the spec of a flow whose pass had no rows; unknown if it cannot be computed.

    The spec of a filter, for example, comes from the first element below it.
    """
    try:
        return flow.node.spec(probe=flow.node.replayable)
    except FlowError:
        return UNKNOWN


def write_file(
    writer: str,
    flow: FlowBase[T, Finite],
    path: OnePath,
    overwrite: bool,
    write: Callable[[Path, Iterable[T]], None],
) -> int:
    """Run one pass of a flow, write its elements to a new file and return their number.

    ``write`` is called with a path to write to and the rows. If it raises ``SpecMismatch``, the
    number of the last row is added to the message; an ``OSError`` becomes a ``SourceError``. On a
    terminal, a progress bar is shown.

    Raises:
        EndlessFlow: The flow never ends.
        InvalidFlow: The file exists and must not be overwritten, or its folder does not.
        SourceError: The disk refuses a write.
        SpecMismatch: An element cannot be written.
    """
    refuse_endless(writer, flow)
    if type(overwrite) is not bool:
        raise InvalidFlow(f"{writer}: overwrite must be True or False, got {overwrite!r}")
    # write the file to which a link leads, as ``open`` does, instead of replacing the link
    target = Path(os.path.realpath(local_path(writer, path, remedy=URL_REMEDY)))
    before = _status_of(target)
    if before is not None and (what := not_a_file(before.st_mode)):
        raise InvalidFlow(f"{writer}: {os.fspath(path)!r} {what}")
    if before is not None and not overwrite:
        raise InvalidFlow(f"{writer}: {os.fspath(path)!r} exists; pass overwrite=True")
    if not target.parent.is_dir():
        raise InvalidFlow(f"{writer}: no folder {str(target.parent)!r}; make it first")
    rows = RowsToWrite(writer, flow, os.fspath(path))
    try:
        with temporary_directory(target.parent) as folder:
            rows.written, partial = folder, folder / target.name
            with rows.error_context(), closing(rows.with_progress()) as elements:
                write(partial, elements)
                _flush(partial)
            if overwrite:
                if before is not None:
                    _make_as_accessible(partial, before)
                os.replace(partial, target)
            else:
                _move_into_place(writer, partial, target, os.fspath(path))
    except OSError as error:  # raised for the temporary folder
        raise rows.write_error(error) from error
    return rows.count


def os_error_behind(error: Exception) -> OSError:
    """Return the OSError that caused an error of a library, according to the error's message."""
    for code in NO_SPACE:
        if os.strerror(code) in str(error):
            return OSError(code, os.strerror(code))
    return OSError(str(error))


def refuse_endless(writer: str, flow: FlowBase[T, Finite]) -> None:
    """Raise ``EndlessFlow`` for a flow that never ends."""
    from flowdsl.effects import Endless

    if Endless in flow.node.effects:
        raise EndlessFlow(
            f"{writer}: {endless_part(flow.node)} never ends, so no disk can hold it; "
            f"put .take(n) before it"
        )


def _status_of(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:  # there is none, or its folder is missing
        return None


def _make_as_accessible(path: Path, before: os.stat_result) -> None:
    """Give a file the mode of the file that it replaces, and the owner if this process may."""
    status = path.stat()
    if (status.st_uid, status.st_gid) != (before.st_uid, before.st_gid):
        with suppress(OSError):
            os.chown(path, before.st_uid, before.st_gid)
    path.chmod(stat.S_IMODE(before.st_mode))


def _move_into_place(writer: str, partial: Path, target: Path, name: str) -> None:
    """Rename the finished file, unless its final name exists by now."""
    try:
        move_new(partial, target)
    except FileExistsError as error:
        raise InvalidFlow(
            f"{writer}: {name!r} was created by another program meanwhile and was not replaced; "
            f"pass overwrite=True"
        ) from error


def _flush(path: Path) -> None:
    file = os.open(path, os.O_RDWR)  # Windows flushes no file that is open for reading only
    try:
        os.fsync(file)
    finally:
        os.close(file)


@attrs.define(eq=False)
class RowsToWrite(Generic[T]):
    """The rows of one pass as a writer consumes them, with the context for errors."""

    writer: str
    flow: FlowBase[T, Finite]
    name: str
    """The path as the user passed it."""
    written: Path | None = None
    """The file or folder that is written; an error reports its size."""
    before: int = 0
    """The size of the file before it was written to."""
    count: int = 0
    """The number of rows consumed."""
    _in_flow: bool = False
    """True while the flow computes a row."""
    _sampled_bytes: int = 0
    """The bytes in the first rows, which a writer may buffer for a while."""

    def with_progress(self) -> Generator[T]:
        """Yield the rows; on a terminal, with a progress bar."""
        flow = self.flow
        with closing(flow.epoch(0)) as elements, bar(self.writer, flow.node.length) as draw:
            while True:
                self._in_flow = True
                row = next(elements, _END)
                self._in_flow = False
                if row is _END:
                    return
                self.count += 1
                if self.count <= _SAMPLED_ROWS:
                    self._sampled_bytes += nbytes_of(row)
                yield row  # type: ignore[misc]  # mypy does not exclude _END
                del row
                draw(self.count)

    def error_context(self) -> AbstractContextManager[None]:
        """Return a context that adds the row and file to errors of the format and the disk."""
        return _ErrorContext(self)

    def write_error(self, error: Exception) -> SourceError:
        """Return the error for a write that the disk refused."""
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        text = f"{self.writer}: {self.name!r} cannot be written: {reason}"
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            text += self._needed()
        return SourceError(text)

    def _needed(self) -> str:
        """Return a message about the space needed, as far as it is known."""
        path = self.written
        if path is None:
            return ""
        try:
            files = path.iterdir() if path.is_dir() else [path]
            size = sum(file.stat().st_size for file in files) - self.before
            free = shutil.disk_usage(path.parent).free
        except OSError:
            return ""
        length, message = self.flow.node.length, f"; {size:,} bytes were written"
        if length and self.count:
            each = max(size / self.count, self._sampled_bytes / min(self.count, _SAMPLED_ROWS))
            message += f", about {round(each * length):,} are needed for {length} rows"
        return f"{message}, and {free:,} are free"


_END: object = object()


@attrs.define
class _ErrorContext(Generic[T]):
    rows: RowsToWrite[T]

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        rows = self.rows
        if rows._in_flow:  # the flow's own error is not changed
            return
        if isinstance(error, SpecMismatch):
            raise SpecMismatch(f"{rows.writer}: row {rows.count - 1}: {error}") from error
        if isinstance(error, OSError):
            raise rows.write_error(error) from error
