"""from_svmlight: rows of features and a label, in the text format of SVMlight and LIBSVM."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Never, TypeAlias, overload

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl import nodes
from flowdsl.effects import Exact
from flowdsl.elements.specs import ArraySpec, Spec, StructSpec, ValueSpec
from flowdsl.errors import InvalidFlow, SourceError
from flowdsl.nodes import READER_KEYWORD_ADVICE, frozen_node, rejects_keywords
from flowdsl.storage.byte_files import ByteFile
from flowdsl.storage.index import Table
from flowdsl.storage.libraries import library
from flowdsl.storage.paths import Paths, all_paths
from flowdsl.storage.read_ahead import ReadAhead
from flowdsl.storage.text.blocks import FromBlocks
from flowdsl.storage.text.indexing import STRETCH, TextFile, indexed, scan
from flowdsl.storage.text.opening import TextCompression, checked_compression

if TYPE_CHECKING:
    from flowdsl.flow import Flow

Floats: TypeAlias = NDArray[np.float64]
Sample: TypeAlias = "tuple[Floats, float | Floats] | tuple[Floats, float | Floats, int]"

_KEPT_BYTES = 1 << 28
"""The number of bytes of the files that a process caches: parsing a line takes far longer than
copying its features, and rows are mostly shuffled."""

_MAX_FEATURES = 1 << 24
"""A larger feature number needs ``n_features``: otherwise one damaged digit would make rows of
gigabytes."""


@attrs.frozen
class _Samples:
    """The samples of a block in sparse form; each is made dense on access."""

    ends: NDArray[np.int32]
    """The end of each sample's features, after a leading zero."""
    indices: NDArray[np.int32]
    values: Floats
    labels: Floats | list[tuple[float, ...]]
    queries: NDArray[np.int64] | None
    n_features: int

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int, /) -> Sample:
        x = np.zeros(self.n_features)
        features = slice(self.ends[i], self.ends[i + 1])
        x[self.indices[features]] = self.values[features]
        label = self.labels[i]
        y = np.array(label) if isinstance(label, tuple) else float(label)
        return (x, y) if self.queries is None else (x, y, int(self.queries[i]))


@attrs.frozen
class _Form:
    """The parts of a line besides features."""

    multilabel: bool
    query_id: bool

    def mistake(self, line: bytes, error: ValueError) -> str:
        """Return what is wrong with a line that cannot be parsed."""
        label, *features = line.partition(b"#")[0].split() or [b""]
        if not self.multilabel and b":" in label:
            return "it has no label; multilabel=True reads rows with any number of labels"
        if not self.multilabel and b"," in label:
            return "it has several labels; read them with multilabel=True"
        if self.query_id and not (features[:1] or [label])[0].startswith(b"qid:"):
            return "it has no query id, such as qid:3, which query_id=True reads"
        return str(error)


def _loaded(form: _Form, data: bytes) -> tuple[Any, Any, Any]:
    """Parse lines with scikit-learn into a sparse table, labels and query ids.

    Raises:
        ValueError: A line is not in this format.
    """
    read = library("sklearn.datasets", "from_svmlight", "svmlight").load_svmlight_file
    options: dict[str, Any] = {"zero_based": True, "multilabel": form.multilabel}
    try:  # zero_based=True keeps the file's numbering
        table, labels, *queries = read(io.BytesIO(data), query_id=form.query_id, **options)
    except (OverflowError, IndexError, TypeError) as error:
        raise ValueError(str(error)) from error
    if form.query_id and len(queries[0]) != len(labels):
        raise ValueError("a line has no query id")
    return table, labels, queries[0] if form.query_id else None


@attrs.frozen
class _SampleParser:
    """Parses blocks of lines into samples."""

    n_features: int
    first: int
    """The number of the first feature in the file: 0 or 1."""
    form: _Form
    syntax: None = None
    keeps_empty_lines: bool = True

    def parse(self, data: bytes, skip: int = 0) -> _Samples:
        table, labels, queries = _loaded(self.form, data)
        indices = table.indices - self.first
        return _Samples(table.indptr, indices, table.data, labels, queries, self.n_features)


@frozen_node
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
        form = self.features.form
        y = ArraySpec(np.dtype(np.float64), (None,)) if form.multilabel else ValueSpec(float)
        query: tuple[tuple[str, Spec], ...] = (("2", ValueSpec(int)),) if form.query_id else ()
        return StructSpec(tuple, (("0", x), ("1", y), *query))


@overload  # for calls with ``**options``, whose names pyright does not know
def from_svmlight(
    paths: Paths,
    *,
    n_features: int | None = None,
    zero_based: bool | Literal["auto"] = "auto",
    compression: TextCompression = "infer",
    multilabel: Never,
    query_id: Never,
) -> Flow[Any, Exact]: ...
@overload
def from_svmlight(
    paths: Paths,
    *,
    n_features: int | None = None,
    zero_based: bool | Literal["auto"] = "auto",
    compression: TextCompression = "infer",
    multilabel: Literal[False] = False,
    query_id: Literal[False] = False,
) -> Flow[tuple[NDArray[np.float64], float], Exact]: ...
@overload
def from_svmlight(
    paths: Paths,
    *,
    n_features: int | None = None,
    zero_based: bool | Literal["auto"] = "auto",
    compression: TextCompression = "infer",
    multilabel: Literal[True],
    query_id: Literal[False] = False,
) -> Flow[tuple[NDArray[np.float64], NDArray[np.float64]], Exact]: ...
@overload
def from_svmlight(
    paths: Paths,
    *,
    n_features: int | None = None,
    zero_based: bool | Literal["auto"] = "auto",
    compression: TextCompression = "infer",
    multilabel: Literal[False] = False,
    query_id: Literal[True],
) -> Flow[tuple[NDArray[np.float64], float, int], Exact]: ...
@overload
def from_svmlight(
    paths: Paths,
    *,
    n_features: int | None = None,
    zero_based: bool | Literal["auto"] = "auto",
    compression: TextCompression = "infer",
    multilabel: Literal[True],
    query_id: Literal[True],
) -> Flow[tuple[NDArray[np.float64], NDArray[np.float64], int], Exact]: ...
@overload  # flags whose values the types do not know
def from_svmlight(
    paths: Paths,
    *,
    n_features: int | None = None,
    zero_based: bool | Literal["auto"] = "auto",
    compression: TextCompression = "infer",
    multilabel: bool = False,
    query_id: bool = False,
) -> Flow[Any, Exact]: ...
@rejects_keywords(**READER_KEYWORD_ADVICE)
def from_svmlight(
    paths: Paths,
    *,
    n_features: int | None = None,
    zero_based: bool | Literal["auto"] = "auto",
    compression: TextCompression = "infer",
    multilabel: bool = False,
    query_id: bool = False,
) -> Flow[Any, Exact]:
    r"""Read pairs of features and label from files in the text format of SVMlight and LIBSVM.

    ``paths`` is a path or URL, a pattern, whose files are sorted, or a list of these, in the listed
    order. A row is ``(x, y)``: ``x`` is a dense array of all features, zero where the file has no
    value, and ``y`` is the label. scikit-learn parses a block of lines at a time, and rows are made
    dense one by one, so a file may be larger than memory. Text after ``#`` is a comment. Files may
    be compressed by gzip, as in ``from_text``.

    With ``multilabel=True``, ``y`` is an array of the row's labels, ``3,1``, sorted; a row may have
    none. With ``query_id=True``, a row is ``(x, y, qid)``, and each line needs a ``qid:``, which is
    ignored otherwise.

    ``n_features`` is the length of ``x``; pass it if it is more than the largest feature in these
    files, as for a test set. ``zero_based`` is True if the first feature has the number 0;
    ``"auto"`` assumes so if any of these files has a feature 0.

    Length: the number of samples.

    Effects: none.

    Errors: when the flow is built, ``MissingLibrary`` without scikit-learn; ``SourceError`` for a
    file that is missing, damaged, or compressed other than by gzip and, with its line, for an
    invalid sample, such as one with several labels or without a label, unless ``multilabel=True``;
    ``InvalidFlow`` for an ``n_features`` smaller than the files need. A feature beyond 16,777,216
    is treated as damage, unless ``n_features`` allows it.

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
    for option, given in (("multilabel", multilabel), ("query_id", query_id)):
        if type(given) is not bool:
            raise InvalidFlow(f"from_svmlight: {option} must be True or False, got {given!r}")
    is_count = isinstance(n_features, int) and not isinstance(n_features, bool)
    if n_features is not None and not (is_count and n_features >= 1):
        raise InvalidFlow(f"from_svmlight: n_features must be an int >= 1, got {n_features!r}")
    form = _Form(multilabel, query_id)
    compression = checked_compression("from_svmlight", compression)
    files = tuple(_indexed(path, compression, form) for path in all_paths("from_svmlight", paths))
    first = _first_feature(files, zero_based)
    features = _SampleParser(_size(files, first, n_features), first, form)
    return nodes.flow(FromSvmlight(files, features))


def _indexed(path: str, compression: TextCompression, form: _Form) -> TextFile:
    """Index a file; its blocks also have their largest and smallest feature."""
    name = f"svmlight 3 {STRETCH} {form}"
    return indexed(
        "from_svmlight", path, compression, name, columns=5, scan=lambda file: _scan(form, file)
    )


def _scan(form: _Form, file: ByteFile) -> Table:
    lines = scan("from_svmlight", file)
    starts, _, before = lines.columns
    rows, largest, smallest = [0], [-1], [_MAX_INDEX]
    ahead = ReadAhead(file)
    for start, end, line in zip(starts[:-1], starts[1:], before[:-1], strict=True):
        data = ahead.read(int(start), int(end))
        try:
            table, labels, _ = _loaded(form, data)
        except ValueError as error:
            raise _damaged(form, file.path, data, int(line)) from error
        rows.append(rows[-1] + len(labels))
        largest.append(int(table.indices.max(initial=-1)))
        smallest.append(int(table.indices.min(initial=_MAX_INDEX)))
    # Column k + 1 has the features of block k, and column 0 those of none: only the largest and the
    # smallest over all columns are used.
    return Table(np.array([starts, rows, before, largest, smallest]), lines.digest)


_MAX_INDEX = 2**31 - 1


def _damaged(form: _Form, path: str, data: bytes, before: int) -> SourceError:
    for number, line in enumerate(data.split(b"\n"), before + 1):
        try:
            _loaded(form, line)
        except ValueError as error:
            shown = repr(line[:80].decode(errors="backslashreplace"))
            mistake = form.mistake(line, error)
            return SourceError(f"from_svmlight: {path!r}, line {number}: {mistake}; got {shown}")
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
    """Return the number of features of a row."""
    most, path = max((int(file.blocks[3].max()), file.path) for file in files)
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
