"""File names: matching patterns, digests of many names, and hiding the secrets of URLs."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

_Name = TypeVar("_Name", str, list[str])


def matches(pattern: str) -> list[str]:
    """Return the names that match a pattern, of folders too, unsorted.

    The leading folders of a pattern that exist under their names are meant literally: in
    ``/data/run[1]/*.txt``, ``run[1]`` is the folder of this name, and not ``run1``.
    """
    return glob.glob(with_literal_folders(pattern, os.sep, os.path.isdir), recursive=True)


def with_literal_folders(pattern: str, sep: str, is_folder: Callable[[str], bool]) -> str:
    """Return a pattern with its special characters escaped in the leading folders that exist."""
    end = end_of_literal_folders(pattern, sep, "*?[", is_folder)
    return re.sub(r"[*?[]", r"[\g<0>]", pattern[:end]) + pattern[end:]


def end_of_literal_folders(
    pattern: str, sep: str, marks: str, is_folder: Callable[[str], bool]
) -> int:
    """Return where the literal folders at the start of a pattern end.

    A folder is literal if it exists under its name, or has none of the special characters
    ``marks``.

    >>> end_of_literal_folders("/run[1]/a/*/b.txt", "/", "*[", lambda folder: folder == "/run[1]")
    10
    """
    end, next_end = 0, pattern.find(sep) + 1
    while next_end:
        if any(c in pattern[end:next_end] for c in marks) and not is_folder(
            pattern[: next_end - 1]
        ):
            break
        end, next_end = next_end, pattern.find(sep, next_end) + 1
    return end


def about_folder(pattern: str) -> str:
    """Return whether the folder of a pattern without matches exists, for the message of an error.

    >>> about_folder("/no/such/*/*.png")
    "the folder '/no/such' does not exist"
    """
    folder = os.path.dirname(pattern)
    while glob.has_magic(folder) and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    exists = "exists" if os.path.isdir(folder or ".") else "does not exist"
    return f"the folder {Url(folder or '.')!r} {exists}"


def pattern_of_folder(folder: str) -> str:
    """Return a pattern for the files in a folder, or in its folders if it has no files itself."""
    try:
        with os.scandir(folder) as entries:
            folders = [entry.is_dir() for entry in entries]
    except OSError:  # it may not be read
        folders = []
    return os.path.join(folder, *(["*", "*"] if folders and all(folders) else ["*"]))


class Url(str):
    """A URL, which may have a password or a signature: its ``repr`` leaves them out.

    Messages and titles have names of files by ``!r``, so that they do not show a secret.

    >>> Url("https://me:secret@example.com/a.csv?token=secret")
    'https://***@example.com/a.csv?***'
    """

    __slots__ = ()

    def __repr__(self) -> str:
        text = str(self)
        if "://" in text:  # characters that end a URL within a text are encoded
            text = re.sub(r"[\s'\"]", lambda one: f"%{ord(one[0]):02X}", text)
        return repr(without_secrets(text))


_URL = r"""(?x)
    (?P<scheme>[A-Za-z][\w+.-]*)://
    (?:(?P<user>[^\s/?#'":@]*)(?P<password>:[^\s/?#'"]*)?@)?
    (?P<location>(?:(?!::[A-Za-z][\w+.-]*://)[^\s?#'"])*)  # a chained URL begins after ::
    (?P<query>\?(?:(?!::[A-Za-z][\w+.-]*://)[^\s'"])*)?"""


def without_secrets(text: str) -> str:
    """Return a text with URLs without their passwords and queries, which may be signatures.

    >>> without_secrets("at s3://bucket/a, url='ftp://me:secret@example.com/b'")
    "at s3://bucket/a, url='ftp://me:***@example.com/b'"
    """
    return re.sub(_URL, _shown, text)


def _shown(url: re.Match[str]) -> str:
    user = url["user"] or ""
    if url["password"]:
        user = f"{user}:***@"
    elif user:
        user = f"{user}@"
    if user and url["scheme"].startswith("http"):  # a token may take the place of the name
        user = "***@"
    return f"{url['scheme']}://{user}{url['location']}{'?***' if url['query'] else ''}"


def common_start(names: Sequence[_Name]) -> _Name:
    """Return the longest start of all names: ``os.path.commonprefix``, deprecated in Python 3.15.

    >>> common_start(["https://host/a1", "https://host/a2"])
    'https://host/a'
    >>> common_start([["a", "b"], ["a"]])
    ['a']
    """
    first, last = min(names), max(names)  # the others are between them, and start likewise
    pairs = enumerate(zip(first, last, strict=False))
    return first[: next((at for at, (one, other) in pairs if one != other), len(first))]


def names_digest(names: Sequence[str]) -> str:
    """Return a digest of the names of files, from the folder that contains them all.

    A flow over files is the same flow where this folder is copied, mounted or unpacked elsewhere.
    The name of the folder counts: ``train`` and ``val`` often have files of equal names.

    >>> train = names_digest(["/a/train/x/1.png", "/a/train/y/1.png"])
    >>> names_digest(["/b/c/train/x/1.png", "/b/c/train/y/1.png"]) == train
    True
    >>> names_digest(["/a/val/x/1.png", "/a/val/y/1.png"]) == train
    False
    """
    from hashlib import blake2b  # here: it loads OpenSSL

    names = [name.replace(os.sep, "/") for name in names]
    folder = common_start(names).rpartition("/")[0] if names else ""
    root = folder.rpartition("/")[0]
    below = "\0".join(name[len(root) :] for name in names).encode(errors="surrogateescape")
    return blake2b(below, digest_size=8).hexdigest()
