"""The laws of storage formats: rows are read back as written, or an error explains the failure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import attrs
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flowdsl.errors import FlowError, SourceError, SpecMismatch, StateMismatch
from flowdsl.nodes import IndexedSource
from flowdsl.ops.iterables import from_iterable
from flowdsl.ops.sources import from_items
from flowdsl.testing.checks import check_source
from flowdsl.testing.elements import same
from flowdsl.testing.outcomes import element_difference, naming, require
from flowdsl.testing.recipes import AnyFlow

_SOME = [(i, np.full(3, i / 2, np.float32)) for i in range(12)]


def _rows(element: st.SearchStrategy[object]) -> st.SearchStrategy[list[object]]:
    return st.lists(element, max_size=12)


_COMMON = st.sampled_from([np.dtype(name) for name in ("b1", "u1", "i4", "i8", "f4", "f8")])
_DTYPES = hnp.boolean_dtypes() | hnp.integer_dtypes() | hnp.floating_dtypes(sizes=(32, 64))
_SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
_ARRAYS = hnp.arrays(_COMMON, _SHAPES) | hnp.arrays(_DTYPES, _SHAPES)
ARRAYS = _rows(_ARRAYS | st.tuples(_ARRAYS, _ARRAYS))
"""Rows of arrays with varying shapes and dtypes, which every format should support."""

ANY_ROWS = ARRAYS | _rows(
    st.recursive(
        st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats()
        | st.text(st.characters(codec="utf-8"))
        | _ARRAYS,
        lambda part: (
            st.lists(part, max_size=3)
            | st.tuples(part, part)
            | st.dictionaries(st.sampled_from(["x", "y"]), part, min_size=1)
        ),
        max_leaves=5,
    )
)
"""Rows of arrays, numbers and text, and of lists, tuples and dicts of these."""


@attrs.frozen
class Format:
    """A reader and a writer of a format, and rows for tests."""

    write: Callable[[AnyFlow, Path], int]
    """Writes a flow's elements and returns their number: ``lambda f, p: f.write_mine(p)``."""
    read: Callable[[Path], AnyFlow]
    suffix: str = ""
    """The ending of file names."""
    rows: st.SearchStrategy[list[object]] = attrs.field(default=ANY_ROWS, repr=False)
    """Draws lists of elements that the format supports."""
    refused: Sequence[object] = (object(),)
    """Elements that the format does not support; each is written after supported elements."""
    some: Sequence[object] = attrs.field(default=_SOME, repr=False)
    """Twelve different rows, for the laws that use fixed rows."""
    checked: bool = True
    """True if the format detects damage. A text file has no checksum: a damaged line is another
    line, and a truncated file has fewer lines. Then only the rows before the damage are checked."""

    def written(self, rows: Sequence[object], path: Path) -> AnyFlow:
        """Write rows to a file, and return a flow over it."""
        n = self.write(from_items(list(rows)), path)
        require(n == len(rows), f"write returned {n} for {len(rows)} rows")
        return self.read(path)


FormatLaw: TypeAlias = Callable[[Format, Path], None]
"""A function that checks a format, in an empty folder."""


# -- writing and reading ---------------------------------------------------------------------------


def rows_come_back(format_: Format, folder: Path) -> None:
    """The rows read are the rows written: their order, dtypes, shapes and number."""
    names = count()

    @settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(format_.rows)
    def check(rows: list[object]) -> None:
        path = folder / f"{next(names)}{format_.suffix}"
        _require_read(format_.written(rows, path), rows)

    check()


def _require_read(flow: AnyFlow, rows: Sequence[object]) -> None:
    length = flow.node.length
    found = element_difference(flow.collect(), rows)
    require(found is None, f"of what was written, {found}")
    require(length in (None, len(rows)), f"of {len(rows)} rows, the flow says {length}")


def it_is_a_source(format_: Format, folder: Path) -> None:
    """A flow over a file obeys the laws of flows, also in several processes."""
    path = _path(format_, folder)
    format_.written(format_.some, path)
    check_source(partial(format_.read, path), format_.some, examples=10)
    got = format_.read(path).prefetch(procs=2).collect()
    found = element_difference(got, format_.some)
    require(found is None, f"read by two processes, {found}")


def any_row_is_read_by_its_number(format_: Format, folder: Path) -> None:
    """A row that is read by its number is the row of a pass, in any order of reading."""
    some = format_.some
    node = format_.written(some, _path(format_, folder)).node
    if isinstance(node, IndexedSource):
        row = node.open()
        for i in (*reversed(range(len(some))), 3, 3, 0):
            require(same(row(i), some[i]), f"row {i} is {row(i)!r}, and not {some[i]!r}")


def a_state_identifies_its_file(format_: Format, folder: Path) -> None:
    """A state saved over one file is refused over a file with other rows."""
    path = _path(format_, folder)
    flow = format_.written(format_.some, path)
    with flow.epoch(0) as run:
        next(run)
        state = run.state_dict()
    other = folder / "other"
    other.mkdir()
    changed = format_.written(_reordered(format_), _path(format_, other))
    try:
        with changed.resume(state):
            pass
    except StateMismatch:
        return
    raise AssertionError("a state was resumed over other rows")


def _reordered(format_: Format) -> list[object]:
    """Return the same rows, with the first one moved to the end."""
    return [*format_.some[1:], format_.some[0]]


# -- missing and damaged files ---------------------------------------------------------------------


def a_missing_file_is_named(format_: Format, folder: Path) -> None:
    """Reading a missing file is a SourceError that names it, at once or at the first row.

    The same holds for an empty file, which may also have no rows if the format is not checked.
    """
    path = _path(format_, folder)
    _require_error(format_, path, "it is missing")
    path.write_bytes(b"")
    if format_.checked:
        _require_error(format_, path, "it is empty")
    else:
        _check_prefix(format_, path, [], 0, "it is empty")


def a_file_that_is_cut_off_is_named(format_: Format, folder: Path) -> None:
    """A truncated file is a SourceError that names it, and never a file with fewer rows.

    If the format is not checked, it may also have the complete rows, and an incomplete one.
    """
    path = _path(format_, folder)
    ends = _ends_of_rows(format_, path)
    format_.written(format_.some, path)
    for file, content in _contents(path):
        for size in _offsets(len(content)):
            _replace(file, content[:size])
            what = f"{file.name} was cut to {size} of {len(content)} bytes"
            if format_.checked:
                _require_error(format_, path, what)
            else:
                _check_prefix(format_, path, format_.some[: bisect_right(ends, size)], 1, what)
        _replace(file, content)


def damage_is_never_another_row(format_: Format, folder: Path) -> None:
    """If a byte changes, each row is as written, or a SourceError that names the file is raised.

    If the format is not checked, this holds for the rows before the changed byte.
    """
    path, some = _path(format_, folder), format_.some
    ends = _ends_of_rows(format_, path)
    format_.written(some, path)
    for file, content in _contents(path):
        used = [i for i, byte in enumerate(content) if byte]  # most zero bytes are padding
        for k in {*_offsets(len(content)), *used[:: max(1, len(used) // 150)]}:
            changed = bytearray(content)
            changed[k] ^= 0x41
            _replace(file, bytes(changed))
            what = f"byte {k} of {file.name} was changed"
            if not format_.checked:
                _check_prefix(format_, path, some[: bisect_right(ends, k)], None, what)
                continue
            got, error = _outcome(format_, path)
            found = element_difference(got, some[: len(got)])
            require(found is None, f"{what}: {found}")
            if error is None:
                require(len(got) == len(some), f"{what}: {len(got)} rows came without an error")
            else:
                _require_named(error, path, what)
        _replace(file, content)


def _ends_of_rows(format_: Format, path: Path) -> list[int]:
    """Return the offset of each row's end in an unchecked file, from files with fewer rows."""
    if format_.checked:
        return []
    sizes: list[int] = []
    for n in range(len(format_.some)):
        format_.write(from_items(list(format_.some[: n + 1])), path)
        sizes.append(path.stat().st_size)
        path.unlink()
    return sizes


def _check_prefix(
    format_: Format, path: Path, rows: Sequence[object], more: int | None, what: str
) -> None:
    """Check that a file begins with these rows and has at most ``more`` others, or an error."""
    got, error = _outcome(format_, path)
    found = element_difference(got[: len(rows)], rows[: len(got)])
    require(found is None, f"{what}: before that, {found}")
    if error is not None:
        _require_named(error, path, what, SourceError, SpecMismatch)  # one character changes a type
        return
    require(len(got) >= len(rows), f"{what}: {len(got)} rows came, of {len(rows)} before that")
    few = more is None or len(got) <= len(rows) + more
    require(few, f"{what}: {len(got)} rows came, of {len(rows)} that were left")


def _outcome(format_: Format, path: Path) -> tuple[list[Any], FlowError | None]:
    got: list[Any] = []
    try:
        for row in format_.read(path):
            got.append(row)  # noqa: PERF402  # rows before an error count, too
    except FlowError as error:
        return got, error.with_traceback(None)
    return got, None


def _require_error(format_: Format, path: Path, what: str) -> None:
    got, error = _outcome(format_, path)
    if error is None:
        raise AssertionError(f"{what}: {len(got)} rows came without an error")
    _require_named(error, path, what)


def _require_named(error: FlowError, path: Path, what: str, *kinds: type[FlowError]) -> None:
    causes: list[BaseException] = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    is_named = any(isinstance(e, kinds or SourceError) and str(path) in str(e) for e in causes)
    require(is_named, f"{what}: no SourceError names {str(path)!r}: {error!r}")


def _path(format_: Format, folder: Path) -> Path:
    return folder / f"rows{format_.suffix}"


def _contents(path: Path) -> list[tuple[Path, bytes]]:
    """Return the file, or the files in a folder, with their contents."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return [(file, file.read_bytes()) for file in files]


def _offsets(size: int) -> list[int]:
    """Return some offsets in a file: its two ends, and some between them."""
    some = {0, 1, size // 2, size - 1, *range(0, size, max(1, size // 20))}
    return sorted(k for k in some if 0 <= k < size)


def _replace(file: Path, content: bytes) -> None:
    """Replace a file by a new one, since an open file must not be overwritten."""
    file.unlink(missing_ok=True)
    file.write_bytes(content)


# -- writes that fail ------------------------------------------------------------------------------


def unsupported_elements_are_refused(format_: Format, folder: Path) -> None:
    """An unsupported element is a SpecMismatch that names its row, and leaves no file."""
    for element in format_.refused:
        flow = from_items([*format_.some[:2], element])
        error = _refusal(format_, flow, folder)
        what = f"{element!r} must be refused"
        require(isinstance(error, SpecMismatch), f"{what}, with a SpecMismatch: {error!r}")
        require("row 2" in str(error), f"{what}, as row 2: {error}")


def a_flow_that_fails_leaves_nothing(format_: Format, folder: Path) -> None:
    """The writer raises the error of the flow, and leaves no file, complete or partial.

    An existing file is either unchanged or completely replaced.
    """
    failing = from_iterable(partial(_failing, format_.some))
    error = _refusal(format_, failing, folder)
    require(isinstance(error, FlowError), f"the flow failed, and the writer raised {error!r}")
    path, others = _path(format_, folder), _reordered(format_)
    format_.written(format_.some, path)
    kept = _contents(path)
    try:
        format_.write(from_items(others), path)
    except FlowError:
        require(_contents(path) == kept, "what was refused changed the file that was there")
        _require_read(format_.read(path), format_.some)
        return
    _require_read(format_.read(path), others)


def a_flow_that_never_ends_is_refused(format_: Format, folder: Path) -> None:
    """An endless flow is refused before any row is computed."""

    def made(x: object) -> object:
        raise RuntimeError("a row of an endless flow was computed")

    error = _refusal(format_, from_items(list(format_.some)).map(made).repeat(), folder)
    is_refused = isinstance(error, FlowError) and not isinstance(error.__cause__, RuntimeError)
    require(is_refused, f"a flow that never ends was not refused: {error!r}")


def _failing(rows: Sequence[object]) -> Iterator[object]:
    yield from islice(rows, 5)
    raise ValueError("the disk that is read is on fire")


def _refusal(format_: Format, flow: AnyFlow, folder: Path) -> Exception:
    """Return the error that the writer raises; check that it left no file."""
    before = sorted(folder.rglob("*"))
    try:
        format_.write(flow, _path(format_, folder))
    except Exception as error:
        left = sorted({*folder.rglob("*")} - {*before})
        require(not left, f"after {error!r} these files are left: {', '.join(map(str, left))}")
        return error
    raise AssertionError("it was written")


FORMAT_LAWS: tuple[FormatLaw, ...] = (
    rows_come_back,
    it_is_a_source,
    any_row_is_read_by_its_number,
    a_state_identifies_its_file,
    a_missing_file_is_named,
    a_file_that_is_cut_off_is_named,
    damage_is_never_another_row,
    unsupported_elements_are_refused,
    a_flow_that_fails_leaves_nothing,
    a_flow_that_never_ends_is_refused,
)


def check_format(
    write: Callable[[AnyFlow, Path], int],
    read: Callable[[Path], AnyFlow],
    *,
    suffix: str = "",
    rows: st.SearchStrategy[list[object]] = ANY_ROWS,
    refused: Sequence[object] = (object(),),
    some: Sequence[object] = _SOME,
    checked: bool = True,
) -> None:
    """Check a storage format against all of its laws.

    ``write`` runs a pass, writes its elements to a path, and returns their number; ``read`` creates
    a flow over it. ``rows`` draws lists of elements that the format supports: ``formats.ARRAYS`` if
    it supports only arrays and pairs of arrays. ``refused`` are elements that it does not support.
    ``some`` are twelve rows, for a format without arrays. With ``checked=False`` damage need not be
    detected, as in a text file without a checksum: only the rows before it must be correct.

    >>> import flowdsl as fl
    >>> from flowdsl.testing import check_format
    >>> check_format(
    ...     lambda flow, path: flow.write_lmdb(path), lambda path: fl.from_lmdb(path)
    ... )

    Raises:
        AssertionError: A law is broken; a note names the law.
    """
    format_ = Format(write, read, suffix, rows, refused, some, checked)
    for law in FORMAT_LAWS:
        with TemporaryDirectory() as folder, naming(law):
            law(format_, Path(folder))
