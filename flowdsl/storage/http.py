"""Files on web servers: parts of one version of a file.

The size and the ETag or time of each answer are compared with the version that was opened.
Conditional requests would not suffice, as many servers ignore conditions. An answer of another
version is an error: its bytes do not fit the ones that were read before.

Some servers answer a request for a part with the whole file. It is then copied once, into a
temporary file, which all readers of it in this process use; a file that is too large for that is
refused. No answer is read beyond the bytes that are expected, as it may never end.
"""

from __future__ import annotations

import re
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, cast

import aiohttp
import attrs
from fsspec.asyn import sync

from flowdsl.errors import SourceError
from flowdsl.resources.systems import read_at
from flowdsl.storage import urls
from flowdsl.storage.urls import RemoteFile, Started, stamp_of, tried

MOST_COPIED = 1 << 28
"""The size of the largest file that is copied from a server that sends no parts."""
COPIES_BYTES = 1 << 30
"""The bytes of such copies that a process keeps."""
_SLOWEST = 1 << 16
"""The rate in bytes a second below which copying a file is given up."""
_PART = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class _NoParts(SourceError):
    """Raised for an answer with the whole file."""


@attrs.frozen
class _Version:
    """The version of a file, as its server states it."""

    etag: str | None
    time: str | None

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> _Version:
        etag = headers.get("ETag")
        return cls(etag and etag.removeprefix("W/"), headers.get("Last-Modified"))

    def differs(self, other: _Version) -> bool | None:
        """Return True if a version is another one; None if that is unknown."""
        if self.etag and other.etag:  # decides, as servers of one file may disagree on its time
            return self.etag != other.etag
        if self.time and other.time:
            return self.time != other.time
        return None


class WebFile(RemoteFile):
    """A file on a web server."""

    _met_another_version = False

    def _info(self) -> dict[str, Any]:
        info = super()._info()
        self._version = _Version.of(info)
        self._sends_parts = info.get("partial") is not False
        return info

    def read(self, start: int, count: int) -> bytes:
        if self._sends_parts and self._key not in _copies:
            try:
                return self.read_parts(start, count)
            except _NoParts:
                self._sends_parts = False
        copy = self._copy()  # referenced here: another thread may drop it from _copies
        return read_at(copy.file.fileno(), max(0, min(count, self.size - start)), start)

    def copy_to(self, copy: IO[bytes], progress: Callable[[int], None]) -> None:
        """Write all bytes to a file: in parts if possible, as each part is tried again alone."""
        if self._sends_parts:
            try:
                super().copy_to(copy, progress)
                return
            except _NoParts:
                pass
            except SourceError:
                if not self._met_another_version:
                    raise
        # all bytes of one answer are of one version, whichever that is
        self._copy_whole(copy, progress, version=None)

    def _range(self, start: int, end: int) -> bytes:
        return cast("bytes", sync(self._fs.loop, self._part, start, end))

    # -- servers that send no parts ----------------------------------------------------------------

    def _copy(self) -> _Copy:
        """Return a local copy of the file; a process makes only one."""
        if self.size > MOST_COPIED:
            raise SourceError(
                f"{self._reader}: {self.path!r} has {self.size:,} bytes, and its server sends "
                f"whole files only; copy it first: fl.fetch(url, folder)"
            )
        key = self._key
        with _lock:
            started, _ = _copies.get(key) or (Started(self._copied), 0)
            _copies[key] = started, self.size
            _copies.move_to_end(key)
            while len(_copies) > 1 and sum(n for _, n in _copies.values()) > COPIES_BYTES:
                _copies.popitem(last=False)
        try:
            return started.result()
        except BaseException:
            with _lock:
                _copies.pop(key, None)  # the next read tries again
            raise

    @property
    def _key(self) -> tuple[str, str]:
        return self.path, self.stamp

    def _copied(self) -> _Copy:
        with self._writing():
            copy = _Copy()
        self._copy_whole(copy.file, lambda _: None, self._version)
        with self._writing():
            copy.file.flush()
        return copy

    def _copy_whole(
        self, copy: IO[bytes], progress: Callable[[int], None], version: _Version | None
    ) -> None:
        """Write all bytes of a version to a file; of any version if it is None."""
        last_try = 0

        def write() -> None:
            nonlocal last_try
            last_try = this_try = last_try + 1

            def is_last_try() -> bool:
                return this_try == last_try

            # a try that was given up may still run in the loop's thread, and must not write
            sync(self._fs.loop, self._whole, copy, progress, version, is_last_try)

        tried(self._reader, self.path, write, self._most_seconds)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise SourceError for an error of the disk; an OSError would be tried again."""
        try:
            yield
        except OSError as error:
            raise SourceError(
                f"{self._reader}: a copy of {self.path!r} cannot be written: {error.strerror}"
            ) from error

    @property
    def _most_seconds(self) -> float:
        return urls.SECONDS + self.size / _SLOWEST

    # -- requests ----------------------------------------------------------------------------------

    async def _request(self, seconds: float, **headers: str) -> Any:
        """Return the context of a request for bytes as they are stored."""
        session = await self._fs.set_session()
        options = dict(self._fs.kwargs)
        own = {**options.pop("headers", {}), "Accept-Encoding": "identity", **headers}
        timeout = aiohttp.ClientTimeout(total=seconds, sock_read=urls.SECONDS)
        url = self._fs.encode_url(self._name)
        return session.get(url, **{"timeout": timeout, **options, "headers": own})

    async def _part(self, start: int, end: int) -> bytes:
        data = bytearray()
        async with await self._request(urls.SECONDS, Range=f"bytes={start}-{end - 1}") as answer:
            await self._check(answer, self._version)
            if answer.status == 206:
                self._check_part(answer, start)
            elif (start, end) != (0, self.size):
                raise _NoParts(f"{self.path!r} is sent as a whole only")
            async for chunk in answer.content.iter_any():
                data += chunk
                self._check_count(len(data), end - start)
        self._check_count(len(data), end - start, at_end=True)
        return bytes(data)

    async def _whole(
        self,
        copy: IO[bytes],
        progress: Callable[[int], None],
        version: _Version | None,
        is_last_try: Callable[[], bool],
    ) -> None:
        with self._writing():
            copy.seek(0)
            copy.truncate()
        count = 0
        async with await self._request(self._most_seconds) as answer:
            await self._check(answer, version)
            async for chunk in answer.content.iter_any():
                count += len(chunk)
                self._check_count(count, self.size)
                if not is_last_try():
                    raise TimeoutError("it was given up")
                with self._writing():
                    copy.write(chunk)
                progress(count)
        self._check_count(count, self.size, at_end=True)

    def _check_count(self, count: int, expected: int, at_end: bool = False) -> None:
        if count > expected or (at_end and count < expected):
            raise OSError(f"{count:,} bytes were received instead of {expected:,}")

    async def _check(self, answer: Any, version: _Version | None) -> None:
        """Check that an answer has bytes of this version; of any version if it is None.

        Raises:
            OSError: It has no bytes of the file.
            SourceError: It has bytes of another version.
        """
        if answer.status == 404:
            raise FileNotFoundError(self.path)
        if answer.status in (412, 416):  # a condition is not met; a part begins after the end
            raise self._other_version()
        answer.raise_for_status()
        if version is None:
            return
        differs = version.differs(_Version.of(answer.headers))
        if differs is None and (version.etag or version.time):  # some answers do not say it
            differs = stamp_of(await self._fs._info(self._name)) != self.stamp
        if differs:
            raise self._other_version()

    def _check_part(self, answer: Any, start: int) -> None:
        said = answer.headers.get("Content-Range", "")
        part = _PART.fullmatch(said)
        if part is None or int(part[1]) != start:
            raise OSError(f"{said or 'unknown bytes'} were received instead of byte {start}")
        if part[2] not in ("*", str(self.size)):
            raise self._other_version()

    def _other_version(self) -> SourceError:
        self._met_another_version = True
        return SourceError(
            f"{self.path!r} was written again since it was opened, or its servers disagree on its "
            f"version: build a new flow, or copy it first: fl.fetch(url, folder)"
        )


class _Copy:
    """A temporary file that is closed, and so removed, when it is garbage-collected."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(prefix="flowdsl-")  # noqa: SIM115
        weakref.finalize(self, self.file.close)


_copies: OrderedDict[tuple[str, str], tuple[Started[_Copy], int]] = OrderedDict()
"""The copies by URL and stamp, with their sizes; the one that was used last is at the end."""
_lock = threading.Lock()
