"""What names files: a path, a pattern, or a list of them in the order given; or URLs."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from typing import TypeAlias

from flowdsl.errors import InvalidFlow, SourceError

OnePath: TypeAlias = "str | os.PathLike[str]"
Paths: TypeAlias = "OnePath | Sequence[OnePath]"
"""One file, a pattern that matches several, or a list of both."""


def is_url(path: str) -> bool:
    """Whether it names a file elsewhere, as ``s3://bucket/key`` does."""
    return "://" in path


def one_path(operator: str, path: OnePath) -> str:
    """A path made absolute, from the user's home where it begins with ``~``; a URL as it is.

    Raises:
        InvalidFlow: It is not a str or path.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        empty = ", which is not empty" if path == "" else ""
        raise InvalidFlow(f"{operator}: path must be a str or path{empty}, got {path!r}")
    return text if is_url(text) else os.path.abspath(os.path.expanduser(text))


WRITE_HERE = "write it here, then copy it there"
"""What to do where a writer is given a URL."""


def local_path(operator: str, path: OnePath, remedy: str = "") -> str:
    """A path on this machine's disk; ``remedy`` is told where it is a URL.

    Raises:
        InvalidFlow: It is not a str or path, or it is a URL.
    """
    text = one_path(operator, path)
    if is_url(text):
        raise InvalidFlow(
            f"{operator}: {text!r} must be a file on this machine's disk; "
            f"{remedy or f'copy it first: fl.fetch({text!r}, folder)'}"
        )
    return text


def all_paths(operator: str, paths: Paths) -> tuple[str, ...]:
    """The files that are named, absolute, in the order given; those of a pattern are sorted.

    In a pattern ``*`` and ``?`` stand for characters of a name, ``[ab]`` for one of these, and
    ``**`` for any number of folders. The name of a file that exists is taken as it is.

    Raises:
        InvalidFlow: What is given is no path, and no list of at least one.
        SourceError: No file matches a pattern, or a path is that of a folder.
    """
    given: object = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not isinstance(given, Sequence) or isinstance(given, bytes | bytearray) or not given:
        raise InvalidFlow(
            f"{operator}: path must be a str or path, or a list of at least one, got {paths!r}"
        )
    return tuple(name for one in given for name in _named(operator, one_path(operator, one)))


def _named(operator: str, path: str) -> list[str]:
    if is_url(path):
        from flowdsl.storage.urls import matching  # with fsspec, which most do without

        return matching(operator, path)
    if os.path.isdir(path):
        raise SourceError(
            f"{operator}: {path!r} is a folder, and no file; for those in it, write a pattern such "
            f"as {os.path.join(path, '*')!r}"
        )
    if not glob.has_magic(path) or os.path.exists(path):
        return [path]
    files = sorted(name for name in glob.glob(path, recursive=True) if os.path.isfile(name))
    if not files:
        folder = os.path.dirname(path)
        while glob.has_magic(folder):
            folder = os.path.dirname(folder)
        there = "there is a folder" if os.path.isdir(folder) else "there is no folder"
        raise SourceError(f"{operator}: no file matches {path!r}; {there} {folder!r}")
    return files


def title_of(operator: str, paths: Sequence[str], *options: str) -> str:
    """How a source of these files is named in reports.

    >>> title_of("from_parquet", ["/data/a.parquet", "/data/b.parquet"], "columns=['x']")
    "from_parquet('a.parquet', 2 files, columns=['x'])"
    """
    files = [f"{len(paths)} files"] if len(paths) > 1 else []
    return f"{operator}({', '.join([repr(os.path.basename(paths[0])), *files, *options])})"
