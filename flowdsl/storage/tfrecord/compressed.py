"""Compressed TFRecord files, which can only be read in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, cast

import xxhash

from flowdsl.effects import Unsized
from flowdsl.elements.specs import Spec
from flowdsl.errors import SourceError
from flowdsl.nodes import Node, PassFactory, Row, T, cached_per_node, frozen_node, with_inferred
from flowdsl.storage.byte_files import ByteFile
from flowdsl.storage.compression import Compression, Inflated
from flowdsl.storage.digests import Version
from flowdsl.storage.paths import title_of
from flowdsl.storage.schema import SchemaRows
from flowdsl.storage.tfrecord.ending import END, decoded, encoded_rows, end_of, no_end
from flowdsl.storage.tfrecord.framing import HEADER, checksum_for, cut_short, no_record


@frozen_node
class FromCompressedTFRecord(Node[T, Unsized], Generic[T]):
    """The source of ``from_tfrecord`` for compressed files: their records, in order."""

    versions: tuple[Version, ...]
    compression: Compression
    encoded: bool
    declared: Spec
    size: int | None

    @property
    def _paths(self) -> list[str]:
        return [version.path for version in self.versions]

    @property
    def title(self) -> str:
        return title_of("from_tfrecord", self._paths, f"compression={self.compression!r}")

    @property
    def fingerprint(self) -> str:
        digests = " ".join(str(version.digest) for version in self.versions)
        return f"{self.title} {xxhash.xxh3_64_hexdigest(digests.encode())}"

    @property
    def length(self) -> int | None:
        return None

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return with_inferred(self, self.declared, probe)

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        position = 0
        for version in self.versions:
            path = version.path
            payloads = _streamed(version.open("from_tfrecord"), self.compression)
            for row in self._elements(path, payloads) if self.encoded else _raw(path, payloads):
                yield position, cast("T", row)
                position += 1
        if self.size is not None and self.size != position:
            raise of_another_size(self._paths, self.size, position)

    def _elements(self, path: str, payloads: Iterator[bytes]) -> Iterator[Any]:
        checked = SchemaRows("from_tfrecord", path, self.declared)
        for i, payload in enumerate(payloads):
            if payload.startswith(END):
                end_of(path, payload, i)
                if next(payloads, None) is not None:
                    raise no_end(path)
                return
            row = decoded(path, i, payload)
            yield checked.row(i, row) if checked.changes else row
        raise no_end(path)


def _raw(path: str, payloads: Iterator[bytes]) -> Iterator[bytes]:
    for i, payload in enumerate(payloads):
        if payload.startswith(END):
            end_of(path, payload, i)
            if i or next(payloads, None) is not None:
                raise encoded_rows(path)
            return
        yield payload


def _streamed(file: ByteFile, compression: Compression) -> Iterator[bytes]:
    """Yield the payloads of a compressed file; raises SourceError at the first damaged one."""
    checksum = checksum_for("from_tfrecord")
    content = Inflated("from_tfrecord", file, compression)
    at = 0
    while header := content.read(at, HEADER.size):
        if len(header) < HEADER.size:
            raise cut_short(file.path, at)
        length, expected = HEADER.unpack(header)
        if checksum(header[:8]) != expected:
            raise no_record(file.path, at, header[:2])
        record = content.read(at + HEADER.size, length + 4)
        payload, footer = record[:-4], record[-4:]
        if len(record) < length + 4:
            raise cut_short(file.path, at)
        if footer != checksum(payload).to_bytes(4, "little"):
            raise SourceError(
                f"from_tfrecord: {file.path!r} is damaged: the checksum of the record at byte {at} "
                f"of its content differs"
            )
        yield payload
        at += HEADER.size + length + 4


def of_another_size(paths: Sequence[str], size: int, actual: int) -> SourceError:
    """Return the error for a number of rows that differs from ``size=``."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return SourceError(f"from_tfrecord: size={size}, but {paths[0]!r}{more} holds {actual} rows")
