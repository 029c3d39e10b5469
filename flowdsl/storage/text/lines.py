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
from flowdsl.nodes import FlowBase
from flowdsl.storage.paths import OnePath, Paths, all_paths
from flowdsl.storage.text.blocks import FromBlocks, checked_encoding, decoded, text_file
from flowdsl.storage.writing import write_file

if TYPE_CHECKING:
    from flowdsl.flow import Flow

BOM = "\ufeff"


@attrs.frozen
class _Lines:
    """Lines in an encoding."""

    encoding: str
    quotes: None = None
    empty: bool = True

    def parse(self, data: bytes, skip: int = 0) -> list[str]:
        data = data.replace(b"\r\n", b"\n")
        return decoded(data, self.encoding)[skip:]


@attrs.frozen(repr=False)
class FromText(FromBlocks[str]):
    """The lines of text files, by number."""

    encoding: str

    @property
    def operator(self) -> str:
        return "from_text"

    @property
    def parser(self) -> _Lines:
        return _Lines(self.encoding)

    def spec(self, probe: bool) -> Spec:
        return ValueSpec(str)


def from_text(paths: Paths, *, encoding: str = "utf-8") -> Flow[str, Exact]:
    r"""The lines of a text file, or of several in turn, without their ends.

    ``paths`` is a path or URL, a pattern such as ``"part-*.txt"``, whose files are sorted, or a
    list of them in the order given. A line ends with ``\n`` or ``\r\n``, and the last one also with
    the file; an empty line is a row. A byte order mark of UTF-8 at the beginning of a file is no
    part of the first line. The encoding has to be one in which a newline is one byte, as in UTF-8.

    Any line is read by its number: one reading of the file finds where lines begin, and keeps that
    in ``.a.txt.index`` beside ``a.txt``. Each process reads only the parts that it works on.

    Length: the number of lines.

    Effects: none.

    Errors: ``SourceError`` at once for a file that is missing, compressed, or in UTF-16; at its
    line for one that is not in the encoding, or if the file was changed since the flow was built.
    A text file has no checksum: a damaged line is another line.

    >>> import flowdsl as fl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = fl.from_items(["to be", "", "or not"]).write_text(f"{folder}/a.txt")
    ...     fl.from_text(f"{folder}/a.txt").collect()
    ['to be', '', 'or not']

    Source: ``TextLineReader`` of TensorFlow's queue runners.

    Elsewhere: tensorpack none; tf.data ``TextLineDataset``; Grain none; torchdata ``LineReader``.
    """
    name = checked_encoding("from_text", encoding)
    files = [
        text_file("from_text", path, bom=name == "utf-8") for path in all_paths("from_text", paths)
    ]
    return nodes.flow(FromText(tuple(files), name))


def write(flow: FlowBase[str, Finite], path: OnePath, overwrite: bool = False) -> int:
    """Run one pass of a flow of lines and write them; gives their number.

    Raises:
        EndlessFlow: It never ends.
        InvalidFlow: The file exists, or its folder does not.
        SourceError: The disk refuses.
        SpecMismatch: An element is no line.
    """
    return write_file("write_text", flow, path, overwrite, _write)


def _write(path: Path, lines: Iterable[str]) -> None:
    with path.open("wb") as file:
        for i, line in enumerate(lines):
            file.write(_as_line(line, i == 0))


def _as_line(line: object, is_first: bool) -> bytes:
    if type(line) is not str:
        raise SpecMismatch(
            f"element: a line must be a str, got {type(line).__name__}; make it one with .map(str)"
        )
    if "\n" in line or line.endswith("\r"):
        raise SpecMismatch(
            f"element: a line must not hold a newline, nor end with '\\r', got {line[:80]!r}"
        )
    if is_first and line.startswith(BOM):
        raise SpecMismatch(
            "element: the first line must not begin with '\\ufeff': it would be read as the byte "
            "order mark of the file"
        )
    return encoded(line, "element") + b"\n"


def encoded(text: str, component: str) -> bytes:
    """Text as UTF-8.

    Raises:
        SpecMismatch: It holds half of a surrogate pair.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise SpecMismatch(
            f"{component}: {error.object[:80]!r} cannot be UTF-8: {error.reason}"
        ) from error
