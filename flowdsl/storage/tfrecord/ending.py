"""Files of encoded elements end with a record that stores the number and spec of the elements."""

from __future__ import annotations

from typing import Any

import msgspec

from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.errors import SourceError, SpecMismatch
from flowdsl.storage.codec import decode_numbered, spec_from_plain

END = b"\xc1flowdsl tfrecord end\n"
"""The prefix of the last record; valid MessagePack never begins with 0xC1."""

VERSION = 1


class End(msgspec.Struct, frozen=True):
    """The content of the last record of a file of encoded elements."""

    version: int
    length: int
    spec: dict[str, Any]


def end_of(path: str, payload: bytes, rows: int) -> Spec:
    """Return the spec of the rows, from the payload of the last record of a file."""
    try:
        end = msgspec.msgpack.decode(payload[len(END) :], type=End)
        spec = spec_from_plain(end.spec) if end.version == VERSION else UNKNOWN
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise SourceError(f"from_tfrecord: {path!r}: its last record is damaged") from error
    if end.version != VERSION:
        raise SourceError(
            f"from_tfrecord: {path!r} has format version {end.version}, but this flowdsl reads "
            f"version {VERSION}"
        )
    if end.length != rows:
        raise SourceError(
            f"from_tfrecord: {path!r} is damaged: its end says {end.length} rows, but it holds "
            f"{rows}"
        )
    return spec


def no_end(path: str) -> SourceError:
    """Return the error for encoded elements without a valid last record."""
    return SourceError(
        f"from_tfrecord: {path!r} holds no whole flow of encoded elements: it was cut off, or "
        f"written by another program; to read its records as bytes, declare no element"
    )


def encoded_rows(path: str) -> SpecMismatch:
    """Return the error for encoded elements that are read as bytes."""
    return SpecMismatch(
        f"from_tfrecord: {path!r} holds elements that flow.write_tfrecord(path) encoded, not "
        f"bytes; declare them: from_tfrecord(path, Sample), or from_tfrecord(path, object) for any"
    )


def decoded(path: str, i: int, payload: bytes) -> Any:
    """Return the element of row ``i``; raises SourceError if it is invalid or of another row."""
    try:
        return decode_numbered(i, payload)
    except SourceError as error:
        raise SourceError(f"{path!r}: row {i} cannot be read: {error}") from error
