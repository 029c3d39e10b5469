"""Digests of whole files, for formats whose rows have no checksums.

A saved state belongs to the content of the files, whatever their paths; so it contains a digest. If
the files of a flow have at most a gigabyte together, they are read completely; otherwise, blocks
that are spread over each file are read. A process computes the digest of a version of a file once.
A source keeps the digest together with the stamp of the version, so a worker process does not
compute it again. Of a remote file, only the ends are read: its ETag or time is part of its digest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import attrs
import numpy as np
import xxhash

from flowdsl.storage.byte_files import ByteFile, LocalFile, guard_file, open_file
from flowdsl.storage.file_source import file_has_changed

WHOLE_BYTES = 1 << 30
"""If the files of a flow have at most this many bytes together, they are read completely."""
_BLOCK_BYTES = 1 << 16
_BLOCKS = 2048
"""The number of blocks that are read of all files of a flow, if they are larger."""
_READ_BYTES = 1 << 20
_REMOTE_BYTES = 1 << 16
"""The bytes that are read from each end of a remote file."""

_known: dict[tuple[str, str, int], int] = {}


@attrs.frozen
class Version:
    """The version of a file that a flow was built from."""

    path: str
    digest: int
    blocks: int
    """The number of blocks that the digest covers; 0 for the whole file."""
    stamp: str = attrs.field(eq=False)

    def open(self, reader: str) -> ByteFile:
        """Open the file, which must have the same content.

        Raises:
            SourceError: The file is missing, or has changed.
        """
        file = open_file(reader, self.path)
        self.guard(file)
        return file

    def guard(self, file: ByteFile) -> None:
        """Compare an open file with this version, now and after each modification.

        Raises:
            SourceError: The file has changed.
        """
        _known[self.path, self.stamp, self.blocks] = self.digest
        if content_digest(file, self.blocks) != self.digest:
            raise file_has_changed(self.path)
        guard_file(file, partial(_is_same, self.digest, self.blocks))


def _is_same(digest: int, blocks: int, file: LocalFile, size: int) -> bool:
    return size == file.size and content_digest(file, blocks) == digest


def versions_of(files: Sequence[ByteFile]) -> list[Version]:
    """Return the present versions of the files of a flow, and guard the files."""
    whole = sum(file.size for file in files) <= WHOLE_BYTES
    blocks = 0 if whole else max(2, _BLOCKS // len(files))
    versions = [
        Version(file.path, content_digest(file, blocks), blocks, file.stamp) for file in files
    ]
    for file, version in zip(files, versions, strict=True):
        version.guard(file)
    return versions


def content_digest(file: ByteFile, blocks: int = 0) -> int:
    """Return a digest of ``blocks`` blocks of a file, or of all its bytes if ``blocks`` is 0.

    For a remote file, it is a digest of its ends and of its ETag or time.
    """
    key = file.path, file.stamp, blocks
    digest = _known.get(key)
    if digest is None or (isinstance(file, LocalFile) and file.is_fresh()):
        digest = _known[key] = _digest(file, blocks)
    return digest


def _digest(file: ByteFile, blocks: int) -> int:
    digest = xxhash.xxh3_64(str(file.size).encode())
    if not isinstance(file, LocalFile):
        digest.update(file.stamp.encode())
        starts, count = [0, max(0, file.size - _REMOTE_BYTES)], _REMOTE_BYTES
    elif blocks:
        last = max(0, file.size - _BLOCK_BYTES)
        starts, count = np.linspace(0, last, blocks, dtype=np.int64).tolist(), _BLOCK_BYTES
    else:
        starts, count = list(range(0, file.size, _READ_BYTES)), _READ_BYTES
    for start in starts:
        digest.update(file.read(start, count))
    return digest.intdigest()
