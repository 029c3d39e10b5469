"""from_text and write_text: the lines of text files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from flowdsl import nodes
from flowdsl.effects import Exact, Finite
from flowdsl.elements.specs import Spec, ValueSpec
from flowdsl.errors import SpecMismatch
from flowdsl.nodes import READER_KEYWORD_ADVICE, FlowBase, frozen_node, rejects_keywords
from flowdsl.storage.compression import compression_of_name, created
from flowdsl.storage.paths import OnePath, Paths, all_paths
from flowdsl.storage.text.blocks import FromBlocks
from flowdsl.storage.text.decoding import checked_encoding, decoded
from flowdsl.storage.text.indexing import text_file
from flowdsl.storage.text.opening import TextCompression, checked_compression
from flowdsl.storage.writing import write_file

if TYPE_CHECKING:
    from flowdsl.flow import Flow

BOM = "\ufeff"


@attrs.frozen
class _Lines:
    """Parses blocks into decoded lines."""

    encoding: str
    syntax: None = None
    keeps_empty_lines: bool = True

    def parse(self, data: bytes, skip: int = 0) -> list[str]:
        data = data.replace(b"\r\n", b"\n")
        return decoded(data, self.encoding)[skip:]


@frozen_node
class FromText(FromBlocks[str]):
    """The source of ``from_text``: the lines of text files, by index."""

    encoding: str

    @property
    def operator(self) -> str:
        return "from_text"

    @property
    def parser(self) -> _Lines:
        return _Lines(self.encoding)

    def spec(self, probe: bool) -> Spec:
        return ValueSpec(str)


@rejects_keywords(**READER_KEYWORD_ADVICE)
def from_text(
    paths: Paths, *, encoding: str = "utf-8", compression: TextCompression = "infer"
) -> Flow[str, Exact]:
    r"""Read the lines of one text file, or of several in sequence, without line endings.

    ``paths`` is a path or URL, a pattern such as ``"part-*.txt"``, whose files are sorted, or a
    list of these, in the listed order. A line ends with ``\n`` or ``\r\n``; the last one may end
    with the file. An empty line is a row. A UTF-8 byte order mark at the beginning of a file is
    skipped. In the encoding, a newline must be one byte, and a shift to other characters must end
    with its line, as in ISO-2022-JP.

    A file that is compressed by gzip, by its name ``a.txt.gz`` or by its first bytes, is read as if
    it were not; ``compression="gzip"`` and ``None`` decide in place of the name. Lines in order are
    decompressed as they are read. Once lines are read in random order, each process keeps up to 100
    MB from which it can decompress in the middle of files; each line then costs a millisecond, or
    more in files of gigabytes: shuffle them in blocks, ``shuffle(block=1000)``, or decompress them
    first.

    Lines are accessible by index: the file is scanned once for the beginnings of lines, which are
    stored in ``.a.txt.index`` beside ``a.txt``. Each process reads only the parts it works on.

    Length: the number of lines.

    Effects: none.

    Errors: ``SourceError`` when the flow is built, for a file that is missing, in UTF-16, damaged
    gzip, or compressed other than by gzip; at the line, if it is not in the encoding, or if the
    file changed after the flow was built. A text file that is not compressed has no checksum:
    corruption goes undetected.

    >>> import flowdsl as fl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = fl.from_items(["to be", "", "or not"]).write_text(f"{folder}/a.txt")
    ...     fl.from_text(f"{folder}/a.txt").collect()
    ['to be', '', 'or not']

    Source: ``TextLineReader`` of TensorFlow's queue runners.

    Elsewhere: tensorpack none; tf.data ``TextLineDataset``; Grain none; torchdata ``LineReader``.
    """
    name = checked_encoding("from_text", encoding)
    compression = checked_compression("from_text", compression)
    files = [
        text_file("from_text", path, compression, bom=name == "utf-8")
        for path in all_paths("from_text", paths)
    ]
    return nodes.flow(FromText(tuple(files), name))


def write(flow: FlowBase[str, Finite], path: OnePath, overwrite: bool = False) -> int:
    """Write the elements of a flow, as its method ``write_text`` does."""
    return write_file("write_text", flow, path, overwrite, _write)


def _write(path: Path, lines: Iterable[str]) -> None:
    with created(path, compression_of_name(path.name)) as file:
        for i, line in enumerate(lines):
            file.write(_as_line(line, is_first=i == 0))


def _as_line(line: object, is_first: bool) -> bytes:
    if type(line) is not str:
        raise SpecMismatch(
            f"element: a line must be a str, got {type(line).__name__}; make it one with .map(str)"
        )
    if "\n" in line or line.endswith("\r"):
        raise SpecMismatch(
            f"element: a line must not contain a newline or end with '\\r', got {line[:80]!r}"
        )
    if is_first and line.startswith(BOM):
        raise SpecMismatch(
            "element: the first line must not begin with '\\ufeff': it would be read as the byte "
            "order mark of the file"
        )
    return encoded(line, "element") + b"\n"


def encoded(text: str, component: str) -> bytes:
    """Encode text as UTF-8.

    Raises:
        SpecMismatch: The text contains half of a surrogate pair.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise SpecMismatch(
            f"{component}: {error.object[:80]!r} cannot be encoded as UTF-8: {error.reason}"
        ) from error
