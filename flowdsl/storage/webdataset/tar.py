"""The tar format: finding members, and writing headers with a digest of the member."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterator

import attrs
import xxhash

BLOCK = 512
END = bytes(2 * BLOCK)
"""The end-of-archive mark."""

_DIGEST = "FLOWDSL.xxh3"
TRACES = (b"FLOWDSL", b"xxh3")
"""The start and the end of ``_DIGEST``. A key with this start is a damaged ``_DIGEST``, and so is a
key of its length with this end."""
_FILES = b"0\0007"
_NO_DATA = b"123456"
"""Types of members without data: links, devices, folders and pipes."""
_RECORD = re.compile(rb"(\d{1,10}) ([^=]+)=")
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


@attrs.frozen
class Member:
    """A file in a tar file."""

    name: str
    header: int
    """The offset of its headers."""
    start: int
    size: int
    digest: str | None
    """The digest of its context, name and bytes, if flowdsl wrote it."""

    @property
    def end(self) -> int:
        return self.start + self.size


class Unsupported(ValueError):
    """A part of an intact tar file that is not supported."""


def members(read: Callable[[int, int], bytes], at: int, end: int) -> Iterator[Member]:
    """Yield the files between two offsets; members that are not files are skipped.

    ``read`` returns bytes from an offset. The archive ends with its end mark, or at ``end``.

    Raises:
        ValueError: A header is missing or damaged.
        Unsupported: A member is sparse, or a global header sets names or sizes.
    """
    first, extended, long_name = at, dict[bytes, bytes](), None
    while at < end:
        head = read(at, BLOCK)
        if head == END[:BLOCK]:
            if extended or long_name is not None:
                raise ValueError(f"no file follows the extended header at byte {first}")
            _check_end(read, at, end)
            return
        kind, name, size = _header(head, at)
        start = at + BLOCK
        if b"size" in extended:
            size = _number(extended[b"size"], at)
        if start + size > end:
            raise ValueError(f"the member at byte {at} has {size} bytes: it is cut off")
        at = start if kind in _NO_DATA else start + size + padding(size)
        if kind == b"x":
            extended = _records(read(start, size), start)
        elif kind == b"g":
            if {b"path", b"size"} & _records(read(start, size), start).keys():
                raise Unsupported(
                    f"names or sizes of all files are set at byte {start}, which is not supported"
                )
        elif kind == b"L":
            long_name = read(start, size).rstrip(b"\0")
        elif kind == b"S" or any(key.startswith(b"GNU.sparse") for key in extended):
            raise Unsupported(f"{_text(name, first)!r} is a sparse file, which is not supported")
        else:
            if kind in _FILES:
                text = _text(extended.get(b"path") or long_name or name, first)
                yield Member(text, first, start, size, _digest_in(extended, first))
            if kind != b"K":
                first, extended, long_name = at, {}, None
    raise ValueError("it has no end: it is cut off")


def _check_end(read: Callable[[int, int], bytes], at: int, end: int) -> None:
    if read(at, 2 * BLOCK) != END:
        raise ValueError("its end is cut off")
    step = 1 << 20
    for start in range(at, end, step):
        rest = read(start, min(step, end - start))
        if rest.count(0) != len(rest):
            raise ValueError(f"something follows its end, which is at byte {at}")


def _header(head: bytes, at: int) -> tuple[bytes, bytes, int]:
    """Parse a header into its kind, name and size.

    The name is not decoded: it may be cut within a character, if an earlier header has all of it.
    """
    if len(head) != BLOCK:
        raise ValueError(f"its header at byte {at} is cut off")
    checksum = head[148:156].strip(b" \0")
    if not checksum.isdigit() or int(checksum, 8) != sum(head[:148]) + 8 * 32 + sum(head[156:]):
        raise ValueError(f"at byte {at} there is no header of a tar file, or a damaged one")
    name = head[:100].partition(b"\0")[0]
    if head[257:263] == b"ustar\0" and head[345]:
        name = head[345:500].partition(b"\0")[0] + b"/" + name
    field = head[124:136]
    if field[0] == 0x80:  # GNU's binary form of large sizes
        return head[156:157], name, int.from_bytes(field[1:], "big")
    return head[156:157], name, _number(field.strip(b" \0") or b"0", at, 8)


def _number(digits: bytes, at: int, base: int = 10) -> int:
    if not digits.isdigit() or len(digits) > 20:
        raise ValueError(f"the size at byte {at} is not a number: {digits!r}")
    return int(digits, base)


def _text(name: bytes, at: int) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"the name at byte {at} is not text: {error}") from error


def _records(data: bytes, at: int) -> dict[bytes, bytes]:
    """Parse the entries of an extended header as bytes: entries that are not used may be binary."""
    records: dict[bytes, bytes] = {}
    k = 0
    while k < len(data):
        match = _RECORD.match(data, k)
        end = k + int(match[1]) if match else 0
        if match is None or end > len(data) or data[end - 1 : end] != b"\n" or end <= match.end():
            raise ValueError(f"the extended header at byte {at} is damaged")
        records[match[2]] = data[match.end() : end - 1]
        k = end
    return records


def _digest_in(extended: dict[bytes, bytes], at: int) -> str | None:
    digest = extended.get(_DIGEST.encode())
    if digest is not None:
        return digest.decode(errors="replace")
    head, tail = TRACES
    if any(
        key.startswith(head) or (key.endswith(tail) and len(key) == len(_DIGEST))
        for key in extended
    ):
        raise ValueError(f"the extended header at byte {at} is damaged")
    return None


def digest_of(context: str, name: str, content: bytes) -> str:
    """Return the digest of a member and its context, which shows if other members were lost."""
    digest = xxhash.xxh3_64(f"{context}\0{name}\0".encode())
    digest.update(content)
    return digest.hexdigest()


def padding(size: int) -> int:
    """Return the number of zeros that fill the last block of a member."""
    return -size % BLOCK


def member(context: str, name: str, content: bytes) -> Iterator[bytes]:
    """Yield the bytes of a member, with its headers."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.pax_headers = {_DIGEST: digest_of(context, name, content)}
    yield info.tobuf(tarfile.PAX_FORMAT, "utf-8")
    yield content
    yield bytes(padding(len(content)))


def compression(head: bytes) -> str | None:
    """Return the name of the compression of a file with this beginning, or None."""
    return next((name for magic, name in _COMPRESSED.items() if head.startswith(magic)), None)
