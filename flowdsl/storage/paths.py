"""Arguments that name files: a path, a pattern, a list of these, or URLs."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from typing import TypeAlias

from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.resources.file_names import (
    Url,
    about_folder,
    end_of_literal_folders,
    matches,
    pattern_of_folder,
    without_secrets,
)

OnePath: TypeAlias = "str | os.PathLike[str]"
Paths: TypeAlias = "OnePath | Sequence[OnePath]"
"""A file, a pattern that matches several files, or a list of these."""


def is_url(path: str) -> bool:
    """Return True if the path is a URL, such as ``s3://bucket/key``."""
    return "://" in path


def one_path(operator: str, path: OnePath) -> str:
    """Return an absolute path, with a leading ``~`` expanded; URLs are returned unchanged.

    Raises:
        InvalidFlow: The path is not a str or path.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        empty = ", which is not empty" if path == "" else ""
        raise InvalidFlow(
            f"{operator}: path must be a str or path{empty}, got {without_secrets(repr(path))}"
        )
    return Url(text) if is_url(text) else os.path.abspath(os.path.expanduser(text))


URL_REMEDY = "write it here, then copy it there"
"""The remedy in the error of a writer that gets a URL."""


def local_path(operator: str, path: OnePath, remedy: str = "") -> str:
    """Return a path on this machine; for a URL the error suggests ``remedy``.

    Raises:
        InvalidFlow: The path is not a str or path, or is a URL.
    """
    text = one_path(operator, path)
    if is_url(text):
        raise InvalidFlow(
            f"{operator}: {text!r} must be a file on this machine's disk; "
            f"{remedy or f'copy it first: fl.fetch({text!r}, folder)'}"
        )
    return text


def all_paths(operator: str, paths: Paths) -> tuple[str, ...]:
    """Return the absolute paths of the named files, in order; matches of a pattern are sorted.

    In a pattern, ``*`` and ``?`` match characters of a name, ``[ab]`` one of these characters, and
    ``**`` any number of folders. ``{000..146}`` stands for these numbers and ``{a,b}`` for these
    texts, each in a name of its own, in this order. A name that exists as a file is not treated as
    a pattern, nor are leading folders that exist, as in ``run[1]/*.txt`` or ``{a,b}/*.txt``.

    Raises:
        InvalidFlow: The argument is neither a path nor a list of at least one path, or has braces
            that stand for too many names.
        SourceError: No file matches a pattern, or a path is a folder.
    """
    return tuple(name for _, names in named_paths(operator, paths) for name in names)


def named_paths(operator: str, paths: Paths) -> list[tuple[str, list[str]]]:
    """Return each path or pattern, without braces, with the files that it names."""
    listed: object = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not isinstance(listed, Sequence) or isinstance(listed, bytes | bytearray) or not listed:
        raise InvalidFlow(
            f"{operator}: path must be a str or path, or a list of at least one, got "
            f"{without_secrets(repr(paths))}"
        )
    return [
        (one, _named(operator, one))
        for path in listed
        for one in without_braces(operator, one_path(operator, path))
    ]


_MOST_NAMES = 1_000_000
_BRACES = re.compile(r"\{(?:(\d{1,18})\.\.(\d{1,18})|([^{},]*(?:,[^{},]*)+))\}")


def without_braces(operator: str, path: str) -> list[str]:
    """Return the names that braces stand for, as a shell and WebDataset read them.

    Raises:
        InvalidFlow: There are too many of them.

    >>> without_braces("from_text", "{a,b}-{08..10}.txt")
    ['a-08.txt', 'a-09.txt', 'a-10.txt', 'b-08.txt', 'b-09.txt', 'b-10.txt']
    """
    is_local = not is_url(path)
    if "{" not in path or (is_local and os.path.exists(path)):
        return [path]
    start = end_of_literal_folders(path, os.sep, "{", os.path.isdir) if is_local else 0
    names, count, at = [""], 1, 0
    for braces in _BRACES.finditer(path, start):
        parts = _numbers(braces[1], braces[2]) if braces[1] else braces[3].split(",")
        count *= len(parts)
        if count > _MOST_NAMES:
            raise InvalidFlow(f"{operator}: the braces in {path!r} stand for {count:,} files")
        before, at = path[at : braces.start()], braces.end()
        names = [f"{name}{before}{part}" for name in names for part in parts]
    return [type(path)(name + path[at:]) for name in names]  # keep the class Url


def _numbers(first: str, last: str) -> Sequence[str]:
    """Return the numbers of a range as text, padded with zeros if an end is."""
    is_padded = any(len(end) > 1 and end.startswith("0") for end in (first, last))
    width = max(len(first), len(last)) if is_padded else 0
    step = 1 if int(first) <= int(last) else -1
    numbers = range(int(first), int(last) + step, step)
    return [f"{n:0{width}d}" for n in numbers[: _MOST_NAMES + 1]]


def _named(operator: str, path: str) -> list[str]:
    if is_url(path):
        from flowdsl.storage.urls import matching  # needs fsspec, which local files do not

        return list(map(Url, matching(operator, path)))
    if os.path.isdir(path):
        raise SourceError(
            f"{operator}: {path!r} is a folder, not a file; for the files in it, write a pattern "
            f"as {pattern_of_folder(path)!r}"
        )
    if not glob.has_magic(path) or os.path.exists(path):
        return [path]
    names = matches(path)
    files = sorted(filter(os.path.isfile, names))
    if names and not files:
        raise SourceError(
            f"{operator}: {path!r} matches folders only; for the files in them, write a pattern as "
            f"{os.path.join(path, '*')!r}"
        )
    if not files:
        raise SourceError(f"{operator}: no file matches {path!r}; {about_folder(path)}")
    return files


def title_of(operator: str, paths: Sequence[str], *options: str) -> str:
    """Return the name of a source in reports.

    >>> title_of("from_parquet", ["/data/a.parquet", "/data/b.parquet"], "columns=['x']")
    "from_parquet('a.parquet', 2 files, columns=['x'])"
    """
    files = [f"{len(paths)} files"] if len(paths) > 1 else []
    return f"{operator}({', '.join([repr(base_name(paths[0])), *files, *options])})"


def base_name(path: str) -> str:
    """Return the last part of a path, or of a URL without its query.

    >>> base_name("https://example.com/data/a.csv?token=secret")
    'a.csv'
    """
    if is_url(path):
        path = without_secrets(path).partition("?")[0].rstrip("/")
    return os.path.basename(path)
