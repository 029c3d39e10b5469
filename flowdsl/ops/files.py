"""from_files: the names of files that match a pattern."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import attrs

from flowdsl.effects import Exact
from flowdsl.elements.specs import Spec, ValueSpec
from flowdsl.errors import InvalidFlow, Location, SourceError
from flowdsl.nodes import IndexedSource, cached_per_node, flow, frozen_node
from flowdsl.resources.file_names import (
    Url,
    about_folder,
    matches,
    names_digest,
    pattern_of_folder,
    without_secrets,
)
from flowdsl.storage.paths import without_braces

if TYPE_CHECKING:
    from flowdsl.flow import Flow

Pattern: TypeAlias = "str | os.PathLike[str]"


@frozen_node
class FromFiles(IndexedSource[str]):
    """The names of the files that matched a pattern, sorted."""

    in_memory: ClassVar[bool] = True
    patterns: tuple[str, ...]
    files: tuple[str, ...] = attrs.field(repr=False)

    @property
    def title(self) -> str:
        first, *others = self.patterns
        more = f" and {len(others)} more" if others else ""
        return f"from_files({first!r}{more}, {len(self.files)} files)"

    @property
    @cached_per_node
    def fingerprint(self) -> str:
        names = list(map(os.path.abspath, self.files))
        return f"from_files({len(self.files)} files) {names_digest(names)}"

    @property
    def length(self) -> int:
        return len(self.files)

    def open(self) -> Callable[[int], str]:
        return self.files.__getitem__

    def spec(self, probe: bool) -> Spec:
        return ValueSpec(str)

    def location(self, row: int) -> Location:
        return Location(self.files[row])


def from_files(pattern: Pattern | Sequence[Pattern]) -> Flow[str, Exact]:
    """Yield the names of the files that match a pattern, or any of several, sorted by name.

    In a pattern, ``*`` matches any characters of a name, ``?`` one, ``[ab]`` one of these, and
    ``**`` any number of folders; wildcards do not match a dot at the start of a name.
    ``{000..146}`` expands to one pattern for each number, and ``{a,b}`` to one for each text. The
    name of an existing file matches that file literally, and so do the leading folders of a
    pattern, as in ``run[1]/*.png``; a leading ``~`` is your home folder. Names are relative or
    absolute like their pattern, without duplicates. Files are matched when the flow is built; files
    created later are not included. A saved state depends on the name of the files' common folder
    and the names below it, so that folder may be moved or copied but not renamed.

    Length: the number of matching files.

    Effects: none.

    Errors: ``InvalidFlow`` for an invalid pattern, an empty list, or braces that stand for more
    than a million names; ``SourceError``, naming the pattern and its folder, for a pattern without
    a match, and for a folder.

    >>> import os, tempfile, flowdsl as fl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("b.png", "a.png", "notes.txt"):
    ...         open(os.path.join(folder, name), "w").close()
    ...     names = fl.from_files(f"{folder}/*.png")
    >>> names.map(os.path.basename).collect()
    ['a.png', 'b.png']

    Source: ``match_filenames_once`` and ``string_input_producer`` of tf.train.

    Elsewhere: tensorpack none; tf.data ``list_files``; Grain none; torchdata ``FileLister``.
    """
    given = [pattern] if isinstance(pattern, str | os.PathLike) else pattern
    patterns = [_path_or_none(each) for each in given] if isinstance(given, Sequence) else []
    if not patterns or None in patterns:
        raise InvalidFlow(
            f"from_files: pattern must be a str or path, or a sequence of at least one, got "
            f"{without_secrets(repr(pattern))}"
        )
    paths = tuple(path for path in patterns if path is not None)
    files: dict[str, str] = {}
    for path in paths:
        for expanded in without_braces("from_files", path):
            for name in _matching(expanded):
                files.setdefault(os.path.abspath(name), name)  # without duplicates
    return flow(FromFiles(paths, tuple(sorted(files.values()))))


def _path_or_none(pattern: object) -> str | None:
    path = os.fspath(pattern) if isinstance(pattern, str | os.PathLike) else None
    return os.path.expanduser(path) if isinstance(path, str) else None


def _matching(pattern: str) -> list[str]:
    """The names of the files that match a pattern without braces."""
    if os.path.isfile(pattern):
        return [pattern]
    if os.path.isdir(pattern):
        raise SourceError(
            f"from_files: {pattern!r} is a folder; for the files in it, write a pattern as "
            f"{pattern_of_folder(pattern)!r}"
        )
    files = [name for name in matches(pattern) if os.path.isfile(name)]
    if not files:  # the most likely reason is a misspelled folder
        raise SourceError(f"from_files: no file matches {Url(pattern)!r}; {about_folder(pattern)}")
    return files
