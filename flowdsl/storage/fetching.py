"""fetch: local copies of remote files."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

import xxhash

from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.resources.file_names import without_secrets
from flowdsl.storage.paths import OnePath, Paths, all_paths, base_name, is_url, local_path
from flowdsl.storage.progress import bar
from flowdsl.storage.temp_dirs import temporary_directory
from flowdsl.storage.urls import remote_file

_HOST = re.compile(r"https?://[^/]*/*")
"""A URL without a path."""


def fetch(paths: Paths, folder: OnePath) -> list[str]:
    r"""Copy remote files into a folder, and return the paths of the copies.

    ``paths`` is a URL, a pattern of URLs, or a list of these; the path of a local file is returned
    unchanged. The folder is created if needed. A file is not copied again unless it changed, by its
    size, time or ETag. A copy appears under its name only when it is complete, so several programs
    may fetch into one folder. On a terminal, a progress bar is shown.

    LMDB, HDF5 and ArrayRecord files can only be read locally. For other formats, a copy pays off if
    a file is read more than once.

    Errors: ``InvalidFlow`` for an invalid path or folder; ``SourceError`` for a file that is
    missing or cannot be read, or if the disk refuses a write.

    >>> import flowdsl as fl, fsspec, pathlib, tempfile
    >>> fsspec.filesystem("memory").pipe("/data/a.txt", b"one\ntwo\n")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (copy,) = fl.fetch("memory://data/*.txt", folder)
    ...     pathlib.Path(copy).read_text()
    'one\ntwo\n'

    Source: ``tf.keras.utils.get_file``; the ``filecache`` of fsspec.
    """
    into = Path(local_path("fetch", folder, remedy="name a folder of it"))
    names = all_paths("fetch", paths)
    try:
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidFlow(f"fetch: {str(into)!r} cannot be a folder: {error.strerror}") from error
    return [_copied(name, into) if is_url(name) else name for name in names]


def _copied(url: str, folder: Path) -> str:
    file = remote_file("fetch", url)
    name = "file" if _HOST.fullmatch(without_secrets(url).partition("?")[0]) else base_name(url)
    stem, dot, suffix = name.rpartition(".")
    mark = xxhash.xxh3_64_hexdigest(f"{url}\n{file.stamp}".encode())
    target = folder / (f"{stem}-{mark}.{suffix}" if dot and stem else f"{name}-{mark}")
    with suppress(FileNotFoundError):
        known = target.lstat()  # a link is replaced: what it leads to is not the copy
        if stat.S_ISREG(known.st_mode) and known.st_size == file.size:
            return str(target)
    try:
        with temporary_directory(folder) as partial:
            path = partial / target.name
            with path.open("wb") as copy, bar(name, file.size, of_bytes=True) as draw:
                file.copy_to(copy, draw)
            os.replace(path, target)
    except OSError as error:
        raise SourceError(f"fetch: {str(target)!r} cannot be written: {error.strerror}") from error
    return str(target)
