"""from_svmlight: rows of features and a label, in the text format of SVMlight and LIBSVM."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl import nodes
from flowdsl.effects import Exact
from flowdsl.elements.specs import ArraySpec, Spec, StructSpec, ValueSpec
from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.storage.byte_files import ByteFile
from flowdsl.storage.index import Table, table_of
from flowdsl.storage.libraries import library
from flowdsl.storage.paths import Paths, all_paths
from flowdsl.storage.read_ahead import ReadAhead
from flowdsl.storage.text.blocks import (
    STRETCH,
    FromBlocks,
    TextFile,
    open_readable,
    scan,
)

if TYPE_CHECKING:
    from flowdsl.flow import Flow

Sample: TypeAlias = "tuple[NDArray[np.float64], float]"

_KEPT_BYTES = 1 << 28
"""The number of bytes of the files that a process caches: parsing a line takes far longer than
copying its features, and rows are mostly shuffled."""

_MAX_FEATURES = 1 << 24
"""A larger feature number needs ``n_features``: otherwise one damaged digit would make rows of
gigabytes."""


@attrs.frozen
class _Samples(Sequence[Sample]):
    """The samples of a block in sparse form; each is made dense on access."""

    ends: NDArray[np.int32]
    """The end of each sample's features, after a leading zero."""
    indices: NDArray[np.int32]
    values: NDArray[np.float64]
    labels: NDArray[np.float64]
    n_features: int

    def __len__(self) -> int:
        return len(self.labels)

    @overload
    def __getitem__(self, i: int) -> Sample: ...
    @overload
    def __getitem__(self, i: slice) -> list[Sample]: ...
    def __getitem__(self, i: int | slice) -> Sample | list[Sample]:
        if isinstance(i, slice):
            return [self[k] for k in range(len(self))[i]]
        x = np.zeros(self.n_features)
        of_row = slice(self.ends[i], self.ends[i + 1])
        x[self.indices[of_row]] = self.values[of_row]
        return x, float(self.labels[i])


@attrs.frozen
class _SampleParser:
    """Parses blocks of lines into samples."""

    n_features: int
    first: int
    """The number of the first feature in the file: 0 or 1."""
    syntax: None = None
    empty: bool = True

    def parse(self, data: bytes, skip: int = 0) -> _Samples:
        ends, indices, values, labels = _loaded(data)
        return _Samples(ends, indices - self.first, values, labels, self.n_features)


def _loaded(data: bytes) -> tuple[Any, Any, Any, Any]:
    """Parse lines into sparse samples with scikit-learn.

    Raises:
        ValueError: A line is not in this format.
    """
    read = library("sklearn.datasets", "from_svmlight", "svmlight").load_svmlight_file
    try:
        table, labels = read(io.BytesIO(data), zero_based=True)  # keep the file's numbering
    except (OverflowError, IndexError, TypeError) as error:
        raise ValueError(str(error)) from error
    return table.indptr, table.indices, table.data, labels


@attrs.frozen(repr=False)
class FromSvmlight(FromBlocks[Sample]):
    """The source of ``from_svmlight``: the samples of SVMlight files, by index."""

    features: _SampleParser

    @property
    def operator(self) -> str:
        return "from_svmlight"

    @property
    def parser(self) -> _SampleParser:
        return self.features

    @property
    def kept(self) -> int:
        return _KEPT_BYTES

    def spec(self, probe: bool) -> Spec:
        x = ArraySpec(np.dtype(np.float64), (self.features.n_features,))
        return StructSpec(tuple, (("0", x), ("1", ValueSpec(float))))


def from_svmlight(
    paths: Paths,
    *,
    n_features: int | None = None,
    zero_based: bool | Literal["auto"] = "auto",
) -> Flow[tuple[NDArray[np.float64], float], Exact]:
    r"""Read pairs of features and label from files in the text format of SVMlight and LIBSVM.

    ``paths`` is a path or URL, a pattern, whose files are sorted, or a list of these, in the listed
    order. A row is ``(x, y)``: ``x`` is a dense array of all features, zero where the file has no
    value, and ``y`` is the label. scikit-learn parses a block of lines at a time, and rows are made
    dense one by one, so a file may be larger than memory. Text after ``#`` is a comment, and
    ``qid:`` is ignored.

    ``n_features`` is the length of ``x``; pass it if it is more than the largest feature in these
    files, as for a test set. ``zero_based`` is True if the first feature has the number 0;
    ``"auto"`` assumes so if any of these files has a feature 0.

    Length: the number of samples.

    Effects: none.

    Errors: when the flow is built, ``MissingLibrary`` without scikit-learn; ``SourceError`` for a
    file that is missing or compressed and, with its line, for an invalid sample; ``InvalidFlow``
    for an ``n_features`` smaller than the files need. A feature beyond 16,777,216 is treated as
    damage, unless ``n_features`` allows it.

    >>> import flowdsl as fl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/a.svm", "w") as file:
    ...         _ = file.write("1 1:0.5 3:2\n-1 2:1.5\n")
    ...     fl.from_svmlight(f"{folder}/a.svm").collect()
    [(array([0.5, 0. , 2. ]), 1.0), (array([0. , 1.5, 0. ]), -1.0)]

    Source: ``SVMLightData`` in tensorpack; SVMlight by Thorsten Joachims.

    Elsewhere: tensorpack ``SVMLightData``; tf.data none; Grain none; torchdata none.
    """
    if not isinstance(zero_based, bool) and zero_based != "auto":
        raise InvalidFlow(
            f"from_svmlight: zero_based must be True, False or 'auto', got {zero_based!r}"
        )
    is_count = isinstance(n_features, int) and not isinstance(n_features, bool)
    if n_features is not None and not (is_count and n_features >= 1):
        raise InvalidFlow(f"from_svmlight: n_features must be an int >= 1, got {n_features!r}")
    files = tuple(_indexed(path) for path in all_paths("from_svmlight", paths))
    first = _first_feature(files, zero_based)
    features = _SampleParser(_size(files, first, n_features), first)
    return nodes.flow(FromSvmlight(files, features))


def _indexed(path: str) -> TextFile:
    """Index a file; its blocks also have their largest and smallest feature."""
    file = open_readable("from_svmlight", path)
    table = table_of(file, f"svmlight 1 {STRETCH}", 5, _scan)
    return TextFile(path, file.stamp, table.digest, table.columns)


def _scan(file: ByteFile) -> Table:
    lines = scan("from_svmlight", file)
    starts, _, before = lines.columns
    rows, most, least = [0], [-1], [_MAX_INDEX]
    ahead = ReadAhead(file)
    for start, end, line in zip(starts[:-1], starts[1:], before[:-1], strict=True):
        data = ahead.read(int(start), int(end))
        try:
            _, indices, _, labels = _loaded(data)
        except ValueError as error:
            raise _damaged(file.path, data, int(line)) from error
        rows.append(rows[-1] + len(labels))
        most.append(int(indices.max(initial=-1)))
        least.append(int(indices.min(initial=_MAX_INDEX)))
    # The last column is the end of the file. The features of block k are in column k + 1, and
    # column 0 has none: only their largest and smallest over all columns are used.
    return Table(np.array([starts, rows, before, most, least]), lines.digest)


_MAX_INDEX = 2**31 - 1


def _damaged(path: str, data: bytes, before: int) -> SourceError:
    for number, line in enumerate(data.split(b"\n"), before + 1):
        try:
            _loaded(line)
        except ValueError as error:
            shown = repr(line[:80].decode(errors="backslashreplace"))
            return SourceError(f"from_svmlight: {path!r}, line {number}: {error}; got {shown}")
    return SourceError(f"from_svmlight: {path!r}, after line {before}: it is not an SVMlight file")


def _first_feature(files: Sequence[TextFile], zero_based: bool | Literal["auto"]) -> int:
    has_zero = [file.path for file in files if (file.blocks[4] == 0).any()]
    if zero_based is False and has_zero:
        raise SourceError(
            f"from_svmlight: {has_zero[0]!r} has a feature 0, but zero_based=False means that the "
            f"first is 1"
        )
    return 0 if zero_based is True or has_zero else 1


def _size(files: Sequence[TextFile], first: int, requested: int | None) -> int:
    most, path = max(_largest(files))
    needed = max(most + 1 - first, 1)
    if requested is None and needed > _MAX_FEATURES:
        raise SourceError(
            f"from_svmlight: {path!r} has a feature {most}, so that a row takes {8 * needed:,} "
            f"bytes; if that is intended, pass n_features={needed}"
        )
    if requested is not None and requested < needed:
        raise InvalidFlow(
            f"from_svmlight: n_features must be at least {needed}, as {path!r} has a feature "
            f"{most}, got {requested}"
        )
    return requested or needed


def _largest(files: Sequence[TextFile]) -> Iterator[tuple[int, str]]:
    for file in files:
        yield int(file.blocks[3].max()), file.path
