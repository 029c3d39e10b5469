"""Remote files, by fsspec: ``s3://``, ``gs://``, ``https://``, ``memory://`` and others.

A file is read in blocks. When blocks are read in order, the next ones are fetched in the
background. A read that fails, stalls or is truncated is retried a few times, with growing delays;
missing and forbidden files raise an error at once. Web servers are read by ``http.py``.

``fl.fetch`` makes copies on the local disk.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import IO, Any, Generic, TypeVar

from flowdsl.errors import SourceError
from flowdsl.resources.file_names import with_literal_folders, without_secrets
from flowdsl.resources.limits import start_thread
from flowdsl.storage.libraries import library

R = TypeVar("R")

TRIES = 4
FIRST_WAIT = 0.1
"""Seconds before the second try; the delay triples before each further try."""
SECONDS = 60.0
"""The time limit of one read."""
BLOCK = 1 << 20
AHEAD = 4
"""The number of blocks that are fetched ahead."""
KEPT = 8
"""The number of cached blocks: more than are fetched ahead, and at most 8 MB for a file."""


def remote_file(reader: str, path: str) -> RemoteFile:
    """Open a URL for reading.

    Raises:
        SourceError: The file is missing, or is not a file, or cannot be read.
    """
    fs, name = _filesystem(reader, path)
    if "https" in fs.protocol:
        from flowdsl.storage.http import WebFile

        return WebFile(reader, path, fs, name)
    return RemoteFile(reader, path, fs, name)


class RemoteFile:
    """A remote file, read in blocks."""

    def __init__(self, reader: str, path: str, fs: Any, name: str) -> None:
        self.path = path
        self._reader = reader
        self._fs, self._name = fs, name
        info = self._info()
        if info.get("type") == "directory":
            raise SourceError(f"{reader}: {path!r} is not a file")
        if info.get("size") is None:
            raise SourceError(f"{reader}: {path!r} has no known size, so parts cannot be read")
        self.size = int(info["size"])
        self.stamp = stamp_of(info)
        self._blocks: OrderedDict[int, Started[bytes]] = OrderedDict()
        self._last = -2
        """The last block that was read; -2, so that the first one is read alone: many formats
        begin with reading a few bytes of it."""
        self._lock = threading.Lock()

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = tried(self._reader, self.path, lambda: self._fs.info(self._name))
        return info

    def read(self, start: int, count: int) -> bytes:
        return self.read_parts(start, count)

    def read_parts(self, start: int, count: int) -> bytes:
        """Return bytes of the file, from cached blocks or by requests."""
        end = min(start + count, self.size)
        if start >= end:
            return b""
        if end - start > KEPT // 2 * BLOCK:
            return tried(self._reader, self.path, lambda: self._range(start, end))
        first, last = start // BLOCK, (end - 1) // BLOCK
        data = b"".join(self._block(k) for k in range(first, last + 1))
        return data[start - first * BLOCK : end - first * BLOCK]

    def check(self) -> None:
        """Do nothing: a read of a web server compares the file's ETag or time itself."""

    def copy_to(self, copy: IO[bytes], progress: Callable[[int], None]) -> None:
        """Write all bytes to a file; ``progress`` is called with their number so far.

        Raises:
            SourceError: The file cannot be read.
            OSError: The copy cannot be written.
        """
        for start in range(0, self.size, BLOCK):
            copy.write(self.read_parts(start, BLOCK))
            progress(start)

    def _block(self, k: int) -> bytes:
        with self._lock:
            wanted = [k]
            if k in (self._last, self._last + 1):  # blocks are read in order
                most = min(k + AHEAD, (self.size - 1) // BLOCK)
                wanted += range(k + 1, most + 1)
            self._last = k
            for number in reversed(wanted):
                if number not in self._blocks:
                    self._blocks[number] = Started(self._fetch(number))
                self._blocks.move_to_end(number)
            started = self._blocks[k]
            while len(self._blocks) > KEPT:
                self._blocks.popitem(last=False)
        try:
            return started.result()
        except BaseException:
            with self._lock:
                self._blocks.pop(k, None)  # the next read tries again
            raise

    def _fetch(self, k: int) -> Callable[[], bytes]:
        start, end = k * BLOCK, min((k + 1) * BLOCK, self.size)
        return lambda: tried(self._reader, self.path, lambda: self._range(start, end))

    def _range(self, start: int, end: int) -> bytes:
        data: bytes = self._fs.cat_file(self._name, start=start, end=end)
        if len(data) != end - start:
            raise OSError(f"{len(data)} bytes were received instead of {end - start}")
        return data


_MARKS = ("ETag", "etag", "Last-Modified", "LastModified", "mtime", "created")


def stamp_of(info: dict[str, Any]) -> str:
    """Return the stamp of a version: its size, with its ETag or time if there is one."""
    marks = (info.get(key) for key in _MARKS)
    return f"{info['size']} {next((mark for mark in marks if mark is not None), '')}"


def matching(reader: str, pattern: str) -> list[str]:
    """Return the URLs that match a pattern, sorted; a URL without a pattern is returned unchanged.

    ``*`` and ``[ab]`` make a pattern; a ``?`` begins the query of a URL. As on this machine, a name
    that exists is not a pattern, nor are leading folders that exist.
    """
    path = pattern.partition("://")[2].partition("/")[2]  # [::1] is a host
    if not any(c in path for c in "*["):
        return [pattern]
    fs, name = _filesystem(reader, pattern)

    def found() -> list[str]:
        if "[" not in name:
            return sorted(fs.glob(name))
        if fs.exists(name):
            return [name]
        return sorted(fs.glob(with_literal_folders(name, "/", fs.isdir)))

    names: list[str] = tried(reader, pattern, found)
    if not names:
        raise SourceError(f"{reader}: no file matches {pattern!r}")
    return [fs.unstrip_protocol(name) for name in names]


def tried(reader: str, path: str, read: Callable[[], R], seconds: float | None = None) -> R:
    """Call a function and return its result; retry a few times if it fails or takes too long.

    ``seconds`` is the time limit of a try if it is not ``SECONDS``.

    Raises:
        SourceError: The file is missing or forbidden, or every try failed.
    """
    failed: Exception | None = None
    for again in range(TRIES):
        if failed is not None:
            time.sleep(FIRST_WAIT * 3 ** (again - 1))
        try:
            return Started(read).result(seconds or SECONDS)
        except SourceError:
            raise
        except Exception as error:  # each file system raises its own errors
            failed = _cause_of(error)
        refused = _refused(failed)
        if refused:
            raise SourceError(f"{reader}: {path!r} {refused}") from _shown(path, failed)
    raise SourceError(
        f"{reader}: {path!r} cannot be read, after {TRIES} tries: {type(failed).__name__}: "
        f"{without_secrets(str(failed))}"
    ) from _shown(path, failed)


def _shown(path: str, cause: Exception | None) -> Exception | None:
    """Return the cause of an error; None if its message may have a secret of the URL."""
    return cause if without_secrets(path) == path else None


def _cause_of(error: Exception) -> Exception:
    """Return the server's or network's error behind fsspec's FileNotFoundError, if there is one."""
    cause = error.__cause__
    tells_more = isinstance(cause, OSError) or hasattr(cause, "status")
    return cause if isinstance(error, FileNotFoundError) and tells_more else error  # type: ignore[return-value]  # then an Exception


def _refused(error: Exception) -> str | None:
    """Return the reason why retrying is useless, or None."""
    status = getattr(error, "status", None)
    if isinstance(error, FileNotFoundError) or status in (404, 410):
        return "is missing"
    if isinstance(error, PermissionError) or status in (401, 403):
        return f"may not be read: {without_secrets(str(error))}"
    if isinstance(error, IsADirectoryError):
        return "is not a file"
    return None


class Started(Generic[R]):
    """A call in a daemon thread, which does not delay the exit of the program.

    The interpreter waits for threads of a pool at exit, and a stalled read never ends.
    """

    def __init__(self, call: Callable[[], R]) -> None:
        self._call = call
        self._done = threading.Event()
        self._value: list[R] = []
        self._error: BaseException | None = None
        start_thread(threading.Thread(target=self._run, daemon=True), "reading a URL")

    def _run(self) -> None:
        try:
            self._value.append(self._call())
        except BaseException as error:
            self._error = error
        finally:
            del self._call
            self._done.set()

    def result(self, seconds: float | None = None) -> R:
        if not self._done.wait(seconds):
            raise TimeoutError(f"no answer in {seconds:g} seconds")
        if self._error is not None:
            raise self._error
        return self._value[0]


def _filesystem(reader: str, path: str) -> tuple[Any, str]:
    fsspec = library("fsspec", reader, "urls")
    try:
        fs, name = fsspec.core.url_to_fs(path)
    except (ImportError, ValueError) as error:  # e.g. s3fs is not installed; no such protocol
        raise SourceError(
            f"{reader}: {path!r} cannot be opened: {without_secrets(str(error))}"
        ) from _shown(path, error)
    return fs, name
