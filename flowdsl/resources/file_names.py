"""Names of files: those that a pattern matches, and a digest of many that names no folder above."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence


def matches(pattern: str) -> list[str]:
    """Return the names that match a pattern, of folders too, unsorted.

    The leading folders of a pattern that exist under their names are meant literally: in
    ``/data/run[1]/*.txt``, ``run[1]`` is the folder of this name, and not ``run1``.
    """
    return glob.glob(_with_literal_folders(pattern), recursive=True)


def _with_literal_folders(pattern: str) -> str:
    parts = pattern.split(os.sep)
    for k, part in enumerate(parts[:-1]):
        if not glob.has_magic(part):
            continue
        if not os.path.isdir(os.sep.join(parts[: k + 1])):
            return os.sep.join([*map(glob.escape, parts[:k]), *parts[k:]])
    return os.sep.join([*map(glob.escape, parts[:-1]), parts[-1]])


def about_folder(pattern: str) -> str:
    """Return whether the folder of a pattern without matches exists, for the message of an error.

    >>> about_folder("/no/such/*/*.png")
    "the folder '/no/such' does not exist"
    """
    folder = os.path.dirname(pattern)
    while glob.has_magic(folder) and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    exists = "exists" if os.path.isdir(folder or ".") else "does not exist"
    return f"the folder {folder or '.'!r} {exists}"


def names_digest(names: Sequence[str]) -> str:
    """Return a digest of the names of files below the folder that contains them all.

    A flow over files is the same flow where the folder is copied, mounted or unpacked elsewhere.

    >>> names_digest(["/a/x/1.png", "/a/y/1.png"]) == names_digest(["/b/c/x/1.png", "/b/c/y/1.png"])
    True
    """
    from hashlib import blake2b  # here: it loads OpenSSL

    names = [name.replace(os.sep, "/") for name in names]
    root = os.path.commonprefix(names).rpartition("/")[0]  # noqa: RUF071  # names may be URLs
    below = "\0".join(name[len(root) :] for name in names).encode(errors="surrogateescape")
    return blake2b(below, digest_size=8).hexdigest()
