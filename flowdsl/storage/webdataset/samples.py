"""from_webdataset and write_webdataset: samples of several files each, in tar files, by index."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_origin, overload

import attrs
import numpy as np
import xxhash
from typing_extensions import TypeForm

from flowdsl import nodes
from flowdsl.effects import Exact, Finite
from flowdsl.elements.declared_specs import optional_components, spec_of_type
from flowdsl.elements.hints import type_hints, without_none
from flowdsl.elements.specs import Spec, StructSpec, ValueSpec
from flowdsl.elements.structure import assemble
from flowdsl.errors import InvalidFlow, SourceError, SpecMismatch
from flowdsl.nodes import READER_KEYWORD_ADVICE, FlowBase, T, frozen_node, rejects_keywords
from flowdsl.storage.byte_files import ByteFile, open_file
from flowdsl.storage.digests import Version, versions_of
from flowdsl.storage.file_source import ShardedSource
from flowdsl.storage.index import Index, index_of
from flowdsl.storage.paths import OnePath, Paths, all_paths, title_of
from flowdsl.storage.values import components_to_store
from flowdsl.storage.webdataset.tar import (
    END,
    Unsupported,
    compression,
    digest_of,
    member,
    members,
    padding,
)
from flowdsl.storage.writing import write_file

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")

KEY = "__key__"
_NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)
_METADATA_NAME = re.compile(r"__[^/]*__(/|\Z)")
"""Names of members that do not belong to a sample."""
_WINDOW = 1 << 16


@attrs.frozen
class TarFile:
    """The identity of one file: its version and number of samples."""

    version: Version
    length: int

    @property
    def path(self) -> str:
        return self.version.path


class _File:
    """A tar file that is open for reading, with its index.

    Raises:
        SourceError: The file is missing, damaged or not a tar file.
    """

    def __init__(self, file: ByteFile) -> None:
        self._file = file
        self._index = index_of(file, "webdataset 2", _scan)
        self.length = len(self._index)

    def sample(self, i: int) -> dict[str, Any]:
        """Return sample ``i``; raises SourceError if it is damaged."""
        first, end = int(self._index.starts[i]), int(self._index.ends[i])
        data = self._file.read(first, end - first)
        path = self._file.path
        sample: dict[str, Any] = {}
        try:
            if len(data) < end - first:
                raise ValueError(f"the file had {self._file.size:,} bytes, and was truncated since")
            # ``members`` expects the end of the archive, and adding it would copy the sample
            size = len(data) + len(END)
            files = members(lambda at, count: data[at : at + count] or END[:count], 0, size)
            ours = [file for file in files if _split(file.name)[0] is not None]
            for k, file in enumerate(ours):
                content = data[file.start : file.end]
                context = _digest_context(i, k, len(ours), i == self.length - 1)
                if file.digest not in (None, digest_of(context, file.name, content)):
                    raise ValueError(
                        f"{file.name!r} is not what was written there: its digest differs"
                    )
                key, extension = _split(file.name)
                if sample.setdefault(KEY, key) != key or extension in sample:
                    raise ValueError(
                        f"{file.name!r} belongs to a sample other than {sample[KEY]!r}"
                    )
                sample[extension] = content
            if KEY not in sample:
                raise ValueError("the files of the sample are gone")
        except ValueError as error:
            raise SourceError(f"{path!r}: row {i} cannot be read: {error}") from error
        return sample


def _digest_context(row: int, number: int, count: int, is_last: bool) -> str:
    """Return a text that identifies a member by its sample and its number in the sample."""
    return f"{row} {number} {count} {is_last}"


def _split(name: str) -> tuple[str | None, str]:
    """Return the key of the sample that a file belongs to, or None, and its extension."""
    match = None if _METADATA_NAME.match(name) else _NAME.fullmatch(name)
    return (match[1], match[2].lower()) if match is not None else (None, "")


class _NotSamples(Exception):
    """An intact tar file whose files are not samples."""


def _scan(file: ByteFile) -> Index:
    packed = compression(file.read(0, 8))
    if packed is not None:
        raise SourceError(
            f"from_webdataset: {file.path!r} is compressed by {packed}, so no sample can be read "
            f"by itself: decompress it; its files are mostly compressed already"
        )
    digest = xxhash.xxh3_64(str(file.size).encode())
    starts: list[int] = []
    ends: list[int] = []
    key, extensions, keys, skipped = None, set[str](), set[str](), ""
    has_digests: bool | None = None
    try:
        for entry in members(_by_windows(file), 0, file.size):
            digest.update(repr((entry.name, entry.start, entry.size, entry.digest)).encode())
            own_key, extension = _split(entry.name)
            if own_key is None:
                if entry.digest is not None:  # of write_webdataset, which writes samples only
                    raise ValueError(f"{entry.name!r} is not the name that was written there")
                skipped = skipped or ("" if _METADATA_NAME.match(entry.name) else entry.name)
                continue
            if has_digests is None:
                has_digests = entry.digest is not None
            if has_digests != (entry.digest is not None):
                raise ValueError(
                    f"{entry.name!r} has {'no' if has_digests else 'a'} digest, unlike the files "
                    f"before it (or another program added files to one of write_webdataset)"
                )
            if own_key != key:
                if own_key in keys:
                    raise _NotSamples(
                        f"sample {own_key!r} is in two places: {entry.name!r} comes after files of "
                        f"other samples; write the files of a sample one after the other, as "
                        f"tar --sort=name does, and each sample under a key of its own"
                    )
                keys.add(own_key)
                starts.append(entry.header)
                ends.append(0)
                key, extensions = own_key, set()
            if extension in extensions or extension == KEY:
                raise _NotSamples(f"sample {key!r} has two components {extension!r}")
            extensions.add(extension)
            ends[-1] = min(entry.end + padding(entry.size), file.size)
        if skipped and not starts:
            raise _NotSamples(
                f"it contains no samples: {skipped!r} has no extension, nor has any other file; "
                f"name the files of a sample like 'a/7.jpg' and 'a/7.cls'"
            )
    except (_NotSamples, Unsupported) as error:
        raise SourceError(f"from_webdataset: {file.path!r}: {error}") from error
    except ValueError as error:
        raise SourceError(
            f"from_webdataset: {file.path!r} is damaged or is not a tar file: {error}"
        ) from error
    if file.size == 0:
        raise SourceError(f"from_webdataset: {file.path!r} is empty")
    return Index(np.array(starts, np.int64), np.array(ends, np.int64), digest.intdigest())


def _by_windows(file: ByteFile) -> Callable[[int, int], bytes]:
    """Read in windows, as the headers of small files are close together."""
    first, window = 0, b""

    def read(at: int, count: int) -> bytes:
        nonlocal first, window
        if not first <= at <= at + count <= first + len(window):
            first, window = at, file.read(at, max(count, _WINDOW))
        return window[at - first : at - first + count]

    return read


@attrs.frozen
class Field:
    """A declared component of a sample."""

    kind: type
    """The type of the value: ``bytes``, ``str`` or ``int``; ``object`` also means bytes."""
    optional: bool
    """True if the value is None where the file is missing."""
    left_out: bool = False
    """True if a missing file leaves out the component, which may have a default."""

    def value(self, content: bytes | str | None, label: str) -> Any:
        if content is None and self.optional:
            return None
        if content is None:
            raise SpecMismatch(f"{label} is missing")
        if self.kind in (bytes, object) or isinstance(content, str):
            return content
        try:
            text = content.decode()
            return text if self.kind is str else int(text)
        except ValueError as error:
            raise SpecMismatch(f"{label} is not {self.kind.__name__}: {error}") from error


@frozen_node
class FromWebDataset(ShardedSource[T], Generic[T]):
    """The source of ``from_webdataset``: the samples of tar files, by index."""

    parts: tuple[TarFile, ...]
    fields: tuple[tuple[str, Field], ...]
    row_spec: Spec
    form: type | None
    """The class of a sample; None for a dict of all its files."""

    @property
    def title(self) -> str:
        return title_of("from_webdataset", [part.path for part in self.parts])

    @property
    def fingerprint(self) -> str:
        digests = repr([part.version.digest for part in self.parts])
        digest = xxhash.xxh3_64_hexdigest(digests.encode())
        return f"{self.title} of {self.length} rows {digest}"

    def spec(self, probe: bool) -> Spec:
        return self.row_spec

    def open(self) -> Callable[[int], T]:
        shards = self.shards
        files = {0: self._opened(self.parts[0])}  # fails at once if it was rewritten

        def row(i: int) -> Any:
            k, j = shards.find(i)
            if k not in files:
                files[k] = self._opened(self.parts[k])
            sample = files[k].sample(j)
            return sample if self.form is None else self._declared(sample, self.form, k)

        return row

    def _declared(self, sample: dict[str, Any], form: type, k: int) -> Any:
        label = f"from_webdataset: {self.parts[k].path!r}: sample {sample[KEY]!r}"
        more = sample.keys() - {KEY} - {name for name, _ in self.fields}
        if more:
            raise SpecMismatch(f"{label} has more than is declared: {', '.join(sorted(more))}")
        values = {
            name: field.value(sample.get(name), f"{label}: {name!r}")
            for name, field in self.fields
            if name in sample or not field.left_out
        }
        return assemble(form, values)

    def _opened(self, part: TarFile) -> _File:
        return _File(part.version.open("from_webdataset"))


@overload
def from_webdataset(paths: Paths) -> Flow[dict[str, Any], Exact]: ...
@overload
def from_webdataset(paths: Paths, element: TypeForm[A]) -> Flow[A, Exact]: ...
@rejects_keywords(**READER_KEYWORD_ADVICE)
def from_webdataset(paths: Paths, element: Any = dict) -> Flow[Any, Exact]:
    """Read the samples of WebDataset tar files: each a dict from file extension to file content.

    Consecutive files whose names are equal up to the first dot of the last part are one sample:
    ``a/7.jpg`` and ``a/7.seg.png`` become ``{"__key__": "a/7", "jpg": ..., "seg.png": ...}``. Files
    of one sample that are not consecutive are an error, where WebDataset would return several
    incomplete samples. Extensions are converted to lower case. As in WebDataset, members that are
    not regular files, have no dot, or are named ``__like_this__`` are skipped. A tar file that
    contains only files without a dot is an error.

    ``element`` declares a sample: a TypedDict or record whose components are extensions, and
    optionally ``__key__``. ``bytes`` is a file's content, ``str`` its text in UTF-8, ``int`` the
    number that it spells; ``bytes | None`` is a file that may be missing. A ``NotRequired`` file
    that is missing has no key, and a field with a default gets its default.

    ``paths`` is a path, a pattern, a URL, or a list of these; files are read in the listed order.
    ``shard-{000..146}.tar`` names several files, as in WebDataset. A file's headers are read once,
    for an index that is stored beside it; then samples are accessible by index. A tar file has
    checksums only for its headers. ``write_webdataset`` also stores a checksum of each file, which
    is verified.

    Length: the number of samples in the files.

    Effects: none.

    Errors: ``SourceError`` when the flow is built, if a file is missing, compressed, truncated or
    not a tar file, or when a damaged row is read; ``InvalidFlow`` if ``element`` cannot be built
    from files; ``SpecMismatch`` at a row that does not match it.

    >>> import flowdsl as fl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = [{"__key__": "cat", "cls": 3}, {"__key__": "dog", "cls": 7}]
    ...     _ = fl.from_items(rows).write_webdataset(f"{folder}/pets.tar")
    ...     fl.from_webdataset(f"{folder}/pets.tar").collect()
    [{'__key__': 'cat', 'cls': b'3'}, {'__key__': 'dog', 'cls': b'7'}]

    Source: WebDataset by Thomas Breuel.

    Elsewhere: tensorpack none; tf.data none; Grain none; torchdata ``WebDataset``.
    """
    fields, spec, form = _fields(element)
    files = [open_file("from_webdataset", name) for name in all_paths("from_webdataset", paths)]
    lengths = [_File(file).length for file in files]
    parts = tuple(map(TarFile, versions_of(files), lengths))
    return nodes.flow(FromWebDataset[Any](parts, fields, spec, form))


def _fields(element: Any) -> tuple[tuple[tuple[str, Field], ...], Spec, type | None]:
    """Return the declared components, the spec of a sample, and its class.

    Raises:
        InvalidFlow: The element cannot be built from files.
    """
    if (get_origin(element) or element) in (dict, object):
        return (), ValueSpec(dict), None
    spec = spec_of_type(element)
    cls = get_origin(element) or element
    if not isinstance(spec, StructSpec) or not isinstance(cls, type) or cls is tuple:
        raise InvalidFlow(
            f"from_webdataset: a sample is declared as a TypedDict or record of its extensions, "
            f"got {element!r}"
        )
    hints = type_hints(element, include_extras=False)
    left_out = optional_components(cls)
    fields = tuple(
        (name, _field(name, hints.get(name, object), name in left_out)) for name, _ in spec.fields
    )
    has_all_keys = spec.form is not dict or not left_out
    return fields, spec if has_all_keys else ValueSpec(dict), spec.form


def _field(name: str, hint: Any, left_out: bool) -> Field:
    inner, optional = without_none(hint)
    allowed = (str,) if name == KEY else (bytes, str, int, object)
    if inner not in allowed or (optional and name == KEY):
        raise InvalidFlow(
            f"from_webdataset: {name} cannot be {hint!r}: a file is bytes, str or int, "
            f"and {KEY} is str"
        )
    return Field(inner, optional, left_out)


def write(flow: FlowBase[object, Finite], path: OnePath, overwrite: bool = False) -> int:
    """Write the elements of a flow, as its method ``write_webdataset`` does."""
    return write_file("write_webdataset", flow, path, overwrite, _write)


def _write(path: Path, rows: Iterable[object]) -> None:
    keys = set[str]()
    waiting: list[tuple[str, bytes]] = []  # until it is known whether they are the last
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
    """Return the files of a sample; its key is added to the keys of earlier samples."""
    if not isinstance(row, dict):
        raise SpecMismatch(f"element: {type(row).__name__} is not a sample, which is a dict")
    components_to_store(row, "element")  # refuses a subclass of dict
    if KEY not in row:
        raise SpecMismatch(
            f"element: it has no {KEY!r}, which names the files of a sample, such as 'folder/name'"
        )
    key = _key(row[KEY], keys)
    if len(row) == 1:
        raise SpecMismatch(f"element: sample {key!r} has no files")
    parts = ((extension, value) for extension, value in row.items() if extension != KEY)
    return [(_name(key, extension), _content(extension, value)) for extension, value in parts]


def _sample(row: int, files: list[tuple[str, bytes]], is_last: bool) -> Iterator[bytes]:
    for k, (name, content) in enumerate(files):
        yield from member(_digest_context(row, k, len(files), is_last), name, content)


def _key(key: object, keys: set[str]) -> str:
    at = f"element.{KEY}"
    if type(key) is not str or _split(f"{key}.x") != (key, "x") or _has_forbidden_characters(key):
        raise SpecMismatch(
            f"{at}: {key!r} cannot be a file's name up to its first dot; a key is text such as "
            f"'folder/name'"
        )
    if ".." in key.split("/"):
        raise SpecMismatch(f"{at}: {key!r} leads out of the folder in which a file is unpacked")
    if key in keys:
        raise SpecMismatch(
            f"{at}: {key!r} is the key of an earlier row too: their files would be one sample, or "
            f"have the same names; use a different key for each row"
        )
    keys.add(key)
    return key


def _name(key: str, extension: object) -> str:
    if type(extension) is str and extension and not _has_forbidden_characters(extension):
        name = f"{key}.{extension}"
        if not extension.startswith("_") and _split(name) == (key, extension):
            return name
    raise SpecMismatch(
        f"element: {extension!r} cannot be a file's extension, which is in lower case, has "
        f"no slash and does not begin with '_', such as 'jpg'"
    )


def _has_forbidden_characters(text: str) -> bool:
    return "\0" in text or not text.isprintable() or text.startswith("/")


def _content(extension: str, value: object) -> bytes:
    if type(value) is bytes:
        return value
    if type(value) in (str, int):
        try:
            return str(value).encode()
        except UnicodeEncodeError as error:
            raise SpecMismatch(f"element.{extension}: not Unicode: {error}") from error
    raise SpecMismatch(
        f"element.{extension}: {type(value).__name__} cannot be written; bytes, str and int can"
    )
