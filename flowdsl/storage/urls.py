"""Files elsewhere, by fsspec: ``s3://``, ``gs://``, ``https://``, ``memory://`` and others.

A file is read in blocks. Where one block follows the other, the next ones are on their way while
the caller works. A read that fails, stalls or is cut short is tried again a few times, later each
time; what is missing or forbidden is told at once.

``fl.fetch`` makes copies on the local disk.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from flowdsl.errors import SourceError
from flowdsl.storage.libraries import library

R = TypeVar("R")

TRIES = 4
FIRST_WAIT = 0.1
"""Seconds before the second try; before each further one three times as many."""
SECONDS = 60.0
"""How long one read may take."""
BLOCK = 1 << 20
AHEAD = 4
"""How many blocks are on their way beyond the one that is read."""
KEPT = 8
"""How many blocks are kept: more than are on their way, and so at most 8 MB for a file."""


class RemoteFile:
    """A file elsewhere, read by blocks."""

    def __init__(self, reader: str, path: str) -> None:
        self.path = path
        self._reader = reader
        self._fs, self._name = _filesystem(reader, path)
        info = self._info()
        if info.get("type") == "directory":
            raise SourceError(f"{reader}: {path!r} is no file")
        if info.get("size") is None:
            raise SourceError(f"{reader}: {path!r} has no known size, so no part of it can be read")
        self.size = int(info["size"])
        self.stamp = _stamp(info)
        self._condition = _if_unchanged(self._fs, info)
        self._blocks: OrderedDict[int, _Started[bytes]] = OrderedDict()
        self._last = -1
        self._lock = threading.Lock()

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = tried(self._reader, self.path, lambda: self._fs.info(self._name))
        return info

    def read(self, start: int, count: int) -> bytes:
        end = min(start + count, self.size)
        if start >= end:
            return b""
        if end - start > KEPT // 2 * BLOCK:
            return tried(self._reader, self.path, lambda: self._range(start, end))
        first, last = start // BLOCK, (end - 1) // BLOCK
        data = b"".join(self._block(k) for k in range(first, last + 1))
        return data[start - first * BLOCK : end - first * BLOCK]

    def changed(self) -> bool:
        return False

    def _block(self, k: int) -> bytes:
        with self._lock:
            wanted = [k]
            if k in (self._last, self._last + 1):  # they are read in order
                most = min(k + AHEAD, (self.size - 1) // BLOCK)
                wanted += range(k + 1, most + 1)
            self._last = k
            for one in reversed(wanted):
                if one not in self._blocks:
                    self._blocks[one] = _Started(self._fetch(one))
                self._blocks.move_to_end(one)
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
        data: bytes
        try:
            data = self._fs.cat_file(self._name, start=start, end=end, **self._condition)
        except Exception as error:  # each file system has errors of its own
            if getattr(error, "status", None) != _NOT_AS_IT_WAS:
                raise
            if _stamp(self._info()) != self.stamp:
                raise SourceError(
                    f"{self.path!r} was written again since it was opened: build a new flow"
                ) from error
            self._condition = {}  # of several servers, which do not agree on a file's time
            data = self._fs.cat_file(self._name, start=start, end=end)
        if len(data) == self.size != end - start:  # a server that knows no ranges
            data = data[start:end]
        if len(data) != end - start:
            raise OSError(f"{len(data)} bytes came where {end - start} were asked for")
        return data


_MARKS = ("ETag", "etag", "Last-Modified", "LastModified", "mtime", "created")
_NOT_AS_IT_WAS = 412
"""What a web server answers where a condition does not hold."""


def _stamp(info: dict[str, Any]) -> str:
    marks = (info.get(key) for key in _MARKS)
    return f"{info['size']} {next((mark for mark in marks if mark is not None), '')}"


def _if_unchanged(fs: Any, info: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a read by which a web server refuses it if the file has changed since.

    By its time, as its ETag may depend on how an answer is compressed.
    """
    since = info.get("Last-Modified")
    if since is None or "https" not in fs.protocol:
        return {}
    return {"headers": {**fs.kwargs.get("headers", {}), "If-Unmodified-Since": since}}


def matching(reader: str, pattern: str) -> list[str]:
    """The URLs that a pattern matches, sorted; one without a pattern as it is.

    ``*`` and ``[ab]`` make a pattern; a ``?`` begins the query of a URL.
    """
    if not any(c in pattern for c in "*["):
        return [pattern]
    fs, name = _filesystem(reader, pattern)
    found: list[str] = sorted(tried(reader, pattern, lambda: fs.glob(name)))
    if not found:
        raise SourceError(f"{reader}: no file matches {pattern!r}")
    return [fs.unstrip_protocol(one) for one in found]


def tried(reader: str, path: str, read: Callable[[], R]) -> R:
    """What a function gives; it is called again, a few times, if it fails or takes too long.

    Raises:
        SourceError: The file is missing or forbidden, or every try failed.
    """
    failed: Exception | None = None
    for again in range(TRIES):
        if failed is not None:
            time.sleep(FIRST_WAIT * 3 ** (again - 1))
        try:
            return _Started(read).result(SECONDS)
        except SourceError:
            raise
        except Exception as error:  # each file system has errors of its own
            failed = _as_it_was(error)
        refused = _refused(failed)
        if refused:
            raise SourceError(f"{reader}: {path!r} {refused}") from failed
    raise SourceError(
        f"{reader}: {path!r} cannot be read, after {TRIES} tries: {type(failed).__name__}: {failed}"
    ) from failed


def _as_it_was(error: Exception) -> Exception:
    """The error of the server or the network, where fsspec calls every one a missing file."""
    cause = error.__cause__
    known = isinstance(cause, OSError) or hasattr(cause, "status")
    return cause if isinstance(error, FileNotFoundError) and known else error  # type: ignore[return-value]  # an Exception, if known


def _refused(error: Exception) -> str | None:
    """Why it is no use to try again."""
    status = getattr(error, "status", None)
    if isinstance(error, FileNotFoundError) or status in (404, 410):
        return "is missing"
    if isinstance(error, PermissionError) or status in (401, 403):
        return f"may not be read: {error}"
    if isinstance(error, IsADirectoryError):
        return "is no file"
    return None


class _Started(Generic[R]):
    """A call in a thread of its own, which does not hold up the program's end.

    A thread of a pool would: the interpreter waits for those, and a read that stalls never ends.
    """

    def __init__(self, call: Callable[[], R]) -> None:
        self._call = call
        self._done = threading.Event()
        self._value: list[R] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, daemon=True).start()

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
        raise SourceError(f"{reader}: {path!r} cannot be opened: {error}") from error
    return fs, name
