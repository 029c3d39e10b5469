"""from_webdataset and write_webdataset: samples of several files each, in tar files, by number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import attrs
import numpy as np
import xxhash
from typing_extensions import TypeForm

from flowdsl import nodes
from flowdsl.effects import Exact, Finite
from flowdsl.elements.specs import Spec, StructSpec, ValueSpec, spec_of_type
from flowdsl.elements.structure import assemble
from flowdsl.errors import InvalidFlow, SourceError, SpecMismatch
from flowdsl.nodes import FlowBase, IndexedSource, T
from flowdsl.storage.byte_files import ByteFile, open_file
from flowdsl.storage.index import Index, Shards, index_of
from flowdsl.storage.paths import OnePath, Paths, all_paths, title_of
from flowdsl.storage.webdataset.tar import BLOCK, END, compression, digest_of, member, members
from flowdsl.storage.writing import write_file

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")

KEY = "__key__"
_NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)
_ABOUT_THE_FILE = re.compile(r"__[^/]*__(/|\Z)")
"""Names of what is in no sample."""
_WINDOW = 1 << 16


@attrs.frozen
class TarFile:
    """One of the files."""

    path: str
    digest: int
    length: int


class _File:
    """A file that is open for reading, and its index.

    Raises:
        SourceError: It is missing, damaged or of another kind.
    """

    def __init__(self, path: str) -> None:
        self._file = open_file("from_webdataset", path)
        self._index = index_of(self._file, "webdataset 2", _scan)
        self.part = TarFile(path, self._index.digest, len(self._index))

    def sample(self, i: int) -> dict[str, Any]:
        """The sample of this number; raises SourceError if it is damaged."""
        first, end = int(self._index.starts[i]), int(self._index.ends[i])
        data = self._file.read(first, end - first)
        path = self._file.path
        sample: dict[str, Any] = {}
        try:
            if len(data) < end - first:
                raise ValueError(
                    f"the file had {self._file.size:,} bytes, and has been cut off since"
                )
            data += END
            files = members(lambda at, count: data[at : at + count], 0, len(data))
            ours = [one for one in files if _split(one.name)[0] is not None]
            for k, one in enumerate(ours):
                content = data[one.start : one.end]
                place = _place(i, k, len(ours), i == self.part.length - 1)
                if one.digest not in (None, digest_of(place, one.name, content)):
                    raise ValueError(
                        f"{one.name!r} is not what was written there: its digest differs"
                    )
                key, extension = _split(one.name)
                if sample.setdefault(KEY, key) != key or extension in sample:
                    raise ValueError(f"{one.name!r} is of another sample than {sample[KEY]!r}")
                sample[extension] = content
            if KEY not in sample:
                raise ValueError("no file of a sample is there any more")
        except ValueError as error:
            raise SourceError(f"{path!r}: row {i} cannot be read: {error}") from error
        return sample


def _place(row: int, number: int, count: int, is_last: bool) -> str:
    """Which of the files of which sample a member is."""
    return f"{row} {number} {count} {is_last}"


def _split(name: str) -> tuple[str | None, str]:
    """The key of the sample that a file belongs to, or None, and the rest of its name."""
    found = None if _ABOUT_THE_FILE.match(name) else _NAME.fullmatch(name)
    return (found[1], found[2].lower()) if found is not None else (None, "")


class _Apart(Exception):
    """The files of a sample are not side by side."""


def _scan(file: ByteFile) -> Index:
    packed = compression(file.read(0, 8))
    if packed is not None:
        raise SourceError(
            f"from_webdataset: {file.path!r} is compressed by {packed}, so no sample can be read "
            f"by itself: decompress it; what is in it is mostly compressed already"
        )
    digest = xxhash.xxh3_64(str(file.size).encode())
    starts: list[int] = []
    ends: list[int] = []
    key, extensions, keys = None, set[str](), set[str]()
    try:
        for one in members(_by_windows(file), 0, file.size):
            digest.update(repr((one.name, one.start, one.size, one.digest)).encode())
            found, extension = _split(one.name)
            if found is None:
                continue
            if found != key:
                if found in keys:
                    raise _Apart(
                        f"sample {found!r} is in two places: {one.name!r} comes after files of "
                        f"other samples; write the files of a sample one after the other, as "
                        f"tar --sort=name does, and each sample under a key of its own"
                    )
                keys.add(found)
                starts.append(one.header)
                ends.append(0)
                key, extensions = found, set()
            if extension in extensions or extension == KEY:
                raise ValueError(f"sample {key!r} has two components {extension!r}")
            extensions.add(extension)
            ends[-1] = min(one.end + -one.size % BLOCK, file.size)
    except _Apart as error:
        raise SourceError(f"from_webdataset: {file.path!r}: {error}") from error
    except ValueError as error:
        raise SourceError(
            f"from_webdataset: {file.path!r} is damaged, or no tar file: {error}"
        ) from error
    if file.size == 0:
        raise SourceError(f"from_webdataset: {file.path!r} is empty")
    return Index(np.array(starts, np.int64), np.array(ends, np.int64), digest.intdigest())


def _by_windows(file: ByteFile) -> Callable[[int, int], bytes]:
    """Reads more than is asked for: headers of small files are close to each other."""
    first, window = 0, b""

    def read(at: int, count: int) -> bytes:
        nonlocal first, window
        if not first <= at <= at + count <= first + len(window):
            first, window = at, file.read(at, max(count, _WINDOW))
        return window[at - first : at - first + count]

    return read


@attrs.frozen
class Field:
    """A component that is declared of a sample."""

    kind: type
    """Of its value: ``bytes``, ``str`` or ``int``; or ``object``, for the bytes too."""
    optional: bool

    def value(self, content: bytes | str | None, told: str) -> Any:
        if content is None and self.optional:
            return None
        if content is None:
            raise SpecMismatch(f"{told} is missing")
        if self.kind in (bytes, object) or isinstance(content, str):
            return content
        try:
            text = content.decode()
            return text if self.kind is str else int(text)
        except ValueError as error:
            raise SpecMismatch(f"{told} is no {self.kind.__name__}: {error}") from error


@attrs.frozen(repr=False)
class FromWebDataset(IndexedSource[T], Generic[T]):
    """The samples of tar files, by number."""

    parts: tuple[TarFile, ...]
    fields: tuple[tuple[str, Field], ...]
    row_spec: Spec

    @property
    def title(self) -> str:
        return title_of("from_webdataset", [part.path for part in self.parts])

    @property
    def fingerprint(self) -> str:
        digests = repr([part.digest for part in self.parts])
        digest = xxhash.xxh3_64_hexdigest(digests.encode())
        return f"{self.title} of {self.length} rows {digest}"

    @property
    def length(self) -> int:
        return sum(part.length for part in self.parts)

    def spec(self, probe: bool) -> Spec:
        return self.row_spec

    def open(self) -> Callable[[int], T]:
        shards = Shards([part.length for part in self.parts])
        files = {0: self._opened(self.parts[0])}  # one that was written again is told at once
        spec = self.row_spec

        def row(i: int) -> Any:
            k, j = shards.find(i)
            if k not in files:
                files[k] = self._opened(self.parts[k])
            sample = files[k].sample(j)
            return self._declared(sample, spec, k) if isinstance(spec, StructSpec) else sample

        return row

    def _declared(self, sample: dict[str, Any], spec: StructSpec, k: int) -> Any:
        told = f"from_webdataset: {self.parts[k].path!r}: sample {sample[KEY]!r}"
        more = sample.keys() - {KEY} - {name for name, _ in self.fields}
        if more:
            raise SpecMismatch(f"{told} has more than is declared: {', '.join(sorted(more))}")
        values = {
            name: field.value(sample.get(name), f"{told}: {name!r}") for name, field in self.fields
        }
        return assemble(spec.form, values)

    def _opened(self, part: TarFile) -> _File:
        file = _File(part.path)
        if file.part != part:
            raise SourceError(
                f"{part.path!r} holds other rows than when this flow was built: build a new flow"
            )
        return file


@overload
def from_webdataset(paths: Paths) -> Flow[dict[str, Any], Exact]: ...
@overload
def from_webdataset(paths: Paths, element: TypeForm[A]) -> Flow[A, Exact]: ...
def from_webdataset(paths: Paths, element: Any = dict) -> Flow[Any, Exact]:
    """The samples of WebDataset's tar files: dicts of the bytes of their files, by extension.

    Files that follow each other, and whose names are alike up to the first dot of the last part,
    are one sample: ``a/7.jpg`` and ``a/7.seg.png`` make ``{"__key__": "a/7", "jpg": ...,
    "seg.png": ...}``. Files of one sample that are apart are an error, where WebDataset gives
    several samples that each lack something. Extensions come in small letters. As in WebDataset,
    what is no regular file is passed over, and so is what has no dot or is named ``__like_this__``.

    ``element`` declares a sample: a TypedDict or record whose components are extensions, and
    ``__key__`` if it is wanted. ``bytes`` are a file's content, ``str`` its text in UTF-8, ``int``
    the number that it spells; ``bytes | None`` is a file that may be missing.

    ``paths`` is a path, a pattern, a URL, or a list of these; files are read in the order given.
    A file's headers are read once, for an index that is kept beside it; then any sample is read by
    its number. A tar file has no checksums but of its headers. In one that ``write_webdataset``
    made, each file has one too, and is checked.

    Length: the number of samples in the files.

    Effects: none.

    Errors: ``SourceError`` at once, if a file is missing, compressed, cut off or no tar file, and
    at the row for damage; ``InvalidFlow`` if ``element`` cannot be made of files; ``SpecMismatch``
    at the row that is not what it declares.

    >>> import flowdsl as fl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = [{"__key__": "cat", "cls": 3}, {"__key__": "dog", "cls": 7}]
    ...     _ = fl.from_items(rows).write_webdataset(f"{folder}/pets.tar")
    ...     fl.from_webdataset(f"{folder}/pets.tar").collect()
    [{'__key__': 'cat', 'cls': b'3'}, {'__key__': 'dog', 'cls': b'7'}]

    Source: WebDataset by Thomas Breuel.

    Elsewhere: tensorpack none; tf.data none; Grain none; torchdata ``WebDataset``.
    """
    fields, spec = _fields(element)
    parts = tuple(_File(name).part for name in all_paths("from_webdataset", paths))
    return nodes.flow(FromWebDataset[Any](parts, fields, spec))


def _fields(element: Any) -> tuple[tuple[tuple[str, Field], ...], Spec]:
    """What is declared, component by component.

    Raises:
        InvalidFlow: It cannot be made of files.
    """
    if (get_origin(element) or element) in (dict, object):
        return (), ValueSpec(dict)
    spec = spec_of_type(element)
    cls = get_origin(element) or element
    if not isinstance(spec, StructSpec) or not isinstance(cls, type) or cls is tuple:
        raise InvalidFlow(
            f"from_webdataset: a sample is declared as a TypedDict or record of its extensions, "
            f"got {element!r}"
        )
    hints = get_type_hints(cls)
    return tuple((name, _field(name, hints.get(name, object))) for name, _ in spec.fields), spec


def _field(name: str, hint: Any) -> Field:
    optional = get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)
    inner = [one for one in get_args(hint) if one is not NoneType] if optional else [hint]
    allowed = (str,) if name == KEY else (bytes, str, int, object)
    if len(inner) != 1 or inner[0] not in allowed or (optional and name == KEY):
        raise InvalidFlow(
            f"from_webdataset: {name} cannot be {hint!r}: a file is bytes, str or int, "
            f"and {KEY} is str"
        )
    return Field(inner[0], optional)


def write(flow: FlowBase[object, Finite], path: OnePath, overwrite: bool = False) -> int:
    """Run one pass of a flow and write its elements; gives the number of rows.

    Raises:
        EndlessFlow: It never ends.
        InvalidFlow: The file exists, or its folder does not.
        SourceError: The disk refuses.
        SpecMismatch: An element cannot be written.
    """
    return write_file("write_webdataset", flow, path, overwrite, _write)


def _write(path: Path, rows: Iterable[object]) -> None:
    keys = set[str]()
    waiting: list[tuple[str, bytes]] = []
    count = 0
    with path.open("wb") as file:
        for row in rows:
            files = _files(row, keys)
            if waiting:
                file.writelines(_sample(count, waiting, is_last=False))
                count += 1
            waiting = files
        file.writelines(_sample(count, waiting, is_last=True))
        file.write(END)


def _files(row: object, keys: set[str]) -> list[tuple[str, bytes]]:
    """The files of a sample, whose key is added to those of the samples before."""
    if not isinstance(row, dict):
        raise SpecMismatch(f"element: {type(row).__name__} is no sample, which is a dict")
    if KEY not in row:
        raise SpecMismatch(
            f"element: it has no {KEY!r}, which names the files of a sample: 'folder/name', say"
        )
    key = _key(row[KEY], keys)
    if len(row) == 1:
        raise SpecMismatch(f"element: sample {key!r} has no files")
    parts = ((extension, value) for extension, value in row.items() if extension != KEY)
    return [(_name(key, extension), _content(extension, value)) for extension, value in parts]


def _sample(row: int, files: list[tuple[str, bytes]], is_last: bool) -> Iterator[bytes]:
    for k, (name, content) in enumerate(files):
        yield from member(_place(row, k, len(files), is_last), name, content)


def _key(key: object, keys: set[str]) -> str:
    at = f"element.{KEY}"
    if type(key) is not str or _split(f"{key}.x") != (key, "x") or _has_no_name(key):
        raise SpecMismatch(
            f"{at}: {key!r} cannot be a file's name up to its first dot; a key is text such as "
            f"'folder/name'"
        )
    if ".." in key.split("/"):
        raise SpecMismatch(f"{at}: {key!r} leads out of the folder that a file is unpacked in")
    if key in keys:
        raise SpecMismatch(
            f"{at}: {key!r} is the key of an earlier row too: their files would be one sample, or "
            f"have the same names; give each row a key of its own"
        )
    keys.add(key)
    return key


def _name(key: str, extension: object) -> str:
    if type(extension) is str and extension and not _has_no_name(extension):
        name = f"{key}.{extension}"
        if not extension.startswith("_") and _split(name) == (key, extension):
            return name
    raise SpecMismatch(
        f"element: {extension!r} cannot be the end of a file's name; it is in small letters, "
        f"without a slash, such as 'jpg'"
    )


def _has_no_name(text: str) -> bool:
    return "\0" in text or not text.isprintable() or text.startswith("/")


def _content(extension: str, value: object) -> bytes:
    if type(value) is bytes:
        return value
    if type(value) in (str, int):
        try:
            return str(value).encode()
        except UnicodeEncodeError as error:
            raise SpecMismatch(f"element.{extension}: no Unicode: {error}") from error
    raise SpecMismatch(
        f"element.{extension}: {type(value).__name__} cannot be written; bytes, str and int can"
    )
