"""Indexes: what is read of a file to check that its index belongs to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowdsl.storage.byte_files import LocalFile
from flowdsl.storage.index import _sample_digest

BLOCK = 1 << 16


@pytest.mark.parametrize(
    "size", [0, 1, BLOCK, BLOCK + 1, 5 * BLOCK // 2, 16 * BLOCK, 16 * BLOCK + 1]
)
def test_each_byte_of_a_small_file_is_read_once_for_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    (tmp_path / "a").write_bytes(bytes(size))
    file, read = LocalFile("read", str(tmp_path / "a")), LocalFile.read
    parts: list[int] = []

    def counted(self: LocalFile, start: int, count: int) -> bytes:
        data = read(self, start, count)
        parts.append(len(data))
        return data

    monkeypatch.setattr(LocalFile, "read", counted)
    _sample_digest(file)
    assert sum(parts) == min(size, 16 * BLOCK)
    assert max(parts, default=0) <= BLOCK
