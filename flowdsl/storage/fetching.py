"""fetch: copies of files elsewhere, on this machine's disk."""

from __future__ import annotations

import os
from pathlib import Path

import xxhash

from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.storage.paths import OnePath, Paths, all_paths, is_url, local_path
from flowdsl.storage.progress import bar
from flowdsl.storage.temp_dirs import temporary_directory
from flowdsl.storage.urls import BLOCK, RemoteFile


def fetch(paths: Paths, folder: OnePath) -> list[str]:
    r"""Copy files from elsewhere to a folder, and give the names of the copies.

    ``paths`` is a URL, a pattern of URLs, or a list of them; a file of this machine is given as it
    is. The folder is made if need be. What is there already is not read again, unless the file has
    changed since (as its size, time or ETag tell). A copy appears when it is complete, so several
    programs may fetch into one folder. On a terminal a bar shows how far it is.

    LMDB, HDF5 and ArrayRecord files are read on this machine alone; for other formats a copy pays
    where a file is read more than once.

    Errors: ``InvalidFlow`` for what is no path or folder; ``SourceError`` for a file that is
    missing or cannot be read, or if the disk refuses.

    >>> import flowdsl as fl, fsspec, pathlib, tempfile
    >>> fsspec.filesystem("memory").pipe("/data/a.txt", b"one\ntwo\n")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (copy,) = fl.fetch("memory://data/*.txt", folder)
    ...     pathlib.Path(copy).read_text()
    'one\ntwo\n'

    Source: ``tf.keras.utils.get_file``; the ``filecache`` of fsspec.
    """
    into = Path(local_path("fetch", folder, "name a folder of it"))
    names = all_paths("fetch", paths)
    try:
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidFlow(f"fetch: {str(into)!r} cannot be a folder: {error.strerror}") from error
    return [_copied(name, into) if is_url(name) else name for name in names]


def _copied(url: str, folder: Path) -> str:
    file = RemoteFile("fetch", url)
    name = os.path.basename(url.partition("?")[0]) or "file"
    stem, dot, suffix = name.rpartition(".")
    mark = xxhash.xxh3_64_hexdigest(f"{url}\n{file.stamp}".encode())
    target = folder / (f"{stem}-{mark}.{suffix}" if dot and stem else f"{name}-{mark}")
    if target.is_file() and target.stat().st_size == file.size:
        return str(target)
    try:
        with temporary_directory(folder) as partial:
            path = partial / target.name
            with path.open("wb") as copy, bar(name, file.size, of_bytes=True) as draw:
                for start in range(0, file.size, BLOCK):
                    copy.write(file.read(start, BLOCK))
                    draw(start)
            os.replace(path, target)
    except OSError as error:
        raise SourceError(f"fetch: {str(target)!r} cannot be written: {error.strerror}") from error
    return str(target)
