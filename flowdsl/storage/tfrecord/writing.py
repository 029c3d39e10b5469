"""write_tfrecord: rows of bytes unchanged, other rows encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import cast

import msgspec

from flowdsl.effects import Finite
from flowdsl.elements.specs import UNKNOWN, Spec, ValueSpec, join, spec_of
from flowdsl.errors import SpecMismatch
from flowdsl.nodes import FlowBase
from flowdsl.storage.codec import SameTupleNames, encode_numbered, spec_to_plain
from flowdsl.storage.compression import Compression, Output, check_compression, created
from flowdsl.storage.paths import OnePath
from flowdsl.storage.tfrecord.ending import END, VERSION, End
from flowdsl.storage.tfrecord.framing import Checksum, checksum_for, framed
from flowdsl.storage.writing import spec_without_rows, write_file


def write(
    flow: FlowBase[object, Finite],
    path: OnePath,
    compression: Compression | None = None,
    overwrite: bool = False,
) -> int:
    """Write the elements of a flow, as its method ``write_tfrecord`` does."""
    check_compression("write_tfrecord", compression)
    checksum = checksum_for("write_tfrecord")

    def written(partial_path: Path, elements: Iterable[object]) -> None:
        with created(partial_path, compression) as file:
            _write(file, elements, checksum, lambda: spec_without_rows(flow))

    return write_file("write_tfrecord", flow, path, overwrite, written)


def _write(
    out: Output,
    elements: Iterable[object],
    checksum: Checksum,
    without_rows: Callable[[], Spec],
) -> None:
    """Write rows; without any, the spec decides whether the file is one of bytes."""
    spec: Spec | None = None
    length, raw, tuple_names = 0, False, SameTupleNames()
    for row in elements:
        if length == 0:
            raw = type(row) is bytes
        elif raw is not (type(row) is bytes):
            before = "bytes" if raw else "encoded elements"
            raise SpecMismatch(
                f"element: {type(row).__name__} after {before}; a file holds either bytes, "
                f"unchanged, or other elements, encoded: (x,) is encoded whatever x is"
            )
        if isinstance(row, bytes) and row.startswith(END):
            raise SpecMismatch("element: bytes that begin like the end of encoded elements")
        out.write(framed(cast("bytes", row) if raw else encode_numbered(length, row), checksum))
        if not raw:
            seen = spec_of(row)
            tuple_names.check(seen)
            spec = seen if spec is None else join(spec, seen)
        length += 1
    if length == 0:
        raw = without_rows() == ValueSpec(bytes)
    if not raw:
        end = End(VERSION, length, spec_to_plain(spec or UNKNOWN))
        out.write(framed(END + msgspec.msgpack.encode(end), checksum))
