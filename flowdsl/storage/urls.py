"""Files elsewhere, by fsspec: ``s3://``, ``gs://``, ``https://``, ``memory://`` and others.

A read that fails is tried again a few times, later each time; what is missing is told at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from flowdsl.errors import SourceError
from flowdsl.storage.libraries import library

R = TypeVar("R")

_TRIES = 4
_FIRST_WAIT = 0.1
"""Seconds before the second try; before each further one twice as many."""


class RemoteFile:
    """A file elsewhere, read by ranges."""

    def __init__(self, reader: str, path: str) -> None:
        self.path = path
        self._fs, self._name = _filesystem(reader, path)
        info: dict[str, Any] = tried(reader, path, lambda: self._fs.info(self._name))
        if info.get("size") is None:
            raise SourceError(f"{reader}: {path!r} has no known size, so no part can be read")
        self.size = int(info["size"])
        marks = (info.get(key) for key in ("ETag", "etag", "mtime", "LastModified", "created"))
        self.stamp = f"{self.size} {next((mark for mark in marks if mark is not None), '')}"

    def read(self, start: int, count: int) -> bytes:
        end = min(start + count, self.size)
        if start >= end:
            return b""
        return tried("read", self.path, lambda: self._range(start, end))

    def _range(self, start: int, end: int) -> bytes:
        data: bytes = self._fs.cat_file(self._name, start, end)
        if len(data) != end - start:
            raise OSError(f"{len(data)} bytes came where {end - start} were asked for")
        return data


def matching(reader: str, pattern: str) -> list[str]:
    """The URLs that a pattern matches, sorted; one without a pattern as it is."""
    if not any(c in pattern for c in "*?["):
        return [pattern]
    fs, name = _filesystem(reader, pattern)
    found = sorted(tried(reader, pattern, lambda: fs.glob(name)))
    if not found:
        raise SourceError(f"{reader}: no file matches {pattern!r}")
    return [fs.unstrip_protocol(one) for one in found]


def tried(reader: str, path: str, read: Callable[[], R]) -> R:
    """What a function gives, which is called again a few times if it fails.

    Raises:
        SourceError: The file is missing, or every try failed.
    """
    failed: Exception | None = None
    for again in range(_TRIES):
        if failed is not None:
            time.sleep(_FIRST_WAIT * 2 ** (again - 1))
        try:
            return read()
        except FileNotFoundError as error:
            raise SourceError(f"{reader}: {path!r} is missing") from error
        except Exception as error:  # each file system has errors of its own
            failed = error
    raise SourceError(
        f"{reader}: {path!r} cannot be read, after {_TRIES} tries: {failed!r}"
    ) from failed


def _filesystem(reader: str, path: str) -> tuple[Any, str]:
    fsspec = library("fsspec", reader, "urls")
    try:
        fs, name = fsspec.core.url_to_fs(path)
    except (ValueError, ImportError) as error:
        raise SourceError(f"{reader}: {path!r} cannot be opened: {error}") from error
    return fs, name
