"""Opening files of text: plain or compressed by gzip, and errors for files of other kinds."""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.storage.byte_files import ByteFile, open_file
from flowdsl.storage.compression import Inflated, compression_of_name

TextCompression: TypeAlias = Literal["infer", "gzip"] | None
"""``"infer"`` is gzip for a file whose name or content says so."""

_KNOWN: tuple[TextCompression, ...] = ("infer", "gzip", None)
_GZIP = b"\x1f\x8b"
_COMPRESSED = {
    b"\xfd7zXZ\0": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    **{b"BZh%d1AY&SY" % level: ("bzip2", "bunzip2") for level in range(1, 10)},
}
_NOT_TEXT = {
    b"PK\x03\x04": "a zip archive, as .xlsx, .ods and .npz files are",
    b"\xd0\xcf\x11\xe0": "a document of Office, as .xls files are",
    b"PAR1\x15": "a Parquet file",
    b"\x89HDF\r\n": "an HDF5 file",
    b"ARROW1\0\0": "an Arrow file",
    b"\x93NUMPY": "an array of NumPy",
    b"SQLite format 3\0": "a database of SQLite",
    b"\x89PNG": "a PNG image",
}
"""The first bytes of other files, which users pass by mistake or export with a wrong suffix."""
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


@attrs.frozen
class OpenText:
    """A file of text, and its content: another file if it is compressed."""

    file: ByteFile
    compression: Literal["gzip"] | None
    content: ByteFile


def open_text(operator: str, path: str, compression: TextCompression) -> OpenText:
    """Open a file of text.

    Raises:
        SourceError: The file is missing, compressed in another way, not text, or in UTF-16 or
            UTF-32.
    """
    file = open_file(operator, path)
    if compression == "infer":
        is_gzip = file.read(0, len(_GZIP)) == _GZIP
        compression = "gzip" if is_gzip else compression_of_name(path)
    content = file if compression is None else Inflated(operator, file, compression)
    begin = content.read(0, 16)
    if begin.startswith(_GZIP):
        twice = " twice: decompress it once" if compression else "; pass compression='infer'"
        raise SourceError(f"{operator}: {path!r} is compressed by gzip{twice}")
    for magic, (form, command) in _COMPRESSED.items():
        if begin.startswith(magic):
            raise SourceError(
                f"{operator}: {path!r} is compressed by {form}, so its rows cannot be read by "
                f"number: decompress it first, e.g. with {command}, or compress it by gzip"
            )
    for magic, form in _NOT_TEXT.items():
        if begin.startswith(magic):
            raise SourceError(
                f"{operator}: {path!r} is not text but {form}; read it with the function of its "
                f"format, or export it as text"
            )
    if begin.startswith(_UTF16_BOMS):
        raise SourceError(
            f"{operator}: {path!r} begins like UTF-16 or UTF-32, where a newline is more "
            f"than one byte: convert it first, e.g. with iconv -t UTF-8"
        )
    return OpenText(file, compression, content)


def checked_compression(operator: str, compression: object) -> TextCompression:
    """Return the argument of a reader.

    Raises:
        InvalidFlow: It is another compression.
    """
    for known in _KNOWN:
        if compression == known:
            return known
    raise InvalidFlow(
        f"{operator}: compression must be 'infer', 'gzip' or None, got {compression!r}"
    )
